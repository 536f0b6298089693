package resilience_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDebug(t *testing.T) {
	args := map[string]any{"query": strings.Repeat("q", 300), "api_key": "sk-1"}
	fail := failing(9, errBoom)
	x := resilience.Tool{Effect: resilience.NonIdempotent}
	for name, on := range map[string]func(*testing.T) *resilience.Error{
		"config": func(t *testing.T) *resilience.Error {
			cfg := one(x)
			cfg.Debug = true
			return resilience.Run(t.Context(), newGuard(t, cfg), "x", fail, resilience.Args(args)).Err
		},
		"one call": func(t *testing.T) *resilience.Error {
			return resilience.Run(t.Context(), newGuard(t, one(x)), "x", fail, resilience.Args(args), resilience.Debug()).Err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			assert.Equal(t, map[string]any{
				"tool": "x", "timeout": "60s", "attempt": 1, "elapsed": "0s", "cause": errBoom.Error(),
				"arguments": map[string]any{"query": strings.Repeat("q", 200) + "...[truncated]", "api_key": "[REDACTED]"},
			}, on(t).Details, name)
		})
	}

	g := newGuard(t, one(x))
	own := &resilience.Error{Message: "Full", Details: map[string]any{"disk": "sda", "token": "t"}, Err: errBoom}
	_, err := resilience.Do(t.Context(), g, "x", failing(9, own))
	assert.NotContains(t, jsonOf(t, err), "details")
	r := resilience.Run(t.Context(), g, "x", failing(9, own), resilience.Debug())
	assert.Equal(t, "sda", r.Err.Details["disk"])
	assert.Equal(t, "[REDACTED]", r.Err.Details["token"])
	assert.Equal(t, map[string]any{"disk": "sda", "token": "t"}, own.Details)
	assert.ErrorIs(t, r.Err, own)

	r = resilience.Run(t.Context(), g, "x", failing(9, &brokenError{}), resilience.Debug())
	assert.Equal(t, "[unprintable]", r.Err.Details["cause"])
	var none *typedNil
	r = resilience.Run(t.Context(), g, "x", failing(9, none), resilience.Debug())
	assert.Equal(t, resilience.CodeToolFailed, r.Err.Code, "a nil pointer as an error fails its own call only")
}

func TestSuggestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := one(resilience.Tool{Effect: resilience.NonIdempotent})
		cfg.Suggestions = map[resilience.Code]string{
			resilience.CodeTimeout: "Ensure the app is running in your browser.",
		}
		g := newGuard(t, cfg)
		cfg.Suggestions[resilience.CodeTimeout] = "changed later"
		r := resilience.Run(t.Context(), g, "x", obey)
		assert.Equal(t, "Ensure the app is running in your browser. The outcome of this call is unknown: check whether it took effect before you call this tool again.", r.Err.Suggestion)
		r = resilience.Run(t.Context(), g, "y", obey)
		assert.Equal(t, "Ensure the app is running in your browser.", r.Err.Suggestion)
		own := resilience.Run(t.Context(), g, "y", failing(9, &resilience.Error{Code: resilience.CodeTimeout, Suggestion: "Mine"}))
		assert.Equal(t, "Mine", own.Err.Suggestion)
		for retryable, want := range map[bool]string{
			true:  "Try again. If it fails again, change the request or use another tool.",
			false: "Do not repeat the same call: change the request or use another tool.",
		} {
			e := resilience.AsError("x", &resilience.Error{Message: "m", Retryable: retryable})
			assert.Equal(t, want, e.Suggestion)
			e = resilience.AsError("x", errBoom)
			if !retryable {
				e = resilience.AsError("x", resilience.MarkPermanent(errBoom))
			}
			assert.Equal(t, want, e.Suggestion)
		}
		r = resilience.Run(t.Context(), newGuard(t, one(resilience.Tool{Effect: resilience.NonIdempotent})), "x", obey)
		assert.Equal(t, "The outcome of this call is unknown: check whether it took effect before you call this tool again.", r.Err.Suggestion)
	})
}

