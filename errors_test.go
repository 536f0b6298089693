package resilience_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTimeoutErrorRoundsItsTimeout(t *testing.T) {
	for timeout, want := range map[time.Duration]string{
		time.Minute:             "Tool 'x' exceeded timeout of 60s",
		1500 * time.Millisecond: "Tool 'x' exceeded timeout of 1.5s",
		4999_873_412:            "Tool 'x' exceeded timeout of 5s",
		20_123_456:              "Tool 'x' exceeded timeout of 20ms",
		20_123:                  "Tool 'x' exceeded timeout of 20µs",
		0:                       "Tool 'x' timed out",
	} {
		assert.Equal(t, want, resilience.TimeoutError("x", timeout).Message)
	}
	assert.Equal(t, "The tool exceeded timeout of 1s", resilience.TimeoutError("", time.Second).Message)
}

func TestConstructors(t *testing.T) {
	const words, more = "Circuit breaker open due to repeated failures.", " Calls are rejected for "
	const timeout, open = resilience.CodeTimeout, resilience.CodeCircuitOpen
	const lost, failed = resilience.CodeConnectionLost, resilience.CodeRetryExhausted
	cause := errors.New("disk on fire")
	permanent := resilience.MarkPermanent(cause)
	for _, tc := range []struct {
		err       *resilience.Error
		code      resilience.Code
		message   string
		retryable bool
	}{
		{resilience.TimeoutError("x", time.Minute), timeout, "Tool 'x' exceeded timeout of 60s", true},
		{resilience.CircuitOpenError("x", 30*time.Second), open, words + more + "30 more seconds.", true},
		{resilience.CircuitOpenError("x", 1), open, words + more + "1 more second.", true},
		{resilience.CircuitOpenError("x", -1), open, words, true},
		{resilience.ConnectionLostError("browser closed"), lost, "Connection lost: browser closed", true},
		{resilience.ConnectionLostError(""), lost, "Connection lost", true},
		{resilience.RetryExhaustedError("x", 4, cause), failed, "Tool 'x' failed after 4 attempts", true},
		{resilience.RetryExhaustedError("x", 1, nil), failed, "Tool 'x' failed after 1 attempt", true},
		{resilience.RetryExhaustedError("x", 2, permanent), failed, "Tool 'x' failed after 2 attempts", false},
	} {
		t.Run(tc.message, func(t *testing.T) {
			assert.Equal(t, tc.code, tc.err.Code)
			assert.Equal(t, tc.message, tc.err.Message)
			assert.Equal(t, tc.retryable, tc.err.Retryable)
			assert.NotEmpty(t, tc.err.Suggestion)
			assert.Equal(t, string(tc.code)+": "+tc.message, tc.err.Error())
			assert.ErrorIs(t, fmt.Errorf("wrapped: %w", tc.err), tc.code)
			assert.NotErrorIs(t, tc.err, resilience.CodeToolFailed)
		})
	}

	exhausted := resilience.RetryExhaustedError("x", 4, cause)
	assert.ErrorIs(t, exhausted, cause)
	assert.Equal(t, 4, exhausted.Attempts)
	assert.Equal(t, resilience.CodeToolFailed, exhausted.LastCode)
	assert.Empty(t, resilience.RetryExhaustedError("x", 2, nil).LastCode)
}

func TestErrorIsItsCodeAndTheErrorOfTheContextPackage(t *testing.T) {
	timeout := resilience.TimeoutError("x", time.Second)
	assert.ErrorIs(t, timeout, context.DeadlineExceeded)
	assert.NotErrorIs(t, timeout, context.Canceled)
	assert.NotErrorIs(t, timeout, resilience.TimeoutError("x", time.Second), "equal codes aren't equal errors")
	assert.NotErrorIs(t, timeout, errBoom)

	canceled := resilience.AsError("x", context.Canceled)
	assert.ErrorIs(t, canceled, context.Canceled)
	assert.NotErrorIs(t, canceled, context.DeadlineExceeded)

	assert.Equal(t, "BUSY", (&resilience.Error{Code: "BUSY"}).Error())
}

func TestNilErrorDoesNotPanic(t *testing.T) {
	var none *resilience.Error
	assert.Equal(t, "<nil>", none.Error())
	assert.NotErrorIs(t, error(none), resilience.CodeTimeout)
	assert.NoError(t, none.Unwrap())
	assert.False(t, none.HasGuidance())
	assert.Equal(t, "null", jsonOf(t, none))
}

func TestErrorMarshalsWithoutItsCause(t *testing.T) {
	secret := errors.New("password=secret")
	for want, err := range map[string]resilience.Error{
		`{"code":"C","tool":"t","message":"m","suggestion":"s","retryable":true,"retryAfter":2,"details":{"a":1}}`: {
			Code: "C", Tool: "t", Message: "m", Suggestion: "s", Retryable: true,
			RetryAfter: 1001 * time.Millisecond, Details: map[string]any{"a": 1}, Err: secret,
		},
		`{"code":"C","message":"m","retryable":false}`:               {Code: "C", Message: "m", Err: secret},
		`{"code":"C","message":"","retryable":false,"retryAfter":1}`: {Code: "C", RetryAfter: 1},
		`{"code":"C","message":"","retryable":false,"retryAfter":9223372037}`: {
			Code: "C", RetryAfter: math.MaxInt64,
		},
		`{"code":"C","message":"","retryable":false}`: {Code: "C", RetryAfter: -time.Second},
		`{"code":"D","message":"","retryable":false}`: {
			Code: "D", Details: map[string]any{"has no JSON": func() {}},
		},
		`{"code":"P","message":"","retryable":false}`: {
			Code: "P", Details: map[string]any{"panics": marshaler{func() { panic("p") }}},
		},
	} {
		assert.Equal(t, want, jsonOf(t, err))
		assert.Equal(t, want, jsonOf(t, &err))
	}
}

