package resilience_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRejectionIsThatOfACall(t *testing.T) {
	const open, down = resilience.CodeCircuitOpen, resilience.CodeShuttingDown
	key := resilience.BreakerKey("a")
	byRequest := func(key string) resilience.Option {
		return resilience.ForRequest(resilience.Request{BreakerKey: func() string { return key }})
	}
	keyed := func(g *resilience.Guard, tool, key string) *resilience.Breaker {
		_ = g.Rejection(tool, resilience.BreakerKey(key))
		for _, b := range g.Breakers() {
			if b.Key() == key {
				return b
			}
		}
		panic("no breaker of " + key)
	}

	for name, tc := range map[string]struct {
		before func(*resilience.Guard)
		opts   []resilience.Option
		code   resilience.Code // "" means none
	}{
		"nothing is wrong": {before: func(*resilience.Guard) {}},
		"closed":           {before: func(g *resilience.Guard) { _, _ = g.Close(context.Background()) }, code: down},
		"isolated":         {before: func(g *resilience.Guard) { g.Breaker("x").Isolate("maintenance") }, code: open},
		"open":             {before: func(g *resilience.Guard) { g.Breaker("x").Trip(time.Minute) }, code: open},
		"cooled down": {before: func(g *resilience.Guard) {
			g.Breaker("x").Trip(time.Minute)
			time.Sleep(time.Minute)
		}},
		"another tool":      {before: func(g *resilience.Guard) { g.Breaker("y").Isolate("") }},
		"isolated, a key":   {func(g *resilience.Guard) { g.Breaker("x").Isolate("") }, []resilience.Option{key}, open},
		"open, a key":       {func(g *resilience.Guard) { g.Breaker("x").Trip(0) }, []resilience.Option{key}, ""},
		"a key is isolated": {func(g *resilience.Guard) { keyed(g, "x", "a").Isolate("") }, []resilience.Option{key}, open},
		"a key is open":     {func(g *resilience.Guard) { keyed(g, "x", "a").Trip(0) }, []resilience.Option{byRequest("a")}, open},
		"another key":       {func(g *resilience.Guard) { keyed(g, "x", "a").Trip(0) }, []resilience.Option{byRequest("b")}, ""},
		"of no key":         {before: func(g *resilience.Guard) { keyed(g, "x", "a").Trip(0) }},
		"others": {
			func(g *resilience.Guard) { g.Breaker("(others)").Isolate("") },
			[]resilience.Option{resilience.ForRequest(resilience.Request{Unknown: true}), key}, open,
		},
		"others, open": {
			func(g *resilience.Guard) { g.Breaker("(others)").Trip(0) },
			[]resilience.Option{resilience.ForRequest(resilience.Request{Unknown: true}), key}, open,
		},
	} {
		for _, listed := range []bool{true, false} {
			if strings.HasPrefix(name, "others") && listed {
				continue
			}
			runInBubble(t, fmt.Sprintf("%s, listed: %t", name, listed), func(t *testing.T) {
				cfg := resilience.Config{Suggestions: map[resilience.Code]string{open: "Ask Ann."}}
				if listed {
					cfg.Tools = map[string]resilience.Tool{"x": {}}
				}
				g := newGuard(t, cfg)
				tc.before(g)
				rejected := g.Rejection("x", tc.opts...)
				if tc.code == "" {
					assert.Nil(t, rejected)
				}
				_, err := resilience.Do(t.Context(), g, "x", succeed, tc.opts...)
				if tc.code == "" {
					assert.NoError(t, err)
					return
				}
				require.NotNil(t, rejected)
				assert.Equal(t, tc.code, rejected.Code)
				assert.Equal(t, jsonOf(t, err), jsonOf(t, rejected))
			})
		}
	}
}

// There is no room for another key if all that the guard keeps are open. The tool's own breaker decides then.
func TestRejectionWithoutRoomForTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {}}})
		for i := range 1024 {
			failWithKey(t, g, "x", fmt.Sprint(i))
		}
		key := resilience.BreakerKey("another")
		assert.Nil(t, g.Rejection("x", key))
		g.Breaker("x").Trip(0)
		assert.ErrorIs(t, g.Rejection("x", key), resilience.CodeCircuitOpen)
	})
}

func TestRejectionOfALongName(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	name := strings.Repeat("x", 1<<10)
	g.Breaker(name).Isolate("")
	_, err := resilience.Do(t.Context(), g, name, succeed)
	assert.Equal(t, jsonOf(t, err), jsonOf(t, g.Rejection(name)))
	g.Close(t.Context())
	assert.Less(t, len(g.Rejection(name).Tool), 300)
}

