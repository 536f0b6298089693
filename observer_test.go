package resilience_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A recorder keeps all that it is told.
type recorder struct {
	mu     sync.Mutex // Start is told concurrently
	starts []resilience.CallStart
	all    []any
}

func (r *recorder) add(e any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, e)
}

func (r *recorder) observer() resilience.Observer {
	return resilience.Observer{
		Start: func(_ context.Context, e resilience.CallStart) context.Context {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.starts = append(r.starts, e)
			return nil
		},
		Retry:   func(_ context.Context, e resilience.CallRetry) { r.add(e) },
		End:     func(_ context.Context, e resilience.CallEnd) { r.add(e) },
		Late:    func(_ context.Context, e resilience.LateResult) { r.add(e) },
		Breaker: func(e resilience.BreakerChange) { r.add(e) },
	}
}

// told returns the events of one type.
func told[E any](r *recorder) (out []E) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.all {
		if e, ok := e.(E); ok {
			out = append(out, e)
		}
	}
	return out
}

// flush also waits for those who are told.
func flush(t *testing.T, g *resilience.Guard) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	require.NoError(t, g.Flush(ctx))
}

// observed is one's Config with observers.
func observed(x resilience.Tool, all ...resilience.Observer) resilience.Config {
	cfg := one(x)
	cfg.Observers = all
	return cfg
}

// One start and one end for each call, however it ends.
func TestObserverOneEndForEachCall(t *testing.T) {
	gone, leave := context.WithCancel(t.Context())
	leave()
	type fn = func(context.Context) (int, error)
	for name, tc := range map[string]struct {
		ctx      context.Context
		noName   bool
		fn       fn
		opts     []resilience.Option
		before   func(*testing.T, *resilience.Guard)
		code     resilience.Code
		attempts int
		limit    time.Duration
		retries  int
		again    bool
	}{
		"success":            {fn: failing(0, nil), attempts: 1, limit: time.Minute},
		"failure":            {fn: failing(9, resilience.MarkPermanent(errBoom)), code: resilience.CodeToolFailed, attempts: 1, limit: time.Minute},
		"success at last":    {fn: failing(2, errBoom), attempts: 3, retries: 2, limit: time.Minute},
		"retry exhausted":    {fn: failing(9, errBoom), code: resilience.CodeRetryExhausted, attempts: 4, retries: 3, limit: time.Minute},
		"timeout":            {fn: obeyInt, code: resilience.CodeTimeout, attempts: 1, limit: time.Minute},
		"a limit of its own": {fn: obeyInt, opts: []resilience.Option{resilience.Limit(time.Second)}, code: resilience.CodeTimeout, attempts: 1, limit: time.Second},
		"panic":              {fn: func(context.Context) (int, error) { panic("p") }, code: resilience.CodeToolFailed, attempts: 1, limit: time.Minute},
		"goexit":             {fn: func(context.Context) (int, error) { runtime.Goexit(); return 0, nil }, code: resilience.CodeToolFailed, attempts: 1, limit: time.Minute},
		"open":               {fn: failing(0, nil), before: func(t *testing.T, g *resilience.Guard) { open(t, g.Breaker("x")) }, code: resilience.CodeCircuitOpen, limit: time.Minute},
		"no name":            {noName: true, fn: failing(0, nil), code: resilience.CodeValidation},
		"no function":        {code: resilience.CodeToolNotFound},
		"no limit":           {fn: failing(0, nil), opts: []resilience.Option{resilience.Limit(-1)}, code: resilience.CodeValidation},
		"gone":               {ctx: gone, fn: failing(0, nil), code: resilience.CodeCanceled},
		"unfinished": {fn: func(context.Context) (int, error) { return 0, resilience.ErrUnfinished }, code: resilience.CodeValidation,
			attempts: 1, limit: time.Minute, again: true},
	} {
		for _, cooperative := range []bool{false, true} {
			if cooperative && name == "goexit" {
				continue // see TestObserverCooperativeGoexit
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var r recorder
					g := newGuard(t, observed(resilience.Tool{Effect: resilience.ReadOnly, Cooperative: cooperative}, r.observer()))
					if tc.before != nil {
						tc.before(t, g)
					}
					ctx, tool := tc.ctx, "x"
					if ctx == nil {
						ctx = t.Context()
					}
					if tc.noName {
						tool = ""
					}
					begin := time.Now()
					res := resilience.Run(ctx, g, tool, tc.fn, tc.opts...)
					flush(t, g)
					require.Len(t, r.starts, 1)
					assert.Equal(t, resilience.CallStart{Tool: tool, Time: begin}, r.starts[0])
					ends := told[resilience.CallEnd](&r)
					require.Len(t, ends, 1)
					e := ends[0]
					assert.Equal(t, tool, e.Tool)
					assert.Equal(t, tc.attempts, e.Attempts)
					assert.Equal(t, tc.limit, e.Limit)
					assert.Equal(t, res.Duration, e.Duration)
					assert.Equal(t, begin.Add(res.Duration), e.Time)
					assert.Equal(t, tc.again, e.Unfinished)
					assert.Nil(t, e.Arguments)
					if !tc.again {
						assert.Equal(t, res.Err == nil, e.Err == nil)
						if res.Err != nil {
							assert.ErrorIs(t, e.Err, res.Err)
						}
					} else {
						assert.Nil(t, e.Err)
						assert.ErrorIs(t, res.Err, resilience.ErrUnfinished)
					}
					if tc.code == "" {
						assert.Nil(t, res.Err)
					} else {
						assert.ErrorIs(t, res.Err, tc.code)
					}
					retries := told[resilience.CallRetry](&r)
					require.Len(t, retries, tc.retries)
					for i, e := range retries {
						assert.Equal(t, resilience.CallRetry{Tool: "x", Label: "x", Time: e.Time, Attempt: i + 1, Delay: e.Delay, Err: errBoom}, e)
						assert.Positive(t, e.Delay)
					}
				})
			})
		}
	}
}

