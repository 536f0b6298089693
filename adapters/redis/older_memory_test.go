package redisfleet

import (
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

		failOver(all, back)
		time.Sleep(2 * time.Second)
		requireAll(t, all, resilience.StateIsolated)
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
		all[0].broken.Store(true)
		require.ErrorIs(t, all[0].call(), errBackend, "one failure doesn't open it")
		failOver(all, back)
		time.Sleep(3 * time.Second)
		requireAll(t, all, resilience.StateClosed)
		require.Equal(t, "closed", m.breaker("listed/search").State)
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

// What a member tells after an outage doesn't make an older memory look like a newer one, nor do its errors.
func TestOlderMemoryIsNoticedWhateverItIsToldFirst(t *testing.T) {
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
		s.store.mend()
		time.Sleep(3 * time.Second)
		require.Equal(t, "isolated", m.breaker("listed/pay").State)
		require.Equal(t, resilience.StateIsolated, s.stateOf("pay"))
	})
}

// Others may have written more by then than this memory lacks.
func TestOlderMemoryIsNoticedByTheLast(t *testing.T) {
	for name, isolates := range map[string]bool{"isolated since": true, "reset since": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				first, last, operator := newServer(t, m, "first"), newServer(t, m, "last"), m.store("operator")
				last.more = []string{"pay"}
				first.start(nil)
				last.start(nil)
				defer leaveAll(t, []*server{first, last})
				back := m.snapshot()
				require.NoError(t, last.fleet.Isolate(t.Context(), "pay", "moving house"))
				if !isolates {
					back = m.snapshot()
					require.NoError(t, last.fleet.Reset(t.Context(), "pay"))
				}
				time.Sleep(2 * time.Minute)

				last.store.down.Store(true)
				first.store.refuse(errors.New("READONLY"), "restore", "reclose")
				time.Sleep(2 * time.Second)
				back()
				time.Sleep(2 * time.Second)
				for i := range 5 {
					_, err := operator.isolate(t.Context(), fmt.Sprint("listed/other-", i), "")
					require.NoError(t, err)
				}
				last.store.down.Store(false)
				time.Sleep(2 * time.Second)
				if isolates {
					require.Equal(t, "isolated", m.breaker("listed/pay").State)
					require.Equal(t, resilience.StateIsolated, last.stateOf("pay"))
				} else {
					require.Equal(t, "closed", m.breaker("listed/pay").State)
					require.Equal(t, resilience.StateClosed, last.stateOf("pay"))
				}
			})
		})
	}
}

// A member that has missed the newest of an older memory doesn't undo it.
func TestWhatTheOlderMemoryKnowsBetterStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 2, nil)
		defer leaveAll(t, all)
		require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
		time.Sleep(time.Second)
		all[1].store.down.Store(true)
		time.Sleep(2 * time.Second)
		require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
		time.Sleep(2 * time.Minute)
		back := m.snapshot()
		_, err := m.store("operator").isolate(t.Context(), "listed/another", "")
		require.NoError(t, err)
		time.Sleep(2 * time.Second)

		back()
		time.Sleep(2 * time.Second)
		all[1].store.down.Store(false)
		time.Sleep(2 * time.Second)
		require.Equal(t, "isolated", m.breaker("listed/another").State)
		requireAll(t, all, resilience.StateClosed)
	})
}

// An isolation that the older memory lacks came after the reset that it remembers.
func TestResetInAnOlderMemoryIsOlderThanTheIsolation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 2, nil)
		defer leaveAll(t, all)
		require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
		back := m.snapshot()
		require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
		time.Sleep(2 * time.Second)
		back()
		time.Sleep(3 * time.Second)
		require.Equal(t, "isolated", m.breaker("listed/search").State)
		requireAll(t, all, resilience.StateIsolated)
	})
}

// What the operator of one server has reset stays open for the others, and in the older memory.
func TestResetOfOneMemberClosesNothingInAnOlderMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 2, nil)
		defer leaveAll(t, all)
		down(t, all)
		back := m.snapshot()
		time.Sleep(31 * time.Second)
		require.ErrorIs(t, all[0].call(), errBackend, "it is the probe")
		all[0].guard.Breaker("search").Reset()
		setDown(all, true)
		time.Sleep(time.Second)
		back()
		all[0].store.down.Store(false)
		time.Sleep(2 * time.Second)
		require.Equal(t, "open", m.breaker("listed/search").State)
		setDown(all, false)
	})
}

// An older memory tells which one it was: a member that knows yet another one has something to tell all the same.
func TestOlderMemoryOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		away, s, operator := newServer(t, m, "away"), newServer(t, m, "server"), m.store("operator")
		away.more = []string{"pay"}
		away.start(nil)
		require.NoError(t, away.fleet.Isolate(t.Context(), "pay", "moving house"))
		away.store.down.Store(true)
		m.flush()

		s.start(nil)
		defer leaveAll(t, []*server{away, s})
		isolate := func(n int) {
			_, err := operator.isolate(t.Context(), fmt.Sprint("listed/other-", n), "")
			require.NoError(t, err)
			synctest.Wait()
		}
		for n := range 5 {
			isolate(n)
		}
		back := m.snapshot()
		isolate(6)
		back()
		time.Sleep(2 * time.Second)
		away.store.down.Store(false)
		time.Sleep(2 * time.Second)
		require.Equal(t, "isolated", m.breaker("listed/pay").State)
	})
}

// A member has seen what it was told, whether or not there is anything left of it.
func TestNewcomerHasSeenTheNewestVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		operator, s := m.store("operator"), newServer(t, m, "server")
		_, err := operator.isolate(t.Context(), "listed/search", "")
		require.NoError(t, err)
		back := m.snapshot()
		_, err = operator.reset(t.Context(), "listed/search")
		require.NoError(t, err)
		time.Sleep(2 * time.Minute)
		_, err = operator.failure(t.Context(), resilience.FleetBreaker{ID: "listed/search"}, 1, 2, false)
		require.NoError(t, err)
		_, err = operator.success(t.Context(), "listed/search", time.Time{})
		require.NoError(t, err)

		s.start(nil)
		defer leaveAll(t, []*server{s})
		since, _ := m.memory()
		back()
		time.Sleep(2 * time.Second)
		now, _ := m.memory()
		require.NotEqual(t, since, now, "it says that this isn't the newest")
	})
}

// An isolation may have the version of what the store has lost. Members read it within a minute all the same.
func TestIsolationWithTheVersionOfALostChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 2, nil)
		defer leaveAll(t, all)
		time.Sleep(absence)
		back := m.snapshot()
		all[0].fail()
		failOver(all, func() {
			back()
			_, err := m.store("operator").isolate(t.Context(), "listed/search", "moving house")
			require.NoError(t, err)
		})
		time.Sleep(comparison + 2*heartbeat)
		requireAll(t, all, resilience.StateIsolated)
		require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
		time.Sleep(heartbeat)
		requireAll(t, all, resilience.StateClosed)
	})
}
