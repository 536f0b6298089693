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

	"github.com/seed8d1e2389/resilience"
	"pgregory.net/rapid"
)

// fails are what a tool may fail with.
var fails = map[string]error{
	"plain": errors.New("plain"), "503": httpStatus(503), "404": httpStatus(404), "504": httpStatus(504),
	"reset": syscall.ECONNRESET, "refused": syscall.ECONNREFUSED, "canceled": context.Canceled,
	"deadline": context.DeadlineExceeded, "unfinished": resilience.ErrUnfinished,
	"neutral":        resilience.MarkNeutral(httpStatus(503)),
	"invalid":        resilience.MarkInvalid(errors.New("plain")),
	"permanent":      resilience.MarkPermanent(httpStatus(503)),
	"without effect": resilience.MarkTransient(errors.New("plain")),
	"own":            &resilience.Error{Code: "BUSY", Retryable: true},
	"own mistake":    &resilience.Error{Code: resilience.CodeValidation},
	"404 and 503":    errors.Join(httpStatus(404), httpStatus(503)),
	"rejected":       resilience.CircuitOpenError("another", time.Hour),
}

// wrappings put around an error what says nothing about it.
var wrappings = map[string]func(error) error{
	"nothing": func(err error) error { return err },
	"a text":  func(err error) error { return fmt.Errorf("x: %w", err) },
	"a join":  func(err error) error { return errors.Join(nil, err) },
	"a timeout": func(err error) error {
		_, err = resilience.WithTimeout(context.Background(), "x", time.Second, failsWith(err))
		return err
	},
}

// TestCallsAroundCount makes a call of one tool within that of another. The outer one counts what the inner one has
// counted, unless that was rejected by the breaker of another tool at last.
func TestCallsAroundCount(t *testing.T) {
	names, wraps := slices.Sorted(maps.Keys(fails)), slices.Sorted(maps.Keys(wrappings))
	checkInBubble(t, func(r *rapid.T) {
		var options []resilience.Option
		if rapid.Bool().Draw(r, "behind an adapter") {
			options = append(options, behindSDK)
		}
		g := resilience.Must(resilience.New(resilience.Config{
			Retry: resilience.Retry{MaxRetries: -1},
			Tools: map[string]resilience.Tool{"inner": {
				Effect: resilience.ReadOnly, Retry: &resilience.Retry{MaxRetries: 1},
			}},
		}))
		attempts := rapid.SliceOfN(rapid.SampledFrom(names), 2, 2).Draw(r, "attempts")
		around := rapid.SliceOfN(rapid.SampledFrom(wraps), 2, 2).Draw(r, "wrappings, from within")

		_, err := resilience.Do(context.Background(), g, "outer", func(ctx context.Context) (int, error) {
			_, err := resilience.Do(ctx, g, "inner", func(ctx context.Context) (int, error) {
				return 0, fails[attempts[resilience.Attempt(ctx)-1]]
			})
			for _, name := range around {
				err = wrappings[name](err)
			}
			return 0, err
		}, options...)

		inner, outer := g.Breaker("inner").Failures(), g.Breaker("outer").Failures()
		if errors.Is(err, resilience.CodeCircuitOpen) {
			inner = 0
		}
		if err == nil || inner != outer {
			r.Fatalf("the inner call counts %d failures, the outer one %d, with %v", inner, outer, err)
		}
	})
}
