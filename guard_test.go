package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDo(t *testing.T) {
	readOnly := resilience.Tool{Effect: resilience.ReadOnly}
	unknown := resilience.Tool{}
	once := resilience.Tool{Effect: resilience.NonIdempotent}
	refused := fmt.Errorf("insert: %w", syscall.ECONNREFUSED)
	reset := fmt.Errorf("insert: %w", syscall.ECONNRESET)
	type want struct {
		code       resilience.Code
		attempts   int
		failures   int // on the breaker
		retryable  bool
		retryAfter time.Duration
	}
	for name, tc := range map[string]struct {
		tool resilience.Tool
		fn   func(context.Context) (int, error)
		want want
	}{
		"success":                        {unknown, failing(0, nil), want{"", 1, 0, false, 0}},
		"read-only, at last":             {readOnly, failing(3, errBoom), want{"", 4, 0, false, 0}},
		"read-only, never":               {readOnly, failing(9, errBoom), want{resilience.CodeRetryExhausted, 4, 1, false, 0}},
		"idempotent, never":              {resilience.Tool{Effect: resilience.Idempotent}, failing(9, errBoom), want{resilience.CodeRetryExhausted, 4, 1, false, 0}},
		"read-only, permanent":           {readOnly, failing(9, resilience.MarkPermanent(errBoom)), want{resilience.CodeToolFailed, 1, 1, false, 0}},
		"read-only, permanent at last":   {readOnly, failingThen(1, errBoom, resilience.MarkPermanent(io.EOF)), want{resilience.CodeToolFailed, 2, 1, false, 0}},
		"read-only, invalid":             {readOnly, failing(9, resilience.MarkInvalid(errBoom)), want{resilience.CodeValidation, 1, 0, false, 0}},
		"read-only, panic":               {readOnly, func(context.Context) (int, error) { panic("p") }, want{resilience.CodeToolFailed, 1, 1, false, 0}},
		"read-only, goexit":              {readOnly, func(context.Context) (int, error) { runtime.Goexit(); return 0, nil }, want{resilience.CodeToolFailed, 1, 1, false, 0}},
		"read-only, its own retries":     {resilience.Tool{Effect: resilience.ReadOnly, Retry: &resilience.Retry{MaxRetries: 1}}, failing(9, errBoom), want{resilience.CodeRetryExhausted, 2, 1, false, 0}},
		"read-only, no retries":          {resilience.Tool{Effect: resilience.ReadOnly, Retry: &resilience.Retry{MaxRetries: -1}}, failing(9, errBoom), want{resilience.CodeToolFailed, 1, 1, true, 0}},
		"read-only, asks for too much":   {readOnly, failing(9, waitError{90 * time.Second}), want{resilience.CodeToolFailed, 1, 1, true, 90 * time.Second}},
		"read-only, cancels by itself":   {readOnly, failing(9, context.Canceled), want{resilience.CodeRetryExhausted, 4, 1, false, 0}},
		"unknown, cancels by itself":     {unknown, failing(9, context.Canceled), want{resilience.CodeToolFailed, 1, 1, true, 0}},
		"unknown":                        {unknown, failing(9, errBoom), want{resilience.CodeToolFailed, 1, 1, true, 0}},
		"unknown, marked":                {unknown, failing(9, resilience.MarkTransient(errBoom)), want{resilience.CodeRetryExhausted, 4, 1, false, 0}},
		"unknown, refused":               {unknown, failing(9, refused), want{resilience.CodeRetryExhausted, 4, 1, false, 0}},
		"unknown, refused, then reset":   {unknown, failingThen(1, refused, reset), want{resilience.CodeConnectionLost, 2, 1, true, 0}},
		"unknown, reset":                 {unknown, failing(9, reset), want{resilience.CodeConnectionLost, 1, 1, true, 0}},
		"non-idempotent":                 {once, failing(9, errBoom), want{resilience.CodeToolFailed, 1, 1, false, 0}},
		"non-idempotent, reset":          {once, failing(9, reset), want{resilience.CodeConnectionLost, 1, 1, false, 0}},
		"non-idempotent, asks for time":  {once, failing(9, waitError{time.Second}), want{resilience.CodeToolFailed, 1, 1, false, 0}},
		"non-idempotent, refused":        {once, failing(9, refused), want{resilience.CodeRetryExhausted, 4, 1, false, 0}},
		"non-idempotent, marked":         {once, failing(2, resilience.MarkTransient(errBoom)), want{"", 3, 0, false, 0}},
		"non-idempotent, some refused":   {once, failing(9, errors.Join(refused, errBoom)), want{resilience.CodeConnectionLost, 1, 1, false, 0}},
		"non-idempotent, timeout inside": {once, failing(9, fmt.Errorf("x: %w", context.DeadlineExceeded)), want{resilience.CodeTimeout, 1, 1, false, 0}},
		"unknown, timeout inside":        {unknown, failing(9, context.DeadlineExceeded), want{resilience.CodeTimeout, 1, 1, true, 0}},
		"timeout":                        {unknown, hangInt, want{resilience.CodeTimeout, 1, 1, true, 0}},
		"read-only, timeout":             {readOnly, hangInt, want{resilience.CodeTimeout, 1, 1, true, 0}},
		"non-idempotent, timeout":        {once, hangInt, want{resilience.CodeTimeout, 1, 1, false, 0}},
		"own words, to be tried again":   {readOnly, failing(9, &resilience.Error{Message: "Busy", Retryable: true, RetryAfter: 30 * time.Second}), want{resilience.CodeRetryExhausted, 3, 1, false, 0}},
		"own words":                      {readOnly, failing(9, &resilience.Error{Code: "BUSY", Message: "Busy", RetryAfter: time.Second}), want{"BUSY", 1, 1, false, time.Second}},
		"own words, caller's mistake":    {readOnly, failing(9, &resilience.Error{Code: resilience.CodeValidation, Message: "No such file"}), want{resilience.CodeValidation, 1, 0, false, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGuard(t, one(tc.tool))
				r := resilience.Run(t.Context(), g, "x", tc.fn)
				if tc.want.code == "" {
					require.Nil(t, r.Err)
					assert.Equal(t, tc.want.attempts, r.Value)
				} else {
					require.NotNil(t, r.Err)
					if name == "own words, to be tried again" { // 30s twice, and no room for a third time
						tc.want.code, tc.want.attempts, tc.want.retryable, tc.want.retryAfter = resilience.CodeToolFailed, 2, true, 30*time.Second
					}
					assert.Equal(t, tc.want.code, r.Err.Code)
					assert.Equal(t, tc.want.retryable, r.Err.Retryable)
					assert.Equal(t, tc.want.retryAfter, r.Err.RetryAfter)
					assert.Equal(t, "x", r.Err.Tool)
					assert.Nil(t, r.Err.Details)
				}
				assert.Equal(t, tc.want.attempts, r.Attempts)
				h := g.Health()
				require.Len(t, h, 1)
				assert.Equal(t, tc.want.failures, h[0].ConsecutiveFailures)
				assert.Zero(t, h[0].InFlight)
				assert.Equal(t, tc.want.failures > 0, h[0].LastError != nil)
				time.Sleep(time.Hour)
				assert.Zero(t, g.Health()[0].Abandoned)
			})
		})
	}
}

