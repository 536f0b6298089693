package resilience_test

import (
	"context"
	"errors"
	"fmt"
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

type ctxKey string

// A recorder keeps the events that its observer receives.
type recorder struct {
	mu     sync.Mutex // because Start is called concurrently
	events []any
}

func (r *recorder) add(event any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, event)
}

func (r *recorder) observer() resilience.Observer {
	return resilience.Observer{
		Start:   func(_ context.Context, e resilience.CallStart) context.Context { r.add(e); return nil },
		Retry:   func(_ context.Context, e resilience.CallRetry) { r.add(e) },
		End:     func(_ context.Context, e resilience.CallEnd) { r.add(e) },
		Late:    func(_ context.Context, e resilience.LateResult) { r.add(e) },
		Breaker: func(e resilience.BreakerChange) { r.add(e) },
	}
}

// received returns the events of one type.
func received[E any](r *recorder) (events []E) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e, ok := e.(E); ok {
			events = append(events, e)
		}
	}
	return events
}

// observed returns the Config of one with observers.
func observed(x resilience.Tool, all ...resilience.Observer) resilience.Config {
	cfg := configWith(x)
	cfg.Observers = all
	return cfg
}

// observedGuard returns a guard with observers.
func observedGuard(t *testing.T, x resilience.Tool, all ...resilience.Observer) *resilience.Guard {
	t.Helper()
	return newGuard(t, observed(x, all...))
}

// flush waits, in a bubble, until the observers have received everything.
func flush(t *testing.T, g *resilience.Guard) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, g.Flush(ctx))
}

// mustSucceed makes a call that must succeed.
func mustSucceed(t *testing.T, g *resilience.Guard) {
	t.Helper()
	_, err := resilience.Do(t.Context(), g, "x", failing(0, nil))
	require.NoError(t, err)
}

func obeyInt(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }

func unfinished(context.Context) (int, error) { return 1, resilience.ErrUnfinished }

func exits(context.Context) (int, error) { runtime.Goexit(); return 0, nil }

// An endCase is a call and the end of it that observers must receive.
type endCase struct {
	ctx      context.Context // nil means that of the test
	unnamed  bool
	fn       func(context.Context) (int, error)
	opts     []resilience.Option
	open     bool // whether the breaker is open
	code     resilience.Code
	timeout  time.Duration
	attempts int
	retries  int

	unfinished bool
}

func TestObserverReceivesOneStartAndOneEndOfEachCall(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]endCase{
		"success": {
			fn: failing(0, nil), timeout: time.Minute, attempts: 1,
		},
		"failure": {
			fn:   failing(9, resilience.MarkPermanent(errBoom)),
			code: resilience.CodeToolFailed, timeout: time.Minute, attempts: 1,
		},
		"success after retries": {
			fn: failing(2, errBoom), timeout: time.Minute, attempts: 3, retries: 2,
		},
		"retries exhausted": {
			fn:   failing(9, errBoom),
			code: resilience.CodeRetryExhausted, timeout: time.Minute, attempts: 4, retries: 3,
		},
		"timeout": {
			fn: obeyInt, code: resilience.CodeTimeout, timeout: time.Minute, attempts: 1,
		},
		"timeout by an option": {
			fn:   obeyInt,
			opts: []resilience.Option{resilience.Timeout(time.Second)},
			code: resilience.CodeTimeout, timeout: time.Second, attempts: 1,
		},
		"panic": {
			fn:   func(context.Context) (int, error) { panic("p") },
			code: resilience.CodeToolFailed, timeout: time.Minute, attempts: 1,
		},
		"goexit": {
			fn: exits, code: resilience.CodeToolFailed, timeout: time.Minute, attempts: 1,
		},
		"open breaker": {
			fn: failing(0, nil), open: true, code: resilience.CodeCircuitOpen, timeout: time.Minute,
		},
		"no name": {
			unnamed: true, fn: failing(0, nil), code: resilience.CodeValidation,
		},
		"no function": {
			code: resilience.CodeToolNotFound,
		},
		"invalid timeout": {
			fn:   failing(0, nil),
			opts: []resilience.Option{resilience.Timeout(-1)},
			code: resilience.CodeValidation,
		},
		"canceled": {
			ctx: canceled, fn: failing(0, nil), code: resilience.CodeCanceled,
		},
		"unfinished": {
			fn: unfinished, unfinished: true, code: resilience.CodeValidation, timeout: time.Minute, attempts: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { tc.run(t, false) })
		})
		if name == "goexit" {
			continue // see TestObserverReceivesTheEndOfACooperativeToolThatExits
		}
		t.Run(name+", cooperative", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { tc.run(t, true) })
		})
	}
}

