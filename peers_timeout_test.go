package resilience_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// failingAfter ignores its context for d, and then fails with err.
func failingAfter(d time.Duration, err error) toolFunc {
	return func(context.Context) (int, error) { time.Sleep(d); return 0, err }
}

func TestPeersShorterOfNestedTimeoutsEndsTheCall(t *testing.T) {
	for name, tc := range map[string]struct {
		outer, inner time.Duration
		want         string
	}{
		"the inner one": {2 * time.Second, time.Second, "TIMEOUT: Tool 'inner' exceeded timeout of 1s"},
		"the outer one": {time.Second, 2 * time.Second, "TIMEOUT: Tool 'outer' exceeded timeout of 1s"},
	} {
		runInBubble(t, name, func(t *testing.T) {
			start := time.Now()
			_, err := resilience.WithTimeout(t.Context(), "outer", tc.outer, func(ctx context.Context) (int, error) {
				return resilience.WithTimeout(ctx, "inner", tc.inner, untilDone)
			})
			assert.EqualError(t, err, tc.want)
			assert.Equal(t, min(tc.outer, tc.inner), time.Since(start))
		})
	}
}

func TestPeersTimeoutWithinRetries(t *testing.T) {
	retry := resilience.Retry{MaxRetries: 2, Backoff: steady.Backoff} // 100ms and 200ms apart
	for name, tc := range map[string]struct {
		fn   toolFunc
		took time.Duration
		is   []error
		not  error
	}{
		"attempts that hang": {
			func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) <= 2 {
					time.Sleep(time.Hour)
				}
				return 1, nil
			}, 2*50*time.Millisecond + 300*time.Millisecond, nil, resilience.CodeTimeout,
		},
		"every attempt hangs": {
			hang(time.Hour), 3*50*time.Millisecond + 300*time.Millisecond,
			[]error{resilience.CodeRetryExhausted, resilience.CodeTimeout}, errBoom,
		},
		"delays that are longer than the timeout": {
			failing(99, errBoom), 300 * time.Millisecond,
			[]error{resilience.CodeRetryExhausted, errBoom}, resilience.CodeTimeout,
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			start := time.Now()
			_, err := resilience.WithRetry(t.Context(), retry, func(ctx context.Context) (int, error) {
				return resilience.WithTimeout(ctx, "x", 50*time.Millisecond, tc.fn)
			})
			assert.Equal(t, tc.took, time.Since(start))
			for _, target := range tc.is {
				assert.ErrorIs(t, err, target)
			}
			assert.Equal(t, tc.is == nil, err == nil)
			assert.NotErrorIs(t, err, tc.not)
			time.Sleep(2 * time.Hour)
		})
	}
}

func TestPeersTimeoutAroundRetries(t *testing.T) {
	for name, tc := range map[string]struct {
		backoff  resilience.Backoff
		fn       toolFunc
		attempts int
		took     time.Duration
		want     error
		not      error
	}{
		"during an attempt": {
			noDelay, failingAfter(60*time.Millisecond, errBoom),
			3, 150 * time.Millisecond, resilience.CodeTimeout, context.Canceled,
		},
		"a delay doesn't fit": {
			tenSecondsApart, failing(99, errBoom),
			1, 0, errBoom, resilience.CodeTimeout,
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			const timeout = 150 * time.Millisecond
			start, attempts := time.Now(), make(chan int, 9)
			retry := resilience.Retry{Backoff: tc.backoff, MaxElapsed: -1}
			_, err := resilience.WithTimeout(t.Context(), "x", timeout, func(ctx context.Context) (int, error) {
				return resilience.WithRetry(ctx, retry, func(ctx context.Context) (int, error) {
					attempts <- resilience.Attempt(ctx)
					return tc.fn(ctx)
				})
			})
			assert.Equal(t, tc.took, time.Since(start))
			assert.ErrorIs(t, err, tc.want)
			assert.NotErrorIs(t, err, tc.not)
			time.Sleep(time.Hour)
			assert.Len(t, attempts, tc.attempts, "and none after the timeout")
		})
	}
}

func TestPeersAbandonedCallIsNoCallInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{MaxInFlight: 1})
		ctx, cancel := leavingAfter(time.Second)(t.Context())
		defer cancel()
		require.ErrorIs(t, resilience.Run(ctx, g, "x", hang(time.Hour)).Err, resilience.CodeCanceled)

		assert.Nil(t, resilience.Run(t.Context(), g, "x", succeed).Err)
		assert.Equal(t, 1, g.Health()[0].Abandoned, "which has a limit of its own")
		time.Sleep(time.Hour)
		assert.Zero(t, g.Health()[0].Abandoned)
	})
}
