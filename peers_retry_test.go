package resilience_test

import (
	"context"
	"errors"
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

// noDelay retries at once.
var noDelay = resilience.Backoff{Base: 1, Max: 1, Jitter: resilience.NoJitter}

func TestPeersRetry(t *testing.T) {
	permanent, errLast := resilience.MarkPermanent(errBoom), errors.New("last")
	for name, tc := range map[string]struct {
		max       int // retries
		fn        toolFunc
		attempts  int
		err       error
		exhausted bool // otherwise the error is unchanged
	}{
		"the first attempt is no retry": {5, failing(99, errBoom), 6, errBoom, true},
		"-1 is no retry":                {-1, failing(99, errBoom), 1, errBoom, false},
		"any number":                    {math.MaxInt, failing(50, errBoom), 51, nil, false},
		"the last retry succeeds":       {0, failing(3, errBoom), 4, nil, false},
		"one more would succeed":        {0, failing(4, errBoom), 4, errBoom, true},
		"a permanent failure then":      {0, failingThen(2, errBoom, permanent), 3, permanent, false},
		"a permanent failure at last":   {0, failingThen(3, errBoom, permanent), 4, permanent, false},
		"a permanent failure too late":  {0, failingThen(4, errBoom, permanent), 4, errBoom, true},
		"the last failure is the cause": {0, failingThen(2, errBoom, errLast), 4, errLast, true},
		"a value like -1":               {0, func(context.Context) (int, error) { return -1, nil }, 1, nil, false},
	} {
		runInBubble(t, name, func(t *testing.T) {
			attempts := 0
			r := resilience.Retry{MaxRetries: tc.max, Backoff: noDelay}
			_, err := resilience.WithRetry(t.Context(), r, func(ctx context.Context) (int, error) {
				attempts++
				return tc.fn(ctx)
			})

			assert.Equal(t, tc.attempts, attempts)
			assert.ErrorIs(t, err, tc.err)
			assert.Equal(t, tc.exhausted, errors.Is(err, resilience.CodeRetryExhausted))
			if !tc.exhausted {
				assert.Equal(t, tc.err, err)
			}
		})
	}
}

func TestPeersDelaysDoubleUpToTheirMaximum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		var delays []time.Duration
		r := resilience.Retry{
			MaxRetries: 6,
			Backoff:    resilience.Backoff{Base: ms, Max: 10 * ms, Jitter: resilience.NoJitter},
			OnRetry: func(attempt int, delay time.Duration, err error) {
				assert.Equal(t, errBoom, err)
				delays = append(delays, delay)
				assert.Len(t, delays, attempt, "counted from 1")
			},
		}
		start := time.Now()
		_, err := resilience.WithRetry(t.Context(), r, failing(99, errBoom))
		assert.ErrorIs(t, err, resilience.CodeRetryExhausted)
		assert.Equal(t, []time.Duration{ms, 2 * ms, 4 * ms, 8 * ms, 10 * ms, 10 * ms}, delays)
		assert.Equal(t, 35*ms, time.Since(start))
	})
}

func TestPeersCallerThatHasLeftIsNotRetried(t *testing.T) {
	for leaveIn, tc := range map[int]struct { // the attempt in which the caller leaves, 0 before the first
		attempts int
		want     error
	}{
		0: {0, resilience.CodeCanceled},
		1: {1, errBoom},
		4: {4, errBoom}, // the last attempt
	} {
		runInBubble(t, strconv.Itoa(leaveIn), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if leaveIn == 0 {
				cancel()
			}

			attempts := 0
			_, err := resilience.WithRetry(ctx, steady, func(ctx context.Context) (int, error) {
				if attempts++; attempts == leaveIn {
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
