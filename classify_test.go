package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestClassifyByTheOutermostMark(t *testing.T) {
	const failed, invalid = "Tool 'x' failed", "Tool 'x' got invalid arguments"
	for name, tc := range map[string]errorTest{
		"no mark": {
			err:   errBoom,
			class: resilience.ClassTransient, code: resilience.CodeToolFailed, message: failed,
		},
		"transient": {
			err:   resilience.MarkTransient(errBoom),
			class: resilience.ClassTransient, code: resilience.CodeToolFailed, message: failed,
		},
		"the backend's": {
			err:   resilience.MarkBackend(statusError(404)),
			class: resilience.ClassTransient, code: resilience.CodeToolFailed, message: failed,
		},
		"permanent in a wrapper": {
			err:   fmt.Errorf("x: %w", resilience.MarkPermanent(errBoom)),
			class: resilience.ClassPermanent, code: resilience.CodeToolFailed, message: failed,
		},
		"invalid": {
			err:   resilience.MarkInvalid(errBoom),
			class: resilience.ClassInvalid, code: resilience.CodeValidation, message: invalid,
		},
		"transient around permanent": {
			err:   resilience.MarkTransient(resilience.MarkPermanent(errBoom)),
			class: resilience.ClassTransient, code: resilience.CodeToolFailed, message: failed,
		},
		"neutral": {
			err:   resilience.MarkNeutral(errBoom),
			class: resilience.ClassNeutral, code: resilience.CodeToolFailed, message: failed,
		},
		"neutral around permanent": {
			err:   resilience.MarkNeutral(resilience.MarkPermanent(errBoom)),
			class: resilience.ClassNeutral, code: resilience.CodeToolFailed, message: failed,
		},
		"invalid in a join": {
			err:   errors.Join(errBoom, resilience.MarkInvalid(io.EOF)),
			class: resilience.ClassInvalid, code: resilience.CodeValidation, message: invalid,
		},
		"backoff's permanent": {
			err:   backoff.Permanent(errBoom),
			class: resilience.ClassPermanent, code: resilience.CodeToolFailed, message: failed,
		},
		"backoff's permanent in a wrapper": {
			err:   fmt.Errorf("x: %w", backoff.Permanent(errBoom)),
			class: resilience.ClassPermanent, code: resilience.CodeToolFailed, message: failed,
		},
		"permanent around an Error": {
			err:   resilience.MarkPermanent(resilience.TimeoutError("x", 0)),
			class: resilience.ClassPermanent, code: resilience.CodeTimeout, message: "Tool 'x' timed out",
		},
	} {
		t.Run(name, tc.check)
	}
}

func TestClassifyByTheKindOfError(t *testing.T) {
	for name, tc := range map[string]errorTest{
		"panic": {
			err:   &resilience.PanicError{Value: "p"},
			class: resilience.ClassPermanent, code: resilience.CodeToolFailed, message: "Tool 'x' failed",
		},
		"panic with ErrUnfinished": {
			err:   &resilience.PanicError{Value: resilience.ErrUnfinished},
			class: resilience.ClassPermanent, code: resilience.CodeToolFailed, message: "Tool 'x' failed",
		},
		"panic, wrapped": {
			err:   fmt.Errorf("x: %w", &resilience.PanicError{Value: "p"}),
			class: resilience.ClassPermanent, code: resilience.CodeToolFailed, message: "Tool 'x' failed",
		},
		"goexit, wrapped": {
			err:   fmt.Errorf("x: %w", resilience.ErrGoexit),
			class: resilience.ClassPermanent, code: resilience.CodeToolFailed, message: "Tool 'x' failed",
		},
		"goexit": {
			err:   resilience.ErrGoexit,
			class: resilience.ClassPermanent, code: resilience.CodeToolFailed, message: "Tool 'x' failed",
		},
		"canceled": {
			err:   fmt.Errorf("x: %w", context.Canceled),
			class: resilience.ClassCanceled, code: resilience.CodeCanceled, message: "The call was canceled",
		},
		"deadline exceeded": {
			err:   fmt.Errorf("x: %w", context.DeadlineExceeded),
			class: resilience.ClassTransient, code: resilience.CodeTimeout, message: "Tool 'x' timed out",
		},
	} {
		t.Run(name, tc.check)
	}
}

