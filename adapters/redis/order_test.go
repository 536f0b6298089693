package redisfleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// Commands take as long as they like: what counts is when the calls were of which they tell.

// A success ends the failures before it also if the command that tells of them takes longer than its own.
func TestSuccessEndsFailuresOfWhichASlowCommandTells(t *testing.T) {
	for name, n := range map[string]int{"of the same member": 1, "and of others": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := serversFarAway(t, newModel(), n, time.Millisecond)
				defer leaveAll(t, all)
				time.Sleep(2 * absence)
				for i := range 3 {
					all[i%n].fail()
					time.Sleep(50 * time.Millisecond)
				}
				all[0].store.delayOnce("tell", 60*time.Millisecond)
				all[0].fail()
				time.Sleep(10 * time.Millisecond)
				require.NoError(t, all[0].call())
				time.Sleep(time.Hour)
				require.Zero(t, all[0].store.breaker("listed/search").Failures)
				all[n-1].fail()
				time.Sleep(time.Second)
				requireAll(t, all, resilience.StateClosed)
			})
		})
	}
}

// A failure of which Redis hears seconds later, since it has stood still, isn't later than those of others that are
// told by then.
func TestFailureThatIsToldLateDoesNotHideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(t, newModel(), 4, nil)
		defer leaveAll(t, all)
		time.Sleep(absence)
		for _, s := range all {
			require.NoError(t, s.call())
		}
		time.Sleep(100 * time.Millisecond)

		all[0].store.delayOnce("tell", 3*time.Second)
		setDown(all[1:], true)
		all[0].broken.Store(true)
		all[0].fail()
		time.Sleep(time.Second)
		for range 5 {
			all[1].fail()
			all[2].fail()
		}
		time.Sleep(2500 * time.Millisecond)
		setDown(all[1:], false)
		time.Sleep(2 * time.Second)
		requireAll(t, all, resilience.StateOpen)
	})
}

// A member's own successes that are certainly later than the failures of others end those, whenever it hears of them.
func TestOwnSuccessBeforeTheMemberHearsOfFailures(t *testing.T) {
	for _, fails := range []int{5, 10, 15, 18, 22, 25} { // at 20ms, when it hears of them, the order isn't known
		t.Run(fmt.Sprintf("it fails after %dms", fails), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				m.now = func() time.Time { return time.Now().Add(time.Hour) }
				all := serversFarAway(t, m, 2, 10*time.Millisecond)
				defer time.Sleep(time.Second)
				defer leaveAll(t, all)
				time.Sleep(2 * absence)
				require.NoError(t, all[1].call())
				for range 4 {
					_ = resultOf(all[0], errBackend)
				}
				for ms := range 300 {
					time.Sleep(time.Millisecond)
					if ms == fails {
						require.ErrorIs(t, resultOf(all[1], errBackend), errBackend)
					} else {
						require.NoError(t, resultOf(all[1], nil))
					}
				}
				requireAll(t, all, resilience.StateClosed)
			})
		})
	}
}

// resultOf calls a tool that returns this error, and doesn't wait until anybody has heard of it.
func resultOf(s *server, result error) error {
	_, err := resilience.Do(context.Background(), s.guard, "search", func(context.Context) (int, error) {
		return 0, result
	})
	return err
}

// A breaker is open for a Cooldown since its calls have failed, not since Redis was told so.
func TestCooldownBeginsWithTheFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(t, newModel(), 3, nil)
		defer leaveAll(t, all)
		time.Sleep(absence)
		setDown(all[:2], true)
		time.Sleep(2 * time.Second)
		all[0].broken.Store(true)
		for _, s := range all[:2] {
			for range 5 {
				s.fail()
			}
		}
		all[0].broken.Store(false)

		time.Sleep(27 * time.Second)
		setDown(all[:2], false)
		time.Sleep(time.Second)
		for _, s := range all {
			require.InDelta(t, 2*time.Second, s.guard.Breaker("search").RetryAfter(), float64(10*time.Millisecond))
		}
		time.Sleep(2*time.Second + time.Millisecond) // as precisely as the clock is known
		require.NoError(t, all[2].call())
		synctest.Wait()
		requireAll(t, all, resilience.StateClosed)
	})
}

