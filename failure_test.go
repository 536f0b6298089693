package resilience_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The methods of these errors call do.
type (
	unwrapError     struct{ do func() }
	isError         struct{ do func() }
	asError         struct{ do func() }
	retryAfterError struct{ do func() }
	netError        struct{ do func() }
	textError       struct{ do func() }
)

func (unwrapError) Error() string     { return "unwrap" }
func (isError) Error() string         { return "is" }
func (asError) Error() string         { return "as" }
func (retryAfterError) Error() string { return "retry after" }
func (netError) Error() string        { return "net" }
func (e textError) Error() string     { e.do(); return "text" }

func (e unwrapError) Unwrap() error                 { e.do(); return nil }
func (e isError) Is(error) bool                     { e.do(); return false }
func (e asError) As(any) bool                       { e.do(); return false }
func (e retryAfterError) RetryAfter() time.Duration { e.do(); return 0 }
func (e netError) Timeout() bool                    { e.do(); return false }
func (e netError) Temporary() bool                  { return false }

func errorsThatCall(do func()) map[string]error {
	return map[string]error{
		"Unwrap":     unwrapError{do},
		"Is":         isError{do},
		"As":         asError{do},
		"RetryAfter": retryAfterError{do},
		"Timeout":    netError{do},
		"Error":      textError{do},
		"MarshalJSON": &resilience.Error{
			Message: "m", Details: map[string]any{"v": marshaler{do}},
		},
	}
}

type marshaler struct{ do func() }

func (m marshaler) MarshalJSON() ([]byte, error) { m.do(); return []byte("1"), nil }

// With debug, the text and the details may take a little longer.
func TestPromise1MethodsOfErrorsThatBlock(t *testing.T) {
	const timeout, debug = 10 * time.Second, 200 * time.Millisecond
	inGuard := func(attempt time.Duration, tool func(error) toolFunc) func(context.Context, error) error {
		return func(ctx context.Context, failure error) error {
			cfg := configWith(resilience.Tool{Timeout: timeout, Effect: resilience.ReadOnly})
			cfg.AttemptTimeout = attempt
			_, err := resilience.Do(ctx, resilience.Must(resilience.New(cfg)), "x", tool(failure), resilience.Debug())
			return err
		}
	}
	always := func(err error) toolFunc { return failing(9, err) }

	for name, call := range map[string]func(context.Context, error) error{
		"a failure":                 inGuard(0, always),
		"at the end":                inGuard(0, failingOnceDone),
		"at the end of an attempt":  inGuard(time.Second, failingOnceDone),
		"a failure of each attempt": inGuard(time.Second, always),
		"WithTimeout": func(ctx context.Context, failure error) error {
			_, err := resilience.WithTimeout(ctx, "x", timeout, failingOnceDone(failure))
			return err
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			release := make(chan struct{})
			for method, failure := range errorsThatCall(func() { <-release }) {
				start := time.Now()
				assert.Error(t, call(t.Context(), failure), method)
				assert.LessOrEqual(t, time.Since(start), timeout+debug, method)
			}
			close(release)
			synctest.Wait()
		})
	}
}

func TestPromise7MethodsOfErrorsThatCallGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, failure := range errorsThatCall(runtime.Goexit) {
			returned := make(chan *resilience.Error, 1)
			go func() {
				defer close(returned)
				g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
				returned <- resilience.Run(t.Context(), g, "x", failing(9, failure), resilience.Debug()).Err
			}()

			e, ok := <-returned
			require.True(t, ok, "%s ended the goroutine of the caller", name)
			assert.Equal(t, resilience.CodeToolFailed, e.Code, name)
		}
	})
}

