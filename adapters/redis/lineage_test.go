package redisfleet

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// A server that crashes time and again may load the same file each time.
func TestResetSurvivesTheSameOlderMemoryTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 3, nil)
		defer func() { leaveAll(t, all) }()
		require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
		time.Sleep(2 * time.Second)
		back := m.snapshot()
		require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
		time.Sleep(2 * time.Minute)

		for range 3 {
			failOver(all, back)
			time.Sleep(3 * time.Second)
			requireAll(t, all, resilience.StateClosed)
			require.Equal(t, "closed", m.breaker("listed/search").State)
			if len(all) > 1 { // each of them knows
				leaveAll(t, all[:1])
				all = all[1:]
			}
		}
	})
}

// What was isolated between two crashes stays so, too.
func TestIsolationSurvivesTheSameOlderMemoryTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 2, nil)
		defer leaveAll(t, all)
		require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
		back := m.snapshot()
		_, err := m.store("operator").isolate(t.Context(), "listed/another", "")
		require.NoError(t, err)
		synctest.Wait()
		failOver(all, back)
		time.Sleep(2 * time.Second)
		require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
		failOver(all, back)
		time.Sleep(3 * time.Second)
		requireAll(t, all, resilience.StateIsolated)
		require.Equal(t, "isolated", m.breaker("listed/search").State)
		require.Equal(t, "isolated", m.breaker("listed/another").State)
	})
}

// Nor is it undone that somebody isolates a breaker before any member has noticed what has happened.
func TestIsolationAsSoonAsTheSameOlderMemoryIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 2, nil)
		defer leaveAll(t, all)
		back := m.snapshot()
		require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
		time.Sleep(2 * time.Second)
		failOver(all, back)
		time.Sleep(2 * time.Second)
		require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
		time.Sleep(2 * time.Minute)

		back()
		require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving again"))
		time.Sleep(3 * time.Second)
		requireAll(t, all, resilience.StateIsolated)
		require.Equal(t, "moving again", m.breaker("listed/search").Reason)
	})
}

// An operator may replace a memory that is lost by a backup, which has all that the lost one had, or less.
func TestResetSurvivesABackup(t *testing.T) {
	for name, whole := range map[string]bool{"an old one": false, "a whole one": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				all := servers(t, m, 2, nil)
				defer leaveAll(t, all)
				require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
				time.Sleep(2 * time.Second)
				back := m.snapshot()
				reset := func() {
					require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
					time.Sleep(2 * time.Minute)
				}
				if !whole {
					reset()
				}
				failOver(all, m.flush)
				time.Sleep(2 * time.Second)
				if whole {
					reset()
				}
				requireAll(t, all, resilience.StateClosed)
				failOver(all, back)
				time.Sleep(3 * time.Second)
				requireAll(t, all, resilience.StateClosed)
				require.Equal(t, "closed", m.breaker("listed/search").State)
			})
		})
	}
}

// What a member tells after an outage is newer than what it knew before.
func TestMemberTellsWhatItHasFoundOutWhenTheSameOlderMemoryIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		s := newServer(t, m, "alone")
		s.start(nil)
		defer leaveAll(t, []*server{s})
		time.Sleep(absence) // then it is known to be alone
		back := m.snapshot()
		s.fail()
		require.NoError(t, s.call())
		failOver([]*server{s}, back)
		time.Sleep(2 * time.Second)
		s.fail()
		require.NoError(t, s.call())

		s.store.down.Store(true)
		time.Sleep(2 * time.Second)
		s.open("search")
		back()
		s.store.down.Store(false)
		time.Sleep(2 * time.Second)
		require.Equal(t, "open", m.breaker("listed/search").State)
	})
}

// The memories are b, which went back to version 5 of a; c, which knows nothing of b; and d, which is b again, as it
// was in version 8.
func TestWhatMemoriesHaveInCommon(t *testing.T) {
	l := lineage{}
	for _, next := range []struct{ newest, of memory }{
		{memory{"a", 7}, memory{"a", 5}},
		{memory{"b", 9}, memory{}},
		{memory{"c", 4}, memory{"b", 8}},
		{memory{"d", 11}, memory{"another", 1}},
	} {
		l = append(l, ancestor{memory: next.newest}).next(next.of)
	}
	for c, want := range map[struct {
		since string
		of    memory
	}]int64{
		{"d", memory{"d", 10}}: 10, {"d", memory{"c", 3}}: -1, {"d", memory{"another", 1}}: -1,
		{"b", memory{"a", 3}}: 3, {"b", memory{"a", 6}}: 5, {"c", memory{"a", 6}}: -1,
		{"a", memory{"b", 8}}: 5, {"b", memory{"c", 2}}: -1,
		{"none", memory{"a", 3}}: math.MaxInt64, {"", memory{}}: math.MaxInt64,
	} {
		require.Equal(t, want, l.shared(c.since, c.of), c)
	}

	require.Equal(t, int64(3), l.older(memory{"a", 3}))
	require.Equal(t, int64(7), l.older(memory{"a", 8}), "the member hasn't seen the eighth")
	require.Zero(t, l.older(memory{"another", 8}))
}

func TestLineageIsBounded(t *testing.T) {
	var l lineage
	for i := range 3 * maxLineage {
		l = append(l, ancestor{memory: memory{fmt.Sprint(i), 1}}).next(memory{})
	}
	require.Len(t, l, maxLineage)
	require.Equal(t, fmt.Sprint(3*maxLineage-1), l[maxLineage-1].Since)
}

// A clock that is set back comes past the moment again in which a memory has begun. One that begins then is another.
func TestMemoriesThatBeginAtTheSameTimeOfAClockThatIsSetBack(t *testing.T) {
	_, tick, all := stores(t, 1)
	s := all[0]
	first, err := s.sync(t.Context(), memory{})
	require.NoError(t, err)

	tick(-time.Millisecond)
	_, err = s.sync(t.Context(), memory{})
	require.NoError(t, err)

	tick(time.Millisecond)
	s.saw(memory{first.Since, first.Version + 1})
	second, err := s.sync(t.Context(), memory{})
	require.NoError(t, err)
	require.NotEqual(t, first.Since, second.Since)
	require.Equal(t, first.memory, second.Of)
}
