package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
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
		"a shorter wish":         {opts: []resilience.Option{resilience.Timeout(time.Second)}, took: time.Second},
		"a longer wish":          {opts: []resilience.Option{resilience.Timeout(time.Hour)}, took: 60 * time.Second, counts: true},
		"a longer wish, allowed": {tool: resilience.Tool{MaxTimeout: 90 * time.Second}, opts: []resilience.Option{resilience.Timeout(80 * time.Second)}, took: 80 * time.Second, counts: true},
		"too long a wish":        {tool: resilience.Tool{MaxTimeout: 90 * time.Second}, opts: []resilience.Option{resilience.Timeout(time.Hour)}, took: 90 * time.Second, counts: true},
		"the last wish":          {opts: []resilience.Option{resilience.Timeout(time.Hour), nil, resilience.Timeout(time.Second)}, took: time.Second},
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
		assert.Equal(t, resilience.StateClosed, g.Breaker("cypher").State())
	})
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
		"empty name":       {t.Context(), "", fine, nil, "VALIDATION_ERROR: The tool's name is empty"},
		"nil function":     {t.Context(), "x", nil, nil, "TOOL_NOT_FOUND: Tool 'x' not found: its function is nil"},
		"zero timeout":     {t.Context(), "x", fine, resilience.Timeout(0), "VALIDATION_ERROR: The timeout of this call is 0s: it must be positive"},
		"negative timeout": {t.Context(), "x", fine, resilience.Timeout(-time.Second), "VALIDATION_ERROR: The timeout of this call is -1s: it must be positive"},
		"canceled":         {gone, "x", fine, nil, "CANCELED: The call was canceled"},
		"too late":         {late, "x", fine, nil, "TIMEOUT: Tool 'x' timed out"},
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