func hangInt(context.Context) (int, error) { time.Sleep(time.Hour); return 0, nil }

func failingThen(times int, err, then error) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		if n := resilience.Attempt(ctx); n <= times {
			return n, err
		}
		return 0, then
	}
}

func TestDoWhoseLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		tool     resilience.Tool
		opts     []resilience.Option
		deadline time.Duration
		took     time.Duration
		counts   bool
	}{
		"quick":                  {took: 60 * time.Second, counts: true},
		"heavy":                  {tool: resilience.Tool{Tier: resilience.Heavy}, took: 120 * time.Second, counts: true},
		"its own":                {tool: resilience.Tool{Timeout: time.Second}, took: time.Second, counts: true},
		"the caller's deadline":  {deadline: time.Second, took: time.Second},
		"the same deadline":      {deadline: 60 * time.Second, took: 60 * time.Second, counts: true},
		"a later deadline":       {deadline: time.Hour, took: 60 * time.Second, counts: true},
		"a shorter wish":         {opts: []resilience.Option{resilience.Limit(time.Second)}, took: time.Second},
		"a longer wish":          {opts: []resilience.Option{resilience.Limit(time.Hour)}, took: 60 * time.Second, counts: true},
		"a longer wish, allowed": {tool: resilience.Tool{MaxTimeout: 90 * time.Second}, opts: []resilience.Option{resilience.Limit(80 * time.Second)}, took: 80 * time.Second, counts: true},
		"too long a wish":        {tool: resilience.Tool{MaxTimeout: 90 * time.Second}, opts: []resilience.Option{resilience.Limit(time.Hour)}, took: 90 * time.Second, counts: true},
		"the last wish":          {opts: []resilience.Option{resilience.Limit(time.Hour), nil, resilience.Limit(time.Second)}, took: time.Second},
	} {
		for _, cooperative := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, cooperative %v", name, cooperative), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					tool := tc.tool
					tool.Cooperative = cooperative
					g := newGuard(t, one(tool))
					ctx := t.Context()
					if tc.deadline > 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, tc.deadline)
						defer cancel()
					}
					start := time.Now()
					value, err := resilience.Do(ctx, g, "x", obey, tc.opts...)
					assert.Equal(t, tc.took, time.Since(start))
					assert.ErrorIs(t, err, resilience.CodeTimeout)
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					assert.Contains(t, err.Error(), fmt.Sprintf("exceeded timeout of %vs", tc.took.Seconds()))
					failures := 0
					if tc.counts {
						failures = 1
					}
					assert.Equal(t, failures, g.Health()[0].ConsecutiveFailures)
					if cooperative {
						assert.Equal(t, "part", value, "what it had by then")
					}
				})
			})
		}
	}
}

func TestDoAttemptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := one(resilience.Tool{Effect: resilience.ReadOnly})
		cfg.AttemptTimeout = 10 * time.Second
		g := newGuard(t, cfg)
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (string, error) {
			if resilience.Attempt(ctx) < 3 {
				time.Sleep(time.Hour)
			}
			return "v", nil
		})
		assert.Nil(t, r.Err)
		assert.Equal(t, "v", r.Value)
		assert.Equal(t, 3, r.Attempts)
		assert.Equal(t, 20300*time.Millisecond, r.Duration)
		assert.Equal(t, 2, g.Health()[0].Abandoned)

		r = resilience.Run(t.Context(), g, "x", obey)
		assert.ErrorIs(t, r.Err, resilience.CodeRetryExhausted)
		assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
		assert.Equal(t, 4, r.Attempts)
		assert.Equal(t, 40700*time.Millisecond, r.Duration)

		// An attempt that is cut off may have had an effect.
		g = newGuard(t, resilience.Config{AttemptTimeout: time.Second})
		r = resilience.Run(t.Context(), g, "y", obey)
		assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
		assert.Equal(t, 1, r.Attempts)
		assert.Equal(t, "Tool 'y' exceeded timeout of 1s", r.Err.Message)

		// The call's limit ends the last attempt.
		cfg.AttemptTimeout = 50 * time.Second
		g = newGuard(t, cfg)
		r = resilience.Run(t.Context(), g, "x", obey)
		assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
		assert.Equal(t, 2, r.Attempts)
		assert.Equal(t, "Tool 'x' exceeded timeout of 60s", r.Err.Message)
		time.Sleep(time.Hour)
	})
}

func TestDoOverloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := resilience.Config{MaxAbandoned: 3, Breaker: resilience.BreakerConfig{Failures: 100}}
		g := newGuard(t, cfg)
		for i := range 3 {
			_, err := resilience.Do(t.Context(), g, "x", hang(time.Hour))
			require.ErrorIs(t, err, resilience.CodeTimeout, "call %d", i)
		}
		start := time.Now()
		r := resilience.Run(t.Context(), g, "x", hang(time.Hour))
		assert.ErrorIs(t, r.Err, resilience.CodeOverloaded)
		assert.Equal(t, "too many earlier calls of tool 'x' still run", r.Err.Message)
		assert.True(t, r.Err.Retryable)
		assert.Zero(t, r.Attempts)
		assert.Equal(t, start, time.Now())
		assert.Equal(t, 3, g.Health()[0].Abandoned)
		assert.Equal(t, 3, g.Health()[0].ConsecutiveFailures, "a call that was turned away isn't counted")
		assert.Zero(t, g.Health()[0].InFlight)

		_, err := resilience.Do(t.Context(), g, "y", failing(0, nil))
		assert.NoError(t, err, "each tool has its own")
		time.Sleep(time.Hour)
		_, err = resilience.Do(t.Context(), g, "x", failing(0, nil))
		assert.NoError(t, err, "they have returned")
		assert.Zero(t, g.Health()[0].Abandoned)

		// Retries of attempts that hang don't go over it either.
		cfg.MaxAbandoned, cfg.AttemptTimeout = 2, time.Second
		cfg.Tools = map[string]resilience.Tool{"x": {Effect: resilience.ReadOnly}}
		g = newGuard(t, cfg)
		r = resilience.Run(t.Context(), g, "x", hang(time.Hour))
		assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
		assert.Equal(t, 2, r.Attempts)
		time.Sleep(time.Hour)
	})
}

func TestDoCooperative(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, one(resilience.Tool{Cooperative: true}))
		before := goroutines(self)
		count, err := resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) { return goroutines(self), nil })
		assert.NoError(t, err)
		assert.LessOrEqual(t, count, before, "it runs on the caller's")

		_, err = resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) { panic(io.EOF) })
		assert.ErrorIs(t, err, resilience.CodeToolFailed)
		assert.ErrorIs(t, err, io.EOF)

		value, err := resilience.Do(t.Context(), g, "x", hang(2*time.Minute))
		assert.NoError(t, err, "late, but an answer is better than none")
		assert.Equal(t, "late", value)

		_, err = resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, &resilience.Error{Code: "BUSY", Message: "The index is being built"}
		})
		assert.ErrorIs(t, err, resilience.Code("BUSY"), "its own words stand after the end")

		exited := make(chan struct{})
		go func() {
			defer close(exited)
			_, _ = resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) { runtime.Goexit(); return 0, nil })
		}()
		<-exited
		h := g.Health()[0]
		assert.Zero(t, h.InFlight)
		assert.ErrorIs(t, h.LastError, resilience.ErrGoexit)
	})
}

// Own words that come after the caller's end stand too, but aren't counted.
func TestDoOwnWordsAfterTheCallersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, one(resilience.Tool{Cooperative: true}))
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, &resilience.Error{Code: "BUSY"}
		}, resilience.Limit(time.Second))
		assert.ErrorIs(t, err, resilience.Code("BUSY"))
		assert.Zero(t, g.Health()[0].ConsecutiveFailures)
	})
}

func TestDoBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{
			"cypher": {Breaker: "neo4j"}, "impact": {Breaker: "neo4j"}, "read": {},
		}})
		assert.Same(t, g.Breaker("cypher"), g.Breaker("impact"))
		assert.Same(t, g.Breaker("cypher"), g.Breaker("neo4j"), "also for a tool of that name that isn't listed")
		for range 5 {
			_, err := resilience.Do(t.Context(), g, "cypher", failing(9, errBoom))
			require.ErrorIs(t, err, errBoom)
		}
		r := resilience.Run(t.Context(), g, "impact", failing(0, nil))
		assert.Zero(t, r.Attempts)
		assert.Equal(t, `{"code":"CIRCUIT_OPEN","tool":"impact","message":"Circuit breaker open due to repeated failures. Will retry in 30 seconds.",`+
			`"suggestion":"Do not call this tool again before the time in retryAfter has passed; go on with other tools meanwhile.","retryable":true,"retryAfter":30}`, jsonOf(t, r.Err))
		_, err := resilience.Do(t.Context(), g, "read", failing(0, nil))
		assert.NoError(t, err)
		time.Sleep(30*time.Second + 1)
		_, err = resilience.Do(t.Context(), g, "impact", failing(0, nil))
		assert.NoError(t, err)
		assert.Equal(t, resilience.Closed, g.Breaker("cypher").State())
	})
}

