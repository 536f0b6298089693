package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTimeoutOfAnOuterCallIsNoFailureOfTheInnerTool(t *testing.T) {
	inBothModes(t, func(t *testing.T, cooperative bool) {
		cfg := resilience.Config{Tools: map[string]resilience.Tool{
			"outer": {Timeout: 10 * time.Millisecond, MaxTimeout: time.Second},
			"inner": {Timeout: 50 * time.Millisecond, Cooperative: cooperative},
		}}
		cfg.Breaker.Failures = 1
		g := newGuard(t, cfg)

		_, err := resilience.Do(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
			return resilience.Do(ctx, g, "inner", func(context.Context) (int, error) {
				time.Sleep(100 * time.Millisecond) // a Cooperative tool notices the end late
				return 0, errBoom
			})
		})

		assert.ErrorIs(t, err, resilience.CodeTimeout)
		time.Sleep(time.Second)
		assert.Equal(t, resilience.StateClosed, g.Breaker("inner").State())
	})
}

// Either timer may be the first: what ends at the same time has exceeded its own timeout.
func TestTimeoutThatEqualsAnEarlierEndOfTheCaller(t *testing.T) {
	hangs := hang(time.Minute)
	for name, tc := range map[string]struct {
		call     func(ctx context.Context, g *resilience.Guard)
		failures int
	}{
		"that of an outer call is the tool's own": {func(ctx context.Context, g *resilience.Guard) {
			_, _ = resilience.Do(ctx, g, "outer", func(ctx context.Context) (int, error) {
				return resilience.Do(ctx, g, "x", hangs)
			})
		}, 1},
		"the deadline is the tool's own": {func(ctx context.Context, g *resilience.Guard) {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			_, _ = resilience.Do(ctx, g, "x", hangs)
		}, 1},
		"but an option and the deadline are the caller's": {func(ctx context.Context, g *resilience.Guard) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, _ = resilience.Do(ctx, g, "x", hangs, resilience.Timeout(time.Second))
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for range 50 {
				synctest.Test(t, func(t *testing.T) {
					tool := resilience.Tool{Timeout: 10 * time.Second}
					g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"x": tool, "outer": tool}})
					tc.call(t.Context(), g)
					time.Sleep(time.Hour)
					assert.Equal(t, tc.failures, g.Breaker("x").Failures())
				})
			}
		})
	}
}

// A pause of an outer call puts its deadline off, but not the timeout of a call within.
func TestTimeoutHoldsThoughAnOuterCallHasPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Timeout: 10 * time.Second, MaxTimeout: 15 * time.Second})
		start := time.Now()
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			time.AfterFunc(time.Second, func() {
				resume := resilience.Pause(ctx)
				time.Sleep(11 * time.Second) // until 12s, so that the call may last until 22s
				resume()
			})
			_, err := resilience.WithTimeout(ctx, "inner", 20*time.Second, hang(time.Hour))
			assert.ErrorIs(t, err, resilience.CodeTimeout)
			assert.Equal(t, 20*time.Second, time.Since(start))
			return 0, nil
		})
		assert.Nil(t, r.Err)
		time.Sleep(2 * time.Hour)
	})
}

func TestTimeoutOfAnOuterCallSaysHowLongTheInnerOneHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inner error
		g := guardWith(t, resilience.Tool{Timeout: 10 * time.Second})
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			time.Sleep(3 * time.Second)
			_, inner = resilience.WithTimeout(ctx, "inner", time.Hour, hang(2*time.Hour))
			return hang(time.Minute)(ctx)
		})
		require.ErrorIs(t, err, resilience.CodeTimeout)
		synctest.Wait()
		assert.ErrorContains(t, inner, "7s")
		time.Sleep(3 * time.Hour)
	})
}

