package resilience_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLeasesThatHangAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		f := &testFleet{lease: func(context.Context) (bool, time.Duration) { <-end; return true, 0 }}
		g, _ := joined(t, f, resilience.BreakerConfig{})
		b := g.Breaker("x")
		probes := func() (leases int) {
			before := f.leases()
			for range 70 {
				b.Trip(time.Second)
				time.Sleep(time.Second)
				require.True(t, report(b, nil), "without an answer, the breaker decides")
			}
			return f.leases() - before
		}

		assert.Equal(t, 64, probes())
		close(end)
		synctest.Wait()
		assert.Equal(t, 70, probes())
		end = make(chan struct{})
		defer func() { close(end) }()
		assert.Equal(t, 64, probes())
	})
}

func TestOneOfManyCallsAsksForALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &testFleet{lease: func(context.Context) (bool, time.Duration) {
			time.Sleep(50 * time.Millisecond)
			return true, 0
		}}
		g, m := joined(t, f, resilience.BreakerConfig{})
		opened(t, m, time.Second)
		time.Sleep(time.Second)

		var admitted atomic.Int32
		for range 10 {
			go func() {
				_, err := g.Breaker("x").Allow()
				var e *resilience.Error
				if err == nil {
					admitted.Add(1)
				} else if assert.ErrorAs(t, err, &e) {
					assert.Equal(t, time.Second, e.RetryAfter, "the backend is being asked")
				}
			}()
		}
		time.Sleep(time.Second)
		assert.Equal(t, 1, f.leases())
		assert.EqualValues(t, 1, admitted.Load())
	})
}

// Another outage may be as long as the first one.
func TestFleetThatOpensABreakerAgainMayDenyProbesAsLongAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &testFleet{lease: func(context.Context) (bool, time.Duration) { return false, time.Second }}
		g, m := joined(t, f, resilience.BreakerConfig{Cooldown: 10 * time.Second})
		rejects := func() {
			t.Helper()
			_, err := resilience.Do(t.Context(), g, "x", notCalled(t))
			require.ErrorIs(t, err, resilience.CodeCircuitOpen)
		}
		opened(t, m, 0)
		rejects()
		time.Sleep(50 * time.Second)
		opened(t, m, 40*time.Second)
		time.Sleep(40 * time.Second)
		rejects()
		time.Sleep(60 * time.Second)
		rejects()
		time.Sleep(40 * time.Second)
		_, err := resilience.Do(t.Context(), g, "x", succeed)
		assert.NoError(t, err)
	})
}

// While one call asks for a lease, which names the breaker, the others are rejected.
func TestCallDuringALeaseOfAnotherIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &viewedFleet{}
		g, m := joined(t, f, resilience.BreakerConfig{})
		f.lease = func(context.Context) (bool, time.Duration) {
			_, err := resilience.Do(context.Background(), g, "x", notCalled(t))
			f.during = err
			return true, 0
		}
		opened(t, m, time.Second)
		time.Sleep(time.Second)
		_, err := resilience.Do(t.Context(), g, "x", succeed)
		require.NoError(t, err)
		assert.ErrorIs(t, f.during, resilience.CodeCircuitOpen)
		assert.Equal(t, "listed/x", f.viewed.ID)
	})
}

// A viewedFleet notes of which breaker a lease was asked for.
type viewedFleet struct {
	testFleet
	viewed resilience.FleetBreaker
	during error
}

func (f *viewedFleet) Lease(
	ctx context.Context, b resilience.FleetBreaker, c resilience.Cause,
) (bool, time.Duration) {
	f.viewed = b
	return f.testFleet.Lease(ctx, b, c)
}

// A lease that is denied for a short time doesn't shorten what the fleet has said meanwhile.
func TestFleetOpensABreakerForLongerDuringALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(testFleet)
		g, m := joined(t, f, resilience.BreakerConfig{})
		f.lease = func(context.Context) (bool, time.Duration) {
			opened(t, m, time.Minute)
			return false, time.Second
		}
		opened(t, m, 0)
		_, err := resilience.Do(t.Context(), g, "x", notCalled(t))
		require.ErrorIs(t, err, resilience.CodeCircuitOpen)
		assert.Equal(t, time.Minute, g.Breaker("x").RetryAfter())
	})
}

func TestMemberThatMayNotProbeRejectsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &testFleet{lease: func(context.Context) (bool, time.Duration) { return false, 3 * time.Second }}
		g, m := joined(t, f, resilience.BreakerConfig{})
		opened(t, m, time.Second)
		time.Sleep(time.Second)
		assert.Equal(t, resilience.StateHalfOpen, g.Breaker("x").State(), "a look asks for no lease")
		assert.Zero(t, f.leases())

		for range 10 {
			r := resilience.Run(t.Context(), g, "x", notCalled(t))
			require.ErrorIs(t, r.Err, resilience.CodeCircuitOpen)
			assert.Equal(t, 3*time.Second, r.Err.RetryAfter)
		}
		assert.Equal(t, 1, f.leases())
		assert.Equal(t, resilience.StateOpen, g.Breaker("x").State())
	})
}

func TestLeaseIsAskedForAgainAfter100msAtTheEarliest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &testFleet{lease: func(context.Context) (bool, time.Duration) { return false, 0 }}
		g, m := joined(t, f, resilience.BreakerConfig{})
		opened(t, m, 0)
		r := resilience.Run(t.Context(), g, "x", notCalled(t))
		require.ErrorIs(t, r.Err, resilience.CodeCircuitOpen)
		assert.Equal(t, 100*time.Millisecond, r.Err.RetryAfter)
	})
}

func TestFleetMayDenyProbesOfANewOutageAsLongAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &testFleet{lease: func(context.Context) (bool, time.Duration) { return false, time.Second }}
		g, m := joined(t, f, resilience.BreakerConfig{Cooldown: 10 * time.Second})
		opened(t, m, 0)
		_, err := resilience.Do(t.Context(), g, "x", notCalled(t))
		require.ErrorIs(t, err, resilience.CodeCircuitOpen)

		g.Breaker("x").Reset()
		time.Sleep(100 * time.Second)
		trip(t, g.Breaker("x"))
		time.Sleep(10 * time.Second)
		_, err = resilience.Do(t.Context(), g, "x", notCalled(t))
		assert.ErrorIs(t, err, resilience.CodeCircuitOpen)
	})
}

// A fleet that says again and again that the breaker is open, and that its cooldown is over, doesn't keep calls from
// being the probe for longer than ten cooldowns.
func TestFleetThatRepeatsItselfDoesNotDenyProbesForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &testFleet{lease: func(context.Context) (bool, time.Duration) { return false, time.Second }}
		g, m := joined(t, f, resilience.BreakerConfig{Cooldown: 10 * time.Second})
		opened(t, m, 0)
		for n := range 10 {
			_, err := resilience.Do(t.Context(), g, "x", notCalled(t))
			require.ErrorIs(t, err, resilience.CodeCircuitOpen, "after %d cooldowns", n)
			time.Sleep(10 * time.Second)
			opened(t, m, 0)
		}
		_, err := resilience.Do(t.Context(), g, "x", succeed)
		assert.NoError(t, err)
	})
}

func TestCallWaitsForALeaseForATenthOfItsTime(t *testing.T) {
	short := resilience.Timeout(200 * time.Millisecond)
	cases := map[string]struct {
		options func() []resilience.Option
		want    time.Duration
	}{
		"of its tool's timeout": {func() []resilience.Option { return nil }, 100 * time.Millisecond},
		"of its own timeout":    {func() []resilience.Option { return []resilience.Option{short} }, 20 * time.Millisecond},
		"of what is left of it": {func() []resilience.Option {
			received := time.Now().Add(-100 * time.Millisecond)
			return []resilience.Option{short, resilience.ForRequest(resilience.Request{Received: received})}
		}, 10 * time.Millisecond},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &testFleet{lease: func(ctx context.Context) (bool, time.Duration) { <-ctx.Done(); return true, 0 }}
				g, m := joined(t, f, resilience.BreakerConfig{})
				opened(t, m, time.Second)
				time.Sleep(time.Second)
				start := time.Now()
				_, err := resilience.Do(t.Context(), g, "x", succeed, c.options()...)
				require.NoError(t, err)
				assert.Equal(t, c.want, time.Since(start))
			})
		})
	}
}

func TestProbeOfAMemberNeedsALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var denied atomic.Bool
		denied.Store(true)
		f := &testFleet{lease: func(context.Context) (bool, time.Duration) { return !denied.Load(), 10 * time.Second }}
		var backend probedBackend
		g, m := joined(t, f, resilience.BreakerConfig{Probe: backend.probe})
		opened(t, m, time.Hour)
		time.Sleep(time.Minute)
		assert.Zero(t, backend.asked.Load())
		assert.InDelta(t, 5.5, f.leases(), 1)

		denied.Store(false)
		backend.up.Store(true)
		time.Sleep(12*time.Second + 500*time.Millisecond) // half a ProbeInterval later at most
		assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
	})
}

// Members that were refused for as long don't all ask again at once.
func TestRefusedProbesAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits []time.Duration
		for range 20 {
			f := &testFleet{lease: func(context.Context) (bool, time.Duration) { return false, 10 * time.Second }}
			var backend probedBackend
			_, m := joined(t, f, resilience.BreakerConfig{Probe: backend.probe})
			opened(t, m, time.Hour)
			for f.leases() == 0 {
				time.Sleep(10 * time.Millisecond)
			}
			refused := time.Now()
			for f.leases() == 1 {
				time.Sleep(10 * time.Millisecond)
			}
			wait := time.Since(refused).Round(10 * time.Millisecond)
			assert.GreaterOrEqual(t, wait, 10*time.Second)
			assert.LessOrEqual(t, wait, 10*time.Second+5*time.Second/2)
			waits = append(waits, wait)
		}
		slices.Sort(waits)
		assert.Greater(t, waits[len(waits)-1]-waits[0], time.Second, "half a ProbeInterval is 2.5s")
	})
}

// Nor is a Probe put off for ever, as by a member whose own Probe crashes.
func TestFleetThatDeniesAllLeasesOfProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &testFleet{lease: func(context.Context) (bool, time.Duration) { return false, time.Minute }}
		var backend probedBackend
		backend.up.Store(true)
		g, m := joined(t, f, resilience.BreakerConfig{Probe: backend.probe, Cooldown: 10 * time.Second})
		opened(t, m, 10*time.Second)
		time.Sleep(100 * time.Second)
		assert.Zero(t, backend.asked.Load())
		time.Sleep(10 * time.Second)
		assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
	})
}

// As long as the fleet tells of what others find out, they ask the backend for this member, too: also once it doesn't
// keep calls out any more.
func TestFleetWhoseMembersAskTheBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &testFleet{lease: func(context.Context) (bool, time.Duration) { return false, 5 * time.Second }}
		var backend probedBackend
		g, m := joined(t, f, resilience.BreakerConfig{Probe: backend.probe, Cooldown: 10 * time.Second})
		opened(t, m, 10*time.Second)
		for range 60 {
			time.Sleep(10 * time.Second)
			opened(t, m, 0)
		}
		assert.Zero(t, backend.asked.Load())
		_, err := resilience.Do(t.Context(), g, "x", notCalled(t))
		assert.ErrorIs(t, err, resilience.CodeCircuitOpen, "that Probes are refused isn't that calls are")
	})
}

// A member in which the operator has reset what the fleet has isolated is alone, and recovers as one that is.
func TestBreakerThatIsIsolatedElsewhereNeedsNoLease(t *testing.T) {
	for name, probe := range map[string]func(context.Context) error{
		"by a call": nil, "by its Probe": func(context.Context) error { return nil },
	} {
		runInBubble(t, name, func(t *testing.T) {
			f := &testFleet{lease: func(context.Context) (bool, time.Duration) { return false, time.Minute }}
			g, m := joined(t, f, resilience.BreakerConfig{Probe: probe})
			b := g.Breaker("x")
			change(t, m, fleetIsolates)
			b.Reset()
			trip(t, b)
			time.Sleep(31 * time.Second)
			_, err := resilience.Do(t.Context(), g, "x", succeed)
			require.NoError(t, err)
			assert.Equal(t, resilience.StateClosed, b.State())
			assert.Zero(t, f.leases())
		})
	}
}