// A breaker that opens while a call waits for its retry ends that call.
func TestDoBreakerOpensDuringRetries(t *testing.T) {
	for name, after := range map[string]int{"before the delay": 0, "during the delay": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGuard(t, one(resilience.Tool{Effect: resilience.ReadOnly}))
				r := resilience.Run(t.Context(), g, "x", func(context.Context) (int, error) {
					trip := func() {
						for range 5 {
							report(g.Breaker("x"), io.EOF)
						}
					}
					if after == 0 {
						trip()
					} else {
						time.AfterFunc(50*time.Millisecond, trip)
					}
					return 0, errBoom
				})
				assert.ErrorIs(t, r.Err, resilience.CodeCircuitOpen)
				assert.ErrorIs(t, r.Err, errBoom, "the last cause is kept")
				assert.Equal(t, 1, r.Attempts)
				assert.Equal(t, "x", r.Err.Tool)
				assert.Equal(t, time.Duration(after)*100*time.Millisecond, r.Duration)
			})
		})
	}
}

func TestDoRefuses(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	fine := func(context.Context) (int, error) { panic("not called") }
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	for name, tc := range map[string]struct {
		ctx  context.Context
		tool string
		fn   func(context.Context) (int, error)
		opt  resilience.Option
		want string
	}{
		"empty name":     {t.Context(), "", fine, nil, "VALIDATION_ERROR: The tool's name is empty"},
		"nil function":   {t.Context(), "x", nil, nil, "TOOL_NOT_FOUND: Tool 'x' not found: its function is nil"},
		"zero limit":     {t.Context(), "x", fine, resilience.Limit(0), "VALIDATION_ERROR: The limit of this call is 0s: it must be positive"},
		"negative limit": {t.Context(), "x", fine, resilience.Limit(-time.Second), "VALIDATION_ERROR: The limit of this call is -1s: it must be positive"},
		"canceled":       {gone, "x", fine, nil, "CANCELED: The call was canceled"},
		"too late":       {late, "x", fine, nil, "TIMEOUT: Tool 'x' timed out"},
	} {
		r := resilience.Run(tc.ctx, g, tc.tool, tc.fn, tc.opt)
		assert.EqualError(t, r.Err, tc.want, name)
		assert.Zero(t, r.Attempts, name)
	}
	assert.Empty(t, g.Health(), "none of these leaves a trace")
	assert.PanicsWithValue(t, "resilience: nil *Guard", func() { _, _ = resilience.Do(t.Context(), nil, "x", fine) })
	assert.PanicsWithValue(t, "resilience: nil context", func() { _, _ = resilience.Do(noContext, g, "x", fine) })
	assert.PanicsWithValue(t, "resilience: nil context", func() { resilience.All[int](noContext, g) })
}

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
				"tool": "x", "limit": "60s", "attempt": 1, "elapsed": "0s", "cause": errBoom.Error(),
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

func TestAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{Debug: true, Retry: steady, Tools: map[string]resilience.Tool{
			"exits": {Cooperative: true}, "quick": {Timeout: time.Second}, "slow": {Timeout: 2 * time.Second},
		}})
		start := time.Now()
		results := resilience.All(t.Context(), g,
			resilience.Call[string]{Tool: "slow", Func: hang(1500 * time.Millisecond)},
			resilience.Call[string]{Tool: "quick", Func: hang(time.Hour), Args: map[string]any{"q": 1}},
			resilience.Call[string]{Tool: "none"},
			resilience.Call[string]{Tool: "exits", Func: func(context.Context) (string, error) { runtime.Goexit(); return "", nil }},
			resilience.Call[string]{Tool: "panics", Func: func(context.Context) (string, error) { panic("p") }},
		)
		assert.Equal(t, 1500*time.Millisecond, time.Since(start), "side by side")
		require.Len(t, results, 5)
		assert.Equal(t, resilience.Result[string]{Tool: "slow", Value: "late", Attempts: 1, Duration: 1500 * time.Millisecond}, results[0])
		assert.ErrorIs(t, results[1].Err, resilience.CodeTimeout)
		assert.Equal(t, map[string]any{"q": 1}, results[1].Err.Details["arguments"])
		assert.ErrorIs(t, results[2].Err, resilience.CodeToolNotFound)
		assert.ErrorIs(t, results[3].Err, resilience.ErrGoexit)
		assert.ErrorIs(t, results[4].Err, resilience.CodeToolFailed)
		for i, name := range []string{"slow", "quick", "none", "exits", "panics"} {
			assert.Equal(t, name, results[i].Tool)
		}
		assert.Empty(t, resilience.All[int](t.Context(), g))
		time.Sleep(time.Hour)
	})
}

func TestWrap(t *testing.T) {
	type input struct {
		Path   string `json:"path"`
		APIKey string `json:"apiKey"`
	}
	g := newGuard(t, resilience.Config{})
	handler := resilience.Wrap(g, "x", func(_ context.Context, in input) (string, error) {
		if in.Path == "" {
			return "part", errBoom
		}
		return "read " + in.Path, nil
	}, resilience.Debug())
	value, err := handler(t.Context(), input{Path: "a"})
	assert.NoError(t, err)
	assert.Equal(t, "read a", value)
	value, err = handler(t.Context(), input{APIKey: "sk-1"})
	assert.Equal(t, "part", value)
	var e *resilience.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, map[string]any{"path": "", "apiKey": "[REDACTED]"}, e.Details["arguments"])

	pointer := resilience.Wrap(g, "x", func(context.Context, *input) (string, error) { return "", errBoom }, resilience.Debug())
	_, err = pointer(t.Context(), &input{})
	require.ErrorAs(t, err, &e)
	assert.NotContains(t, e.Details, "arguments", "a pointer may lead to what is in use")

	assert.PanicsWithValue(t, "resilience: Wrap: nil *Guard", func() { resilience.Wrap(nil, "x", handler) })
	assert.PanicsWithValue(t, "resilience: Wrap: the tool's name is empty", func() { resilience.Wrap(g, "", handler) })
	assert.PanicsWithValue(t, "resilience: Wrap: nil handler for tool 'x'", func() { resilience.Wrap[int, int](g, "x", nil) })
}

func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"b": {Breaker: "db"}, "a": {}}})
		assert.Equal(t, `[{"tool":"a","breaker":"a","state":"closed","consecutiveFailures":0,"inFlight":0,"abandoned":0},`+
			`{"tool":"b","breaker":"db","state":"closed","consecutiveFailures":0,"inFlight":0,"abandoned":0}]`, jsonOf(t, g.Health()))
		go func() { _, _ = resilience.Do(t.Context(), g, "a", hang(time.Hour)) }()
		for range 5 {
			_, _ = resilience.Do(t.Context(), g, "b", failing(9, errBoom), resilience.Debug())
		}
		_, _ = resilience.Do(t.Context(), g, "c", failing(0, nil))
		synctest.Wait()
		time.Sleep(10 * time.Second)
		assert.Equal(t, `[{"tool":"a","breaker":"a","state":"closed","consecutiveFailures":0,"inFlight":1,"abandoned":0},`+
			`{"tool":"b","breaker":"db","state":"open","retryAfter":20,"consecutiveFailures":5,"inFlight":0,"abandoned":0,`+
			`"lastError":{"code":"TOOL_FAILED","tool":"b","message":"Tool 'b' failed","suggestion":"If retryable is true, try again; otherwise change the request or use another tool.","retryable":true}},`+
			`{"tool":"c","breaker":"c","state":"closed","consecutiveFailures":0,"inFlight":0,"abandoned":0}]`, jsonOf(t, g.Health()))
		assert.ErrorIs(t, g.Health()[1].LastError, errBoom, "for programs")
		time.Sleep(21 * time.Second)
		_, _ = resilience.Do(t.Context(), g, "b", failing(9, errBoom))
		assert.Equal(t, 6, g.Health()[1].ConsecutiveFailures, "the failed probe too")
		time.Sleep(time.Minute)
		assert.Equal(t, 1, g.Health()[0].Abandoned)
		time.Sleep(time.Hour)
		assert.Zero(t, g.Health()[0].Abandoned)
	})
}

