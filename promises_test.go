package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
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

func TestPromise1ACallReturnsByItsLimit(t *testing.T) {
	for name, fn := range map[string]func(context.Context) (int, error){
		"ignores its context": hangInt,
		"obeys":               func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() },
		"hangs on its way out": func(ctx context.Context) (int, error) {
			defer time.Sleep(time.Hour)
			<-ctx.Done()
			panic("p")
		},
		"fails, then hangs": func(ctx context.Context) (int, error) {
			if resilience.Attempt(ctx) < 3 {
				return 0, errBoom
			}
			return hangInt(ctx)
		},
		"fails, fails, fails": func(context.Context) (int, error) { time.Sleep(25 * time.Second); return 0, errBoom },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGuard(t, one(resilience.Tool{Effect: resilience.ReadOnly}))
				r := resilience.Run(t.Context(), g, "x", fn)
				assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
				assert.Equal(t, 60*time.Second, r.Duration)
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

// In real time, and for ever.
func TestToolThatNeverReturns(t *testing.T) {
	g := newGuard(t, one(resilience.Tool{Timeout: 5 * time.Millisecond}))
	release := make(chan struct{})
	_, err := resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) { <-release; return 0, nil })
	assert.ErrorIs(t, err, resilience.CodeTimeout)
	assert.Equal(t, 1, g.Health()[0].Abandoned)
	close(release)
	noneStillRuns(t, g)
}

func TestPromise2ABreakerNeverWedges(t *testing.T) {
	probes := map[string]func(context.Context, context.CancelFunc) (int, error){
		"panics":  func(context.Context, context.CancelFunc) (int, error) { panic("p") },
		"exits":   func(context.Context, context.CancelFunc) (int, error) { runtime.Goexit(); return 0, nil },
		"hangs":   func(ctx context.Context, _ context.CancelFunc) (int, error) { return hangInt(ctx) },
		"fails":   func(context.Context, context.CancelFunc) (int, error) { return 0, errBoom },
		"invalid": func(context.Context, context.CancelFunc) (int, error) { return 0, resilience.MarkInvalid(errBoom) },
		"canceled": func(ctx context.Context, cancel context.CancelFunc) (int, error) {
			cancel()
			<-ctx.Done()
			return 0, ctx.Err()
		},
		"canceled, hangs": func(ctx context.Context, cancel context.CancelFunc) (int, error) { cancel(); return hangInt(ctx) },
	}
	for name, probe := range probes {
		for _, cooperative := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, cooperative %v", name, cooperative), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := newGuard(t, one(resilience.Tool{Cooperative: cooperative}))
					open(t, g.Breaker("x"))
					time.Sleep(31 * time.Second)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					called := false
					go func() { // which a Cooperative tool may hold up or end
						_, _ = resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) { called = true; return probe(ctx, cancel) })
					}()
					synctest.Wait()
					require.True(t, called)
					time.Sleep(3 * time.Minute)
					// Whatever became of the probe, another is let through soon.
					_, err := resilience.Do(t.Context(), g, "x", failing(0, nil))
					if err != nil {
						require.ErrorIs(t, err, resilience.CodeCircuitOpen)
						time.Sleep(err.(*resilience.Error).RetryAfter + 1)
						_, err = resilience.Do(t.Context(), g, "x", failing(0, nil))
					}
					require.NoError(t, err)
					assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
					time.Sleep(time.Hour)
				})
			})
		}
	}
}

// One count on the breaker for each call, whatever happens at the moment of its end.
func TestPromise3EachCallHasOneOutcome(t *testing.T) {
	const calls = 2000
	var counted atomic.Int64
	g := newGuard(t, resilience.Config{
		Tools:        map[string]resilience.Tool{"x": {Timeout: time.Millisecond, Retry: &resilience.Retry{MaxRetries: -1}}},
		Breaker:      resilience.BreakerConfig{Failures: calls + 1},
		MaxAbandoned: calls,
	})
	failures := 0
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range calls / 20 {
				r := resilience.Run(t.Context(), g, "x", func(context.Context) (int, error) {
					time.Sleep(time.Duration(900+rand.IntN(200)) * time.Microsecond) // about when the timeout ends it
					return 1, errBoom
				})
				mu.Lock()
				failures++
				mu.Unlock()
				counted.Add(int64(r.Attempts))
				if (r.Value == 1) == errors.Is(r.Err, resilience.CodeTimeout) && !errors.Is(r.Err, errBoom) {
					t.Errorf("neither or both: value %d, %v", r.Value, r.Err)
				}
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, calls, counted.Load())
	assert.Equal(t, failures, g.Health()[0].ConsecutiveFailures, "one count for each call")
	assert.Zero(t, g.Health()[0].InFlight)
	noneStillRuns(t, g)
	assert.Equal(t, failures, g.Health()[0].ConsecutiveFailures, "late results aren't counted again")
}

