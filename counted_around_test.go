package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

// What is put around the error of a call within, or joined with it, and whether that counts then.

// rejectedAfter fails, and is rejected from the second attempt on.
func rejectedAfter(err error) toolFunc {
	return failingThen(1, err, &resilience.Error{Code: resilience.CodeCircuitOpen, Retryable: true})
}

// What a call within has counted counts whatever is put around its error, unless that says otherwise, and is retried no more
// than it would be otherwise.
func TestCountedIsCountedInAnyWrapping(t *testing.T) {
	tools := map[string]toolFunc{
		"then down":     thenDown(syscall.ECONNREFUSED),
		"then rejected": rejectedAfter(syscall.ECONNRESET),
	}
	for name, tc := range map[string]struct {
		wrap    func(error) error
		counted bool
	}{
		"nothing":           {func(err error) error { return err }, true},
		"an Error":          {func(err error) error { return &resilience.Error{Message: "The orders can't be read", Err: err} }, true},
		"a mistake":         {func(err error) error { return &resilience.Error{Code: resilience.CodeValidation, Err: err} }, false},
		"RETRY_EXHAUSTED":   {func(err error) error { return resilience.RetryExhaustedError("x", 2, err) }, true},
		"backoff.Permanent": {func(err error) error { return backoff.Permanent(err) }, true},
		"a rejection": {func(err error) error {
			e := resilience.CircuitOpenError("other", time.Minute)
			e.Err = err
			return e
		}, false},
		"MarkPermanent":    {resilience.MarkPermanent, true},
		"MarkNeutral":      {resilience.MarkNeutral, false},
		"MarkInvalid":      {resilience.MarkInvalid, false},
		"a panic":          {func(err error) error { panic(err) }, true},
		"AsError":          {func(err error) error { return resilience.AsError("x", err) }, true},
		"an error by As":   {func(err error) error { return multiError{err} }, true},
		"beside another":   {func(err error) error { return multiError{errBoom, err} }, true},
		"beside a mistake": {func(err error) error { return errors.Join(statusError(404), err) }, true},
		"beside neutral":   {func(err error) error { return errors.Join(err, resilience.MarkNeutral(errBoom)) }, true},
		"beside a cancel":  {func(err error) error { return errors.Join(context.Canceled, err) }, true},
		"marked by who joins": {func(err error) error {
			return resilience.MarkNeutral(errors.Join(statusError(404), err))
		}, false},
	} {
		for within, tool := range tools {
			runInBubble(t, name+", "+within, func(t *testing.T) {
				readOnly := resilience.Tool{Effect: resilience.ReadOnly}
				g := newGuard(t, resilience.Config{
					Retry: resilience.Retry{MaxRetries: 1}, Tools: map[string]resilience.Tool{"x": {}, "inner": readOnly},
				})
				r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					_, err := resilience.Do(ctx, g, "inner", tool)
					assert.Equal(t, 1, g.Breaker("inner").Failures())
					return 0, tc.wrap(err)
				}, behindAdapter)
				assert.Error(t, r.Err)
				assert.Equal(t, tc.counted, g.Breaker("x").Failures() == 1, "%v", r.Err)
				assert.Equal(t, 1, r.Attempts)
			})
		}
	}
}

// Why a Connector has no connection was counted where it was dialed: it is no failure of the tool that asks for one.
func TestCountedDialIsNotTheTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"dial": {Effect: resilience.ReadOnly}}})
		c := resilience.NewConnector(func(ctx context.Context) (int, error) {
			return resilience.Do(ctx, g, "dial", rejectedAfter(syscall.ECONNRESET))
		}, resilience.ConnectorConfig[int]{})
		defer c.Close()
		time.Sleep(150 * time.Millisecond) // for a retry
		assert.NotZero(t, g.Breaker("dial").Failures())
		assert.Equal(t, resilience.StateClosed, g.Breaker("dial").State())
		_, err := resilience.Do(t.Context(), g, "x", c.Get)
		assert.ErrorIs(t, err, resilience.CodeConnectionLost)
		assert.Zero(t, g.Breaker("x").Failures())
	})
}