// A Fleet may change the breaker that it is asked about.
func TestBreakerThatChangesDuringALeaseForItsProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g *resilience.Guard
		f := &testFleet{lease: func(context.Context) (bool, time.Duration) {
			g.Breaker("x").Reset()
			g.Breaker("x").Trip(time.Hour)
			return false, 20 * time.Second
		}}
		g, m := joined(t, f, resilience.BreakerConfig{Probe: func(context.Context) error { return errBoom }})
		opened(t, m, time.Hour)
		for f.leases() == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		assert.LessOrEqual(t, g.Breaker("x").RetryAfter(), 5*time.Second)
		g.Breaker("x").Reset()
	})
}

// A breaker that is tripped while a call asks for a lease doesn't admit that call.
func TestBreakerThatIsTrippedDuringALeaseRejectsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g *resilience.Guard
		f := &testFleet{lease: func(context.Context) (bool, time.Duration) {
			g.Breaker("x").Trip(time.Hour)
			return true, 0
		}}
		g, m := joined(t, f, resilience.BreakerConfig{})
		opened(t, m, time.Second)
		time.Sleep(time.Second)
		r := resilience.Run(t.Context(), g, "x", notCalled(t))
		assert.ErrorIs(t, r.Err, resilience.CodeCircuitOpen)
		assert.Equal(t, time.Hour, r.Err.RetryAfter)
	})
}

func TestWithBreakerWaitsForALeaseForATenthOfItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &testFleet{lease: func(ctx context.Context) (bool, time.Duration) { <-ctx.Done(); return true, 0 }}
		g, _ := joined(t, f, resilience.BreakerConfig{})
		g.Breaker("x").Trip(time.Second)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := resilience.WithBreaker(ctx, g.Breaker("x"), succeed)
		require.NoError(t, err)
		assert.Equal(t, 2*time.Millisecond, time.Since(start))

		g.Breaker("x").Trip(time.Second)
		time.Sleep(time.Second)
		start = time.Now()
		_, err = resilience.WithBreaker(t.Context(), g.Breaker("x"), succeed)
		require.NoError(t, err)
		assert.Equal(t, 100*time.Millisecond, time.Since(start), "without a deadline")
	})
}

// A breaker that closes while a call asks for a lease admits that call.
func TestBreakerThatClosesDuringALeaseAdmitsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(testFleet)
		g, m := joined(t, f, resilience.BreakerConfig{})
		for _, granted := range []bool{false, true} {
			opened(t, m, time.Second)
			time.Sleep(time.Second)
			f.lease = func(context.Context) (bool, time.Duration) {
				m.Apply(resilience.FleetChange{Breaker: "listed/x", Time: time.Now()})
				return granted, 0
			}
			_, err := resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) {
				assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
				return 1, nil
			})
			require.NoError(t, err)
		}
		assert.Equal(t, 2, f.leases())
	})
}

func TestCallerWhoLeavesDuringTheWaitForALease(t *testing.T) {
	slow := &testFleet{lease: func(ctx context.Context) (bool, time.Duration) { <-ctx.Done(); return true, 0 }}
	synctest.Test(t, func(t *testing.T) {
		g, m := joined(t, slow, resilience.BreakerConfig{})
		opened(t, m, time.Second)
		time.Sleep(time.Second)
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, leave)
		r := resilience.Run(ctx, g, "x", notCalled(t))
		assert.Equal(t, resilience.CodeCanceled, r.Err.Code)
		assert.Zero(t, r.Attempts)
		assert.Nil(t, resilience.Run(t.Context(), g, "x", succeed).Err, "the slot is free")
	})
}

func TestTheTimeoutBeginsBeforeTheWaitForALease(t *testing.T) {
	slow := &testFleet{lease: func(ctx context.Context) (bool, time.Duration) { <-ctx.Done(); return true, 0 }}
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {Timeout: time.Second}}})
		m, err := g.JoinFleet("test", slow)
		require.NoError(t, err)
		opened(t, m, time.Second)
		time.Sleep(time.Second)
		start := time.Now()
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			at, _ := ctx.Deadline()
			assert.Zero(t, time.Since(at))
			return hang(time.Hour)(ctx)
		})
		assert.Equal(t, resilience.CodeTimeout, r.Err.Code)
		assert.Equal(t, time.Second, time.Since(start))
		time.Sleep(2 * time.Hour)
	})
}

