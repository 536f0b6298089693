package resilience_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The context of a call is not the standard library's own. It must behave like one in
// everything that tools do with contexts.
func TestContextOfACallIsLikeTheStandardLibrarys(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		number := new(int) // such a key is the package's own, too
		parent := context.WithValue(context.WithValue(t.Context(), key{}, "v"), number, "n")
		start := time.Now()
		finished := make(chan struct{})
		_, err := resilience.WithTimeout(parent, "x", time.Minute, func(ctx context.Context) (int, error) {
			deadline, ok := ctx.Deadline()
			assert.True(t, ok)
			assert.Equal(t, start.Add(time.Minute), deadline)
			assert.Equal(t, "v", ctx.Value(key{}))
			assert.NoError(t, ctx.Err())
			assert.NoError(t, context.Cause(ctx))
			assert.Contains(t, context.WithValue(ctx, key{}, 1).(fmt.Stringer).String(), "resilience.")

			before := goroutines("context.(*cancelCtx)")
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			longer, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			dropped, cancel := context.WithCancel(ctx)
			cancel()
			assert.LessOrEqual(t, goroutines("context.(*cancelCtx)"), before, "a child costs no goroutine")

			valued := context.WithValue(ctx, key{}, "w")
			free := context.WithoutCancel(ctx)
			called, stopped := false, context.AfterFunc(ctx, func() { t.Error("called though stopped") })
			context.AfterFunc(ctx, func() { called = true })
			assert.True(t, stopped())
			assert.False(t, stopped())

			<-ctx.Done()
			synctest.Wait()
			assert.True(t, called)
			for _, c := range []context.Context{ctx, child, longer, valued} {
				assert.Equal(t, context.DeadlineExceeded, c.Err())
				assert.ErrorIs(t, context.Cause(c), resilience.CodeTimeout)
			}
			assert.Equal(t, context.Canceled, dropped.Err())
			assert.Equal(t, context.Canceled, context.Cause(dropped))
			assert.NoError(t, free.Err())
			assert.Equal(t, "v", ctx.Value(key{}), "values stay")
			assert.Equal(t, "n", ctx.Value(number))
			assert.Equal(t, "w", valued.Value(key{}))

			// After the end everything happens at once.
			late, cancel := context.WithCancel(ctx)
			defer cancel()
			assert.Equal(t, context.DeadlineExceeded, late.Err())
			assert.ErrorIs(t, context.Cause(late), resilience.CodeTimeout)
			now := make(chan struct{})
			stop := ctx.(interface{ AfterFunc(func()) func() bool }).AfterFunc(func() { close(now) })
			<-now
			assert.False(t, stop())
			close(finished)
			return 0, nil
		})
		assert.ErrorIs(t, err, resilience.CodeTimeout)
		<-finished
	})
}

func TestContextEndsWithItsCall(t *testing.T) {
	var kept, child context.Context
	var cancel context.CancelFunc
	_, err := resilience.WithTimeout(t.Context(), "x", time.Minute, func(ctx context.Context) (int, error) {
		kept = ctx
		child, cancel = context.WithCancel(ctx)
		return 0, nil
	})
	require.NoError(t, err)

	assert.Equal(t, context.Canceled, kept.Err())
	assert.Equal(t, context.Canceled, context.Cause(kept))
	<-kept.Done()
	assert.Equal(t, context.Canceled, child.Err(), "without its own cancel")
	cancel()
}

func TestDoneIsClosedIfFirstAskedForAfterTheEnd(t *testing.T) {
	var kept context.Context
	_, err := resilience.Do(t.Context(), guardWith(t, resilience.Tool{}), "x", func(ctx context.Context) (int, error) {
		kept = ctx
		return 0, nil
	})
	require.NoError(t, err)

	select {
	case <-kept.Done():
	default:
		t.Error("Done isn't closed")
	}
	child, cancel := context.WithCancel(kept)
	defer cancel()
	assert.Error(t, child.Err())
}

func TestContextOfAnAttemptEndsWithIt(t *testing.T) {
	cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly})
	cfg.AttemptTimeout = time.Minute
	var first context.Context

	_, err := resilience.Do(t.Context(), newGuard(t, cfg), "x", func(ctx context.Context) (int, error) {
		if resilience.Attempt(ctx) == 1 {
			first = ctx
			return 0, errBoom
		}
		assert.Error(t, first.Err())
		return 0, nil
	})

	require.NoError(t, err)
}