func TestClassifyByTheCodeOfAnError(t *testing.T) {
	for code, class := range map[resilience.Code]resilience.Class{
		resilience.CodeTimeout:        resilience.ClassTransient,
		resilience.CodeCircuitOpen:    resilience.ClassTransient,
		resilience.CodeConnectionLost: resilience.ClassTransient,
		resilience.CodeOverloaded:     resilience.ClassTransient,
		resilience.CodeRetryExhausted: resilience.ClassPermanent,
		resilience.CodeToolFailed:     resilience.ClassPermanent,
		resilience.CodeToolNotFound:   resilience.ClassInvalid,
		resilience.CodeValidation:     resilience.ClassInvalid,
		resilience.CodeCanceled:       resilience.ClassCanceled,
		"BUSY":                        resilience.ClassPermanent,
	} {
		assert.Equal(t, class, resilience.Classify(&resilience.Error{Code: code}), "%s", code)
	}
	retryable := &resilience.Error{Code: resilience.CodeToolFailed, Retryable: true}
	assert.Equal(t, resilience.ClassTransient, resilience.Classify(retryable))
	assert.Equal(t, resilience.ClassTransient, resilience.Classify(nil))
}

func TestClassHasAName(t *testing.T) {
	for class, want := range map[resilience.Class]string{
		resilience.ClassTransient: "transient",
		resilience.ClassPermanent: "permanent",
		resilience.ClassInvalid:   "invalid",
		resilience.ClassCanceled:  "canceled",
		resilience.ClassNeutral:   "neutral",
	} {
		assert.Equal(t, want, class.String())
	}
}

func TestMarkKeepsTheErrorAndItsText(t *testing.T) {
	for name, mark := range map[string]func(error) error{
		"transient": resilience.MarkTransient,
		"permanent": resilience.MarkPermanent,
		"invalid":   resilience.MarkInvalid,
		"neutral":   resilience.MarkNeutral,
	} {
		t.Run(name, func(t *testing.T) {
			assert.NoError(t, mark(nil))
			assert.EqualError(t, mark(io.EOF), "EOF")
			assert.ErrorIs(t, mark(io.EOF), io.EOF)
		})
	}
}

// What doesn't count isn't worth a word less, and counts for no call around it either.
func TestMarkNeutralLeavesTheToolsOwnErrorAsItIs(t *testing.T) {
	own := &resilience.Error{
		Code: "BUSY", Message: "m", Suggestion: "Mine", Retryable: true, RetryAfter: 20 * time.Second,
	}
	g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly})
	r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
		inner := resilience.Run(ctx, g, "inner", failing(9, resilience.MarkNeutral(own)))
		assert.Equal(t, 1, inner.Attempts)
		return 0, inner.Err
	})
	assert.Equal(t, 1, r.Attempts)
	assert.True(t, r.Err.Retryable)
	assert.Equal(t, 20*time.Second, r.Err.RetryAfter)
	assert.Equal(t, "BUSY: m", r.Err.Error())
	for _, h := range g.Health() {
		assert.Zero(t, h.ConsecutiveFailures, h.Tool)
	}
}

