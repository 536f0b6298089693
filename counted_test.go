package resilience_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

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
	open := &resilience.Error{Code: resilience.CodeCircuitOpen, Retryable: true}
	invalid := &resilience.Error{Code: resilience.CodeValidation}
	for name, tc := range map[string]struct {
		retry, breaker func(error) resilience.Class
		effect         resilience.Effect
		tool           toolFunc
		options        []resilience.Option // of the inner call
		inner, outer   int                 // failures
	}{
		"a mistake that is retried":           {retry: says(resilience.ClassTransient), effect: resilience.ReadOnly, tool: failing(9, statusError(409))},
		"nothing, by the breaker":             {breaker: says(resilience.ClassNeutral), tool: failing(9, errBoom)},
		"no hang, by the breaker":             {breaker: says(resilience.ClassNeutral), tool: hang(time.Minute)},
		"no timeout, by the breaker":          {breaker: says(resilience.ClassNeutral), tool: untilDone},
		"no loss, by the breaker":             {breaker: says(resilience.ClassNeutral), tool: failing(9, syscall.ECONNRESET)},
		"all, by the breaker":                 {breaker: says(resilience.ClassPermanent), tool: failing(9, invalid), inner: 1, outer: 1},
		"what isn't retried, as a mistake":    {retry: says(resilience.ClassInvalid), tool: failing(9, errBoom), inner: 1, outer: 1},
		"a failure beside a rejection":        {tool: failing(9, errors.Join(errBoom, open)), inner: 1, outer: 1},
		"a failure before a rejection":        {effect: resilience.ReadOnly, tool: failingThen(1, syscall.ECONNRESET, open), inner: 1, outer: 1},
		"a rejection that the tool counts":    {tool: failing(9, resilience.MarkPermanent(open)), inner: 1, outer: 1},
		"a rejection":                         {tool: failing(9, open)},
		"a hang, at a limit of the tool's":    {tool: hang(time.Minute), options: []resilience.Option{resilience.Timeout(time.Second)}, outer: 1},
		"a timeout, at a limit of the tool's": {tool: timesOutAfter(900 * time.Millisecond), options: []resilience.Option{resilience.Timeout(time.Second)}, outer: 1},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{
				Retry:    resilience.Retry{MaxRetries: -1},
				Breakers: map[string]resilience.BreakerConfig{"inner": {Classify: tc.breaker}},
				Tools: map[string]resilience.Tool{"x": {}, "inner": {
					Timeout: 2 * time.Second, Effect: tc.effect, Retry: &resilience.Retry{MaxRetries: 1, Classify: tc.retry},
				}},
			})
			_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				return resilience.Do(ctx, g, "inner", tc.tool, tc.options...)
			})
			assert.Error(t, err)
			assert.Equal(t, tc.inner, g.Breaker("inner").Failures())
			assert.Equal(t, tc.outer, g.Breaker("x").Failures())
			time.Sleep(2 * time.Minute)
		})
	}
}

func timesOutAfter(d time.Duration) toolFunc {
	return func(context.Context) (int, error) {
		time.Sleep(d)
		return 0, context.DeadlineExceeded
	}
}
