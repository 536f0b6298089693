package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A calledContext calls a function in one of its methods.
type calledContext struct {
	context.Context
	method string
	call   func()
}

func (c *calledContext) in(method string) {
	if c.method == method {
		c.call()
	}
}

func (c *calledContext) Deadline() (time.Time, bool) { c.in("Deadline"); return c.Context.Deadline() }
func (c *calledContext) Done() <-chan struct{}       { c.in("Done"); return c.Context.Done() }
func (c *calledContext) Err() error                  { c.in("Err"); return c.Context.Err() }
func (c *calledContext) Value(key any) any           { c.in("Value"); return c.Context.Value(key) }

var contextMethods = []string{"Deadline", "Done", "Err", "Value"}

// panicFrom returns a function that panics when it is called for the n-th time, and from then on.
func panicFrom(n int64) func() {
	var calls atomic.Int64
	return func() {
		if calls.Add(1) >= n {
			panic(errBoom)
		}
	}
}

// Whenever a method of its context panics, the call has one outcome and leaves nothing behind: not a
// probe's slot, either.
func TestPanicOfTheCallersContextLeavesNothingBehind(t *testing.T) {
	tools := map[string]toolFunc{
		"succeeds":              succeed,
		"fails, and is retried": failing(2, errBoom),
		"hangs":                 hang(time.Hour),
		"waits for its end":     untilDone,
		"uses its context": func(ctx context.Context) (int, error) {
			child, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			resilience.ReportProgress(ctx)
			resilience.Pause(ctx)()
			<-child.Done()
			return 1, nil
		},
	}
	for _, method := range contextMethods {
		for name, fn := range tools {
			for _, attemptTimeout := range []time.Duration{0, time.Second} {
				t.Run(fmt.Sprintf("%s/%s/%s", method, name, attemptTimeout), func(t *testing.T) {
					inBothModes(t, func(t *testing.T, cooperative bool) {
						for n := range int64(10) {
							checkPanicOfContext(t, method, n, attemptTimeout, cooperative, fn)
						}
					})
				})
			}
		}
	}
}

func checkPanicOfContext(
	t *testing.T, method string, n int64, attemptTimeout time.Duration, cooperative bool, fn toolFunc,
) {
	var r recorder
	cfg := observed(resilience.Tool{
		Effect: resilience.ReadOnly, Timeout: 3 * time.Second, MaxTimeout: 4 * time.Second, Cooperative: cooperative,
	}, r.observer())
	cfg.AttemptTimeout = attemptTimeout
	g := newGuard(t, cfg)
	trip(t, g.Breaker("x"))
	time.Sleep(30*time.Second + 1)
	parent, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
	defer cancel()

	ctx := &calledContext{Context: parent, method: method, call: panicFrom(n)}
	result := resilience.Run(ctx, g, "x", fn)

	if result.Err != nil && result.Attempts == 0 {
		assert.ErrorIs(t, result.Err, errBoom)
		var p *resilience.PanicError
		assert.ErrorAs(t, result.Err, &p)
	}
	assert.Zero(t, g.Health()[0].InFlight)
	time.Sleep(2 * time.Hour)
	assert.Zero(t, g.Health()[0].Abandoned)
	flush(t, g)
	assert.Len(t, received[resilience.CallEnd](&r), 1)

	_, err := resilience.Do(t.Context(), g, "x", succeed)
	assert.NoError(t, err, "the breaker admits another probe")
}

// A method of the caller's context may block once the tool runs, as on a lock that the tool holds.
func TestPromise1MethodsOfTheCallersContextThatBlock(t *testing.T) {
	const timeout = 10 * time.Second
	tools := map[string]toolFunc{
		"hangs":                    hang(time.Hour),
		"fails":                    failing(9, errBoom),
		"fails when its time ends": failingOnceDone(errBoom),
		"cancels something": func(ctx context.Context) (int, error) {
			child, cancel := context.WithCancel(ctx)
			cancel()
			return 0, child.Err()
		},
	}
	for _, method := range contextMethods {
		for name, fn := range tools {
			for _, attemptTimeout := range []time.Duration{0, time.Second} {
				for leaves, leave := range map[string]time.Duration{"stays": time.Hour, "leaves": 4 * time.Second} {
					row := fmt.Sprintf("%s/%s/%s/%s", method, name, attemptTimeout, leaves)
					runInBubble(t, row, func(t *testing.T) {
						checkBlockingContext(t, method, fn, attemptTimeout, timeout, leave)
					})
				}
			}
		}
	}
}

