package redisfleet

import (
	"context"
	"errors"
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

// A store may fail again while it is told what it has forgotten, and others may tell it something meanwhile.
func TestResetSurvivesAnOlderMemoryThatCannotBeToldAtOnce(t *testing.T) {
	for _, op := range []string{"reclose", "restore"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				s, operator := newServer(t, m, "server"), m.store("operator")
				s.more = []string{"a", "b"}
				s.start(nil)
				defer leaveAll(t, []*server{s})
				for _, tool := range []string{"search", "b"} {
					require.NoError(t, s.fleet.Isolate(t.Context(), tool, "moving house"))
				}
				time.Sleep(2 * time.Second)
				back := m.snapshot()
				for _, tool := range []string{"search", "b"} {
					require.NoError(t, s.fleet.Reset(t.Context(), tool))
				}
				time.Sleep(2 * time.Minute)
				require.NoError(t, s.fleet.Isolate(t.Context(), "a", "moving, too"))

				s.store.refuse(errors.New("LOADING"), op)
				back()
				time.Sleep(2 * time.Second)
				for i := range 5 {
					_, err := operator.isolate(t.Context(), fmt.Sprint("listed/other-", i), "")
					require.NoError(t, err)
				}
				time.Sleep(2 * time.Second)
				require.ErrorContains(t, s.fleet.Health().Error, "LOADING")
				require.Equal(t, resilience.StateClosed, s.state())

				s.store.mend()
				time.Sleep(2 * time.Second)
				for tool, want := range map[string]resilience.State{
					"search": resilience.StateClosed, "b": resilience.StateClosed, "a": resilience.StateIsolated,
				} {
					require.Equal(t, want, s.stateOf(tool))
					require.Equal(t, want.String(), m.breaker("listed/"+tool).State)
				}
			})
		})
	}
}

// What a member hasn't heard of may be in the older memory.
func TestIsolationInAnOlderMemoryIsNotUndoneByAMemberThatHasNotHeardOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		s, operator := newServer(t, m, "server"), m.store("operator")
		s.start(nil)
		defer leaveAll(t, []*server{s})
		_, err := operator.reset(t.Context(), "listed/search")
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		hear := s.store.deafen()
		_, err = operator.isolate(t.Context(), "listed/search", "moving house")
		require.NoError(t, err)
		back := m.snapshot()
		hear()
		_, err = operator.isolate(t.Context(), "listed/another", "")
		require.NoError(t, err)
		synctest.Wait()
		back()
		time.Sleep(3 * time.Second)
		require.Equal(t, "isolated", m.breaker("listed/search").State)
		require.ErrorContains(t, s.call(), "moving house")
	})
}

// Those that have a breaker know best what it is.
func TestOpenBreakerThatNobodyHasIsForgottenWithTheMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		s, other := newServer(t, m, "server"), newServer(t, m, "other")
		other.more = []string{"another"}
		s.start(nil)
		other.start(nil)
		time.Sleep(absence)
		other.fleet.engine.quorum = 1
		other.open("another")
		require.Equal(t, "open", m.breaker("listed/another").State)
		leaveAll(t, []*server{other})
		defer leaveAll(t, []*server{s})
		m.flush()
		time.Sleep(3 * time.Second)
		require.Equal(t, "closed", m.breaker("listed/another").State)
	})
}

// What is open in the older memory, and still is, was not closed since.
func TestOpenBreakerStaysOpenInAnOlderMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		s := newServer(t, m, "server")
		s.start(func(c *resilience.BreakerConfig) { c.Cooldown = 5 * time.Second })
		defer leaveAll(t, []*server{s})
		time.Sleep(absence)
		s.open("search")
		back := m.snapshot()
		s.broken.Store(true)
		time.Sleep(6 * time.Second)
		require.ErrorIs(t, s.call(), errBackend, "it is the probe")
		back()
		time.Sleep(2 * time.Second)
		require.Equal(t, "open", m.breaker("listed/search").State)
		require.NotEqual(t, resilience.StateClosed, s.state())
	})
}

// The operator of one server has opened what the fleet's operator has isolated: for this server alone.
func TestResetOfOneMemberIsNoneOfTheFleets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		s := newServer(t, m, "server")
		s.start(nil)
		require.NoError(t, s.fleet.Isolate(t.Context(), "search", "moving house"))
		s.guard.Breaker("search").Reset()
		m.flush()
		time.Sleep(2 * time.Second)
		require.Equal(t, resilience.StateClosed, s.state())
		newcomer := newServer(t, m, "newcomer")
		newcomer.start(nil)
		defer leaveAll(t, []*server{s, newcomer})
		require.ErrorContains(t, newcomer.call(), "moving house")
	})
}

// A member need not have a breaker to know that it is isolated: keys and tools that aren't listed come later.
func TestIsolationOfABreakerThatNobodyHasSurvivesALostMemory(t *testing.T) {
	for name, reset := range map[string]bool{"isolated": false, "reset meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				s, operator := newServer(t, m, "server"), m.store("operator")
				s.start(nil)
				defer leaveAll(t, []*server{s})
				_, err := operator.isolate(t.Context(), "listed/search/key", "moving house")
				require.NoError(t, err)
				time.Sleep(2 * time.Second)

				s.store.down.Store(true)
				time.Sleep(2 * time.Second)
				m.flush()
				if reset {
					_, err = operator.reset(t.Context(), "listed/search/key")
					require.NoError(t, err)
				}
				s.store.down.Store(false)
				time.Sleep(3 * time.Second)
				_, err = resilience.Do(t.Context(), s.guard, "search",
					func(context.Context) (int, error) { return 0, nil }, resilience.BreakerKey("key"))
				if reset {
					require.NoError(t, err)
					require.Equal(t, "closed", m.breaker("listed/search/key").State)
				} else {
					require.ErrorContains(t, err, "moving house")
					require.Equal(t, "isolated", m.breaker("listed/search/key").State)
				}
			})
		})
	}
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
		s.store.refuse(errors.New("LOADING"), "sync")
		s.store.down.Store(false)
		time.Sleep(time.Second)
		require.Equal(t, "closed", m.breaker("listed/a").State)
		s.store.mend()
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
