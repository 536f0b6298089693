package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

func TestClassify(t *testing.T) {
	const failure, mistaken = "Tool 'x' failed", "Tool 'x' got invalid arguments"
	const transient, permanent, neutral = resilience.ClassTransient, resilience.ClassPermanent, resilience.ClassNeutral
	const canceled = resilience.CodeCanceled
	marked, timeout := resilience.MarkPermanent(errBoom), resilience.TimeoutError("x", 0)
	ours, crash := resilience.MarkNeutral(errBoom), &resilience.PanicError{Value: "p"}
	panicked := &resilience.PanicError{Value: resilience.ErrUnfinished}
	for name, tc := range map[string]errorTest{
		"no mark":                    {errBoom, transient, failed, failure},
		"transient":                  {resilience.MarkNoEffect(errBoom), transient, failed, failure},
		"backend":                    {resilience.MarkBackend(statusError(404)), transient, failed, failure},
		"permanent":                  {fmt.Errorf("x: %w", marked), permanent, failed, failure},
		"backoff.Permanent":          {fmt.Errorf("x: %w", backoff.Permanent(errBoom)), permanent, failed, failure},
		"neutral":                    {ours, neutral, failed, failure},
		"neutral in a join":          {errors.Join(ours, resilience.MarkNeutral(io.EOF)), neutral, failed, failure},
		"invalid":                    {resilience.MarkInvalid(errBoom), resilience.ClassInvalid, invalid, mistaken},
		"transient around permanent": {resilience.MarkNoEffect(marked), transient, failed, failure},
		"neutral around permanent":   {resilience.MarkNeutral(marked), neutral, failed, failure},
		"permanent around neutral":   {resilience.MarkPermanent(ours), permanent, failed, failure},
		"permanent around an Error":  {resilience.MarkPermanent(timeout), permanent, timedOut, "Tool 'x' timed out"},
		"neutral around an Error":    {resilience.MarkNeutral(timeout), neutral, timedOut, "Tool 'x' timed out"},
		"panic":                      {panicked, permanent, failed, failure},
		"panic, wrapped":             {fmt.Errorf("x: %w", crash), permanent, failed, failure},
		"Goexit":                     {fmt.Errorf("x: %w", resilience.ErrGoexit), permanent, failed, failure},
		"canceled":                   {context.Canceled, resilience.ClassCanceled, canceled, "The call was canceled"},
		"deadline exceeded":          {context.DeadlineExceeded, transient, timedOut, "Tool 'x' timed out"},
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

func TestMarkKeepsTheErrorAndItsText(t *testing.T) {
	for name, mark := range map[string]func(error) error{
		"transient": resilience.MarkNoEffect,
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
		"transient":           {resilience.MarkNoEffect(own), true},
		"permanent":           {resilience.MarkPermanent(own), false},
		"backoff.Permanent":   {backoff.Permanent(own), false},
		"of its cause":        {around, true},
		"neutral":             {resilience.MarkNeutral(own), true},
		"joined, without one": {errors.Join(errBoom, own), true},
	} {
		e := resilience.AsError("x", tc.err)
		assert.Equal(t, "m", e.Message, name)
		assert.Equal(t, tc.retryable, e.Retryable, name)
	}
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
		"own, trouble":       {quota, trouble, true, quota.Error()},
		"own, open":          {quota, open, true, quota.Error()},
		"own, canceled":      {missing, context.Canceled, false, missing.Error()},
		"mark, trouble":      {invalid, trouble, false, mistaken},
		"mark, open":         {resilience.MarkPermanent(errBoom), open, true, failed},
		"mark, canceled":     {invalid, context.Canceled, false, mistaken},
		"trouble, rejected":  {trouble, rejected, true, failed},
		"trouble, unknown":   {trouble, errBoom, true, failed},
		"trouble, open":      {trouble, open, true, failed},
		"trouble, canceled":  {trouble, context.Canceled, true, failed},
		"trouble, neutral":   {trouble, neutral, true, failed},
		"rejected, unknown":  {rejected, errBoom, false, rejects},
		"rejected, open":     {rejected, open, false, rejects},
		"rejected, canceled": {rejected, context.Canceled, false, rejects},
		"unknown, open":      {errBoom, open, true, ""},
		"unknown, down":      {errBoom, down, true, ""},
		"unknown, neutral":   {errBoom, neutral, true, failed},
		"open, canceled":     {open, context.Canceled, false, open.Error()},
		"open, neutral":      {open, neutral, false, open.Error()},
		"canceled, neutral":  {context.Canceled, neutral, false, ""},
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
			g := newGuard(t, classifying(resilience.Tool{}, func(error) resilience.Class { return tc.class }))
			_, err := resilience.Do(t.Context(), g, "x", tc.fn)
			assert.Error(t, err)
			assert.Equal(t, tc.failures, g.Breaker("x").Failures())
		})
	}
}

// Config.Classify decides about rate limits, too, which count for nothing otherwise.
func TestConfigClassifyMayCountARateLimit(t *testing.T) {
	permanent := func(error) resilience.Class { return resilience.ClassPermanent }
	for want, classify := range map[int]func(error) resilience.Class{0: resilience.Classify, 1: permanent} {
		g := newGuard(t, resilience.Config{Classify: classify})
		_, err := resilience.Do(t.Context(), g, "x", failing(9, statusError(429)))
		assert.Error(t, err)
		assert.Equal(t, want, g.Breaker("x").Failures())
	}
}