func (tc endCase) run(t *testing.T, cooperative bool) {
	var r recorder
	g := observedGuard(t, resilience.Tool{Effect: resilience.ReadOnly, Cooperative: cooperative}, r.observer())
	ctx, tool := tc.ctx, "x"
	if ctx == nil {
		ctx = t.Context()
	}
	if tc.unnamed {
		tool = ""
	}
	if tc.open {
		trip(t, g.Breaker("x"))
	}

	start := time.Now()
	res := resilience.Run(ctx, g, tool, tc.fn, tc.opts...)
	flush(t, g)

	assert.Equal(t, []resilience.CallStart{{Tool: tool, Time: start}}, received[resilience.CallStart](&r))
	ends := received[resilience.CallEnd](&r)
	require.Len(t, ends, 1)
	e := ends[0]
	assert.Equal(t, tool, e.Tool)
	assert.Equal(t, tc.attempts, e.Attempts)
	assert.Equal(t, tc.timeout, e.Timeout)
	assert.Equal(t, res.Duration, e.Duration)
	assert.Equal(t, start.Add(res.Duration), e.Time)
	assert.Equal(t, tc.unfinished, e.Unfinished)
	assert.Nil(t, e.Arguments)

	if tc.code == "" {
		assert.Nil(t, res.Err)
	} else {
		assert.ErrorIs(t, res.Err, tc.code)
	}
	switch {
	case tc.unfinished:
		assert.Nil(t, e.Err)
		assert.ErrorIs(t, res.Err, resilience.ErrUnfinished)
	case res.Err == nil:
		assert.Nil(t, e.Err)
	default:
		require.NotNil(t, e.Err)
		assert.ErrorIs(t, e.Err, res.Err)
	}

	retries := received[resilience.CallRetry](&r)
	require.Len(t, retries, tc.retries)
	at, delay := start, 100*time.Millisecond
	for i, e := range retries {
		want := resilience.CallRetry{Tool: "x", Label: "x", Time: at, Attempt: i + 1, Delay: delay, Err: errBoom}
		assert.Equal(t, want, e)
		at, delay = at.Add(delay), 2*delay
	}
}

func TestObserverReceivesTheEndOfACooperativeToolThatExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		g := observedGuard(t, resilience.Tool{Cooperative: true}, r.observer())

		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = resilience.Do(t.Context(), g, "x", exits)
		}()
		<-done
		flush(t, g)

		ends := received[resilience.CallEnd](&r)
		require.Len(t, ends, 1)
		assert.ErrorIs(t, ends[0].Err, resilience.ErrGoexit)
	})
}

func TestObserverReceivesTheEndOfAnOverloadedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		cfg := observed(resilience.Tool{}, r.observer())
		cfg.MaxAbandoned = 1
		g := newGuard(t, cfg)

		for range 2 {
			_, err := resilience.Do(t.Context(), g, "x", hang(time.Hour))
			require.Error(t, err)
		}
		flush(t, g)

		ends := received[resilience.CallEnd](&r)
		require.Len(t, ends, 2)
		assert.ErrorIs(t, ends[1].Err, resilience.CodeOverloaded)
		assert.Equal(t, 0, ends[1].Attempts)
		time.Sleep(2 * time.Hour)
	})
}