func TestContextHasTheEarlierDeadline(t *testing.T) {
	for callers, want := range map[time.Duration]time.Duration{
		59 * time.Second: 59 * time.Second,
		61 * time.Second: time.Minute, // the tool's own
	} {
		runInBubble(t, callers.String(), func(t *testing.T) {
			ctx := contextWithin(t, callers)
			_, err := resilience.Do(ctx, guardWith(t, resilience.Tool{}), "x", func(ctx context.Context) (int, error) {
				deadline, _ := ctx.Deadline()
				assert.Equal(t, want, time.Until(deadline))
				return 0, nil
			})
			require.NoError(t, err)
		})
	}
}

func TestDeadlineInTheYearOneEndsTheCall(t *testing.T) {
	slowObserver := resilience.Observer{Start: func(context.Context, resilience.CallStart) context.Context {
		time.Sleep(5 * time.Millisecond)
		return nil
	}}
	for name, observers := range map[string][]resilience.Observer{
		"without observers":    nil,
		"with a slow observer": {slowObserver},
	} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := configWith(resilience.Tool{Timeout: time.Second})
			cfg.Observers = observers
			g := newGuard(t, cfg)

			start := time.Now()
			_, _ = resilience.Do(unkeptDeadline{t.Context(), time.Time{}}, g, "x", hang(10000*time.Hour))

			assert.Less(t, time.Since(start), 2*time.Second)
			time.Sleep(20000 * time.Hour)
		})
	}
}

func TestHugeTimeoutsDoNotOverflow(t *testing.T) {
	for _, huge := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 / 2} {
		runInBubble(t, huge.String(), func(t *testing.T) {
			cfg := configWith(resilience.Tool{Timeout: huge, MaxTimeout: math.MaxInt64})
			cfg.AttemptTimeout = huge
			cfg.Breaker = resilience.BreakerConfig{Failures: 1, Cooldown: huge, ProbeTimeout: huge}
			g := newGuard(t, cfg)
			time.Sleep(time.Hour)

			_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				assertHasDeadline(t, ctx)
				time.Sleep(time.Hour)
				resilience.ReportProgress(ctx)
				resume := resilience.Pause(ctx)
				assertHasDeadline(t, ctx)
				time.Sleep(time.Hour)
				resilience.ReportProgress(ctx)
				resume()
				resilience.ReportProgress(ctx)
				assertHasDeadline(t, ctx)

				child, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				<-child.Done()
				assert.NoError(t, ctx.Err())

				_, err := resilience.WithTimeout(ctx, "y", huge, hang(time.Hour))
				assert.NoError(t, err)
				return 0, resilience.MarkPermanent(errBoom)
			})

			assert.ErrorIs(t, err, resilience.CodeToolFailed)
			time.Sleep(time.Hour)
			assert.Equal(t, resilience.StateOpen, g.Breaker("x").State())
			assert.Positive(t, g.Breaker("x").RetryAfter())
		})
	}
}

func assertHasDeadline(t *testing.T, ctx context.Context) {
	t.Helper()
	_, ok := ctx.Deadline()
	assert.True(t, ok)
}

// The caller's deadline may be as far away.
func TestHugeDeadlineDoesNotOverflow(t *testing.T) {
	for _, earlier := range []time.Duration{1, time.Millisecond, time.Second} {
		runInBubble(t, earlier.String(), func(t *testing.T) {
			ctx, cancel := withUnkeptTimeout(math.MaxInt64 - earlier)(t.Context())
			defer cancel()
			g := guardWith(t, resilience.Tool{Timeout: math.MaxInt64})
			r := resilience.Run(ctx, g, "x", hang(time.Hour))
			assert.Nil(t, r.Err)
		})
	}
}

// The longest duration there is means no timeout, also where timeouts nest.
func TestHugeTimeoutsNest(t *testing.T) {
	cfg := configWith(resilience.Tool{Timeout: math.MaxInt64})
	cfg.AttemptTimeout = math.MaxInt64
	_, err := resilience.Do(t.Context(), newGuard(t, cfg), "x", succeed)
	assert.NoError(t, err)

	_, err = resilience.WithTimeout(t.Context(), "x", math.MaxInt64-1, func(ctx context.Context) (int, error) {
		return resilience.WithTimeout(ctx, "x", math.MaxInt64, succeed)
	})
	assert.NoError(t, err)
}

// A countingContext counts what waits for its end.
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
	return func() bool {
		c.waiting.Add(-1)
		return stop()
	}
}

