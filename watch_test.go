package resilience_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a call leaves with the context of its caller, and how a tool hears of the end.

// afterFunc calls the method that the context package looks for.
func afterFunc(ctx context.Context, f func()) (stop func() bool) {
	return ctx.(interface{ AfterFunc(func()) func() bool }).AfterFunc(f)
}

func TestAfterFuncAloneHearsOfACallerWhoLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Cooperative: true})
		ctx, cancel := leavingAfter(time.Second)(t.Context())
		defer cancel()

		r := resilience.Run(ctx, g, "x", func(ctx context.Context) (int, error) {
			ended := make(chan struct{})
			afterFunc(ctx, func() { close(ended) })
			<-ended
			return 0, ctx.Err()
		})

		assert.Equal(t, resilience.CodeCanceled, r.Err.Code)
		assert.Equal(t, time.Second, r.Duration)
	})
}

func TestAfterFuncIsStoppedOnceAndNotAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept context.Context
		var stop func() bool
		_, err := resilience.Do(t.Context(), guardWith(t, resilience.Tool{}), "x", func(ctx context.Context) (int, error) {
			kept = ctx
			early := afterFunc(ctx, func() { t.Error("called though stopped") })
			assert.True(t, early())
			assert.False(t, early())
			stop = afterFunc(ctx, func() {})
			return 0, nil
		})
		require.NoError(t, err)
		assert.False(t, stop(), "it was called")

		called := false
		stop = afterFunc(kept, func() { called = true; panic("p") })
		assert.False(t, stop())
		synctest.Wait()
		assert.True(t, called)
	})
}

// A slowNotifier takes a second to take a subscription.
type slowNotifier struct{ *countingContext }

func (c slowNotifier) AfterFunc(f func()) func() bool {
	time.Sleep(time.Second)
	return c.countingContext.AfterFunc(f)
}

func TestCallSubscribesOnceAndLeavesNothingHoweverLongThatTakes(t *testing.T) {
	for name, tool := range map[string]toolFunc{
		"several ask at the same time": func(ctx context.Context) (int, error) {
			var all sync.WaitGroup
			all.Go(func() { ctx.Done() })
			for range 3 {
				all.Go(func() { afterFunc(ctx, func() {}) })
			}
			all.Wait()
			return 1, nil
		},
		"the call ends meanwhile": func(ctx context.Context) (int, error) {
			go ctx.Done()
			time.Sleep(time.Millisecond)
			return 1, nil
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			counting := &countingContext{Context: t.Context()}
			g := guardWith(t, resilience.Tool{Cooperative: true})

			_, err := resilience.Do(slowNotifier{counting}, g, "x", tool)

			require.NoError(t, err)
			time.Sleep(time.Minute)
			assert.EqualValues(t, 1, counting.ever.Load())
			assert.Zero(t, counting.waiting.Load())
		})
	}
}

// The context of a session outlives its calls by far, so nothing of them may stay with it, nor with a timer.
func TestCallsAreForgotten(t *testing.T) {
	for name, tool := range map[string]resilience.Tool{
		"enforced":              {},
		"enforced, retried":     {Effect: resilience.ReadOnly},
		"cooperative":           {Cooperative: true},
		"with attempts":         {AttemptTimeout: time.Hour},
		"cooperative, attempts": {AttemptTimeout: time.Hour, Cooperative: true},
	} {
		t.Run(name, func(t *testing.T) {
			session, cancel := context.WithCancel(t.Context())
			defer cancel()
			held := new([1000]byte)
			forgotten := weak.Make(held)
			ctx := context.WithValue(session, ctxKey("held"), held)
			tool.Timeout, tool.MaxTimeout = time.Hour, 2*time.Hour
			g := guardWith(t, tool)

			_, err := resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) {
				ctx.Done()
				afterFunc(ctx, func() {})
				resilience.ReportProgress(ctx)
				return failing(1, errBoom)(ctx)
			})

			assert.Equal(t, tool.Effect == resilience.ReadOnly, err == nil)
			held, ctx, err = nil, nil, nil // the caller's own
			assert.Eventually(t, func() bool { runtime.GC(); return forgotten.Value() == nil }, time.Minute, time.Millisecond)
			assert.NoError(t, session.Err())
			runtime.KeepAlive(g)
		})
	}
}

// A tool may keep its context. Once the call has ended, that no longer depends on its caller's.
func TestContextThatHasEndedDoesNotAskTheCallers(t *testing.T) {
	inBothModes(t, func(t *testing.T, cooperative bool) {
		ended := false
		asked := func() { assert.False(t, ended, "asked after the end") }
		ctx := &calledContext{Context: t.Context(), method: "Err", call: asked}
		var kept context.Context
		_, err := resilience.Do(ctx, guardWith(t, resilience.Tool{Cooperative: cooperative}), "x",
			func(ctx context.Context) (int, error) { kept = ctx; return 1, nil })
		require.NoError(t, err)

		ended = true
		assert.ErrorIs(t, kept.Err(), context.Canceled)
		assert.ErrorIs(t, context.Cause(kept), context.Canceled)
	})
}
