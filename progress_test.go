package resilience_test

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// working works for d and reports progress that often.
func working(d, every time.Duration) toolFunc {
	return func(ctx context.Context) (int, error) {
		type key struct{}
		ctx = context.WithValue(ctx, key{}, 1) // as a tool may have done
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

// workingThenHanging works for d, reports progress that often, and hangs.
func workingThenHanging(d, every time.Duration) toolFunc {
	return func(ctx context.Context) (int, error) {
		_, _ = working(d, every)(ctx)
		return untilDone(ctx)
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
	tool           resilience.Tool
	fn             toolFunc
	option         resilience.Option
	deadline       time.Duration // the caller's
	attemptTimeout time.Duration
	took           time.Duration
	message        string // of the TIMEOUT; empty for a success
	failures       int    // that the breaker counts
}

func (tc progressTest) check(t *testing.T) {
	cfg := configWith(tc.tool)
	cfg.AttemptTimeout = tc.attemptTimeout
	g := newGuard(t, cfg)

	r := resilience.Run(contextWithin(t, tc.deadline), g, "x", tc.fn, tc.option)

	assert.Equal(t, tc.took, r.Duration)
	if tc.message == "" {
		assert.Nil(t, r.Err)
	} else if assert.NotNil(t, r.Err) {
		assert.Equal(t, tc.message, r.Err.Message)
		assert.Equal(t, resilience.CodeTimeout, r.Err.Code)
	}
	assert.Equal(t, tc.failures, g.Health()[0].ConsecutiveFailures)
	time.Sleep(2 * time.Hour)
}

func TestProgressRestartsTheTimeout(t *testing.T) {
	const s = time.Second
	short, long := resilience.Tool{Timeout: 10 * s}, resilience.Tool{Timeout: 10 * s, MaxTimeout: 60 * s}
	for name, tc := range map[string]progressTest{
		"in time": {tool: long, fn: working(50*s, 9*s), took: 54 * s},
		"too rarely": {
			tool: long, fn: working(50*s, 11*s),
			took: 10 * s, message: "Tool 'x' exceeded timeout of 10s", failures: 1,
		},
		"up to MaxTimeout": {
			tool: long, fn: working(time.Hour, 9*s),
			took: 60 * s, message: "Tool 'x' exceeded timeout of 60s", failures: 1,
		},
		"not without a MaxTimeout": {
			tool: short, fn: working(50*s, 9*s),
			took: 10 * s, message: "Tool 'x' exceeded timeout of 10s", failures: 1,
		},
		"up to the caller's deadline": {
			tool: long, fn: working(50*s, 9*s), deadline: 30 * s,
			took: 30 * s, message: "Tool 'x' exceeded timeout of 30s",
		},
		"of an option": {tool: long, fn: working(20*s, 2*s), option: resilience.Timeout(3 * s), took: 20 * s},
		"of an option, too rarely": {
			tool: long, fn: working(20*s, 4*s), option: resilience.Timeout(3 * s),
			took: 3 * s, message: "Tool 'x' exceeded timeout of 3s",
		},
		"of an option, up to MaxTimeout": {
			tool: long, fn: working(time.Hour, 2*s), option: resilience.Timeout(3 * s),
			took: 60 * s, message: "Tool 'x' exceeded timeout of 60s", failures: 1,
		},
		"of an option, then too rarely": {
			tool: long, fn: workingThenHanging(30*s, 2*s), option: resilience.Timeout(3 * s),
			took: 33 * s, message: "Tool 'x' exceeded timeout of 3s",
		},
		"of an option, up to an earlier MaxTimeout": {
			tool: resilience.Tool{Timeout: 10 * s, MaxTimeout: 11 * s}, fn: working(time.Hour, s),
			option: resilience.Timeout(3 * s),
			took:   11 * s, message: "Tool 'x' exceeded timeout of 11s", failures: 1,
		},
		"of an option, not without a MaxTimeout": {
			tool: short, fn: working(20*s, 2*s), option: resilience.Timeout(3 * s),
			took: 3 * s, message: "Tool 'x' exceeded timeout of 3s",
		},
		"of an attempt": {tool: long, fn: working(50*s, 4*s), attemptTimeout: 5 * s, took: 52 * s},
		"of an attempt, too rarely": {
			tool: long, fn: working(50*s, 6*s), attemptTimeout: 5 * s,
			took: 5 * s, message: "Tool 'x' exceeded timeout of 5s", failures: 1,
		},
		"of an attempt, not without a MaxTimeout": {
			fn: working(10*s, s/2), attemptTimeout: s,
			took: s, message: "Tool 'x' exceeded timeout of 1s", failures: 1,
		},
	} {
		runInBubble(t, name, tc.check)
	}
}

// What a tool passes to its backend must outlast the progress that it reports. A delay, in
// which there is no progress, must fit into the timeout itself.
func TestDeadlineOfAToolWithProgressIsItsMaxTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Timeout: 10 * time.Second, MaxTimeout: time.Minute})

		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			deadline, _ := ctx.Deadline()
			assert.Equal(t, time.Minute, time.Until(deadline))
			_, err := resilience.WithRetry(ctx, steady, failing(9, waitError{20 * time.Second}))
			assert.Equal(t, waitError{20 * time.Second}, err)
			return 0, nil
		})

		assert.NoError(t, err)
	})
}

