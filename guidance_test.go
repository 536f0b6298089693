package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

// AsError completes a copy of a tool's own Error, which may be a package variable.
func TestAsErrorCompletesACopy(t *testing.T) {
	wait := waitError{time.Minute}
	for name, tc := range map[string]struct {
		own  resilience.Error
		want resilience.Error
	}{
		"complete": {
			resilience.Error{Code: "BUSY", Tool: "inner", Message: "m", Suggestion: "s"},
			resilience.Error{Code: "BUSY", Tool: "inner", Message: "m", Suggestion: "s"},
		},
		"a message": {
			resilience.Error{Message: "Full", Err: io.ErrShortWrite},
			resilience.Error{Code: failed, Tool: "x", Message: "Full", Suggestion: suggestChange},
		},
		"retryable": {
			resilience.Error{Message: "m", Retryable: true, Err: wait},
			resilience.Error{
				Code: failed, Tool: "x", Message: "m", Retryable: true, RetryAfter: time.Minute,
				Suggestion: "Do not call this tool for 60 seconds; use others.",
			},
		},
		"a cause that asks to wait, not retryable": {
			resilience.Error{Code: "BUSY", Err: wait},
			resilience.Error{Code: "BUSY", Tool: "x", Message: "Tool 'x' failed", Suggestion: suggestChange},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.own
			for _, err := range []error{&tc.own, fmt.Errorf("while saving: %w", &tc.own)} {
				e := resilience.AsError("x", err)
				assert.Equal(t, jsonOf(t, tc.want), jsonOf(t, e))
				assert.ErrorIs(t, e, err)
				assert.NotSame(t, &tc.own, e)
			}
			assert.Equal(t, before, tc.own)
		})
	}

	own := &resilience.Error{Message: "m", Details: map[string]any{}}
	resilience.AsError("x", own).Details["k"] = 1
	assert.Empty(t, own.Details)
	assert.Nil(t, resilience.AsError("x", nil))
	var success resilience.Result[int]
	assert.Nil(t, resilience.AsError("x", success.Err))
	assert.Equal(t, resilience.ClassTransient, resilience.Classify(success.Err))
}

// The RetryAfter of joined errors is the longest of theirs.
func TestLongestRetryAfterOfSeveralErrors(t *testing.T) {
	for _, err := range []error{
		fmt.Errorf("x: %w", waitError{2 * time.Second}),
		errors.Join(waitError{2 * time.Second}, errBoom),
		errors.Join(errBoom, waitError{2 * time.Second}, errBoom),
		errors.Join(waitError{2 * time.Second}, waitError{time.Second}),
		errors.Join(waitError{time.Second}, waitError{2 * time.Second}),
	} {
		assert.Equal(t, 2*time.Second, resilience.AsError("x", err).RetryAfter, "%v", err)
	}
}

// A report adds to an error of no known type, or that has no time to wait, and to no other.
func TestReportAddsToAnErrorThatHasLess(t *testing.T) {
	busy := resilience.Error{Code: "BUSY", Message: "m", Retryable: true}
	knowing := busy
	knowing.RetryAfter = time.Second
	down := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for name, tc := range map[string]struct {
		report, err error
		code        resilience.Code
		retryAfter  time.Duration
	}{
		"nothing":              {down, errBoom, resilience.CodeConnectionLost, 0},
		"a timeout":            {down, context.DeadlineExceeded, resilience.CodeTimeout, 0},
		"a permanent one":      {down, resilience.MarkPermanent(errBoom), resilience.CodeToolFailed, 0},
		"a mistake":            {down, resilience.MarkInvalid(errBoom), resilience.CodeValidation, 0},
		"an own":               {down, &busy, "BUSY", 0},
		"a time to wait":       {waitError{time.Minute}, errBoom, resilience.CodeToolFailed, time.Minute},
		"one for an own":       {waitError{time.Minute}, &busy, "BUSY", time.Minute},
		"one for another time": {waitError{time.Minute}, &knowing, "BUSY", time.Second},
	} {
		r, _ := runTool(t, once, reporting(tc.report, tc.err))
		assert.Equal(t, tc.code, r.Err.Code, name)
		assert.Equal(t, tc.retryAfter, r.Err.RetryAfter, name)
	}
}

