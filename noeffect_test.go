package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

// A write is repeated only if the marks of all its errors permit that, or none of them may have had an effect.
func TestPromise8MarksOfSomeErrorsDoNotSpeakForAll(t *testing.T) {
	marked, neutral := resilience.MarkTransient(errBoom), resilience.MarkNeutral(errBoom)
	for name, tc := range map[string]struct {
		fn       toolFunc
		attempts int
	}{
		"the first":    {reporting(nil, errors.Join(marked, errBoom)), 1},
		"the last":     {reporting(nil, errors.Join(errBoom, marked)), 1},
		"and refused":  {reporting(nil, errors.Join(marked, syscall.ECONNREFUSED)), 1},
		"all of them":  {reporting(nil, errors.Join(marked, marked)), 4},
		"neutral":      {reporting(nil, errors.Join(neutral, marked)), 1},
		"neutral too":  {reporting(nil, errors.Join(neutral, errDial)), 1},
		"was refused":  {reporting(errDial, errors.Join(neutral, errBoom)), 4},
		"neutral only": {failing(9, errors.Join(neutral, errDial)), 1},
		"last neutral": {failing(9, errors.Join(errDial, neutral)), 1},
		"both refused": {failing(9, errors.Join(resilience.MarkNeutral(errDial), errDial)), 4},
		"both marked":  {failing(9, errors.Join(resilience.MarkNeutral(errDial), marked)), 4},
	} {
		runInBubble(t, name, func(t *testing.T) {
			r, _ := runTool(t, writes, tc.fn)
			assert.Equal(t, tc.attempts, r.Attempts)
		})
	}
}

// A deadlineLike is context.DeadlineExceeded by its Is method alone.
type deadlineLike struct{}

func (deadlineLike) Error() string        { return "too late" }
func (deadlineLike) Is(target error) bool { return target == context.DeadlineExceeded }

// A refused request is no proof if the tool's error shows that something else was done.
func TestPromise8ARefusedRequestSpeaksOnlyForAnErrorThatTellsNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		err      error
		attempts int
	}{
		"nothing":         {errBoom, 4},
		"a reset":         {fmt.Errorf("x: %w", syscall.ECONNRESET), 1},
		"words":           {&resilience.Error{Message: "The order is kept", Retryable: true}, 1},
		"trouble":         {statusError(503), 1},
		"a deadline":      {fmt.Errorf("x: %w", context.DeadlineExceeded), 1},
		"like a deadline": {deadlineLike{}, 1},
		"first a reset":   {errors.Join(syscall.ECONNRESET, errBoom), 1},
		"then a reset":    {errors.Join(errBoom, syscall.ECONNRESET), 1},
		"first a trouble": {errors.Join(statusError(503), errBoom), 1},
	} {
		runInBubble(t, name, func(t *testing.T) {
			r, _ := runTool(t, writes, reporting(errDial, tc.err))
			assert.Equal(t, tc.attempts, r.Attempts)
		})
	}
}

// asOnly reaches another error only by its As method.
type asOnly struct{ inner error }

func (asOnly) Error() string        { return "as" }
func (e asOnly) As(target any) bool { return errors.As(e.inner, target) }

// A refused request is no reason to repeat a tool of which an earlier attempt has done something.
func TestPromise8LastOfSeveralAttemptsIsNotAll(t *testing.T) {
	several := func(ctx context.Context) error {
		inner := newGuard(t, resilience.Config{Effect: resilience.ReadOnly, Retry: resilience.Retry{MaxRetries: 1}})
		r := resilience.Run(ctx, inner, "inner", func(ctx context.Context) (int, error) {
			if resilience.Attempt(ctx) > 1 {
				resilience.ReportBackend(ctx, errDial)
			}
			return 0, errBoom
		})
		return errors.Unwrap(r.Err)
	}
	for name, tc := range map[string]struct {
		err      func(context.Context) error
		attempts int
	}{
		"one attempt":        {func(context.Context) error { return errBoom }, 4},
		"several":            {several, 1},
		"several, behind As": {func(ctx context.Context) error { return asOnly{several(ctx)} }, 1},
		"several, and one":   {func(ctx context.Context) error { return errors.Join(several(ctx), errBoom) }, 1},
		"one, and several":   {func(ctx context.Context) error { return errors.Join(errBoom, several(ctx)) }, 1},
	} {
		runInBubble(t, name, func(t *testing.T) {
			r, _ := runTool(t, writes, func(ctx context.Context) (int, error) {
				err := tc.err(ctx)
				resilience.ReportBackend(ctx, errDial)
				return 0, err
			})
			assert.Equal(t, tc.attempts, r.Attempts)
		})
	}
}

// A cause without effect is no proof if the error around it may stand for more than one call.
func TestPromise8ErrorsAroundOneThatHadNoEffect(t *testing.T) {
	none, code := resilience.MarkTransient(errBoom), resilience.CodeToolFailed
	panicked, down := &resilience.PanicError{Value: none}, errors.Unwrap(noConnection(t))
	for name, tc := range map[string]struct {
		err    error
		repeat bool
	}{
		"an Error of a single call":   {&resilience.Error{Code: code, Retryable: true, Err: none}, true},
		"an Error of several":         {&resilience.Error{Code: "BUSY", Retryable: true, Err: none}, false},
		"a panic":                     {&resilience.Error{Code: code, Retryable: true, Err: panicked}, false},
		"several, then no connection": {&resilience.Error{Code: "BUSY", Retryable: true, Err: down}, false},
	} {
		runInBubble(t, name, func(t *testing.T) {
			r, _ := runTool(t, writes, failing(9, tc.err))
			assert.Equal(t, tc.repeat, r.Attempts > 1)
		})
	}
}

// A mark within a panic is no proof: the tool may have done something before it.
func TestPromise8PanicWithAMarkAfterARequest(t *testing.T) {
	transient := func(error) resilience.Class { return resilience.ClassTransient }
	for name, tc := range map[string]struct {
		err    error
		repeat bool
	}{
		"a mark":  {resilience.MarkTransient(errBoom), true},
		"a panic": {fmt.Errorf("x: %w", &resilience.PanicError{Value: resilience.MarkTransient(errBoom)}), false},
	} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := classifying(writes, transient)
			cfg.Tools["inner"] = writes
			g := newGuard(t, cfg)
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				_, err := resilience.Do(ctx, g, "inner", succeed)
				assert.NoError(t, err)
				return 0, tc.err
			})
			assert.Equal(t, tc.repeat, r.Attempts > 1)
		})
	}
}
