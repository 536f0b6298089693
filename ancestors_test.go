package resilience_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A slowEnd is a context that has ended a second before those that were derived from it learn of it.
type slowEnd struct {
	context.Context
	ended  atomic.Bool
	cancel context.CancelFunc
}

func newSlowEnd(ctx context.Context) *slowEnd {
	ctx, cancel := context.WithCancel(ctx)
	return &slowEnd{Context: ctx, cancel: cancel}
}

func (c *slowEnd) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return nil
}

func (c *slowEnd) end() {
	c.ended.Store(true)
	time.AfterFunc(time.Second, c.cancel)
}

// A tool may know an ancestor of its caller's context, and return the error of that before its caller has left.
func TestPromise6CallerLeavesWithAnAncestor(t *testing.T) {
	within := func(ctx context.Context, do toolFunc, tool resilience.Tool, observers ...resilience.Observer) error {
		cfg := configWith(tool)
		cfg.Tools["outer"] = resilience.Tool{Effect: resilience.ReadOnly}
		cfg.Observers = observers
		_, err := resilience.Do(ctx, newGuard(t, cfg), "outer", do)
		return err
	}
	starting := func(derive func(context.Context) context.Context) resilience.Observer {
		return resilience.Observer{Start: func(ctx context.Context, _ resilience.CallStart) context.Context {
			return derive(ctx)
		}}
	}
	for name, call := range map[string]func(ctx context.Context, inner toolFunc) error{
		"a child": func(ctx context.Context, inner toolFunc) error { _, err := inner(ctx); return err },
		"a child of another call's": func(ctx context.Context, inner toolFunc) error {
			return within(ctx, inner, resilience.Tool{})
		},
		"a child of a later attempt's": func(ctx context.Context, inner toolFunc) error {
			return within(ctx, func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) == 1 {
					return 0, errBoom
				}
				return inner(ctx)
			}, resilience.Tool{})
		},
		"a child of an observer's, with its values": func(ctx context.Context, inner toolFunc) error {
			return within(ctx, inner, resilience.Tool{}, starting(func(ctx context.Context) context.Context {
				return context.WithValue(ctx, ctxKey("k"), 1)
			}))
		},
		"a child of an observer's, with an end of its own": func(ctx context.Context, inner toolFunc) error {
			return within(ctx, inner, resilience.Tool{}, starting(func(ctx context.Context) context.Context {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(time.Hour, cancel)
				return ctx
			}))
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			root := newSlowEnd(t.Context())
			ctx, cancel := context.WithCancel(root)
			defer cancel()
			g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})

			err := call(ctx, func(ctx context.Context) (int, error) {
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				return resilience.Do(ctx, g, "x", func(context.Context) (int, error) {
					root.end()
					return 0, root.Err()
				})
			})

			assert.ErrorIs(t, err, resilience.CodeCanceled)
			assert.Zero(t, g.Health()[0].ConsecutiveFailures)
			time.Sleep(2 * time.Hour)
		})
	}
}

// However the tool fails, it makes no difference which of the contexts of its caller has ended, and nobody waits for
// the others.
func TestPromise6EndOfAnAncestorIsThatOfTheCaller(t *testing.T) {
	fails := map[string]func(context.Context) error{
		"the context's error": context.Context.Err,
		"its text":            func(ctx context.Context) error { return errors.New(ctx.Err().Error()) },
		"an error":            func(context.Context) error { return errBoom },
		"a transient one":     func(context.Context) error { return resilience.MarkTransient(errBoom) },
		"an *Error":           func(context.Context) error { return &resilience.Error{Code: "BUSY", Message: "m"} },
		"a panic":             func(context.Context) error { panic("p") },
		"a Goexit":            func(context.Context) error { runtime.Goexit(); return nil },
	}
	for name, fail := range fails {
		runInBubble(t, name, func(t *testing.T) {
			var codes []resilience.Code
			for _, above := range []bool{false, true} {
				root := newSlowEnd(t.Context())
				ctx, cancel := context.WithCancel(root)
				g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly})
				r := resilience.Run(ctx, g, "x", func(ctx context.Context) (int, error) {
					if above {
						root.end()
						ctx = root
					} else {
						cancel()
					}
					return 0, fail(ctx)
				})

				codes = append(codes, r.Err.Code)
				assert.Equal(t, 1, r.Attempts)
				assert.Zero(t, r.Duration)
				assert.Zero(t, g.Health()[0].ConsecutiveFailures)
				cancel()
			}
			assert.Equal(t, codes[0], codes[1])
			time.Sleep(time.Hour)
		})
	}
}

func TestEndOfAnAncestorOfAPrimitivesContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := newSlowEnd(t.Context())
		ctx, cancel := context.WithCancel(root)
		defer cancel()
		b := resilience.NewBreaker("b", resilience.BreakerConfig{})
		attempts := 0
		_, err := resilience.WithRetry(ctx, resilience.Retry{}, func(ctx context.Context) (int, error) {
			return resilience.WithBreaker(ctx, b, func(context.Context) (int, error) {
				attempts++
				root.end()
				return 0, errBoom
			})
		})
		assert.Equal(t, errBoom, err)
		assert.Equal(t, 1, attempts)
		assert.Zero(t, b.Failures())
	})
}