// RETRY_EXHAUSTED has the reason of the last attempt in its message, and the tool's own suggestion.
func TestRetryExhaustedHasTheLastReason(t *testing.T) {
	const exhausted, later = "Tool 'x' failed after 4 attempts", "Try again later"
	lost := resilience.CodeConnectionLost
	for name, tc := range map[string]struct {
		err        error
		message    string
		last       resilience.Code
		suggestion string
	}{
		"unknown":           {errBoom, exhausted, resilience.CodeToolFailed, later},
		"a lost connection": {syscall.ECONNREFUSED, exhausted + ": connection refused", lost, later},
		"own words": {
			&resilience.Error{Code: "SLOW", Message: "the index is slow", Retryable: true},
			exhausted + ": the index is slow", "SLOW", later,
		},
		"an own suggestion": {
			&resilience.Error{Message: "m", Suggestion: "Ask Ann.", Retryable: true},
			exhausted + ": m", resilience.CodeToolFailed, "Ask Ann.",
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			r, _ := runTool(t, reads, failing(9, tc.err))
			for _, e := range []*resilience.Error{r.Err, resilience.RetryExhaustedError("x", 4, tc.err)} {
				assert.Equal(t, resilience.CodeRetryExhausted, e.Code)
				assert.Equal(t, tc.message, e.Message)
				assert.Equal(t, tc.last, e.LastCode)
				assert.Contains(t, e.Suggestion, tc.suggestion)
				assert.ErrorIs(t, e, tc.err)
			}
		})
	}
}

// A rejected request, a mistake and a caller who has left need no guidance beside the tool's own answer.
func TestWhichErrorsHaveGuidance(t *testing.T) {
	for want, errs := range map[bool][]error{
		false: {statusError(404), resilience.MarkInvalid(errBoom)},
		true:  {errBoom, statusError(503), &resilience.Error{Code: resilience.CodeValidation, Message: "No such row"}},
	} {
		for _, err := range errs {
			assert.Equal(t, want, resilience.AsError("x", err).HasGuidance(), "%v", err)
		}
	}

	g := guardWith(t, resilience.Tool{})
	canceled, _ := endedContexts(t)
	r := resilience.Run(canceled, g, "x", succeed)
	assert.False(t, r.Err.HasGuidance())
	r = resilience.Run(t.Context(), g, "x", failing(9, errBoom), behindAdapter)
	assert.False(t, r.Err.HasGuidance(), "nothing is known")
	r = resilience.Run(t.Context(), g, "x", failing(9, statusError(404)), resilience.Debug())
	assert.True(t, r.Err.HasGuidance(), "the details are asked for")
}

// The suggestions of a Config replace ours, not the tool's own. What an Effect needs is added.
func TestSuggestionsOfTheConfig(t *testing.T) {
	const start, ask, fix, list = "Start the app.", "Ask in #ops.", "Fix it.", "Look again."
	const read, write, unknown = resilience.ReadOnly, resilience.NonIdempotent, resilience.EffectUnknown
	own := func(code resilience.Code, suggestion string) error {
		return &resilience.Error{Code: code, Message: "m", Suggestion: suggestion, Retryable: true}
	}
	permanent, mistake := resilience.MarkPermanent(errBoom), resilience.MarkInvalid(errBoom)
	notFound := &resilience.Error{Code: resilience.CodeToolNotFound}
	for i, tc := range []struct {
		effect resilience.Effect
		fn     toolFunc
		want   string
	}{
		{read, untilDone, start},
		{write, untilDone, start + " " + suggestCheck},
		{unknown, untilDone, start + " " + suggestCaution},
		{read, failing(9, errBoom), ask},
		{write, failing(9, errBoom), ask + " " + suggestCheck},
		{unknown, failing(9, errBoom), ask + " " + suggestCaution},
		{read, failing(9, permanent), ask},
		{write, failing(9, permanent), ask},
		{write, failing(9, mistake), fix},
		{unknown, failing(9, notFound), list},
		{read, reporting(nil, mistake), fix},
		{write, reporting(nil, mistake), fix + " " + suggestCheck},
		{unknown, reporting(nil, mistake), fix + " " + suggestCaution},
		{write, reporting(nil, notFound), list + " " + suggestCheck},
		{write, failing(9, own(timedOut, "Mine")), "Mine"},
		{read, failing(9, own("", "")), ask},
		{read, failing(9, own("QUOTA", "")), ask}, // as our words for TOOL_FAILED would be
		{read, failing(9, own(lost, "")), "Try again later."},
	} {
		runInBubble(t, fmt.Sprint(i), func(t *testing.T) {
			cfg := configWith(resilience.Tool{Effect: tc.effect, Retry: once.Retry})
			cfg.Suggestions = map[resilience.Code]string{
				timedOut: start, failed: ask, invalid: fix, resilience.CodeToolNotFound: list,
			}
			r := resilience.Run(t.Context(), newGuard(t, cfg), "x", tc.fn)
			assert.Equal(t, tc.want, r.Err.Suggestion)
		})
	}
}