// A rejection is no reason to try again, though that has counted an earlier failure and a mistake is beside it.
func TestCountedRejectionBesideAMistakeIsNotRetried(t *testing.T) {
	busy := &resilience.Error{Code: resilience.CodeOverloaded, Retryable: true}
	synctest.Test(t, func(t *testing.T) {
		tool := resilience.Tool{Effect: resilience.ReadOnly}
		g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"x": tool, "inner": tool}})
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			_, err := resilience.Do(ctx, g, "inner", failingThen(1, syscall.ECONNRESET, busy))
			return 0, errors.Join(err, statusError(404))
		}, behindAdapter)
		assert.Equal(t, 1, r.Attempts)
		assert.Equal(t, resilience.CodeValidation, r.Err.Code)
		assert.Equal(t, 1, g.Breaker("x").Failures())
	})
}

// A call that the tool itself ends isn't counted around it either, whatever the call says of that, but a deadline of the
// tool's is how a hang is noticed.
func TestEndOfACallByTheToolAroundIt(t *testing.T) {
	own := &resilience.Error{Code: resilience.CodeToolFailed, Message: "The stock can't be read", Err: errBoom}
	for _, cooperative := range []bool{false, true} {
		for name, tc := range map[string]struct {
			end     func(context.Context) (context.Context, context.CancelFunc)
			counted bool
		}{
			"a cancel": {func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(time.Second, cancel)
				return ctx, cancel
			}, false},
			"a deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Second)
			}, true},
		} {
			runInBubble(t, name, func(t *testing.T) {
				g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {}, "inner": {Cooperative: cooperative}}})
				_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					ctx, cancel := tc.end(ctx)
					defer cancel()
					return resilience.Do(ctx, g, "inner", failingOnceDone(own), resilience.WaitForTool())
				}, behindAdapter)
				assert.ErrorIs(t, err, errBoom)
				assert.Zero(t, g.Breaker("inner").Failures())
				assert.Equal(t, tc.counted, g.Breaker("x").Failures() == 1)
			})
		}
	}
}

// What a tool itself has tried within a call that had less time than the tool is judged by the tool around it,
// whether the last try ends in that time or after it, unless the tool around it has canceled the call.
func TestExhaustedInAShortCall(t *testing.T) {
	for name, tc := range map[string]struct {
		short, left time.Duration
		counted     int
	}{
		"in time":    {13 * time.Second, time.Minute, 1},
		"after that": {10 * time.Second, time.Minute, 1},
		"canceled":   {13 * time.Second, 8 * time.Second, 0},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{
				"x": {Timeout: time.Minute}, "inner": {Timeout: 30 * time.Second, Cooperative: true},
			}})
			retry := resilience.Retry{MaxRetries: 1, MaxElapsed: -1, Backoff: resilience.Backoff{Jitter: resilience.NoJitter}}
			_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				time.AfterFunc(tc.left, cancel)
				return resilience.Do(ctx, g, "inner", func(context.Context) (int, error) {
					return resilience.WithRetry(context.Background(), retry, func(ctx context.Context) (int, error) {
						return resilience.WithTimeout(ctx, "part", 6*time.Second, untilDone)
					})
				}, resilience.Timeout(tc.short))
			}, behindAdapter)
			assert.Equal(t, resilience.CodeRetryExhausted, resilience.AsError("x", err).Code)
			assert.Zero(t, g.Breaker("inner").Failures())
			assert.Equal(t, tc.counted, g.Breaker("x").Failures())
		})
	}
}