func TestTimeoutOfATool(t *testing.T) {
	g := newGuard(t, resilience.Config{
		Timeouts: map[resilience.Tier]time.Duration{resilience.Quick: time.Second, "browser": 3 * time.Second},
		Tools: map[string]resilience.Tool{
			"a": {}, "cypher": {}, "b": {Tier: "browser"}, "c": {Timeout: 4 * time.Second, Tier: resilience.Heavy}, "impact": {Tier: resilience.Quick},
		},
	})
	for name, want := range map[string]time.Duration{
		"a": time.Second, "cypher": 120 * time.Second, "b": 3 * time.Second, "c": 4 * time.Second, "impact": time.Second,
		"explore": 120 * time.Second, "unlisted": time.Second, "": time.Second,
	} {
		assert.Equal(t, want, g.Timeout(name), name)
	}
	assert.Zero(t, g.Breaker("cypher").RetryAfter())
}

// Names come from agents: a flood of them must not fill the memory.
func TestUnlistedToolsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{})
		for i := range 3000 {
			_, err := resilience.Do(t.Context(), g, fmt.Sprint("tool", i), failing(0, nil))
			require.NoError(t, err)
		}
		_, err := resilience.Do(t.Context(), g, strings.Repeat("x", 300), failing(0, nil))
		require.NoError(t, err)
		health := g.Health()
		assert.Len(t, health, 1025)
		assert.Equal(t, "(others)", health[0].Tool)
		assert.NotSame(t, g.Breaker("tool0"), g.Breaker("tool1"))
		assert.Same(t, g.Breaker("tool2000"), g.Breaker("tool2001"))

		r := resilience.Run(t.Context(), g, "tool2000", obey)
		assert.Equal(t, "tool2000", r.Err.Tool, "still called by its name")
		assert.Equal(t, 60*time.Second, r.Duration)
		r = resilience.Run(t.Context(), g, "cypher", obey)
		assert.Equal(t, 120*time.Second, r.Duration, "and with the limit of its name")
	})
}

// Names that are too long don't even take what room there is.
func TestLongNamesAreNotKept(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	_, err := resilience.Do(t.Context(), g, strings.Repeat("x", 257), failing(0, nil))
	require.NoError(t, err)
	require.Len(t, g.Health(), 1)
	assert.Equal(t, "(others)", g.Health()[0].Tool)
	g.Breaker("never called")
	assert.Len(t, g.Health(), 1)
}

// The probe of a half-open breaker is a call like any other, retries included.
func TestDoProbeMayBeRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, one(resilience.Tool{Effect: resilience.ReadOnly}))
		open(t, g.Breaker("x"))
		time.Sleep(31 * time.Second)
		r := resilience.Run(t.Context(), g, "x", failing(2, errBoom))
		assert.Nil(t, r.Err)
		assert.Equal(t, 3, r.Attempts)
		assert.Equal(t, resilience.Closed, g.Breaker("x").State())
	})
}