// The error of the tool is known when a Classify function ends the goroutine.
func TestPromise4ClassifyThatCallsGoexit(t *testing.T) {
	cycle := &resilience.Error{Message: "m", Suggestion: "s"}
	cycle.Err = cycle
	exits := func(error) resilience.Class { runtime.Goexit(); return 0 }

	for name, failure := range map[string]error{
		"plain": errBoom, "own": &resilience.Error{Message: "m", Err: errBoom}, "panic": &resilience.PanicError{Value: errBoom},
	} {
		cfg := configWith(resilience.Tool{Effect: resilience.NonIdempotent})
		cfg.Retry.Classify = exits
		r := resilience.Run(t.Context(), newGuard(t, cfg), "x", failing(9, failure))
		assert.ErrorIs(t, r.Err, errBoom, name)
	}

	// Nor does the rest get lost of what is known of it.
	rejecting := configWith(resilience.Tool{})
	rejecting.Retry.Classify = exits
	r := resilience.Run(t.Context(), newGuard(t, rejecting), "x", failing(9, statusError(404)))
	assert.Equal(t, resilience.CodeValidation, r.Err.Code)

	// Nobody gets an error that would end the process: LogObserver looks for the innermost one.
	cfg := configWith(resilience.Tool{})
	cfg.Breaker.Classify = exits
	cfg.Observers = []resilience.Observer{resilience.LogObserver(slog.New(slog.DiscardHandler))}
	g := newGuard(t, cfg)
	r = resilience.Run(t.Context(), g, "x", failing(9, cycle), resilience.Debug())
	require.NoError(t, g.Flush(t.Context()))
	assert.NotErrorIs(t, r.Err, errBoom, "the chain has an end")
}

// An *Error of the tool's counts without its methods, but not what it wraps.
func TestPromise7CauseThatCannotBeReadDoesNotReachTheCaller(t *testing.T) {
	for name, cause := range errorsThatCall(runtime.Goexit) {
		own := &resilience.Error{Code: "BUSY", Message: "m", Err: cause}
		r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{}), "x", failing(9, own))
		assert.Equal(t, resilience.Code("BUSY"), r.Err.Code, name)
		if name != "MarshalJSON" && name != "Error" { // whose methods nothing has called
			assert.ErrorIs(t, r.Err, own, name)
			assert.NotErrorIs(t, r.Err, errBoom, name)
		}
		assert.IsType(t, cause, own.Err, "the tool's own may be a variable that it uses again")
	}
}

// What a backend has said counts without the error that the tool has made of it.
func TestBackendHasSaidWhatAnErrorThatCannotBeReadMeans(t *testing.T) {
	for name, failure := range errorsThatCall(runtime.Goexit) {
		g := guardWith(t, resilience.Tool{})
		_ = resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			resilience.ReportBackend(ctx, resilience.MarkInvalid(errBoom))
			return 0, failure
		})
		if name != "MarshalJSON" { // which says by itself that the tool has failed
			assert.Zero(t, g.Health()[0].ConsecutiveFailures, name)
		}
	}
}

func TestPromise1ClassifyThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		blocks := func(error) resilience.Class { <-release; return resilience.ClassTransient }
		start := time.Now()

		cfg := configWith(resilience.Tool{Timeout: time.Second})
		cfg.Retry.Classify = blocks
		_, err := resilience.Do(t.Context(), newGuard(t, cfg), "x", failing(9, errBoom))
		assert.ErrorIs(t, err, resilience.CodeTimeout)

		cfg = configWith(resilience.Tool{Timeout: time.Second})
		cfg.Breaker.Classify = blocks
		_, err = resilience.Do(t.Context(), newGuard(t, cfg), "x", untilDone)
		assert.ErrorIs(t, err, resilience.CodeTimeout)

		assert.LessOrEqual(t, time.Since(start), 2*time.Second+200*time.Millisecond)
		close(release)
		synctest.Wait()
	})
}

