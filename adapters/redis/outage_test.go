package redisfleet

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

func TestWithoutTheStoreBreakersDecideAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(t, newModel(), 3, nil)
		setDown(all, true)
		start := time.Now()
		for range 100 {
			for _, s := range all {
				require.NoError(t, s.call())
			}
		}
		require.Equal(t, start, time.Now(), "no call waits")

		time.Sleep(2 * time.Second)
		h := all[0].fleet.Health()
		require.False(t, h.Connected)
		require.Error(t, h.Error)

		all[0].broken.Store(true)
		for range 5 {
			require.Error(t, all[0].call())
		}
		require.Equal(t, resilience.StateOpen, all[0].state())
		require.Equal(t, resilience.StateClosed, all[1].state())
		time.Sleep(30 * time.Second)
		all[0].broken.Store(false)
		require.NoError(t, all[0].call(), "the probe is its own affair")

		setDown(all, false)
		time.Sleep(time.Second)
		require.True(t, all[0].fleet.Health().Connected)
		leaveAll(t, all)
	})
}

// What members have found out without the store, the others learn when it is back.
func TestMembersAgreeWhenTheStoreIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(t, newModel(), 4, nil)
		defer leaveAll(t, all)

		setDown(all, true)
		time.Sleep(2 * time.Second)
		all[0].broken.Store(true)
		for _, s := range all[:2] { // a quorum
			for range 5 {
				require.Error(t, s.call())
			}
		}
		setDown(all, false)
		time.Sleep(time.Second)
		requireAll(t, all, resilience.StateOpen)

		setDown(all, true)
		all[0].broken.Store(false)
		time.Sleep(30 * time.Second)
		require.NoError(t, all[3].call())
		setDown(all, false)
		time.Sleep(time.Second)
		requireAll(t, all, resilience.StateClosed)
	})
}

func TestStoreThatHasLostItsMemoryIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 3, nil)
		defer leaveAll(t, all)
		down(t, all)
		time.Sleep(10 * time.Second)
		m.flush()
		time.Sleep(time.Second)

		for i, s := range all {
			require.Equal(t, resilience.StateOpen, s.state(), "member %d", i)
			require.InDelta(t, 19*time.Second, s.guard.Breaker("search").RetryAfter(), float64(time.Second))
		}
		require.Equal(t, "open", m.breaker("listed/search").State)
		time.Sleep(30 * time.Second)
		all[0].broken.Store(false)
		require.NoError(t, all[0].call())
		requireAll(t, all, resilience.StateClosed)

		require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
		synctest.Wait()
		m.flush()
		time.Sleep(time.Second)
		require.Equal(t, "moving house", m.breaker("listed/search").Reason)
		require.ErrorContains(t, all[1].call(), "moving house")
	})
}

// A message that is lost is made up for by the next sync.
func TestLostMessagesAreMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 2, nil)
		defer leaveAll(t, all)
		all[1].store.deafen()
		all[0].broken.Store(true)
		require.Error(t, all[1].call())
		for range 4 {
			require.Error(t, all[0].call())
		}
		require.Equal(t, resilience.StateOpen, all[0].state())
		require.Equal(t, resilience.StateClosed, all[1].state())
		time.Sleep(time.Second)
		require.Equal(t, resilience.StateOpen, all[1].state())
	})
}

func TestSlowStoreDelaysNoProbeByMoreThan100ms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(t, newModel(), 2, nil)
		defer leaveAll(t, all)
		down(t, all)
		all[0].broken.Store(false)
		for _, s := range all {
			s.store.slow.Store(true)
		}
		time.Sleep(30 * time.Second)
		start := time.Now()
		require.NoError(t, all[0].call())
		require.LessOrEqual(t, time.Since(start), 100*time.Millisecond)
		time.Sleep(2 * time.Second)
		require.Equal(t, resilience.StateClosed, all[1].state())
	})
}

func TestDifferentConfigurationsAreNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 2, nil)
		odd := newServer(t, m, "odd")
		odd.start(func(c *resilience.BreakerConfig) { c.Failures = 3 })
		defer leaveAll(t, append(all, odd))

		const line = "listed/search: 3 failures, a cooldown of 30s here, 5 failures, a cooldown of 30s elsewhere"
		before := odd.fleet.Health()
		require.Equal(t, []string{line}, before.Differences)
		odd.fleet.Health().Differences[0] = "the caller's own"
		require.Equal(t, []string{line}, odd.fleet.Health().Differences)
		time.Sleep(comparison + time.Second)
		require.Len(t, all[0].fleet.Health().Differences, 1)
		require.Equal(t, before.Since, odd.fleet.Health().Since, "it has been connected all the time")
	})
}

func TestServerStartsWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, newModel(), "alone")
		s.store.down.Store(true)
		start := time.Now()
		s.start(nil)
		require.LessOrEqual(t, time.Since(start), 2*time.Second)
		require.NoError(t, s.call())
		require.Equal(t, start.Add(patience), s.fleet.Health().Since, "when it was found out")
		s.store.down.Store(false)
		time.Sleep(time.Second)
		require.True(t, s.fleet.Health().Connected)
		leaveAll(t, []*server{s})
	})
}

// What the operator of one member has isolated stays that member's affair, also if it tells a store that has lost its
// memory.
func TestIsolationByOneMemberDoesNotSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 3, nil)
		defer leaveAll(t, all)
		down(t, all)
		for _, s := range all {
			s.guard.Breaker("search").Isolate("this host only")
		}
		m.flush()
		time.Sleep(2 * time.Second)
		require.Equal(t, "open", m.breaker("listed/search").State)
	})
}

