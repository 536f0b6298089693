package redisfleet

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// Operators isolate what is broken: an older memory may know that, and not of the isolation.
func TestIsolationOfAnOpenBreakerSurvivesAnOlderMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 3, nil)
		defer leaveAll(t, all)
		down(t, all)
		back := m.snapshot()
		require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
		time.Sleep(2 * time.Second)
		require.Equal(t, resilience.StateIsolated, all[1].state())

		for _, s := range all {
			s.store.down.Store(true)
		}
		time.Sleep(2 * time.Second)
		back()
		for _, s := range all {
			s.store.down.Store(false)
		}
		time.Sleep(2 * time.Second)
		for i, s := range all {
			require.Equal(t, resilience.StateIsolated, s.state(), "member %d", i)
		}
	})
}

// What was closed since the older memory isn't isolated again.
func TestResetSurvivesAnOlderMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 3, nil)
		defer leaveAll(t, all)
		require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
		time.Sleep(2 * time.Second)
		back := m.snapshot()
		require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
		time.Sleep(2 * time.Minute)
		for _, s := range all {
			s.store.down.Store(true)
		}
		time.Sleep(2 * time.Second)
		back()
		for _, s := range all {
			s.store.down.Store(false)
		}
		time.Sleep(3 * time.Second)
		for i, s := range all {
			require.Equal(t, resilience.StateClosed, s.state(), "member %d", i)
		}
		require.Equal(t, "closed", m.breaker("listed/search").State)
	})
}

// A new memory counts from the beginning: what a member knows as closed may have been isolated in it since.
func TestIsolationInANewMemoryIsNotTakenForAnOlderOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 2, nil)
		defer leaveAll(t, all)
		for range 3 {
			require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
			time.Sleep(time.Second)
			require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
			time.Sleep(2 * time.Minute)
		}
		all[1].store.down.Store(true)
		time.Sleep(2 * time.Second)
		m.flush()
		time.Sleep(2 * time.Second)
		require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving again"))
		all[1].store.down.Store(false)
		time.Sleep(3 * time.Second)
		require.Equal(t, "isolated", m.breaker("listed/search").State)
		for i, s := range all {
			require.Equal(t, resilience.StateIsolated, s.state(), "member %d", i)
		}
	})
}

// What a member tells after an outage must not make an older memory look like a newer one.
func TestOlderMemoryIsNoticedBeforeItIsToldAnything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		s := newServer(t, m, "first")
		s.more = []string{"a", "b", "pay"}
		s.start(nil)
		defer leaveAll(t, []*server{s})
		time.Sleep(absence)
		back := m.snapshot()
		require.NoError(t, s.fleet.Isolate(t.Context(), "pay", "moving house"))
		time.Sleep(2 * time.Second)

		s.store.down.Store(true)
		time.Sleep(2 * time.Second)
		s.open("a")
		s.open("b")
		back()
		s.store.down.Store(false)
		time.Sleep(3 * time.Second)
		require.Equal(t, "isolated", m.breaker("listed/pay").State)
		require.Equal(t, resilience.StateIsolated, s.stateOf("pay"))
	})
}

// The breakers of keys are configured as that of their tool, and may be many.
func TestDifferencesAreNotOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		a, b := newServer(t, m, "a"), newServer(t, m, "b")
		a.more, b.more = []string{"fetch"}, []string{"fetch"}
		a.start(nil)
		b.start(func(c *resilience.BreakerConfig) { c.Failures = 7 })
		defer leaveAll(t, []*server{a, b})
		for i := range 1010 {
			for _, s := range []*server{a, b} {
				_, _ = resilience.Do(context.Background(), s.guard, "fetch",
					func(context.Context) (int, error) { return 0, nil }, resilience.BreakerKey(fmt.Sprint("host-", i)))
			}
		}
		time.Sleep(3 * time.Minute)
		differences := a.fleet.Health().Differences
		require.Len(t, differences, 2)
		require.Contains(t, differences[1], "listed/search:")
	})
}