func TestProgressOfAnInnerCallIsProgressOfTheOuterCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := resilience.Tool{Timeout: 10 * time.Second, MaxTimeout: time.Minute}
		g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"outer": long, "inner": long}})

		value, err := resilience.Do(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
			return resilience.Do(ctx, g, "inner", working(40*time.Second, 9*time.Second))
		})

		assert.NoError(t, err)
		assert.Equal(t, 1, value)
	})
}

// A timer that goes on would ask the caller's context when it fires.
func TestProgressRestartsNothingAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Timeout: time.Minute, MaxTimeout: time.Hour})
		var kept context.Context
		var asked atomic.Int64
		ctx := &calledContext{Context: t.Context(), method: "Err", call: func() { asked.Add(1) }}
		_, err := resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) { kept = ctx; return 0, nil })
		assert.NoError(t, err)
		before := asked.Load()

		resilience.ReportProgress(kept)
		time.Sleep(2 * time.Minute)

		assert.Equal(t, context.Canceled, kept.Err())
		assert.Equal(t, before, asked.Load())
	})
}

func TestProgressAndPauseDoNothingOutsideOfACall(t *testing.T) {
	resilience.ReportProgress(t.Context())
	resilience.Pause(t.Context())()
}

func TestPauseSuspendsTheTimeout(t *testing.T) {
	const s = time.Second
	tool := resilience.Tool{Timeout: 10 * s}
	for name, tc := range map[string]progressTest{
		"for an hour": {tool: tool, fn: eliciting(9*s, time.Hour, 9*s), took: time.Hour + 18*s},
		"for an hour, with a MaxTimeout": {
			tool: resilience.Tool{Timeout: 10 * s, MaxTimeout: 20 * s}, fn: eliciting(9*s, time.Hour, 9*s),
			took: time.Hour + 18*s,
		},
		"for an hour, with an AttemptTimeout": {
			tool: tool, fn: eliciting(4*s, time.Hour, 4*s), attemptTimeout: 5 * s, took: time.Hour + 8*s,
		},
		"and restarts all of it": {tool: tool, fn: eliciting(9*s, 100*s, 9*s), took: 118 * s},
		"not if the tool is too slow before": {
			tool: tool, fn: eliciting(11*s, s, s),
			took: 10 * s, message: "Tool 'x' exceeded timeout of 10s", failures: 1,
		},
		"not if the tool hangs afterwards": {
			tool: tool, fn: eliciting(0, time.Hour, time.Hour),
			took: time.Hour + 10*s, message: "Tool 'x' exceeded timeout of 10s", failures: 1,
		},
		"and MaxTimeout, shorter by an option": {
			tool: resilience.Tool{Timeout: 10 * s, MaxTimeout: 60 * s}, fn: eliciting(2*s, time.Hour, time.Hour),
			option: resilience.Timeout(3 * s),
			took:   time.Hour + 5*s, message: "Tool 'x' exceeded timeout of 3s",
		},
		"not beyond the caller's deadline": {
			tool: tool, fn: eliciting(s, time.Hour, s), deadline: 60 * s,
			took: 60 * s, message: "Tool 'x' exceeded timeout of 60s",
		},
	} {
		runInBubble(t, name, tc.check)
	}
}

func TestOnlyTheFirstCallOfAResumeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{Timeout: 10 * time.Second}), "x",
			func(ctx context.Context) (int, error) {
				first, second := resilience.Pause(ctx), resilience.Pause(ctx)
				first()
				first()
				time.Sleep(time.Hour)
				second()
				second()
				third := resilience.Pause(ctx)
				time.Sleep(time.Hour)
				third()
				return 1, nil
			})
		assert.Nil(t, r.Err)
	})
}

func TestCallerThatLeavesEndsAPausedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Timeout: 10 * time.Second})
		ctx, cancel := leavingAfter(60 * time.Second)(t.Context())
		defer cancel()

		start := time.Now()
		_, err := resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) {
			defer resilience.Pause(ctx)()
			return untilDone(ctx)
		})

		assert.ErrorIs(t, err, resilience.CodeCanceled)
		assert.Equal(t, 60*time.Second, time.Since(start))
	})
}

func TestAbandonedAttemptDoesNotExtendTheCall(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		abandoned func(context.Context)
		took      time.Duration
	}{
		"it pauses": {
			abandoned: func(ctx context.Context) { time.Sleep(2 * s); resilience.Pause(ctx) },
			took:      2*s + 100*time.Millisecond, // the attempt under way is the last one
		},
		"it reports progress": {
			abandoned: func(ctx context.Context) {
				for range 100 {
					time.Sleep(s / 2)
					if ctx.Err() != nil {
						resilience.ReportProgress(ctx)
					}
				}
			},
			took: 3 * s,
		},
		"a call that outlives it pauses": {
			abandoned: func(ctx context.Context) {
				_, _ = resilience.WithTimeout(context.WithoutCancel(ctx), "y", time.Hour,
					func(ctx context.Context) (int, error) {
						time.Sleep(2 * s)
						resilience.Pause(ctx)
						return hang(100 * s)(ctx)
					})
			},
			took: 2*s + 100*time.Millisecond,
		},
		"a call that outlives it reports progress": {
			abandoned: func(ctx context.Context) {
				ctx = context.WithoutCancel(ctx)
				_, _ = resilience.WithTimeout(ctx, "y", time.Hour, func(ctx context.Context) (int, error) {
					time.Sleep(s)
					return working(100*s, s/2)(ctx)
				})
			},
			took: 3 * s,
		},
		// An attempt that has paused isn't abandoned: only its caller ends it.
		"it has paused": {
			abandoned: func(ctx context.Context) { resilience.Pause(ctx); time.Sleep(100 * s) },
			took:      30 * s,
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly, Timeout: 3 * s, MaxTimeout: time.Hour})
			cfg.AttemptTimeout = s
			g := newGuard(t, cfg)

			r := resilience.Run(contextWithin(t, 30*s), g, "x", func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) == 1 {
					tc.abandoned(ctx)
				}
				time.Sleep(200 * s)
				return 0, nil
			})

			assert.NotNil(t, r.Err)
			assert.Equal(t, tc.took, r.Duration)
			time.Sleep(time.Hour)
		})
	}
}

