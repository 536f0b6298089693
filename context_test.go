package resilience_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"syscall"
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
		parent := context.WithValue(t.Context(), key{}, "v")
		finished := make(chan struct{})
		_, err := resilience.WithTimeout(parent, "x", time.Minute, func(ctx context.Context) (int, error) {
			defer close(finished)
			assert.Equal(t, "v", ctx.Value(key{}))
			assert.NoError(t, ctx.Err())
			assert.NoError(t, context.Cause(ctx))

			before := goroutines("context.(*cancelCtx)")
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			longer, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			dropped, cancel := context.WithCancel(ctx)
			cancel()
			assert.LessOrEqual(t, goroutines("context.(*cancelCtx)"), before, "a child costs no goroutine")

			free := context.WithoutCancel(ctx)
			called, stopped := false, context.AfterFunc(ctx, func() { t.Error("called though stopped") })
			context.AfterFunc(ctx, func() { called = true })
			assert.True(t, stopped())
			assert.False(t, stopped())

			<-ctx.Done()
			synctest.Wait()
			assert.True(t, called)
			late, cancel := context.WithCancel(ctx)
			defer cancel()
			for _, c := range []context.Context{ctx, child, longer, late} {
				assert.Equal(t, context.DeadlineExceeded, c.Err())
				assert.ErrorIs(t, context.Cause(c), resilience.CodeTimeout)
			}
			assert.Equal(t, context.Canceled, context.Cause(dropped))
			assert.NoError(t, free.Err())
			assert.Equal(t, "v", free.Value(key{}), "values stay")
			return 0, nil
		})
		assert.ErrorIs(t, err, resilience.CodeTimeout)
		<-finished
	})
}

// A context ends with its call, and its children end with it.
func TestContextEndsWithItsCall(t *testing.T) {
	type contexts = []context.Context
	for name, keep := range map[string]func(*testing.T, context.Context) contexts{
		"Done is only used afterwards": func(_ *testing.T, ctx context.Context) contexts { return contexts{ctx} },
		"Done is used in the call": func(t *testing.T, ctx context.Context) contexts {
			child, cancel := context.WithCancel(ctx)
			context.AfterFunc(t.Context(), cancel)
			return contexts{ctx, child}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBothModes(t, func(t *testing.T, cooperative bool) {
				cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly, Cooperative: cooperative})
				var kept contexts
				_, err := resilience.Do(t.Context(), newGuard(t, cfg), "x", func(ctx context.Context) (int, error) {
					kept = append(kept, keep(t, ctx)...)
					return failing(1, errBoom)(ctx)
				})
				require.NoError(t, err)

				require.GreaterOrEqual(t, len(kept), 2)
				for _, ctx := range kept {
					<-ctx.Done()
					assert.Equal(t, context.Canceled, ctx.Err())
					assert.Equal(t, context.Canceled, context.Cause(ctx))
				}
				synctest.Wait()
			})
		})
	}
}

// Mocks print their arguments. The fields of a context that is in use must not be read then.
func TestContextsPrintTheirTypes(t *testing.T) {
	print := func(ctx context.Context) (string, error) { return fmt.Sprint(ctx), nil }
	text, err := resilience.Do(t.Context(), guardWith(t, resilience.Tool{}), "x", print)
	require.NoError(t, err)
	assert.Equal(t, "resilience.attempt", text)

	text, err = resilience.WithTimeout(t.Context(), "x", time.Second, print)
	require.NoError(t, err)
	assert.Equal(t, "resilience.callContext", text)
}

func TestContextHasTheDeadlineOfTheCall(t *testing.T) {
	long := resilience.Tool{MaxTimeout: time.Hour}
	for name, tc := range map[string]struct {
		tool    resilience.Tool
		callers time.Duration
		want    time.Duration
	}{
		"the caller's":                 {callers: 59 * time.Second, want: 59 * time.Second},
		"the tool's own":               {callers: 61 * time.Second, want: time.Minute},
		"MaxTimeout":                   {tool: long, want: time.Hour}, // a backend must outlast the progress
		"the caller's, not MaxTimeout": {tool: long, callers: time.Minute, want: time.Minute},
	} {
		runInBubble(t, name, func(t *testing.T) {
			ctx := contextWithin(t, tc.callers)
			_, err := resilience.Do(ctx, guardWith(t, tc.tool), "x", func(ctx context.Context) (int, error) {
				deadline, _ := ctx.Deadline()
				assert.Equal(t, tc.want, time.Until(deadline))
				return 0, nil
			})
			require.NoError(t, err)
		})
	}
}

