package redisfleet

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// untilServed makes a call each second until one succeeds, and returns how long that took.
func (s *server) untilServed(atMost time.Duration) time.Duration {
	start := time.Now()
	for s.call() != nil {
		require.LessOrEqual(s.t, time.Since(start), atMost)
		time.Sleep(time.Second)
	}
	return time.Since(start)
}

// The client of one member whose calls tell nothing keeps the others from asking the backend for no longer than a probe
// may take.
func TestClientOfOneMemberDoesNotKeepTheLease(t *testing.T) {
	for name, tool := range map[string]func(context.Context) (string, error){
		"it leaves": func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		},
		"it makes mistakes": func(context.Context) (string, error) {
			time.Sleep(2 * time.Second)
			return "", resilience.MarkInvalid(errBackend)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := servers(t, newModel(), 2, nil)
				defer leaveAll(t, all)
				down(t, all)
				all[0].broken.Store(false)
				time.Sleep(30 * time.Second)

				over := make(chan struct{})
				go func() {
					for {
						ctx, cancel := context.WithCancel(context.Background())
						leaves := time.AfterFunc(10*time.Second, cancel)
						_, _ = resilience.Do(ctx, all[0].guard, "search", tool)
						leaves.Stop()
						cancel()
						select {
						case <-over:
							return
						case <-time.After(10 * time.Millisecond):
						}
					}
				}()
				time.Sleep(time.Second)
				all[1].untilServed(2*time.Minute + leaseTerm + time.Second)
				close(over)
				time.Sleep(time.Minute)
			})
		})
	}
}

// Nor does a Probe that tells nothing keep those of others out.
func TestProbeThatCrashesKeepsNoneOut(t *testing.T) {
	for range 10 { // it is left to chance whose Probe is called first
		synctest.Test(t, func(t *testing.T) {
			m := newModel()
			bad, good := newServer(t, m, "bad"), newServer(t, m, "good")
			good.broken = bad.broken
			for s, probe := range map[*server]func(context.Context) error{
				bad:  func(context.Context) error { panic("a bug") },
				good: func(context.Context) error { return nil },
			} {
				s.start(func(c *resilience.BreakerConfig) { c.Probe, c.ProbeInterval = probe, 2*time.Second })
			}
			defer leaveAll(t, []*server{bad, good})
			time.Sleep(absence)
			down(t, []*server{bad, good})
			bad.broken.Store(false)
			good.untilServed(time.Minute)
		})
	}
}

// A Probe that can't see that the backend works keeps calls out for no longer than in one server, though each member is
// replaced before it has seen that for itself.
func TestProbesOfShortLivedMembersKeepNoCallOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, blind := newModel(), func(c *resilience.BreakerConfig) {
			c.Probe = func(context.Context) error { return errBackend }
		}
		all := servers(t, m, 2, blind)
		down(t, all)
		all[0].broken.Store(false)

		start := time.Now()
		for i := 2; all[0].call() != nil; i++ {
			require.LessOrEqual(t, time.Since(start), 11*30*time.Second)
			time.Sleep(2 * time.Minute)
			newcomer := newServer(t, m, fmt.Sprint("member-", i))
			newcomer.broken, newcomer.asked = all[0].broken, all[0].asked
			newcomer.start(blind)
			require.NoError(t, all[0].fleet.Leave(t.Context()))
			all = append(all[1:], newcomer)
			for range 60 {
				if all[0].call() == nil {
					break
				}
				time.Sleep(time.Second)
			}
		}
		leaveAll(t, all)
	})
}

