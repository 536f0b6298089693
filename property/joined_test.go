package property

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	"pgregory.net/rapid"
)

type httpStatus int

func (s httpStatus) Error() string   { return fmt.Sprint("status ", int(s)) }
func (s httpStatus) StatusCode() int { return int(s) }

// leaves are errors that a tool may join.
var leaves = map[string]error{
	"plain": errors.New("plain"), "404": httpStatus(404), "503": httpStatus(503), "504": httpStatus(504),
	"refused":  &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED},
	"deadline": context.DeadlineExceeded, "canceled": context.Canceled,
	"rejected": resilience.CircuitOpenError("another", time.Hour),
	"neutral":  resilience.MarkNeutral(httpStatus(503)),
	"reset":    syscall.ECONNRESET, "unfinished": resilience.ErrUnfinished,
}

// said are errors by which a program decides. The first one counts if there are several.
var said = map[string]error{
	"none": nil, "backend": resilience.MarkBackend(errors.New("plain")),
	"permanent":   resilience.MarkPermanent(httpStatus(503)),
	"transient":   resilience.MarkNoEffect(errors.New("plain")),
	"invalid":     resilience.MarkInvalid(errors.New("plain")),
	"own":         &resilience.Error{Code: "BUSY", Message: "m", Retryable: true},
	"own mistake": &resilience.Error{Code: resilience.CodeValidation, Message: "m"},
}

// outcome returns what becomes of a call that fails with err.
func outcome(err error, opts ...resilience.Option) string {
	quick := resilience.Retry{MaxRetries: 1, Backoff: resilience.Backoff{Base: 1, Max: 1}}
	tool := resilience.Tool{Effect: resilience.ReadOnly, Retry: &quick}
	g := resilience.Must(resilience.New(resilience.Config{Tools: map[string]resilience.Tool{"x": tool}}))
	r := resilience.Run(context.Background(), g, "x", failsWith(err), opts...)
	return fmt.Sprint("counted ", g.Breaker("x").Failures(), ", attempts ", r.Attempts)
}

// drawErrors draws the errors that are joined.
func drawErrors(t *rapid.T) (errs []error) {
	names := rapid.SliceOfN(rapid.SampledFrom(slices.Sorted(maps.Keys(leaves))), 1, 4)
	for _, name := range names.Draw(t, "names") {
		errs = append(errs, leaves[name])
	}
	if own := said[rapid.SampledFrom(slices.Sorted(maps.Keys(said))).Draw(t, "said")]; own != nil {
		errs = append(errs, own)
	}
	return errs
}

// TestOrderOfJoinedErrors joins errors in random trees: whether they count, and whether they are retried, depends
// neither on their order nor on which of them are joined first.
func TestOrderOfJoinedErrors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		errs := drawErrors(t)
		want := errors.Join(errs...)
		got := joinAtRandom(t, rapid.Permutation(errs).Draw(t, "order"))
		for where, opts := range map[string][]resilience.Option{"in plain Do": nil, "behind an adapter": {behindSDK}} {
			if want, got := outcome(want, opts...), outcome(got, opts...); want != got {
				t.Fatalf("%s: %s in one order, %s in another", where, want, got)
			}
		}
	})
}

// TestCallsAroundCount makes a call of one tool within that of another. The outer one counts what the inner one has
// counted, unless that was rejected by the breaker of another tool at last.
func TestCallsAroundCount(t *testing.T) {
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
		attempts := []error{joinAtRandom(r, drawErrors(r)), joinAtRandom(r, drawErrors(r))}
		withTimeout := rapid.Bool().Draw(r, "within WithTimeout")

		_, err := resilience.Do(context.Background(), g, "outer", func(ctx context.Context) (int, error) {
			_, err := resilience.Do(ctx, g, "inner", func(ctx context.Context) (int, error) {
				return 0, attempts[resilience.Attempt(ctx)-1]
			})
			if withTimeout {
				_, err = resilience.WithTimeout(context.Background(), "x", time.Second, failsWith(err))
			}
			return 0, fmt.Errorf("x: %w", err)
		}, options...)

		inner, outer := g.Breaker("inner").Failures(), g.Breaker("outer").Failures()
		var e *resilience.Error
		if errors.As(err, &e) && e.Code == resilience.CodeCircuitOpen {
			inner = 0
		}
		if e == nil || inner != outer {
			r.Fatalf("the inner call counts %d failures, the outer one %d, with %v", inner, outer, err)
		}
	})
}

// joinAtRandom joins errors in a tree.
func joinAtRandom(t *rapid.T, errs []error) error {
	if len(errs) == 1 {
		if rapid.Bool().Draw(t, "wraps") {
			return fmt.Errorf("x: %w", errs[0])
		}
		return errs[0]
	}
	n := rapid.IntRange(1, len(errs)-1).Draw(t, "first")
	first, others := joinAtRandom(t, errs[:n]), joinAtRandom(t, errs[n:])
	if rapid.Bool().Draw(t, "in a text") {
		return fmt.Errorf("%w: %w", first, others)
	}
	return errors.Join(first, others)
}