// The context of a session outlives its calls by far, so they must leave nothing with it. What
// a tool has started must be notified of the end.
func TestCallsLeaveNothingWithTheContextOfTheirCaller(t *testing.T) {
	for name, tc := range map[string]struct {
		attemptTimeout time.Duration
		cooperative    bool
		watched        int64
	}{
		// Only those that wait between attempts are watched, because otherwise the goroutine
		// that waits for the tool waits for the caller too.
		"enforced":                            {watched: 2},
		"enforced, with an AttemptTimeout":    {attemptTimeout: time.Minute, watched: 4},
		"cooperative":                         {cooperative: true, watched: 4},
		"cooperative, with an AttemptTimeout": {attemptTimeout: time.Minute, cooperative: true, watched: 4},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := configWith(resilience.Tool{
				Effect:      resilience.ReadOnly,
				Cooperative: tc.cooperative,
				Retry:       &resilience.Retry{Backoff: resilience.Backoff{Base: 1, Max: 1}},
			})
			cfg.AttemptTimeout = tc.attemptTimeout
			g := newGuard(t, cfg)
			session, cancel := context.WithCancel(t.Context())
			defer cancel()
			counting := &countingContext{Context: session}

			var kept []context.Context
			for _, fn := range []toolFunc{succeed, failing(2, errBoom), failing(9, errBoom), panicking("p")} {
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
		})
	}
}

// The order that context.Context promises, also for those who only poll Err.
func TestErrIsNotSetBeforeDoneIsClosed(t *testing.T) {
	for range 3000 {
		closed := make(chan bool, 2)
		_, _ = resilience.WithTimeout(t.Context(), "x", 50*time.Microsecond, func(ctx context.Context) (int, error) {
			done := ctx.Done()
			for range 2 {
				go func() {
					for ctx.Err() == nil {
					}
					select {
					case <-done:
						closed <- true
					default:
						closed <- false
					}
				}()
			}
			<-done
			return 0, ctx.Err()
		})
		require.True(t, <-closed)
		require.True(t, <-closed)
	}
}

// Code that is called at the end of an outer context may look at an inner one.
func TestAfterFuncOfAnOuterContextMayUseAnInnerOne(t *testing.T) {
	g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{
		"outer": {Cooperative: true}, "inner": {Cooperative: true},
	}})
	for range 500 {
		ctx, cancel := context.WithCancel(t.Context())
		_, _ = resilience.Do(ctx, g, "outer", func(outer context.Context) (int, error) {
			return resilience.Do(outer, g, "inner", func(inner context.Context) (int, error) {
				outer.(interface{ AfterFunc(func()) func() bool }).AfterFunc(func() { _ = inner.Err() })
				cancel()
				<-inner.Done()
				return 0, nil
			})
		})
	}
}

// A tool may call the method that the context package looks for, with a function that does anything.
func TestFunctionOfAToolThatRunsAfterItsContextHarmsNoCall(t *testing.T) {
	for name, f := range map[string]func(){
		"blocks": func() { select {} }, "panics": func() { panic("boom") }, "ends its goroutine": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{})
			ended := make(chan error, 1)
			go func() {
				_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					ctx.(interface{ AfterFunc(func()) func() bool }).AfterFunc(f)
					return 0, nil
				})
				ended <- err
			}()
			require.NoError(t, <-ended)
			assert.Zero(t, g.Health()[0].InFlight)
		})
	}
}

// A slowContext takes its time to say whether it has ended, once it is slow.
type slowContext struct {
	*countingContext
	slow atomic.Bool
}

func (c *slowContext) Err() error {
	if c.slow.Load() {
		time.Sleep(150 * time.Millisecond)
	}
	return c.Context.Err()
}

func TestCallsLeaveNothingWithASlowContext(t *testing.T) {
	for name, tool := range map[string]resilience.Tool{
		"attempts": {AttemptTimeout: time.Second}, "cooperative": {Cooperative: true}, "retried": {Effect: resilience.ReadOnly},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				session, cancel := context.WithCancel(t.Context())
				defer cancel()
				ctx := &slowContext{countingContext: &countingContext{Context: session}}
				g := guardWith(t, tool)
				_, err := resilience.Do(ctx, g, "x", func(c context.Context) (int, error) {
					c.Done()
					if tool.Effect == resilience.ReadOnly && resilience.Attempt(c) == 1 {
						return 0, errBoom
					}
					ctx.slow.Store(true)
					return 0, resilience.MarkInvalid(errBoom)
				})
				require.ErrorIs(t, err, errBoom)
				time.Sleep(time.Minute)
				assert.NotZero(t, ctx.ever.Load())
				assert.Zero(t, ctx.waiting.Load())
			})
		})
	}
}
