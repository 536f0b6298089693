package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

func TestClassify(t *testing.T) {
	const failed, invalid = "Tool 'x' failed", "Tool 'x' got invalid arguments"
	const transient, permanent, neutral = resilience.ClassTransient, resilience.ClassPermanent, resilience.ClassNeutral
	const toolFailed, timedOut = resilience.CodeToolFailed, "Tool 'x' timed out"
	timeout, panicked := resilience.TimeoutError("x", 0), &resilience.PanicError{Value: "p"}
	for name, tc := range map[string]errorTest{
		"no mark":           {errBoom, transient, toolFailed, failed},
		"transient":         {resilience.MarkTransient(errBoom), transient, toolFailed, failed},
		"backend":           {resilience.MarkBackend(statusError(404)), transient, toolFailed, failed},
		"permanent":         {fmt.Errorf("x: %w", resilience.MarkPermanent(errBoom)), permanent, toolFailed, failed},
		"backoff.Permanent": {fmt.Errorf("x: %w", backoff.Permanent(errBoom)), permanent, toolFailed, failed},
		"neutral":           {resilience.MarkNeutral(errBoom), neutral, toolFailed, failed},
		"invalid": {
			resilience.MarkInvalid(errBoom), resilience.ClassInvalid, resilience.CodeValidation, invalid,
		},
		"transient around permanent": {
			resilience.MarkTransient(resilience.MarkPermanent(errBoom)), transient, toolFailed, failed,
		},
		"neutral around permanent": {
			resilience.MarkNeutral(resilience.MarkPermanent(errBoom)), neutral, toolFailed, failed,
		},
		"permanent around neutral": {
			resilience.MarkPermanent(resilience.MarkNeutral(errBoom)), permanent, toolFailed, failed,
		},
		"invalid in a join": {
			errors.Join(errBoom, resilience.MarkInvalid(io.EOF)),
			resilience.ClassInvalid, resilience.CodeValidation, invalid,
		},
		"neutral in a join": {
			errors.Join(resilience.MarkNeutral(errBoom), resilience.MarkNeutral(statusError(503))),
			neutral, toolFailed, failed,
		},
		"permanent around an Error": {resilience.MarkPermanent(timeout), permanent, resilience.CodeTimeout, timedOut},
		"neutral around an Error":   {resilience.MarkNeutral(timeout), neutral, resilience.CodeTimeout, timedOut},
		"panic":                     {fmt.Errorf("x: %w", panicked), permanent, toolFailed, failed},
		"panic with ErrUnfinished": {
			&resilience.PanicError{Value: resilience.ErrUnfinished}, permanent, toolFailed, failed,
		},
		"Goexit": {fmt.Errorf("x: %w", resilience.ErrGoexit), permanent, toolFailed, failed},
		"canceled": {
			fmt.Errorf("x: %w", context.Canceled),
			resilience.ClassCanceled, resilience.CodeCanceled, "The call was canceled",
		},
		"deadline exceeded": {
			fmt.Errorf("x: %w", context.DeadlineExceeded), transient, resilience.CodeTimeout, timedOut,
		},
	} {
		t.Run(name, tc.check)
	}
	assert.Equal(t, transient, resilience.Classify(nil))
}

func TestClassifyByTheCodeOfAnError(t *testing.T) {
	for code, class := range map[resilience.Code]resilience.Class{
		resilience.CodeTimeout:        resilience.ClassTransient,
		resilience.CodeCircuitOpen:    resilience.ClassTransient,
		resilience.CodeConnectionLost: resilience.ClassTransient,
		resilience.CodeOverloaded:     resilience.ClassTransient,
		resilience.CodeRetryExhausted: resilience.ClassPermanent,
		resilience.CodeToolFailed:     resilience.ClassPermanent,
		resilience.CodeToolNotFound:   resilience.ClassInvalid,
		resilience.CodeValidation:     resilience.ClassInvalid,
		resilience.CodeCanceled:       resilience.ClassCanceled,
		"BUSY":                        resilience.ClassPermanent,
	} {
		assert.Equal(t, class, resilience.Classify(&resilience.Error{Code: code}), "%s", code)
	}
	retryable := &resilience.Error{Code: resilience.CodeToolFailed, Retryable: true}
	assert.Equal(t, resilience.ClassTransient, resilience.Classify(retryable))
}