// A tool that returns at the very moment of its timeout either has answered or was given up
// on, never both: it would be counted as still running for ever.
func TestPromise3AtTheVeryMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{Breaker: resilience.BreakerConfig{Failures: 1 << 30}, MaxAbandoned: 1 << 30})
		var wg sync.WaitGroup
		var answered, timedOut, counted atomic.Int64
		const calls = 5000
		for range calls {
			wg.Go(func() {
				value, err := resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) {
					time.Sleep(60 * time.Second)
					counted.Add(1)
					return 1, nil
				})
				switch {
				case value == 1 && err == nil:
					answered.Add(1)
				case value == 0 && errors.Is(err, resilience.CodeTimeout):
					timedOut.Add(1)
				default:
					t.Errorf("neither or both: %d, %v", value, err)
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		assert.EqualValues(t, calls, answered.Load()+timedOut.Load())
		assert.EqualValues(t, calls, counted.Load())
		assert.Zero(t, g.Health()[0].Abandoned)
	})
}

func TestPromise4TheLastCauseIsNeverLost(t *testing.T) {
	type customError struct{ error }
	cause := customError{errBoom}
	readOnly := resilience.Tool{Effect: resilience.ReadOnly}
	for name, tc := range map[string]struct {
		tool resilience.Tool
		ctx  func(context.Context) context.Context
		fn   func(context.Context) (int, error)
		code resilience.Code
	}{
		"failure":    {resilience.Tool{}, nil, failing(9, cause), resilience.CodeToolFailed},
		"exhaustion": {readOnly, nil, failing(9, cause), resilience.CodeRetryExhausted},
		"panic":      {readOnly, nil, func(context.Context) (int, error) { panic(cause) }, resilience.CodeToolFailed},
		"wrapped":    {readOnly, nil, failing(9, fmt.Errorf("x: %w", resilience.MarkPermanent(cause))), resilience.CodeToolFailed},
		"lost":       {readOnly, nil, failing(9, errors.Join(cause, syscall.EPIPE)), resilience.CodeRetryExhausted},
		"own words":  {readOnly, nil, failing(9, &resilience.Error{Code: "BUSY", Err: cause}), "BUSY"},
		"canceled between attempts": {readOnly, func(ctx context.Context) context.Context {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(50*time.Millisecond, cancel)
			return ctx
		}, failing(9, cause), resilience.CodeCanceled},
		"canceled during the last attempt": {resilience.Tool{Effect: resilience.ReadOnly, Cooperative: true}, func(ctx context.Context) context.Context {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx
		}, func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, cause }, resilience.CodeCanceled},
		"timeout": {resilience.Tool{Cooperative: true}, nil, func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, cause }, resilience.CodeTimeout},
		"timeout between attempts": {readOnly, func(ctx context.Context) context.Context {
			ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			context.AfterFunc(ctx, cancel)
			return secretDeadline{ctx}
		}, failing(9, cause), resilience.CodeTimeout},
		"no time left": {resilience.Tool{Effect: resilience.ReadOnly, Timeout: 50 * time.Millisecond}, nil, failing(9, cause), resilience.CodeToolFailed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tc.ctx != nil {
					ctx = tc.ctx(ctx)
				}
				_, err := resilience.Do(ctx, newGuard(t, one(tc.tool)), "x", tc.fn)
				assert.ErrorIs(t, err, tc.code)
				assert.ErrorIs(t, err, cause)
				var as customError
				assert.ErrorAs(t, err, &as)
			})
		})
	}
}