// A call under the same guard, made by a tool, has its own events, in the context of the outer call.
func TestObserverReceivesNestedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := resilience.Observer{Start: func(ctx context.Context, _ resilience.CallStart) context.Context {
			n, _ := ctx.Value(ctxKey("depth")).(int)
			return context.WithValue(ctx, ctxKey("depth"), n+1)
		}}
		depth := func(ctx context.Context) (int, error) { return ctx.Value(ctxKey("depth")).(int), nil }
		var r recorder
		g := observedGuard(t, resilience.Tool{}, counts, r.observer())
		nested := func(inner func(context.Context) (int, error)) (int, error) {
			return resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				return resilience.Do(ctx, g, "y", inner)
			})
		}

		n, err := nested(depth)
		require.NoError(t, err)
		assert.Equal(t, 2, n)
		_, err = nested(obeyInt)
		require.ErrorIs(t, err, resilience.CodeTimeout)

		synctest.Wait()
		assert.Len(t, received[resilience.CallEnd](&r), 4)
	})
}

// Agents make up names of tools.
func TestObserverReceivesABoundedNumberOfLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		g := observedGuard(t, resilience.Tool{}, r.observer())
		label := func(tool string, opts ...resilience.Option) string {
			_, _ = resilience.Do(t.Context(), g, tool, failing(0, nil), opts...)
			flush(t, g)
			ends := received[resilience.CallEnd](&r)
			return ends[len(ends)-1].Label
		}

		assert.Equal(t, "x", label("x"))
		assert.Equal(t, "y", label("y"))
		assert.Equal(t, "(others)", label("made up", resilience.ForRequest(resilience.Request{Unknown: true})))
		assert.Equal(t, "(others)", label(strings.Repeat("y", 300)))

		invalid := resilience.Timeout(-1) // such a call doesn't come to a tool
		assert.Equal(t, "x", label("x", invalid))
		assert.Equal(t, "y", label("y", invalid))
		assert.Equal(t, "(others)", label("z", invalid))
		assert.Len(t, g.Health(), 3)
	})
}

func TestObserverReceivesRedactedArgumentsWithDebug(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		g := observedGuard(t, resilience.Tool{}, r.observer())
		args := resilience.Args(map[string]any{"q": "word", "password": "p"})
		invalid := resilience.Timeout(-1)

		_, _ = resilience.Do(t.Context(), g, "x", failing(0, nil), args)
		_, _ = resilience.Do(t.Context(), g, "x", failing(0, nil), args, resilience.Debug())
		_, _ = resilience.Do(t.Context(), g, "x", failing(0, nil), args, resilience.Debug(), invalid)
		flush(t, g)

		ends := received[resilience.CallEnd](&r)
		require.Len(t, ends, 3)
		assert.Nil(t, ends[0].Arguments)
		assert.Equal(t, map[string]any{"q": "word", "password": "[REDACTED]"}, ends[1].Arguments)
		assert.Nil(t, ends[2].Arguments, "they weren't redacted yet")
	})
}

// A lateText takes a while to say what it is, which is asked for the details.
type lateText struct{}

func (lateText) Error() string { time.Sleep(50 * time.Millisecond); return "late" }

func TestObserverAndCallerReceiveTheSameDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		g := observedGuard(t, resilience.Tool{}, r.observer())
		result := resilience.Run(t.Context(), g, "x", func(context.Context) (int, error) {
			time.Sleep(time.Second)
			return 0, lateText{}
		}, resilience.Debug())
		flush(t, g)
		ends := received[resilience.CallEnd](&r)
		require.Len(t, ends, 1)
		assert.Equal(t, ends[0].Duration, result.Duration)
	})
}

