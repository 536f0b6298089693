package resilience_test

import (
	"context"
	"errors"
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

func TestPeersTimeout(t *testing.T) {
	const timeout, soon = time.Second, 100 * time.Millisecond
	const timedOut, left, failed = resilience.CodeTimeout, resilience.CodeCanceled, resilience.CodeToolFailed
	for name, tc := range map[string]struct {
		caller caller // nil stays until the end
		fn     toolFunc
		took   time.Duration
		code   resilience.Code // empty if fn has returned in time
		err    error           // that fn returned in time
	}{
		"a value in time":   {fn: hang(timeout - 1), took: timeout - 1},
		"a failure in time": {fn: failingAfter(soon, errBoom), took: soon, err: errBoom},
		"a panic":           {fn: panicking("p"), code: failed},

		"the function respects its context": {fn: untilDone, took: timeout, code: timedOut},
		"the function ignores its context":  {fn: hang(time.Hour), took: timeout, code: timedOut},
		"a value after the timeout":         {fn: hang(timeout + 1), took: timeout, code: timedOut},
		"a failure after the timeout":       {fn: failingAfter(timeout+1, errBoom), took: timeout, code: timedOut},
		"a failure at the timeout":          {fn: failingOnceDone(errBoom), took: timeout, code: timedOut},

		"the caller leaves":                {caller: leavingAfter(soon), fn: untilDone, took: soon, code: left},
		"the caller leaves a hanging call": {caller: leavingAfter(soon), fn: hang(time.Hour), took: soon, code: left},
		"the caller's shorter deadline":    {caller: withTimeout(soon), fn: untilDone, took: soon, code: timedOut},
		"the caller's longer deadline":     {caller: withTimeout(time.Hour), fn: untilDone, took: timeout, code: timedOut},
	} {
		runInBubble(t, name, func(t *testing.T) {
			ctx, cancel := t.Context(), func() {}
			if tc.caller != nil {
				ctx, cancel = tc.caller(ctx)
			}
			defer cancel()
			start := time.Now()
			_, err := resilience.WithTimeout(ctx, "x", timeout, tc.fn)

			assert.Equal(t, tc.took, time.Since(start))
			if tc.code == "" {
				assert.Equal(t, tc.err, err, "unchanged")
			} else {
				assert.ErrorIs(t, err, tc.code)
			}
			assert.Equal(t, tc.code == timedOut, errors.Is(err, context.DeadlineExceeded))
			assert.Equal(t, tc.code == left, errors.Is(err, context.Canceled))
			time.Sleep(time.Hour) // past the function
		})
	}
}

func TestPeersCallersThatHaveLeftCallNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		canceled, late := endedContexts(t)
		for ctx, want := range map[context.Context]error{
			canceled: resilience.CodeCanceled, late: resilience.CodeTimeout,
		} {
			calls := make(chan int, 1)
			_, err := resilience.WithTimeout(ctx, "x", time.Second, func(context.Context) (int, error) {
				calls <- 1
				return 0, nil
			})
			assert.ErrorIs(t, err, want)
			synctest.Wait()
			assert.Empty(t, calls)
		}
	})
}

func TestPeersTimeoutMustBePositive(t *testing.T) {
	for _, timeout := range []time.Duration{0, -time.Millisecond} {
		_, err := resilience.WithTimeout(t.Context(), "x", timeout, succeed)
		assert.ErrorIs(t, err, resilience.CodeValidation)
		assert.ErrorContains(t, err, timeout.String())
	}

	_, err := resilience.New(configWith(resilience.Tool{Timeout: -time.Millisecond}))
	assert.ErrorContains(t, err, `Timeout is -1ms`)
	assert.Equal(t, time.Minute, guardWith(t, resilience.Tool{}).Timeout("x"), "zero is the default")
}

func TestPeersContextEndsWithTheCall(t *testing.T) {
	for name, tc := range map[string]struct {
		returns time.Duration // of the function
		want    error         // the cause of its context's end
	}{
		"after a success": {0, context.Canceled},
		"at the timeout":  {time.Hour, resilience.CodeTimeout},
	} {
		runInBubble(t, name, func(t *testing.T) {
			parent, cancel := context.WithCancel(t.Context())
			defer cancel()
			children := make(chan context.Context, 1)
			_, _ = resilience.WithTimeout(parent, "x", time.Second, func(ctx context.Context) (int, error) {
				children <- ctx
				time.Sleep(tc.returns)
				return 0, nil
			})

			child := <-children
			require.Error(t, child.Err())
			assert.ErrorIs(t, context.Cause(child), tc.want)
			assert.NoError(t, parent.Err(), "the caller's own goes on")
			time.Sleep(time.Hour)
		})
	}
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

func TestPeersOwnTimeoutReplacesTheSharedOne(t *testing.T) {
	for name, tc := range map[string]struct {
		own, takes time.Duration
		want       error
	}{
		"shared, too slow":  {0, 1500 * time.Millisecond, resilience.CodeTimeout},
		"shared, in time":   {0, 10 * time.Millisecond, errBoom},
		"longer, too slow":  {2 * time.Second, 2500 * time.Millisecond, resilience.CodeTimeout},
		"longer, in time":   {2 * time.Second, 1500 * time.Millisecond, errBoom},
		"shorter, too slow": {500 * time.Millisecond, 1000 * time.Millisecond, resilience.CodeTimeout},
		"shorter, in time":  {500 * time.Millisecond, 10 * time.Millisecond, errBoom},
	} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := configWith(resilience.Tool{Timeout: tc.own})
			cfg.Timeouts = resilience.Timeouts{resilience.Quick: time.Second}
			_, err := resilience.Do(t.Context(), newGuard(t, cfg), "x", failingAfter(tc.takes, errBoom))
			assert.ErrorIs(t, err, tc.want)
			assert.Equal(t, tc.want == resilience.CodeTimeout, errors.Is(err, resilience.CodeTimeout))
			time.Sleep(time.Hour)
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