// A call that outlives the one that made it, because it has no end but its own or because it is
// Cooperative, extends no call around that one.
func TestCallThatOutlivesAnAbandonedOneDoesNotExtendTheOthers(t *testing.T) {
	const s = time.Second
	for name, extend := range map[string]func(context.Context){
		"progress":         func(ctx context.Context) { _, _ = working(time.Hour, s/2)(ctx) },
		"a pause":          func(ctx context.Context) { time.Sleep(2 * s); resilience.Pause(ctx) },
		"an earlier pause": func(ctx context.Context) { resilience.Pause(ctx) },
	} {
		for how, outlive := range map[string]func(context.Context) context.Context{
			"cooperative": func(ctx context.Context) context.Context { return ctx },
			"detached":    context.WithoutCancel,
		} {
			runInBubble(t, name+", "+how, func(t *testing.T) {
				long := resilience.Tool{Timeout: 10 * s, MaxTimeout: 5 * time.Hour}
				g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{
					"outer": long, "middle": {Timeout: s},
					"inner": {Timeout: time.Hour, MaxTimeout: 5 * time.Hour, Cooperative: how == "cooperative"},
				}})
				left := contextWithin(t, s) // ends the middle call even if its timeout is paused

				r := resilience.Run(t.Context(), g, "outer", func(outer context.Context) (int, error) {
					_, err := resilience.Do(valuesOf{left, outer}, g, "middle", func(ctx context.Context) (int, error) {
						return resilience.Do(outlive(ctx), g, "inner", func(ctx context.Context) (int, error) {
							extend(ctx)
							return hang(time.Hour)(ctx)
						})
					})
					assert.ErrorIs(t, err, resilience.CodeTimeout)
					return hang(time.Hour)(outer)
				})

				assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
				assert.LessOrEqual(t, r.Duration, 11*s)
				time.Sleep(5 * time.Hour)
			})
		}
	}
}

// A valuesOf has the values of another context, but not its end.
type valuesOf struct {
	context.Context
	values context.Context
}

func (v valuesOf) Value(key any) any { return v.values.Value(key) }

// The pause begins while the inner call is under way.
func TestPauseOfTheOuterCallSuspendsTheInnerCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{
			"outer": {Timeout: 10 * time.Second}, "inner": {Timeout: time.Minute},
		}})

		value, err := resilience.Do(t.Context(), g, "outer", func(outer context.Context) (int, error) {
			time.AfterFunc(5*time.Second, func() {
				resume := resilience.Pause(outer)
				time.AfterFunc(40*time.Second, resume)
			})
			return resilience.Do(outer, g, "inner", hang(50*time.Second))
		})

		assert.NoError(t, err)
		assert.Equal(t, lateValue, value)
	})
}

func TestPauseAddsWhatItTookToMaxTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Timeout: 10 * time.Second, MaxTimeout: 30 * time.Second})

		start := time.Now()
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			time.Sleep(9 * time.Second)
			resume := resilience.Pause(ctx)
			time.Sleep(100 * time.Second)
			resilience.ReportProgress(ctx) // does nothing during a pause
			resume()

			for ctx.Err() == nil {
				time.Sleep(time.Second)
				resilience.ReportProgress(ctx)
			}
			return 0, ctx.Err()
		})

		assert.ErrorIs(t, err, resilience.CodeTimeout)
		assert.Equal(t, 130*time.Second, time.Since(start))
	})
}

func TestProgressEndsNoPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Timeout: 10 * time.Second, MaxTimeout: 30 * time.Second})

		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			defer resilience.Pause(ctx)()
			resilience.ReportProgress(ctx)
			time.Sleep(time.Hour)
			return 0, ctx.Err()
		})

		assert.NoError(t, err)
	})
}

func TestPauseWithAHugeMaxTimeoutDoesNotOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Timeout: 10 * time.Second, MaxTimeout: math.MaxInt64})

		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			resume := resilience.Pause(ctx)
			time.Sleep(time.Hour)
			resume()
			for range 3 {
				time.Sleep(9 * time.Second)
				resilience.ReportProgress(ctx)
			}
			return 0, ctx.Err()
		})

		assert.NoError(t, err)
	})
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
		fn       toolFunc
		classify func(error) resilience.Class
		code     resilience.Code
	}{
		"an error":                  {fn: asking(failing(9, errBoom)), code: resilience.CodeToolFailed},
		"the timeout of an attempt": {fn: asking(hang(100 * s)), code: resilience.CodeTimeout},
		"the timeout of an attempt that respects it": {fn: asking(untilDone), code: resilience.CodeTimeout},
		"a context.Canceled of its own": {
			fn: asking(failing(9, context.Canceled)), code: resilience.CodeToolFailed,
		},
		"a failure without an effect": {
			fn: asking(failing(9, resilience.MarkTransient(errBoom))), code: resilience.CodeToolFailed,
		},
		"a Classify": {
			fn:       asking(failing(9, resilience.MarkPermanent(errBoom))),
			classify: func(error) resilience.Class { return resilience.ClassTransient },
			code:     resilience.CodeToolFailed,
		},
		"an error of an inner call": {
			fn: func(ctx context.Context) (int, error) {
				return resilience.Do(ctx, inner, "x", asking(failing(9, errBoom)))
			},
			code: resilience.CodeToolFailed,
		},
		"an abandoned attempt that pauses before the next one": {
			fn: func(ctx context.Context) (int, error) {
				time.Sleep(5*s + 50*time.Millisecond)
				ask(ctx)
				return 0, nil
			},
			code: resilience.CodeTimeout,
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly, Timeout: 60 * s})
			cfg.AttemptTimeout = 5 * s
			cfg.Retry.Classify = tc.classify

			r := resilience.Run(t.Context(), newGuard(t, cfg), "x", tc.fn)

			require.ErrorIs(t, r.Err, tc.code)
			assert.Equal(t, 1, r.Attempts)
			assert.False(t, r.Err.Retryable, "an agent would have the person asked again, too")
			time.Sleep(2 * time.Hour)
		})
	}
}

func TestThePausesOfACallEndWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {Timeout: 10 * time.Second}}})
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			_, err := resilience.Do(ctx, g, "y", func(ctx context.Context) (int, error) {
				resilience.Pause(ctx) // and never resumed
				return 0, errBoom
			})
			assert.ErrorIs(t, err, resilience.CodeToolFailed)
			<-ctx.Done()
			return 0, ctx.Err()
		})
		require.ErrorIs(t, r.Err, resilience.CodeTimeout)
		assert.Less(t, r.Duration, 25*time.Second)
	})
}

// A call whose caller has left suspends those around it no longer, though it may go on: a Cooperative one answers for
// itself, and nobody else may look at its context.
func TestPauseSuspendsNoCallAroundOneThatWasGivenUp(t *testing.T) {
	for name, middle := range map[string]func(context.Context, *resilience.Guard) (int, error){
		"that has paused": func(ctx context.Context, _ *resilience.Guard) (int, error) {
			return pausedFor(time.Hour)(ctx)
		},
		"around one that has": func(ctx context.Context, g *resilience.Guard) (int, error) {
			return resilience.Do(context.WithoutCancel(ctx), g, "inner", pausedFor(time.Hour))
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{
				"outer": {Timeout: 10 * time.Second}, "middle": {Cooperative: true}, "inner": {},
			}})
			r := resilience.Run(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(time.Second, cancel)
				return resilience.Do(ctx, g, "middle", func(ctx context.Context) (int, error) { return middle(ctx, g) })
			})
			assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
			assert.Equal(t, 11*time.Second, r.Duration)
			time.Sleep(2 * time.Hour)
		})
	}
}

// An abandoned attempt asks a person during the delay, and the breaker opens, too.
func TestCallThatHasPausedIsNotRetryableAlsoIfItIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly, Timeout: time.Minute})
		cfg.AttemptTimeout = time.Second
		cfg.Retry.Backoff = tenSecondsApart
		g := newGuard(t, cfg)
		time.AfterFunc(6*time.Second, func() { trip(t, g.Breaker("x")) })

		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			time.Sleep(5 * time.Second)
			resilience.Pause(ctx)()
			return 1, nil
		})
		assert.False(t, r.Err.Retryable)
		assert.Equal(t, suggestCheck, r.Err.Suggestion)
	})
}

// What is left of the first attempt may report progress, but nobody makes any.
func TestProgressDuringADelayDoesNotExtendTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly, Timeout: time.Second, MaxTimeout: 10 * time.Second})
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			if resilience.Attempt(ctx) == 1 {
				time.AfterFunc(850*time.Millisecond, func() { resilience.ReportProgress(ctx) })
				return 0, waitError{900 * time.Millisecond}
			}
			return untilDone(ctx)
		})
		assert.Equal(t, time.Second, r.Duration)
	})
}

func TestProgressOfALaterAttemptExtendsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly, Timeout: 2 * time.Second, MaxTimeout: time.Minute})
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			if resilience.Attempt(ctx) == 1 {
				return 0, waitError{time.Second}
			}
			return working(10*time.Second, time.Second/2)(ctx)
		})
		assert.Nil(t, r.Err)
		assert.Equal(t, 11*time.Second, r.Duration)
	})
}