// The search for an ancestor knows how the context package derives one context from another.
func TestEndAboveEachKindOfContext(t *testing.T) {
	for name, derive := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"WithCancel": context.WithCancel,
		"WithTimeout": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Hour)
		},
		"WithValue": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithCancel(context.WithValue(ctx, ctxKey("k"), 1))
		},
		"WithoutCancel": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithCancel(context.WithoutCancel(ctx))
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			root := newSlowEnd(t.Context())
			ctx, cancel := derive(root)
			defer cancel()
			_, err := resilience.Do(ctx, guardWith(t, resilience.Tool{}), "x", func(context.Context) (int, error) {
				root.end()
				return 0, errBoom
			})
			assert.Equal(t, name != "WithoutCancel", errors.Is(err, resilience.CodeCanceled))
		})
	}
}

// farBelow returns a descendant of ctx that is too far below it to be searched.
func farBelow(ctx context.Context) context.Context {
	for range 200 {
		ctx = context.WithValue(ctx, ctxKey("depth"), ctx)
	}
	return ctx
}

// An error of a context says nothing about one whose ancestors are too many to be looked at.
func TestToolThatCancelsSomethingIsRetriedFarBelow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly})
		r := resilience.Run(farBelow(t.Context()), g, "x", failing(1, context.Canceled))
		assert.Nil(t, r.Err)
		assert.Equal(t, 100*time.Millisecond, r.Duration)
	})
}

func TestPromise1MethodsOfAFarAncestorThatBlock(t *testing.T) {
	for _, method := range []string{"Deadline", "Err"} {
		runInBubble(t, method, func(t *testing.T) {
			release := make(chan struct{})
			var blocks atomic.Bool
			ctx := farBelow(&calledContext{Context: t.Context(), method: method, call: func() {
				if blocks.Load() {
					<-release
				}
			}})

			r := resilience.Run(ctx, guardWith(t, resilience.Tool{Timeout: time.Second}), "x",
				func(context.Context) (int, error) { blocks.Store(true); return hang(time.Hour)(ctx) })

			assert.Equal(t, resilience.CodeTimeout, r.Err.Code)
			assert.LessOrEqual(t, r.Duration, 1200*time.Millisecond)
			close(release)
			time.Sleep(2 * time.Hour)
		})
	}
}

// While one method of the caller's context hangs, no other is called: a call waits once, and leaves one goroutine.
func TestOneMethodOfTheCallersContextHangsAtMost(t *testing.T) {
	for _, method := range []string{"Deadline", "Err"} {
		runInBubble(t, method, func(t *testing.T) {
			release := make(chan struct{})
			var blocks atomic.Bool
			var hanging atomic.Int64
			ctx := &calledContext{Context: t.Context(), method: method, call: func() {
				if blocks.Load() {
					hanging.Add(1)
					<-release
				}
			}}

			resilience.Run(ctx, guardWith(t, resilience.Tool{Effect: resilience.ReadOnly}), "x",
				func(context.Context) (int, error) { blocks.Store(true); return 0, errBoom })

			assert.EqualValues(t, 1, hanging.Load())
			close(release)
		})
	}
}

// The caller's deadline counts also if it can't be asked for any more.
func TestPromise1DeadlineOfACallerWhoseContextBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var blocks atomic.Bool
		late, cancel := withUnkeptTimeout(2 * time.Second)(t.Context())
		defer cancel()
		ctx := &calledContext{Context: late, method: "Err", call: func() {
			if blocks.Load() {
				<-release
			}
		}}

		r := resilience.Run(ctx, guardWith(t, resilience.Tool{}), "x",
			func(ctx context.Context) (int, error) { blocks.Store(true); return hang(time.Hour)(ctx) })

		assert.Equal(t, resilience.CodeTimeout, r.Err.Code)
		assert.LessOrEqual(t, r.Duration, 2200*time.Millisecond)
		close(release)
		time.Sleep(2 * time.Hour)
	})
}

// A constantContext is a context whose methods need no value.
type constantContext struct{}

func (*constantContext) Deadline() (deadline time.Time, ok bool) { return }
func (*constantContext) Done() <-chan struct{}                   { return nil }
func (*constantContext) Err() error                              { return nil }
func (*constantContext) Value(any) any                           { return nil }

func TestNilPointerMayBeAContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly})
		_, err := resilience.Do((*constantContext)(nil), g, "x", failing(1, errBoom))
		assert.NoError(t, err)
	})
}

// An unkeptEnd is a context that has an error from some question on, but whose Done is never closed.
type unkeptEnd struct {
	context.Context
	questions atomic.Int64
}

func (c *unkeptEnd) Err() error {
	if c.questions.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

func TestPromise1ContextThatHasAnErrorButIsNeverDone(t *testing.T) {
	inBothModes(t, func(t *testing.T, cooperative bool) {
		for questions := range int64(10) {
			own := &unkeptEnd{Context: t.Context()}
			own.questions.Store(questions)
			ctx := context.WithValue(own, ctxKey("k"), 1)
			g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly, Cooperative: cooperative})

			r := resilience.Run(ctx, g, "x", failing(9, context.Canceled))

			require.NotNil(t, r.Err)
			assert.LessOrEqual(t, r.Duration, time.Minute)
		}
	})
}

// Once its error is there, the call needs no Done to end.
func TestContextThatHasAnErrorButIsNeverDoneIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := &unkeptEnd{Context: t.Context()}
		own.questions.Store(1000)
		r := resilience.Run(own, guardWith(t, resilience.Tool{}), "x", func(context.Context) (int, error) {
			own.questions.Store(0)
			return 0, context.Canceled
		})
		assert.Equal(t, resilience.CodeCanceled, r.Err.Code)
		assert.Zero(t, r.Duration)
	})
}
