package resilience_test

import (
	"cmp"
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
	"github.com/stretchr/testify/require"
)

var errDial = &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}

// permanent makes a failure of which nothing is known ClassPermanent, which no report means.
var permanent = resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassPermanent})

func TestReportOutsideOfACallAsksNothing(t *testing.T) {
	for name, err := range errorsThatCall(func() { t.Error("asked") }) {
		assert.NotPanics(t, func() { resilience.ReportBackend(t.Context(), err) }, name)
	}
}

func TestReportWhoseMethodsPanicIsRecovered(t *testing.T) {
	for name, err := range errorsThatCall(func() { panic("no answer") }) {
		r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{}), "x", func(ctx context.Context) (int, error) {
			resilience.ReportBackend(ctx, err)
			return 1, nil
		})
		assert.Equal(t, 1, r.Value, name)
	}
}

func TestWhatAReportSays(t *testing.T) {
	const lost = "Connection lost: connection refused"
	report := func(errs ...error) toolFunc {
		return func(ctx context.Context) (int, error) {
			for _, err := range errs {
				resilience.ReportBackend(ctx, err)
			}
			return 0, errOwn
		}
	}
	for name, tc := range map[string]struct {
		fn      toolFunc
		code    resilience.Code
		counted int
		message string
	}{
		"trouble":          {report(errDial), resilience.CodeConnectionLost, 1, lost},
		"a rejection":      {report(statusError(404)), resilience.CodeValidation, 0, "Tool 'x' rejected the request"},
		"a good answer":    {report(nil), resilience.CodeToolFailed, 0, "Tool 'x' failed"},
		"nothing":          {report(context.Canceled), resilience.CodeToolFailed, 1, "Tool 'x' failed"},
		"that it goes on":  {report(fmt.Errorf("page: %w", resilience.ErrUnfinished)), resilience.CodeToolFailed, 1, "Tool 'x' failed"},
		"the last of them": {report(nil, errDial), resilience.CodeConnectionLost, 1, lost},
		"one end": {func(ctx context.Context) (int, error) {
			end := resilience.BeginRequest(ctx)
			end(errDial)
			end(nil)
			return 0, errOwn
		}, resilience.CodeConnectionLost, 1, lost},
		"within a call that isn't guarded": {func(ctx context.Context) (int, error) {
			return resilience.WithTimeout(ctx, "page", time.Minute, report(errDial))
		}, resilience.CodeConnectionLost, 1, lost},
	} {
		t.Run(name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}})
			r := resilience.Run(t.Context(), g, "x", tc.fn, permanent)
			require.Error(t, r.Err)
			assert.Equal(t, tc.code, r.Err.Code)
			assert.Equal(t, tc.message, r.Err.Message)
			assert.Equal(t, tc.counted, g.Health()[0].ConsecutiveFailures)
		})
		runInBubble(t, name+", in a later attempt", func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly, Retry: &resilience.Retry{MaxRetries: 1}})
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) == 1 {
					return 0, resilience.MarkTransient(errFirst)
				}
				return tc.fn(ctx)
			}, permanent)
			require.Error(t, r.Err)
			assert.Equal(t, tc.code, cmp.Or(r.Err.LastCode, r.Err.Code))
			assert.Equal(t, tc.counted, g.Health()[0].ConsecutiveFailures)
		})
	}
}

// Whoever is refused has changed nothing, but for what it has sent before.
func TestPromise8RequestByItsEnd(t *testing.T) {
	rejected := resilience.MarkInvalid(errBoom)
	for name, tc := range map[string]struct {
		fn       toolFunc
		attempts int
	}{
		"none": {func(context.Context) (int, error) { return 0, errDial }, 4},
		"it was rejected": {func(ctx context.Context) (int, error) {
			resilience.BeginRequest(ctx)(rejected)
			return 0, errDial
		}, 4},
		"it was answered": {func(ctx context.Context) (int, error) {
			resilience.BeginRequest(ctx)(nil)
			return 0, errDial
		}, 1},
		"it goes on": {func(ctx context.Context) (int, error) {
			resilience.BeginRequest(ctx)
			return 0, errDial
		}, 1},
	} {
		runInBubble(t, name, func(t *testing.T) {
			r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent}), "x", tc.fn)
			assert.Equal(t, tc.attempts, r.Attempts)
		})
	}
}

