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

var behindAdapter = resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral})

// joinable returns errors that a tool may join, and what a program says on purpose. Of several of these the first counts,
// and so it does of several that AsError has made.
func joinable(ctx context.Context, g *resilience.Guard) (all, said map[string]error) {
	inner := func(ctx context.Context, err error) error {
		_, err = resilience.Do(ctx, g, "inner", func(context.Context) (int, error) { return 0, err })
		return err
	}
	plain := errors.New("plain")
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, ended := resilience.WithTimeout(canceled, "x", time.Second, func(context.Context) (int, error) { return 0, nil })
	_, rejected := resilience.Do(ctx, g, "rejecting", func(context.Context) (int, error) { return 0, nil })
	all = map[string]error{
		"plain": plain, "408": httpStatus(408), "404": httpStatus(404), "503": httpStatus(503), "504": httpStatus(504),
		"refused":  &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED},
		"deadline": context.DeadlineExceeded, "canceled": context.Canceled, "ended": ended, "rejected": rejected,
		"neutral": resilience.MarkNeutral(plain), "neutral 503": resilience.MarkNeutral(httpStatus(503)),
		"within, unknown": inner(ctx, plain), "within, 404": inner(ctx, httpStatus(404)),
		"within, neutral": inner(ctx, resilience.MarkNeutral(plain)), "within, canceled": inner(canceled, plain),
		"AsError": resilience.AsError("x", plain), "AsError of 404": resilience.AsError("x", httpStatus(404)),
	}
	said = map[string]error{
		"none": nil, "backend": resilience.MarkBackend(plain), "permanent": resilience.MarkPermanent(plain),
		"invalid": resilience.MarkInvalid(plain), "own": &resilience.Error{Code: "BUSY", Message: "m", Retryable: true},
		"own mistake": &resilience.Error{Code: resilience.CodeValidation, Message: "m"},
	}
	return all, said
}

// TestOrderOfJoinedErrors joins errors in random trees: whether they count, and whether they are retried, depends
// neither on their order nor on what is joined first.
func TestOrderOfJoinedErrors(t *testing.T) {
	g := resilience.Must(resilience.New(resilience.Config{Retry: resilience.Retry{MaxRetries: -1}}))
	g.Breaker("rejecting").Trip(time.Hour)
	var leaves, said map[string]error
	_, _ = resilience.Do(t.Context(), g, "around", func(ctx context.Context) (int, error) {
		leaves, said = joinable(ctx, g)
		return 0, nil
	}, behindAdapter)

	outcome := func(err error, opts ...resilience.Option) string {
		quick := resilience.Retry{MaxRetries: 1, Backoff: resilience.Backoff{Base: 1, Max: 1}}
		tool := resilience.Tool{Effect: resilience.ReadOnly, Retry: &quick}
		g := resilience.Must(resilience.New(resilience.Config{Tools: map[string]resilience.Tool{"x": tool}}))
		r := resilience.Run(context.Background(), g, "x", func(context.Context) (int, error) { return 0, err }, opts...)
		return fmt.Sprint("counted ", g.Breaker("x").Failures(), ", attempts ", r.Attempts)
	}
	names := rapid.SliceOfN(rapid.SampledFrom(slices.Sorted(maps.Keys(leaves))), 1, 4)
	rapid.Check(t, func(t *rapid.T) {
		chosen := names.Draw(t, "names")
		errs := make([]error, len(chosen))
		for i, name := range chosen {
			errs[i] = leaves[name]
		}
		if own := said[rapid.SampledFrom(slices.Sorted(maps.Keys(said))).Draw(t, "said")]; own != nil {
			errs = append(errs, own)
		}
		want := errors.Join(errs...)
		got := joinAtRandom(t, rapid.Permutation(errs).Draw(t, "order"))
		for where, opts := range map[string][]resilience.Option{"in plain Do": nil, "behind an adapter": {behindAdapter}} {
			if want, got := outcome(want, opts...), outcome(got, opts...); want != got {
				t.Fatalf("%s: %s in one order, %s in another", where, want, got)
			}
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