func obeyInt(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }

func TestObserverCooperativeGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		g := newGuard(t, observed(resilience.Tool{Cooperative: true}, r.observer()))
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) {
				runtime.Goexit()
				return 0, nil
			})
		}()
		<-done
		flush(t, g)
		ends := told[resilience.CallEnd](&r)
		require.Len(t, ends, 1)
		assert.ErrorIs(t, ends[0].Err, resilience.ErrGoexit)
	})
}

func TestObserverOverloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		cfg := observed(resilience.Tool{}, r.observer())
		cfg.MaxAbandoned = 1
		g := newGuard(t, cfg)
		for range 2 {
			_, err := resilience.Do(t.Context(), g, "x", hangInt)
			require.Error(t, err)
		}
		flush(t, g)
		ends := told[resilience.CallEnd](&r)
		require.Len(t, ends, 2)
		assert.ErrorIs(t, ends[1].Err, resilience.CodeOverloaded)
		assert.Equal(t, 0, ends[1].Attempts)
		time.Sleep(2 * time.Hour)
	})
}

// However many names agents make up, there are only so many labels.
func TestObserverLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		g := newGuard(t, observed(resilience.Tool{}, r.observer()))
		call := func(name string, opts ...resilience.Option) string {
			_, _ = resilience.Do(t.Context(), g, name, failing(0, nil), opts...)
			flush(t, g)
			ends := told[resilience.CallEnd](&r)
			return ends[len(ends)-1].Label
		}
		assert.Equal(t, "x", call("x"))
		assert.Equal(t, "y", call("y"))
		assert.Equal(t, "(others)", call("made up", resilience.Shared()))
		assert.Equal(t, "(others)", call(strings.Repeat("y", 300)))
		// Refused before it comes to a tool.
		assert.Equal(t, "x", call("x", resilience.Limit(-1)))
		assert.Equal(t, "y", call("y", resilience.Limit(-1)))
		assert.Equal(t, "(others)", call("z", resilience.Limit(-1)))
		assert.Len(t, g.Health(), 3)
	})
}

func TestObserverArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		g := newGuard(t, observed(resilience.Tool{}, r.observer()))
		args := map[string]any{"q": "word", "password": "p"}
		_, _ = resilience.Do(t.Context(), g, "x", failing(0, nil), resilience.Args(args))
		_, _ = resilience.Do(t.Context(), g, "x", failing(0, nil), resilience.Args(args), resilience.Debug())
		_, _ = resilience.Do(t.Context(), g, "x", failing(0, nil),
			resilience.Args(args), resilience.Debug(), resilience.Limit(-1))
		flush(t, g)
		ends := told[resilience.CallEnd](&r)
		assert.Nil(t, ends[0].Arguments)
		assert.Equal(t, map[string]any{"q": "word", "password": "[REDACTED]"}, ends[1].Arguments)
		assert.Nil(t, ends[2].Arguments, "they were not redacted yet")
	})
}

type ctxKey string

// What observers add at the start reaches the tool and each other; nothing else of their
// contexts does.
func TestObserverContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan context.Context, 1)
		adds := resilience.Observer{
			Start: func(ctx context.Context, e resilience.CallStart) context.Context {
				assert.Equal(t, "caller's", ctx.Value(ctxKey("caller")))
				assert.Equal(t, "tools/call", e.Request.Method)
				ctx, cancel := context.WithCancel(context.WithValue(ctx, ctxKey("a"), 1))
				cancel()
				return ctx
			},
			End: func(ctx context.Context, _ resilience.CallEnd) { ended <- ctx },
		}
		replaces := resilience.Observer{Start: func(ctx context.Context, _ resilience.CallStart) context.Context {
			assert.Equal(t, 1, ctx.Value(ctxKey("a")))
			assert.NoError(t, ctx.Err())
			ctx, cancel := context.WithCancelCause(context.WithValue(context.Background(), ctxKey("b"), 2))
			cancel(errors.New("another"))
			return ctx
		}}
		silent := resilience.Observer{Start: func(context.Context, resilience.CallStart) context.Context { return nil }}
		g := newGuard(t, observed(resilience.Tool{}, adds, replaces, silent, resilience.Observer{}))
		ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), ctxKey("caller"), "caller's"))
		_, err := resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) {
			require.NoError(t, ctx.Err())
			require.NoError(t, context.Cause(ctx))
			assert.Equal(t, "caller's", ctx.Value(ctxKey("caller")))
			assert.Equal(t, 2, ctx.Value(ctxKey("b")))
			cancel(errBoom)
			<-ctx.Done()
			return 0, context.Cause(ctx)
		}, resilience.ForRequest(resilience.Request{Method: "tools/call"}))
		assert.ErrorIs(t, err, resilience.CodeCanceled)
		assert.ErrorIs(t, err, errBoom)
		flush(t, g)
		ctx = <-ended
		assert.Equal(t, 2, ctx.Value(ctxKey("b")))
		assert.NoError(t, context.Cause(context.WithValue(ctx, ctxKey("c"), 3)))
	})
}

// A late result is told of, with how late it was.
func TestObserverLateResult(t *testing.T) {
	for name, tc := range map[string]struct {
		end func() (int, error)
		err error
	}{
		"succeeds": {func() (int, error) { return 1, nil }, nil},
		"fails":    {func() (int, error) { return 0, errBoom }, errBoom},
		"panics":   {func() (int, error) { panic(errBoom) }, errBoom},
		"exits":    {func() (int, error) { runtime.Goexit(); return 0, nil }, resilience.ErrGoexit},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var r recorder
				g := newGuard(t, observed(resilience.Tool{}, r.observer()))
				begin := time.Now()
				_, err := resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) {
					time.Sleep(90 * time.Second)
					return tc.end()
				})
				require.ErrorIs(t, err, resilience.CodeTimeout)
				synctest.Wait()
				assert.Empty(t, told[resilience.LateResult](&r))
				time.Sleep(time.Minute)
				late := told[resilience.LateResult](&r)
				require.Len(t, late, 1)
				assert.Equal(t, resilience.LateResult{Tool: "x", Label: "x", Time: begin.Add(90 * time.Second), Late: 30 * time.Second, Err: late[0].Err}, late[0])
				assert.ErrorIs(t, late[0].Err, tc.err)
				assert.Len(t, told[resilience.CallEnd](&r), 1)
			})
		})
	}
}