// What a tool returns because its context has ended is none of its own errors, of which the last is kept.
func TestPromise4EchoOfTheEndDoesNotReplaceTheLastError(t *testing.T) {
	for name, echo := range map[string]func(context.Context) error{
		"its error": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"its cause": func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) },
		"the error, by a clock of its own": func(ctx context.Context) error {
			deadline, _ := ctx.Deadline()
			time.Sleep(time.Until(deadline))
			return context.DeadlineExceeded
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBothModes(t, func(t *testing.T, cooperative bool) {
				g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly, Cooperative: cooperative})
				for range 50 {
					r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
						if resilience.Attempt(ctx) == 1 {
							return 0, errBoom
						}
						return 0, echo(ctx)
					})
					require.ErrorIs(t, r.Err, resilience.CodeTimeout)
					require.ErrorIs(t, r.Err, errBoom)
					time.Sleep(time.Hour)
					g.Breaker("x").Reset()
				}
			})
		})
	}
}

func TestTimeoutHasTheCauseOfTheCallersDeadline(t *testing.T) {
	inBothModes(t, func(t *testing.T, cooperative bool) {
		g := guardWith(t, resilience.Tool{Cooperative: cooperative, Timeout: 50 * time.Millisecond})
		errLate := errors.New("late")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, errLate)
		defer cancel()

		_, err := resilience.Do(ctx, g, "x", func(context.Context) (int, error) {
			time.Sleep(100 * time.Millisecond)
			return 0, errBoom
		})

		assert.ErrorIs(t, err, resilience.CodeTimeout)
		assert.ErrorIs(t, err, errLate)
		time.Sleep(time.Second)
	})
}

// The timer of the parent and that of the call fire in any order.
func TestCallersDeadlineKeepsItsCauseWhicheverTimerFiresFirst(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			errLate := errors.New("late")
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errLate)
			defer cancel()

			_, err := resilience.Do(ctx, guardWith(t, resilience.Tool{}), "x", untilDone)

			assert.ErrorIs(t, err, errLate)
		})
	}
}

func TestDeadlineThatTheCallerDoesNotKeepEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Timeout: 10 * time.Second, MaxTimeout: 30 * time.Second})
		ctx, cancel := withUnkeptTimeout(12 * time.Second)(t.Context())
		defer cancel()

		start := time.Now()
		_, err := resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) {
			time.Sleep(9 * time.Second)
			resilience.ReportProgress(ctx)
			time.Sleep(time.Hour)
			return 0, nil
		})

		assert.ErrorIs(t, err, resilience.CodeTimeout)
		assert.Equal(t, 12*time.Second+time.Millisecond, time.Since(start))
		time.Sleep(2 * time.Hour)
	})
}

// Both a deadline that its context doesn't keep and one that it doesn't have count as the
// caller's, and so does the tool's own Error after the caller has left.
func TestEndOfTheCallerIsNoFailureWhateverItsContext(t *testing.T) {
	for name, caller := range map[string]caller{
		"a deadline that isn't kept":  withUnkeptTimeout(time.Second),
		"a deadline that isn't known": withHiddenTimeout(time.Second),
		"a deadline":                  withTimeout(time.Second),
		"a cancellation":              leavingAfter(time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			inBothModes(t, func(t *testing.T, cooperative bool) {
				g := guardWith(t, resilience.Tool{Cooperative: cooperative})
				for _, tool := range []toolFunc{
					failingOnceDone(&resilience.Error{Code: "BUSY"}),
					failingOnceDone(errBoom),
				} {
					ctx, cancel := caller(t.Context())
					start := time.Now()
					_, err := resilience.Do(ctx, g, "x", tool)
					assert.Error(t, err)
					assert.InDelta(t, time.Second, time.Since(start), float64(time.Millisecond))
					assert.Zero(t, g.Health()[0].ConsecutiveFailures)
					cancel()
				}
				synctest.Wait()
			})
		})
	}
}