// A clock that is set back changes nothing, nor does another server that takes over and whose clock is behind.
func TestClockOfTheServerIsSetBack(t *testing.T) {
	setBack := func(m *model, by time.Duration) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.now = func() time.Time { return time.Now().Add(-by) }
	}
	for _, by := range []time.Duration{time.Second, time.Minute, 24 * time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				all := servers(t, m, 3, nil)
				defer leaveAll(t, all)
				time.Sleep(absence)
				down(t, all)
				all[0].broken.Store(false)
				setBack(m, by)
				all[0].untilServed(31 * time.Second)
				requireAll(t, all, resilience.StateClosed)

				all[0].broken.Store(true)
				require.Error(t, all[0].call())
				all[0].broken.Store(false)
				setBack(m, 2*by)
				require.NoError(t, all[1].call())
				require.Zero(t, m.breaker("listed/search").Failures, "it has ended those before")

				require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
				setBack(m, 3*by)
				time.Sleep(2 * time.Second)
				down(t, all)

				all[2].store.down.Store(true) // as if it was killed
				setBack(m, 4*by)
				time.Sleep(absence + 2*time.Second)
				require.Equal(t, 2, all[0].fleet.Health().Members)
			})
		})
	}
}

// A member in which the operator has reset what the fleet has isolated recovers by itself.
func TestMemberThatIsInServiceAloneRecovers(t *testing.T) {
	for name, probes := range map[string]bool{"by a call": false, "by its Probe": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := servers(t, newModel(), 2, func(c *resilience.BreakerConfig) {
					if probes {
						c.Probe = func(context.Context) error { return nil }
					}
				})
				defer leaveAll(t, all)
				require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
				synctest.Wait()
				all[1].guard.Breaker("search").Reset()
				all[1].open("search")
				all[1].untilServed(31 * time.Second)
				require.Equal(t, resilience.StateIsolated, all[0].state())
			})
		})
	}
}

// What the operator of the fleet has done is older than what that of a member has done since, whenever the member hears
// of it.
func TestResetOfTheFleetIsOlderThanALaterIsolationOfAMember(t *testing.T) {
	isolate := func(s *server) { s.guard.Breaker("search").Isolate("not on this server") }
	for name, c := range map[string]func(all []*server, newcomer *server){
		"it joins": func(_ []*server, newcomer *server) {
			newcomer.prepare(nil)
			isolate(newcomer)
			newcomer.join()
		},
		"it was away": func(all []*server, newcomer *server) {
			newcomer.start(nil)
			newcomer.store.down.Store(true)
			time.Sleep(2 * time.Second)
			require.NoError(newcomer.t, all[0].fleet.Reset(context.Background(), "search"))
			time.Sleep(time.Second)
			isolate(newcomer)
			newcomer.store.down.Store(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				all, newcomer := servers(t, m, 2, nil), newServer(t, m, "newcomer")
				require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
				time.Sleep(20 * time.Second)
				c(all, newcomer)
				defer leaveAll(t, append(all, newcomer))
				time.Sleep(3 * time.Second)
				require.Equal(t, resilience.StateIsolated, newcomer.state())
				time.Sleep(2 * time.Minute)
				require.Equal(t, resilience.StateIsolated, newcomer.state())
				require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
				synctest.Wait()
				require.NoError(t, newcomer.call())
			})
		})
	}
}

// A new isolation is for all, also for a member whose operator has reset the one before.
func TestAnotherIsolationIsForAll(t *testing.T) {
	for name, misses := range map[string]bool{"hears the reset": false, "misses it": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				all := servers(t, m, 2, nil)
				defer leaveAll(t, all)
				require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
				synctest.Wait()
				time.Sleep(time.Second)
				all[1].guard.Breaker("search").Reset()
				m.flush() // it is restored as it was
				time.Sleep(time.Hour)
				require.NoError(t, all[1].call())

				all[1].store.down.Store(misses)
				require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
				time.Sleep(2 * time.Second)
				require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "leaking data"))
				all[1].store.down.Store(false)
				time.Sleep(2 * time.Second)
				require.ErrorContains(t, all[1].call(), "leaking data")
			})
		})
	}
}