// limited is an answer with status 429 that tells when the limit ends.
type limited time.Duration

func (limited) Error() string               { return "too many requests" }
func (limited) StatusCode() int             { return 429 }
func (l limited) RetryAfter() time.Duration { return time.Duration(l) }

func TestMessageOfARateLimit(t *testing.T) {
	assert.Equal(t, "The backend of 'x' limits requests: call again in 60 seconds",
		resilience.AsError("x", limited(time.Minute)).Message)
	assert.Equal(t, "The backend of 'x' limits requests: call again later", resilience.AsError("x", limited(0)).Message)
	assert.Equal(t, "The backend limits requests: call again later", resilience.AsError("", limited(0)).Message)
}

// rejectedBy returns the error of a call that a breaker of the tool x rejects.
func rejectedBy(t *testing.T, key string, open func(*resilience.Breaker)) *resilience.Error {
	g := guardWith(t, resilience.Tool{})
	_ = withKey(t, g, key, succeed)
	for _, b := range g.Breakers() {
		open(b)
	}
	return resilience.Run(t.Context(), g, "x", notCalled(t), resilience.BreakerKey(key)).Err
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
			"RETRY_EXHAUSTED: connection refused. 4 attempts failed. Try again later."},
		{&resilience.Error{Code: "BUSY", Message: "Busy!", Suggestion: "Ask Ann."}, "Ask Ann.", "BUSY: Busy! Ask Ann."},
		{&resilience.Error{Code: resilience.CodeRateLimited, Message: "3 mails an hour", Suggestion: "Wait."}, "Wait.",
			"RATE_LIMITED: 3 mails an hour. Wait."},
		{nil, "", ""},
		{resilience.AsError("x", limited(time.Minute)), "Call again in 60 seconds; use others meanwhile.",
			"RATE_LIMITED: Call again in 60 seconds; use others meanwhile."},
		{resilience.AsError("x", limited(0)), "", "RATE_LIMITED: Call again later; use others meanwhile."},
		{resilience.AsError("x", &resilience.Error{Code: resilience.CodeOverloaded}),
			"Wait for earlier calls of this tool to end before you call it again.",
			"OVERLOADED: failed. Wait for earlier calls of this tool to end before you call it again."},
		{rejectedBy(t, "", func(b *resilience.Breaker) { b.Isolate("until 14:00") }), "Use other tools.",
			"CIRCUIT_OPEN: taken out of service: until 14:00. Use other tools."},
		{rejectedBy(t, "eu", func(b *resilience.Breaker) { b.Trip(90 * time.Second) }),
			"Do not make this call for 90 seconds; calls of this tool for others may succeed.",
			"CIRCUIT_OPEN: for 'eu', the last calls failed. " +
				"Do not make this call for 90 seconds; calls of this tool for others may succeed."},
		{&resilience.Error{Code: "BUSY", Details: map[string]any{"a": 1}},
			`{"code":"BUSY","message":"","retryable":false,"details":{"a":1}}`,
			`{"code":"BUSY","message":"","retryable":false,"details":{"a":1}}`},
	} {
		assert.Equal(t, tc.beside, tc.err.Line(true))
		assert.Equal(t, tc.line, tc.err.Line(false))
	}
}
