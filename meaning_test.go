package resilience_test

import (
	"cmp"
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
	"github.com/stretchr/testify/require"
)

// A tool that returns a nil pointer as an error, or an error whose methods panic, fails its own call and nothing else.
func TestPromise7ErrorWhoseMethodsPanic(t *testing.T) {
	for name, failure := range map[string]error{
		"a nil pointer": (*typedNil)(nil), "a nil *Error": (*resilience.Error)(nil), "a method": panickingStatus{},
	} {
		inBothModes(t, func(t *testing.T, cooperative bool) {
			g := guardWith(t, resilience.Tool{Cooperative: cooperative})
			_, err := resilience.Do(t.Context(), g, "x", failing(9, failure))
			var e *resilience.Error
			require.ErrorAs(t, err, &e, name)
			assert.Equal(t, resilience.CodeToolFailed, e.Code, name)
			assert.Equal(t, 1, g.Breaker("x").Failures(), name)

			_, err = resilience.Do(t.Context(), g, "x", succeed)
			assert.NoError(t, err, name)
		})
	}
}

// A multiError has the method of hashicorp/go-multierror. An aggregate has the method of k8s.io/apimachinery.
type (
	multiError []error
	aggregate  []error
)

func (multiError) Error() string            { return "several errors" }
func (m multiError) WrappedErrors() []error { return m }
func (aggregate) Error() string             { return "several errors" }
func (a aggregate) Errors() []error         { return a }
func (a aggregate) Is(target error) bool    { return errors.Is(errors.Join(a...), target) }

func TestSeveralErrorsInOneOfAnotherType(t *testing.T) {
	open := resilience.CircuitOpenError("other", time.Minute)
	for want, errs := range map[string][]error{
		"trouble":  {statusError(404), statusError(503), context.Canceled},
		"rejected": {statusError(404), statusError(404)},
		"nothing":  {open, open},
	} {
		assert.Equal(t, want, judged(t, failing(9, multiError(errs))))
		assert.Equal(t, want, judged(t, failing(9, aggregate(errs))))
	}
}

// A fan-out cancels its other requests once one has failed. That is no failure of a backend.
func TestPromise6CanceledByTheToolIsNotCountedNorRetried(t *testing.T) {
	within := func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		_, err := resilience.WithTimeout(ctx, "part", time.Minute, func(ctx context.Context) (int, error) {
			cancel()
			return untilDone(ctx)
		})
		return err
	}
	dial := func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		_, err := new(net.Dialer).DialContext(ctx, "tcp", "127.0.0.1:9")
		return err
	}
	for name, fail := range map[string]func(context.Context) error{
		"context.Canceled": func(context.Context) error { return context.Canceled },
		"wrapped":          func(context.Context) error { return fmt.Errorf("get: %w", context.Canceled) },
		"of AsError":       func(context.Context) error { return resilience.AsError("inner", context.Canceled) },
		"a WithTimeout":    within,
		"a dial":           dial,
	} {
		runInBubble(t, name, func(t *testing.T) {
			r, counted := runTool(t, reads, func(ctx context.Context) (int, error) { return 0, fail(ctx) })
			assert.False(t, counted)
			assert.Equal(t, 1, r.Attempts)
			own := name == "of AsError" || name == "a WithTimeout" // which are an *Error
			assert.Equal(t, own, r.Err.Code == resilience.CodeCanceled, "the call itself wasn't canceled")
		})
	}
}

// A rejection by another breaker, or a missing connection, is no failure of the tool, unless something else has failed.
// It isn't retried.
func TestRejectionWithinATool(t *testing.T) {
	open, down := resilience.CircuitOpenError("other", time.Second), noConnection(t)
	overloaded := &resilience.Error{Code: resilience.CodeOverloaded, Retryable: true}
	always := func(err error) toolFunc { return failing(9, err) }
	for name, tc := range map[string]struct {
		fn       toolFunc
		counted  bool
		attempts int
	}{
		"open":                         {always(open), false, 1},
		"open, wrapped":                {always(fmt.Errorf("x: %w", open)), false, 1},
		"overloaded":                   {always(overloaded), false, 1},
		"shutting down":                {always(&resilience.Error{Code: resilience.CodeShuttingDown}), false, 1},
		"down":                         {always(down), false, 1},
		"down, wrapped":                {always(fmt.Errorf("x: %w", down)), false, 1},
		"open, marked":                 {always(resilience.MarkPermanent(open)), true, 1},
		"open, in an Error of a tool":  {always(&resilience.Error{Message: "m", Err: open}), true, 1},
		"open, after a failure":        {failingThen(1, errFirst, open), true, 2},
		"overloaded, after a failure":  {failingThen(1, errFirst, overloaded), true, 2},
		"down, after a failure":        {failingThen(1, errFirst, down), true, 2},
		"panic, after a failure":       {panickingAfter(errFirst, open), true, 2},
		"down, after one of WithRetry": {retrying(failingThen(1, errFirst, down)), true, 1},
	} {
		runInBubble(t, name, func(t *testing.T) {
			r, counted := runTool(t, reads, tc.fn)
			require.Error(t, r.Err)
			assert.Equal(t, tc.counted, counted)
			assert.Equal(t, tc.attempts, r.Attempts)
		})
	}
}

