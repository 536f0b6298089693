package resilience_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

// of makes a call one of an agent with this session.
func of(session string) resilience.Option {
	return resilience.ForRequest(resilience.Request{RequestInfo: resilience.RequestInfo{Session: session}})
}

// An agent that calls again at once can't wait by itself, so its second call is held.
func TestCallerWhoComesBackTooEarlyIsHeld(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		breaker resilience.BreakerConfig
		tool    resilience.Tool
		opts    []resilience.Option
		want    []time.Duration // how long each call takes
		last    bool            // whether the last one is admitted
	}{
		"ten seconds":          {opts: opts(of("a")), want: []time.Duration{0, 10 * s, 10 * s, 10 * s}, last: true},
		"no session":           {opts: opts(of("")), want: []time.Duration{0, 10 * s, 10 * s, 10 * s}, last: true},
		"a program's own":      {want: []time.Duration{0, 0, 0}},
		"half the timeout":     {tool: resilience.Tool{Timeout: 4 * s}, opts: opts(of("a")), want: []time.Duration{0, 2 * s, 2 * s}},
		"a MaxHold of its own": {breaker: resilience.BreakerConfig{MaxHold: s}, opts: opts(of("a")), want: []time.Duration{0, s, s}},
		"never":                {breaker: resilience.BreakerConfig{MaxHold: -1}, opts: opts(of("a")), want: []time.Duration{0, 0, 0}},
		"the cooldown ends":    {breaker: resilience.BreakerConfig{Cooldown: 5 * s}, opts: opts(of("a")), want: []time.Duration{0, 5 * s}, last: true},
	} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := configWith(tc.tool)
			cfg.Breaker = tc.breaker
			g := newGuard(t, cfg)
			g.Breaker("x").Trip(0)
			for i, want := range tc.want {
				r := resilience.Run(t.Context(), g, "x", succeed, tc.opts...)
				assert.Equal(t, want, r.Duration)
				assert.Equal(t, tc.last && i == len(tc.want)-1, r.Err == nil, i)
			}
		})
	}
}

func opts(all ...resilience.Option) []resilience.Option { return all }

// A caller who hasn't been rejected yet gets its answer at once, and so does the 17th of those who wait. One who comes
// back in time isn't held, and one who leaves needn't wait.
func TestHeldCallsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{})
		g.Breaker("x").Trip(time.Hour)
		call := func(ctx context.Context, session string) time.Duration {
			return resilience.Run(ctx, g, "x", notCalled(t), of(session)).Duration
		}

		for i := range 20 {
			assert.Zero(t, call(t.Context(), fmt.Sprint(i)))
		}
		took := make(chan time.Duration, 20)
		for i := range 20 {
			go func() { took <- call(t.Context(), fmt.Sprint(i)) }()
		}
		synctest.Wait()
		assert.Len(t, took, 4)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Len(t, took, 20)

		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		assert.Equal(t, time.Second, call(ctx, "0"))
		time.Sleep(time.Hour)
		g.Breaker("x").Trip(time.Minute)
		assert.Zero(t, call(t.Context(), "1"), "it has waited long enough")
	})
}

// A Probe that closes the breaker lets the held call pass.
func TestHeldCallPassesOnceTheBackendIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{})
		cfg.Breaker.Probe = func(context.Context) error { return nil }
		g := newGuard(t, cfg)
		g.Breaker("x").Trip(0)
		assert.ErrorIs(t, resilience.Run(t.Context(), g, "x", notCalled(t), of("a")).Err, resilience.CodeCircuitOpen)
		r := resilience.Run(t.Context(), g, "x", succeed, of("a"))
		assert.Nil(t, r.Err)
		assert.LessOrEqual(t, r.Duration, 5*time.Second)
	})
}

// The third failure for the same reason is worth a word to a model that goes on regardless.
func TestCallerWhoFailsAgainAndAgainIsTold(t *testing.T) {
	const told = " This has failed %d times: stop using this tool for this task, or tell the user."
	mistake := failing(9, resilience.MarkInvalid(errBoom))
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly, Retry: &resilience.Retry{MaxRetries: -1}})
		cfg.Breaker.Failures = 100
		g := newGuard(t, cfg)
		for i, tc := range []struct {
			session string
			tool    toolFunc
			times   int // zero if nothing is said of them
		}{
			{"a", failing(9, errBoom), 0}, {"a", failing(9, errBoom), 0}, {"b", failing(9, errBoom), 0},
			{"a", failing(9, errBoom), 3}, {"a", mistake, 0}, {"a", failing(9, errBoom), 4},
			{"a", failing(9, errDial), 0}, {"a", failing(9, errBoom), 0}, {"b", failing(9, errBoom), 0},
			{"b", succeed, 0}, {"b", failing(9, errBoom), 0}, {"a", failing(9, errBoom), 0},
			{"a", failing(9, errBoom), 3},
		} {
			r := resilience.Run(t.Context(), g, "x", tc.tool, of(tc.session))
			if r.Err == nil || tc.times == 0 {
				assert.NotContains(t, r.Message(), "times", i)
				continue
			}
			assert.Equal(t, suggestRetry+fmt.Sprintf(told, tc.times), r.Err.Suggestion, i)
			assert.Equal(t, r.Err.Suggestion, r.Err.Line(true))
		}
	})
}

func TestLineIsWhatAModelReads(t *testing.T) {
	exhausted := resilience.RetryExhaustedError("x", 4, errDial)
	for _, tc := range []struct {
		err          *resilience.Error
		beside, line string
	}{
		{resilience.AsError("x", errBoom), "", "TOOL_FAILED: failed. Try again, or use another tool."},
		{resilience.AsError("x", resilience.MarkInvalid(errBoom)), "",
			"VALIDATION_ERROR: got invalid arguments. Correct the arguments, or use another tool."},
		{resilience.TimeoutError("x", time.Second), "", "TIMEOUT: exceeded timeout of 1s. Try again later."},
		{resilience.ConnectionLostError("broken pipe"), "", "CONNECTION_LOST: broken pipe. Try again later."},
		{resilience.AsError("x", waitError{time.Minute}), "Do not call this tool for 60 seconds; use others.",
			"TOOL_FAILED: failed. Do not call this tool for 60 seconds; use others."},
		{exhausted, "4 attempts failed. Try again later.",
			"RETRY_EXHAUSTED: failed after 4 attempts: connection refused. 4 attempts failed. Try again later."},
		{&resilience.Error{Code: "BUSY", Message: "Busy!", Suggestion: "Ask Ann."}, "Ask Ann.", "BUSY: Busy! Ask Ann."},
	} {
		assert.Equal(t, tc.beside, tc.err.Line(true))
		assert.Equal(t, tc.line, tc.err.Line(false))
	}
}