func TestPromise4ErrorsThatAreExaminedTooSlowly(t *testing.T) {
	own := &resilience.Error{Message: "m", Suggestion: "s"}
	var none *resilience.Error
	for name, attemptTimeout := range map[string]time.Duration{"one attempt": 0, "several": 2 * time.Second} {
		runInBubble(t, name, func(t *testing.T) {
			slow := func(err error) resilience.Class { time.Sleep(time.Hour); return resilience.Classify(err) }
			for field, set := range map[string]func(*resilience.Config){
				"Retry":   func(cfg *resilience.Config) { cfg.Retry.Classify = slow },
				"Breaker": func(cfg *resilience.Config) { cfg.Breaker.Classify = slow },
			} {
				for _, failure := range []error{errBoom, own, none} {
					cfg := configWith(resilience.Tool{Timeout: 5 * time.Second, Effect: resilience.ReadOnly})
					cfg.AttemptTimeout = attemptTimeout
					set(&cfg)
					r := resilience.Run(t.Context(), newGuard(t, cfg), "x", failing(9, failure))
					assert.ErrorIs(t, r.Err, failure, field)
					assert.LessOrEqual(t, r.Duration, 5*time.Second+200*time.Millisecond)
				}
			}

			// An error that can't be read isn't passed on, but one takes its place.
			cfg := configWith(resilience.Tool{Timeout: 5 * time.Second})
			cfg.AttemptTimeout = attemptTimeout
			failure := unwrapError{func() { time.Sleep(time.Hour) }}
			r := resilience.Run(t.Context(), newGuard(t, cfg), "x", failing(9, failure))
			assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
			assert.Error(t, r.Err.Err)

			var asked atomic.Bool
			failure = unwrapError{func() {
				if asked.Swap(true) {
					runtime.Goexit()
				}
				time.Sleep(time.Hour)
			}}
			r = resilience.Run(t.Context(), newGuard(t, cfg), "x", failing(9, failure))
			assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
			assert.Error(t, r.Err.Err)
			time.Sleep(24 * time.Hour)
		})
	}
}

func TestPromise1ArgumentsThatBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type input struct{ A, B marshaler }
		const calls = 200
		g := guardWith(t, resilience.Tool{Timeout: time.Second})
		fails := func(context.Context, input) (int, error) { return 0, errBoom }
		tool := resilience.Wrap(g, "x", fails, resilience.Debug())

		for range 3 {
			release := make(chan struct{})
			block := marshaler{func() { <-release }}
			before, start := goroutines(modulePath), time.Now()
			for range calls {
				_, err := tool(t.Context(), input{block, block})
				assert.Equal(t, "[unprintable]", err.(*resilience.Error).Details["arguments"])
			}
			assert.LessOrEqual(t, time.Since(start), calls*100*time.Millisecond)
			synctest.Wait()
			assert.LessOrEqual(t, goroutines(modulePath), before+64, "what blocks is capped")

			close(release)
			synctest.Wait()
			justInTime := marshaler{func() { time.Sleep(100 * time.Millisecond) }}
			for range calls {
				_, _ = tool(t.Context(), input{A: justInTime, B: block})
			}
			_, err := tool(t.Context(), input{block, block})
			assert.Equal(t, `{"A":1,"B":1}`, jsonOf(t, err.(*resilience.Error).Details["arguments"]))
		}
	})
}

// Many values that are slow hold up a call no longer than one that blocks.
func TestPromise1ManySlowDetails(t *testing.T) {
	for name, each := range map[string]time.Duration{"80ms": 80 * time.Millisecond, "7ms": 7 * time.Millisecond} {
		runInBubble(t, name, func(t *testing.T) {
			rows := make([]any, 5000)
			for i := range rows {
				rows[i] = marshaler{func() { time.Sleep(each) }}
			}
			details := map[string]any{"rows": rows}
			start := time.Now()

			r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{}), "x", func(context.Context) (int, error) {
				return 0, &resilience.Error{Message: "m", Details: details}
			}, resilience.Debug(), resilience.Args(details))
			assert.Less(t, time.Since(start), 500*time.Millisecond, "the arguments and the details, about 100ms each")
			for _, d := range []any{r.Err.Details, r.Err.Details["arguments"]} {
				rows := d.(map[string]any)["rows"].([]any)
				assert.Equal(t, "1", jsonOf(t, rows[0]))
				assert.Equal(t, "[unprintable]", rows[4999])
			}
			time.Sleep(time.Second)
		})
	}
}

type asNilError struct{}

func (asNilError) Error() string { return "as nil" }
func (asNilError) As(target any) bool {
	_, ok := target.(**resilience.Error)
	return ok // and leaves it nil
}