// The longest duration means no timeout, in each place.
func TestHugeTimeoutsDoNotOverflow(t *testing.T) {
	const huge = math.MaxInt64
	inBothModes(t, func(t *testing.T, cooperative bool) {
		cfg := configWith(resilience.Tool{Timeout: huge, MaxTimeout: huge, Cooperative: cooperative})
		cfg.Breaker = resilience.BreakerConfig{Failures: 1, Cooldown: huge, ProbeTimeout: huge}
		g := newGuard(t, cfg)
		time.Sleep(time.Hour)

		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			resilience.ReportProgress(ctx)
			resume := resilience.Pause(ctx)
			time.Sleep(time.Hour)
			resume()
			resilience.ReportProgress(ctx)
			_, err := resilience.WithTimeout(ctx, "y", huge, hang(time.Hour))
			assert.NoError(t, err)
			assert.NoError(t, ctx.Err())
			return 0, resilience.MarkPermanent(errBoom)
		})

		assert.ErrorIs(t, err, resilience.CodeToolFailed)
		time.Sleep(time.Hour)
		assert.Equal(t, resilience.StateOpen, g.Breaker("x").State())
		assert.Positive(t, g.Breaker("x").RetryAfter())
	})
}

// A watchedContext counts the functions that wait for its end.
type watchedContext struct {
	context.Context
	waiting atomic.Int64
}

// Value hides the standard library's context, which the context package would use directly.
func (c *watchedContext) Value(any) any { return nil }

func (c *watchedContext) AfterFunc(f func()) func() bool {
	c.waiting.Add(1)
	stop := context.AfterFunc(c.Context, f)
	return func() bool {
		c.waiting.Add(-1)
		return stop()
	}
}

// The context of a session outlives its calls by far, so they must leave nothing with it.
func TestCallsLeaveNothingWithTheContextOfTheirCaller(t *testing.T) {
	inBothModes(t, func(t *testing.T, cooperative bool) {
		g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly, Cooperative: cooperative})
		session := &watchedContext{Context: t.Context()}

		for _, fn := range []toolFunc{succeed, failing(2, errBoom), failing(9, errBoom), panicking("p")} {
			_, _ = resilience.Do(session, g, "x", func(ctx context.Context) (int, error) {
				child, cancel := context.WithCancel(ctx)
				defer cancel()
				_, _ = ctx.Done(), child.Done()
				return fn(ctx)
			})
			synctest.Wait()
			assert.Zero(t, session.waiting.Load())
		}
	})
}

// A TIMEOUT counts if it was the tool's own timeout. If the caller brought less time, it is the caller's.
func TestWhoseTimeoutItWas(t *testing.T) {
	const short, own, long = time.Second, 10 * time.Second, time.Minute
	connection := func(ctx context.Context) (int, error) { // fails by a timer of its own, with the call's deadline
		deadline, _ := ctx.Deadline()
		time.Sleep(time.Until(deadline))
		return 0, os.ErrDeadlineExceeded
	}
	tools := map[string]toolFunc{
		"hangs": hang(time.Hour), "returns the context's error": untilDone, "returns its own": failingOnceDone(errBoom),
		"has a connection with the deadline": connection,
		"gives up early":                     failing(9, context.DeadlineExceeded),
	}
	for name, tc := range map[string]struct {
		deadline, outer time.Duration // of the caller, of a call around this one; none if zero
		option          resilience.Option
		counted         bool
	}{
		"the tool's own":              {counted: true},
		"a later deadline":            {deadline: long, counted: true},
		"an earlier deadline":         {deadline: short},
		"the option Timeout":          {option: resilience.Timeout(short)},
		"an outer call's":             {outer: short},
		"an outer call that has more": {outer: long, counted: true},
	} {
		for does, fn := range tools {
			runInBubble(t, name+", the tool "+does, func(t *testing.T) {
				g := guardWith(t, resilience.Tool{Timeout: own})
				call := func(ctx context.Context) (int, error) {
					_, err := resilience.Do(ctx, g, "x", fn, tc.option)
					assert.ErrorIs(t, err, resilience.CodeTimeout)
					return 0, err
				}
				ctx := contextWithin(t, tc.deadline)
				if tc.outer > 0 {
					_, _ = resilience.WithTimeout(ctx, "outer", tc.outer, call)
				} else {
					_, _ = call(ctx)
				}

				synctest.Wait()
				assert.Equal(t, tc.counted, g.Breaker("x").Failures() == 1)
				time.Sleep(2 * time.Hour)
			})
		}
	}
}

