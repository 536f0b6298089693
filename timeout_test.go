package resilience_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDefaultTier(t *testing.T) {
	for _, tool := range []string{"cypher", "impact", "explore", "Cypher", " EXPLORE "} {
		assert.Equal(t, resilience.Heavy, resilience.DefaultTier(tool), "%q", tool)
	}
	for _, tool := range []string{"search", "grep", "read", "context", "overview", "highlight", "cyphers", "", "anything"} {
		assert.Equal(t, resilience.Quick, resilience.DefaultTier(tool), "%q", tool)
	}
}

// hang ignores its context. In a bubble a test must sleep past it at the end.
func hang(d time.Duration) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		time.Sleep(d)
		return "late", nil
	}
}

// obey waits for the end of its context, as a good tool does.
func obey(ctx context.Context) (string, error) {
	<-ctx.Done()
	return "part", ctx.Err()
}

func TestWithTimeout(t *testing.T) {
	for name, tc := range map[string]struct {
		fn    func(context.Context) (string, error)
		value string
		is    []error
		err   error // exactly
		took  time.Duration
	}{
		"success":          {fn: func(context.Context) (string, error) { return "v", nil }, value: "v"},
		"failure":          {fn: func(context.Context) (string, error) { return "v", errBoom }, value: "v", err: errBoom},
		"just in time":     {fn: hang(time.Second - 1), value: "late", took: time.Second - 1},
		"ignores the end":  {fn: hang(time.Hour), is: []error{resilience.CodeTimeout, context.DeadlineExceeded}, took: time.Second},
		"goexit":           {fn: func(context.Context) (string, error) { runtime.Goexit(); return "", nil }, is: []error{resilience.CodeToolFailed, resilience.ErrGoexit}},
		"panic":            {fn: func(context.Context) (string, error) { panic("p") }, is: []error{resilience.CodeToolFailed}},
		"panic with error": {fn: func(context.Context) (string, error) { panic(io.EOF) }, is: []error{resilience.CodeToolFailed, io.EOF}},
		"panic with nil":   {fn: func(context.Context) (string, error) { panic(nil) }, is: []error{resilience.CodeToolFailed}},
		"own deadline":     {fn: func(context.Context) (string, error) { return "", context.DeadlineExceeded }, err: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				value, err := resilience.WithTimeout(t.Context(), "x", time.Second, tc.fn)
				assert.Equal(t, tc.took, time.Since(start))
				assert.Equal(t, tc.value, value)
				for _, target := range tc.is {
					assert.ErrorIs(t, err, target)
				}
				if tc.is == nil {
					assert.Equal(t, tc.err, err, "unchanged")
				}
				time.Sleep(time.Hour) // past the tool
			})
		})
	}
}

// A tool that obeys returns at the very moment of the end. Which of the two is seen
// first must not matter.
func TestWithTimeoutOfAnObedientTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			_, err := resilience.WithTimeout(t.Context(), "x", time.Second, obey)
			require.ErrorIs(t, err, resilience.CodeTimeout)
			require.EqualError(t, err, "TIMEOUT: Tool 'x' exceeded timeout of 1s")
		}
	})
}

func TestWithTimeoutPanicHasAStack(t *testing.T) {
	_, err := resilience.WithTimeout(t.Context(), "x", time.Second, func(context.Context) (int, error) { panic("p") })
	var p *resilience.PanicError
	require.ErrorAs(t, err, &p)
	assert.Equal(t, "p", p.Value)
	assert.EqualError(t, p, "panic: p")
	assert.Contains(t, string(p.Stack), "TestWithTimeoutPanicHasAStack")
}

func TestWithTimeoutOfTheCaller(t *testing.T) {
	errGone := errors.New("user closed the window")
	for name, tc := range map[string]struct {
		ctx     func(context.Context) (context.Context, context.CancelFunc)
		is      []error
		not     error
		message string
	}{
		"canceled": {
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancelCause(ctx)
				time.AfterFunc(100*time.Millisecond, func() { cancel(errGone) })
				return ctx, func() { cancel(nil) }
			},
			[]error{resilience.CodeCanceled, context.Canceled, errGone}, context.DeadlineExceeded, "The call was canceled",
		},
		"shorter deadline": {
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeoutCause(ctx, 100*time.Millisecond, errGone)
			},
			[]error{resilience.CodeTimeout, context.DeadlineExceeded, errGone}, context.Canceled, "Tool 'x' exceeded timeout of 100ms",
		},
		"equal deadline": {
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Second)
			},
			[]error{resilience.CodeTimeout, context.DeadlineExceeded}, context.Canceled, "Tool 'x' exceeded timeout of 1s",
		},
		"a deadline that isn't kept": {
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				return brokenDeadline{ctx, time.Now().Add(100 * time.Millisecond)}, func() {}
			},
			[]error{resilience.CodeTimeout, context.DeadlineExceeded}, context.Canceled, "Tool 'x' exceeded timeout of 100ms",
		},
		"a deadline that isn't told": {
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				return secretDeadline{ctx}, cancel
			},
			[]error{resilience.CodeTimeout, context.DeadlineExceeded}, context.Canceled, "Tool 'x' timed out",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := tc.ctx(t.Context())
				defer cancel()
				var seen error
				_, err := resilience.WithTimeout(ctx, "x", time.Second, func(ctx context.Context) (int, error) {
					<-ctx.Done()
					seen = context.Cause(ctx)
					return 0, errBoom
				})
				synctest.Wait()
				for _, e := range []error{err, seen} {
					for _, target := range tc.is {
						assert.ErrorIs(t, e, target)
					}
					assert.NotErrorIs(t, e, tc.not)
					var re *resilience.Error
					require.ErrorAs(t, e, &re)
					assert.Equal(t, tc.message, re.Message)
				}
			})
		})
	}
}

