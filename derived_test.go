package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

// Errors that AsError and WithRetry have made say what they wrap.

// Trouble decides, in any order, also as AsError and WithRetry return it.
func TestDerivedErrorsBesideTrouble(t *testing.T) {
	retried := func(err error) error {
		_, err = resilience.WithRetry(context.Background(), resilience.Retry{MaxRetries: -1}, failing(9, err))
		return err
	}
	reset := error(syscall.ECONNRESET)
	for _, mistake := range []error{
		statusError(404), resilience.AsError("x", statusError(404)), resilience.AsError("x", resilience.MarkNeutral(errBoom)),
	} {
		for _, trouble := range []error{reset, resilience.AsError("x", reset), retried(reset)} {
			permutations([]error{mistake, trouble, errBoom}, func(errs []error) {
				for _, joined := range []error{errors.Join(errs...), errors.Join(errs[0], fmt.Errorf("x: %w", errors.Join(errs[1:]...)))} {
					g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
					_, err := resilience.Do(t.Context(), g, "outer", failing(9, joined), behindAdapter)
					assert.Equal(t, 1, g.Breaker("outer").Failures(), "%q", joined)
					assert.NotEqual(t, resilience.CodeValidation, err.(*resilience.Error).Code, "%q", joined)
				}
			})
		}
	}
}

// Of two that AsError and WithRetry have made, too.
func TestTroubleOfTwoDerivedErrors(t *testing.T) {
	once := resilience.Retry{MaxRetries: 1, Backoff: resilience.Backoff{Base: 1, Max: 1}}
	_, lost := resilience.WithRetry(context.Background(), once, failing(9, syscall.ECONNRESET))
	missing := resilience.AsError("x", fs.ErrNotExist)
	permutations([]error{lost, missing}, func(errs []error) {
		assert.Equal(t, resilience.Classify(lost), resilience.Classify(errors.Join(errs...)), "%q", errs)
	})
}

// So does what was reported, if the tool returns another error: that of a fallback, for example.
func TestDerivedErrorAfterReportedTrouble(t *testing.T) {
	missing := &fs.PathError{Op: "open", Path: "/cache/x", Err: fs.ErrNotExist}
	for _, err := range []error{missing, resilience.AsError("x", missing)} {
		g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
		_, _ = resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			resilience.ReportBackend(ctx, statusError(503))
			return 0, err
		}, behindAdapter)
		assert.Equal(t, 1, g.Breaker("x").Failures(), "%q", err)
	}
}

// What a fan-out has canceled, after one of its requests has failed, hides no trouble, with and without a guard.
func TestTroubleBesideWhatIsCanceled(t *testing.T) {
	for _, third := range []error{
		errBoom, resilience.MarkNeutral(errBoom), &resilience.Error{Code: resilience.CodeCircuitOpen, Retryable: true},
	} {
		permutations([]error{syscall.ECONNRESET, context.Canceled, third}, func(errs []error) {
			fan := errors.Join(errs...)
			assert.Equal(t, resilience.ClassTransient, resilience.Classify(fan), "%q", fan)
			for _, joined := range []error{fan, resilience.AsError("x", fan), errors.Join(resilience.AsError("x", fan), errBoom)} {
				assert.NotErrorIs(t, joined, resilience.CodeCanceled)
				g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
				_, _ = resilience.Do(t.Context(), g, "x", failing(9, joined), behindAdapter)
				assert.Equal(t, 1, g.Breaker("x").Failures(), "%q", joined)
			}
		})
	}
}

// What says nothing about the backend is no mistake of the agent's for that.
func TestWordsOfADerivedNeutralError(t *testing.T) {
	lost := resilience.MarkNeutral(syscall.ECONNRESET)
	for _, err := range []error{lost, resilience.AsError("x", lost)} {
		g := newGuard(t, resilience.Config{})
		_, err := resilience.Do(t.Context(), g, "x", failing(9, err), behindAdapter)
		e := err.(*resilience.Error)
		assert.Equal(t, resilience.CodeConnectionLost, e.Code)
		assert.True(t, e.Retryable)
		assert.NotContains(t, e.Suggestion, "Do not repeat")
	}
}

// An error of a Connector doesn't grow each time that a tool returns it again.
func TestErrorOfAConnectorThatIsReturnedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := resilience.NewConnector(func(context.Context) (int, error) { return 0, errBoom }, resilience.ConnectorConfig[int]{MaxAttempts: 1})
		defer c.Close()
		synctest.Wait()
		_, err := c.Get(t.Context())
		g := newGuard(t, resilience.Config{})
		for range 100 {
			_, err = resilience.Do(t.Context(), g, "x", failing(9, err))
		}
		depth := 0
		for cause := err; cause != nil; cause = errors.Unwrap(cause) {
			depth++
		}
		assert.Less(t, depth, 10)
	})
}