func TestResultMessage(t *testing.T) {
	assert.Empty(t, resilience.Result[int]{}.Message())
	assert.Equal(t, "Tool 'x' exceeded timeout of 1s. Try again with a smaller or simpler request, or use another tool.",
		resilience.Result[int]{Err: resilience.TimeoutError("x", time.Second)}.Message())
	assert.Equal(t, "Stop!", resilience.Result[int]{Err: &resilience.Error{Message: "Stop!"}}.Message())
	assert.Equal(t, "BUSY.", resilience.Result[int]{Err: &resilience.Error{Code: "BUSY"}}.Message())
	assert.Equal(t, "The call failed.", resilience.Result[int]{Err: &resilience.Error{}}.Message())
}

// What the tool returned is found through any number of guards.
func TestIdentityThroughGuards(t *testing.T) {
	busy := &resilience.Error{Code: "BUSY", Tool: "t", Message: "m", Suggestion: "s"}
	synctest.Test(t, func(t *testing.T) {
		outer, inner := newGuard(t, resilience.Config{}), newGuard(t, resilience.Config{})
		var seen error
		_, err := resilience.Do(t.Context(), outer, "x", func(ctx context.Context) (int, error) {
			var v int
			v, seen = resilience.Do(ctx, inner, "x", failing(9, busy))
			return v, seen
		})
		assert.ErrorIs(t, err, busy)
		assert.ErrorIs(t, err, seen)
		assert.ErrorIs(t, resilience.AsError("y", err), busy)

		var cause error
		_, err = resilience.Do(t.Context(), outer, "x", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return 0, errBoom
		})
		synctest.Wait()
		assert.ErrorIs(t, err, cause)
	})
}

// The advice to try again is taken back wherever it might do harm.
func TestNonIdempotentAdvice(t *testing.T) {
	const check = "The outcome of this call is unknown: check whether it took effect before you call this tool again."
	for name, tc := range map[string]struct {
		err        error
		retryable  bool
		suggestion string
	}{
		"inner timeout":       {resilience.TimeoutError("inner", time.Second), false, check},
		"lost":                {resilience.ConnectionLostError("gone"), false, check},
		"lost, own words":     {&resilience.Error{Code: resilience.CodeConnectionLost, Retryable: true, Suggestion: "Mine"}, false, "Mine"},
		"lost before it":      {&resilience.Error{Code: resilience.CodeConnectionLost, Retryable: true, Suggestion: "Mine", Err: syscall.ECONNREFUSED}, true, "Mine"},
		"own words otherwise": {&resilience.Error{Message: "Busy", Retryable: true, Suggestion: "Mine"}, true, "Mine"},
	} {
		cfg := one(resilience.Tool{Effect: resilience.NonIdempotent, Retry: &resilience.Retry{MaxRetries: -1}})
		_, err := resilience.Do(t.Context(), newGuard(t, cfg), "x", failing(9, tc.err))
		var e *resilience.Error
		require.ErrorAs(t, err, &e, name)
		assert.Equal(t, tc.retryable, e.Retryable, name)
		assert.Equal(t, tc.suggestion, e.Suggestion, name)
		assert.ErrorIs(t, err, tc.err, name)
	}
	synctest.Test(t, func(t *testing.T) {
		cfg := one(resilience.Tool{Effect: resilience.NonIdempotent})
		cfg.AttemptTimeout = time.Second
		r := resilience.Run(t.Context(), newGuard(t, cfg), "x", obey)
		assert.False(t, r.Err.Retryable)
		assert.Equal(t, check, r.Err.Suggestion)
	})
}

// With debug, arguments are those of before: the tool may go on changing its own.
func TestDebugTakesArgumentsBefore(t *testing.T) {
	g := newGuard(t, one(resilience.Tool{Timeout: time.Millisecond}))
	stop := make(chan struct{})
	handler := resilience.Wrap(g, "x", func(_ context.Context, in map[string]any) (int, error) {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return 0, nil
			default:
				in["n"] = i
			}
		}
	}, resilience.Debug())
	_, err := handler(t.Context(), map[string]any{"n": "before"})
	var e *resilience.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, map[string]any{"n": "before"}, e.Details["arguments"])
	close(stop)
	noneStillRuns(t, g)
	r := resilience.All(t.Context(), g, resilience.Call[int]{Tool: "y", Func: failing(9, errBoom)})
	assert.NotContains(t, r[0].Err.Details, "arguments")
}