func TestPromise7NilErrorsEndNothing(t *testing.T) {
	cfg := configWith(resilience.Tool{})
	cfg.Retry.MaxRetries = -1
	exits := cfg
	exits.Retry.Classify = func(error) resilience.Class { runtime.Goexit(); return 0 }
	var none *resilience.Error
	for name, err := range map[string]error{"As says yes": asNilError{}, "a nil *Error": none} {
		for _, cfg := range []resilience.Config{cfg, exits} {
			_, got := resilience.Do(t.Context(), newGuard(t, cfg), "x", failing(9, err))
			assert.ErrorIs(t, got, resilience.CodeToolFailed, name)
		}
	}
}

// Only the bare error of its context says nothing of a tool's own. One that wraps it, as a driver's does,
// is the last cause.
func TestPromise4AnErrorThatWrapsTheEndOfItsContextIsTheToolsOwn(t *testing.T) {
	echo := func(end error) error { return end }
	wrapper := func(end error) error { return fmt.Errorf("db: %w", &driverError{end}) }
	for name, tc := range map[string]struct {
		second func(error) error
		own    bool
	}{"an echo": {echo, false}, "a wrapper": {wrapper, true}} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly, Cooperative: true})
			cfg.AttemptTimeout = time.Second
			cfg.Retry.MaxRetries = 2
			_, err := resilience.Do(t.Context(), newGuard(t, cfg), "x", func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) == 1 {
					return 0, errFirst
				}
				<-ctx.Done()
				if resilience.Attempt(ctx) == 2 {
					return 0, tc.second(ctx.Err())
				}
				return 0, ctx.Err()
			})

			assert.ErrorIs(t, err, resilience.CodeRetryExhausted)
			var driver *driverError
			assert.Equal(t, tc.own, errors.As(err, &driver))
			assert.Equal(t, !tc.own, errors.Is(err, errFirst), "it isn't the last cause")
		})
	}
}

// A driverError is a driver's error about the end of a context.
type driverError struct{ end error }

func (e *driverError) Error() string { return "query: " + e.end.Error() }
func (e *driverError) Unwrap() error { return e.end }

// A call that has its tool's error, although not what it means, receives no late result for it.
func TestErrorThatIsExaminedTooSlowlyIsNoLateResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lates := 0
		cfg := configWith(resilience.Tool{Timeout: time.Second})
		cfg.Retry.Classify = func(error) resilience.Class { time.Sleep(time.Minute); return resilience.ClassTransient }
		cfg.Observers = []resilience.Observer{{
			Late: func(context.Context, resilience.LateResult) { lates++ },
		}}
		g := newGuard(t, cfg)
		_, err := resilience.Do(t.Context(), g, "x", failing(9, errBoom))
		assert.ErrorIs(t, err, errBoom)
		time.Sleep(time.Hour)
		require.NoError(t, g.Flush(t.Context()))
		assert.Zero(t, lates)
		assert.Zero(t, g.Health()[0].Abandoned)
	})
}