// A member that was cut off hears only of how things are in the end.
func TestMemberThatMissesTheEndOfAnIsolation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(t, newModel(), 3, nil)
		defer leaveAll(t, all)
		require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
		synctest.Wait()
		all[2].store.down.Store(true)
		time.Sleep(5 * time.Second)
		require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
		synctest.Wait()
		down(t, all[:2])
		all[2].store.down.Store(false)
		time.Sleep(time.Second)
		require.Equal(t, resilience.StateOpen, all[2].state())

		all[0].broken.Store(false)
		time.Sleep(30 * time.Second)
		require.NoError(t, all[0].call())
		require.Equal(t, resilience.StateClosed, all[2].state())
	})
}

// A member that didn't hear of a reset learns of it, also if its breaker was open for itself alone.
func TestMemberThatMissesAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 3, nil)
		defer leaveAll(t, all)
		all[2].cut.Store(true)
		for range 5 {
			require.Error(t, all[2].call())
			require.NoError(t, all[0].call())
		}
		all[2].cut.Store(false)
		require.Equal(t, resilience.StateOpen, all[2].state())

		all[2].store.down.Store(true)
		time.Sleep(time.Second)
		require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
		all[2].store.down.Store(false)
		time.Sleep(time.Second)
		require.NoError(t, all[2].call())

		// The reset isn't applied again while it is remembered.
		all[2].cut.Store(true)
		for range 5 {
			require.Error(t, all[2].call())
			all[2].fleet.engine.subscribed() // it asks for everything
			time.Sleep(time.Second)
		}
		require.Equal(t, resilience.StateOpen, all[2].state())
	})
}

// A reset stands when a late member tells a store that has lost its memory what it knows.
func TestResetAfterTheStoreHasLostItsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 3, nil)
		defer leaveAll(t, all)
		down(t, all)
		all[2].store.down.Store(true)
		time.Sleep(time.Second)
		m.flush()
		time.Sleep(time.Second)
		require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
		all[2].store.down.Store(false)
		time.Sleep(2 * time.Second)
		requireAll(t, all, resilience.StateClosed)
	})
}

// A member that comes back with failures of its own network counts as one, however long it was away.
func TestMemberWhoseNetworkWasBrokenOpensNoBreakerOfTheOthers(t *testing.T) {
	for name, away := range map[string]time.Duration{"not missed": 2 * time.Second, "forgotten": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := servers(t, newModel(), 2, nil)
				defer leaveAll(t, all)
				all[0].store.down.Store(true)
				all[0].cut.Store(true)
				for range away / time.Second {
					for range 3 {
						_ = all[0].call()
					}
					require.NoError(t, all[1].call())
					time.Sleep(time.Second)
				}
				require.Equal(t, resilience.StateOpen, all[0].state(), "alone")

				all[0].store.down.Store(false)
				all[0].cut.Store(false)
				for range 40 {
					require.NoError(t, all[1].call())
					time.Sleep(time.Second)
				}
			})
		})
	}
}

// After an outage, the first member that comes back doesn't count for all.
func TestOutageWithOneBrokenNetworkOpensNoBreakerOfTheOthers(t *testing.T) {
	for range 10 { // whichever comes first
		synctest.Test(t, func(t *testing.T) {
			all := servers(t, newModel(), 5, nil)
			defer leaveAll(t, all)
			setDown(all, true)
			all[0].cut.Store(true)
			for range 10 {
				_ = all[0].call()
				for _, s := range all[1:] {
					require.NoError(t, s.call())
				}
				time.Sleep(time.Second)
			}
			require.Equal(t, resilience.StateOpen, all[0].state(), "alone")

			setDown(all, false)
			for range 5 {
				for _, s := range all[1:] {
					require.NoError(t, s.call())
				}
				time.Sleep(time.Second)
			}
		})
	}
}

// recoversAlone cuts the server off from the store; its breaker opens then, and closes by a call a minute ago.
func (s *server) recoversAlone() {
	s.store.down.Store(true)
	time.Sleep(time.Second)
	s.open("search")
	time.Sleep(30 * time.Second)
	require.NoError(s.t, s.call())
	require.Equal(s.t, resilience.StateClosed, s.state())
	time.Sleep(time.Minute)
}

// What a member found out while it was cut off closes nothing that has opened since.
func TestRecoveryFromBeforeTheFleetHasOpened(t *testing.T) {
	for name, meanwhile := range map[string]func(*model){
		"Redis has kept its memory": func(*model) {}, "Redis has lost its memory": (*model).flush,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				all := servers(t, m, 3, nil)
				defer leaveAll(t, all)
				all[0].recoversAlone()
				down(t, all[1:])
				meanwhile(m)
				time.Sleep(3 * time.Second)
				all[0].store.down.Store(false)
				time.Sleep(time.Second)
				requireAll(t, all, resilience.StateOpen)
			})
		})
	}
}

// It forgets no failures since, either.
func TestRecoveryFromBeforeFailuresOfTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 3, nil)
		defer leaveAll(t, all)
		all[0].recoversAlone()
		all[0].broken.Store(true)
		require.Error(t, all[1].call())
		require.Error(t, all[2].call())
		all[0].store.down.Store(false)
		time.Sleep(time.Second)
		require.Equal(t, 2, m.breaker("listed/search").Failures)
		all[0].broken.Store(false)
		require.NoError(t, all[0].call(), "a new one does")
		require.Zero(t, m.breaker("listed/search").Failures)
	})
}