// A tool that returns because its context has ended is not late; one that takes its time
// over it, has something else to say or crashes is.
func TestObserverHeededContext(t *testing.T) {
	for name, tc := range map[string]struct {
		takes time.Duration
		err   func(context.Context) error
		late  bool
	}{
		"its error":     {0, context.Context.Err, false},
		"its cause":     {time.Millisecond, context.Cause, false},
		"wrapped":       {999 * time.Millisecond, func(ctx context.Context) error { return fmt.Errorf("query: %w", ctx.Err()) }, false},
		"slow":          {time.Second, context.Context.Err, true},
		"another error": {0, func(context.Context) error { return errBoom }, true},
		"success":       {0, func(context.Context) error { return nil }, true},
		"panic":         {0, func(ctx context.Context) error { panic(ctx.Err()) }, true},
		"a bad error":   {0, func(context.Context) error { return (*typedNil)(nil) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var r recorder
				g := newGuard(t, observed(resilience.Tool{}, r.observer()))
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					time.Sleep(time.Second)
					cancel()
				}()
				_, err := resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) {
					<-ctx.Done()
					time.Sleep(time.Nanosecond) // so that it was given up on
					time.Sleep(tc.takes)
					return 0, tc.err(ctx)
				})
				require.ErrorIs(t, err, resilience.CodeCanceled)
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.Equal(t, tc.late, len(told[resilience.LateResult](&r)) == 1)
			})
		})
	}
}

func TestObserverLateAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		cfg := observed(resilience.Tool{Effect: resilience.ReadOnly}, r.observer())
		cfg.AttemptTimeout = time.Second
		g := newGuard(t, cfg)
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			if resilience.Attempt(ctx) == 1 {
				time.Sleep(3 * time.Second)
			}
			return 0, nil
		})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		late := told[resilience.LateResult](&r)
		require.Len(t, late, 1)
		assert.Equal(t, 2*time.Second, late[0].Late)
	})
}

func TestObserverBreakerChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		cfg := observed(resilience.Tool{Breaker: "db"}, r.observer())
		cfg.Breaker.OnChange = func(string, resilience.State, resilience.State) { r.add("OnChange") }
		g := newGuard(t, cfg)
		open(t, g.Breaker("x"))
		begin := time.Now()
		time.Sleep(31 * time.Second)
		_, err := resilience.Do(t.Context(), g, "x", failing(0, nil))
		require.NoError(t, err)
		open(t, g.Breaker("never listed"))
		synctest.Wait()
		at := begin.Add(31 * time.Second)
		assert.Equal(t, []resilience.BreakerChange{
			{Breaker: "db", From: resilience.Closed, To: resilience.Open, Time: begin},
			{Breaker: "db", From: resilience.Open, To: resilience.HalfOpen, Time: at},
			{Breaker: "db", From: resilience.HalfOpen, To: resilience.Closed, Time: at},
			{Breaker: "never listed", From: resilience.Closed, To: resilience.Open, Time: at},
		}, told[resilience.BreakerChange](&r))
		assert.Len(t, told[string](&r), 4)
	})
}

// bad does something bad wherever it is told of something.
func bad(do func()) resilience.Observer {
	return resilience.Observer{
		Start:   func(context.Context, resilience.CallStart) context.Context { do(); return nil },
		Retry:   func(context.Context, resilience.CallRetry) { do() },
		End:     func(context.Context, resilience.CallEnd) { do() },
		Late:    func(context.Context, resilience.LateResult) { do() },
		Breaker: func(resilience.BreakerChange) { do() },
	}
}

