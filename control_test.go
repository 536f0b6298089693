package resilience_test

import (
	"context"
	"fmt"
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
		rejected := func() *resilience.Error { return resilience.Run(t.Context(), g, "x", notCalled(t)).Err }
		trip(t, b)
		assert.Contains(t, rejected().Message, "30 more seconds")

		b.Isolate("maintenance until 14:00")
		time.Sleep(24 * time.Hour)
		e := rejected()
		assert.Equal(t, resilience.CodeCircuitOpen, e.Code)
		assert.Equal(t, "'db' is taken out of service: maintenance until 14:00", e.Message)
		assert.False(t, e.Retryable)
		assert.Zero(t, e.RetryAfter)
		h := g.Health()[0]
		assert.Equal(t, resilience.StateIsolated, h.State)
		assert.False(t, h.Available)
		reason, ok := b.Isolated()
		assert.True(t, ok)
		assert.Equal(t, "maintenance until 14:00", reason)

		b.Isolate("")
		b.Trip(time.Second)
		time.Sleep(time.Hour)
		assert.Equal(t, "'db' is taken out of service", rejected().Message, "Trip doesn't end it")

		b.Reset()
		b.Reset()
		_, ok = b.Isolated()
		assert.False(t, ok)
		mustSucceed(t, g)
	})
}

func TestTripOpensForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{})
		b.Trip(time.Minute)
		assert.Equal(t, time.Minute, b.RetryAfter())
		time.Sleep(10 * time.Second)
		b.Trip(time.Minute)
		assert.Equal(t, time.Minute, b.RetryAfter(), "from now on")

		time.Sleep(time.Minute)
		require.True(t, report(b, errBoom))
		assert.Equal(t, 30*time.Second, b.RetryAfter(), "the probe has failed: the Cooldown begins")
		time.Sleep(30 * time.Second)
		require.True(t, report(b, nil))
		assert.Equal(t, resilience.StateClosed, b.State())

		b.Trip(0)
		assert.Equal(t, 30*time.Second, b.RetryAfter(), "the default is the Cooldown")
		assert.PanicsWithValue(t, "resilience: Trip: the time is -1s: it must not be negative (0 is the Cooldown)",
			func() { b.Trip(-time.Second) })
	})
}

func TestResetForgetsFailuresAndCallsInFlight(t *testing.T) {
	for name, enter := range map[string]func(*testing.T, *resilience.Breaker){
		"closed":    func(_ *testing.T, b *resilience.Breaker) { report(b, errBoom) },
		"open":      func(t *testing.T, b *resilience.Breaker) { trip(t, b) },
		"half-open": func(t *testing.T, b *resilience.Breaker) { makeHalfOpen(t, b); admit(t, b) },
		"isolated":  func(_ *testing.T, b *resilience.Breaker) { b.Isolate("r") },
	} {
		runInBubble(t, name, func(t *testing.T) {
			b := resilience.NewBreaker("x", resilience.BreakerConfig{})
			early := admitSome(b, 5)
			require.Len(t, early, 5)
			enter(t, b)
			b.Reset()
			for _, done := range early {
				done(errBoom)
			}
			assert.Zero(t, b.Failures())
			assert.Equal(t, resilience.StateClosed, b.State())
			trip(t, b) // by as many failures as ever
		})
	}
}

// A call in flight goes on, whichever breaker it counts on, and isn't retried.
func TestIsolateEndsNoCallInFlight(t *testing.T) {
	for _, key := range []string{"", "eu"} {
		runInBubble(t, "key "+key, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly})
			b := g.Breaker("x")
			isolateAnd := func(err error) resilience.Result[int] {
				return resilience.Run(t.Context(), g, "x", func(context.Context) (int, error) {
					b.Isolate("maintenance")
					return 1, err
				}, resilience.BreakerKey(key))
			}

			assert.Nil(t, isolateAnd(nil).Err)
			assert.Equal(t, resilience.StateIsolated, b.State())
			b.Reset()
			r := isolateAnd(errBoom)
			assert.Equal(t, 1, r.Attempts)
			assert.ErrorIs(t, r.Err, errBoom)
		})
	}
}

func TestIsolatedToolRejectsCallsOfItsKeys(t *testing.T) {
	g := guardWith(t, resilience.Tool{})
	call := func(key string, fn toolFunc) error {
		_, err := resilience.Do(t.Context(), g, "x", fn, resilience.BreakerKey(key))
		return err
	}
	require.NoError(t, call("eu", succeed))
	g.Breaker("x").Isolate("maintenance")
	for _, key := range []string{"", "eu", "us"} {
		require.ErrorIs(t, call(key, notCalled(t)), resilience.CodeCircuitOpen, "key %q", key)
	}
	g.Breaker("x").Reset()
	require.NoError(t, call("eu", succeed))
}

func TestObserversReceiveWhyABreakerHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []resilience.BreakerChange
		cfg := configWith(resilience.Tool{Breaker: "db"})
		var b *resilience.Breaker
		cfg.Observers = []resilience.Observer{{Breaker: func(e resilience.BreakerChange) {
			assert.Equal(t, []any{"db", "db", time.Now()}, []any{e.Breaker, e.Label, e.Time})
			got = append(got, resilience.BreakerChange{From: e.From, To: e.To, Cause: e.Cause, Reason: e.Reason})
			b.State() // any method may be used here
			if e.Reason == "s" {
				b.Reset()
			}
		}}}
		g := newGuard(t, cfg)
		b = g.Breaker("x")
		makeHalfOpen(t, b)
		report(b, nil)
		b.Trip(time.Second)
		b.Trip(time.Second)
		b.Isolate("r")
		b.Isolate("r")
		b.Isolate("s")
		synctest.Wait()

		const closed, open, halfOpen = resilience.StateClosed, resilience.StateOpen, resilience.StateHalfOpen
		const isolated = resilience.StateIsolated
		assert.Equal(t, []resilience.BreakerChange{
			{From: closed, To: open, Cause: resilience.CauseCalls},
			{From: open, To: halfOpen, Cause: resilience.CauseCooldown},
			{From: halfOpen, To: closed, Cause: resilience.CauseCalls},
			{From: closed, To: open, Cause: resilience.CauseManual},
			{From: open, To: isolated, Cause: resilience.CauseManual, Reason: "r"},
			{From: isolated, To: isolated, Cause: resilience.CauseManual, Reason: "s"},
			{From: isolated, To: closed, Cause: resilience.CauseManual},
		}, got)
	})
}

func TestClassesAndEffectsHaveNames(t *testing.T) {
	for want, value := range map[string]fmt.Stringer{
		"transient": resilience.ClassTransient, "permanent": resilience.ClassPermanent,
		"invalid": resilience.ClassInvalid, "canceled": resilience.ClassCanceled, "neutral": resilience.ClassNeutral,

		"unknown": resilience.EffectUnknown, "read-only": resilience.ReadOnly, "idempotent": resilience.Idempotent,
		"non-idempotent": resilience.NonIdempotent, "Effect(9)": resilience.Effect(9),
	} {
		assert.Equal(t, want, value.String())
	}
}