// Of an error that can't be examined in time, what it is by its type still holds.
func TestErrorThatIsExaminedTooSlowlyIsStillACrashOrTheToolsOwn(t *testing.T) {
	slow := func() error { return slowUnwrap{errBoom, time.Hour} }
	for name, tc := range map[string]struct {
		fails func() (int, error)
		own   bool // what the tool says stands, although the timeout has passed
		crash bool
	}{
		"a panic":         {fails: func() (int, error) { panic(slow()) }, crash: true},
		"any other error": {fails: func() (int, error) { return 0, slow() }},
		"the tool's own": {
			fails: func() (int, error) { return 0, &resilience.Error{Code: "BUSY", Message: "m", Err: slow()} }, own: true,
		},
		"a nil *Error in it": {fails: func() (int, error) { return 0, errors.Join((*resilience.Error)(nil), slow()) }},
	} {
		runInBubble(t, name, func(t *testing.T) {
			fn := func(context.Context) (int, error) {
				time.Sleep(990 * time.Millisecond)
				return tc.fails()
			}
			g := guardWith(t, resilience.Tool{Timeout: time.Second})
			_, bare := resilience.WithTimeout(t.Context(), "x", time.Second, fn)
			_, guarded := resilience.Do(t.Context(), g, "x", fn)
			for _, err := range []error{bare, guarded} {
				var e *resilience.Error
				require.ErrorAs(t, err, &e)
				if tc.own {
					assert.Equal(t, "BUSY: m", e.Error())
				} else {
					assert.Equal(t, resilience.CodeTimeout, e.Code)
				}
				var p *resilience.PanicError
				assert.Equal(t, tc.crash, errors.As(err, &p))
				if tc.crash {
					assert.NotEmpty(t, p.Stack)
					assert.Error(t, p.Unwrap())
				}
				if err == guarded || !tc.own { // WithTimeout returns the tool's own unchanged
					start := time.Now()
					assert.NotErrorIs(t, err, errNever)
					assert.Zero(t, time.Since(start), "who gets it needs not wait for what takes too long")
				}
			}
			time.Sleep(2 * time.Hour)
		})
	}
}

// Nothing is added to an error of the tool's own, however many others are being examined.
func TestErrorIsAsItWasThoughItIsExaminedTooSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 64 // errors that may be examined at the same time
		slow := func(error) resilience.Class { time.Sleep(24 * time.Hour); return resilience.ClassTransient }
		cfg := configWith(resilience.Tool{Timeout: time.Second, Retry: &resilience.Retry{Classify: slow}})
		g := newGuard(t, cfg)
		for range most {
			err := slowUnwrap{errBoom, 24 * time.Hour}
			_, _ = resilience.Do(t.Context(), g, "y", failing(9, err), resilience.Timeout(time.Second))
		}
		own := &resilience.Error{Code: "BUSY", Message: "m"}
		r := resilience.Run(t.Context(), g, "x", failing(9, own))
		assert.Equal(t, resilience.Code("BUSY"), r.Err.Code)
		assert.NoError(t, r.Err.Err)
		time.Sleep(48 * time.Hour)
	})
}

// An error of the tool's own that stands is completed by what the backend has said, also if its examination takes
// longer than the attempt may.
func TestBackendHasAskedToWaitBeforeAnErrorThatIsExaminedTooSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{AttemptTimeout: time.Second})
		cfg.Retry.MaxRetries = -1
		cfg.Retry.Classify = func(error) resilience.Class { time.Sleep(time.Hour); return resilience.ClassTransient }
		r := resilience.Run(t.Context(), newGuard(t, cfg), "x", func(ctx context.Context) (int, error) {
			resilience.ReportBackend(ctx, waitError{20 * time.Second})
			return 0, &resilience.Error{Code: "BUSY", Message: "m", Retryable: true}
		})
		assert.Equal(t, resilience.Code("BUSY"), r.Err.Code)
		assert.Equal(t, 20*time.Second, r.Err.RetryAfter)
		time.Sleep(2 * time.Hour)
	})
}

// What a Classify function says of context.Canceled stands.
func TestClassifyDecidesAboutABareCancel(t *testing.T) {
	for class, attempts := range map[resilience.Class]int{resilience.ClassPermanent: 1, resilience.ClassTransient: 4} {
		cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly})
		cfg.Retry.Classify = func(error) resilience.Class { return class }
		cfg.Retry.Backoff.Base = time.Microsecond
		r := resilience.Run(t.Context(), newGuard(t, cfg), "x", failing(9, context.Canceled))
		assert.Equal(t, attempts, r.Attempts)
	}
}

