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
		requireAll(t, all, resilience.StateIsolated)
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

// What was told and not yet read is known, also if the store loses its memory once more.
func TestMemoryThatIsLostTwice(t *testing.T) {
	for name, deaf := range map[string]bool{"hears messages": false, "hears none": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				s := newServer(t, m, "server")
				s.start(nil)
				require.NoError(t, s.fleet.Isolate(t.Context(), "search", "moving house"))
				time.Sleep(time.Second)
				hear := func() {}
				if deaf {
					hear = s.store.deafen()
				}
				s.store.refuse(errors.New("LOADING"), "read")
				for range 2 {
					m.flush()
					time.Sleep(2 * time.Second)
				}
				hear()
				s.store.mend()
				time.Sleep(2 * time.Second)
				newcomer := newServer(t, m, "newcomer")
				newcomer.start(nil)
				defer leaveAll(t, []*server{s, newcomer})
				require.ErrorContains(t, newcomer.call(), "moving house")
				require.NoError(t, newcomer.fleet.Reset(t.Context(), "search"))
				synctest.Wait()
				require.NoError(t, s.call())
			})
		})
	}
}

// A reset is remembered for a minute, also if calls fail meanwhile.
func TestResetOutlivesFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 2, nil)
		defer leaveAll(t, all)
		require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
		time.Sleep(time.Second)
		all[1].store.down.Store(true)
		m.flush()
		time.Sleep(2 * time.Second)
		require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
		all[0].broken.Store(true)
		require.ErrorIs(t, all[0].call(), errBackend)
		all[0].broken.Store(false)
		require.NoError(t, all[0].call())
		all[1].store.down.Store(false)
		time.Sleep(2 * time.Second)
		requireAll(t, all, resilience.StateClosed)
	})
}

// A Probe that is broken keeps calls of a backend that works out for ten Cooldowns, and no longer where memory is lost.
func TestBrokenProbeWhereMemoryIsLostAgainAndAgain(t *testing.T) {
	const every = 4 * 60 // seconds
	for name, goesBack := range map[string]bool{"restarts": false, "failovers": true} {
		for _, members := range []int{1, 2} {
			t.Run(fmt.Sprint(name, ", members ", members), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newModel()
					all := servers(t, m, members, func(b *resilience.BreakerConfig) {
						b.Probe = func(context.Context) error { return errBackend }
					})
					defer leaveAll(t, all)
					time.Sleep(2 * absence)
					down(t, all)
					all[0].broken.Store(false)
					begin, lost := time.Now(), m.flush
					for second := 1; all[0].call() != nil; second++ {
						require.Less(t, time.Since(begin), 6*time.Minute)
						time.Sleep(time.Second)
						switch second % every {
						case every - 8:
							if goesBack {
								lost = m.snapshot()
							}
						case 0:
							failOver(all, lost)
						}
					}
				})
			})
		}
	}
}