// Who asks is no call, and no probe.
func TestRejectionLeavesNoTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{})
		assert.Nil(t, g.Rejection("x"))
		assert.Empty(t, g.Health())

		b := g.Breaker("x")
		b.Trip(time.Second)
		time.Sleep(time.Second)
		for range 3 {
			assert.Nil(t, g.Rejection("x"))
		}
		_, err := resilience.Do(t.Context(), g, "x", succeed)
		require.NoError(t, err, "the probe")
		assert.Equal(t, resilience.StateClosed, b.State())

		for i := range 3000 { // each may be forgotten for the next one
			assert.Nil(t, g.Rejection("x", resilience.BreakerKey(fmt.Sprint(i))))
		}
		failWithKey(t, g, "x", "db")
		assert.ErrorIs(t, g.Rejection("x", resilience.BreakerKey("db")), resilience.CodeCircuitOpen)
		n, err := g.Close(t.Context())
		assert.Zero(t, n)
		assert.NoError(t, err)
	})
}

// What an agent reads of a task's error, it would also read of a call's.
func TestErrorOfATaskIsThatOfACall(t *testing.T) {
	own := &resilience.Error{Message: "m", Suggestion: "Mine.", Retryable: true, Details: map[string]any{"at": "10.0.0.7"}}
	for name, err := range map[string]error{
		"unknown":      errBoom,
		"trouble":      statusError(503),
		"rejected":     statusError(404),
		"refused":      syscall.ECONNREFUSED,
		"reset":        syscall.ECONNRESET,
		"too slow":     context.DeadlineExceeded,
		"no effect":    resilience.MarkTransient(errBoom),
		"a mistake":    resilience.MarkInvalid(errBoom),
		"neutral":      resilience.MarkNeutral(errBoom),
		"the author's": fmt.Errorf("at 10.0.0.7: %w", own),
		"ours":         resilience.ConnectionLostError("the ledger has closed it"),
		"ours, made":   resilience.AsError("x", resilience.MarkBackend(errBoom)),
		"a crash":      &resilience.PanicError{Value: "secret"},
	} {
		for _, effect := range []resilience.Effect{
			resilience.EffectUnknown, resilience.ReadOnly, resilience.Idempotent, resilience.NonIdempotent,
		} {
			for _, unexplained := range []resilience.Class{resilience.ClassTransient, resilience.ClassNeutral} {
				request := resilience.ForRequest(resilience.Request{
					Effect: func() resilience.Effect { return effect }, Unexplained: unexplained,
				})
				for of, cfg := range map[string]resilience.Config{
					"listed":   {Tools: map[string]resilience.Tool{"x": {Effect: effect}}},
					"unlisted": {Suggestions: map[resilience.Code]string{resilience.CodeConnectionLost: "Ask Ann."}},
				} {
					cfg.Retry.MaxRetries = -1
					g := newGuard(t, cfg)
					got := g.AsError("x", err, request)
					_, want := resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) { return 0, err }, request)
					why := fmt.Sprint(name, ", ", effect, ", ", unexplained, ", ", of)
					assert.Equal(t, jsonOf(t, want), jsonOf(t, got), why)
					assert.Equal(t, want.(*resilience.Error).HasGuidance(), got.HasGuidance(), why)
					assert.ErrorIs(t, got, err, why)
					assert.Equal(t, resilience.Classify(want), resilience.Classify(got), why)
				}
			}
		}
	}
	assert.NotNil(t, own.Details)
	assert.Nil(t, newGuard(t, resilience.Config{}).AsError("x", nil))
}

// The Config's effect counts where the request knows none.
func TestErrorOfATaskWhoseEffectTheConfigTells(t *testing.T) {
	g := newGuard(t, resilience.Config{Effect: resilience.NonIdempotent})
	lost := resilience.ConnectionLostError("the ledger has closed it")
	for name, effect := range map[string]func() resilience.Effect{
		"nothing": nil, "panics": func() resilience.Effect { panic(1) },
		"unknown": func() resilience.Effect { return resilience.EffectUnknown },
	} {
		e := g.AsError("x", lost, resilience.ForRequest(resilience.Request{Effect: effect}))
		assert.False(t, e.Retryable, name)
		assert.Equal(t, suggestCheck, e.Suggestion, name)
	}
}

// What a call would say of an error when its caller is there, since a task has none that could leave.
func TestErrorOfATaskThatHasCanceledSomething(t *testing.T) {
	g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {}}})
	err := fmt.Errorf("search: %w", context.Canceled)
	called := resilience.Run(t.Context(), g, "x", failing(9, err))
	for _, e := range []*resilience.Error{called.Err, g.AsError("x", err), g.AsError("x", resilience.AsError("y", err))} {
		assert.Equal(t, resilience.CodeToolFailed, e.Code)
		assert.ErrorIs(t, e, err)
	}
}
