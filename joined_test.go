package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
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
	asError := resilience.AsError("x", errBoom)

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
		"a mistake, and trouble":            {inner(resilience.MarkInvalid(errBoom)), itself(refused), 1},
		"a mistake, and the tool's word":    {inner(statusError(404)), itself(resilience.MarkBackend(errBoom)), 1},
		"a mistake, and trouble within":     {inner(statusError(404)), inner(refused), 1},
		"a mistake, and unknown":            {inner(statusError(404)), itself(errBoom), 0},
		"a mistake that is marked, too":     {markedInvalid(inner(statusError(404))), itself(refused), 0},
		"its own mistake, and trouble":      {itself(resilience.MarkInvalid(errBoom)), inner(errBoom), 0},
		"canceled, and trouble":             {canceled, itself(refused), 1},
		"canceled, and a mistake":           {canceled, itself(resilience.MarkInvalid(errBoom)), 0},
		"canceled, and unknown":             {canceled, itself(errBoom), 0},
		"a canceled dial, and unknown":      {canceledDial, itself(errBoom), 0},
		"a canceled look-up, and unknown":   {canceledLookUp, itself(errBoom), 0},
		"a canceled dial, and trouble":      {canceledDial, itself(refused), 1},
		"a canceled dial within":            {within(canceledDial), itself(errBoom), 0},
		"nothing but a canceled dial":       {canceledDial, canceledLookUp, 0},
		"rejected, and canceled":            {rejected, canceled, 0},
		"not made, and canceled":            {notMade(down), canceled, 0},
		"neutral, and canceled":             {itself(resilience.MarkNeutral(errBoom)), canceled, 0},
		"neutral trouble, and a mistake":    {itself(resilience.MarkNeutral(refused)), inner(statusError(404)), 0},
		"AsError, and a mark":               {itself(asError), itself(resilience.MarkBackend(errBoom)), 1},
		"AsError, and an own error":         {itself(asError), itself(&resilience.Error{Code: "INDEX_DOWN", Retryable: true}), 1},
		"AsError, and a mistake":            {itself(asError), inner(statusError(404)), 0},
		"AsError, and trouble":              {itself(asError), itself(refused), 1},
		"tries, and a mark":                 {tries(errBoom), itself(resilience.MarkPermanent(errBoom)), 1},
		"tries, and unknown":                {tries(errBoom), itself(errBoom), 0},
		"AsError of trouble, and a mistake": {itself(resilience.AsError("x", refused)), inner(statusError(404)), 1},
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