func TestObserverReceivesALateResult(t *testing.T) {
	for name, tc := range map[string]struct {
		end func() (int, error)
		err error
	}{
		"succeeds":     {func() (int, error) { return 1, nil }, nil},
		"fails":        {func() (int, error) { return 0, errBoom }, errBoom},
		"panics":       {func() (int, error) { panic(errBoom) }, errBoom},
		"calls Goexit": {func() (int, error) { runtime.Goexit(); return 0, nil }, resilience.ErrGoexit},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var r recorder
				g := observedGuard(t, resilience.Tool{}, r.observer())
				start := time.Now()

				_, err := resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) {
					time.Sleep(90 * time.Second)
					return tc.end()
				})
				require.ErrorIs(t, err, resilience.CodeTimeout)
				synctest.Wait()
				assert.Empty(t, received[resilience.LateResult](&r))
				time.Sleep(time.Minute)

				late := received[resilience.LateResult](&r)
				require.Len(t, late, 1)
				assert.ErrorIs(t, late[0].Err, tc.err)
				late[0].Err = nil
				assert.Equal(t, resilience.LateResult{
					Tool:  "x",
					Label: "x",
					Time:  start.Add(90 * time.Second),
					Late:  30 * time.Second,
				}, late[0])
				assert.Len(t, received[resilience.CallEnd](&r), 1)
			})
		})
	}
}

func TestObserverReceivesTheLateResultOfAnAttempt(t *testing.T) {
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

		late := received[resilience.LateResult](&r)
		require.Len(t, late, 1)
		assert.Equal(t, 2*time.Second, late[0].Late)
	})
}

// A tool respects its context if it returns the context's error within a second of its end.
func TestObserverReceivesNoLateResultOfAToolThatRespectsItsContext(t *testing.T) {
	wrapped := func(ctx context.Context) error { return fmt.Errorf("query: %w", ctx.Err()) }
	ends := map[string]struct {
		caller caller
		code   resilience.Code
	}{
		"of the caller": {leavingAfter(time.Second), resilience.CodeCanceled},
		"with a cause": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(time.Second, func() { cancel(errBoom) })
			return ctx, func() { cancel(nil) }
		}, resilience.CodeCanceled},
		"at its timeout": {context.WithCancel, resilience.CodeTimeout},
	}
	for name, tc := range map[string]struct {
		takes time.Duration
		err   func(context.Context) error
		late  bool
	}{
		"its error":     {0, context.Context.Err, false},
		"its cause":     {time.Millisecond, context.Cause, false},
		"wrapped":       {time.Second - 2*time.Nanosecond, wrapped, false},
		"slow":          {time.Second - time.Nanosecond, context.Context.Err, true},
		"another error": {0, func(context.Context) error { return errBoom }, true},
		"success":       {0, func(context.Context) error { return nil }, true},
		"panic":         {0, func(ctx context.Context) error { panic(ctx.Err()) }, true},
		"typed nil":     {0, func(context.Context) error { return (*typedNil)(nil) }, true},
	} {
		for end, by := range ends {
			runInBubble(t, name+", the end "+end, func(t *testing.T) {
				var r recorder
				g := observedGuard(t, resilience.Tool{Timeout: 2 * time.Second}, r.observer())
				ctx, cancel := by.caller(t.Context())
				defer cancel()

				_, err := resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) {
					<-ctx.Done()
					time.Sleep(time.Nanosecond) // so that the attempt is abandoned
					time.Sleep(tc.takes)
					return 0, tc.err(ctx)
				})
				require.ErrorIs(t, err, by.code)
				time.Sleep(time.Minute)
				synctest.Wait()

				assert.Equal(t, tc.late, len(received[resilience.LateResult](&r)) == 1)
			})
		}
	}
}

