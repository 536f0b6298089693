package resilience_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestIsolatedBreakerRejectsUntilItIsReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Breaker: "db"})
		b := g.Breaker("x")
		b.Isolate("maintenance until 14:00")

		time.Sleep(24 * time.Hour)
		r := resilience.Run(t.Context(), g, "x", notCalled(t))
		assert.Equal(t, resilience.CodeCircuitOpen, r.Err.Code)
		assert.Equal(t, "'db' is taken out of service: maintenance until 14:00", r.Err.Message)
		assert.False(t, r.Err.Retryable)
		assert.Zero(t, r.Err.RetryAfter)
		assert.NotContains(t, r.Message(), "retryAfter")
		h := g.Health()[0]
		assert.Equal(t, resilience.StateIsolated, h.State)
		assert.False(t, h.Available)
		reason, ok := b.Isolated()
		assert.True(t, ok)
		assert.Equal(t, "maintenance until 14:00", reason)

		b.Isolate("")
		b.Trip(time.Second)
		time.Sleep(time.Hour)
		assert.Equal(t, "'db' is taken out of service", resilience.Run(t.Context(), g, "x", notCalled(t)).Err.Message)

		b.Reset()
		b.Reset()
		_, ok = b.Isolated()
		assert.False(t, ok)
		assert.Nil(t, resilience.Run(t.Context(), g, "x", succeed).Err)
	})
}

func TestTripOpensForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{})
		b.Trip(time.Minute)
		assert.Equal(t, time.Minute, b.RetryAfter())
		assert.Equal(t, 5, b.Failures(), "as by failures")
		time.Sleep(10 * time.Second)
		b.Trip(time.Minute)
		assert.Equal(t, time.Minute, b.RetryAfter(), "from now on")

		time.Sleep(time.Minute)
		require.True(t, report(b, errBoom))
		assert.Equal(t, 30*time.Second, b.RetryAfter(), "the probe has failed: that is the Cooldown")
		time.Sleep(30 * time.Second)
		require.True(t, report(b, nil))
		assert.Equal(t, resilience.StateClosed, b.State())

		b.Trip(0)
		assert.Equal(t, 30*time.Second, b.RetryAfter())
		time.Sleep(30 * time.Second)
		probe, err := b.Allow()
		require.NoError(t, err)
		b.Trip(0)
		probe(nil)
		assert.Equal(t, resilience.StateOpen, b.State(), "what was in flight doesn't count")
		assert.PanicsWithValue(t, "resilience: Trip: the time is -1s: it must not be negative (0 is the Cooldown)",
			func() { b.Trip(-time.Second) })
	})
}

func TestResetForgetsFailuresAndWhatIsInFlight(t *testing.T) {
	for name, enter := range map[string]func(*testing.T, *resilience.Breaker){
		"closed": func(_ *testing.T, b *resilience.Breaker) { report(b, errBoom) },
		"open":   func(t *testing.T, b *resilience.Breaker) { trip(t, b) },
		"half-open": func(t *testing.T, b *resilience.Breaker) {
			trip(t, b)
			time.Sleep(30 * time.Second)
			_, err := b.Allow()
			require.NoError(t, err)
		},
		"isolated": func(_ *testing.T, b *resilience.Breaker) { b.Isolate("r") },
	} {
		runInBubble(t, name, func(t *testing.T) {
			b := resilience.NewBreaker("x", resilience.BreakerConfig{})
			var early []func(error)
			for range 5 {
				done, err := b.Allow()
				require.NoError(t, err)
				early = append(early, done)
			}
			enter(t, b)
			b.Reset()
			assert.Zero(t, b.Failures())
			for _, done := range early {
				done(errBoom)
			}
			assert.Equal(t, resilience.StateClosed, b.State())
			for range 4 {
				require.True(t, report(b, errBoom))
			}
			assert.Equal(t, resilience.StateClosed, b.State())
			report(b, errBoom)
			assert.Equal(t, resilience.StateOpen, b.State())
		})
	}
}

func TestIsolateEndsNoCallInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly})
		b := g.Breaker("x")
		r := resilience.Run(t.Context(), g, "x", func(context.Context) (int, error) { b.Isolate("r"); return 1, nil })
		assert.Nil(t, r.Err)
		assert.Equal(t, resilience.StateIsolated, b.State())

		b.Reset()
		r = resilience.Run(t.Context(), g, "x", func(context.Context) (int, error) { b.Isolate("r"); return 0, errBoom })
		assert.Equal(t, "'x' is taken out of service: r", r.Err.Message, "it isn't retried")
		assert.Equal(t, 1, r.Attempts)
		assert.ErrorIs(t, r.Err, errBoom)
	})
}

func TestObserversReceiveWhyABreakerHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []resilience.BreakerChange
		cfg := configWith(resilience.Tool{})
		var b *resilience.Breaker
		cfg.Observers = []resilience.Observer{{Breaker: func(e resilience.BreakerChange) {
			got = append(got, resilience.BreakerChange{From: e.From, To: e.To, Cause: e.Cause, Reason: e.Reason})
			b.State() // any method may be used here
			if e.To == resilience.StateIsolated {
				b.Reset()
			}
		}}}
		g := newGuard(t, cfg)
		b = g.Breaker("x")

		trip(t, b)
		time.Sleep(31 * time.Second)
		report(b, nil)
		b.Trip(time.Second)
		b.Trip(time.Second)
		b.Isolate("r")
		synctest.Wait()

		closed, open := resilience.StateClosed, resilience.StateOpen
		assert.Equal(t, []resilience.BreakerChange{
			{From: closed, To: open, Cause: resilience.CauseCalls},
			{From: open, To: resilience.StateHalfOpen, Cause: resilience.CauseCooldown},
			{From: resilience.StateHalfOpen, To: closed, Cause: resilience.CauseCalls},
			{From: closed, To: open, Cause: resilience.CauseManual},
			{From: open, To: resilience.StateIsolated, Cause: resilience.CauseManual, Reason: "r"},
			{From: resilience.StateIsolated, To: closed, Cause: resilience.CauseManual},
		}, got)
	})
}

func TestCauseHasAName(t *testing.T) {
	for cause, want := range map[resilience.Cause]string{
		resilience.CauseCalls: "calls", resilience.CauseCooldown: "cooldown", resilience.CauseProbe: "probe",
		resilience.CauseManual: "manual", resilience.Cause(9): "Cause(9)",
	} {
		assert.Equal(t, want, cause.String())
	}
	assert.Equal(t, `"manual"`, jsonOf(t, resilience.CauseManual))
}

// Whatever comes together, the breaker is in the state of the last call by hand, and admits calls once it is reset.
func TestControlIsSafeForConcurrentUse(t *testing.T) {
	b := resilience.NewBreaker("x", resilience.BreakerConfig{Failures: 1, Cooldown: time.Nanosecond})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 200 {
				switch i % 4 {
				case 0:
					b.Isolate("r")
				case 1:
					b.Trip(time.Nanosecond)
				case 2:
					b.Reset()
				default:
					report(b, errBoom)
					b.State()
					b.Failures()
				}
			}
		})
	}
	wg.Wait()

	b.Isolate("r")
	assert.False(t, report(b, nil))
	b.Reset()
	assert.True(t, report(b, nil))
	assert.Equal(t, resilience.StateClosed, b.State())
}

// What was decided outside of a bubble, or in another one, is no obstacle in this one.
func TestHalfOpenBreakerWorksInAnotherBubble(t *testing.T) {
	for name, before := range map[string]func(*resilience.Breaker){
		"half-open":                  func(b *resilience.Breaker) { b.State() },
		"a probe that never reports": func(b *resilience.Breaker) { _, _ = b.Allow() },
	} {
		t.Run(name, func(t *testing.T) {
			b := resilience.NewBreaker("x", resilience.BreakerConfig{})
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(24 * time.Hour)
				trip(t, b)
				time.Sleep(time.Minute)
				before(b)
				assert.Equal(t, resilience.StateHalfOpen, b.State())
			})
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Hour)
				report(b, nil) // ends a probe that is overdue
				time.Sleep(time.Minute)
				assert.True(t, report(b, nil))
				assert.Equal(t, resilience.StateClosed, b.State())
			})
		})
	}
}

func TestFailuresDoNotOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{Failures: math.MaxInt})
		b.Trip(time.Second)
		time.Sleep(time.Second)
		report(b, errBoom)
		assert.Equal(t, math.MaxInt, b.Failures())
	})
}

func TestResetDropsTheErrorsOfCallsInFlight(t *testing.T) {
	g := guardWith(t, resilience.Tool{})
	resilience.Run(t.Context(), g, "x", func(context.Context) (int, error) {
		g.Breaker("x").Reset()
		return 0, resilience.MarkPermanent(errBoom)
	})
	assert.Nil(t, g.Health()[0].LastError)
}

// Calls that are admitted while the breaker is being isolated belong to one side of that or to the other.
func TestCallsThatRaceWithIsolateDontOpenTheBreaker(t *testing.T) {
	for range 3000 {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{Failures: 1, Cooldown: time.Nanosecond})
		var calls sync.WaitGroup
		begin, isolated := make(chan struct{}), make(chan struct{})
		for range 8 {
			calls.Go(func() {
				<-begin
				for range 20 {
					if done, err := b.Allow(); err == nil {
						<-isolated
						done(errBoom)
						return
					}
				}
			})
		}

		close(begin)
		b.Isolate("maintenance")
		close(isolated)
		calls.Wait()
		require.Equal(t, resilience.StateIsolated, b.State())
	}
}

