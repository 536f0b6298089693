package property

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/seed8d1e2389/resilience"
	"pgregory.net/rapid"
)

// This file holds what a call around another one makes of its error: it counts what that has counted, and nothing else,
// whatever is put around the error, unless that says otherwise.

// attempts are what an attempt of a tool may end with.
var attempts = map[string]func(context.Context, *resilience.Guard) error{
	"plain": of(errors.New("plain")), "503": of(httpStatus(503)), "404": of(httpStatus(404)), "504": of(httpStatus(504)),
	"reset": of(syscall.ECONNRESET), "refused": of(syscall.ECONNREFUSED),
	"canceled": of(context.Canceled), "deadline": of(context.DeadlineExceeded),
	"neutral": of(resilience.MarkNeutral(httpStatus(503))), "invalid": of(resilience.MarkInvalid(errors.New("plain"))),
	"without effect": of(resilience.MarkTransient(errors.New("plain"))), "permanent": of(resilience.MarkPermanent(httpStatus(503))),
	"own":         of(&resilience.Error{Code: "BUSY", Retryable: true}),
	"own mistake": of(&resilience.Error{Code: resilience.CodeValidation}), "unfinished": of(resilience.ErrUnfinished),
	"404 and 503":          of(errors.Join(httpStatus(404), httpStatus(503))),
	"plain and a mistake":  of(errors.Join(errors.New("plain"), resilience.MarkInvalid(httpStatus(503)))),
	"canceled and neutral": of(errors.Join(context.Canceled, resilience.MarkNeutral(httpStatus(503)))),
	"panic":                func(context.Context, *resilience.Guard) error { panic("panic") },
	"rejected":             rejected,
	"rejected, and a 404": func(ctx context.Context, g *resilience.Guard) error {
		return errors.Join(rejected(ctx, g), httpStatus(404))
	},
	"down": func(ctx context.Context, _ *resilience.Guard) error {
		c := resilience.NewConnector(func(context.Context) (int, error) { return 0, httpStatus(503) }, resilience.ConnectorConfig[int]{})
		defer c.Close()
		time.Sleep(time.Millisecond)
		_, err := c.Get(ctx)
		return err
	},
}

func of(err error) func(context.Context, *resilience.Guard) error {
	return func(context.Context, *resilience.Guard) error { return err }
}

func rejected(ctx context.Context, g *resilience.Guard) error {
	_, err := resilience.Do(ctx, g, "rejecting", func(context.Context) (int, error) { return 0, nil })
	return err
}

// A wrapping is what a tool puts around the error of a call that it has made.
type wrapping struct {
	wrap    func(error) error
	changes bool // what the error says, but not whether it was counted
	neutral bool // it says that the error doesn't count
}

var once = resilience.Retry{MaxRetries: 1, Backoff: resilience.Backoff{Base: 1, Max: 1}}

var wrappings = map[string]wrapping{
	"a text":   {wrap: func(err error) error { return fmt.Errorf("x: %w", err) }},
	"a join":   {wrap: func(err error) error { return errors.Join(nil, err) }},
	"AsError":  {wrap: func(err error) error { return resilience.AsError("x", err) }},
	"no retry": {wrap: func(err error) error { return retried(resilience.Retry{MaxRetries: -1}, err) }},
	"retries":  {wrap: func(err error) error { return retried(once, err) }},
	"a timeout": {wrap: func(err error) error {
		_, err = resilience.WithTimeout(context.Background(), "x", time.Second, func(context.Context) (int, error) { return 0, err })
		return err
	}},
	"own words":        {changes: true, wrap: func(err error) error { return &resilience.Error{Message: "It is broken", Err: err} }},
	"exhausted":        {changes: true, wrap: func(err error) error { return resilience.RetryExhaustedError("x", 2, err) }},
	"permanent":        {changes: true, wrap: func(err error) error { return backoff.Permanent(err) }},
	"marked":           {changes: true, wrap: resilience.MarkPermanent},
	"a backend":        {changes: true, wrap: resilience.MarkBackend},
	"beside plain":     beside(errors.New("plain"), true),
	"beside a 404":     beside(httpStatus(404), true),
	"after a 404":      beside(httpStatus(404), false),
	"beside a mistake": beside(&resilience.Error{Code: resilience.CodeValidation}, true),
	"after a mistake":  beside(resilience.MarkInvalid(errors.New("plain")), false),
	"beside neutral":   beside(resilience.MarkNeutral(httpStatus(503)), true),
	"after neutral":    beside(resilience.MarkNeutral(httpStatus(503)), false),
	"after a cancel":   beside(context.Canceled, false),
	"beside trouble":   beside(httpStatus(503), true),
	"neutral":          {neutral: true, wrap: resilience.MarkNeutral},
	"invalid":          {neutral: true, wrap: resilience.MarkInvalid},
	"a mistake": {neutral: true, wrap: func(err error) error {
		return &resilience.Error{Code: resilience.CodeValidation, Message: "No such day", Err: err}
	}},
}

