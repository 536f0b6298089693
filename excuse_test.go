package resilience_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

// A TIMEOUT isn't the backend's if something else has taken a tenth of the time.
func TestExcuse(t *testing.T) {
	const timeout = 10 * time.Second
	excused := func(d time.Duration) toolFunc {
		return func(ctx context.Context) (int, error) {
			done := resilience.Excuse(ctx)
			time.Sleep(d)
			done()
			done()
			time.Sleep(time.Second)
			<-ctx.Done()
			return 0, ctx.Err()
		}
	}
	for name, tc := range map[string]struct {
		tool    toolFunc
		attempt time.Duration // AttemptTimeout
		code    resilience.Code
		counted bool
	}{
		"for less than a tenth": {tool: excused(timeout/10 - 1), counted: true},
		"for a tenth":           {tool: excused(timeout / 10)},
		"for longer":            {tool: excused(timeout / 2)},
		"of an attempt":         {tool: excused(timeout / 20), attempt: timeout / 2},
		"of a part of one":      {tool: excused(timeout/20 - 1), attempt: timeout / 2, counted: true},
		"while it ends": {tool: func(ctx context.Context) (int, error) {
			time.Sleep(timeout * 9 / 10)
			defer resilience.Excuse(ctx)()
			time.Sleep(timeout)
			return 0, nil
		}},
		"overlapping": {counted: true, tool: func(ctx context.Context) (int, error) {
			var all []func()
			for range 20 {
				all = append(all, resilience.Excuse(ctx))
			}
			time.Sleep(timeout / 20)
			for _, done := range all {
				done()
			}
			return untilDone(ctx)
		}},
		"of a tool that says so itself": {tool: func(ctx context.Context) (int, error) {
			done := resilience.Excuse(ctx)
			time.Sleep(timeout / 10)
			done()
			return 0, context.DeadlineExceeded
		}},
		"in a call within": {tool: func(ctx context.Context) (int, error) {
			return resilience.WithTimeout(ctx, "inner", time.Hour, excused(timeout/10))
		}},
		"by what is left of a call within": {counted: true, tool: func(ctx context.Context) (int, error) {
			_, err := resilience.WithTimeout(ctx, "inner", time.Second, func(ctx context.Context) (int, error) {
				time.Sleep(timeout / 5)
				defer resilience.Excuse(ctx)()
				time.Sleep(timeout)
				return 0, nil
			})
			assert.ErrorIs(t, err, resilience.CodeTimeout)
			return untilDone(ctx)
		}},
		"that outlives its call within": {counted: true, tool: func(ctx context.Context) (int, error) {
			_, err := resilience.WithTimeout(ctx, "inner", timeout/20, func(ctx context.Context) (int, error) {
				defer resilience.Excuse(ctx)()
				time.Sleep(2 * timeout)
				return 0, nil
			})
			assert.ErrorIs(t, err, resilience.CodeTimeout)
			return untilDone(ctx)
		}},
		"for a tenth, until its call within has ended": {tool: func(ctx context.Context) (int, error) {
			_, err := resilience.WithTimeout(ctx, "inner", timeout/10, func(ctx context.Context) (int, error) {
				defer resilience.Excuse(ctx)()
				time.Sleep(2 * timeout)
				return 0, nil
			})
			assert.ErrorIs(t, err, resilience.CodeTimeout)
			return untilDone(ctx)
		}},
		"other trouble": {counted: true, code: resilience.CodeToolFailed, tool: func(ctx context.Context) (int, error) {
			defer resilience.Excuse(ctx)()
			time.Sleep(timeout / 2)
			return 0, resilience.MarkBackend(errors.New("disk full"))
		}},
	} {
		runInBubble(t, name, func(t *testing.T) {
			effect := resilience.ReadOnly
			if tc.counted {
				effect = resilience.NonIdempotent // which has one attempt
			}
			g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{
				"x": {Timeout: timeout, AttemptTimeout: tc.attempt, Effect: effect},
			}})
			begun := time.Now()
			r := resilience.Run(t.Context(), g, "x", tc.tool)
			if tc.code == "" {
				tc.code = resilience.CodeTimeout
			}
			assert.Equal(t, tc.code, r.Err.Code)
			assert.Equal(t, 1, r.Attempts)
			assert.LessOrEqual(t, time.Since(begun), timeout, "no timeout is suspended")
			assert.Equal(t, tc.counted, g.Breaker("x").Failures() == 1)
			time.Sleep(timeout)
		})
	}
}

