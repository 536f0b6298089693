package resilience_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// finishes returns a tool that goes on for a while when its context has ended.
func finishes(after time.Duration, err error) toolFunc {
	return func(ctx context.Context) (int, error) {
		<-ctx.Done()
		time.Sleep(after)
		return 1, err
	}
}

func TestWaitForToolAnswersWithWhatTheToolMakesOfTheEnd(t *testing.T) {
	const timeout, canceled = 10 * time.Second, resilience.CodeCanceled
	own := &resilience.Error{Message: "rolled back", Suggestion: "s"}
	for name, tc := range map[string]struct {
		fn    toolFunc
		took  time.Duration // after the caller has left, which it does after a second
		value int
		code  resilience.Code
		cause error
	}{
		"a result":             {fn: finishes(2*time.Second, nil), took: 2 * time.Second, value: 1},
		"an error":             {finishes(2*time.Second, errBoom), 2 * time.Second, 1, canceled, errBoom},
		"an error of its own":  {finishes(2*time.Second, own), 2 * time.Second, 1, resilience.CodeToolFailed, own},
		"the end":              {fn: untilDone, value: lateValue + 1, code: canceled},
		"nothing in its time":  {fn: finishes(time.Hour, nil), took: 9 * time.Second, code: canceled},
		"nothing, in a pause":  {fn: pausedFor(time.Hour), took: timeout, code: canceled},
		"a result, in a pause": {fn: pausedFor(5 * time.Second), took: 4 * time.Second, value: 1},
	} {
		t.Run(name, func(t *testing.T) {
			for attempts, attemptTimeout := range map[string]time.Duration{"one": 0, "several": timeout} {
				runInBubble(t, attempts, func(t *testing.T) {
					cfg := configWith(resilience.Tool{Timeout: 10 * time.Second, Effect: resilience.ReadOnly})
					cfg.AttemptTimeout = attemptTimeout
					g := newGuard(t, cfg)
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(time.Second, cancel)

					r := resilience.Run(ctx, g, "x", tc.fn, resilience.WaitForTool())
					assert.Equal(t, time.Second+tc.took, r.Duration)
					assert.Equal(t, tc.value, r.Value)
					assert.Equal(t, 1, r.Attempts)
					if tc.code == "" {
						assert.Nil(t, r.Err)
					} else {
						require.NotNil(t, r.Err)
						assert.Equal(t, tc.code, r.Err.Code)
						assert.True(t, tc.cause == nil || errors.Is(r.Err, tc.cause))
					}
					h := g.Health()[0]
					assert.Zero(t, h.ConsecutiveFailures)
					assert.Zero(t, h.InFlight)
					time.Sleep(2 * time.Hour)
					assert.Zero(t, g.Health()[0].Abandoned)
				})
			}
		})
	}
}

func pausedFor(d time.Duration) toolFunc {
	return func(ctx context.Context) (int, error) {
		resilience.Pause(ctx)
		time.Sleep(d)
		return 1, nil
	}
}

func TestWaitForToolCallsAToolWhoseCallerHasLeft(t *testing.T) {
	inBothModes(t, func(t *testing.T, cooperative bool) {
		g := guardWith(t, resilience.Tool{Cooperative: cooperative})
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errBoom)

		value, err := resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) {
			assert.ErrorIs(t, ctx.Err(), context.Canceled)
			assert.ErrorIs(t, context.Cause(ctx), errBoom)
			time.Sleep(time.Second)
			return 1, nil
		}, resilience.WaitForTool())
		assert.NoError(t, err)
		assert.Equal(t, 1, value)

		_, err = resilience.Do(ctx, g, "x", failing(9, errBoom), resilience.WaitForTool())
		assert.ErrorIs(t, err, resilience.CodeCanceled)
	})
}

// It waits until the timeout of the tool, whatever AttemptTimeout is, and also in a later attempt.
func TestWaitForToolEndsWithTheTimeoutOfTheCall(t *testing.T) {
	for name, tc := range map[string]struct{ timeout, attempt time.Duration }{
		"of one attempt":       {10 * time.Second, time.Minute},
		"of the third attempt": {30 * time.Second, 12 * time.Second},
	} {
		for caller, leave := range map[string]time.Duration{"stays": time.Hour, "leaves": tc.timeout - time.Second} {
			runInBubble(t, name+", the caller "+caller, func(t *testing.T) {
				cfg := configWith(resilience.Tool{Timeout: tc.timeout, Effect: resilience.ReadOnly})
				cfg.AttemptTimeout = tc.attempt
				ctx, cancel := context.WithTimeout(t.Context(), leave)
				defer cancel()

				r := resilience.Run(ctx, newGuard(t, cfg), "x", hang(time.Hour), resilience.WaitForTool())
				assert.Equal(t, tc.timeout, r.Duration)
				assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
				time.Sleep(2 * time.Hour)
			})
		}
	}
}