// A tool that is abandoned may still ask a person something.
func TestPauseOfAnAbandonedToolDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resumed := false
		_, err := resilience.Do(t.Context(), guardWith(t, resilience.Tool{Timeout: time.Second}), "x",
			func(ctx context.Context) (int, error) {
				time.Sleep(2 * time.Second)
				resilience.Pause(ctx)()
				resumed = true
				return 1, nil
			})
		assert.ErrorIs(t, err, resilience.CodeTimeout)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.True(t, resumed)
	})
}

// What is left of an attempt may ask, too, while the next one runs.
func TestPauseByWhatIsLeftOfAnEarlierAttemptSuspendsNothing(t *testing.T) {
	for name, attemptTimeout := range map[string]time.Duration{"one context": 0, "one each": 30 * time.Second} {
		runInBubble(t, name, func(t *testing.T) {
			tool := resilience.Tool{Effect: resilience.ReadOnly, Timeout: 10 * time.Second, AttemptTimeout: attemptTimeout}
			outer := guardWith(t, resilience.Tool{Timeout: time.Minute})
			inner := guardWith(t, tool)
			r := resilience.Run(t.Context(), outer, "x", func(ctx context.Context) (int, error) {
				return resilience.Do(ctx, inner, "x", func(ctx context.Context) (int, error) {
					if resilience.Attempt(ctx) > 1 {
						<-ctx.Done()
						return 0, ctx.Err()
					}
					go func() {
						time.Sleep(5 * time.Second)
						resilience.Pause(ctx)
					}()
					return 0, errBoom
				})
			})
			assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
			assert.Equal(t, 10*time.Second, r.Duration)
			time.Sleep(time.Hour)
		})
	}
}

// A heartbeat that doesn't end with its attempt says nothing of the next one, which hangs.
func TestProgressOfAnEarlierAttemptRestartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{
			Effect: resilience.ReadOnly, Timeout: 10 * time.Second, MaxTimeout: 10 * time.Minute,
		})
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			if resilience.Attempt(ctx) > 1 {
				resilience.ReportProgress(ctx)
				<-ctx.Done()
				return 0, ctx.Err()
			}
			go func() {
				for ctx.Err() == nil {
					time.Sleep(time.Second)
					resilience.ReportProgress(ctx)
				}
			}()
			return 0, errBoom
		})
		assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
		assert.Less(t, r.Duration, 12*time.Second)
		assert.Greater(t, r.Duration, 10*time.Second, "the attempt under way restarts it")
		time.Sleep(time.Second) // what is left of the first one ends
	})
}

// However long a timeout a call asks for, progress restarts that of its attempts.
func TestProgressRestartsTheAttemptTimeoutOfACallThatAsksForMore(t *testing.T) {
	for _, asked := range []time.Duration{time.Second, 4 * time.Minute, 5 * time.Minute, time.Hour} {
		runInBubble(t, asked.String(), func(t *testing.T) {
			g := guardWith(t, resilience.Tool{
				Timeout: 30 * time.Second, MaxTimeout: 5 * time.Minute, AttemptTimeout: 10 * time.Second,
			})
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				for range 120 {
					time.Sleep(500 * time.Millisecond)
					if ctx.Err() != nil {
						return 0, ctx.Err()
					}
					resilience.ReportProgress(ctx)
				}
				return 1, nil
			}, resilience.Timeout(asked))
			assert.Nil(t, r.Err)
			assert.Equal(t, time.Minute, r.Duration)
		})
	}
}

// Only a guard knows that a tool may wait for a person: WithTimeout alone returns when its timeout has passed.
func TestPauseDoesNotSuspendWithTimeoutOutsideOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, err := resilience.WithTimeout(t.Context(), "x", time.Second, func(ctx context.Context) (int, error) {
			defer resilience.Pause(ctx)()
			time.Sleep(time.Hour)
			return 1, nil
		})
		assert.ErrorIs(t, err, resilience.CodeTimeout)
		assert.Equal(t, time.Second, time.Since(start))
		time.Sleep(time.Hour)
	})
}
