package redisfleet

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// change lets another member change a breaker of a full namespace in each period, for as long as d.
func change(t *testing.T, other *modelStore, period, d time.Duration) {
	for i := range int(d / period) {
		b := resilience.FleetBreaker{
			ID: fmt.Sprint("unlisted/", i%maxBreakers), Config: resilience.BreakerConfig{Failures: 1000},
		}
		_, err := other.failure(t.Context(), b, 1, 2, false)
		require.NoError(t, err)
		time.Sleep(period)
	}
}

// A member that may have missed something reads all once, however much changes meanwhile, and none again because a
// message is under way.
func TestFullNamespaceThatChangesIsReadOnce(t *testing.T) {
	t.Parallel() // it takes long
	for _, oneWay := range []time.Duration{0, 2 * time.Millisecond, 35 * time.Millisecond} {
		for _, period := range []time.Duration{100 * time.Millisecond, 5 * time.Millisecond} {
			t.Run(fmt.Sprint(oneWay, " away, every ", period), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newModel()
					m.fill()
					s := newServer(t, m, "idle")
					s.store.delay = func() time.Duration { return oneWay }
					s.start(nil)
					defer leaveAll(t, []*server{s})
					time.Sleep(10 * time.Second)
					m.executed()

					s.fleet.engine.subscribed()
					change(t, m.store("other"), period, 15*time.Second)
					got := m.executed()
					require.GreaterOrEqual(t, got["read"], maxBreakers/maxBatch)
					require.LessOrEqual(t, got["read"], maxBreakers/maxBatch+1+got["sync"])
				})
			})
		}
	}
}

// What is lost while all is read is missed, whatever is heard before and after.
func TestMessageThatIsLostDuringARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		s := newServer(t, m, "reading")
		s.more = []string{"before", "lost", "after"}
		s.start(nil)
		defer leaveAll(t, []*server{s})
		require.NoError(t, s.fleet.Isolate(t.Context(), "search", "so that there is something to read"))
		time.Sleep(2 * time.Second)

		other := m.store("other")
		var reads atomic.Int64
		isolate := func(tool string) {
			_, err := other.isolate(t.Context(), "listed/"+tool, "")
			require.NoError(t, err)
			synctest.Wait()
		}
		s.store.faults.Store("read", fault{after: func(context.Context) error {
			if reads.Add(1) > 1 {
				return nil
			}
			isolate("before")
			hear := s.store.deafen()
			isolate("lost")
			hear()
			isolate("after")
			return nil
		}})
		s.fleet.engine.subscribed()
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 2, reads.Load())
		for _, tool := range s.more {
			require.Equal(t, resilience.StateIsolated, s.stateOf(tool), tool)
		}
	})
}

// What a memory has said counts for no other one, also if the server loses it while it is read.
func TestMemoryThatIsLostDuringARead(t *testing.T) {
	for name, forget := range map[string]func(m *model) (lose func()){
		"everything": func(m *model) func() { return m.flush },
		"the newest": (*model).snapshot,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				s := newServer(t, m, "reading")
				s.more = []string{"heard"}
				s.start(nil)
				defer leaveAll(t, []*server{s})
				require.NoError(t, s.fleet.Isolate(t.Context(), "search", "so that there is something to read"))
				time.Sleep(2 * time.Second)

				other, lose := m.store("other"), forget(m)
				s.store.faults.Store("read", fault{after: func(ctx context.Context) error {
					s.store.mend()
					_, err := other.isolate(ctx, "listed/heard", "")
					synctest.Wait()
					lose()
					return err
				}})
				s.fleet.engine.subscribed()
				time.Sleep(2 * time.Second)
				for _, tool := range []string{"heard", "search"} {
					require.Equal(t, resilience.StateIsolated, s.stateOf(tool), tool)
					require.Equal(t, "isolated", m.breaker("listed/"+tool).State, tool)
				}
			})
		})
	}
}

// What is heard while all is read counts if it goes on where the read has begun, without a gap or a doubt.
func TestWhatIsHeardDuringARead(t *testing.T) {
	const doubt = -1
	for name, c := range map[string]struct {
		heard []int64
		of    string // the memory that is read; "memory" if empty
		want  int64  // of 5 that were read
	}{
		"nothing":                   {want: 5},
		"what follows":              {heard: []int64{6, 7}, want: 7},
		"older, too":                {heard: []int64{4, 5, 6}, want: 6},
		"only older":                {heard: []int64{3, 4}, want: 5},
		"one is missing":            {heard: []int64{7}, want: 5},
		"one is missing between":    {heard: []int64{6, 8}, want: 5},
		"all after a doubt":         {heard: []int64{doubt, 6, 7}, want: 7},
		"one before a doubt":        {heard: []int64{6, doubt, 7}, want: 5},
		"what is of another memory": {heard: []int64{6}, of: "another", want: 5},
		"what follows, again":       {heard: []int64{6, 7, 6}, want: 6},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, newModel(), "me")
			e := newEngine(s.store, "me", Config{})
			s.prepare(nil)
			var err error
			e.member, err = s.guard.JoinFleet("fleet test", e)
			require.NoError(t, err)
			e.since = "memory"
			for _, version := range c.heard {
				if version == doubt {
					e.reread()
					continue
				}
				e.heard(entry{ID: "listed/another", State: "isolated", Version: version, Since: "memory"})
			}

			read := memory{cmp.Or(c.of, "memory"), 5}
			e.learn(time.Now(), syncReply{memory: read}, nil)
			require.Equal(t, memory{read.Since, c.want}, e.known)
			require.True(t, e.hasHeard(read))
			require.False(t, e.hasHeard(memory{read.Since, c.want + 1}))
			require.False(t, e.hasHeard(memory{"a third", 1}))
		})
	}
}
