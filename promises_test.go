package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The nine promises, each held by a test that fails when the promise is broken.

func TestPromise1CallReturnsByItsTimeout(t *testing.T) {
	for name, fn := range map[string]toolFunc{
		"the tool ignores its context":  hang(time.Hour),
		"the tool respects its context": untilDone,
		"the tool hangs on its way out": func(ctx context.Context) (int, error) {
			defer time.Sleep(time.Hour)
			<-ctx.Done()
			panic("p")
		},
		"the tool fails, then hangs": func(ctx context.Context) (int, error) {
			if resilience.Attempt(ctx) < 3 {
				return 0, errBoom
			}
			return hang(time.Hour)(ctx)
		},
		"the tool fails slowly, again and again": func(context.Context) (int, error) {
			time.Sleep(25 * time.Second)
			return 0, errBoom
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly})

			r := resilience.Run(t.Context(), g, "x", fn)

			assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
			assert.Equal(t, 60*time.Second, r.Duration)
			time.Sleep(2 * time.Hour)
		})
	}
}

func TestPromise2BreakerNeverWedges(t *testing.T) {
	calls := func(ctx context.Context, g *resilience.Guard) error {
		_, err := resilience.Do(ctx, g, "x", failing(9, errBoom))
		return err
	}
	for name, probe := range map[string]struct {
		fn           func(context.Context, *resilience.Guard) (int, error)
		callerLeaves bool
	}{
		"panics":     {fn: ignoring(panicking("p"))},
		"exits":      {fn: ignoring(exit)},
		"hangs":      {fn: ignoring(hang(time.Hour))},
		"fails":      {fn: ignoring(failing(9, errBoom))},
		"is invalid": {fn: ignoring(failing(9, resilience.MarkInvalid(errBoom)))},
		"is paused": {fn: func(ctx context.Context, _ *resilience.Guard) (int, error) {
			resilience.Pause(ctx)
			return hang(time.Hour)(ctx)
		}},
		"calls itself": {fn: func(ctx context.Context, g *resilience.Guard) (int, error) {
			return 0, calls(ctx, g)
		}},
		"calls itself without its context": {fn: func(_ context.Context, g *resilience.Guard) (int, error) {
			return 0, calls(context.Background(), g)
		}},
		"is canceled":           {fn: ignoring(untilDone), callerLeaves: true},
		"is canceled and hangs": {fn: ignoring(hang(time.Hour)), callerLeaves: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBothModes(t, func(t *testing.T, cooperative bool) {
				g := guardWith(t, resilience.Tool{Cooperative: cooperative})
				trip(t, g.Breaker("x"))
				time.Sleep(31 * time.Second)

				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				called := false
				go func() { // which a Cooperative tool may hold up or end
					_, _ = resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) {
						called = true
						if probe.callerLeaves {
							leave()
						}
						return probe.fn(ctx, g)
					})
				}()
				synctest.Wait()
				require.True(t, called)
				time.Sleep(3 * time.Minute)

				// Whatever became of the probe, another is admitted soon.
				_, err := resilience.Do(t.Context(), g, "x", succeed)
				if err != nil {
					require.ErrorIs(t, err, resilience.CodeCircuitOpen)
					time.Sleep(err.(*resilience.Error).RetryAfter + 1)
					_, err = resilience.Do(t.Context(), g, "x", succeed)
				}
				require.NoError(t, err)
				assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
				time.Sleep(time.Hour)
			})
		})
	}
}

// ignoring returns fn for a tool that doesn't use its guard.
func ignoring(fn toolFunc) func(context.Context, *resilience.Guard) (int, error) {
	return func(ctx context.Context, _ *resilience.Guard) (int, error) { return fn(ctx) }
}

