package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAsErrorOfNilIsNil(t *testing.T) {
	assert.Nil(t, resilience.AsError("x", nil))
}

func TestAsErrorCopiesACompleteError(t *testing.T) {
	complete := &resilience.Error{Code: "BUSY", Tool: "inner", Message: "m", Suggestion: "s"}
	e := resilience.AsError("x", complete)
	assert.NotSame(t, complete, e, "it may be a variable of the program's")
	assert.ErrorIs(t, e, complete)
	assert.Equal(t, jsonOf(t, complete), jsonOf(t, e))
}

func TestAsErrorCompletesACopyOfAnError(t *testing.T) {
	bare := &resilience.Error{Message: "The disk is full", Err: io.ErrShortWrite}
	before := *bare

	e := resilience.AsError("x", bare)

	assert.Equal(t, resilience.CodeToolFailed, e.Code)
	assert.Equal(t, "x", e.Tool)
	assert.Equal(t, "The disk is full", e.Message)
	assert.NotEmpty(t, e.Suggestion)
	assert.Equal(t, before, *bare, "the tool's own is never changed")
	assert.ErrorIs(t, e, bare)
	assert.ErrorIs(t, e, io.ErrShortWrite)
}

func TestAsErrorKeepsWhatAnErrorIsWrappedIn(t *testing.T) {
	wrapped := fmt.Errorf("while saving: %w", &resilience.Error{Code: "BUSY"})

	e := resilience.AsError("x", wrapped)

	assert.Equal(t, resilience.Code("BUSY"), e.Code)
	assert.Equal(t, "Tool 'x' failed", e.Message)
	assert.ErrorIs(t, e, wrapped)
}

func TestAsErrorHasTheDelayThatTheErrorAsksFor(t *testing.T) {
	wrapped := fmt.Errorf("x: %w", waitError{time.Minute})
	assert.Equal(t, time.Minute, resilience.AsError("x", wrapped).RetryAfter)
	assert.Zero(t, resilience.AsError("x", waitError{-1}).RetryAfter)

	permanent := resilience.MarkPermanent(waitError{time.Minute})
	assert.Zero(t, resilience.AsError("x", permanent).RetryAfter, "nothing to wait for")
}

// A nil pointer returned as an error is an old mistake: it must not end the process.
func TestAsErrorSurvivesATypedNil(t *testing.T) {
	var err *typedNil
	e := resilience.AsError("x", err)
	assert.Equal(t, resilience.CodeToolFailed, e.Code)
	assert.Equal(t, "Tool 'x' failed", e.Message)

	var own *resilience.Error
	e = resilience.AsError("x", own)
	assert.Equal(t, resilience.CodeToolFailed, e.Code)
	assert.NotErrorIs(t, e, io.EOF)
}

// A panickingWait asks for a delay, and panics instead of saying for which.
type panickingWait struct{}

func (panickingWait) Error() string             { return "busy" }
func (panickingWait) RetryAfter() time.Duration { panic("no delay") }

func TestSuggestionFollowsFromTheDiagnosis(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"the caller's mistake":       {resilience.MarkInvalid(errBoom), "Correct the arguments, then call again."},
		"lost, and stays so":         {resilience.MarkPermanent(syscall.ECONNREFUSED), suggestChange},
		"too slow, and stays so":     {resilience.MarkPermanent(context.DeadlineExceeded), suggestChange},
		"failed, and stays so":       {resilience.MarkPermanent(errBoom), suggestChange},
		"failed, and says nothing":   {resilience.MarkNeutral(errBoom), suggestChange},
		"failed, a retry may help":   {errBoom, suggestRetry},
		"asks for a delay and fails": {panickingWait{}, suggestRetry},
	} {
		e := resilience.AsError("x", tc.err)
		assert.Equal(t, tc.want, e.Suggestion, name)
		assert.Zero(t, e.RetryAfter, name)
	}
}

func TestExhaustedErrorSaysWhatTheToolSaid(t *testing.T) {
	own := &resilience.Error{Code: "BUSY", Message: "the index is being built", Suggestion: "Wait"}
	e := resilience.RetryExhaustedError("x", 3, own)
	assert.Equal(t, "Tool 'x' failed after 3 attempts: the index is being built", e.Message)
	assert.Equal(t, "Wait", e.Suggestion)
	assert.Equal(t, resilience.Code("BUSY"), e.LastCode)
	assert.ErrorIs(t, e, own)
}

func TestErrorOfTheToolsOwnIsCompletedNotChanged(t *testing.T) {
	own := &resilience.Error{Code: "BUSY", Tool: "inner", Message: "m", Retryable: true}
	before := *own
	e := resilience.AsError("x", resilience.MarkPermanent(own))
	assert.Equal(t, "inner", e.Tool)
	assert.False(t, e.Retryable)
	assert.Equal(t, before, *own)

	wait := &resilience.Error{Message: "m", Retryable: true, Err: waitError{time.Minute}}
	before = *wait
	e = resilience.AsError("x", wait)
	assert.Equal(t, "x", e.Tool)
	assert.Equal(t, time.Minute, e.RetryAfter)
	assert.Equal(t, before, *wait)
}