// What doesn't count reads as it would without the mark, also as to whether another call may do harm.
func TestMarkNeutralReadsAsWhatItMarks(t *testing.T) {
	for name, err := range map[string]error{
		"nothing is known": errBoom,
		"trouble":          statusError(503),
		"asks to wait":     waitError{time.Minute},
		"rejected":         statusError(404),
		"refused":          syscall.ECONNREFUSED,
		"reset":            &net.OpError{Op: "read", Err: syscall.ECONNRESET},
		"too slow":         fmt.Errorf("ask: %w", context.DeadlineExceeded),
		"canceled":         context.Canceled,
		"MarkTransient":    resilience.MarkTransient(errBoom),
		"MarkBackend":      resilience.MarkBackend(errBoom),
		"MarkPermanent":    resilience.MarkPermanent(statusError(503)),
		"MarkInvalid":      resilience.MarkInvalid(errBoom),
		"own mistake":      &resilience.Error{Code: resilience.CodeValidation, Message: "no such row"},
		"own, retryable":   &resilience.Error{Code: "BUSY", Retryable: true, RetryAfter: time.Second},
		"own, final":       resilience.MarkPermanent(&resilience.Error{Code: "BUSY", Retryable: true}),
		"ours":             resilience.ConnectionLostError("the ledger is gone"),
	} {
		for _, effect := range []resilience.Effect{
			resilience.EffectUnknown, resilience.ReadOnly, resilience.Idempotent, resilience.NonIdempotent,
		} {
			t.Run(name+", "+effect.String(), func(t *testing.T) {
				read := func(err error, report error) (resilience.Result[int], int) {
					g := guardWith(t, resilience.Tool{Effect: effect, Retry: &resilience.Retry{MaxRetries: -1}})
					r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
						resilience.ReportBackend(ctx, report)
						return 0, err
					}, resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral}))
					return r, g.Breaker("x").Failures()
				}
				for _, report := range []error{nil, statusError(503), syscall.ECONNREFUSED} {
					want, _ := read(err, report)
					got, failures := read(resilience.MarkNeutral(err), report)
					assert.Equal(t, jsonOf(t, want.Err), jsonOf(t, got.Err))
					assert.Zero(t, failures)
					assert.Equal(t, resilience.ClassNeutral, resilience.Classify(got.Err), "for a call around it")
				}
			})
		}
	}
}

func TestMarkNeutralAroundMarkNeutral(t *testing.T) {
	inner := resilience.MarkNeutral(statusError(503))
	for name, err := range map[string]error{
		"twice":  resilience.MarkNeutral(inner),
		"joined": errors.Join(inner, resilience.MarkNeutral(resilience.MarkBackend(errBoom))),
	} {
		assert.Equal(t, resilience.ClassNeutral, resilience.Classify(err), name)
		assert.True(t, resilience.AsError("x", err).Retryable, name)
	}
	assert.Equal(t, resilience.ClassPermanent, resilience.Classify(resilience.MarkPermanent(inner)), "the outermost counts")
}

// What went wrong beside the backend's trouble neither hides that nor makes any of it.
func TestMarkNeutralBesideOtherErrors(t *testing.T) {
	beside := resilience.MarkNeutral(fmt.Errorf("ask: %w", context.DeadlineExceeded))
	c := resilience.NewConnector(func(context.Context) (int, error) { return 0, errBoom }, resilience.ConnectorConfig[int]{MaxAttempts: 1})
	defer c.Close()
	_, notMade := c.Wait(t.Context())
	unexplained := resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral})
	for name, tc := range map[string]struct {
		err    error
		counts bool
	}{
		"trouble":            {errors.Join(syscall.ECONNREFUSED, beside), true},
		"trouble, second":    {fmt.Errorf("%w: %w", beside, syscall.ECONNREFUSED), true},
		"trouble, between":   {errors.Join(beside, statusError(503), beside), true},
		"a mark":             {errors.Join(beside, resilience.MarkBackend(errBoom)), true},
		"the tool's own":     {errors.Join(beside, &resilience.Error{Code: "BUSY", Retryable: true}), true},
		"nothing else":       {errors.Join(beside, beside), false},
		"words":              {fmt.Errorf("%w: %w", errBoom, beside), false},
		"a mistake":          {errors.Join(beside, resilience.MarkInvalid(errBoom)), false},
		"a rejection":        {errors.Join(beside, resilience.CircuitOpenError("y", time.Second)), false},
		"no connection":      {errors.Join(notMade, beside), false},
		"neutral as a whole": {resilience.MarkNeutral(errors.Join(beside, syscall.ECONNREFUSED)), false},
	} {
		cfg := configWith(resilience.Tool{})
		cfg.Retry.MaxRetries = -1
		g := newGuard(t, cfg)
		r := resilience.Run(t.Context(), g, "x", failing(9, tc.err), unexplained)
		assert.Equal(t, tc.counts, g.Breaker("x").Failures() == 1, name)
		assert.ErrorIs(t, r.Err, tc.err, name)
	}
}