// Words that we have filled in follow what a program has said since.
func TestWordsFollowRetryable(t *testing.T) {
	for _, err := range []error{resilience.MarkPermanent(errBoom), &resilience.PanicError{Value: 1}} {
		e := resilience.AsError("x", err)
		assert.Contains(t, e.Suggestion, "Do not repeat")
		e.Retryable = true
		got := resilience.AsError("x", fmt.Errorf("x: %w", e))
		assert.True(t, got.Retryable)
		assert.NotContains(t, got.Suggestion, "Do not repeat")

		e.Suggestion = "Do not repeat this on a Monday."
		assert.Equal(t, e.Suggestion, resilience.AsError("x", fmt.Errorf("x: %w", e)).Suggestion)
	}
}

// An error of which nothing is known counts beside a call that another guard has rejected, also as AsError returns them.
func TestUnknownBesideRejection(t *testing.T) {
	permutations([]error{errBoom, &resilience.Error{Code: resilience.CodeCircuitOpen, Retryable: true}}, func(errs []error) {
		joined := errors.Join(errs...)
		for _, err := range []error{joined, resilience.AsError("x", joined), fmt.Errorf("x: %w", resilience.AsError("x", joined))} {
			g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
			_, _ = resilience.Do(t.Context(), g, "x", failing(9, err))
			assert.Equal(t, 1, g.Breaker("x").Failures(), "%q", err)
		}
	})
	rejected := resilience.AsError("x", &resilience.Error{Code: resilience.CodeCircuitOpen, Retryable: true})
	g := newGuard(t, resilience.Config{})
	_, _ = resilience.Do(t.Context(), g, "x", failing(9, rejected))
	assert.Zero(t, g.Breaker("x").Failures())
}

// Without a guard, what is canceled decides over what says nothing, in any order.
func TestCanceledBesideWhatSaysNothing(t *testing.T) {
	permutations([]error{errBoom, context.Canceled, resilience.MarkNeutral(errBoom)}, func(errs []error) {
		assert.Equal(t, resilience.ClassCanceled, resilience.Classify(errors.Join(errs...)), "%q", errs)
	})
}

// Words that an author has given to what AsError returned are his, also beside another error.
func TestAuthorsWordsOfADerivedErrorStand(t *testing.T) {
	own := resilience.AsError("x", errBoom)
	own.Message = "The index is being rebuilt"
	for _, joined := range []error{errors.Join(own, statusError(503)), errors.Join(statusError(503), own)} {
		g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
		_, err := resilience.Do(t.Context(), g, "outer", failing(9, joined), behindAdapter)
		assert.Equal(t, own.Message, err.(*resilience.Error).Message)
		assert.Equal(t, 1, g.Breaker("outer").Failures())
	}
}

// A connector that has no connection knows more than a breaker, also if another error is joined with its own.
func TestErrorOfAConnectorBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := resilience.NewConnector(func(context.Context) (int, error) { return 0, errBoom },
			resilience.ConnectorConfig[int]{Backoff: resilience.Backoff{Base: time.Second, Max: time.Second}})
		defer c.Close()
		synctest.Wait()
		_, down := c.Get(t.Context())
		for _, tc := range []struct {
			other    error
			attempts int
		}{
			{errBoom, 1},
			{&resilience.Error{Code: resilience.CodeCircuitOpen, Retryable: true}, 1},
		} {
			for _, joined := range []error{errors.Join(down, tc.other), errors.Join(tc.other, down)} {
				for _, err := range []error{joined, resilience.AsError("x", joined)} {
					g := newGuard(t, resilience.Config{Effect: resilience.ReadOnly})
					r := resilience.Run(t.Context(), g, "x", failing(9, err), behindAdapter)
					assert.Zero(t, g.Breaker("x").Failures(), "%q", err)
					assert.Equal(t, tc.attempts, r.Attempts, "%q", err)
				}
			}
		}
	})
}

// AsError of a rejection, or of what wasn't made, beside an error of which nothing is known says what that says.
func TestWordsOfARejectionBesideAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := resilience.NewConnector(func(context.Context) (int, error) { return 0, errBoom }, resilience.ConnectorConfig[int]{})
		defer c.Close()
		time.Sleep(time.Millisecond)
		_, down := c.Get(t.Context())
		for _, unmade := range []error{down, resilience.CircuitOpenError("other", time.Minute)} {
			joined := errors.Join(unmade, errBoom)
			words := func(err error) []any {
				g := newGuard(t, resilience.Config{})
				_, err = resilience.Do(t.Context(), g, "x", failing(9, err), behindAdapter)
				e := err.(*resilience.Error)
				return []any{e.Code, e.Message, e.Suggestion, e.Retryable, e.HasGuidance(), g.Breaker("x").Failures()}
			}
			assert.Equal(t, words(joined), words(resilience.AsError("x", joined)))
		}
	})
}