// A probe may rightly take as long as its tool's limit.
func TestDoProbeOfASlowTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, one(resilience.Tool{Timeout: time.Hour}))
		open(t, g.Breaker("x"))
		time.Sleep(31 * time.Second)
		go func() { _, _ = resilience.Do(t.Context(), g, "x", hang(time.Hour-1)) }()
		time.Sleep(50 * time.Minute)
		_, err := resilience.Do(t.Context(), g, "x", failing(0, nil))
		assert.ErrorIs(t, err, resilience.CodeCircuitOpen)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, resilience.Closed, g.Breaker("x").State())
	})
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

// What Classify says on purpose holds.
func TestOwnClassify(t *testing.T) {
	errLeft := errors.New("rpc error: code = Canceled")
	classify := func(err error) resilience.Class {
		if errors.Is(err, errLeft) {
			return resilience.Canceled
		}
		return resilience.Transient
	}
	cfg := one(resilience.Tool{Effect: resilience.ReadOnly})
	cfg.Retry.Classify, cfg.Breaker.Classify = classify, classify
	g := newGuard(t, cfg)
	r := resilience.Run(t.Context(), g, "x", failing(9, errLeft))
	assert.ErrorIs(t, r.Err, resilience.CodeCanceled)
	assert.Equal(t, 1, r.Attempts)
	assert.Zero(t, g.Health()[0].ConsecutiveFailures)

	r = resilience.Run(t.Context(), g, "x", func(context.Context) (int, error) { panic(errLeft) })
	assert.ErrorIs(t, r.Err, resilience.CodeToolFailed, "but a panic is a panic")
	assert.Equal(t, 1, r.Attempts)
	assert.Equal(t, 1, g.Health()[0].ConsecutiveFailures)
}

// Whatever a tool panics with, it says nothing of what was done before.
func TestPanicsAreToolFailures(t *testing.T) {
	for _, value := range []any{io.ErrUnexpectedEOF, context.DeadlineExceeded, syscall.ECONNREFUSED, resilience.TimeoutError("inner", 1), resilience.MarkTransient(errBoom)} {
		r := resilience.Run(t.Context(), newGuard(t, one(resilience.Tool{})), "x", func(context.Context) (int, error) { panic(value) })
		assert.Equal(t, resilience.CodeToolFailed, r.Err.Code, "%v", value)
		assert.Equal(t, 1, r.Attempts, "%v", value)
		assert.False(t, r.Err.Retryable, "%v", value)
		assert.ErrorIs(t, r.Err, value.(error))
	}
}

// An attempt that was given up on keeps its number: it may be part of a key.
func TestAttemptOfAnAbandonedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := one(resilience.Tool{Effect: resilience.ReadOnly})
		cfg.AttemptTimeout = time.Second
		_, err := resilience.Do(t.Context(), newGuard(t, cfg), "x", func(ctx context.Context) (int, error) {
			n := resilience.Attempt(ctx)
			if n == 1 {
				time.Sleep(10 * time.Second)
				assert.Equal(t, 1, resilience.Attempt(ctx))
			}
			return n, nil
		})
		assert.NoError(t, err)
		time.Sleep(time.Hour)
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
	for g.Health()[0].Abandoned > 0 {
		runtime.Gosched()
	}
	r := resilience.All(t.Context(), g, resilience.Call[int]{Tool: "y", Func: failing(9, errBoom)})
	assert.NotContains(t, r[0].Err.Details, "arguments")
}

// The longest duration there is means no limit, also where limits nest.
func TestLongestLimits(t *testing.T) {
	cfg := one(resilience.Tool{Timeout: math.MaxInt64})
	cfg.AttemptTimeout = math.MaxInt64
	_, err := resilience.Do(t.Context(), newGuard(t, cfg), "x", failing(0, nil))
	assert.NoError(t, err)
	_, err = resilience.WithTimeout(t.Context(), "x", math.MaxInt64-1, func(ctx context.Context) (int, error) {
		return resilience.WithTimeout(ctx, "x", math.MaxInt64, failing(0, nil))
	})
	assert.NoError(t, err)
}