// A call is made again as if nothing had been done only if that is certain of all that went wrong.
func TestPromise8MarkNeutralBesideAnErrorWithoutEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		for name, tc := range map[string]struct {
			err      error
			attempts int
		}{
			"an effect is possible": {errors.Join(resilience.MarkNeutral(errBoom), refused), 1},
			"the other way round":   {errors.Join(refused, resilience.MarkNeutral(errBoom)), 1},
			"no effect":             {errors.Join(resilience.MarkNeutral(refused), refused), 4},
			"a mark":                {errors.Join(resilience.MarkNeutral(refused), resilience.MarkTransient(errBoom)), 4},
		} {
			r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent}), "x", failing(9, tc.err))
			assert.Equal(t, tc.attempts, r.Attempts, name)
		}

		neutral := resilience.MarkNeutral(errBoom)
		for name, tc := range map[string]struct {
			reported, err error
			attempts      int
		}{
			"the request was refused":      {refused, errors.Join(neutral, errBoom), 4},
			"what is marked isn't all":     {nil, errors.Join(neutral, resilience.MarkTransient(errBoom)), 1},
			"the request wasn't made, too": {nil, errors.Join(neutral, refused), 1},
		} {
			r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent}), "x",
				func(ctx context.Context) (int, error) {
					resilience.ReportBackend(ctx, tc.reported)
					return 0, tc.err
				})
			assert.Equal(t, tc.attempts, r.Attempts, name)
		}
		unfinished := errors.Join(resilience.MarkNeutral(resilience.ErrUnfinished), errBoom)
		assert.Equal(t, resilience.ClassInvalid, resilience.Classify(unfinished))
	})
}

// Each Classify field speaks for itself.
func TestABareCancelCountsWhateverRetryClassifySays(t *testing.T) {
	for name, retry := range map[string]func(error) resilience.Class{
		"default":   nil,
		"invalid":   func(error) resilience.Class { return resilience.ClassInvalid },
		"transient": func(error) resilience.Class { return resilience.ClassTransient },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := configWith(resilience.Tool{})
				cfg.Retry = resilience.Retry{MaxRetries: -1, Classify: retry}
				g := newGuard(t, cfg)
				for range 5 {
					_, err := resilience.Do(t.Context(), g, "x", failing(9, context.Canceled))
					require.Error(t, err)
				}
				assert.Equal(t, resilience.StateOpen, g.Breaker("x").State())
			})
		})
	}
}

func TestAFailureBesideAConnectorsRejectionCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := resilience.NewConnector(func(context.Context) (int, error) { return 0, errBoom },
			resilience.ConnectorConfig[int]{MaxAttempts: 1})
		defer c.Close()
		synctest.Wait()
		_, rejected := c.Get(t.Context())
		require.Error(t, rejected)

		for name, err := range map[string]error{
			"before": errors.Join(errFirst, rejected), "after": errors.Join(rejected, errFirst),
			"around it": fmt.Errorf("x: %w", &resilience.PanicError{Value: rejected}),
		} {
			g := guardWith(t, resilience.Tool{})
			_, err := resilience.Do(t.Context(), g, "x", failing(9, err))
			require.Error(t, err)
			assert.Equal(t, 1, g.Health()[0].ConsecutiveFailures, name)
		}
	})
}

// A rejection beside a real failure hides nothing, and neither does one that the program marks.
func TestRejectionIsNeutralOnlyIfNothingElseFailed(t *testing.T) {
	open := resilience.CircuitOpenError("other", time.Second)
	for name, tc := range map[string]struct {
		err      error
		failures int
	}{
		"alone":                 {open, 0},
		"wrapped":               {fmt.Errorf("x: %w", open), 0},
		"beside a failure":      {errors.Join(errBoom, open), 1},
		"before a failure":      {errors.Join(open, errBoom), 1},
		"time and again":        {&resilience.Error{Code: resilience.CodeRetryExhausted, Err: open}, 0},
		"marked as permanent":   {resilience.MarkPermanent(open), 1},
		"in an Error of a tool": {&resilience.Error{Message: "m", Err: open}, 1},
	} {
		g := guardWith(t, resilience.Tool{})
		_, err := resilience.Do(t.Context(), g, "x", failing(9, tc.err))
		assert.Error(t, err, name)
		assert.Equal(t, tc.failures, g.Health()[0].ConsecutiveFailures, name)
	}
}

