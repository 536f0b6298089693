package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestClassifyByTheOutermostMark(t *testing.T) {
	const failed, invalid = "Tool 'x' failed", "Tool 'x' got invalid arguments"
	for name, tc := range map[string]errorTest{
		"no mark": {
			err:   errBoom,
			class: resilience.ClassTransient, code: resilience.CodeToolFailed, message: failed,
		},
		"transient": {
			err:   resilience.MarkTransient(errBoom),
			class: resilience.ClassTransient, code: resilience.CodeToolFailed, message: failed,
		},
		"the backend's": {
			err:   resilience.MarkBackend(statusError(404)),
			class: resilience.ClassTransient, code: resilience.CodeToolFailed, message: failed,
		},
		"permanent in a wrapper": {
			err:   fmt.Errorf("x: %w", resilience.MarkPermanent(errBoom)),
			class: resilience.ClassPermanent, code: resilience.CodeToolFailed, message: failed,
		},
		"invalid": {
			err:   resilience.MarkInvalid(errBoom),
			class: resilience.ClassInvalid, code: resilience.CodeValidation, message: invalid,
		},
		"transient around permanent": {
			err:   resilience.MarkTransient(resilience.MarkPermanent(errBoom)),
			class: resilience.ClassTransient, code: resilience.CodeToolFailed, message: failed,
		},
		"invalid in a join": {
			err:   errors.Join(errBoom, resilience.MarkInvalid(io.EOF)),
			class: resilience.ClassInvalid, code: resilience.CodeValidation, message: invalid,
		},
		"backoff's permanent": {
			err:   backoff.Permanent(errBoom),
			class: resilience.ClassPermanent, code: resilience.CodeToolFailed, message: failed,
		},
		"backoff's permanent in a wrapper": {
			err:   fmt.Errorf("x: %w", backoff.Permanent(errBoom)),
			class: resilience.ClassPermanent, code: resilience.CodeToolFailed, message: failed,
		},
		"permanent around an Error": {
			err:   resilience.MarkPermanent(resilience.TimeoutError("x", 0)),
			class: resilience.ClassPermanent, code: resilience.CodeTimeout, message: "Tool 'x' timed out",
		},
	} {
		t.Run(name, tc.check)
	}
}

func TestClassifyByTheKindOfError(t *testing.T) {
	for name, tc := range map[string]errorTest{
		"panic": {
			err:   &resilience.PanicError{Value: "p"},
			class: resilience.ClassPermanent, code: resilience.CodeToolFailed, message: "Tool 'x' failed",
		},
		"goexit": {
			err:   resilience.ErrGoexit,
			class: resilience.ClassPermanent, code: resilience.CodeToolFailed, message: "Tool 'x' failed",
		},
		"canceled": {
			err:   fmt.Errorf("x: %w", context.Canceled),
			class: resilience.ClassCanceled, code: resilience.CodeCanceled, message: "The call was canceled",
		},
		"deadline exceeded": {
			err:   fmt.Errorf("x: %w", context.DeadlineExceeded),
			class: resilience.ClassTransient, code: resilience.CodeTimeout, message: "Tool 'x' timed out",
		},
	} {
		t.Run(name, tc.check)
	}
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
	assert.Equal(t, resilience.ClassTransient, resilience.Classify(nil))
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
		"permanent": resilience.MarkPermanent,
		"invalid":   resilience.MarkInvalid,
	} {
		t.Run(name, func(t *testing.T) {
			assert.NoError(t, mark(nil))
			assert.EqualError(t, mark(io.EOF), "EOF")
			assert.ErrorIs(t, mark(io.EOF), io.EOF)
		})
	}
}

// Each Classify field speaks for itself.
func TestABareCancelCountsWhateverRetryClassifySays(t *testing.T) {
	for name, retry := range map[string]func(error) resilience.Class{
		"default":   nil,
		"invalid":   func(error) resilience.Class { return resilience.ClassInvalid },
		"transient": func(error) resilience.Class { return resilience.ClassTransient },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := configWith(resilience.Tool{})
				cfg.Retry = resilience.Retry{MaxRetries: -1, Classify: retry}
				g := newGuard(t, cfg)
				for range 5 {
					_, err := resilience.Do(t.Context(), g, "x", failing(9, context.Canceled))
					require.Error(t, err)
				}
				assert.Equal(t, resilience.StateOpen, g.Breaker("x").State())
			})
		})
	}
}

func TestAFailureBesideAConnectorsRejectionCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := resilience.NewConnector(func(context.Context) (int, error) { return 0, errBoom },
			resilience.ConnectorConfig[int]{MaxAttempts: 1})
		defer c.Close()
		synctest.Wait()
		_, rejected := c.Get(t.Context())
		require.Error(t, rejected)

		g := guardWith(t, resilience.Tool{})
		for range 5 {
			_, err := resilience.Do(t.Context(), g, "x", failing(9, errors.Join(errFirst, rejected)))
			require.Error(t, err)
		}
		assert.Equal(t, resilience.StateOpen, g.Breaker("x").State())
	})
}

// A rejection beside a real failure hides nothing, and neither does one that the program marks.
func TestRejectionIsNeutralOnlyIfNothingElseFailed(t *testing.T) {
	open := resilience.CircuitOpenError("other", time.Second)
	for name, tc := range map[string]struct {
		err      error
		failures int
	}{
		"alone":                 {open, 0},
		"wrapped":               {fmt.Errorf("x: %w", open), 0},
		"beside a failure":      {errors.Join(errBoom, open), 1},
		"marked as permanent":   {resilience.MarkPermanent(open), 1},
		"in an Error of a tool": {&resilience.Error{Message: "m", Err: open}, 1},
	} {
		g := guardWith(t, resilience.Tool{})
		_, err := resilience.Do(t.Context(), g, "x", failing(9, tc.err))
		assert.Error(t, err, name)
		assert.Equal(t, tc.failures, g.Health()[0].ConsecutiveFailures, name)
	}
}

// An errorByAs is an *Error by its As method alone.
type errorByAs struct{}

func (errorByAs) Error() string { return "bad argument" }

func (errorByAs) As(target any) bool {
	e, ok := target.(**resilience.Error)
	if ok {
		*e = &resilience.Error{Code: resilience.CodeValidation, Message: "limit must be positive"}
	}
	return ok
}

func TestErrorByItsAsMethodDecidesAsAnyOther(t *testing.T) {
	assert.Equal(t, resilience.ClassInvalid, resilience.Classify(fmt.Errorf("search: %w", errorByAs{})))
	r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{Effect: resilience.ReadOnly}), "x",
		func(context.Context) (int, error) { return 0, errorByAs{} })
	assert.Equal(t, resilience.CodeValidation, r.Err.Code)
	assert.Equal(t, 1, r.Attempts)
}