// An observer that panics, exits or blocks fails no call, holds none up for long, and
// keeps nothing from the others.
func TestObserverCannotHarm(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(release chan struct{})
		said []string
	}{
		"panics": {func(chan struct{}) { panic("p") }, []string{"an observer panicked"}},
		"exits":  {func(chan struct{}) { runtime.Goexit() }, nil},
		"blocks": {func(release chan struct{}) { <-release },
			[]string{"an observer's Start takes too long", "an observer has caught up"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var r recorder
				var log bytes.Buffer
				release := make(chan struct{})
				cfg := observed(resilience.Tool{Effect: resilience.ReadOnly},
					bad(func() { tc.do(release) }), r.observer(), resilience.Observer{})
				cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
				g := newGuard(t, cfg)
				begin := time.Now()
				const calls = 20
				for range calls {
					_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
						if resilience.Attempt(ctx) == 1 {
							return 0, resilience.MarkTransient(errBoom)
						}
						return 0, nil
					})
					require.NoError(t, err)
				}
				open(t, g.Breaker("x"))
				synctest.Wait()
				took := time.Since(begin)
				assert.LessOrEqual(t, took, calls*100*time.Millisecond+100*time.Millisecond) // the delay of the retry, and one Start that blocks
				assert.Len(t, r.starts, calls)
				assert.Len(t, told[resilience.CallRetry](&r), calls)
				assert.Len(t, told[resilience.CallEnd](&r), calls)
				assert.Len(t, told[resilience.BreakerChange](&r), 1)
				close(release)
				synctest.Wait()
				_, _ = resilience.Do(t.Context(), g, "x", failing(0, nil))
				flush(t, g)
				for _, said := range tc.said {
					assert.Equal(t, 1, strings.Count(log.String(), said), log.String())
				}
				assert.Equal(t, len(tc.said), strings.Count(log.String(), "Observers[0]"), log.String())
				assert.Equal(t, len(tc.said), strings.Count(log.String(), "\n"), log.String())
			})
		})
	}
}

// One that blocks in End loses what there is no room for, which is said once.
func TestObserverThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		release := make(chan struct{})
		heard := 0
		cfg := one(resilience.Tool{})
		cfg.Observers = []resilience.Observer{{End: func(context.Context, resilience.CallEnd) { <-release; heard++ }}}
		cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
		g := newGuard(t, cfg)
		begin := time.Now()
		const calls = 3000
		for range calls {
			_, err := resilience.Do(t.Context(), g, "x", failing(0, nil))
			require.NoError(t, err)
		}
		assert.Zero(t, time.Since(begin))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, g.Flush(ctx), context.DeadlineExceeded)
		assert.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
		close(release)
		flush(t, g)
		assert.GreaterOrEqual(t, heard, 1024)
		assert.Less(t, heard, calls)
		assert.Contains(t, log.String(), "an observer has caught up")
		assert.Equal(t, 2, strings.Count(log.String(), "\n"), log.String())
		before := heard
		_, _ = resilience.Do(t.Context(), g, "x", failing(0, nil))
		flush(t, g)
		assert.Equal(t, before+1, heard)
	})
}

// A Log that blocks is no worse.
func TestObserverLogThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		cfg := observed(resilience.Tool{}, bad(func() { panic("p") }))
		cfg.Log = slog.New(handlerFunc(func(context.Context, slog.Record) error { <-release; panic("p") }))
		g := newGuard(t, cfg)
		begin := time.Now()
		for range 100 {
			_, err := resilience.Do(t.Context(), g, "x", failing(0, nil))
			require.NoError(t, err)
		}
		assert.Zero(t, time.Since(begin))
		close(release)
		flush(t, g)
	})
}

type handlerFunc func(context.Context, slog.Record) error

func (f handlerFunc) Enabled(context.Context, slog.Level) bool        { return true }
func (f handlerFunc) Handle(ctx context.Context, r slog.Record) error { return f(ctx, r) }
func (f handlerFunc) WithAttrs([]slog.Attr) slog.Handler              { return f }
func (f handlerFunc) WithGroup(string) slog.Handler                   { return f }

// A nested call under the same guard has its own start and end, in the context of the
// outer one; and no goroutine is left.
func TestObserverNestedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		depth := resilience.Observer{Start: func(ctx context.Context, _ resilience.CallStart) context.Context {
			n, _ := ctx.Value(ctxKey("depth")).(int)
			return context.WithValue(ctx, ctxKey("depth"), n+1)
		}}
		var r recorder
		g := newGuard(t, observed(resilience.Tool{}, depth, r.observer()))
		inner := func(ctx context.Context) (int, error) { return ctx.Value(ctxKey("depth")).(int), nil }
		n, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			return resilience.Do(ctx, g, "y", inner)
		})
		require.NoError(t, err)
		assert.Equal(t, 2, n)
		_, err = resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			return resilience.Do(ctx, g, "y", obeyInt)
		})
		require.ErrorIs(t, err, resilience.CodeTimeout)
		synctest.Wait()
		assert.Len(t, told[resilience.CallEnd](&r), 4)
	})
}

