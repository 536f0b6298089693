package resilience_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// noDelay retries at once.
var noDelay = resilience.Backoff{Base: 1, Max: 1, Jitter: resilience.NoJitter}

func TestPeersRetry(t *testing.T) {
	permanent, invalid := resilience.MarkPermanent(errBoom), resilience.MarkInvalid(errBoom)
	exhausted, errLast := []error{resilience.CodeRetryExhausted, errBoom}, errors.New("last")
	negative := func(context.Context) (int, error) { return -1, nil }
	for name, tc := range map[string]struct {
		max      int // retries
		fn       toolFunc
		attempts int
		is       []error // what the error is
		err      error   // the error itself, if is has none
	}{
		"success needs no retry":        {fn: succeed, attempts: 1},
		"three retries by default":      {fn: failing(99, errBoom), attempts: 4, is: exhausted},
		"the first attempt is no retry": {max: 5, fn: failing(99, errBoom), attempts: 6, is: exhausted},
		"-1 is no retry":                {max: -1, fn: failing(99, errBoom), attempts: 1, err: errBoom},
		"any number":                    {max: math.MaxInt, fn: failing(50, errBoom), attempts: 51},
		"the last retry succeeds":       {fn: failing(3, errBoom), attempts: 4},
		"one more would succeed":        {fn: failing(4, errBoom), attempts: 4, is: exhausted},
		"a permanent failure":           {fn: failing(99, permanent), attempts: 1, err: permanent},
		"a permanent failure then":      {fn: failingThen(2, errBoom, permanent), attempts: 3, err: permanent},
		"a permanent failure at last":   {fn: failingThen(3, errBoom, permanent), attempts: 4, err: permanent},
		"a permanent failure too late":  {fn: failingThen(4, errBoom, permanent), attempts: 4, is: exhausted},
		"a mistake of the caller":       {fn: failing(99, invalid), attempts: 1, err: invalid},
		"a cancellation of its own":     {fn: failing(99, context.Canceled), attempts: 1, err: context.Canceled},
		"a value like -1":               {fn: negative, attempts: 1},
		"the last failure is the cause": {
			fn: failingThen(2, errBoom, errLast), attempts: 4,
			is: []error{resilience.CodeRetryExhausted, errLast},
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			attempts := 0
			r := resilience.Retry{MaxRetries: tc.max, Backoff: noDelay}
			_, err := resilience.WithRetry(t.Context(), r, func(ctx context.Context) (int, error) {
				attempts++
				return tc.fn(ctx)
			})

			assert.Equal(t, tc.attempts, attempts)
			for _, target := range tc.is {
				assert.ErrorIs(t, err, target)
			}
			if tc.is == nil {
				assert.Equal(t, tc.err, err, "unchanged")
			}
		})
	}
}

func TestPeersRetriesEndAfterMaxElapsed(t *testing.T) {
	slow := func(ctx context.Context) (int, error) { // its second attempt takes 120ms
		n := resilience.Attempt(ctx)
		if n == 2 {
			time.Sleep(120 * time.Millisecond)
		}
		return n, errBoom
	}
	for name, tc := range map[string]struct {
		maxElapsed time.Duration
		backoff    resilience.Backoff
		fn         toolFunc
		attempts   int
		took       time.Duration
	}{
		"during an attempt": {100 * time.Millisecond, noDelay, slow, 2, 120*time.Millisecond + 1},
		"during a delay":    {99 * time.Millisecond, steady.Backoff, failing(99, errBoom), 1, 0},
		"at the end of a delay": {
			100 * time.Millisecond, steady.Backoff, failing(99, errBoom), 2, 100 * time.Millisecond,
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			start := time.Now()
			r := resilience.Retry{MaxElapsed: tc.maxElapsed, Backoff: tc.backoff}
			attempts, err := resilience.WithRetry(t.Context(), r, tc.fn)
			assert.Equal(t, tc.attempts, attempts)
			assert.Equal(t, tc.took, time.Since(start))
			assert.Equal(t, errBoom, err, "the failure itself: there were retries left, but no time")
		})
	}
}

func TestPeersDelaysDoubleUpToTheirMaximum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		var attempts []int
		var delays []time.Duration
		r := resilience.Retry{
			MaxRetries: 6,
			Backoff:    resilience.Backoff{Base: ms, Max: 10 * ms, Jitter: resilience.NoJitter},
			OnRetry: func(attempt int, delay time.Duration, err error) {
				assert.Equal(t, errBoom, err)
				attempts, delays = append(attempts, attempt), append(delays, delay)
			},
		}
		start := time.Now()
		_, err := resilience.WithRetry(t.Context(), r, failing(99, errBoom))
		assert.ErrorIs(t, err, resilience.CodeRetryExhausted)
		assert.Equal(t, []time.Duration{ms, 2 * ms, 4 * ms, 8 * ms, 10 * ms, 10 * ms}, delays)
		assert.Equal(t, []int{1, 2, 3, 4, 5, 6}, attempts, "counted from 1")
		assert.Equal(t, 35*ms, time.Since(start))
	})
}

func TestPeersFailureMayAskForALongerDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var delays []time.Duration
		r := resilience.Retry{
			Backoff:    resilience.Backoff{Base: 10 * time.Millisecond, Max: time.Second, Jitter: resilience.NoJitter},
			OnRetry:    func(_ int, delay time.Duration, _ error) { delays = append(delays, delay) },
			MaxElapsed: -1,
		}
		asks := []time.Duration{123 * time.Millisecond, time.Millisecond, 1001 * time.Millisecond}
		attempts, err := resilience.WithRetry(t.Context(), r, func(ctx context.Context) (int, error) {
			n := resilience.Attempt(ctx)
			return n, waitError{asks[n-1]}
		})
		assert.Equal(t, []time.Duration{123 * time.Millisecond, 20 * time.Millisecond}, delays)
		assert.Equal(t, 3, attempts, "more than Max isn't waited for")
		assert.Equal(t, waitError{1001 * time.Millisecond}, err)
	})
}

func TestPeersRetryMayBeUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 3 {
			start := time.Now()
			attempts, err := resilience.WithRetry(t.Context(), steady, failing(3, errBoom))
			assert.NoError(t, err)
			assert.Equal(t, 4, attempts)
			assert.Equal(t, 700*time.Millisecond, time.Since(start))
		}
	})
}

func TestPeersCallerThatHasLeftIsNotRetried(t *testing.T) {
	for name, tc := range map[string]struct {
		leaveIn  int // the attempt, 0 before the first, -1 in OnRetry
		attempts int
		want     error
	}{
		"before the call":   {0, 0, resilience.CodeCanceled},
		"during an attempt": {2, 2, errBoom},
		"in OnRetry":        {-1, 1, resilience.CodeCanceled},
	} {
		runInBubble(t, name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := resilience.Retry{Backoff: steady.Backoff}
			switch tc.leaveIn {
			case 0:
				cancel()
			case -1:
				r.OnRetry = func(int, time.Duration, error) { cancel() }
			}

			attempts := 0
			_, err := resilience.WithRetry(ctx, r, func(ctx context.Context) (int, error) {
				attempts++
				if resilience.Attempt(ctx) == tc.leaveIn {
					cancel()
				}
				return 0, errBoom
			})
			assert.Equal(t, tc.attempts, attempts)
			assert.ErrorIs(t, err, tc.want)
			assert.Equal(t, tc.want == resilience.CodeCanceled, errors.Is(err, resilience.CodeCanceled))
			assert.NotErrorIs(t, err, resilience.CodeRetryExhausted)
		})
	}
}

func TestPeersNestedRetriesDoNotMultiply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		_, err := resilience.WithRetry(t.Context(), resilience.Retry{MaxRetries: 10, Backoff: noDelay},
			func(ctx context.Context) (int, error) {
				return resilience.WithRetry(ctx, resilience.Retry{MaxRetries: 1, Backoff: noDelay},
					func(context.Context) (int, error) { calls++; return 0, errBoom })
			})
		assert.Equal(t, 2, calls, "what was retried in vain isn't retried again")
		assert.ErrorIs(t, err, resilience.CodeRetryExhausted)
		assert.ErrorIs(t, err, errBoom)
	})
}

func TestPeersRetriesAroundABreaker(t *testing.T) {
	cooldown := time.Second
	for name, tc := range map[string]struct {
		retry    resilience.Retry
		failures int // of the function
		opened   bool
		calls    int // of the function
		took     time.Duration
		want     error
	}{
		"each attempt counts": {
			resilience.Retry{MaxRetries: 9, Backoff: noDelay}, 99, false,
			4, 4, resilience.CodeCircuitOpen,
		},
		"too few attempts to open it": {
			resilience.Retry{MaxRetries: 2, Backoff: noDelay}, 99, false,
			3, 2, resilience.CodeRetryExhausted,
		},
		"one retry once it is half-open": {resilience.Retry{MaxRetries: 1}, 0, true, 1, cooldown, nil},
		"a cooldown that is longer than Max": {
			resilience.Retry{Backoff: resilience.Backoff{Max: cooldown - 1}}, 0, true,
			0, 0, resilience.CodeCircuitOpen,
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			b := resilience.NewBreaker("x", resilience.BreakerConfig{Failures: 4, Cooldown: cooldown})
			if tc.opened {
				b.Trip(0)
			}
			start, calls := time.Now(), 0
			_, err := resilience.WithRetry(t.Context(), tc.retry, func(ctx context.Context) (int, error) {
				return resilience.WithBreaker(ctx, b, func(ctx context.Context) (int, error) {
					calls++
					return failing(tc.failures, errBoom)(ctx)
				})
			})
			assert.Equal(t, tc.calls, calls)
			assert.Equal(t, tc.took, time.Since(start))
			assert.ErrorIs(t, err, tc.want)
		})
	}
}

func TestPeersBreakerAroundRetriesCountsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly})
		for n := range 5 {
			r := resilience.Run(t.Context(), g, "x", failing(99, errBoom))
			require.ErrorIs(t, r.Err, resilience.CodeRetryExhausted)
			require.Equal(t, 4, r.Attempts)
			require.Equal(t, n+1, g.Breaker("x").Failures())
		}
		r := resilience.Run(t.Context(), g, "x", notCalled(t))
		assert.Equal(t, resilience.CodeCircuitOpen, r.Err.Code)
		assert.Zero(t, r.Duration, "a rejected call waits for nothing")
	})
}

func TestPeersGuardRetriesWhatItKnowsToBeSafe(t *testing.T) {
	for effect, want := range map[resilience.Effect]int{
		resilience.ReadOnly: 4, resilience.Idempotent: 4, resilience.EffectUnknown: 1, resilience.NonIdempotent: 1,
	} {
		runInBubble(t, effect.String(), func(t *testing.T) {
			r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{Effect: effect}), "x", failing(99, errBoom))
			assert.Equal(t, want, r.Attempts)
			assert.ErrorIs(t, r.Err, errBoom)
		})
	}
}