// An errorByAs is an *Error by its As method alone.
type errorByAs struct{}

func (errorByAs) Error() string { return "bad argument" }

func (errorByAs) As(target any) bool {
	e, ok := target.(**resilience.Error)
	if ok {
		*e = &resilience.Error{Code: resilience.CodeValidation, Message: "limit must be positive"}
	}
	return ok
}

func TestErrorByItsAsMethodDecidesAsAnyOther(t *testing.T) {
	assert.Equal(t, resilience.ClassInvalid, resilience.Classify(fmt.Errorf("search: %w", errorByAs{})))
	r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{Effect: resilience.ReadOnly}), "x",
		func(context.Context) (int, error) { return 0, errorByAs{} })
	assert.Equal(t, resilience.CodeValidation, r.Err.Code)
	assert.Equal(t, 1, r.Attempts)
}

// What the outermost mark says holds for the tool's own *Error, too, and for what is joined with it.
func TestMarkTakesBackThatAnErrorIsRetryable(t *testing.T) {
	own := &resilience.Error{Message: "m", Retryable: true}
	for name, tc := range map[string]struct {
		err       error
		retryable bool
	}{
		"no mark":             {own, true},
		"transient":           {resilience.MarkTransient(own), true},
		"permanent":           {resilience.MarkPermanent(own), false},
		"backoff's permanent": {backoff.Permanent(own), false},
		"joined before":       {errors.Join(resilience.MarkPermanent(errBoom), own), false},
		"joined after":        {errors.Join(own, resilience.MarkPermanent(errBoom)), false},
		"of its cause":        {&resilience.Error{Message: "m", Retryable: true, Err: resilience.MarkPermanent(errBoom)}, true},
		"joined, without one": {errors.Join(errBoom, own), true},
	} {
		e := resilience.AsError("x", tc.err)
		assert.Equal(t, "m", e.Message, name)
		assert.Equal(t, tc.retryable, e.Retryable, name)
	}
	assert.Zero(t, resilience.AsError("x", resilience.MarkInvalid(waitError{time.Minute})).RetryAfter)

	worded := &resilience.Error{Message: "m", Retryable: true, Suggestion: "Mine"}
	assert.Equal(t, "Mine", resilience.AsError("x", resilience.MarkPermanent(worded)).Suggestion)

	unknown := &resilience.Error{Code: resilience.CodeToolNotFound}
	assert.Equal(t, resilience.AsError("x", unknown).Suggestion,
		resilience.AsError("x", resilience.MarkPermanent(unknown)).Suggestion, "it isn't retryable anyway")
}

// What a program makes of our CANCELED is its own statement. Ours says no more than context.Canceled, which counts as
// any other failure while the caller is here.
func TestOurCanceledSaysNothingUntilAProgramChangesIt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ours := func() *resilience.Error {
		_, err := resilience.WithTimeout(ctx, "x", time.Minute, succeed)
		return err.(*resilience.Error)
	}
	inOwnWords, withOwnCode := ours(), ours()
	inOwnWords.Message, withOwnCode.Code = "the job was stopped", "BUSY"
	message := ours().Message

	for name, tc := range map[string]struct {
		err     error
		class   resilience.Class
		counted int
		code    resilience.Code
	}{
		"ours":        {ours(), resilience.ClassCanceled, 1, resilience.CodeToolFailed},
		"ours, by As": {asOnly{ours()}, resilience.ClassTransient, 1, resilience.CodeCanceled},
		"own words":   {inOwnWords, resilience.ClassCanceled, 0, resilience.CodeCanceled},
		"an own code": {withOwnCode, resilience.ClassPermanent, 1, "BUSY"},
		"made by hand": {
			&resilience.Error{Code: resilience.CodeCanceled, Message: message}, resilience.ClassCanceled, 0,
			resilience.CodeCanceled,
		},
		"only our words": {
			&resilience.Error{Code: "BUSY", Message: message, Err: context.Canceled}, resilience.ClassPermanent, 1, "BUSY",
		},
	} {
		assert.Equal(t, tc.class, resilience.Classify(tc.err), name)
		g := guardWith(t, resilience.Tool{})
		r := resilience.Run(t.Context(), g, "x", failing(9, tc.err))
		assert.Equal(t, tc.code, r.Err.Code, name)
		assert.Equal(t, tc.counted, g.Health()[0].ConsecutiveFailures, name)
	}
}

