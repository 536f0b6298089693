package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

// What the error of a guarded call tells the calls around it: whether its failure was counted.

// What a tool's mark says of an Error of ours holds for the calls around its own, too, though that keeps its Code.
func TestMarkOfAnErrorWithinACall(t *testing.T) {
	reset := error(syscall.ECONNRESET)
	for name, tc := range map[string]struct {
		err      func(context.Context) error
		counted  bool
		attempts int
	}{
		"TIMEOUT":                  {withinASecond, true, 2},
		"TIMEOUT, neutral":         {marking(resilience.MarkNeutral, withinASecond), false, 1},
		"TIMEOUT, invalid":         {marking(resilience.MarkInvalid, withinASecond), false, 1},
		"TIMEOUT, permanent":       {marking(resilience.MarkPermanent, withinASecond), true, 1},
		"a loss":                   {failsWith(reset), true, 2},
		"a loss, permanent":        {marking(resilience.MarkPermanent, failsWith(reset)), true, 1},
		"CONNECTION_LOST, invalid": {marking(resilience.MarkInvalid, failsWith(resilience.ConnectionLostError("x"))), false, 1},
	} {
		for _, by := range []string{"a call", "AsError"} {
			runInBubble(t, name+", by "+by, func(t *testing.T) {
				once := &resilience.Retry{MaxRetries: -1}
				g := newGuard(t, resilience.Config{
					Retry: resilience.Retry{MaxRetries: 1},
					Tools: map[string]resilience.Tool{"x": {Effect: resilience.ReadOnly}, "inner": {Retry: once}},
				})
				r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					if by == "AsError" {
						return 0, resilience.AsError("inner", tc.err(ctx))
					}
					return resilience.Do(ctx, g, "inner", func(ctx context.Context) (int, error) { return 0, tc.err(ctx) })
				}, behindAdapter)
				assert.Equal(t, tc.attempts, r.Attempts)
				assert.Equal(t, tc.counted, g.Breaker("x").Failures() == 1)
			})
		}
	}
}

func withinASecond(ctx context.Context) error {
	_, err := resilience.WithTimeout(ctx, "query", time.Second, untilDone)
	return err
}

