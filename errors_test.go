package resilience_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

func TestConstructors(t *testing.T) {
	cause := errors.New("disk on fire")
	for name, tc := range map[string]struct {
		err       *resilience.Error
		code      resilience.Code
		message   string
		retryable bool
	}{
		"timeout":              {resilience.TimeoutError("x", time.Minute), resilience.CodeTimeout, "Tool 'x' exceeded timeout of 60s", true},
		"timeout of 90s":       {resilience.TimeoutError("x", 90*time.Second), resilience.CodeTimeout, "Tool 'x' exceeded timeout of 90s", true},
		"timeout, fractions":   {resilience.TimeoutError("x", 1500*time.Millisecond), resilience.CodeTimeout, "Tool 'x' exceeded timeout of 1.5s", true},
		"timeout, noise":       {resilience.TimeoutError("x", 4999_873_412), resilience.CodeTimeout, "Tool 'x' exceeded timeout of 5s", true},
		"timeout, short":       {resilience.TimeoutError("x", 20_123_456), resilience.CodeTimeout, "Tool 'x' exceeded timeout of 20ms", true},
		"timeout, shorter":     {resilience.TimeoutError("x", 20_123), resilience.CodeTimeout, "Tool 'x' exceeded timeout of 20µs", true},
		"timeout, unknown":     {resilience.TimeoutError("x", 0), resilience.CodeTimeout, "Tool 'x' timed out", true},
		"timeout, no tool":     {resilience.TimeoutError("", time.Second), resilience.CodeTimeout, "The tool exceeded timeout of 1s", true},
		"open":                 {resilience.CircuitOpenError("x", 30*time.Second), resilience.CodeCircuitOpen, "Circuit breaker open due to repeated failures. Will retry in 30 seconds.", true},
		"open, rounded up":     {resilience.CircuitOpenError("x", time.Millisecond), resilience.CodeCircuitOpen, "Circuit breaker open due to repeated failures. Will retry in 1 second.", true},
		"open, unknown":        {resilience.CircuitOpenError("x", -1), resilience.CodeCircuitOpen, "Circuit breaker open due to repeated failures.", true},
		"lost":                 {resilience.ConnectionLostError("browser closed"), resilience.CodeConnectionLost, "Connection lost: browser closed", true},
		"lost, no reason":      {resilience.ConnectionLostError(""), resilience.CodeConnectionLost, "Connection lost", true},
		"exhausted":            {resilience.RetryExhaustedError("x", 4, cause), resilience.CodeRetryExhausted, "Tool 'x' failed after 4 attempts", false},
		"exhausted, one":       {resilience.RetryExhaustedError("x", 1, cause), resilience.CodeRetryExhausted, "Tool 'x' failed after 1 attempt", false},
		"exhausted, no reason": {resilience.RetryExhaustedError("x", 2, nil), resilience.CodeRetryExhausted, "Tool 'x' failed after 2 attempts", false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.code, tc.err.Code)
			assert.Equal(t, tc.message, tc.err.Message)
			assert.Equal(t, tc.retryable, tc.err.Retryable)
			assert.NotEmpty(t, tc.err.Suggestion)
			assert.Equal(t, string(tc.code)+": "+tc.message, tc.err.Error())
			assert.ErrorIs(t, fmt.Errorf("wrapped: %w", tc.err), tc.code)
			assert.NotErrorIs(t, tc.err, resilience.CodeToolFailed)
		})
	}
	assert.ErrorIs(t, resilience.RetryExhaustedError("x", 4, cause), cause)
}

func TestErrorIs(t *testing.T) {
	timeout := resilience.TimeoutError("x", time.Second)
	assert.ErrorIs(t, timeout, context.DeadlineExceeded)
	assert.NotErrorIs(t, timeout, context.Canceled)
	canceled := resilience.AsError("x", context.Canceled)
	assert.ErrorIs(t, canceled, context.Canceled)
	assert.NotErrorIs(t, canceled, context.DeadlineExceeded)
	assert.NotErrorIs(t, timeout, resilience.TimeoutError("x", time.Second), "two errors of a code are not the same error")

	var none *resilience.Error
	assert.Equal(t, "<nil>", none.Error())
	assert.NotErrorIs(t, error(none), resilience.CodeTimeout)
	assert.NoError(t, none.Unwrap())
	assert.Equal(t, "BUSY", (&resilience.Error{Code: "BUSY"}).Error())
}

func TestErrorJSON(t *testing.T) {
	for name, tc := range map[string]struct {
		err  *resilience.Error
		want string
	}{
		"all": {
			&resilience.Error{Code: "C", Tool: "t", Message: "m", Suggestion: "s", Retryable: true, RetryAfter: 1001 * time.Millisecond, Details: map[string]any{"a": 1}, Err: errors.New("secret")},
			`{"code":"C","tool":"t","message":"m","suggestion":"s","retryable":true,"retryAfter":2,"details":{"a":1}}`,
		},
		"least":           {&resilience.Error{Code: "C", Message: "m", Err: errors.New("secret")}, `{"code":"C","message":"m","retryable":false}`},
		"at least one":    {&resilience.Error{Code: "C", RetryAfter: 1}, `{"code":"C","message":"","retryable":false,"retryAfter":1}`},
		"whole seconds":   {&resilience.Error{Code: "C", RetryAfter: 30 * time.Second}, `{"code":"C","message":"","retryable":false,"retryAfter":30}`},
		"negative":        {&resilience.Error{Code: "C", RetryAfter: -time.Second}, `{"code":"C","message":"","retryable":false}`},
		"longest":         {&resilience.Error{Code: "C", RetryAfter: math.MaxInt64}, `{"code":"C","message":"","retryable":false,"retryAfter":9223372037}`},
		"broken details":  {&resilience.Error{Code: "C", Message: "m", Details: map[string]any{"f": func() {}}}, `{"code":"C","message":"m","retryable":false}`},
		"none":            {nil, `null`},
		"circuit breaker": {resilience.CircuitOpenError("x", 30*time.Second), `{"code":"CIRCUIT_OPEN","tool":"x","message":"Circuit breaker open due to repeated failures. Will retry in 30 seconds.","suggestion":"Do not call this tool again before the time in retryAfter has passed; go on with other tools meanwhile.","retryable":true,"retryAfter":30}`},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.want, jsonOf(t, tc.err)) })
	}
}

type brokenError struct{}

func (*brokenError) Error() string { panic("no text") }

func TestErrorLogValue(t *testing.T) {
	var buf bytes.Buffer
	log := slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	e := resilience.CircuitOpenError("x", 30*time.Second)
	e.Message = "m"
	e.Err = errors.New("boom")
	e.Details = map[string]any{"attempt": 2}
	log.Error("failed", "err", e)
	assert.Equal(t, "level=ERROR msg=failed err.code=CIRCUIT_OPEN err.tool=x err.message=m err.retryable=true err.retryAfter=30s err.cause=boom err.details=map[attempt:2]\n", buf.String())

	buf.Reset()
	var none *resilience.Error
	log.Error("failed", "err", none, "broken", &resilience.Error{Code: "C", Err: &brokenError{}})
	assert.Equal(t, "level=ERROR msg=failed err=<nil> broken.code=C broken.message=\"\" broken.retryable=false broken.cause=[unprintable]\n", buf.String())
}
