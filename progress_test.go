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

type progressKey struct{}

// working works for d and reports progress that often.
func working(d, every time.Duration) toolFunc {
	return func(ctx context.Context) (int, error) {
		ctx = context.WithValue(ctx, progressKey{}, 1) // as a tool may have done
		for end := time.Now().Add(d); time.Now().Before(end); {
			select {
			case <-due(every):
				resilience.ReportProgress(ctx)
			case <-ctx.Done():
				return partialValue, context.Cause(ctx)
			}
		}
		return 1, nil
	}
}

// eliciting works, waits for the answer of a user, and works again.
func eliciting(before, wait, after time.Duration) toolFunc {
	return func(ctx context.Context) (int, error) {
		for _, step := range []struct {
			d     time.Duration
			pause bool
		}{{before, false}, {wait, true}, {after, false}} {
			resume := func() {}
			if step.pause {
				resume = resilience.Pause(ctx)
				resilience.Pause(ctx)() // overlaps, and ends at once
				resilience.ReportProgress(ctx)
			}
			select {
			case <-due(step.d):
			case <-ctx.Done():
				return partialValue, context.Cause(ctx)
			}
			resume()
			resume()
		}
		return 1, nil
	}
}

// A progressTest says when a call of a tool that extends its timeout must end.
type progressTest struct {
	tool     resilience.Tool
	fn       toolFunc
	option   resilience.Option
	deadline time.Duration // the caller's
	took     time.Duration
	timeout  time.Duration // of which the TIMEOUT speaks; zero for a success
	failures int           // that the breaker counts
}

func (tc progressTest) check(t *testing.T) {
	g := guardWith(t, tc.tool)

	r := resilience.Run(contextWithin(t, tc.deadline), g, "x", tc.fn, tc.option)

	assert.Equal(t, tc.took, r.Duration)
	if tc.timeout == 0 {
		assert.Nil(t, r.Err)
	} else if assert.NotNil(t, r.Err) {
		assert.Equal(t, fmt.Sprintf("Tool 'x' exceeded timeout of %vs", tc.timeout.Seconds()), r.Err.Message)
		assert.Equal(t, resilience.CodeTimeout, r.Err.Code)
	}
	assert.Equal(t, tc.failures, g.Health()[0].ConsecutiveFailures)
	time.Sleep(2 * time.Hour)
}

func TestProgressRestartsTheTimeout(t *testing.T) {
	const s = time.Second
	short, long := resilience.Tool{Timeout: 10 * s}, resilience.Tool{Timeout: 10 * s, MaxTimeout: 60 * s}
	for name, tc := range map[string]progressTest{
		"in time":    {tool: long, fn: working(50*s, 9*s), took: 54 * s},
		"too rarely": {tool: long, fn: working(50*s, 11*s), took: 10 * s, timeout: 10 * s, failures: 1},
		"up to MaxTimeout": {
			tool: long, fn: working(time.Hour, 9*s),
			took: 60 * s, timeout: 60 * s, failures: 1,
		},
		"only with a MaxTimeout": {
			tool: short, fn: working(50*s, 9*s),
			took: 10 * s, timeout: 10 * s, failures: 1,
		},
		"up to the caller's deadline": {
			tool: long, fn: working(50*s, 9*s), deadline: 30 * s,
			took: 30 * s, timeout: 30 * s,
		},
		"of an option": {tool: long, fn: working(20*s, 2*s), option: resilience.Timeout(3 * s), took: 20 * s},
		"of an option, too rarely": {
			tool: long, fn: working(20*s, 4*s), option: resilience.Timeout(3 * s),
			took: 3 * s, timeout: 3 * s,
		},
	} {
		runInBubble(t, name, tc.check)
	}
}

func TestPauseSuspendsTheTimeout(t *testing.T) {
	const s = time.Second
	tool := resilience.Tool{Timeout: 10 * s}
	for name, tc := range map[string]progressTest{
		"for an hour": {tool: tool, fn: eliciting(9*s, time.Hour, 9*s), took: time.Hour + 18*s},
		"and MaxTimeout has its end": {
			tool: resilience.Tool{Timeout: 10 * s, MaxTimeout: 30 * s},
			fn: func(ctx context.Context) (int, error) {
				_, _ = eliciting(9*s, 100*s, 0)(ctx)
				return working(time.Hour, s)(ctx)
			},
			took: 130 * s, timeout: 30 * s, failures: 1,
		},
		"not if the tool hangs afterwards": {
			tool: tool, fn: eliciting(0, time.Hour, time.Hour),
			took: time.Hour + 10*s, timeout: 10 * s, failures: 1,
		},
		"of an option": {
			tool: tool, fn: eliciting(2*s, time.Hour, time.Hour), option: resilience.Timeout(3 * s),
			took: time.Hour + 5*s, timeout: 3 * s,
		},
		"not beyond the caller's deadline": {
			tool: tool, fn: eliciting(s, time.Hour, s), deadline: 60 * s,
			took: 60 * s, timeout: 60 * s,
		},
		"and the question may have a time of its own": {
			tool: tool, took: 5 * time.Minute, fn: func(ctx context.Context) (int, error) {
				defer resilience.Pause(ctx)()
				asking, cancel := context.WithTimeout(ctx, 5*time.Minute)
				defer cancel()
				<-asking.Done()
				return 1, ctx.Err()
			},
		},
	} {
		runInBubble(t, name, tc.check)
	}
}