// The tool says that all it did by then has changed nothing. What it hears later of an earlier request says nothing of
// the one that is under way.
func TestPromise8EndOfAnEarlierRequestIsNotThatOfTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var earlier func(error)
		r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent}), "x",
			func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) == 1 {
					earlier = resilience.BeginRequest(ctx)
					return 0, resilience.MarkTransient(errFirst)
				}
				resilience.BeginRequest(ctx)
				earlier(resilience.MarkInvalid(errBoom))
				return 0, errDial
			})
		assert.Equal(t, 2, r.Attempts)
	})
}

// A bound of the tool's own is none of the attempt's end, whoever made it.
func TestReportAfterTheEndOfABoundWithinTheTool(t *testing.T) {
	unanswered := func(ctx context.Context) (int, error) {
		<-ctx.Done()
		resilience.ReportBackend(ctx, ctx.Err())
		return 0, ctx.Err()
	}
	for name, bounded := range map[string]toolFunc{
		"context.WithTimeout": func(ctx context.Context) (int, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return unanswered(ctx)
		},
		"WithTimeout": func(ctx context.Context) (int, error) {
			return resilience.WithTimeout(ctx, "search", time.Second, unanswered)
		},
		"WithTimeout, twice": func(ctx context.Context) (int, error) {
			return resilience.WithTimeout(ctx, "search", time.Minute, func(ctx context.Context) (int, error) {
				return resilience.WithTimeout(context.WithValue(ctx, ctxKey("k"), 1), "search", time.Second, unanswered)
			})
		},
	} {
		for _, attemptTimeout := range []time.Duration{0, 10 * time.Second} {
			runInBubble(t, fmt.Sprint(name, " ", attemptTimeout), func(t *testing.T) {
				g := guardWith(t, resilience.Tool{AttemptTimeout: attemptTimeout})
				_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					resilience.ReportBackend(ctx, nil)
					_, err := bounded(ctx)
					assert.Error(t, err)
					synctest.Wait() // until what WithTimeout has left has reported
					return 0, errBoom
				})
				assert.ErrorIs(t, err, errBoom)
				assert.Equal(t, 1, g.Breaker("x").Failures())
			})
		}
	}
}

// The report of a bound that is over may be the only one.
func TestOnlyReportIsThatOfABoundThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Timeout: time.Minute})
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			_, _ = resilience.WithTimeout(ctx, "search", time.Second, func(ctx context.Context) (int, error) {
				<-ctx.Done()
				resilience.ReportBackend(ctx, ctx.Err())
				return 0, nil
			})
			synctest.Wait()
			return 0, errOwn
		}, resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral}))
		assert.ErrorIs(t, r.Err, errOwn)
		assert.Equal(t, 1, g.Breaker("x").Failures())
	})
}

// A method that returns no status says nothing, and leaves what the rest says.
func TestReportOfAnErrorWithoutAStatus(t *testing.T) {
	g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
	_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
		resilience.ReportBackend(ctx, grpcError(0)) // which a nil *status.Status is
		return 0, errBoom
	}, behindAdapter)
	assert.Error(t, err)
	assert.Equal(t, 1, g.Breaker("x").Failures())
}

// What says nothing when a tool returns it says nothing when a tracer reports it, either.
func TestReportOfWhatSaysNothing(t *testing.T) {
	for _, silent := range []error{
		sqlError("57014"), sqlError("55P03"), sqlError("53400"), sqlError("08P01"),
		statusError(408), statusError(423), statusError(425), fmt.Errorf("query: %w", sqlError("57014")),
		grpcError(1), grpcError(2), grpcError(17), // canceled, unknown, and a code of one's own
	} {
		for name, counts := range map[string]struct {
			report error
			count  int
		}{
			"alone": {silent, 0}, "marked": {resilience.MarkBackend(silent), 1},
			"with trouble": {errors.Join(silent, sqlError("57P01")), 1},
		} {
			t.Run(fmt.Sprint(silent, ", ", name), func(t *testing.T) {
				g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
				_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					resilience.ReportBackend(ctx, counts.report)
					return 0, errBoom
				}, behindAdapter)
				assert.Error(t, err)
				assert.Equal(t, counts.count, g.Breaker("x").Failures())
			})
		}
	}
}