// panickingAfter fails with err at first, and panics with value then.
func panickingAfter(err error, value any) toolFunc {
	return func(ctx context.Context) (int, error) {
		if resilience.Attempt(ctx) > 1 {
			panic(value)
		}
		return 0, err
	}
}

// retrying returns a tool that retries fn itself.
func retrying(fn toolFunc) toolFunc {
	return func(ctx context.Context) (int, error) {
		return resilience.WithRetry(ctx, resilience.Retry{MaxRetries: 1}, fn)
	}
}

// A call within a tool counts around it by the error that it returns, at any depth.
func TestNestedCallCountsByItsError(t *testing.T) {
	adapter := []resilience.Option{behindAdapter}
	own := &resilience.Error{Code: "BUSY", Message: "m", Retryable: true}
	for name, tc := range map[string]struct {
		tool    toolFunc
		options []resilience.Option // of the outermost call
		counted bool
	}{
		"trouble":                    {failing(9, syscall.ECONNRESET), nil, true},
		"trouble, behind an adapter": {failing(9, syscall.ECONNRESET), adapter, true},
		"unknown":                    {failing(9, errBoom), nil, true},
		"unknown, behind an adapter": {failing(9, errBoom), adapter, false},
		"a hang":                     {hang(time.Minute), nil, true},
		"a timeout":                  {untilDone, adapter, true},
		"a panic":                    {panicking("p"), adapter, true},
		"Goexit":                     {exit, adapter, true},
		"own":                        {failing(9, own), adapter, true},
		"a mistake":                  {failing(9, resilience.MarkInvalid(errBoom)), nil, false},
		"a rejected request":         {failing(9, statusError(404)), nil, false},
		"neutral":                    {failing(9, resilience.MarkNeutral(errBoom)), nil, false},
		"neutral trouble":            {failing(9, resilience.MarkNeutral(statusError(503))), nil, false},
		"permanent":                  {failing(9, resilience.MarkPermanent(errBoom)), nil, true},
		"open":                       {failing(9, resilience.CircuitOpenError("other", time.Minute)), nil, false},
		"canceled":                   {failing(9, context.Canceled), nil, false},
		"an answer":                  {reporting(nil, errBoom), nil, false},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{
				Retry: resilience.Retry{MaxRetries: -1},
				Tools: map[string]resilience.Tool{"outer": {}, "middle": {}, "inner": {Timeout: 2 * time.Second}},
			})
			within := func(tool string, fn toolFunc) toolFunc {
				return func(ctx context.Context) (int, error) { return resilience.Do(ctx, g, tool, fn) }
			}
			_, err := resilience.Do(t.Context(), g, "outer", within("middle", within("inner", tc.tool)), tc.options...)
			assert.Error(t, err)
			for _, tool := range []string{"inner", "middle", "outer"} {
				assert.Equal(t, tc.counted, g.Breaker(tool).Failures() == 1, tool)
			}
			time.Sleep(time.Minute)
		})
	}
}

// The tool's author decides by the error that is put around the error of a call within, or beside it.
func TestErrorAroundThatOfANestedCall(t *testing.T) {
	for name, tc := range map[string]struct {
		wrap    func(error) error
		counted bool
	}{
		"words":    {func(err error) error { return fmt.Errorf("x: %w", err) }, true},
		"an Error": {func(err error) error { return &resilience.Error{Message: "No orders", Err: err} }, true},
		"a mistake": {
			func(err error) error { return &resilience.Error{Code: resilience.CodeValidation, Err: err} }, false,
		},
		"MarkPermanent":    {resilience.MarkPermanent, true},
		"MarkNeutral":      {resilience.MarkNeutral, false},
		"MarkInvalid":      {resilience.MarkInvalid, false},
		"a panic":          {func(err error) error { panic(err) }, true},
		"beside a cancel":  {func(err error) error { return errors.Join(context.Canceled, err) }, true},
		"beside unknown":   {func(err error) error { return errors.Join(errBoom, err) }, true},
		"beside a refusal": {func(err error) error { return errors.Join(statusError(404), err) }, true},
		"beside neutral":   {func(err error) error { return errors.Join(err, resilience.MarkNeutral(errBoom)) }, true},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
			r := resilience.Run(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
				_, err := resilience.Do(ctx, g, "inner", failing(9, syscall.ECONNRESET))
				return 0, tc.wrap(err)
			}, behindAdapter)
			assert.Error(t, r.Err)
			assert.Equal(t, 1, g.Breaker("inner").Failures())
			assert.Equal(t, tc.counted, g.Breaker("outer").Failures() == 1, "%v", r.Err)
		})
	}
}