func TestCallerThatLeavesEndsAPausedCall(t *testing.T) {
	inBothModes(t, func(t *testing.T, cooperative bool) {
		g := guardWith(t, resilience.Tool{Timeout: 10 * time.Second, Cooperative: cooperative})
		ctx, cancel := leavingAfter(60 * time.Second)(t.Context())
		defer cancel()

		r := resilience.Run(ctx, g, "x", func(ctx context.Context) (int, error) {
			defer resilience.Pause(ctx)()
			return untilDone(ctx)
		})
		assert.ErrorIs(t, r.Err, resilience.CodeCanceled)
		assert.Equal(t, 60*time.Second, r.Duration)
		synctest.Wait()
	})
}

// The calls around a call that makes progress, or that is paused, wait for it.
func TestProgressAndPauseOfAnInnerCallAreThoseOfTheOuterCall(t *testing.T) {
	const s = time.Second
	for name, fn := range map[string]toolFunc{
		"progress": working(40*s, 9*s), "a pause": eliciting(5*s, time.Hour, 5*s),
	} {
		runInBubble(t, name, func(t *testing.T) {
			long := resilience.Tool{Timeout: 10 * s, MaxTimeout: 60 * s}
			g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"outer": long, "inner": long}})
			value, err := resilience.Do(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
				return resilience.Do(ctx, g, "inner", fn)
			})
			assert.NoError(t, err)
			assert.Equal(t, 1, value)
		})
	}
}

func TestPauseOfAnInnerCallEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Timeout: 10 * time.Second})
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			_, err := resilience.Do(ctx, g, "y", func(ctx context.Context) (int, error) {
				resilience.Pause(ctx) // and never resumed
				return 0, errBoom
			})
			assert.ErrorIs(t, err, resilience.CodeToolFailed)
			_, limited := ctx.Deadline()
			assert.True(t, limited, "the pause is over")
			return untilDone(ctx)
		})
		require.ErrorIs(t, r.Err, resilience.CodeTimeout)
		assert.Equal(t, 10*time.Second, r.Duration)
		synctest.Wait()
	})
}

// Only the attempt under way extends the call, not what is left of an earlier one: an attempt that was abandoned, or a
// goroutine of one that has returned.
func TestAnEarlierAttemptDoesNotExtendTheCall(t *testing.T) {
	const s = time.Second
	heartbeat := func(ctx context.Context) {
		for range 100 {
			time.Sleep(s / 2)
			resilience.ReportProgress(ctx)
		}
	}
	pause := func(ctx context.Context) {
		time.Sleep(s)
		resilience.Pause(ctx)
	}
	for name, late := range map[string]func(context.Context){"reports progress": heartbeat, "pauses": pause} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly, Timeout: 3 * s, MaxTimeout: time.Hour})
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) == 1 {
					go late(ctx)
					return 0, errBoom
				}
				return hang(200 * s)(ctx)
			})

			assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
			assert.Equal(t, 3*s, r.Duration)
			time.Sleep(time.Hour)
		})
	}
}

// A retry would ask the person again, however the attempt ends.
func TestCallThatHasPausedIsNotRepeated(t *testing.T) {
	const s = time.Second
	ask := func(ctx context.Context) {
		resume := resilience.Pause(ctx)
		time.Sleep(time.Hour)
		resume()
	}
	asking := func(next toolFunc) toolFunc {
		return func(ctx context.Context) (int, error) { ask(ctx); return next(ctx) }
	}
	inner := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly})
	for name, tc := range map[string]struct {
		fn   toolFunc
		code resilience.Code
	}{
		"an error":                      {fn: asking(failing(9, errBoom)), code: resilience.CodeToolFailed},
		"a timeout":                     {fn: asking(hang(100 * s)), code: resilience.CodeTimeout},
		"a context.Canceled of its own": {fn: asking(failing(9, context.Canceled))},
		"a failure without an effect": {
			fn: asking(failing(9, resilience.MarkNoEffect(errBoom))), code: resilience.CodeToolFailed,
		},
		"an error of an inner call": {
			fn: func(ctx context.Context) (int, error) {
				return resilience.Do(ctx, inner, "x", asking(failing(9, errBoom)))
			},
			code: resilience.CodeToolFailed,
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly, Timeout: 60 * s})
			r := resilience.Run(t.Context(), g, "x", tc.fn)
			require.NotNil(t, r.Err)
			assert.True(t, tc.code == "" || r.Err.Code == tc.code, r.Err)
			assert.Equal(t, 1, r.Attempts)
			assert.False(t, r.Err.Retryable, "an agent would have the person asked again, too")
			time.Sleep(2 * time.Hour)
		})
	}
}

// Outside of a call, and after its end, there is nothing to extend. WithTimeout alone returns by its timeout: only a
// guard knows that a tool may wait for a person.
func TestProgressAndPauseDoNothingOutsideOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resilience.ReportProgress(t.Context())
		resilience.Pause(t.Context())()

		late := make(chan context.Context, 1)
		g := guardWith(t, resilience.Tool{Timeout: time.Second, MaxTimeout: time.Hour})
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			time.Sleep(2 * time.Second)
			resilience.ReportProgress(ctx)
			resilience.Pause(ctx)()
			late <- ctx
			return 1, nil
		})
		assert.ErrorIs(t, err, resilience.CodeTimeout)
		assert.Equal(t, context.DeadlineExceeded, (<-late).Err())

		start := time.Now()
		_, err = resilience.WithTimeout(t.Context(), "x", time.Second, func(ctx context.Context) (int, error) {
			defer resilience.Pause(ctx)()
			return hang(time.Hour)(ctx)
		})
		assert.ErrorIs(t, err, resilience.CodeTimeout)
		assert.Equal(t, time.Second, time.Since(start))
		time.Sleep(time.Hour)
	})
}