func TestCallerThatLeavesIsNoFailureEvenIfTheToolNoticesItFirst(t *testing.T) {
	for name, cooperative := range map[string]bool{"enforced": false, "cooperative": true} {
		t.Run(name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly, Cooperative: cooperative})
			for range 300 {
				ctx, cancel := context.WithCancel(t.Context())
				go cancel()
				_, err := resilience.Do(ctx, g, "x", func(context.Context) (int, error) {
					<-ctx.Done() // the caller's
					return 0, errBoom
				})
				require.ErrorIs(t, err, resilience.CodeCanceled)

				another, leave := context.WithCancel(t.Context())
				_, err = resilience.Do(another, g, "x", func(ctx context.Context) (int, error) {
					leave()
					assert.Equal(t, context.Canceled, ctx.Err(), "at once, as with the standard library's")
					return 0, syscall.ECONNRESET
				})
				require.ErrorIs(t, err, resilience.CodeCanceled)
			}
			assert.Zero(t, g.Health()[0].ConsecutiveFailures)
		})
	}
}

// Nothing notices when the caller of a Cooperative tool leaves, if the tool doesn't look at its
// context.
func TestCallerThatLeavesIsNoFailureEvenIfNothingNoticesIt(t *testing.T) {
	for name, attemptTimeout := range map[string]time.Duration{
		"without an AttemptTimeout": 0,
		"with an AttemptTimeout":    time.Hour,
	} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := configWith(resilience.Tool{Cooperative: true, Timeout: 2 * time.Second})
			cfg.AttemptTimeout = attemptTimeout
			cfg.Breaker.Failures = 1
			g := newGuard(t, cfg)
			ctx, cancel := leavingAfter(time.Second)(t.Context())
			defer cancel()

			_, err := resilience.Do(ctx, g, "x", func(context.Context) (int, error) {
				time.Sleep(3 * time.Second)
				return 0, errBoom
			})

			assert.ErrorIs(t, err, resilience.CodeCanceled)
			assert.ErrorIs(t, err, errBoom)
			assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
		})
	}
}

// A connection with the call's deadline fails at the very moment of its end.
func TestDeadlineThatAConnectionKeepsIsThatOfTheCall(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			read := func(ctx context.Context) (int, error) {
				deadline, _ := ctx.Deadline()
				time.Sleep(time.Until(deadline))
				return 0, os.ErrDeadlineExceeded
			}
			g := guardWith(t, resilience.Tool{})

			_, err := resilience.Do(contextWithin(t, time.Second), g, "x", read)
			require.ErrorIs(t, err, resilience.CodeTimeout)
			require.Zero(t, g.Health()[0].ConsecutiveFailures, "the caller's deadline")

			_, err = resilience.Do(t.Context(), g, "x", read)
			require.ErrorIs(t, err, resilience.CodeTimeout)
			require.Equal(t, 1, g.Health()[0].ConsecutiveFailures, "the tool's own timeout")
		})
	}
}

func TestErrorOfACooperativeToolStandsAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Cooperative: true})

		_, err := resilience.Do(t.Context(), g, "x",
			failingOnceDone(&resilience.Error{Code: "BUSY", Message: "The index is being built"}))

		assert.EqualError(t, err, "BUSY: The index is being built", "it isn't only the cause of a TIMEOUT")
	})
}

func TestErrorOfACooperativeToolIsNotCountedAfterTheCallersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Cooperative: true})

		_, err := resilience.Do(t.Context(), g, "x",
			failingOnceDone(&resilience.Error{Code: "BUSY", Message: "m"}), resilience.Timeout(time.Second))

		assert.EqualError(t, err, "BUSY: m")
		assert.Zero(t, g.Health()[0].ConsecutiveFailures)
	})
}

func TestCauseOfAContextIsNotChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{Effect: resilience.NonIdempotent, Timeout: time.Second})
		cfg.Suggestions = map[resilience.Code]string{resilience.CodeTimeout: "T"}
		var cause *resilience.Error

		_, err := resilience.Do(t.Context(), newGuard(t, cfg), "x", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			cause = context.Cause(ctx).(*resilience.Error)
			return 0, context.Cause(ctx)
		}, resilience.Debug())
		synctest.Wait()

		got := err.(*resilience.Error)
		assert.NotSame(t, got, cause)
		assert.Nil(t, cause.Details)
		assert.True(t, cause.Retryable)
		assert.False(t, got.Retryable)
		assert.ErrorIs(t, err, cause)
	})
}

func TestDelayBetweenAttemptsEndsWithTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly})
		cfg.Retry.Backoff = tenSecondsApart
		ctx, cancel := leavingAfter(time.Second)(t.Context())
		defer cancel()

		start := time.Now()
		_, err := resilience.Do(ctx, newGuard(t, cfg), "x", func(ctx context.Context) (int, error) {
			ctx.Done() // the first attempt's context subscribes to the caller's
			return 0, errBoom
		})

		assert.ErrorIs(t, err, resilience.CodeCanceled)
		assert.Equal(t, time.Second, time.Since(start))
	})
}

func TestContextEndsWithTheCallerDuringOnRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		time.AfterFunc(5*time.Second, func() { close(block) })
		cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly})
		cfg.Retry.Backoff = tenSecondsApart
		cfg.Retry.OnRetry = func(int, time.Duration, error) { <-block }
		ctx, cancel := leavingAfter(time.Second)(t.Context())
		defer cancel()

		start := time.Now()
		var ended time.Duration
		_, err := resilience.Do(ctx, newGuard(t, cfg), "x", func(ctx context.Context) (int, error) {
			context.AfterFunc(ctx, func() { ended = time.Since(start) })
			return 0, errBoom
		})

		assert.ErrorIs(t, err, resilience.CodeCanceled)
		synctest.Wait()
		assert.Equal(t, time.Second, ended)
		assert.Equal(t, 5*time.Second, time.Since(start))
	})
}

func TestCauseOfTheContextIsFoundInTheErrorOfItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{})
		var cause error
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return 0, errBoom
		})
		synctest.Wait()

		assert.ErrorIs(t, err, cause)
	})
}

// A tool may ask for the cause before anything else has noticed the end, and Go 1.25 looks for
// it without asking Err first.
func TestCauseIsKnownIfItIsAskedForBeforeErr(t *testing.T) {
	type key struct{}
	for name, cause := range map[string]func(context.Context) error{
		"of the call":  context.Cause,
		"of its child": func(ctx context.Context) error { return context.Cause(context.WithValue(ctx, key{}, 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			inBothModes(t, func(t *testing.T, cooperative bool) {
				g := guardWith(t, resilience.Tool{Cooperative: cooperative, Timeout: time.Second})
				seen := make(chan error, 1)

				ctx, cancel := context.WithCancel(t.Context())
				_, _ = resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) {
					cancel()
					seen <- cause(ctx)
					return 0, errBoom
				})
				assert.ErrorIs(t, <-seen, resilience.CodeCanceled)

				_, _ = resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					time.Sleep(time.Second)
					seen <- cause(ctx)
					return 0, errBoom
				})
				assert.ErrorIs(t, <-seen, resilience.CodeTimeout)
			})
		})
	}
}

// The caller is there. It is the tool that gave up something of its own, which is a failure.
func TestToolThatCancelsItsOwnContextIsNotCanceled(t *testing.T) {
	for name, inner := range map[string]func(context.Context, *resilience.Guard) error{
		"Do": func(ctx context.Context, g *resilience.Guard) error {
			_, err := resilience.Do(ctx, g, "inner", untilDone)
			return err
		},
		"Do, too late": func(ctx context.Context, g *resilience.Guard) error {
			<-ctx.Done()
			_, err := resilience.Do(ctx, g, "inner", untilDone)
			return fmt.Errorf("inner: %w", err)
		},
		"WithTimeout": func(ctx context.Context, _ *resilience.Guard) error {
			_, err := resilience.WithTimeout(ctx, "inner", time.Minute, untilDone)
			return err
		},
		"AsError": func(ctx context.Context, _ *resilience.Guard) error {
			<-ctx.Done()
			return resilience.AsError("inner", ctx.Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBothModes(t, func(t *testing.T, cooperative bool) {
				g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly, Cooperative: cooperative})
				r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					ctx, cancel := context.WithCancelCause(ctx)
					time.AfterFunc(time.Millisecond, func() { cancel(errBoom) })
					return 0, inner(ctx, g)
				})
				synctest.Wait()
				assert.Equal(t, 4, r.Attempts)
				assert.Equal(t, resilience.CodeRetryExhausted, r.Err.Code)
				assert.ErrorIs(t, r.Err, context.Canceled)
				assert.Equal(t, 1, g.Health()[len(g.Health())-1].ConsecutiveFailures)
			})
		})
	}
}