func failsWith(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

func marking(mark func(error) error, fn func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error { return mark(fn(ctx)) }
}

// A call around another counts what that has counted, and nothing else, whoever has decided that.
func TestCallAroundAnotherCountsAsItDoes(t *testing.T) {
	says := func(class resilience.Class) func(error) resilience.Class {
		return func(error) resilience.Class { return class }
	}
	saysOf := func(status int, class resilience.Class) func(error) resilience.Class {
		return func(err error) resilience.Class {
			if errors.Is(err, statusError(status)) {
				return class
			}
			return resilience.Classify(err)
		}
	}
	open := &resilience.Error{Code: resilience.CodeCircuitOpen, Retryable: true}
	invalid := &resilience.Error{Code: resilience.CodeValidation}
	for name, tc := range map[string]struct {
		retry, breaker func(error) resilience.Class
		effect         resilience.Effect
		tool           toolFunc
		options        []resilience.Option // of the inner call
		inner, outer   int                 // failures
	}{
		"a mistake that is retried":          {retry: says(resilience.ClassTransient), effect: resilience.ReadOnly, tool: failing(9, statusError(409))},
		"nothing, by the breaker":            {breaker: says(resilience.ClassNeutral), tool: failing(9, errBoom)},
		"no hang, by the breaker":            {breaker: says(resilience.ClassNeutral), tool: hang(time.Minute)},
		"no timeout, by the breaker":         {breaker: says(resilience.ClassNeutral), tool: untilDone},
		"no loss, by the breaker":            {breaker: says(resilience.ClassNeutral), tool: failing(9, syscall.ECONNRESET)},
		"all, by the breaker":                {breaker: says(resilience.ClassPermanent), tool: failing(9, invalid), inner: 1, outer: 1},
		"what isn't retried, as a mistake":   {retry: says(resilience.ClassInvalid), tool: failing(9, errBoom), inner: 1, outer: 1},
		"a failure beside a rejection":       {tool: failing(9, errors.Join(errBoom, open)), inner: 1, outer: 1},
		"a failure before a rejection":       {effect: resilience.ReadOnly, tool: failingThen(1, syscall.ECONNRESET, open), inner: 1, outer: 1},
		"a rejection that the tool counts":   {tool: failing(9, resilience.MarkPermanent(open)), inner: 1, outer: 1},
		"a panic with a rejection":           {tool: func(context.Context) (int, error) { panic(open) }},
		"a rejection, by a Retry of its own": {retry: says(resilience.ClassPermanent), tool: failing(9, open)},
		"a rejection that isn't retried":     {tool: failing(9, backoff.Permanent(open))},
		"a hang, as a mistake by the Retry":  {retry: says(resilience.ClassInvalid), tool: hang(time.Minute), inner: 1, outer: 1},
		"what says nothing, by the breaker": {
			breaker: says(resilience.ClassPermanent), tool: failing(9, resilience.MarkNeutral(errBoom)), inner: 1, outer: 1,
		},
		"what is unexplained, by the breaker": {
			breaker: says(resilience.ClassPermanent), tool: failing(9, errBoom), options: []resilience.Option{behindAdapter}, inner: 1, outer: 1,
		},
		"a failure before one that wasn't made": {effect: resilience.ReadOnly, tool: thenDown(resilience.MarkTransient(errBoom)), inner: 1, outer: 1},
		"a panic with what isn't finished":      {tool: func(context.Context) (int, error) { panic(fmt.Errorf("x: %w", resilience.ErrUnfinished)) }, inner: 1, outer: 1},
		"what the tool has canceled, by both": {
			retry: says(resilience.ClassCanceled), breaker: says(resilience.ClassCanceled), tool: failing(9, context.Canceled),
		},
		"an excused timeout that the breaker counts": {
			breaker: says(resilience.ClassTransient), tool: excusedFor(time.Second), inner: 1, outer: 1,
		},
		"a mistake beside a rejection, by a Retry": {
			retry: says(resilience.ClassPermanent), tool: failing(9, errors.Join(invalid, open)), options: []resilience.Option{behindAdapter},
		},
		"a rejection, marked, that the breaker doesn't count": {
			breaker: says(resilience.ClassNeutral), tool: failing(9, resilience.MarkPermanent(open)),
		},
		"a limit, before one that wasn't made": {
			breaker: saysOf(429, resilience.ClassNeutral), effect: resilience.ReadOnly, tool: thenDown(statusError(429)),
		},
		"a rejection":                         {tool: failing(9, open)},
		"a hang, at a limit of the tool's":    {tool: hang(time.Minute), options: []resilience.Option{resilience.Timeout(time.Second)}, outer: 1},
		"a timeout, at a limit of the tool's": {tool: timesOutAfter(900 * time.Millisecond), options: []resilience.Option{resilience.Timeout(time.Second)}, outer: 1},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{
				Retry:    resilience.Retry{MaxRetries: -1},
				Breakers: map[string]resilience.BreakerConfig{"inner": {Classify: tc.breaker}},
				Tools: map[string]resilience.Tool{"x": {}, "y": {}, "as": {}, "inner": {
					Timeout: 2 * time.Second, Effect: tc.effect, Retry: &resilience.Retry{MaxRetries: 1, Classify: tc.retry},
				}},
			})
			within := func(outer, inner string, fn toolFunc, options ...resilience.Option) toolFunc {
				return func(ctx context.Context) (int, error) {
					v, err := resilience.Do(ctx, g, inner, fn, options...)
					if outer == "as" {
						err = resilience.AsError(inner, err)
					}
					return v, err
				}
			}
			_, err := resilience.Do(t.Context(), g, "y", within("y", "x", within("x", "inner", tc.tool, tc.options...)))
			assert.Error(t, err)
			assert.Equal(t, tc.inner, g.Breaker("inner").Failures())
			assert.Equal(t, tc.outer, g.Breaker("x").Failures())
			assert.Equal(t, tc.outer, g.Breaker("y").Failures(), "two calls out")

			_, err = resilience.Do(t.Context(), g, "as", within("as", "inner", tc.tool, tc.options...))
			assert.Error(t, err)
			assert.Equal(t, tc.outer, g.Breaker("as").Failures(), "by AsError")
			time.Sleep(2 * time.Minute)
		})
	}
}

// A caller's short time is the calls' around, too, whatever a Retry within says of its end.
func TestShortTimeOfACallerWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		permanent := func(error) resilience.Class { return resilience.ClassPermanent }
		g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{
			"x": {}, "inner": {Retry: &resilience.Retry{Classify: permanent}},
		}})
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			return resilience.Do(ctx, g, "inner", timesOutAfter(900*time.Millisecond))
		}, resilience.Timeout(time.Second))
		assert.ErrorIs(t, err, resilience.CodeTimeout)
		assert.Zero(t, g.Breaker("inner").Failures())
		assert.Zero(t, g.Breaker("x").Failures())
	})
}

// What was counted counts beside other errors, in any order, and as WithRetry returns it.
func TestCountedRejectionBesideOthers(t *testing.T) {
	open := &resilience.Error{Code: resilience.CodeCircuitOpen, Retryable: true}
	for _, other := range []error{open, errBoom, statusError(404)} {
		for _, join := range []func(error) error{
			func(err error) error { return errors.Join(err, other) },
			func(err error) error { return errors.Join(other, err) },
			func(err error) error {
				once := resilience.Retry{MaxRetries: 1, Backoff: resilience.Backoff{Base: 1, Max: 1}}
				_, err = resilience.WithRetry(context.Background(), once, failing(9, err))
				return err
			},
		} {
			synctest.Test(t, func(t *testing.T) {
				tool := resilience.Tool{Retry: &resilience.Retry{MaxRetries: 1}, Effect: resilience.ReadOnly}
				g := newGuard(t, resilience.Config{
					Retry: resilience.Retry{MaxRetries: -1}, Tools: map[string]resilience.Tool{"x": {}, "inner": tool},
				})
				_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					_, err := resilience.Do(ctx, g, "inner", failingThen(1, syscall.ECONNRESET, open))
					return 0, join(err)
				}, behindAdapter)
				assert.Error(t, err)
				assert.Equal(t, 1, g.Breaker("x").Failures(), "%q", err)
			})
		}
	}
}

