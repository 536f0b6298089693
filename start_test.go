package resilience_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

func TestStartThatHangsCollectsNoGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 1000
		var r recorder
		release := make(chan struct{})
		var hanging atomic.Int64
		quick := atomic.Bool{}
		hangs := starting(func() {
			if !quick.Load() {
				hanging.Add(1)
				<-release
			}
		})
		g, log := loggedGuard(t, resilience.Tool{}, hangs, r.observer())
		quick.Store(true)
		mustSucceed(t, g)
		quick.Store(false)

		before := goroutines(modulePath)
		begin := time.Now()
		var wg sync.WaitGroup
		for range calls {
			wg.Go(func() { mustSucceed(t, g) })
		}
		wg.Wait()
		assert.InDelta(t, 100*time.Millisecond, time.Since(begin), float64(10*time.Millisecond))
		synctest.Wait()
		time.Sleep(time.Second)
		assert.EqualValues(t, 64, hanging.Load())
		assert.LessOrEqual(t, goroutines(modulePath), before+64)
		assert.Len(t, received[resilience.CallEnd](&r), 1+calls, "the other observer loses nothing")

		close(release)
		synctest.Wait()
		mustSucceed(t, g)
		flush(t, g)
		assertLogged(t, log, 1, "takes too long")
		assert.EqualValues(t, 65, hanging.Load())
	})
}

// An observer without other functions catches up, too, so that the log says it again when it hangs again.
func TestStartThatHangsAgainIsWarnedOfAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, log := loggedGuard(t, resilience.Tool{}, starting(func() { time.Sleep(time.Second) }))
		for n := 1; n <= 3; n++ {
			mustSucceed(t, g)
			time.Sleep(time.Hour)
			flush(t, g)
			assertLogged(t, log, n, "takes too long")
			assertLogged(t, log, n, "caught up\" lost=1")
		}
	})
}

// More calls than may be in Start at once wait for each other.
func TestManyStartsThatAreSlowLoseNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 500
		var r recorder
		slow := r.observer()
		slow.Start = starting(func() { time.Sleep(10 * time.Millisecond) }).Start
		g, log := loggedGuard(t, resilience.Tool{}, slow)

		var wg sync.WaitGroup
		for range calls {
			wg.Go(func() { mustSucceed(t, g) })
		}
		wg.Wait()
		flush(t, g)
		assert.Len(t, received[resilience.CallEnd](&r), calls)
		assert.Empty(t, log.String())
	})
}

// Each observer has the whole time, also behind one that uses up nearly all of its own.
func TestEachStartHasItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		slow := r.observer()
		slow.Start = starting(func() { time.Sleep(95 * time.Millisecond) }).Start
		g, _ := loggedGuard(t, resilience.Tool{}, slow, slow, starting(runtime.Goexit), slow)

		mustSucceed(t, g)
		flush(t, g)
		assert.Len(t, received[resilience.CallEnd](&r), 3)
	})
}

// A call goes on without the one that hangs, wherever it stands, and asks each of the others once.
func TestStartThatHangsBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		release := make(chan struct{})
		starts := 0
		quick := r.observer()
		quick.Start = starting(func() { starts++ }).Start
		g, _ := loggedGuard(t, resilience.Tool{}, quick, quick, starting(func() { <-release }), quick)

		begin := time.Now()
		mustSucceed(t, g)
		assert.InDelta(t, 100*time.Millisecond, time.Since(begin), float64(10*time.Millisecond))
		flush(t, g)
		assert.Equal(t, 3, starts)
		assert.Len(t, received[resilience.CallEnd](&r), 3)
		close(release)
	})
}

// An observer may neither end a call nor break it, whatever context it returns.
func TestContextOfAnObserverEndsNothing(t *testing.T) {
	for name, wrap := range map[string]func(context.Context) context.Context{
		"a deadline that has passed": func(ctx context.Context) context.Context { return pastContext{ctx} },
		"a Value that panics":        func(ctx context.Context) context.Context { return brokenContext{ctx} },
	} {
		runInBubble(t, name, func(t *testing.T) {
			var r recorder
			bad := r.observer()
			bad.Start = func(ctx context.Context, _ resilience.CallStart) context.Context { return wrap(ctx) }
			g, _ := loggedGuard(t, resilience.Tool{}, bad)
			_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				assert.Nil(t, ctx.Value(ctxKey("any")))
				return 1, nil
			})
			assert.NoError(t, err)
			flush(t, g)
			assert.Len(t, received[resilience.CallEnd](&r), 1)
		})
	}
}

// An observer isn't blamed for the caller's context.
func TestStartOfACallWhoseContextPanics(t *testing.T) {
	for _, method := range contextMethods {
		for n := range int64(5) {
			runInBubble(t, method, func(t *testing.T) {
				var r recorder
				o := r.observer()
				o.Start = func(ctx context.Context, _ resilience.CallStart) context.Context {
					return context.WithValue(ctx, ctxKey("k"), "v")
				}
				g, log := loggedGuard(t, resilience.Tool{}, o)
				ctx := &calledContext{Context: t.Context(), method: method, call: panicFrom(n)}
				_, err := resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) {
					assert.Equal(t, "v", ctx.Value(ctxKey("k")))
					return 1, nil
				})
				assert.True(t, err == nil || errors.Is(err, errBoom))
				flush(t, g)
				assert.Len(t, received[resilience.CallEnd](&r), 1)
				assertLogged(t, log, 0, "panicked")
			})
		}
	}
}

type pastContext struct{ context.Context }

func (pastContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Hour), true }

type brokenContext struct{ context.Context }

func (brokenContext) Value(any) any { panic("p") }

// A valueContext is a context of an observer's with a Value that does anything.
type valueContext struct {
	context.Context
	value func()
}

func (c valueContext) Value(any) any {
	c.value()
	return nil
}

func TestValuesOfAnObserverHoldUpNoCall(t *testing.T) {
	for name, value := range map[string]func(){
		"blocks": func() { select {} }, "panics": func() { panic("boom") }, "ends its goroutine": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{
				Tools: map[string]resilience.Tool{"x": {}},
				Observers: []resilience.Observer{{Start: func(ctx context.Context, _ resilience.CallStart) context.Context {
					return valueContext{ctx, value}
				}}},
			})
			ended := make(chan error, 1)
			go func() {
				err := errBoom
				defer func() { ended <- err }()
				_, err = resilience.Do(t.Context(), g, "x", succeed)
			}()
			assert.NoError(t, <-ended)
		})
	}
}