func TestClassHasAName(t *testing.T) {
	for class, want := range map[resilience.Class]string{
		resilience.ClassTransient: "transient",
		resilience.ClassPermanent: "permanent",
		resilience.ClassInvalid:   "invalid",
		resilience.ClassCanceled:  "canceled",
		resilience.ClassNeutral:   "neutral",
	} {
		assert.Equal(t, want, class.String())
	}
}

func TestMarkKeepsTheErrorAndItsText(t *testing.T) {
	for name, mark := range map[string]func(error) error{
		"transient": resilience.MarkTransient,
		"backend":   resilience.MarkBackend,
		"permanent": resilience.MarkPermanent,
		"invalid":   resilience.MarkInvalid,
		"neutral":   resilience.MarkNeutral,
	} {
		assert.NoError(t, mark(nil), name)
		assert.EqualError(t, mark(io.EOF), "EOF", name)
		assert.ErrorIs(t, mark(io.EOF), io.EOF, name)
	}
}

// The outermost mark takes back that an Error is retryable.
func TestMarkOfARetryableError(t *testing.T) {
	own := &resilience.Error{Message: "m", Retryable: true}
	around := &resilience.Error{Message: "m", Retryable: true, Err: resilience.MarkPermanent(errBoom)}
	for name, tc := range map[string]struct {
		err       error
		retryable bool
	}{
		"no mark":             {own, true},
		"transient":           {resilience.MarkTransient(own), true},
		"permanent":           {resilience.MarkPermanent(own), false},
		"backoff.Permanent":   {backoff.Permanent(own), false},
		"of its cause":        {around, true},
		"joined, without one": {errors.Join(errBoom, own), true},
	} {
		e := resilience.AsError("x", tc.err)
		assert.Equal(t, "m", e.Message, name)
		assert.Equal(t, tc.retryable, e.Retryable, name)
	}
}

// A neutral mark changes no words of the tool's own Error.
func TestMarkNeutralLeavesTheToolsOwnErrorAsItIs(t *testing.T) {
	own := &resilience.Error{Code: "BUSY", Message: "m", Retryable: true, RetryAfter: 20 * time.Second}
	r, counted := runTool(t, reads, failing(9, resilience.MarkNeutral(own)))
	assert.False(t, counted)
	assert.Equal(t, 1, r.Attempts)
	assert.True(t, r.Err.Retryable)
	assert.Equal(t, 20*time.Second, r.Err.RetryAfter)
	assert.Equal(t, "BUSY: m", r.Err.Error())
}

// classifying returns a Config whose Classify is as given.
func classifying(x resilience.Tool, classify func(error) resilience.Class) resilience.Config {
	cfg := configWith(x)
	cfg.Classify = classify
	return cfg
}

// The Classify function of a Config decides whether a failure counts and is retried, whatever the backend reports.
func TestClassifyOfTheConfig(t *testing.T) {
	for class, want := range map[resilience.Class]struct {
		counted  int
		attempts int
	}{
		resilience.ClassTransient: {1, 4},
		resilience.ClassPermanent: {1, 1},
		resilience.ClassInvalid:   {0, 1},
		resilience.ClassNeutral:   {0, 1},
	} {
		for name, fn := range map[string]toolFunc{
			"a failure": failing(9, errBoom),
			"a report":  reporting(statusError(503), errBoom),
			"a reset":   failing(9, syscall.ECONNRESET),
			"a mistake": failing(9, statusError(404)),
		} {
			runInBubble(t, class.String()+", "+name, func(t *testing.T) {
				says := func(error) resilience.Class { return class }
				g := newGuard(t, classifying(reads, says))
				r := resilience.Run(t.Context(), g, "x", fn)
				assert.Equal(t, want.attempts, r.Attempts)
				assert.Equal(t, want.counted, g.Breaker("x").Failures())
			})
		}
	}
}

// A Classify function that panics harms no call, and doesn't hide the tool's error.
func TestPromise4ClassifyThatPanics(t *testing.T) {
	panics := func(error) resilience.Class { panic("p") }
	g := newGuard(t, classifying(writes, panics))
	for _, err := range []error{errBoom, &resilience.Error{Message: "m", Err: errBoom}} {
		_, got := resilience.Do(t.Context(), g, "x", failing(9, err))
		assert.ErrorIs(t, got, errBoom)
	}
	v, err := resilience.Do(t.Context(), g, "x", succeed)
	assert.NoError(t, err)
	assert.Equal(t, 1, v)
}