// What the tool of a call within says by a mark of an end that is the caller's holds around it, too.
func TestMarkOfTheEndOfACallWithin(t *testing.T) {
	own := &resilience.Error{Code: "TOO_BROAD", Message: "The query took longer than you allowed"}
	for name, tc := range map[string]struct {
		err         error
		cooperative bool
		after       time.Duration // 0: at the end of its context
	}{
		"an invalid Error":    {resilience.MarkInvalid(own), true, 0},
		"a neutral Error":     {resilience.MarkNeutral(own), true, 0},
		"what is neutral":     {resilience.MarkNeutral(errBoom), true, 0},
		"a neutral deadline":  {resilience.MarkNeutral(context.DeadlineExceeded), false, 900 * time.Millisecond},
		"a neutral 504":       {resilience.MarkNeutral(statusError(504)), false, 900 * time.Millisecond},
		"a neutral AsError":   {resilience.MarkNeutral(resilience.AsError("y", context.DeadlineExceeded)), false, 900 * time.Millisecond},
		"a mistake, in words": {resilience.AsError("y", resilience.MarkInvalid(context.DeadlineExceeded)), true, 0},
	} {
		for of, short := range map[string]bool{"the call's": true, "the tool's around it": false} {
			runInBubble(t, name+", a deadline of "+of, func(t *testing.T) {
				g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {}, "inner": {Cooperative: tc.cooperative}}})
				_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					options := []resilience.Option{resilience.WaitForTool()}
					if short {
						options = append(options, resilience.Timeout(time.Second))
					} else {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, time.Second)
						defer cancel()
					}
					return resilience.Do(ctx, g, "inner", func(ctx context.Context) (int, error) {
						if tc.after == 0 {
							<-ctx.Done()
						}
						time.Sleep(tc.after)
						return 0, tc.err
					}, options...)
				}, behindAdapter)
				assert.Error(t, err)
				assert.Zero(t, g.Breaker("inner").Failures())
				assert.Zero(t, g.Breaker("x").Failures(), "%v", err)
			})
		}
	}
}

// What the Classify of a breaker has said of a failure within stands around it, also at a deadline of the tool around it.
func TestClassifyAtTheEndOfACallWithin(t *testing.T) {
	own := &resilience.Error{Code: "TOO_BROAD", Message: "The query took longer than you allowed"}
	for _, class := range []resilience.Class{resilience.ClassInvalid, resilience.ClassNeutral, resilience.ClassPermanent} {
		runInBubble(t, class.String(), func(t *testing.T) {
			g := newGuard(t, resilience.Config{
				Breakers: map[string]resilience.BreakerConfig{
					"inner": {Classify: func(error) resilience.Class { return class }},
				},
				Tools: map[string]resilience.Tool{"x": {}, "inner": {Cooperative: true}},
			})
			_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				return resilience.Do(ctx, g, "inner", failingOnceDone(own))
			}, behindAdapter)
			assert.Error(t, err)
			assert.Equal(t, class == resilience.ClassPermanent, g.Breaker("x").Failures() == 1)
		})
	}
}

// A call within that has failed counts beside a mistake, which the tool says on purpose, in any order.
func TestCountedBesideAMistakeOfTheTools(t *testing.T) {
	own := &resilience.Error{Code: resilience.CodeValidation, Message: "There is no such order"}
	for _, mistake := range []error{own, resilience.MarkInvalid(errBoom)} {
		for _, within := range []toolFunc{failing(9, statusError(503)), rejectedAfter(statusError(503)), failing(9, errBoom)} {
			for _, first := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) {
					g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {}, "inner": {Effect: resilience.ReadOnly}}})
					_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
						_, err := resilience.Do(ctx, g, "inner", within)
						if first {
							return 0, errors.Join(err, mistake)
						}
						return 0, errors.Join(mistake, err)
					}, behindAdapter)
					assert.Error(t, err)
					assert.Equal(t, g.Breaker("inner").Failures(), g.Breaker("x").Failures(), "%q", err)
				})
			}
		}
	}
}

// A CANCELED that was counted counts in any order of what is joined.
func TestCountedCancelInAJoin(t *testing.T) {
	canceled := func(error) resilience.Class { return resilience.ClassCanceled }
	for _, breaker := range []func(error) resilience.Class{nil, canceled} {
		for name, others := range map[string][2]error{
			"alone": {}, "first": {nil, context.Canceled}, "last": {context.Canceled, nil},
			"before a mistake": {nil, statusError(404)}, "after one": {statusError(404), nil},
		} {
			runInBubble(t, name, func(t *testing.T) {
				g := newGuard(t, resilience.Config{
					Breakers: map[string]resilience.BreakerConfig{"inner": {Classify: breaker}},
					Tools:    map[string]resilience.Tool{"x": {}, "inner": {Retry: &resilience.Retry{Classify: canceled}}},
				})
				r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					_, err := resilience.Do(ctx, g, "inner", failing(9, statusError(503)))
					return 0, errors.Join(others[0], err, others[1])
				})
				assert.Error(t, r.Err)
				assert.Equal(t, 1, r.Attempts)
				assert.Equal(t, g.Breaker("inner").Failures(), g.Breaker("x").Failures())
			})
		}
	}
}

