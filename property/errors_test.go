package property

import (
	"errors"
	"fmt"
	"testing"

	"github.com/seed8d1e2389/resilience"
	"pgregory.net/rapid"
)

// A node is an error that wraps any others, also itself.
type node struct {
	number  int
	wrapped []error
}

func (n *node) Error() string   { return fmt.Sprint("node ", n.number) }
func (n *node) Unwrap() []error { return n.wrapped }

// A link is an error that wraps a single one.
type link struct{ node *node }

func (l *link) Error() string { return "link" }
func (l *link) Unwrap() error { return l.node }

// newErrors draws an error out of nodes that wrap each other, most of them by others in between.
func newErrors(r *rapid.T) error {
	nodes := make([]*node, rapid.IntRange(1, 8).Draw(r, "nodes"))
	for i := range nodes {
		nodes[i] = &node{number: i}
	}
	for _, n := range nodes {
		for range rapid.IntRange(0, 3).Draw(r, "wrapped") {
			inner := rapid.SampledFrom(nodes).Draw(r, "inner")
			n.wrapped = append(n.wrapped, rapid.SampledFrom([]error{
				nil, inner, &link{inner}, resilience.MarkTransient(inner), &resilience.Error{Err: inner},
				&resilience.PanicError{Value: inner}, errors.Join(inner, &link{inner}),
			}).Draw(r, "how"))
		}
	}
	return nodes[0]
}

// visit calls f with err and all that it wraps, in the order of errors.Is, but for those after a limit, which it
// reports to have exceeded.
func visit(err error, limit *int, f func(error)) (exceeded bool) {
	if *limit--; *limit < 0 {
		return true
	}
	f(err)
	var inner []error
	switch x := err.(type) {
	case interface{ Unwrap() error }:
		inner = append(inner, x.Unwrap())
	case interface{ Unwrap() []error }:
		inner = x.Unwrap()
	}
	for _, err := range inner {
		if err != nil && visit(err, limit, f) {
			return true
		}
	}
	return false
}

// Whatever errors wrap, what a guard passes on has an end, and reaches the first 10,000 of them.
func TestWhatIsLeftOfAnyErrorsHasAnEndAndReachesThem(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		err := newErrors(r)
		leaves := map[error]bool{}
		limit := 10_000
		endless := visit(err, &limit, func(err error) {
			if n, ok := err.(*node); ok && n.wrapped == nil {
				leaves[n] = true
			}
		})

		left := resilience.AsError("x", err).Err
		limit = 25_000
		if visit(left, &limit, func(err error) { delete(leaves, err) }) {
			r.Fatalf("what is left of %v has no end", err)
		}
		if len(leaves) > 0 {
			r.Fatalf("%v aren't reached", leaves)
		}
		if !endless && !errors.Is(left, err) {
			r.Fatal("the error isn't passed on as it is")
		}
	})
}