// One error decides about several that are joined, in either order: what the tool's author says, else trouble of the
// backend, else an answer that rejects the request, else an unknown error, else a rejection by another guard or a
// Connector. Canceled and neutral errors decide only over each other.
func TestJoinedErrors(t *testing.T) {
	quota := &resilience.Error{Code: "QUOTA", Message: "Used up until Monday"}
	missing := &resilience.Error{Code: resilience.CodeValidation, Message: "There is no Atlantis"}
	open, down := resilience.CircuitOpenError("other", time.Hour), noConnection(t)
	invalid, neutral := resilience.MarkInvalid(errBoom), resilience.MarkNeutral(errBoom)
	trouble, rejected := error(statusError(503)), error(statusError(404))
	const failed, rejects = "TOOL_FAILED: Tool 'x' failed", "VALIDATION_ERROR: Tool 'x' rejected the request"
	const mistaken = "VALIDATION_ERROR: Tool 'x' got invalid arguments"

	for name, tc := range map[string]struct {
		heavy, light error
		counted      bool
		text         string // empty: not promised
	}{
		"own, trouble":        {quota, trouble, true, quota.Error()},
		"own mistake, reset":  {missing, syscall.ECONNRESET, false, missing.Error()},
		"own, rejected":       {quota, rejected, true, quota.Error()},
		"own, open":           {quota, open, true, quota.Error()},
		"own, canceled":       {missing, context.Canceled, false, missing.Error()},
		"mark, trouble":       {invalid, trouble, false, mistaken},
		"mark, rejected":      {resilience.MarkBackend(errBoom), rejected, true, failed},
		"mark, open":          {resilience.MarkPermanent(errBoom), open, true, failed},
		"mark, canceled":      {invalid, context.Canceled, false, mistaken},
		"trouble, rejected":   {trouble, rejected, true, failed},
		"reset, missing file": {syscall.ECONNRESET, fs.ErrNotExist, true, ""},
		"trouble, unknown":    {trouble, errBoom, true, failed},
		"trouble, open":       {trouble, open, true, failed},
		"trouble, down":       {trouble, down, true, failed},
		"trouble, canceled":   {trouble, context.Canceled, true, failed},
		"trouble, neutral":    {trouble, neutral, true, failed},
		"rejected, unknown":   {rejected, errBoom, false, rejects},
		"rejected, open":      {rejected, open, false, rejects},
		"rejected, down":      {rejected, down, false, rejects},
		"rejected, canceled":  {rejected, context.Canceled, false, rejects},
		"unknown, open":       {errBoom, open, true, ""},
		"unknown, down":       {errBoom, down, true, ""},
		"unknown, neutral":    {errBoom, neutral, true, failed},
		"open, canceled":      {open, context.Canceled, false, open.Error()},
		"open, neutral":       {open, neutral, false, open.Error()},
		"canceled, neutral":   {context.Canceled, neutral, false, ""},
	} {
		for _, err := range []error{
			errors.Join(tc.heavy, tc.light), errors.Join(tc.light, tc.heavy), fmt.Errorf("%w: %w", tc.light, tc.heavy),
		} {
			t.Run(name, func(t *testing.T) {
				r, counted := runTool(t, once, failing(9, err))
				assert.Equal(t, tc.counted, counted)
				assert.ErrorIs(t, r.Err, err)
				if tc.text != "" {
					assert.Equal(t, tc.text, r.Err.Error())
				}
			})
		}
	}

	own := resilience.AsError("x", errors.Join(quota, missing))
	assert.Equal(t, quota.Code, own.Code, "the first of equals decides")
	unfinished := errors.Join(resilience.MarkNeutral(resilience.ErrUnfinished), errBoom)
	assert.Equal(t, resilience.ClassInvalid, resilience.Classify(unfinished))
}

// A crash is the tool's failure and an unfinished call is none, whatever Config.Classify returns.
func TestClassifyDoesNotDecideOnCrashesAndUnfinishedCalls(t *testing.T) {
	for name, tc := range map[string]struct {
		fn       toolFunc
		class    resilience.Class
		failures int
	}{
		"a panic":    {panicking("x"), resilience.ClassInvalid, 1},
		"Goexit":     {exit, resilience.ClassInvalid, 1},
		"unfinished": {failing(9, resilience.ErrUnfinished), resilience.ClassPermanent, 0},
	} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := configWith(resilience.Tool{})
			cfg.Classify = func(error) resilience.Class { return tc.class }
			g := newGuard(t, cfg)
			_, err := resilience.Do(t.Context(), g, "x", tc.fn)
			assert.Error(t, err)
			assert.Equal(t, tc.failures, g.Breaker("x").Failures())
		})
	}
}