// What the tool itself has canceled says nothing beside any error, also in plain Do: a fan-out cancels the rest once one
// call has failed.
func TestErrorsBesideWhatTheToolHasCanceled(t *testing.T) {
	down := resilience.NewConnector(
		func(context.Context) (int, error) { return 0, errBoom },
		resilience.ConnectorConfig[int]{Backoff: resilience.Backoff{Base: time.Hour, Max: time.Hour, Jitter: resilience.NoJitter}},
	)
	defer down.Close()
	isDown := func() bool {
		_, err := down.Get(t.Context())
		var e *resilience.Error
		return errors.As(err, &e) && e.RetryAfter > time.Minute // the first dial has failed
	}
	assert.Eventually(t, isDown, time.Minute, time.Millisecond)
	bare := func(context.Context, *resilience.Guard) error { return context.Canceled }
	for name, tc := range map[string]struct {
		one  func(context.Context, *resilience.Guard) error
		code resilience.Code
	}{
		"rejected":         {rejected, resilience.CodeCircuitOpen},
		"not made":         {notMade(down), resilience.CodeConnectionLost},
		"neutral":          {itself(resilience.MarkNeutral(errBoom)), resilience.CodeToolFailed},
		"a mistake":        {itself(resilience.MarkInvalid(errBoom)), resilience.CodeValidation},
		"a mistake within": {inner(statusError(404)), resilience.CodeValidation},
	} {
		for end, canceled := range map[string]func(context.Context, *resilience.Guard) error{
			"a call within": canceled, "bare": bare, "a dial": canceledDial, "with a cause": canceledBy(tc.one),
			"with another cause": canceledBy(itself(errBoom)), "with a marked one": canceledBy(itself(resilience.MarkBackend(errBoom))),
		} {
			for _, swap := range []bool{false, true} {
				t.Run(fmt.Sprint(name, ", ", end, ", ", swap), func(t *testing.T) {
					g := newGuard(t, resilience.Config{Effect: resilience.ReadOnly})
					g.Breaker("rejecting").Trip(time.Hour)
					attempts := 0
					_, err := resilience.Do(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
						attempts++
						one, other := tc.one(ctx, g), canceled(ctx, g)
						if swap {
							one, other = other, one
						}
						return 0, errors.Join(one, other)
					})
					var e *resilience.Error
					assert.ErrorAs(t, err, &e)
					assert.Equal(t, tc.code, e.Code)
					assert.Equal(t, tc.code == resilience.CodeCircuitOpen || tc.code == resilience.CodeConnectionLost, e.RetryAfter > time.Minute)
					assert.Equal(t, 1, attempts)
					assert.Zero(t, g.Breaker("outer").Failures())
				})
			}
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

// markedInvalid marks what another function returns.
func markedInvalid(says func(context.Context, *resilience.Guard) error) func(context.Context, *resilience.Guard) error {
	return func(ctx context.Context, g *resilience.Guard) error { return resilience.MarkInvalid(says(ctx, g)) }
}

// canceled returns what a call says that the tool itself cancels, as the others are in vain.
func canceled(ctx context.Context, g *resilience.Guard) error {
	ctx, cancel := context.WithCancel(ctx)
	_, err := resilience.Do(ctx, g, "inner", func(ctx context.Context) (int, error) {
		cancel()
		return untilDone(ctx)
	})
	return err
}

// canceledBy returns what a call says that the tool itself cancels with a cause.
func canceledBy(says func(context.Context, *resilience.Guard) error) func(context.Context, *resilience.Guard) error {
	return func(ctx context.Context, g *resilience.Guard) error {
		cause := says(ctx, g)
		ctx, cancel := context.WithCancelCause(ctx)
		_, err := resilience.Do(ctx, g, "inner", func(ctx context.Context) (int, error) {
			cancel(cause)
			return untilDone(ctx)
		})
		return err
	}
}

// canceledDial returns what a connection's dial says that is under way then.
func canceledDial(ctx context.Context, _ *resilience.Guard) error {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	_, err := new(net.Dialer).DialContext(ctx, "tcp", "127.0.0.1:9")
	return err
}

func canceledLookUp(ctx context.Context, _ *resilience.Guard) error {
	ctx, cancel := context.WithCancel(ctx)
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	_, err := resolver.LookupHost(ctx, "stock.example.com")
	return err
}

// within returns what a guarded call says in which that happens.
func within(says func(context.Context, *resilience.Guard) error) func(context.Context, *resilience.Guard) error {
	return func(ctx context.Context, g *resilience.Guard) error {
		ctx, cancel := context.WithCancel(ctx)
		_, err := resilience.Do(ctx, g, "inner", func(ctx context.Context) (int, error) {
			err := says(ctx, g)
			cancel()
			return 0, err
		}, resilience.WaitForTool())
		return err
	}
}

// What agents read is of the error that decides.
func TestWordsOfJoinedErrors(t *testing.T) {
	for name, one := range map[string]func(context.Context, *resilience.Guard) error{
		"rejected": rejected, "canceled": canceled, "a canceled dial": canceledDial,
	} {
		for _, tc := range []struct {
			other error
			code  resilience.Code
			words string
		}{
			{resilience.MarkInvalid(errBoom), resilience.CodeValidation, "Tool 'outer' got invalid arguments"},
			{statusError(404), resilience.CodeValidation, "Tool 'outer' rejected the request"},
			{resilience.MarkPermanent(errBoom), resilience.CodeToolFailed, "Tool 'outer' failed"},
			{resilience.MarkBackend(errBoom), resilience.CodeToolFailed, "Tool 'outer' failed"},
			{
				&resilience.Error{Code: resilience.CodeValidation, Message: "There is no Atlantis"},
				resilience.CodeValidation, "There is no Atlantis",
			},
			{&resilience.Error{Code: "QUOTA", Message: "Used up until Monday"}, "QUOTA", "Used up until Monday"},
		} {
			for _, swap := range []bool{false, true} {
				t.Run(fmt.Sprint(name, ", ", tc.other, ", ", swap), func(t *testing.T) {
					g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
					g.Breaker("rejecting").Trip(time.Hour)
					_, err := resilience.Do(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
						if swap {
							return 0, errors.Join(tc.other, one(ctx, g))
						}
						return 0, errors.Join(one(ctx, g), tc.other)
					}, behindAdapter)
					var e *resilience.Error
					assert.ErrorAs(t, err, &e)
					assert.Equal(t, tc.code, e.Code)
					assert.Equal(t, tc.words, e.Message)
				})
			}
		}
	}
}

// What gives way leaves no words, also if both are of calls within the tool.
func TestWordsOfJoinedErrorsOfCallsWithinATool(t *testing.T) {
	for name, tc := range map[string]struct {
		one, other func(context.Context, *resilience.Guard) error
		words      string
	}{
		"rejected, and a mistake":         {rejected, inner(statusError(404)), "Tool 'inner' rejected the request"},
		"unknown, and one of the tool's":  {inner(errBoom), itself(errBoom), "Tool 'outer' failed"},
		"neutral, and one of the tool's":  {inner(resilience.MarkNeutral(errBoom)), itself(errBoom), "Tool 'outer' failed"},
		"canceled, and one of the tool's": {canceled, itself(errBoom), "Tool 'outer' failed"},
	} {
		for _, swap := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", ", swap), func(t *testing.T) {
				g := newGuard(t, resilience.Config{})
				g.Breaker("rejecting").Trip(time.Hour)
				_, err := resilience.Do(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
					one, other := tc.one(ctx, g), tc.other(ctx, g)
					if swap {
						one, other = other, one
					}
					return 0, errors.Join(one, other)
				}, behindAdapter)
				var e *resilience.Error
				assert.ErrorAs(t, err, &e)
				assert.Equal(t, tc.words, e.Message)
			})
		}
	}
}