// A backend that was told of the caller's deadline may say a moment before that it has passed.
func TestDeadlineOfACallerWithLessTimeSaysNothingOfTheBackend(t *testing.T) {
	const timeout, less = 10 * time.Second, time.Second
	option := []resilience.Option{resilience.Timeout(less)}
	metadata := []resilience.Option{resilience.ForRequest(resilience.Request{
		RequestInfo: resilience.RequestInfo{Meta: map[string]any{resilience.MetaTimeout: less.Seconds()}},
		Unexplained: resilience.ClassNeutral, AllowTimeout: true,
	})}
	expired := grpcError(4)
	reports := func(err error) toolFunc {
		return func(ctx context.Context) (int, error) {
			resilience.ReportBackend(ctx, err)
			return 0, errBoom
		}
	}
	const most = 900 * time.Millisecond
	noDelay := resilience.Retry{Backoff: resilience.Backoff{Base: time.Nanosecond, Max: time.Nanosecond}}
	classify := func(err error) resilience.Class {
		if errors.Is(err, expired) {
			return resilience.ClassTransient
		}
		return resilience.Classify(err)
	}

	for name, tc := range map[string]struct {
		opts     []resilience.Option
		deadline time.Duration // of the caller's context; zero if it has none
		attempt  time.Duration // AttemptTimeout
		classify func(error) resilience.Class
		took     time.Duration
		then     toolFunc
		code     resilience.Code // of one that isn't counted; TIMEOUT if it is empty
		counted  bool
	}{
		"a deadline":          {deadline: less, took: most, then: failing(9, expired)},
		"an option":           {opts: option, took: most, then: failing(9, expired)},
		"metadata":            {opts: metadata, took: most, then: failing(9, expired)},
		"of several attempts": {deadline: less, attempt: timeout, took: most, then: failing(9, expired)},
		"of a context":        {deadline: less, took: most, then: failing(9, context.DeadlineExceeded)},
		"of WithTimeout":      {deadline: less, took: most, then: failing(9, resilience.TimeoutError("x", most))},
		"like that":           {deadline: less, took: most, then: failing(9, asOnly{resilience.TimeoutError("x", most)})},
		"wrapped":             {deadline: less, took: most, then: failing(9, fmt.Errorf("search: %w", expired))},
		"reported":            {deadline: less, took: most, then: reports(expired)},
		"of HTTP":             {deadline: less, took: most, then: failing(9, statusError(504))},
		"of a connection": {
			deadline: less, took: most, code: resilience.CodeConnectionLost, then: func(context.Context) (int, error) {
				conn, other := net.Pipe()
				defer conn.Close()
				defer other.Close()
				if err := conn.SetDeadline(time.Now()); err != nil {
					return 0, err
				}
				return conn.Read(make([]byte, 1))
			},
		},
		"of several attempts of its own": {
			deadline: less, took: most, code: resilience.CodeRetryExhausted,
			then: func(ctx context.Context) (int, error) {
				return resilience.WithRetry(ctx, noDelay, failing(9, expired))
			},
		},
		"of HTTP, by the wire": {deadline: less, took: most, then: func(ctx context.Context) (int, error) {
			return sending("GET", answering(504))(ctx)
		}},

		"without less time": {took: most, then: failing(9, expired), counted: true},
		"a later deadline":  {deadline: timeout + 1, took: 9 * less, then: failing(9, expired), counted: true},
		"hardly less time":  {deadline: 9 * less, took: 9*less - 1, then: failing(9, expired), counted: true},
		"not much less":     {deadline: 9*less - 1, took: 9*less - 2, then: failing(9, expired)},
		"early":             {deadline: less, took: less / 2, then: failing(9, expired), counted: true},
		"other trouble":     {deadline: less, took: most, then: failing(9, grpcError(14)), counted: true},
		"beside trouble": {
			deadline: less, took: most, then: failing(9, errors.Join(statusError(503), expired)), counted: true,
		},
		"trouble and the end of a context": {
			deadline: less, took: most, counted: true,
			then: failing(9, errors.Join(statusError(503), context.DeadlineExceeded)),
		},
		"marked":      {deadline: less, took: most, then: failing(9, resilience.MarkBackend(expired)), counted: true},
		"other words": {deadline: less, took: most, then: failing(9, resilience.ConnectionLostError("")), counted: true},
		"the package's Classify": {
			deadline: less, classify: resilience.Classify, took: most, then: failing(9, expired),
		},
		"the package's Classify, of a report": {
			deadline: less, classify: resilience.Classify, took: most, then: reports(expired),
		},
		"an own Classify":    {deadline: less, classify: classify, took: most, then: failing(9, expired), counted: true},
		"the AttemptTimeout": {deadline: less, attempt: most, took: less, then: succeed, counted: true},
	} {
		runInBubble(t, name, func(t *testing.T) {
			effect := resilience.ReadOnly
			if tc.counted {
				effect = resilience.NonIdempotent // which has one attempt
			}
			g := newGuard(t, resilience.Config{
				Tools: map[string]resilience.Tool{"x": {
					Timeout: timeout, AttemptTimeout: tc.attempt, Effect: effect, Breaker: "b", Retry: &noDelay,
				}},
				Breakers: map[string]resilience.BreakerConfig{"b": {Classify: tc.classify}},
			})
			ctx := t.Context()
			if tc.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tc.deadline)
				defer cancel()
			}

			r := resilience.Run(ctx, g, "x", func(ctx context.Context) (int, error) {
				time.Sleep(tc.took)
				return tc.then(ctx)
			}, tc.opts...)
			require.Error(t, r.Err)
			assert.Equal(t, 1, r.Attempts)
			assert.Equal(t, tc.counted, g.Health()[0].ConsecutiveFailures == 1)
			if !tc.counted {
				assert.Equal(t, cmp.Or(tc.code, resilience.CodeTimeout), r.Err.Code)
			}
			time.Sleep(timeout)
		})
	}
}