type brokenDeadline struct {
	context.Context
	at time.Time
}

func (b brokenDeadline) Deadline() (time.Time, bool) { return b.at, true }

type secretDeadline struct{ context.Context }

func (secretDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }

func TestWithTimeoutRefuses(t *testing.T) {
	fine := func(context.Context) (int, error) { panic("not called") }
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	for name, tc := range map[string]struct {
		ctx     context.Context
		tool    string
		timeout time.Duration
		fn      func(context.Context) (int, error)
		want    string
	}{
		"empty name":       {t.Context(), "", time.Second, fine, "VALIDATION_ERROR: The tool's name is empty"},
		"zero timeout":     {t.Context(), "x", 0, fine, "VALIDATION_ERROR: timeout is 0s: it must be positive"},
		"negative timeout": {t.Context(), "x", -time.Second, fine, "VALIDATION_ERROR: timeout is -1s: it must be positive"},
		"nil function":     {t.Context(), "x", time.Second, nil, "TOOL_NOT_FOUND: Tool 'x' not found: its function is nil"},
		"canceled":         {gone, "x", time.Second, fine, "CANCELED: The call was canceled"},
		"too late":         {late, "x", time.Second, fine, "TIMEOUT: Tool 'x' timed out"},
	} {
		_, err := resilience.WithTimeout(tc.ctx, tc.tool, tc.timeout, tc.fn)
		assert.EqualError(t, err, tc.want, name)
	}
	assert.PanicsWithValue(t, "resilience: nil context", func() {
		_, _ = resilience.WithTimeout(noContext, "x", time.Second, fine)
	})
}

// The context that a tool gets is not the standard library's own. It must behave
// like one in everything that tools do with contexts.
func TestContext(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		parent := context.WithValue(t.Context(), key{}, "v")
		start := time.Now()
		finished := make(chan struct{})
		_, err := resilience.WithTimeout(parent, "x", time.Minute, func(ctx context.Context) (int, error) {
			defer close(finished)
			deadline, ok := ctx.Deadline()
			assert.True(t, ok)
			assert.Equal(t, start.Add(time.Minute), deadline)
			assert.Equal(t, "v", ctx.Value(key{}))
			assert.NoError(t, ctx.Err())
			assert.NoError(t, context.Cause(ctx))
			assert.NotContains(t, context.WithValue(ctx, key{}, 1).(interface{ String() string }).String(), "mutex")

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
			assert.Equal(t, "w", valued.Value(key{}))

			// After the end everything is at once.
			late, cancel := context.WithCancel(ctx)
			defer cancel()
			assert.Equal(t, context.DeadlineExceeded, late.Err())
			assert.ErrorIs(t, context.Cause(late), resilience.CodeTimeout)
			now := make(chan struct{})
			stop := ctx.(interface{ AfterFunc(func()) func() bool }).AfterFunc(func() { close(now) })
			<-now
			assert.False(t, stop())
			return 0, nil
		})
		assert.ErrorIs(t, err, resilience.CodeTimeout)
		<-finished
	})
}

// Once a call has returned, what it started is told to stop.
func TestContextEndsWithTheCall(t *testing.T) {
	var kept, child context.Context
	var forget context.CancelFunc
	_, err := resilience.WithTimeout(t.Context(), "x", time.Minute, func(ctx context.Context) (int, error) {
		kept = ctx
		child, forget = context.WithCancel(ctx)
		return 0, nil
	})
	require.NoError(t, err)
	assert.Equal(t, context.Canceled, kept.Err())
	assert.Equal(t, context.Canceled, context.Cause(kept))
	<-kept.Done()
	assert.Equal(t, context.Canceled, child.Err(), "without its own cancel")
	forget()
}