// Of several errors that were joined, the first one that asks for a time to wait is heard.
func TestTheFirstOfSeveralErrorsSaysHowLongToWait(t *testing.T) {
	for _, err := range []error{
		errors.Join(waitError{2 * time.Second}, errBoom),
		errors.Join(errBoom, waitError{2 * time.Second}),
		errors.Join(errBoom, waitError{2 * time.Second}, errBoom),
		errors.Join(waitError{2 * time.Second}, waitError{time.Second}),
	} {
		assert.Equal(t, 2*time.Second, resilience.AsError("x", err).RetryAfter, "%v", err)
	}
}

// What the backend has said adds to a failure of which the tool's own error says less, and to no other.
func TestReportAddsToAnErrorThatSaysLess(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for name, tc := range map[string]struct {
		err  error
		code resilience.Code
	}{
		"nothing":             {errBoom, resilience.CodeConnectionLost},
		"a timeout":           {context.DeadlineExceeded, resilience.CodeTimeout},
		"a permanent one":     {resilience.MarkPermanent(errBoom), resilience.CodeToolFailed},
		"a mistake":           {resilience.MarkInvalid(errBoom), resilience.CodeValidation},
		"an Error of its own": {&resilience.Error{Code: "BUSY", Retryable: true}, "BUSY"},
	} {
		g := guardWith(t, resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}})
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			resilience.ReportBackend(ctx, refused)
			return 0, tc.err
		})
		assert.Equal(t, tc.code, r.Err.Code, name)
	}

	g := guardWith(t, resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}})
	r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
		resilience.ReportBackend(ctx, waitError{time.Minute})
		return 0, &resilience.Error{Message: "m", Retryable: true, RetryAfter: time.Second}
	})
	assert.Equal(t, time.Second, r.Err.RetryAfter, "the tool knows better")
}

// A Classify field may say that a failure says nothing. What is certain about a connection is said all the same.
func TestLossThatIsCertainIsSaidWhateverItsClass(t *testing.T) {
	neutral := func(error) resilience.Class { return resilience.ClassNeutral }
	g := guardWith(t, resilience.Tool{Retry: &resilience.Retry{Classify: neutral}})
	for name, tc := range map[string]struct {
		err  error
		code resilience.Code
	}{
		"refused":   {syscall.ECONNREFUSED, resilience.CodeConnectionLost},
		"broke off": {io.ErrUnexpectedEOF, resilience.CodeToolFailed},
	} {
		r := resilience.Run(t.Context(), g, "x", failing(9, tc.err))
		assert.Equal(t, tc.code, r.Err.Code, name)
		assert.False(t, r.Err.Retryable, name)
	}
}

// RETRY_EXHAUSTED says why the last attempt failed, if that can be said.
func TestRetryExhaustedSaysWhy(t *testing.T) {
	const exhausted = "Tool 'x' failed after 4 attempts"
	for name, tc := range map[string]struct {
		err        error
		message    string
		suggestion string // empty: ours
	}{
		"nothing":           {errBoom, exhausted, ""},
		"a lost connection": {syscall.ECONNREFUSED, exhausted + ": connection refused", ""},
		"own words":         {&resilience.Error{Message: "the index is slow", Retryable: true}, exhausted + ": the index is slow", ""},
		"no words":          {&resilience.Error{Code: "BUSY", Retryable: true, Err: syscall.ECONNREFUSED}, exhausted + ": connection refused", ""},
		"an own suggestion": {
			&resilience.Error{Message: "m", Suggestion: "Ask Ann.", Retryable: true}, exhausted + ": m", "Ask Ann.",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{Effect: resilience.ReadOnly}), "x", failing(9, tc.err))
			assert.Equal(t, resilience.CodeRetryExhausted, r.Err.Code)
			assert.Equal(t, tc.message, r.Err.Message, name)
			if tc.suggestion == "" {
				assert.Contains(t, r.Err.Suggestion, "Try again later", name)
			} else {
				assert.Equal(t, tc.suggestion, r.Err.Suggestion)
			}
		})
	}
}

// A crash with the rejection of another call counts neither way, unless something failed before.
func TestCrashWithARejectionDoesNotHideAFailure(t *testing.T) {
	open := resilience.CircuitOpenError("other", time.Second)
	for name, tc := range map[string]struct {
		first   error
		counted int
	}{"alone": {nil, 0}, "after a failure": {errFirst, 1}} {
		synctest.Test(t, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly})
			_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				if tc.first != nil && resilience.Attempt(ctx) == 1 {
					return 0, tc.first
				}
				panic(open)
			})
			require.Error(t, err)
			assert.Equal(t, tc.counted, g.Health()[0].ConsecutiveFailures, name)
		})
	}
}