func TestObserverReceivesChangesOfBreakers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		cfg := observed(resilience.Tool{Breaker: "db"}, r.observer())
		cfg.Breaker.OnChange = func(string, resilience.State, resilience.State) { r.add("OnChange") }
		g := newGuard(t, cfg)
		start := time.Now()

		trip(t, g.Breaker("x"))
		time.Sleep(31 * time.Second)
		mustSucceed(t, g)
		trip(t, g.Breaker("unlisted"))
		synctest.Wait()

		closed, opened, halfOpen := resilience.StateClosed, resilience.StateOpen, resilience.StateHalfOpen
		later := start.Add(31 * time.Second)
		assert.Equal(t, []resilience.BreakerChange{
			{Breaker: "db", Label: "db", From: closed, To: opened, Time: start},
			{Breaker: "db", Label: "db", From: opened, To: halfOpen, Cause: resilience.CauseCooldown, Time: later},
			{Breaker: "db", Label: "db", From: halfOpen, To: closed, Time: later},
			{Breaker: "unlisted", Label: "unlisted", From: closed, To: opened, Time: later},
		}, received[resilience.BreakerChange](&r))
		assert.Len(t, received[string](&r), 4)
	})
}

func TestErrUnfinishedIsNeitherFailureNorRetried(t *testing.T) {
	question := &resilience.Error{Message: "Which account?", Err: resilience.ErrUnfinished}
	assert.Equal(t, resilience.ClassInvalid, resilience.Classify(errors.Join(resilience.ErrUnfinished, errBoom)))
	assert.Equal(t, resilience.ClassInvalid, resilience.Classify(question))
	g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly})
	for range 10 {
		r := resilience.Run(t.Context(), g, "x", unfinished)
		assert.Equal(t, 1, r.Attempts)
		assert.Equal(t, 1, r.Value)
	}
	assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
}

func TestErrUnfinishedStaysSoWhateverClassifySays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		cfg := observed(resilience.Tool{Effect: resilience.ReadOnly}, r.observer())
		cfg.Retry.Classify = func(error) resilience.Class { return resilience.ClassTransient }
		cfg.Breaker.Classify = cfg.Retry.Classify
		g := newGuard(t, cfg)

		_, err := resilience.Do(t.Context(), g, "x", unfinished)
		require.ErrorIs(t, err, resilience.ErrUnfinished)
		flush(t, g)

		ends := received[resilience.CallEnd](&r)
		require.Len(t, ends, 1)
		assert.True(t, ends[0].Unfinished)
		assert.Equal(t, 1, ends[0].Attempts)
		assert.Zero(t, g.Health()[0].ConsecutiveFailures)
	})
}

func TestObserversHearWhichFailuresCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		cfg := configWith(resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}})
		cfg.Observers = []resilience.Observer{r.observer()}
		g := newGuard(t, cfg)
		for _, fn := range []toolFunc{
			succeed, failing(9, errBoom), failing(9, resilience.MarkInvalid(errBoom)), unfinished,
			func(context.Context) (int, error) { g.Breaker("x").Reset(); return 0, errBoom }, // an earlier state's
		} {
			_, _ = resilience.Do(t.Context(), g, "x", fn)
		}
		flush(t, g)
		var counted []bool
		for _, e := range received[resilience.CallEnd](&r) {
			counted = append(counted, e.Counted)
		}
		assert.Equal(t, []bool{false, true, false, false, false}, counted)
	})
}

func TestDurationCountsNeitherStartNorSlowArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var end resilience.CallEnd
		g := newGuard(t, resilience.Config{Debug: true, Observers: []resilience.Observer{{
			Start: func(context.Context, resilience.CallStart) context.Context {
				time.Sleep(20 * time.Millisecond)
				return nil
			},
			End: func(_ context.Context, e resilience.CallEnd) { end = e },
		}}})
		slow := resilience.Args(map[string]any{"a": marshaler{func() { time.Sleep(30 * time.Millisecond) }}})
		_, err := resilience.Do(t.Context(), g, "x", hang(time.Second), slow)
		assert.NoError(t, err)
		flush(t, g)
		assert.Equal(t, time.Second, end.Duration)
	})
}