func TestPromise5NothingLeaks(t *testing.T) {
	// A bubble doesn't end while a goroutine of it is left: this test would fail.
	synctest.Test(t, func(t *testing.T) {
		cfg := one(resilience.Tool{Effect: resilience.ReadOnly})
		cfg.MaxAbandoned, cfg.AttemptTimeout = 3, 20*time.Second
		cfg.Breaker.Failures = 1000
		g := newGuard(t, cfg)
		before := goroutines(self, "context") // of other tests, on their way out
		for range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			_, _ = resilience.Do(ctx, g, "x", failing(1, errBoom))
			_, _ = resilience.Do(ctx, g, "x", obey)
			cancel()
		}
		synctest.Wait()
		assert.LessOrEqual(t, goroutines(self, "context"), before)

		for range 10 {
			_, _ = resilience.Do(t.Context(), g, "x", hangInt)
		}
		assert.Equal(t, 3, g.Health()[0].Abandoned, "as many as may be")
		synctest.Wait()
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Zero(t, g.Health()[0].Abandoned)
		assert.LessOrEqual(t, goroutines(self, "context"), before)
	})
}

// A context counts who waits for its end.
type countingContext struct {
	context.Context
	waiting atomic.Int64
	ever    atomic.Int64
}

// Value hides that this is a context of the standard library's, which would otherwise be
// asked itself.
func (c *countingContext) Value(any) any { return nil }

func (c *countingContext) AfterFunc(f func()) func() bool {
	c.waiting.Add(1)
	c.ever.Add(1)
	stop := context.AfterFunc(c.Context, f)
	return func() bool { c.waiting.Add(-1); return stop() }
}

// A session's context outlives its calls by far: they must leave nothing with it, and
// what a tool has started must be told of the end.
func TestPromise5NothingIsLeftWithContexts(t *testing.T) {
	for _, tc := range []struct {
		attemptTimeout time.Duration
		cooperative    bool
		watched        int64
	}{
		{0, false, 2}, // only by those that wait between attempts: else there is the goroutine that waits for the tool
		{time.Minute, false, 4},
		{0, true, 4},
		{time.Minute, true, 4},
	} {
		cfg := one(resilience.Tool{Effect: resilience.ReadOnly, Cooperative: tc.cooperative,
			Retry: &resilience.Retry{Backoff: resilience.Backoff{Base: 1, Max: 1}}})
		cfg.AttemptTimeout = tc.attemptTimeout
		g := newGuard(t, cfg)
		session, cancel := context.WithCancel(t.Context())
		defer cancel()
		counting := &countingContext{Context: session}
		var kept []context.Context
		for _, fn := range []func(context.Context) (int, error){failing(0, nil), failing(2, errBoom), failing(9, errBoom), func(context.Context) (int, error) { panic("p") }} {
			_, _ = resilience.Do(counting, g, "x", func(ctx context.Context) (int, error) {
				kept = append(kept, ctx)
				child, cancel := context.WithCancel(ctx)
				defer cancel()
				_, _ = ctx.Done(), child.Done()
				return fn(ctx)
			})
		}
		assert.Equal(t, tc.watched, counting.ever.Load())
		assert.Zero(t, counting.waiting.Load())
		assert.Len(t, kept, 1+3+4+1)
		for _, ctx := range kept {
			assert.Equal(t, context.Canceled, ctx.Err())
		}
	}
}

func TestPromise7APanicFailsItsOwnCallOnly(t *testing.T) {
	g := newGuard(t, resilience.Config{Breaker: resilience.BreakerConfig{Failures: 1000}})
	bad := []func(context.Context) (int, error){
		func(context.Context) (int, error) { panic("p") },
		func(context.Context) (int, error) { panic(nil) },
		func(context.Context) (int, error) { runtime.Goexit(); return 0, nil },
		func(context.Context) (int, error) { return **new(*int), nil },
		func(context.Context) (int, error) { defer func() { panic("hunter2") }(); panic("p") },
	}
	var calls []resilience.Call[int]
	for range 20 {
		for _, fn := range bad {
			calls = append(calls, resilience.Call[int]{Tool: "x", Func: fn})
		}
		calls = append(calls, resilience.Call[int]{Tool: "x", Func: failing(0, nil)})
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
	// After it was given up on, too.
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{})
		_, err := resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) { time.Sleep(time.Hour); panic("late") })
		assert.ErrorIs(t, err, resilience.CodeTimeout)
		time.Sleep(time.Hour)
	})
}