// Many calls return about when their timeout ends them.
func TestPromise3EachCallHasOneOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 300
		var ends, late atomic.Int64
		cfg := configWith(resilience.Tool{Timeout: time.Second, Retry: &resilience.Retry{MaxRetries: -1}})
		cfg.Breaker.Failures, cfg.MaxAbandoned = calls+1, calls
		cfg.Observers = []resilience.Observer{{
			End:  func(context.Context, resilience.CallEnd) { ends.Add(1) },
			Late: func(context.Context, resilience.LateResult) { late.Add(1) },
		}}
		g := newGuard(t, cfg)

		var wg sync.WaitGroup
		var abandoned atomic.Int64
		for n := range calls {
			wg.Go(func() {
				r := resilience.Run(t.Context(), g, "x", func(context.Context) (int, error) {
					time.Sleep(time.Second + time.Duration(n%3-1)) // just before the timeout, at it, and after it
					return 1, errBoom
				})
				want := map[int]error{0: resilience.CodeTimeout, 1: errBoom}[r.Value]
				if r.Attempts != 1 || want == nil || !errors.Is(r.Err, want) {
					t.Errorf("neither or both: value %d, %v", r.Value, r.Err)
				}
				if r.Value == 0 {
					abandoned.Add(1)
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Minute)

		assert.Equal(t, calls, g.Health()[0].ConsecutiveFailures, "one count for each call, and none for a late result")
		assert.Zero(t, g.Health()[0].InFlight)
		assert.Zero(t, g.Health()[0].Abandoned)
		assert.EqualValues(t, calls, ends.Load())
		assert.LessOrEqual(t, late.Load(), abandoned.Load())
		assert.Positive(t, late.Load())
	})
}

func TestPromise4LastCauseIsNeverLost(t *testing.T) {
	type customError struct{ error }
	cause := customError{errBoom}
	const canceled, soon = resilience.CodeCanceled, 50 * time.Millisecond
	cooperative := resilience.Tool{Effect: resilience.ReadOnly, Cooperative: true}
	hurried := resilience.Tool{Effect: resilience.ReadOnly, Timeout: soon}
	permanent := fmt.Errorf("x: %w", resilience.MarkPermanent(cause))
	busy, joined := &resilience.Error{Code: "BUSY", Err: cause}, errors.Join(cause, syscall.EPIPE)
	for name, tc := range map[string]struct {
		tool   resilience.Tool
		caller caller
		fn     toolFunc
		code   resilience.Code
	}{
		"failure":                        {resilience.Tool{}, context.WithCancel, failing(9, cause), failed},
		"exhaustion":                     {reads, context.WithCancel, failing(9, cause), exhausted},
		"panic":                          {reads, context.WithCancel, panicking(cause), failed},
		"permanent failure in a wrapper": {reads, context.WithCancel, failing(9, permanent), failed},
		"lost connection":                {reads, context.WithCancel, failing(9, joined), exhausted},
		"the tool's own Error":           {reads, context.WithCancel, failing(9, busy), "BUSY"},
		"canceled between attempts":      {reads, leavingAfter(soon), failing(9, cause), canceled},
		"canceled during an attempt":     {cooperative, leavingAfter(time.Second), failingOnceDone(cause), canceled},
		"timeout":                        {cooperative, context.WithCancel, failingOnceDone(cause), timedOut},
		"no time left for an attempt":    {hurried, context.WithCancel, failing(9, cause), failed},
	} {
		runInBubble(t, name, func(t *testing.T) {
			ctx, cancel := tc.caller(t.Context())
			defer cancel()
			_, err := resilience.Do(ctx, guardWith(t, tc.tool), "x", tc.fn)

			assert.ErrorIs(t, err, tc.code)
			assert.ErrorIs(t, err, cause)
			var as customError
			assert.ErrorAs(t, err, &as)
		})
	}
}

var errFirst = errors.New("the first attempt's own error")

// What a tool returns because its context has ended is none of its own errors, of which the last is kept.
func TestPromise4EchoOfTheEndDoesNotReplaceTheLastError(t *testing.T) {
	for name, second := range map[string]toolFunc{
		"hangs":                   hang(time.Hour),
		"returns the end's error": untilDone,
		"returns the end's cause": func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, context.Cause(ctx)
		},
	} {
		for end, tc := range map[string]struct {
			leaves time.Duration // never if zero
			code   resilience.Code
		}{
			"the call's timeout":    {code: resilience.CodeTimeout},
			"the end of the caller": {5 * time.Second, resilience.CodeCanceled},
		} {
			t.Run(name+", "+end, func(t *testing.T) {
				inBothModes(t, func(t *testing.T, cooperative bool) {
					if cooperative && name == "hangs" {
						return
					}
					cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly, Cooperative: cooperative})
					cfg.Retry.MaxRetries = 1
					g := newGuard(t, cfg)
					ctx, leave := context.WithCancel(t.Context())
					defer leave()
					if tc.leaves > 0 {
						time.AfterFunc(tc.leaves, leave)
					}

					_, err := resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) {
						if resilience.Attempt(ctx) == 1 {
							return 0, errFirst
						}
						return second(ctx)
					})
					assert.ErrorIs(t, err, tc.code)
					assert.ErrorIs(t, err, errFirst)
					time.Sleep(2 * time.Hour)
				})
			})
		}
	}
}