func TestIsolatedToolRejectsCallsOfItsKeys(t *testing.T) {
	g := guardWith(t, resilience.Tool{})
	_, err := resilience.Do(t.Context(), g, "x", succeed, resilience.BreakerKey("eu"))
	require.NoError(t, err)

	g.Breaker("x").Isolate("maintenance")
	for _, key := range []string{"", "eu", "us"} {
		_, err := resilience.Do(t.Context(), g, "x", notCalled(t), resilience.BreakerKey(key))
		require.ErrorIs(t, err, resilience.CodeCircuitOpen, "key %q", key)
	}
	g.Breaker("x").Reset()
	_, err = resilience.Do(t.Context(), g, "x", succeed, resilience.BreakerKey("eu"))
	require.NoError(t, err)
}

// Isolating a tool concerns the calls of its keys that are in flight as it concerns its own.
func TestIsolationReachesCallsInFlightOfAKey(t *testing.T) {
	for _, key := range []string{"", "eu"} {
		runInBubble(t, "key "+key, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly})
			isolating := func(context.Context) (int, error) {
				g.Breaker("x").Isolate("maintenance")
				return 0, errBoom
			}
			r := resilience.Run(t.Context(), g, "x", isolating, resilience.BreakerKey(key))
			assert.Equal(t, 1, r.Attempts, "it isn't retried")
			assert.ErrorIs(t, r.Err, resilience.CodeCircuitOpen)
			assert.Contains(t, r.Err.Message, "maintenance")
			assert.Empty(t, g.Health()[0].Keys, "nor counted")

			g.Breaker("x").Reset()
			_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				g.Breaker("x").Isolate("maintenance")
				return resilience.Do(ctx, g, "x", succeed, resilience.BreakerKey(key))
			}, resilience.BreakerKey(key))
			require.NoError(t, err, "what belongs to a call in flight passes")
		})
	}
}

func TestCallsOfAKeyInFlightDontCountAfterAReset(t *testing.T) {
	for _, key := range []string{"", "eu"} {
		runInBubble(t, "key "+key, func(t *testing.T) {
			g := newGuard(t, resilience.Config{
				Tools:   map[string]resilience.Tool{"x": {Retry: &resilience.Retry{MaxRetries: -1}}},
				Breaker: resilience.BreakerConfig{Failures: 1},
			})
			r := resilience.Run(t.Context(), g, "x", func(context.Context) (int, error) {
				g.Breaker("x").Isolate("maintenance")
				g.Breaker("x").Reset()
				return 0, errBoom
			}, resilience.BreakerKey(key))
			assert.ErrorIs(t, r.Err, errBoom)
			_, err := resilience.Do(t.Context(), g, "x", succeed, resilience.BreakerKey(key))
			assert.NoError(t, err)
		})
	}
}

func TestIsolatedBreakerHasNoFailuresOfAnEarlierOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {}}})
		b := g.Breaker("x")
		trip(t, b)
		b.Isolate("")
		assert.Equal(t, 5, b.Failures(), "those of this outage")
		b.Reset()
		trip(t, b)
		time.Sleep(time.Hour)
		assert.Nil(t, resilience.Run(t.Context(), g, "x", succeed).Err)
		b.Isolate("")
		assert.Zero(t, b.Failures())
		assert.Zero(t, g.Health()[0].ConsecutiveFailures)
	})
}

// An isolation before the call says nothing of it.
func TestCallsOfAKeyCountAfterAnIsolation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{})
		g.Breaker("x").Isolate("maintenance")
		g.Breaker("x").Reset()
		failWithKey(t, g, "x", "eu")
		_, err := resilience.Do(t.Context(), g, "x", notCalled(t), resilience.BreakerKey("eu"))
		assert.ErrorIs(t, err, resilience.CodeCircuitOpen)
	})
}

// A retry isn't rejected by an isolation that is over.
func TestIsolationThatIsOverRejectsNoRetry(t *testing.T) {
	for name, opts := range map[string][]resilience.Option{
		"without a key": nil, "with a key": {resilience.BreakerKey("k")},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly})
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) > 1 {
					return 1, nil
				}
				g.Breaker("x").Isolate("restart")
				time.Sleep(time.Second)
				g.Breaker("x").Reset()
				return 0, errBoom
			}, opts...)
			assert.Nil(t, r.Err)
		})
	}
}

func TestLastErrorOfAnIsolatedToolWasCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{})
		_, err := resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) {
			g.Breaker("x").Isolate("")
			return 0, errBoom
		}, resilience.BreakerKey("k"))
		assert.Error(t, err)
		assert.Nil(t, g.Health()[0].LastError)
	})
}

func TestRejectionSaysThatTheBreakerIsIsolatedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Breaker: "db"})
		trip(t, g.Breaker("x"))
		rejected := func() string { return resilience.Run(t.Context(), g, "x", notCalled(t)).Err.Message }

		assert.Contains(t, rejected(), "30 more seconds")
		g.Breaker("x").Isolate("moving")
		assert.Contains(t, rejected(), "moving")
	})
}