// The tool may notice before the guard that its caller has left.
func TestCallerThatLeavesIsNoFailureIfTheToolNoticesItFirst(t *testing.T) {
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

// What a tool makes of the end isn't what ended the call, unless the tool's author says something else.
func TestEndOfACallIsItsOwnUnlessTheToolSaysSomethingElse(t *testing.T) {
	busy := &resilience.Error{Code: "BUSY", Message: "The index is being built"}
	callers := map[resilience.Code]caller{
		resilience.CodeTimeout: withTimeout(time.Second), resilience.CodeCanceled: leavingAfter(time.Second),
	}
	for name, tc := range map[string]struct {
		err  error
		code resilience.Code // empty for the code of the end
	}{
		"any error":           {err: errBoom},
		"a TIMEOUT":           {err: resilience.TimeoutError("inner", time.Second)},
		"an Error of its own": {err: busy, code: "BUSY"},
		"wrapped":             {err: fmt.Errorf("import: %w", busy), code: "BUSY"},
		"marked":              {err: resilience.MarkPermanent(busy), code: "BUSY"},
	} {
		for end, caller := range callers {
			t.Run(name+", "+string(end), func(t *testing.T) {
				inBothModes(t, func(t *testing.T, cooperative bool) {
					g := guardWith(t, resilience.Tool{Cooperative: cooperative})
					ctx, cancel := caller(t.Context())
					defer cancel()
					r := resilience.Run(ctx, g, "x", failingOnceDone(tc.err), resilience.WaitForTool())

					require.NotNil(t, r.Err)
					assert.Equal(t, cmp.Or(tc.code, end), r.Err.Code)
					assert.ErrorIs(t, r.Err, tc.err)
					assert.Equal(t, time.Second, r.Duration)
					assert.Zero(t, g.Breaker("x").Failures(), "whatever it says, the caller ended it")
				})
			})
		}
	}
}

// A Cooperative tool answers for itself, also at its timeout.
func TestMarkOfACooperativeToolStandsAtItsTimeout(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		code   resilience.Code
		counts bool
	}{
		"MarkInvalid":    {resilience.MarkInvalid(errBoom), resilience.CodeValidation, false},
		"MarkNeutral":    {resilience.MarkNeutral(errBoom), resilience.CodeToolFailed, false},
		"ErrUnfinished":  {fmt.Errorf("ask: %w", resilience.ErrUnfinished), resilience.CodeValidation, false},
		"MarkPermanent":  {resilience.MarkPermanent(errBoom), resilience.CodeToolFailed, true},
		"MarkNoEffect":   {resilience.MarkNoEffect(errBoom), resilience.CodeToolFailed, true},
		"MarkBackend":    {resilience.MarkBackend(errBoom), resilience.CodeTimeout, true},
		"no mark at all": {errBoom, resilience.CodeTimeout, true},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Timeout: time.Second, Cooperative: true})
			r := resilience.Run(t.Context(), g, "x", failingOnceDone(tc.err))
			require.ErrorIs(t, r.Err, tc.err)
			assert.Equal(t, tc.code, r.Err.Code)
			assert.Equal(t, tc.counts, g.Breaker("x").Failures() == 1)
		})
	}
}