func TestPromise8NothingIsRepeatedBlindly(t *testing.T) {
	for _, effect := range []resilience.Effect{resilience.EffectUnknown, resilience.NonIdempotent} {
		for name, err := range map[string]error{
			"failure":              errBoom,
			"lost connection":      syscall.ECONNRESET,
			"a real reset":         &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)},
			"refused, by a read":   &net.OpError{Op: "read", Net: "udp", Err: os.NewSyscallError("read", syscall.ECONNREFUSED)},
			"timeout of its own":   context.DeadlineExceeded,
			"cancel of its own":    context.Canceled,
			"an Error that may be": &resilience.Error{Code: resilience.CodeTimeout, Retryable: true, Err: syscall.ECONNREFUSED},
			"a deeper exhaustion":  fmt.Errorf("x: %w", resilience.RetryExhaustedError("inner", 4, syscall.ECONNREFUSED)),
			"one of two":           errors.Join(syscall.ECONNREFUSED, errBoom),
		} {
			synctest.Test(t, func(t *testing.T) {
				cfg := one(resilience.Tool{Effect: effect})
				cfg.AttemptTimeout = time.Second
				runs := 0
				r := resilience.Run(t.Context(), newGuard(t, cfg), "x", func(ctx context.Context) (int, error) { runs++; return 0, err })
				assert.NotNil(t, r.Err)
				assert.Equal(t, 1, runs, "%v, %s", effect, name)

				runs = 0
				r = resilience.Run(t.Context(), newGuard(t, cfg), "x", func(ctx context.Context) (int, error) { runs++; <-ctx.Done(); return 0, err })
				assert.NotNil(t, r.Err)
				synctest.Wait()
				assert.Equal(t, 1, runs, "%v, %s, cut off", effect, name)
			})
		}
	}
}

func TestPromise9NeverSleepsIntoADeadline(t *testing.T) {
	for name, tc := range map[string]struct {
		tool    resilience.Tool
		timeout time.Duration // the caller's
		err     error
	}{
		"its own timeout":  {tool: resilience.Tool{Timeout: 250 * time.Millisecond}, err: errBoom},
		"the caller's":     {timeout: 250 * time.Millisecond, err: errBoom},
		"asked to wait":    {err: waitError{time.Hour}},
		"exactly the rest": {err: waitError{60 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tc.tool.Effect = resilience.ReadOnly
				g := newGuard(t, one(tc.tool))
				ctx := t.Context()
				if tc.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.timeout)
					defer cancel()
				}
				var last time.Time
				_, err := resilience.Do(ctx, g, "x", func(context.Context) (int, error) { last = time.Now(); return 0, tc.err })
				assert.Equal(t, last, time.Now(), "ended at once")
				assert.ErrorIs(t, err, tc.err)
				assert.ErrorIs(t, err, resilience.CodeToolFailed, "not TIMEOUT: nothing has timed out")
			})
		})
	}
}

// A guard is often a package variable: it must work in synctest bubbles and outside,
// one after the other and at once.
func TestAGuardInAndOutOfBubbles(t *testing.T) {
	g := newGuard(t, one(resilience.Tool{Effect: resilience.ReadOnly, Retry: &resilience.Retry{Backoff: resilience.Backoff{Base: 1, Max: 1}}}))
	use := func(t *testing.T) {
		_, err := resilience.Do(t.Context(), g, "x", failing(2, errBoom))
		assert.NoError(t, err)
		_, err = resilience.Do(t.Context(), g, "x", obey, resilience.Timeout(time.Millisecond))
		assert.ErrorIs(t, err, resilience.CodeTimeout)
		g.Health()
	}
	for range 3 {
		use(t)
		synctest.Test(t, func(t *testing.T) {
			use(t)
			synctest.Wait()
		})
	}
}