// While the caller is here, context.Canceled is the tool's own, unless a Classify of the Config knows better. One that
// asks the package's hears the same.
func TestABareCancelIsWhatClassifyOfTheConfigSays(t *testing.T) {
	canceled := func(err error) resilience.Class {
		if errors.Is(err, context.Canceled) {
			return resilience.ClassCanceled
		}
		return resilience.Classify(err)
	}
	for name, tc := range map[string]struct {
		classify          func(error) resilience.Class
		attempts, counted int
		code              resilience.Code
	}{
		"nil":                    {nil, 4, 1, resilience.CodeRetryExhausted},
		"the package's":          {resilience.Classify, 4, 1, resilience.CodeRetryExhausted},
		"one that says canceled": {canceled, 1, 0, resilience.CodeCanceled},
	} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly})
			cfg.Retry.Classify, cfg.Breaker.Classify = tc.classify, tc.classify
			g := newGuard(t, cfg)
			r := resilience.Run(t.Context(), g, "x", failing(9, fmt.Errorf("get: %w", context.Canceled)))
			assert.Equal(t, tc.attempts, r.Attempts)
			assert.Equal(t, tc.counted, g.Health()[0].ConsecutiveFailures)
			assert.Equal(t, tc.code, r.Err.Code)
		})
	}
}

// A Classify field is believed, also of what a backend was reported on, and of context.Canceled.
func TestClassifyOfABreakerDecidesAlone(t *testing.T) {
	reported := func(ctx context.Context) (int, error) {
		resilience.ReportBackend(ctx, errBoom)
		return 0, errBoom
	}
	for name, fn := range map[string]toolFunc{
		"a failure":      failing(9, errBoom),
		"a cancel":       failing(9, context.Canceled),
		"after a report": reported,
	} {
		for class, counted := range map[resilience.Class]int{resilience.ClassInvalid: 0, resilience.ClassPermanent: 1} {
			g := newGuard(t, resilience.Config{
				Breaker: resilience.BreakerConfig{Classify: func(error) resilience.Class { return class }},
			})
			_, err := resilience.Do(t.Context(), g, "x", fn)
			assert.Error(t, err, name)
			assert.Equal(t, counted, g.Health()[0].ConsecutiveFailures, "%s, %s", name, class)
		}
	}
}

// Only the last of several attempts was rejected, so something failed.
func TestRejectionByAConnectorAfterAFailureCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := resilience.NewConnector(func(context.Context) (int, error) { return 0, errBoom },
			resilience.ConnectorConfig[int]{MaxAttempts: 1})
		defer c.Close()
		synctest.Wait()

		for name, fn := range map[string]toolFunc{
			"of WithRetry": func(ctx context.Context) (int, error) {
				tries := 0
				retry := resilience.Retry{MaxRetries: 1}
				return resilience.WithRetry(ctx, retry, func(ctx context.Context) (int, error) {
					if tries++; tries == 1 {
						return 0, errFirst
					}
					return c.Get(ctx)
				})
			},
			"of a context that was canceled": func(ctx context.Context) (int, error) {
				ctx, cancel := context.WithCancel(ctx)
				return resilience.WithTimeout(ctx, "inner", time.Minute, func(context.Context) (int, error) {
					cancel()
					_, err := c.Get(context.Background())
					return 0, fmt.Errorf("get: %w", err)
				})
			},
		} {
			g := guardWith(t, resilience.Tool{})
			_, err := resilience.Do(t.Context(), g, "x", fn)
			require.Error(t, err, name)
			assert.Equal(t, 1, g.Health()[0].ConsecutiveFailures, name)
		}
	})
}