// A multiError holds several errors, as types do that are older than errors.Join.
type multiError []error

func (multiError) Error() string            { return "several errors" }
func (m multiError) WrappedErrors() []error { return m }

// Other types have another method.
type aggregate []error

func (aggregate) Error() string     { return "several errors" }
func (a aggregate) Errors() []error { return a }

// Their As method may look into all of them.
type looksInto struct{ aggregate }

func (l looksInto) As(target any) bool {
	return slices.ContainsFunc(l.aggregate, func(err error) bool { return errors.As(err, target) })
}

// caused has a cause, and a list that may be empty.
type caused struct {
	aggregate
	cause error
}

func (c caused) Unwrap() error { return c.cause }

// What such errors hold is read.
func TestErrorsOfOlderTypes(t *testing.T) {
	rejected, busy := resilience.CircuitOpenError("other", time.Minute), &resilience.Error{Code: "BUSY", Retryable: true}
	for name, several := range map[string]func(...error) error{
		"WrappedErrors":  func(errs ...error) error { return multiError(errs) },
		"Errors":         func(errs ...error) error { return aggregate(errs) },
		"Errors, and As": func(errs ...error) error { return looksInto{errs} },
		"a cause":        func(errs ...error) error { return caused{nil, errors.Join(errs...)} },
	} {
		for of, tc := range map[string]struct {
			err     error
			counted int
		}{
			"rejections":              {several(rejected, rejected), 0},
			"trouble":                 {several(statusError(503), syscall.ECONNRESET), 1},
			"mistakes":                {several(statusError(404), statusError(404)), 0},
			"both":                    {several(statusError(404), statusError(503)), 1},
			"trouble and a rejection": {several(statusError(503), rejected), 1},
			"what is neutral":         {several(resilience.MarkNeutral(busy)), 0},
			"what is invalid":         {several(resilience.MarkInvalid(busy)), 0},
		} {
			runInBubble(t, name+", "+of, func(t *testing.T) {
				g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
				_, err := resilience.Do(t.Context(), g, "x", failing(1, tc.err), behindAdapter)
				assert.Error(t, err)
				assert.Equal(t, tc.counted, g.Breaker("x").Failures())
			})
		}
	}
}

// byAs is an error that only its As method knows.
type byAs struct{ error }

func (b byAs) Error() string { return "an error by As" }

func (b byAs) As(target any) bool { return errors.As(b.error, target) }

// A rejection that only an As method finds is one, too.
func TestRejectionByAs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {Effect: resilience.ReadOnly}}})
		open := &resilience.Error{Code: resilience.CodeCircuitOpen, Retryable: true}
		r := resilience.Run(t.Context(), g, "x", failing(9, byAs{open}))
		assert.Equal(t, 1, r.Attempts)
		assert.Zero(t, g.Breaker("x").Failures())
	})
}

// A call within another one has as much time as that, also after a pause: it isn't in a hurry when its backend times out.
func TestTimeoutAfterAPauseWithinACall(t *testing.T) {
	for _, pause := range []time.Duration{0, 3 * time.Second, 10 * time.Second, 20 * time.Second} {
		for _, of := range []string{"the call", "the one around it"} {
			runInBubble(t, fmt.Sprint(pause, " of ", of), func(t *testing.T) {
				g := newGuard(t, resilience.Config{
					Retry: resilience.Retry{MaxRetries: -1}, Tools: map[string]resilience.Tool{"x": {}, "inner": {}},
				})
				_, err := resilience.Do(t.Context(), g, "x", func(around context.Context) (int, error) {
					return resilience.Do(around, g, "inner", func(ctx context.Context) (int, error) {
						if of != "the call" {
							ctx = around
						}
						resume := resilience.Pause(ctx)
						time.Sleep(pause)
						resume()
						time.Sleep(35 * time.Second) // of 60
						return 0, statusError(504)
					})
				})
				assert.ErrorIs(t, err, resilience.CodeTimeout)
				assert.Equal(t, 1, g.Breaker("inner").Failures())
				assert.Equal(t, 1, g.Breaker("x").Failures())
			})
		}
	}
}