// The end of an isolation that a member has missed ends it though the operator had tripped the breaker before.
func TestTrippedMemberMissesTheEndOfAnIsolation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(t, newModel(), 2, nil)
		defer leaveAll(t, all)
		all[1].guard.Breaker("search").Trip(time.Hour)
		time.Sleep(time.Second)
		require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
		synctest.Wait()
		all[1].store.down.Store(true)
		time.Sleep(5 * time.Second)
		require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
		time.Sleep(2 * time.Minute)
		all[1].store.down.Store(false)
		time.Sleep(2 * time.Second)
		require.NoError(t, all[1].call())
	})
}

// The last of several changes is known though its message was lost, and the sync that reads it began before the others.
func TestResetThatIsReadByASyncThatBeganBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(t, newModel(), 2, nil)
		defer leaveAll(t, all)
		operate := func(do func(context.Context) error) {
			require.NoError(t, do(t.Context()))
			time.Sleep(50 * time.Millisecond)
		}
		isolate := func(ctx context.Context) error { return all[0].fleet.Isolate(ctx, "search", "") }
		reset := func(ctx context.Context) error { return all[0].fleet.Reset(ctx, "search") }
		operate(isolate)
		time.Sleep(5 * time.Second)
		var reads atomic.Int64
		all[1].store.faults.Store("read", fault{before: func(context.Context) error {
			if reads.Add(1) == 1 {
				time.Sleep(400 * time.Millisecond)
			}
			return nil
		}})
		all[1].fleet.engine.subscribed()
		time.Sleep(50 * time.Millisecond)
		operate(reset)
		operate(isolate)
		hear := all[1].store.deafen()
		operate(reset)
		time.Sleep(500 * time.Millisecond)
		hear()
		time.Sleep(2 * time.Second)
		require.NoError(t, all[1].call())
	})
}

// The operator of the fleet does something after that of a member, who is so far from the store that it hears of it
// late.
func TestResetOfTheFleetIsLaterThanAnIsolationOfAMemberFarAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(t, newModel(), 2, nil)
		defer leaveAll(t, all)
		hear := all[1].store.deafen()
		all[1].store.slow.Store(true)
		for after := time.Duration(0); after < 2*time.Second; after += 100 * time.Millisecond {
			all[1].guard.Breaker("search").Isolate("here")
			time.Sleep(after)
			require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
			time.Sleep(10 * time.Second)
			require.Equal(t, resilience.StateClosed, all[1].state(), "after %v", after)
		}
		all[1].store.slow.Store(false)
		hear()
	})
}

// Clocks need not tell apart what an operator does in a burst.
func TestSeveralChangesByHandAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(t, newModel(), 2, nil)
		defer leaveAll(t, all)
		require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
		require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
		require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
		time.Sleep(time.Second)
		requireAll(t, all, resilience.StateClosed)
	})
}

// A lease that arrives after its member has left is no sign of life.
func TestMemberThatHasLeftStaysAwayThoughALeaseComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 2, nil)
		defer leaveAll(t, all[:1])
		down(t, all)
		time.Sleep(30 * time.Second)
		all[1].store.delayOnce("lease", 200*time.Millisecond)
		go all[1].call()
		time.Sleep(10 * time.Millisecond)
		require.NoError(t, all[1].fleet.Leave(t.Context()))
		time.Sleep(time.Second)
		require.Equal(t, 1, all[0].fleet.Health().Members)
		m.mu.Lock()
		defer m.mu.Unlock()
		require.Len(t, m.members, 1)
	})
}

// What another version of the script has remembered without its time is new.
func TestIsolationOfWhichNothingSaysWhenItWasMade(t *testing.T) {
	server, _, all := stores(t, 1)
	_, err := all[0].isolate(t.Context(), "listed/search", "moving house")
	require.NoError(t, err)
	server.HDel("resilience:{test}:breaker:listed/search", "isolated")
	breakers, err := all[0].read(t.Context(), []string{"listed/search"})
	require.NoError(t, err)
	require.Equal(t, "isolated", breakers[0].State)
	require.Zero(t, breakers[0].Age)
}