// The operator of a member needs no lease for the Probe of what he has tripped there.
func TestProbeOfATrippedBreakerNeedsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &testFleet{lease: func(context.Context) (bool, time.Duration) { return false, time.Hour }}
		var backend probedBackend
		backend.up.Store(true)
		g, m := joined(t, f, resilience.BreakerConfig{Probe: backend.probe})
		opened(t, m, time.Hour)
		time.Sleep(10 * time.Second)
		require.Zero(t, backend.asked.Load())

		g.Breaker("x").Trip(time.Minute)
		time.Sleep(10 * time.Second)
		require.Equal(t, resilience.StateClosed, g.Breaker("x").State())
	})
}

// A fleet that wants a probe soon has to say who sends it: without its answer, the member keeps to its own Cooldown.
func TestLeaseThatIsNotAnsweredLeavesTheCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		hangs.Store(true)
		g, m := joined(t, &testFleet{lease: func(ctx context.Context) (bool, time.Duration) {
			if hangs.Load() {
				<-ctx.Done()
			}
			return true, 0
		}}, resilience.BreakerConfig{})
		b := g.Breaker("x")
		trip(t, b)
		time.Sleep(time.Second)
		opened(t, m, 10*time.Millisecond)
		opened(t, m, 5*time.Millisecond)
		time.Sleep(5 * time.Millisecond)
		assert.False(t, report(b, errBoom))
		assert.Greater(t, b.RetryAfter(), 28*time.Second)

		opened(t, m, 10*time.Millisecond)
		time.Sleep(10 * time.Millisecond)
		hangs.Store(false)
		assert.True(t, report(b, errBoom), "the fleet says so")
		hangs.Store(true)
		time.Sleep(30 * time.Second)
		assert.True(t, report(b, errBoom), "the Cooldown is over")

		opened(t, m, 10*time.Millisecond)
		change(t, m, fleetCloses)
		opened(t, m, time.Second)
		time.Sleep(time.Second)
		assert.True(t, report(b, nil), "so is that of the fleet, which has closed it between")
	})
}

// Each Probe that a fleet refuses may wait for ten Cooldowns, also after one that was called without its lease.
func TestProbesThatAFleetAlwaysRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &testFleet{lease: func(context.Context) (bool, time.Duration) { return false, time.Second }}
		var backend probedBackend
		g, m := joined(t, f, resilience.BreakerConfig{Probe: backend.probe})
		opened(t, m, time.Hour)
		time.Sleep(25 * time.Minute)
		assert.GreaterOrEqual(t, backend.asked.Load(), int32(4))
		assert.LessOrEqual(t, backend.asked.Load(), int32(5))
		g.Breaker("x").Reset()
	})
}

// A lease that comes when the breaker isn't open any more, or the guard is closed, calls no Probe.
func TestProbeThatIsNoLongerWantedWhenItsLeaseComes(t *testing.T) {
	for name, change := range map[string]func(*resilience.Guard){
		"reset":    func(g *resilience.Guard) { g.Breaker("x").Reset() },
		"isolated": func(g *resilience.Guard) { g.Breaker("x").Isolate("moving house") },
		"closed":   func(g *resilience.Guard) { _, _ = g.Close(context.Background()) },
	} {
		runInBubble(t, name, func(t *testing.T) {
			var probes atomic.Int64
			var g *resilience.Guard
			f := &testFleet{lease: func(context.Context) (bool, time.Duration) {
				go change(g)
				time.Sleep(50 * time.Millisecond)
				return true, 0
			}}
			g, _ = joined(t, f, resilience.BreakerConfig{Probe: func(context.Context) error { probes.Add(1); return nil }})
			trip(t, g.Breaker("x"))
			time.Sleep(20 * time.Second)
			assert.Positive(t, f.leases())
			assert.Zero(t, probes.Load())
		})
	}
}
