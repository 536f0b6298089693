package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

var behindAdapter = resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral})

// Of what several calls of a tool have said, what doesn't count gives way to the rest, whatever comes first.
func TestJoinedErrorsOfCallsWithinATool(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	down := resilience.NewConnector(
		func(context.Context) (int, error) { return 0, errBoom }, resilience.ConnectorConfig[int]{},
	)
	defer down.Close()

	for name, tc := range map[string]struct {
		one, other func(context.Context, *resilience.Guard) error
		counts     int
	}{
		"unknown, and trouble":              {inner(errBoom), inner(refused), 1},
		"unknown, and trouble of its own":   {inner(errBoom), itself(refused), 1},
		"neutral, and trouble":              {inner(resilience.MarkNeutral(errBoom)), inner(refused), 1},
		"unknown, and unknown":              {inner(errBoom), itself(errBoom), 0},
		"rejected, and a mistake":           {rejected, inner(resilience.MarkInvalid(errBoom)), 0},
		"rejected, and one of its own":      {rejected, itself(resilience.MarkInvalid(errBoom)), 0},
		"rejected, and unknown":             {rejected, inner(errBoom), 0},
		"rejected, and unknown, of its own": {rejected, itself(errBoom), 0},
		"rejected, and neutral":             {rejected, itself(resilience.MarkNeutral(errBoom)), 0},
		"rejected, and rejected":            {rejected, rejected, 0},
		"rejected, and trouble":             {rejected, inner(refused), 1},
		"not made, and a mistake":           {notMade(down), itself(resilience.MarkInvalid(errBoom)), 0},
		"not made, and rejected":            {notMade(down), rejected, 0},
		"not made, and trouble":             {notMade(down), itself(refused), 1},
	} {
		for _, swap := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", ", swap), func(t *testing.T) {
				g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
				g.Breaker("rejecting").Trip(time.Hour)
				_, err := resilience.Do(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
					one, other := tc.one(ctx, g), tc.other(ctx, g)
					if swap {
						one, other = other, one
					}
					return 0, errors.Join(one, other)
				}, behindAdapter)
				assert.Error(t, err)
				assert.Equal(t, tc.counts, g.Breaker("outer").Failures())
			})
		}
	}
}

// inner returns what a call within the tool says whose own tool fails so.
func inner(err error) func(context.Context, *resilience.Guard) error {
	return func(ctx context.Context, g *resilience.Guard) error {
		_, err := resilience.Do(ctx, g, "inner", func(context.Context) (int, error) { return 0, err })
		return err
	}
}

func itself(err error) func(context.Context, *resilience.Guard) error {
	return func(context.Context, *resilience.Guard) error { return err }
}

func rejected(ctx context.Context, g *resilience.Guard) error {
	_, err := resilience.Do(ctx, g, "rejecting", succeed)
	return err
}

func notMade(c *resilience.Connector[int]) func(context.Context, *resilience.Guard) error {
	return func(ctx context.Context, _ *resilience.Guard) error {
		_, err := c.Get(ctx)
		return err
	}
}

// What was rejected is still worth reading.
func TestRejectionBesideAnotherErrorSaysWhenToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{})
		g.Breaker("rejecting").Trip(time.Hour)
		_, err := resilience.Do(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
			return 0, errors.Join(rejected(ctx, g), errBoom)
		}, behindAdapter)
		var e *resilience.Error
		assert.ErrorAs(t, err, &e)
		assert.Equal(t, resilience.CodeCircuitOpen, e.Code)
		assert.Equal(t, time.Hour, e.RetryAfter)
	})
}