// A timeout isn't counted if the caller has less time than the tool's timeout. A backend that was given the caller's
// deadline may report it a moment before.
func TestTimeoutOfACallerWithLessTimeIsNotCounted(t *testing.T) {
	const timeout, less, most = 10 * time.Second, time.Second, 900 * time.Millisecond
	ioTimeout := &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
	option := resilience.Timeout(less)
	for name, tc := range map[string]struct {
		option   resilience.Option
		deadline time.Duration // of the caller's context; zero if it has none
		took     time.Duration
		then     toolFunc
		code     resilience.Code // TIMEOUT if it is empty
		counted  bool
	}{
		"a deadline":        {nil, less, most, failing(9, grpcError(4)), "", false},
		"an option":         {option, 0, most, failing(9, grpcError(4)), "", false},
		"of a context":      {option, 0, most, failing(9, context.DeadlineExceeded), "", false},
		"of WithTimeout":    {option, 0, most, failing(9, resilience.TimeoutError("part", most)), "", false},
		"of a connection":   {option, 0, most, failing(9, ioTimeout), resilience.CodeConnectionLost, false},
		"reported":          {option, 0, most, reporting(grpcError(4), errBoom), "", false},
		"within a call":     {option, 0, most, nestedCall(failing(9, grpcError(4))), "", false}, // of all its time
		"no less time":      {nil, 0, most, failing(9, grpcError(4)), "", true},                 // the backend's own
		"trouble":           {option, 0, most, failing(9, grpcError(14)), "", true},
		"trouble beside it": {option, 0, most, failing(9, errors.Join(statusError(503), grpcError(4))), "", true},
		"the author's word": {option, 0, most, failing(9, resilience.MarkBackend(grpcError(4))), "", true},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Timeout: timeout, Effect: resilience.NonIdempotent})
			ctx := contextWithin(t, tc.deadline)
			r := resilience.Run(ctx, g, "x", func(ctx context.Context) (int, error) {
				time.Sleep(tc.took)
				return tc.then(ctx)
			}, tc.option)
			require.Error(t, r.Err)
			assert.Equal(t, tc.counted, g.Breaker("x").Failures() == 1)
			if !tc.counted {
				assert.Equal(t, cmp.Or(tc.code, resilience.CodeTimeout), r.Err.Code)
			}
			time.Sleep(2 * timeout)
		})
	}
}

// nestedCall makes a call of another guard.
func nestedCall(fn toolFunc) toolFunc {
	inner := resilience.Must(resilience.New(resilience.Config{Effect: resilience.NonIdempotent}))
	return func(ctx context.Context) (int, error) { return resilience.Do(ctx, inner, "inner", fn) }
}

// A driverError is the error of a driver whose context has ended.
type driverError struct{ end error }

func (e *driverError) Error() string { return "query: " + e.end.Error() }
func (e *driverError) Unwrap() error { return e.end }

// The bare error of a context adds nothing to the failure of an earlier attempt. One that wraps it is the last cause.
func TestPromise4AnErrorThatWrapsTheEndOfItsContextIsTheToolsOwn(t *testing.T) {
	for name, tc := range map[string]struct {
		second func(error) error
		own    bool
	}{
		"bare":    {func(end error) error { return end }, false},
		"wrapped": {func(end error) error { return fmt.Errorf("db: %w", &driverError{end}) }, true},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly, Cooperative: true})
			_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) == 1 {
					return 0, errFirst
				}
				<-ctx.Done()
				return 0, tc.second(ctx.Err())
			})
			assert.ErrorIs(t, err, resilience.CodeTimeout)
			var driver *driverError
			assert.Equal(t, tc.own, errors.As(err, &driver))
			assert.Equal(t, !tc.own, errors.Is(err, errFirst))
		})
	}
}

// The cause of a CANCELED is the caller's reason. The cause of a TIMEOUT is the error that the tool has returned.
func TestPromise4CauseOfAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		r := resilience.Run(ctx, guardWith(t, resilience.Tool{}), "x", func(ctx context.Context) (int, error) {
			cancel(errBoom)
			return hang(time.Hour)(ctx)
		})
		assert.Equal(t, resilience.CodeCanceled, r.Err.Code)
		assert.Equal(t, errBoom, r.Err.Err)
		time.Sleep(time.Hour)

		r, _ = runTool(t, resilience.Tool{Timeout: time.Second, Cooperative: true}, failingOnceDone(errBoom))
		assert.Equal(t, resilience.CodeTimeout, r.Err.Code)
		assert.Equal(t, errBoom, r.Err.Err)
	})
}