// beside joins another error with that of the call.
func beside(other error, first bool) wrapping {
	return wrapping{changes: true, wrap: func(err error) error {
		if first {
			return errors.Join(err, other)
		}
		return errors.Join(other, err)
	}}
}

func retried(r resilience.Retry, err error) error {
	_, err = resilience.WithRetry(context.Background(), r, func(context.Context) (int, error) { return 0, err })
	return err
}

type classifier = func(error) resilience.Class

// nested makes a call that fails twice, and two calls around it, the inner of which wraps its error. It returns the failures
// that the three breakers have counted.
func nested(r *rapid.T, retry, breaker classifier, fails []string, wrap func(error) error) (counted [3]int) {
	var options []resilience.Option
	if rapid.Bool().Draw(r, "behind an adapter") {
		options = append(options, behindAdapter)
	}
	g := resilience.Must(resilience.New(resilience.Config{
		Retry:    resilience.Retry{MaxRetries: -1},
		Breakers: map[string]resilience.BreakerConfig{"inner": {Classify: breaker}},
		Tools: map[string]resilience.Tool{"inner": {
			Effect: resilience.ReadOnly, Retry: &resilience.Retry{MaxRetries: 1, Classify: retry},
		}},
	}))
	g.Breaker("rejecting").Trip(time.Hour)

	_, _ = resilience.Do(context.Background(), g, "outer", func(ctx context.Context) (int, error) {
		return resilience.Do(ctx, g, "middle", func(ctx context.Context) (int, error) {
			_, err := resilience.Do(ctx, g, "inner", func(ctx context.Context) (int, error) {
				return 0, attempts[fails[min(resilience.Attempt(ctx), len(fails))-1]](ctx, g)
			})
			return 0, wrap(err)
		})
	}, options...)
	return [3]int{g.Breaker("inner").Failures(), g.Breaker("middle").Failures(), g.Breaker("outer").Failures()}
}

// TestCallsAroundCount draws how a call fails, and what is put around its error, for all that the Classify functions of its
// Retry and its breaker may say.
func TestCallsAroundCount(t *testing.T) {
	classifiers := map[string]classifier{"default": nil}
	for class := resilience.ClassTransient; class <= resilience.ClassNeutral; class++ {
		classifiers[class.String()] = func(error) resilience.Class { return class }
	}
	for first, retry := range classifiers {
		for second, breaker := range classifiers {
			t.Run(first+", "+second, func(t *testing.T) { checkCallsAround(t, retry, breaker) })
		}
	}
}

func checkCallsAround(t *testing.T, retry, breaker classifier) {
	names, wraps := slices.Sorted(maps.Keys(attempts)), slices.Sorted(maps.Keys(wrappings))
	checkInBubble(t, func(r *rapid.T) {
		fails := []string{rapid.SampledFrom(names).Draw(r, "first attempt")}
		if retry == nil || retry(nil) == resilience.ClassTransient { // often with what says nothing of the first one
			then := rapid.OneOf(rapid.SampledFrom(names), rapid.SampledFrom([]string{"rejected", "down"}))
			fails = append(fails, then.Draw(r, "second attempt"))
		}
		around := rapid.SliceOfN(rapid.SampledFrom(wraps), 0, 3).Draw(r, "wrappings, from within")
		changes, neutral := false, false // outside of what is neutral
		counted := nested(r, retry, breaker, fails, func(err error) error {
			for _, name := range around {
				err = wrappings[name].wrap(err)
			}
			return err
		})
		for _, name := range around {
			w := wrappings[name]
			changes, neutral = (changes || w.changes) && !w.neutral, neutral || w.neutral
		}
		switch {
		case counted[1] != counted[2]:
			r.Fatalf("the calls count %v", counted)
		case neutral && changes: // it depends
		case neutral && counted[1] != 0:
			r.Fatalf("what is marked as neutral is counted: %v", counted)
		case !neutral && counted[0] != 0 && counted[1] == 0:
			r.Fatalf("what was counted isn't: %v", counted)
		case !neutral && !changes && counted[1] != counted[0]:
			r.Fatalf("the calls count %v", counted)
		}
	})
}