// Nor does a CANCELED of ours outside of a guard, as in AsError.
func TestAsErrorOfWhatIsCanceledBesideAMark(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, canceled := resilience.WithTimeout(ctx, "inner", time.Second, untilDone)
	for _, err := range []error{
		errors.Join(canceled, resilience.MarkInvalid(errBoom)), errors.Join(resilience.MarkInvalid(errBoom), canceled),
		resilience.MarkInvalid(canceled),
	} {
		assert.Equal(t, resilience.CodeValidation, resilience.AsError("outer", err).Code)
	}
}

// A mark says more than what a guard has made of an error within: agents read what the breaker counts.
func TestWordsOfMarkedErrorsOfCallsWithinATool(t *testing.T) {
	for name, tc := range map[string]struct {
		mark  func(error) error
		retry bool
	}{
		"backend": {resilience.MarkBackend, true}, "transient": {resilience.MarkTransient, true},
		"permanent": {resilience.MarkPermanent, false},
	} {
		for _, within := range []error{
			errBoom, statusError(404), resilience.MarkInvalid(errBoom), resilience.MarkNeutral(errBoom),
		} {
			g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
			_, err := resilience.Do(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
				return 0, tc.mark(inner(within)(ctx, g))
			}, behindAdapter)
			var e *resilience.Error
			assert.ErrorAs(t, err, &e)
			assert.Equal(t, 1, g.Breaker("outer").Failures())
			assert.Equal(t, "TOOL_FAILED: Tool 'outer' failed", e.Error(), "%s %v", name, within)
			assert.Equal(t, tc.retry, e.Retryable)
			assert.True(t, e.HasGuidance())
		}
	}
}

// What AsError and WithRetry make of an error that doesn't count recommends nothing.
func TestDerivedErrorsThatDoNotCountRecommendNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tool := range []func(context.Context) (int, error){
			func(context.Context) (int, error) { return 0, resilience.AsError("x", errBoom) },
			func(ctx context.Context) (int, error) {
				return resilience.WithRetry(ctx, resilience.Retry{}, failing(9, errBoom))
			},
		} {
			g := newGuard(t, resilience.Config{})
			_, err := resilience.Do(t.Context(), g, "outer", tool, behindAdapter)
			var e *resilience.Error
			assert.ErrorAs(t, err, &e)
			assert.False(t, e.Retryable)
			assert.False(t, e.HasGuidance())
			assert.Contains(t, e.Suggestion, "Do not repeat the same call")
			assert.Zero(t, g.Breaker("outer").Failures())
		}
	})
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