// Many goroutines, one observer without a lock of its own: it is told one thing at a time.
func TestObserverIsToldOneThingAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, began := 0, 0
		var starts sync.Mutex
		cfg := resilience.Config{Observers: []resilience.Observer{{
			Start: func(context.Context, resilience.CallStart) context.Context {
				starts.Lock()
				defer starts.Unlock()
				began++
				return nil
			},
			End: func(context.Context, resilience.CallEnd) { n++ },
		}}}
		g := newGuard(t, cfg)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for range 10 {
					_, err := resilience.Do(t.Context(), g, "x", failing(0, nil))
					assert.NoError(t, err)
				}
				flush(t, g)
			})
		}
		wg.Wait()
		assert.Equal(t, 200, n)
		assert.Equal(t, 200, began)
	})
}

func TestErrUnfinished(t *testing.T) {
	assert.Equal(t, resilience.Invalid, resilience.Classify(errors.Join(resilience.ErrUnfinished, errBoom)))
	g := newGuard(t, one(resilience.Tool{Effect: resilience.ReadOnly}))
	for range 10 {
		r := resilience.Run(t.Context(), g, "x", func(context.Context) (int, error) { return 1, resilience.ErrUnfinished })
		assert.Equal(t, 1, r.Attempts)
		assert.Equal(t, 1, r.Value)
	}
	assert.Equal(t, resilience.Closed, g.Breaker("x").State())
}

// A guard that is a package variable may tell of calls in a bubble and outside of it.
func TestObserverFlushInABubble(t *testing.T) {
	release := make(chan struct{})
	blocked := make(chan struct{}, 100)
	g := newGuard(t, observed(resilience.Tool{}, resilience.Observer{End: func(context.Context, resilience.CallEnd) {
		blocked <- struct{}{}
		<-release
	}}))
	_, _ = resilience.Do(t.Context(), g, "x", failing(0, nil))
	<-blocked // outside
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _ = resilience.Do(t.Context(), g, "x", failing(0, nil))
		assert.ErrorIs(t, g.Flush(ctx), context.DeadlineExceeded)
	})
	close(release)
	flush(t, g)
	assert.Len(t, blocked, 1)
}

// The limit is the tool's: an observer that is slow uses up none of it.
func TestObserverSlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := resilience.Observer{Start: func(context.Context, resilience.CallStart) context.Context {
			time.Sleep(90 * time.Millisecond)
			return nil
		}}
		cfg := observed(resilience.Tool{Timeout: 50 * time.Millisecond}, slow, slow)
		g := newGuard(t, cfg)
		r := resilience.Run(t.Context(), g, "x", func(context.Context) (int, error) {
			time.Sleep(40 * time.Millisecond)
			return 0, nil
		})
		assert.Nil(t, r.Err)
		assert.Equal(t, 40*time.Millisecond, r.Duration)
		_, err := resilience.Do(t.Context(), g, "x", obeyInt)
		assert.ErrorIs(t, err, resilience.CodeTimeout)
	})
}

// Whoever says that ErrUnfinished is a failure is told of one.
func TestErrUnfinishedByAnotherClassify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		cfg := observed(resilience.Tool{}, r.observer())
		cfg.Retry.Classify = func(error) resilience.Class { return resilience.Permanent }
		g := newGuard(t, cfg)
		_, err := resilience.Do(t.Context(), g, "x", failing(9, resilience.ErrUnfinished))
		require.Error(t, err)
		flush(t, g)
		ends := told[resilience.CallEnd](&r)
		require.Len(t, ends, 1)
		assert.False(t, ends[0].Unfinished)
		assert.ErrorIs(t, ends[0].Err, resilience.ErrUnfinished)
	})
}