func checkBlockingContext(
	t *testing.T, method string, fn toolFunc, attemptTimeout, timeout, leave time.Duration,
) {
	cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly, Timeout: timeout})
	cfg.AttemptTimeout = attemptTimeout
	g := newGuard(t, cfg)
	parent, cancel := leavingAfter(leave)(t.Context())
	defer cancel()
	release := make(chan struct{})
	var blocks atomic.Bool
	ctx := &calledContext{Context: parent, method: method, call: func() {
		if blocks.Load() {
			<-release
		}
	}}

	r := resilience.Run(ctx, g, "x", func(ctx context.Context) (int, error) {
		blocks.Store(true)
		return fn(ctx)
	})

	assert.NotNil(t, r.Err)
	assert.LessOrEqual(t, r.Duration, timeout+500*time.Millisecond)
	assert.Zero(t, g.Health()[0].InFlight)
	close(release)
	time.Sleep(2 * time.Hour)
	assert.Zero(t, g.Health()[0].Abandoned)
}

// A call that has not begun says so; one that has begun goes on.
func TestPanicOfTheCallersContextFailsOnlyACallThatHasNotBegun(t *testing.T) {
	for _, method := range contextMethods {
		runInBubble(t, method, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{})
			panics := panicFrom(1)
			var began atomic.Bool
			begins := &calledContext{Context: t.Context(), method: method, call: panics}
			later := &calledContext{Context: t.Context(), method: method, call: func() {
				if began.Load() {
					panics()
				}
			}}

			r := resilience.Run(begins, g, "x", succeed)
			if method != "Done" { // which is only asked once the tool runs
				assert.ErrorIs(t, r.Err, resilience.CodeToolFailed)
				assert.ErrorIs(t, r.Err, errBoom)
				assert.Zero(t, r.Attempts)
			}
			for _, r := range resilience.All(begins, g, resilience.Call[int]{Tool: "x", Func: succeed}) {
				assert.Equal(t, method == "Done", r.Err == nil)
			}
			_, err := resilience.Do(later, g, "x", func(ctx context.Context) (int, error) {
				began.Store(true)
				_, hasDeadline := ctx.Deadline()
				assert.True(t, hasDeadline)
				resilience.ReportProgress(ctx)
				return untilDone(ctx)
			})
			assert.ErrorIs(t, err, resilience.CodeTimeout)
			assert.Equal(t, 1, g.Health()[0].ConsecutiveFailures, "the timeout")
		})
	}
}

// An ownContext has a Done channel of its own, so that the context package waits for it on a goroutine.
type ownContext struct {
	context.Context
	done chan struct{}
	end  func() // called by Err and Value once the context has ended
}

func (c *ownContext) Done() <-chan struct{} { return c.done }

func (c *ownContext) Err() error { c.ended(); return nil }

func (c *ownContext) Value(key any) any { c.ended(); return c.Context.Value(key) }

func (c *ownContext) ended() {
	select {
	case <-c.done:
		c.end()
	default:
	}
}

// Whatever watches for the end of the caller's context survives it.
func TestPanicOfTheCallersContextAfterItsEnd(t *testing.T) {
	tools := map[string]toolFunc{"waits for its end": untilDone, "fails, and is retried": failing(1, errBoom)}
	for does, end := range map[string]func(){"panics": func() { panic("no error") }, "has no error": func() {}} {
		for name, fn := range tools {
			for _, attemptTimeout := range []time.Duration{0, time.Minute} {
				t.Run(fmt.Sprintf("%s/%s/%s", does, name, attemptTimeout), func(t *testing.T) {
					inBothModes(t, func(t *testing.T, cooperative bool) {
						cfg := configWith(resilience.Tool{
							Cooperative: cooperative, Effect: resilience.ReadOnly, Timeout: time.Hour,
						})
						cfg.AttemptTimeout = attemptTimeout
						cfg.Retry.Backoff = tenSecondsApart
						g := newGuard(t, cfg)
						own := &ownContext{t.Context(), make(chan struct{}), end}
						time.AfterFunc(time.Second, func() { close(own.done) })
						start := time.Now()

						_, err := resilience.Do(context.WithValue(own, ctxKey("k"), 1), g, "x", fn)

						assert.ErrorIs(t, err, resilience.CodeCanceled)
						assert.Equal(t, time.Second, time.Since(start))
						assert.Zero(t, g.Health()[0].ConsecutiveFailures)
						synctest.Wait()
					})
				})
			}
		}
	}
}

// Methods of the caller's context may use the context of the call, which takes its lock.
func TestMethodsOfTheCallersContextRunWithoutALock(t *testing.T) {
	for _, method := range contextMethods {
		runInBubble(t, method, func(t *testing.T) {
			var inner context.Context
			within, used := false, false
			ctx := &calledContext{Context: t.Context(), method: method}
			ctx.call = func() {
				if inner == nil || within {
					return
				}
				within, used = true, true
				inner.Done()
				inner.Deadline()
				resilience.ReportProgress(inner)
				resilience.Pause(inner)()
				within = false
			}

			g := guardWith(t, resilience.Tool{Timeout: time.Second, MaxTimeout: time.Minute, Cooperative: true})
			_, err := resilience.Do(ctx, g, "x", func(toolCtx context.Context) (int, error) {
				inner = toolCtx
				resilience.ReportProgress(toolCtx)
				resilience.Pause(toolCtx)()
				_ = toolCtx.Err()
				toolCtx.Deadline()
				toolCtx.Done()
				return 1, nil
			})
			assert.NoError(t, err)
			assert.True(t, used)
		})
	}
}