// A tool that is guarded twice hears of the deadline from the inner call.
func TestDeadlineOfACallerWithLessTimeSaysNothingInNestedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tool := resilience.Tool{Timeout: 10 * time.Second, Effect: resilience.NonIdempotent}
		outer, inner := guardWith(t, tool), guardWith(t, tool)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		r := resilience.Run(ctx, outer, "x", func(ctx context.Context) (int, error) {
			return resilience.Do(ctx, inner, "x", failingAfter(900*time.Millisecond, grpcError(4)))
		})
		require.ErrorIs(t, r.Err, resilience.CodeTimeout)
		assert.Zero(t, inner.Health()[0].ConsecutiveFailures)
		assert.Zero(t, outer.Health()[0].ConsecutiveFailures)
	})
}

// A backend that hangs is noticed by a call within another one of the same timeout, which does without it.
func TestHangWithinACallOfTheSameTimeoutCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"report": {}, "fetch": {}}})
		_, err := resilience.Do(t.Context(), g, "report", func(ctx context.Context) (int, error) {
			time.Sleep(time.Millisecond)
			_, err := resilience.Do(ctx, g, "fetch", failingAfter(35*time.Second, context.DeadlineExceeded))
			assert.ErrorIs(t, err, resilience.CodeTimeout)
			return 1, nil
		})
		require.NoError(t, err)
		assert.Equal(t, 1, g.Breaker("fetch").Failures())
		assert.Zero(t, g.Breaker("report").Failures())
	})
}

// A call around a job that goes on has nothing to do with its end, once it has ended itself.
func TestHangOfADetachedJobWithADeadlineOfTheSameTime(t *testing.T) {
	for name, end := range map[string]toolFunc{"returned": succeed, "timed out": untilDone} {
		for range 20 { // which of the timers is first is a matter of chance
			runInBubble(t, name, func(t *testing.T) {
				g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{
					"start": {Timeout: time.Second}, "job": {Timeout: 10 * time.Second},
				}})
				jobs := make(chan context.Context, 1)
				_, _ = resilience.Do(t.Context(), g, "start", func(ctx context.Context) (int, error) {
					jobs <- context.WithoutCancel(ctx)
					return end(ctx)
				})
				time.Sleep(time.Second)
				ctx, cancel := context.WithTimeout(<-jobs, 10*time.Second)
				defer cancel()
				_, err := resilience.Do(ctx, g, "job", untilDone)
				assert.ErrorContains(t, err, "exceeded timeout of 10s")
				assert.Equal(t, 1, g.Breaker("job").Failures())
			})
		}
	}
}