// What is left of an attempt that has returned excuses no later one, either, though they share their time: whether it
// begins to wait before the end of its attempt, during the delay, or after that.
func TestExcuseByWhatIsLeftOfAnAttempt(t *testing.T) {
	for _, begins := range []time.Duration{0, time.Second, 5 * time.Second} {
		testExcuseByWhatIsLeft(t, begins)
	}
}

func testExcuseByWhatIsLeft(t *testing.T, begins time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		second := resilience.Backoff{Base: time.Second, Jitter: resilience.NoJitter}
		g := newGuard(t, resilience.Config{
			Retry: resilience.Retry{Backoff: second},
			Tools: map[string]resilience.Tool{"x": {Timeout: 10 * time.Second, Effect: resilience.ReadOnly}},
		})
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			if resilience.Attempt(ctx) > 1 {
				return untilDone(ctx)
			}
			go func() {
				time.Sleep(begins)
				defer resilience.Excuse(ctx)()
				time.Sleep(time.Minute)
			}()
			time.Sleep(time.Second / 2)
			return 0, resilience.MarkBackend(errBoom)
		})
		assert.Equal(t, resilience.CodeTimeout, r.Err.Code)
		assert.Equal(t, 1, g.Breaker("x").Failures())
		time.Sleep(time.Hour)
	})
}

// A timeout of which a tenth is nothing is none that has been excused.
func TestExcuseOfATinyTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{
			"x": {Timeout: 5 * time.Nanosecond, Effect: resilience.NonIdempotent},
		}})
		_, err := resilience.Do(t.Context(), g, "x", untilDone)
		assert.ErrorIs(t, err, resilience.CodeTimeout)
		assert.Equal(t, 1, g.Breaker("x").Failures())
	})
}

// What is left of an attempt excuses no later one, and outside of a guarded call nothing is excused.
func TestExcuseOfAnAttemptThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resilience.Excuse(t.Context())()
		g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {
			Timeout: time.Minute, AttemptTimeout: time.Second, Effect: resilience.ReadOnly,
		}}})
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			if resilience.Attempt(ctx) > 1 {
				return untilDone(ctx)
			}
			time.Sleep(time.Second)
			defer resilience.Excuse(ctx)()
			time.Sleep(time.Hour)
			return 0, nil
		})
		assert.Equal(t, resilience.CodeRetryExhausted, r.Err.Code)
		assert.Equal(t, 1, g.Breaker("x").Failures())
		time.Sleep(time.Hour)
	})
}