// A context that is done without an error, against its contract, has been canceled.
func TestContextThatIsDoneWithoutAnErrorIsCanceled(t *testing.T) {
	for _, cooperative := range []bool{false, true} {
		runInBubble(t, fmt.Sprint(cooperative), func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Cooperative: cooperative})
			ctx, cancel := leavingAfter(time.Second)(t.Context())
			defer cancel()

			start := time.Now()
			_, err := resilience.Do(doneWithoutErr{ctx}, g, "x", untilDone)

			assert.ErrorIs(t, err, resilience.CodeCanceled)
			assert.Equal(t, time.Second, time.Since(start))
			synctest.Wait()
		})
	}
}

func TestWithBreakerCountsACallWhoseContextPanics(t *testing.T) {
	for _, fn := range []toolFunc{succeed, failing(9, errBoom)} {
		b := resilience.NewBreaker("b", resilience.BreakerConfig{Failures: 1})
		began := false
		ctx := &calledContext{Context: t.Context(), method: "Err", call: func() {
			if began {
				panic("p")
			}
		}}
		want, wantErr := fn(t.Context())

		value, err := resilience.WithBreaker(ctx, b, func(ctx context.Context) (int, error) {
			began = true
			return fn(ctx)
		})

		require.Equal(t, wantErr, err)
		assert.Equal(t, want, value)
		assert.Equal(t, errors.Is(err, errBoom), b.State() == resilience.StateOpen)
	}
}

// The tool's own context ends before that of Do, which has many siblings.
func TestPromise6CallerWhoLeavesFarAbove(t *testing.T) {
	const siblings = 20_000
	for name, derive := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"a child": context.WithCancel,
		"a grandchild": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithTimeout(context.WithValue(ctx, ctxKey("k"), 1), time.Hour)
			return context.WithValue(ctx, ctxKey("l"), 2), cancel
		},
		"a child of another call's": func(ctx context.Context) (context.Context, context.CancelFunc) {
			called, done := make(chan context.Context), make(chan struct{})
			go func() {
				_, _ = resilience.WithTimeout(ctx, "outer", time.Hour, func(ctx context.Context) (int, error) {
					called <- ctx
					<-done
					return 0, nil
				})
			}()
			ctx, cancel := context.WithTimeout(<-called, time.Hour)
			return ctx, func() { cancel(); close(done) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent}) // which isn't retried, but counted
			for range 20 {
				root, leave := context.WithCancel(t.Context())
				for range siblings {
					_, cancel := context.WithCancel(root)
					defer cancel()
				}
				ctx, cancel := derive(root)
				defer cancel()

				called := make(chan struct{})
				go func() { <-called; leave() }()
				r := resilience.Run(ctx, g, "x", func(context.Context) (int, error) {
					close(called)
					<-root.Done()
					return 0, root.Err()
				})
				require.Equal(t, resilience.CodeCanceled, r.Err.Code)
			}
			assert.Zero(t, g.Health()[0].ConsecutiveFailures)
		})
	}
}

// Between its attempts a call doesn't ask again: what is left of the first one may hold a lock.
func TestPromise1DeadlineOfTheCallerThatBlocksBeforeTheSecondAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked := make(chan struct{})
		var blocks atomic.Bool
		ctx := deadlineFunc{t.Context(), func() {
			if blocks.Load() {
				<-blocked
			}
		}}
		cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly, Timeout: 2 * time.Second})
		cfg.AttemptTimeout = 500 * time.Millisecond
		r := resilience.Run(ctx, newGuard(t, cfg), "x", func(ctx context.Context) (int, error) {
			if resilience.Attempt(ctx) == 1 {
				time.AfterFunc(550*time.Millisecond, func() { blocks.Store(true) }) // during the delay
				return untilDone(ctx)
			}
			time.Sleep(400 * time.Millisecond)
			return 1, nil
		})
		assert.Nil(t, r.Err)
		assert.LessOrEqual(t, r.Duration, 2*time.Second)
		close(blocked)
	})
}

// A deadlineFunc calls a function before it returns its deadline.
type deadlineFunc struct {
	context.Context
	called func()
}

func (d deadlineFunc) Deadline() (time.Time, bool) { d.called(); return d.Context.Deadline() }