// A marshaler calls do when it is marshaled.
type marshaler struct{ do func() }

func (m marshaler) MarshalJSON() ([]byte, error) { m.do(); return []byte("1"), nil }

func TestErrorUnmarshals(t *testing.T) {
	for text, want := range map[string]resilience.Error{
		`{"code":"CIRCUIT_OPEN","tool":"x","message":"m","suggestion":"s","retryable":true,"retryAfter":30,` +
			`"details":{"n":1}}`: {
			Code: resilience.CodeCircuitOpen, Tool: "x", Message: "m", Suggestion: "s",
			Retryable: true, RetryAfter: 30 * time.Second, Details: map[string]any{"n": 1.0},
		},
		`{"code":"RETRY_EXHAUSTED","attempts":3,"lastCode":"TIMEOUT"}`: {
			Code: resilience.CodeRetryExhausted, Attempts: 3, LastCode: resilience.CodeTimeout,
		},
		`{"code":"TIMEOUT"}`:                 {Code: resilience.CodeTimeout},
		`{"retryAfter":2.5}`:                 {RetryAfter: 3 * time.Second},
		`{"retryAfter":-1}`:                  {},
		`{"retryAfter":9223372036854775807}`: {},
		`{"retryAfter":null}`:                {},
		`{"Err":"x","origin":{}}`:            {},
	} {
		e := resilience.Error{Message: "old", Err: errBoom}
		require.NoError(t, json.Unmarshal([]byte(text), &e))
		assert.Equal(t, want, e, text)
	}

	e := resilience.Error{Code: "OWN"}
	require.NoError(t, json.Unmarshal([]byte("null"), &e))
	assert.Equal(t, resilience.Code("OWN"), e.Code)
	assert.Error(t, json.Unmarshal([]byte(`{"retryAfter":"soon"}`), &e))
}

func TestErrorPrintsItsCauseForAnOperator(t *testing.T) {
	e := resilience.AsError("x", fmt.Errorf("query: %w", errors.New("db:5432 is gone")))
	assert.Equal(t, "TOOL_FAILED: Tool 'x' failed", fmt.Sprint(e))
	assert.Equal(t, "[TOOL_FAILED: Tool 'x' failed]", fmt.Sprintf("[%v]", e))
	assert.Equal(t, `"TOOL_FAILED: Tool 'x' failed"`, fmt.Sprintf("%q", e))
	assert.Equal(t, "TOOL_FAILED: Tool 'x' failed: query: db:5432 is gone", fmt.Sprintf("%+v", e))
	assert.Equal(t, "TIMEOUT: Tool 'x' timed out", fmt.Sprintf("%+v", resilience.TimeoutError("x", 0)))
	assert.Equal(t, "<nil>", fmt.Sprintf("%+v", (*resilience.Error)(nil)))
}

func TestErrorIsLoggedWithItsCause(t *testing.T) {
	e := resilience.CircuitOpenError("x", 30*time.Second)
	e.Message, e.Err, e.Details = "m", errors.New("boom"), map[string]any{"attempt": 2}
	var none *resilience.Error

	for want, err := range map[string]*resilience.Error{
		"err.code=CIRCUIT_OPEN err.tool=x err.message=m err.retryable=true err.retryAfter=30s err.cause=boom " +
			"err.details=map[attempt:2]": e,
		"err.code=C err.message=m err.retryable=false": {Code: "C", Message: "m"},
		"err=<nil>": none,
	} {
		log, out := textLog(0)
		log.Error("failed", "err", err)
		assert.Equal(t, "level=ERROR msg=failed "+want+"\n", out.String())
	}
}

// A tool may return a package variable from several calls at once. Each caller may change the error that it gets.
func TestSharedErrorIsNotChanged(t *testing.T) {
	shared := &resilience.Error{
		Code: resilience.CodeToolFailed, Tool: "own", Message: "m", Retryable: true, Details: map[string]any{"k": "v"},
	}
	before := *shared
	cfg := configWith(resilience.Tool{Effect: resilience.NonIdempotent})
	cfg.Breaker.Failures = 1 << 30
	cfg.Retry.MaxRetries = -1
	g := newGuard(t, cfg)

	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for _, err := range []error{shared, errors.Join(shared, errBoom), resilience.MarkNoEffect(shared)} {
				r := resilience.Run(t.Context(), g, "x", failing(9, err), resilience.Debug())
				assert.ErrorIs(t, r.Err, err)
				r.Err.Message, r.Err.Details["k"] = "changed", "changed"
				assert.Equal(t, "m", g.Health()[0].LastError.Message)
				g.Health()[0].LastError.Message = "changed"
			}
		})
	}
	wg.Wait()

	assert.Equal(t, before, *shared)
	assert.Equal(t, "v", shared.Details["k"])
}