// A timeout that is restarted is excused by what comes after that, and a MaxTimeout by a tenth of all.
func TestExcuseOfATimeoutThatIsRestarted(t *testing.T) {
	const timeout, maximum = 30 * time.Second, time.Hour
	excused := func(ctx context.Context, d time.Duration) {
		defer resilience.Excuse(ctx)()
		time.Sleep(d)
	}
	for name, tc := range map[string]struct {
		tool    toolFunc
		counted bool
	}{
		"a little, again and again": {counted: true, tool: func(ctx context.Context) (int, error) {
			for range 600 {
				time.Sleep(time.Second)
				resilience.ReportProgress(ctx)
				excused(ctx, 10*time.Millisecond)
			}
			return untilDone(ctx)
		}},
		"a tenth of the last one": {tool: func(ctx context.Context) (int, error) {
			time.Sleep(time.Second)
			resilience.ReportProgress(ctx)
			excused(ctx, timeout/10)
			return untilDone(ctx)
		}},
		"while it is restarted": {tool: func(ctx context.Context) (int, error) {
			time.AfterFunc(time.Second, func() { resilience.ReportProgress(ctx) })
			excused(ctx, time.Second+timeout/10)
			return untilDone(ctx)
		}},
		"before a pause has ended": {counted: true, tool: func(ctx context.Context) (int, error) {
			resume := resilience.Pause(ctx)
			excused(ctx, time.Minute)
			resume()
			return untilDone(ctx)
		}},
		"a tenth of the maximum": {tool: func(ctx context.Context) (int, error) {
			for ctx.Err() == nil {
				time.Sleep(9 * time.Second)
				excused(ctx, time.Second)
				resilience.ReportProgress(ctx)
			}
			return 0, ctx.Err()
		}},
		"less than a tenth of the maximum": {counted: true, tool: func(ctx context.Context) (int, error) {
			for ctx.Err() == nil {
				time.Sleep(9 * time.Second)
				excused(ctx, time.Second/2)
				resilience.ReportProgress(ctx)
			}
			return 0, ctx.Err()
		}},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{
				"x": {Timeout: timeout, MaxTimeout: maximum, Effect: resilience.NonIdempotent},
			}})
			_, err := resilience.Do(t.Context(), g, "x", tc.tool)
			assert.ErrorIs(t, err, resilience.CodeTimeout)
			assert.Equal(t, tc.counted, g.Breaker("x").Failures() == 1)
			time.Sleep(maximum)
		})
	}
}

// So is a failure whose examination takes longer than the call: because of a method of the error, or of a Classify.
func TestExcuseOfWhatIsExaminedTooSlowly(t *testing.T) {
	slowly := func(error) resilience.Class { time.Sleep(24 * time.Hour); return resilience.ClassTransient }
	for _, excused := range []bool{false, true} {
		for _, classify := range []func(error) resilience.Class{nil, slowly} {
			synctest.Test(t, func(t *testing.T) {
				g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {
					Timeout: time.Second, Retry: &resilience.Retry{Classify: classify},
				}}})
				_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					if excused {
						done := resilience.Excuse(ctx)
						time.Sleep(time.Second / 2)
						done()
					}
					once := resilience.Retry{MaxRetries: 1, Backoff: resilience.Backoff{Base: 1, Max: 1}}
					_, err := resilience.WithRetry(ctx, once, failing(9, resilience.TimeoutError("x", time.Second)))
					e := err.(*resilience.Error)
					if classify == nil {
						e.Err = slowUnwrap{e.Err, 24 * time.Hour}
					}
					return 0, e
				})
				assert.ErrorIs(t, err, resilience.CodeRetryExhausted)
				assert.Equal(t, !excused, g.Breaker("x").Failures() == 1)
				time.Sleep(48 * time.Hour)
			})
		}
	}
}

// Nor is an excused timeout of a call within counted by the tool around it, which has longer.
func TestExcuseOfACallWithinIsOneOfTheTool(t *testing.T) {
	for _, cooperative := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}, Tools: map[string]resilience.Tool{
				"outer": {Timeout: time.Minute}, "part": {Timeout: 10 * time.Second, Cooperative: cooperative},
			}})
			_, err := resilience.Do(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
				return resilience.Do(ctx, g, "part", func(ctx context.Context) (int, error) {
					done := resilience.Excuse(ctx)
					time.Sleep(5 * time.Second)
					done()
					return untilDone(ctx)
				})
			})
			assert.ErrorIs(t, err, resilience.CodeTimeout)
			assert.Zero(t, g.Breaker("part").Failures())
			assert.Zero(t, g.Breaker("outer").Failures())
		})
	}
}
