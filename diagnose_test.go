package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
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