// A Trip concerns one member: its Probe, which fails meanwhile, puts off the calls of others for a Cooldown.
func TestProbeOfATrippedBreakerPutsOffOthersForACooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 2, func(c *resilience.BreakerConfig) {
			c.Probe = func(context.Context) error { return errBackend }
		})
		defer leaveAll(t, all)
		time.Sleep(absence)
		down(t, all)
		all[0].guard.Breaker("search").Trip(time.Hour)
		for range 20 {
			time.Sleep(time.Second)
			require.LessOrEqual(t, duration(m.breaker("listed/search").Wait), 30*time.Second)
		}
	})
}

// When more calls succeed at once than results wait for the store, it hears of those that have ended failures with the
// next sync.
func TestMoreCallsSucceedThanResultsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tenants = 900
		m := newModel()
		s := newServer(t, m, "alone")
		s.quorum = 1
		s.store.delay = func() time.Duration { return 30 * time.Millisecond }
		s.start(nil)
		defer time.Sleep(time.Second)
		defer leaveAll(t, []*server{s})
		time.Sleep(absence)
		for _, n := range []int{4, 1} { // failures, and then a success
			for i := range n * tenants {
				want := errBackend
				if n == 1 {
					want = nil
				}
				_, err := resilience.Do(t.Context(), s.guard, "search", func(context.Context) (int, error) {
					return 0, want
				}, resilience.BreakerKey(fmt.Sprint("tenant-", i%tenants)))
				require.ErrorIs(t, err, want)
			}
			synctest.Wait()
		}
		time.Sleep(10 * time.Second)
		for i := range tenants {
			require.Zero(t, m.breaker(fmt.Sprint("listed/search/tenant-", i)).Failures, i)
		}
	})
}

// Those of which none has succeeded have their failures all the same.
func TestMoreCallsFailThanResultsWaitAndNoneSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		s := newServer(t, m, "alone")
		s.store.delay = func() time.Duration { return 30 * time.Millisecond }
		s.start(nil)
		defer time.Sleep(time.Second)
		defer leaveAll(t, []*server{s})
		time.Sleep(absence)
		s.cut.Store(true)
		require.Error(t, s.callKey("first"))
		time.Sleep(time.Second)
		for i := range 900 {
			for range 2 {
				_, err := resilience.Do(t.Context(), s.guard, "search", func(context.Context) (int, error) {
					return 0, errBackend
				}, resilience.BreakerKey(fmt.Sprint("tenant-", i)))
				require.ErrorIs(t, err, errBackend)
			}
		}
		time.Sleep(10 * time.Second)
		require.Equal(t, 1, m.breaker("listed/search/first").Failures)
	})
}

// A Probe that is told late to have failed lets no call be the probe earlier than one that has failed since.
func TestProbeThatIsToldLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 2, nil)
		defer leaveAll(t, all)
		time.Sleep(absence)
		down(t, all)
		b, _ := all[0].fleet.engine.member.Breaker("listed/search")
		late := news{op: "failure", breaker: b, probe: true, cause: resilience.CauseProbe, at: time.Now()}
		time.Sleep(30 * time.Second)
		require.ErrorIs(t, all[1].call(), errBackend)
		_, err := one(t.Context(), all[0].store, late)
		require.NoError(t, err)
		require.Equal(t, int64(30_000), m.breaker("listed/search").Wait)
	})
}

// A dead backend is shut by as many failures as that takes, also if all calls succeed just before it dies, and fail at
// the same time just after, whatever time commands and messages take there and back.
func TestFailuresJustAfterSuccesses(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			random := &lockedRand{random: rand.New(rand.NewPCG(seed, 0))}
			m := newModel()
			m.now = func() time.Time { return time.Now().Add(time.Hour) }
			var all []*server
			for i := range 5 {
				s := newServer(t, m, fmt.Sprint("member-", i))
				far := time.Duration(random.float() * float64(40*time.Millisecond))
				s.store.delay = func() time.Duration { return time.Duration(random.float() * float64(far)) }
				s.start(nil)
				all = append(all, s)
			}
			defer time.Sleep(time.Second)
			defer leaveAll(t, all)
			time.Sleep(absence + time.Duration(seed)*time.Second)
			for _, s := range all {
				require.NoError(t, resultOf(s, nil))
			}
			time.Sleep(time.Microsecond)
			for _, s := range all {
				require.ErrorIs(t, resultOf(s, errBackend), errBackend)
			}
			time.Sleep(time.Second)
			requireAll(t, all, resilience.StateOpen)
		})
	}
}