// A bubble doesn't end while a goroutine of it is left, so it is a leak test by itself.
func TestPromise5NothingLeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly})
		cfg.MaxAbandoned = 3
		cfg.Breaker.Failures = 1000
		g := newGuard(t, cfg)
		before := goroutines(modulePath, "context") // of other tests, on their way out

		for range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			_, _ = resilience.Do(ctx, g, "x", failing(1, errBoom))
			_, _ = resilience.Do(ctx, g, "x", untilDone)
			cancel()
		}
		synctest.Wait()
		assert.LessOrEqual(t, goroutines(modulePath, "context"), before)

		for range 10 {
			_, _ = resilience.Do(t.Context(), g, "x", hang(time.Hour))
		}
		assert.Equal(t, 3, g.Health()[0].Abandoned, "as many as may be")

		synctest.Wait()
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Zero(t, g.Health()[0].Abandoned)
		assert.LessOrEqual(t, goroutines(modulePath, "context"), before)
	})
}

func TestPromise6CallerThatLeavesIsNoFailure(t *testing.T) {
	leave := func(t *testing.T, cooperative bool, fn toolFunc) {
		g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly, Cooperative: cooperative})
		var attempts atomic.Int64
		for range 10 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(10*time.Second, cancel)

			r := resilience.Run(ctx, g, "x", func(ctx context.Context) (int, error) {
				attempts.Add(1)
				return fn(ctx)
			})

			require.ErrorIs(t, r.Err, resilience.CodeCanceled)
			require.Equal(t, resilience.CodeCanceled, r.Err.Code)
			require.False(t, r.Err.Retryable)
			require.Equal(t, 10*time.Second, r.Duration)
		}

		assert.EqualValues(t, 10, attempts.Load(), "never retried")
		assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
		assert.Zero(t, g.Health()[0].ConsecutiveFailures)
		assert.Nil(t, g.Health()[0].LastError)
		time.Sleep(time.Hour)
	}

	// A Cooperative tool that hangs isn't cut off.
	runInBubble(t, "the tool hangs", func(t *testing.T) { leave(t, false, hang(time.Hour)) })

	innerTimeout := resilience.TimeoutError("inner", 1)
	for name, fn := range map[string]toolFunc{
		"the tool respects its context": untilDone,
		"the tool panics":               func(ctx context.Context) (int, error) { <-ctx.Done(); panic("p") },
		"the tool loses its connection": failingOnceDone(syscall.ECONNREFUSED),
		"the tool fails transiently":    failingOnceDone(resilience.MarkNoEffect(errBoom)),
		"the tool fails permanently":    failingOnceDone(resilience.MarkPermanent(errBoom)),
		"the tool returns a deadline":   failingOnceDone(context.DeadlineExceeded),
		"the tool returns a TIMEOUT":    failingOnceDone(innerTimeout),
		"the tool wraps a TIMEOUT":      failingOnceDone(fmt.Errorf("x: %w", innerTimeout)),
		"the call waits for its retry":  failing(99, waitError{30 * time.Second}),
	} {
		t.Run(name, func(t *testing.T) {
			inBothModes(t, func(t *testing.T, cooperative bool) { leave(t, cooperative, fn) })
		})
	}
}