// permutations calls f with all orders of errs.
func permutations(errs []error, f func([]error)) {
	if len(errs) < 2 {
		f(errs)
		return
	}
	for i := range errs {
		rest := append(append([]error{}, errs[:i]...), errs[i+1:]...)
		permutations(rest, func(others []error) { f(append([]error{errs[i]}, others...)) })
	}
}

// The order of three errors changes nothing, either, nor what is wrapped together.
func TestThreeJoinedErrors(t *testing.T) {
	own := &resilience.Error{Code: resilience.CodeValidation, Message: "There is no Atlantis"}
	quota := &resilience.Error{Code: "QUOTA", Message: "Used up until Monday", Retryable: true}
	for name, tc := range map[string]struct {
		says   func(context.Context, *resilience.Guard) []error
		words  string
		counts int
	}{
		"an own mistake, one within, and trouble": {
			func(ctx context.Context, g *resilience.Guard) []error {
				return []error{own, inner(statusError(404))(ctx, g), statusError(503)}
			}, "There is no Atlantis", 0,
		},
		"rejected together with a plain error, and the tool's word": {
			func(ctx context.Context, g *resilience.Guard) []error {
				return []error{errBoom, rejected(ctx, g), quota}
			}, "Used up until Monday", 1,
		},
		"and an answer": {
			func(ctx context.Context, g *resilience.Guard) []error {
				return []error{errBoom, rejected(ctx, g), statusError(404)}
			}, "Tool 'outer' rejected the request", 0,
		},
		"and trouble": {
			func(ctx context.Context, g *resilience.Guard) []error {
				return []error{errBoom, rejected(ctx, g), statusError(503)}
			}, "Tool 'outer' failed", 1,
		},
		"and nothing": {
			func(ctx context.Context, g *resilience.Guard) []error {
				return []error{errBoom, rejected(ctx, g), errors.New("no reason")}
			}, "Circuit breaker open due to repeated failures. Calls are rejected for 3600 more seconds.", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
				g.Breaker("rejecting").Trip(time.Hour)
				var all []error
				_, _ = resilience.Do(t.Context(), g, "around", func(ctx context.Context) (int, error) {
					all = tc.says(ctx, g)
					return 0, nil
				}, behindAdapter)
				permutations(all, func(errs []error) {
					a, b, c := errs[0], errs[1], errs[2]
					for _, joined := range []error{
						errors.Join(a, b, c), fmt.Errorf("%w: %w", a, errors.Join(b, c)), errors.Join(fmt.Errorf("%w: %w", a, b), c),
					} {
						g.Breaker("outer").Reset()
						_, err := resilience.Do(t.Context(), g, "outer", failing(9, joined), behindAdapter)
						var e *resilience.Error
						assert.ErrorAs(t, err, &e)
						assert.Equal(t, tc.words, e.Message, "%q", joined)
						assert.Equal(t, tc.counts, g.Breaker("outer").Failures(), "%q", joined)
					}
				})
			})
		})
	}
}

// A failure that says more than that a deadline has passed counts for an impatient caller, too.
func TestTimeoutBesideTrouble(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	expired := &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
	for _, tc := range []struct {
		errs   []error
		counts int
	}{
		{[]error{statusError(503), statusError(504)}, 1},
		{[]error{statusError(503), context.DeadlineExceeded}, 1},
		{[]error{refused, context.DeadlineExceeded}, 1},
		{[]error{refused, expired}, 1},
		{[]error{statusError(504), context.DeadlineExceeded}, 0},
		{[]error{statusError(504), expired}, 0},
		{[]error{errBoom, statusError(504)}, 0},
	} {
		permutations(tc.errs, func(errs []error) {
			synctest.Test(t, func(t *testing.T) {
				g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
				_, err := resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) {
					time.Sleep(6 * time.Second)
					return 0, errors.Join(errs...)
				}, behindAdapter, resilience.Timeout(10*time.Second))
				assert.Error(t, err)
				assert.Equal(t, tc.counts, g.Breaker("x").Failures(), "%q", errs)
			})
		})
	}
}