// A rejection isn't retried by the calls around the one that has got it, though that has counted an earlier failure.
func TestRejectionAfterAFailureIsNotRetriedOutside(t *testing.T) {
	for _, code := range []resilience.Code{resilience.CodeCircuitOpen, resilience.CodeOverloaded, resilience.CodeShuttingDown} {
		runInBubble(t, string(code), func(t *testing.T) {
			tool := resilience.Tool{Effect: resilience.ReadOnly}
			g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"x": tool, "inner": tool}})
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				return resilience.Do(ctx, g, "inner", failingThen(1, syscall.ECONNRESET, &resilience.Error{Code: code, Retryable: true}))
			})
			assert.Equal(t, code, r.Err.Code)
			assert.Equal(t, 1, r.Attempts)
			assert.Equal(t, 1, g.Breaker("x").Failures())
		})
	}
}

// thenDown fails, and with the error of a Connector without a connection from the second attempt on.
func thenDown(err error) toolFunc {
	return func(ctx context.Context) (int, error) {
		if resilience.Attempt(ctx) == 1 {
			return 0, err
		}
		c := resilience.NewConnector(func(context.Context) (int, error) { return 0, errBoom }, resilience.ConnectorConfig[int]{})
		defer c.Close()
		time.Sleep(time.Millisecond)
		return c.Get(ctx)
	}
}

func excusedFor(d time.Duration) toolFunc {
	return func(ctx context.Context) (int, error) {
		done := resilience.Excuse(ctx)
		time.Sleep(d)
		done()
		return untilDone(ctx)
	}
}

// An attempt that was excused is, though the call has more time.
func TestExcusedAttemptOfACallWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{
			Retry: resilience.Retry{MaxRetries: -1},
			Tools: map[string]resilience.Tool{"x": {}, "inner": {Timeout: time.Minute, AttemptTimeout: time.Second}},
		})
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			return resilience.Do(ctx, g, "inner", excusedFor(time.Second/5))
		})
		assert.ErrorIs(t, err, resilience.CodeTimeout)
		assert.Zero(t, g.Breaker("inner").Failures())
		assert.Zero(t, g.Breaker("x").Failures())
	})
}

// What a caller has ended is counted by nobody, whatever an earlier attempt has failed with, and says so without a guard, too.
func TestCallThatIsLeftAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {}, "inner": {Effect: resilience.ReadOnly}}})
		leave := func(ctx context.Context) (int, error) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Millisecond, cancel)
			return resilience.Do(ctx, g, "inner", failing(9, syscall.ECONNRESET))
		}
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			_, err := leave(ctx)
			e := err.(*resilience.Error)
			assert.Equal(t, resilience.CodeCanceled, e.Code)
			e.Message = "The user has stopped the search"
			return 0, e
		}, behindAdapter)
		assert.Error(t, err)
		assert.Zero(t, g.Breaker("x").Failures())

		_, err = leave(t.Context())
		assert.Equal(t, resilience.ClassCanceled, resilience.Classify(err))
		assert.Equal(t, resilience.ClassCanceled, resilience.Classify(resilience.AsError("y", err)))
	})
}

func timesOutAfter(d time.Duration) toolFunc {
	return func(context.Context) (int, error) {
		time.Sleep(d)
		return 0, context.DeadlineExceeded
	}
}

// What a call within has counted isn't overruled by an earlier attempt that says nothing.
func TestCountedRejectionAfterWhatIsNotCounted(t *testing.T) {
	limits := func(err error) resilience.Class {
		if errors.Is(err, statusError(429)) {
			return resilience.ClassNeutral
		}
		return resilience.Classify(err)
	}
	synctest.Test(t, func(t *testing.T) {
		tool := resilience.Tool{Effect: resilience.ReadOnly}
		g := newGuard(t, resilience.Config{
			Breakers: map[string]resilience.BreakerConfig{"x": {Classify: limits}},
			Tools:    map[string]resilience.Tool{"x": tool, "inner": tool},
		})
		open := &resilience.Error{Code: resilience.CodeCircuitOpen, Retryable: true}
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			if resilience.Attempt(ctx) == 1 {
				return 0, statusError(429)
			}
			return resilience.Do(ctx, g, "inner", failingThen(1, syscall.ECONNRESET, open))
		})
		assert.ErrorIs(t, err, resilience.CodeCircuitOpen)
		assert.Equal(t, 1, g.Breaker("inner").Failures())
		assert.Equal(t, 1, g.Breaker("x").Failures())
	})
}