// What a tool makes of the end isn't what ended the call, unless its own *Error deliberately says something else.
func TestEndOfACallIsItsOwnUnlessTheToolSaysSomethingElse(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		code resilience.Code
	}{
		"its own CANCELED": {&resilience.Error{Code: resilience.CodeCanceled, Message: "stopped"}, resilience.CodeTimeout},
		"its own TIMEOUT":  {resilience.TimeoutError("inner", time.Second), resilience.CodeTimeout},
		"a typed nil":      {(*resilience.Error)(nil), resilience.CodeTimeout},
		"any error":        {errBoom, resilience.CodeTimeout},
		"another":          {&resilience.Error{Code: "BUSY"}, "BUSY"},
		"wrapped":          {fmt.Errorf("import: %w", &resilience.Error{Code: "BUSY"}), "BUSY"},
		"marked":           {resilience.MarkPermanent(&resilience.Error{Code: "BUSY"}), "BUSY"},
		"the end, wrapped": {fmt.Errorf("import: %w", resilience.TimeoutError("inner", time.Second)), resilience.CodeTimeout},
	} {
		for tool, cooperative := range map[string]bool{"enforced": false, "cooperative": true} {
			runInBubble(t, name+", "+tool, func(t *testing.T) {
				g := guardWith(t, resilience.Tool{Cooperative: cooperative})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				r := resilience.Run(ctx, g, "x", failingOnceDone(tc.err), resilience.WaitForTool())
				require.Error(t, r.Err)
				assert.Equal(t, tc.code, r.Err.Code)
				assert.Equal(t, time.Second, r.Duration)
			})
		}
	}
}

// A Cooperative tool answers for itself, also at its timeout.
func TestMarkOfACooperativeToolStandsAtItsTimeout(t *testing.T) {
	for name, tc := range map[string]struct {
		err      error
		code     resilience.Code
		attempts int // if only the attempt has a timeout
		counts   bool
	}{
		"MarkInvalid":    {resilience.MarkInvalid(errBoom), resilience.CodeValidation, 1, false},
		"MarkNeutral":    {resilience.MarkNeutral(errBoom), resilience.CodeToolFailed, 1, false},
		"ErrUnfinished":  {fmt.Errorf("ask: %w", resilience.ErrUnfinished), resilience.CodeValidation, 1, false},
		"MarkPermanent":  {resilience.MarkPermanent(errBoom), resilience.CodeToolFailed, 1, true},
		"MarkTransient":  {resilience.MarkTransient(errBoom), resilience.CodeToolFailed, 4, true},
		"MarkBackend":    {resilience.MarkBackend(errBoom), resilience.CodeTimeout, 1, true},
		"no mark at all": {errBoom, resilience.CodeTimeout, 1, true}, // it may have had an effect
	} {
		for _, whole := range []bool{true, false} {
			runInBubble(t, fmt.Sprint(name, " ", whole), func(t *testing.T) {
				tool, attempts := resilience.Tool{AttemptTimeout: time.Second, Cooperative: true}, tc.attempts
				if whole {
					tool, attempts = resilience.Tool{Timeout: time.Second, Cooperative: true}, 1
				}
				g := guardWith(t, tool)
				r := resilience.Run(t.Context(), g, "x", failingOnceDone(tc.err))
				require.ErrorIs(t, r.Err, tc.err)
				assert.Equal(t, attempts, r.Attempts)
				assert.Equal(t, tc.counts, g.Breaker("x").Failures() == 1)
				if attempts == 1 {
					assert.Equal(t, tc.code, r.Err.Code)
				}
			})
		}
	}
}
