package resilience_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ours are errors that this package has made, in various ways, and that don't count behind an adapter.
var ours = map[string]func(context.Context, *resilience.Guard) error{
	"of a call within":           inner(errBoom),
	"of a mistake within":        inner(statusError(404)),
	"of a neutral call within":   inner(resilience.MarkNeutral(errBoom)),
	"of a canceled call within":  canceled,
	"of AsError":                 itself(resilience.AsError("x", errBoom)),
	"of AsError, of a mistake":   itself(resilience.AsError("x", statusError(404))),
	"of AsError, again":          itself(resilience.AsError("x", resilience.AsError("x", errBoom))),
	"of tries within":            tries(errBoom),
	"of AsError, of tries":       itself(resilience.AsError("x", tries(errBoom)(context.Background(), nil))),
	"of a call with tries in it": inner(tries(errBoom)(context.Background(), nil)),
}

// tries returns the error of WithRetry when two attempts have failed.
func tries(err error) func(context.Context, *resilience.Guard) error {
	return func(ctx context.Context, _ *resilience.Guard) error {
		quick := resilience.Retry{MaxRetries: 1, Backoff: resilience.Backoff{Base: 1, Max: 1}}
		_, err := resilience.WithRetry(ctx, quick, func(context.Context) (int, error) { return 0, err })
		return err
	}
}

// An author who changes what an error of ours means, or says, has the last word, as by an Error of his own.
func TestAuthorChangesAnErrorOfOurs(t *testing.T) {
	for name, from := range ours {
		for change, tc := range map[string]struct {
			change   func(*resilience.Error)
			counts   int
			guidance bool
		}{
			"nothing":           {func(*resilience.Error) {}, 0, false},
			"its words":         {func(e *resilience.Error) { e.Message = "There is no city Atlantis." }, 0, true},
			"the advice":        {func(e *resilience.Error) { e.Suggestion = "Call list_cities first." }, 0, true},
			"the code":          {func(e *resilience.Error) { e.Code, e.Retryable = "INDEX_DOWN", true }, 1, true},
			"when to come back": {func(e *resilience.Error) { e.RetryAfter = time.Minute }, 0, true},
			"to a loss":         {func(e *resilience.Error) { e.Code, e.Retryable = resilience.CodeConnectionLost, true }, 1, true},
			"all to a mistake": {func(e *resilience.Error) {
				e.Code, e.Message, e.Retryable = resilience.CodeValidation, "There is no city Atlantis.", true
			}, 0, true},
		} {
			t.Run(name+", "+change, func(t *testing.T) {
				g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
				var changed resilience.Error
				_, err := resilience.Do(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
					var e *resilience.Error
					if !assert.ErrorAs(t, from(ctx, g), &e) {
						return 0, nil
					}
					changed = *e
					tc.change(&changed)
					return 0, &changed
				}, behindAdapter)
				var got *resilience.Error
				require.ErrorAs(t, err, &got)
				assert.Equal(t, tc.counts, g.Breaker("outer").Failures())
				assert.Equal(t, tc.guidance, got.HasGuidance())
				if tc.guidance {
					assert.Equal(t, changed.Code, got.Code)
					assert.Equal(t, changed.Message, got.Message)
					assert.Equal(t, changed.Retryable, got.Retryable)
					assert.Equal(t, changed.RetryAfter, got.RetryAfter)
				}
			})
		}
	}
}

// What an author has changed stays his, however often it is passed on.
func TestChangedErrorThatIsPassedOn(t *testing.T) {
	g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
	_, err := resilience.Do(t.Context(), g, "outermost", func(ctx context.Context) (int, error) {
		_, err := resilience.Do(ctx, g, "outer", func(ctx context.Context) (int, error) {
			var e *resilience.Error
			errors.As(inner(errBoom)(ctx, g), &e)
			e.Code, e.Retryable = "INDEX_DOWN", true
			return 0, resilience.AsError("x", e)
		})
		return 0, err
	}, behindAdapter)
	assert.ErrorIs(t, err, resilience.Code("INDEX_DOWN"))
	assert.Equal(t, 1, g.Breaker("outer").Failures())
	assert.Equal(t, 1, g.Breaker("outermost").Failures())
	assert.Zero(t, g.Breaker("inner").Failures())
}

// What AsError makes of what the tool itself has canceled says no more than that.
func TestAsErrorOfWhatTheToolHasCanceled(t *testing.T) {
	g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
	for range 2 {
		_, err := resilience.Do(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
			return 0, resilience.AsError("outer", canceled(ctx, g))
		})
		assert.ErrorIs(t, err, resilience.CodeToolFailed, "the caller is here")
	}
	assert.Equal(t, 2, g.Breaker("outer").Failures())
}

// Words of ours don't contradict what a program has made of Retryable.
func TestWordsOfAnErrorThatIsNotRetryableAnyMore(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	_, err := resilience.Do(t.Context(), g, "outer", func(context.Context) (int, error) {
		e := resilience.AsError("outer", errBoom)
		e.Retryable = false
		return 0, e
	})
	var e *resilience.Error
	require.ErrorAs(t, err, &e)
	assert.NotContains(t, e.Suggestion, "Try again")
}

// An author who lets agents try again says that it may help.
func TestRetryableSaysThatAnotherTryMayHelp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tool := resilience.Tool{Effect: resilience.ReadOnly}
		g := newGuard(t, resilience.Config{
			Retry: resilience.Retry{MaxRetries: 1}, Tools: map[string]resilience.Tool{"x": tool, "inner": tool},
		})
		for change, attempts := range map[bool]int{false: 1, true: 2} {
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				_, err := resilience.Do(ctx, g, "inner", failing(9, resilience.MarkPermanent(syscall.ECONNRESET)))
				e := err.(*resilience.Error)
				e.Retryable = change
				return 0, e
			})
			assert.Equal(t, attempts, r.Attempts)
		}
	})
}