func TestPromise7PanicFailsItsOwnCallOnly(t *testing.T) {
	g := newGuard(t, resilience.Config{Breaker: resilience.BreakerConfig{Failures: 1000}})
	bad := []toolFunc{
		panicking("p"),
		panicking(nil),
		exit,
		func(context.Context) (int, error) { return **new(*int), nil },
		func(context.Context) (int, error) { defer func() { panic("hunter2") }(); panic("p") },
	}
	var calls []resilience.Call[int]
	for range 20 {
		for _, fn := range bad {
			calls = append(calls, resilience.Call[int]{Tool: "x", Func: fn})
		}
		calls = append(calls, resilience.Call[int]{Tool: "x", Func: succeed})
	}

	for i, r := range resilience.All(t.Context(), g, calls...) {
		if i%(len(bad)+1) == len(bad) {
			assert.Nil(t, r.Err)
			assert.Equal(t, 1, r.Value)
			continue
		}
		assert.ErrorIs(t, r.Err, resilience.CodeToolFailed)
		assert.NotContains(t, jsonOf(t, r.Err), "hunter2", "nothing of the panic reaches the agent")
	}
}

func TestPromise7PanicOfAnAbandonedCallFailsNothing(t *testing.T) {
	for name, end := range map[string]func() error{
		"it panics":                   func() error { panic("late") },
		"the methods of its error do": func() error { return (*typedNil)(nil) },
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{})
			_, err := resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) {
				time.Sleep(time.Hour)
				return 0, end()
			})
			assert.ErrorIs(t, err, resilience.CodeTimeout)
			time.Sleep(time.Hour)
		})
	}
}

func TestPromise8NothingIsRepeatedBlindly(t *testing.T) {
	opError := func(op, network string, errno syscall.Errno) error {
		return &net.OpError{Op: op, Net: network, Err: os.NewSyscallError(op, errno)}
	}
	retryable := &resilience.Error{Code: resilience.CodeTimeout, Retryable: true, Err: syscall.ECONNREFUSED}
	exhausted := resilience.RetryExhaustedError("inner", 4, syscall.ECONNREFUSED)
	failures := map[string]error{
		"failure":                  errBoom,
		"lost connection":          syscall.ECONNRESET,
		"a real reset":             opError("read", "tcp", syscall.ECONNRESET),
		"refused, by a read":       opError("read", "udp", syscall.ECONNREFUSED),
		"a timeout of its own":     context.DeadlineExceeded,
		"a cancel of its own":      context.Canceled,
		"a retryable Error":        retryable,
		"a deeper exhaustion":      fmt.Errorf("x: %w", exhausted),
		"one of two had no effect": errors.Join(syscall.ECONNREFUSED, errBoom),
	}
	for _, effect := range []resilience.Effect{resilience.EffectUnknown, resilience.NonIdempotent} {
		for name, err := range failures {
			for name, fn := range map[string]toolFunc{
				name:               failing(99, err),
				name + ", cut off": failingOnceDone(err),
			} {
				runInBubble(t, effect.String()+", "+name, func(t *testing.T) {
					cfg := configWith(resilience.Tool{Effect: effect})
					var runs atomic.Int64

					r := resilience.Run(t.Context(), newGuard(t, cfg), "x", func(ctx context.Context) (int, error) {
						runs.Add(1)
						return fn(ctx)
					})

					assert.NotNil(t, r.Err)
					synctest.Wait()
					assert.EqualValues(t, 1, runs.Load())
				})
			}
		}
	}
}

func TestPromise9CallNeverSleepsIntoADeadline(t *testing.T) {
	for name, tc := range map[string]struct {
		tool    resilience.Tool
		timeout time.Duration // the caller's
		err     error
	}{
		"the tool's own timeout":           {tool: resilience.Tool{Timeout: 250 * time.Millisecond}, err: errBoom},
		"the caller's deadline":            {timeout: 250 * time.Millisecond, err: errBoom},
		"a delay that the error asks for":  {err: waitError{time.Hour}},
		"a delay that is exactly the rest": {err: waitError{60 * time.Second}},
	} {
		runInBubble(t, name, func(t *testing.T) {
			tc.tool.Effect = resilience.ReadOnly
			g := guardWith(t, tc.tool)
			var last time.Time

			_, err := resilience.Do(contextWithin(t, tc.timeout), g, "x", func(context.Context) (int, error) {
				last = time.Now()
				return 0, tc.err
			})

			assert.Equal(t, last, time.Now(), "ended at once")
			assert.ErrorIs(t, err, tc.err)
			assert.ErrorIs(t, err, resilience.CodeToolFailed, "not TIMEOUT: nothing has timed out")
		})
	}
}
