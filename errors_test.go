package resilience_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTimeoutErrorRoundsItsTimeout(t *testing.T) {
	for timeout, want := range map[time.Duration]string{
		time.Minute:             "Tool 'x' exceeded timeout of 60s",
		90 * time.Second:        "Tool 'x' exceeded timeout of 90s",
		1500 * time.Millisecond: "Tool 'x' exceeded timeout of 1.5s",
		4999_873_412:            "Tool 'x' exceeded timeout of 5s",
		20_123_456:              "Tool 'x' exceeded timeout of 20ms",
		20_123:                  "Tool 'x' exceeded timeout of 20µs",
		999:                     "Tool 'x' exceeded timeout of 999ns",
		0:                       "Tool 'x' timed out",
	} {
		t.Run(timeout.String(), func(t *testing.T) {
			checkConstructed(t, resilience.TimeoutError("x", timeout), resilience.CodeTimeout, want, true)
		})
	}
}

func TestConstructorsSayWhatHappened(t *testing.T) {
	const open = "Circuit breaker open due to repeated failures."
	cause := errors.New("disk on fire")
	for name, tc := range map[string]struct {
		err       *resilience.Error
		code      resilience.Code
		message   string
		permanent bool
	}{
		"timeout of no tool": {
			err:  resilience.TimeoutError("", time.Second),
			code: resilience.CodeTimeout, message: "The tool exceeded timeout of 1s",
		},
		"open breaker": {
			err:  resilience.CircuitOpenError("x", 30*time.Second),
			code: resilience.CodeCircuitOpen, message: open + " Calls are rejected for 30 more seconds.",
		},
		"open breaker, rounded up": {
			err:  resilience.CircuitOpenError("x", time.Millisecond),
			code: resilience.CodeCircuitOpen, message: open + " Calls are rejected for 1 more second.",
		},
		"open breaker, unknown delay": {
			err:  resilience.CircuitOpenError("x", -1),
			code: resilience.CodeCircuitOpen, message: open,
		},
		"lost connection": {
			err:  resilience.ConnectionLostError("browser closed"),
			code: resilience.CodeConnectionLost, message: "Connection lost: browser closed",
		},
		"lost connection, no reason": {
			err:  resilience.ConnectionLostError(""),
			code: resilience.CodeConnectionLost, message: "Connection lost",
		},
		"exhausted retries": {
			err:  resilience.RetryExhaustedError("x", 4, cause),
			code: resilience.CodeRetryExhausted, message: "Tool 'x' failed after 4 attempts",
		},
		"exhausted retries, one attempt": {
			err:  resilience.RetryExhaustedError("x", 1, cause),
			code: resilience.CodeRetryExhausted, message: "Tool 'x' failed after 1 attempt",
		},
		"exhausted retries, no cause": {
			err:  resilience.RetryExhaustedError("x", 2, nil),
			code: resilience.CodeRetryExhausted, message: "Tool 'x' failed after 2 attempts",
		},
		"exhausted retries, a cause that won't go away": {
			err:  resilience.RetryExhaustedError("x", 2, resilience.MarkPermanent(cause)),
			code: resilience.CodeRetryExhausted, message: "Tool 'x' failed after 2 attempts", permanent: true,
		},
	} {
		t.Run(name, func(t *testing.T) { checkConstructed(t, tc.err, tc.code, tc.message, !tc.permanent) })
	}
	assert.ErrorIs(t, resilience.RetryExhaustedError("x", 4, cause), cause)
	assert.Equal(t, 4, resilience.RetryExhaustedError("x", 4, cause).Attempts)
	assert.Equal(t, 2, resilience.RetryExhaustedError("x", 2, nil).Attempts)
	assert.NoError(t, resilience.RetryExhaustedError("x", 2, nil).Err)
}

func checkConstructed(t *testing.T, err *resilience.Error, code resilience.Code, message string, retryable bool) {
	t.Helper()
	assert.Equal(t, code, err.Code)
	assert.Equal(t, message, err.Message)
	assert.Equal(t, retryable, err.Retryable)
	assert.NotEmpty(t, err.Suggestion)
	assert.Equal(t, string(code)+": "+message, err.Error())
	assert.ErrorIs(t, fmt.Errorf("wrapped: %w", err), code)
	assert.NotErrorIs(t, err, resilience.CodeToolFailed)
}

func TestErrorIsItsCodeAndTheContextsError(t *testing.T) {
	timeout := resilience.TimeoutError("x", time.Second)
	assert.ErrorIs(t, timeout, context.DeadlineExceeded)
	assert.NotErrorIs(t, timeout, context.Canceled)
	assert.NotErrorIs(t, timeout, resilience.TimeoutError("x", time.Second), "two errors of a code are not the same")

	assert.NotErrorIs(t, timeout, (*resilience.Error)(nil))
	assert.NotErrorIs(t, timeout, errBoom)

	canceled := resilience.AsError("x", context.Canceled)
	assert.ErrorIs(t, canceled, context.Canceled)
	assert.NotErrorIs(t, canceled, context.DeadlineExceeded)

	assert.Equal(t, "BUSY", (&resilience.Error{Code: "BUSY"}).Error())
}

func TestNilErrorDoesNotPanic(t *testing.T) {
	var none *resilience.Error
	assert.Equal(t, "<nil>", none.Error())
	assert.NotErrorIs(t, error(none), resilience.CodeTimeout)
	assert.NoError(t, none.Unwrap())
	assert.False(t, none.HasGuidance())
}

func TestExhaustedErrorWithoutALastOneNamesNone(t *testing.T) {
	e := resilience.RetryExhaustedError("x", 3, nil)
	assert.Empty(t, e.LastCode)
	assert.NoError(t, e.Err)
	assert.True(t, e.Retryable)
	assert.Equal(t, "Tool 'x' failed after 3 attempts", e.Message)
}

// A call that can't be made as it is shouldn't be made again.
func TestInvalidCallIsNotRetryable(t *testing.T) {
	_, err := resilience.WithTimeout(t.Context(), "", time.Second, succeed)
	r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{}), "x", succeed, resilience.Timeout(-1))
	for _, err := range []error{err, r.Err} {
		var e *resilience.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, resilience.CodeValidation, e.Code)
		assert.False(t, e.Retryable)
	}
}

func TestCauseOfACancelIsTheCallersOwnReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		r := resilience.Run(ctx, guardWith(t, resilience.Tool{}), "x", func(ctx context.Context) (int, error) {
			cancel(errBoom)
			return hang(time.Hour)(ctx)
		})
		assert.Equal(t, resilience.CodeCanceled, r.Err.Code)
		assert.Equal(t, errBoom, r.Err.Err)
		time.Sleep(time.Hour)
	})
}

// The cause of an end is what the tool has returned, and nothing around it.
func TestCauseOfATimeoutIsTheToolsOwnError(t *testing.T) {
	for name, tc := range map[string]struct {
		err  func(context.Context) error
		want error
	}{
		"an error":                    {func(context.Context) error { return errBoom }, errBoom},
		"the reason of its context":   {context.Cause, nil},
		"nothing, but it is too late": {func(context.Context) error { return nil }, nil},
	} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := resilience.Tool{Timeout: time.Second, Cooperative: true}
			r := resilience.Run(t.Context(), guardWith(t, cfg), "x", func(ctx context.Context) (int, error) {
				time.Sleep(2 * time.Second)
				return 0, tc.err(ctx)
			})
			if name == "nothing, but it is too late" {
				assert.Nil(t, r.Err)
				return
			}
			assert.Equal(t, resilience.CodeTimeout, r.Err.Code)
			assert.Equal(t, tc.want, r.Err.Err)
		})
	}
}

func TestErrorAsJSONHasNoCause(t *testing.T) {
	for name, tc := range map[string]struct {
		err  *resilience.Error
		want string
	}{
		"all fields": {
			&resilience.Error{
				Code:       "C",
				Tool:       "t",
				Message:    "m",
				Suggestion: "s",
				Retryable:  true,
				RetryAfter: 1001 * time.Millisecond,
				Details:    map[string]any{"a": 1},
				Err:        errors.New("secret"),
			},
			`{"code":"C","tool":"t","message":"m","suggestion":"s","retryable":true,"retryAfter":2,"details":{"a":1}}`,
		},
		"few fields": {
			&resilience.Error{Code: "C", Message: "m", Err: errors.New("secret")},
			`{"code":"C","message":"m","retryable":false}`,
		},
		"at least one second": {
			&resilience.Error{Code: "C", RetryAfter: 1},
			`{"code":"C","message":"","retryable":false,"retryAfter":1}`,
		},
		"whole seconds": {
			&resilience.Error{Code: "C", RetryAfter: 30 * time.Second},
			`{"code":"C","message":"","retryable":false,"retryAfter":30}`,
		},
		"negative delay": {
			&resilience.Error{Code: "C", RetryAfter: -time.Second},
			`{"code":"C","message":"","retryable":false}`,
		},
		"longest delay": {
			&resilience.Error{Code: "C", RetryAfter: math.MaxInt64},
			`{"code":"C","message":"","retryable":false,"retryAfter":9223372037}`,
		},
		"details that have no JSON": {
			&resilience.Error{Code: "C", Message: "m", Details: map[string]any{"f": func() {}}},
			`{"code":"C","message":"m","retryable":false}`,
		},
		"nil": {nil, `null`},
		"circuit breaker": {
			resilience.CircuitOpenError("x", 30*time.Second),
			`{"code":"CIRCUIT_OPEN","tool":"x",` +
				`"message":"Circuit breaker open due to repeated failures. Calls are rejected for 30 more seconds.",` +
				`"suggestion":"Do not call this tool again before the time in retryAfter has passed; ` +
				`go on with other tools meanwhile.","retryable":true,"retryAfter":30}`,
		},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.want, jsonOf(t, tc.err)) })
	}
}

func TestErrorIsLoggedWithItsCause(t *testing.T) {
	var buf bytes.Buffer
	log := slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	e := resilience.CircuitOpenError("x", 30*time.Second)
	e.Message = "m"
	e.Err = errors.New("boom")
	e.Details = map[string]any{"attempt": 2}

	log.Error("failed", "err", e)
	assert.Equal(t, "level=ERROR msg=failed err.code=CIRCUIT_OPEN err.tool=x err.message=m err.retryable=true "+
		"err.retryAfter=30s err.cause=boom err.details=map[attempt:2]\n", buf.String())

	buf.Reset()
	log.Error("failed", "err", &resilience.Error{Code: "C", Message: "m"})
	assert.Equal(t, "level=ERROR msg=failed err.code=C err.message=m err.retryable=false\n", buf.String())
	for _, a := range e.LogValue().Group() {
		assert.NotEmpty(t, a.Key)
	}

	buf.Reset()
	var none *resilience.Error
	log.Error("failed", "err", none, "broken", &resilience.Error{Code: "C", Err: &unprintableError{}})
	assert.Equal(t, "level=ERROR msg=failed err=<nil> broken.code=C broken.message=\"\" broken.retryable=false "+
		"broken.cause=[unprintable]\n", buf.String())
}

func TestSuggestionDependsOnWhetherARetryMayHelp(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"retryable":           {errBoom, suggestRetry},
		"retryable Error":     {&resilience.Error{Message: "m", Retryable: true}, suggestRetry},
		"not retryable":       {resilience.MarkPermanent(errBoom), suggestChange},
		"not retryable Error": {&resilience.Error{Message: "m"}, suggestChange},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, resilience.AsError("x", tc.err).Suggestion)
		})
	}
}

func TestSuggestionOfTheConfigReplacesOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const startApp = "Ensure the app is running in your browser."
		cfg := configWith(resilience.Tool{Effect: resilience.NonIdempotent})
		cfg.Suggestions = map[resilience.Code]string{resilience.CodeTimeout: startApp}
		g := newGuard(t, cfg)
		cfg.Suggestions[resilience.CodeTimeout] = "changed later"
		own := &resilience.Error{Code: resilience.CodeTimeout, Suggestion: "Mine"}

		suggestion := func(tool string, fn toolFunc) string {
			return resilience.Run(t.Context(), g, tool, fn).Err.Suggestion
		}
		assert.Equal(t, startApp+" "+suggestCheck, suggestion("x", untilDone))
		assert.Equal(t, startApp+" "+suggestCaution, suggestion("y", untilDone))
		assert.Equal(t, "Mine", suggestion("y", failing(9, own)))
	})
}

// As our own words for it are.
func TestSuggestionOfTheConfigForToolFailedIsForCodesOfToolsOwn(t *testing.T) {
	const configured = "Ask in #ops."
	cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly, Retry: &resilience.Retry{MaxRetries: -1}})
	cfg.Suggestions = map[resilience.Code]string{resilience.CodeToolFailed: configured}
	g := newGuard(t, cfg)
	for code, want := range map[resilience.Code]string{
		"": configured, resilience.CodeToolFailed: configured, "QUOTA": configured,
		resilience.CodeConnectionLost: "Wait for the connection to come back, then try again.",
	} {
		own := &resilience.Error{Code: code, Message: "no quota left", Retryable: true}
		r := resilience.Run(t.Context(), g, "x", failing(9, own))
		assert.Equal(t, want, r.Err.Suggestion, "%q", code)
	}
}

// A tool may remember what a guard has made of its error, and return that from then on.
func TestErrorThatIsReturnedAgainAndAgainDoesNotGrow(t *testing.T) {
	first := &resilience.Error{Code: resilience.CodeValidation, Message: "m"}
	remembered := error(first)
	g := guardWith(t, resilience.Tool{})
	for range 100 {
		_, err := resilience.Do(t.Context(), g, "x", failing(9, remembered))
		assert.ErrorIs(t, err, first)
		assert.ErrorIs(t, err, remembered)
		remembered = err
	}

	copies := 0
	for v := reflect.ValueOf(remembered); !v.IsNil(); v = v.Elem().FieldByName("origin") {
		copies++
	}
	assert.Equal(t, 2, copies)
	assert.NotErrorIs(t, remembered, &resilience.Error{Code: resilience.CodeValidation, Message: "m"})
}

func TestErrorsThatAreSharedAreNotChanged(t *testing.T) {
	shared := &resilience.Error{
		Code:       resilience.CodeToolFailed,
		Tool:       "own",
		Message:    "m",
		Suggestion: suggestRetry,
		Retryable:  true,
		Details:    map[string]any{"k": "v"},
	}
	timeout, wrapped := resilience.TimeoutError("own", time.Second), errors.Join(shared, errBoom)
	sharedBefore, timeoutBefore := *shared, *timeout
	var none *resilience.Error
	cfg := configWith(resilience.Tool{Effect: resilience.NonIdempotent})
	cfg.Suggestions = map[resilience.Code]string{
		resilience.CodeToolFailed: "S", resilience.CodeTimeout: "T", resilience.CodeCanceled: "C",
	}
	cfg.Breaker.Failures = 1 << 30
	cfg.Retry.MaxRetries = -1
	g := newGuard(t, cfg)

	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			var opts []resilience.Option
			if i%2 == 0 {
				opts = append(opts, resilience.Debug())
			}
			for _, e := range []error{
				shared, timeout, wrapped, none, resilience.MarkTransient(shared),
			} {
				_, err := resilience.Do(t.Context(), g, "x", failing(9, e), opts...)
				got := err.(*resilience.Error)
				if e != error(none) {
					assert.ErrorIs(t, err, e)
				}
				got.Message, got.Details = "changed", map[string]any{"x": i} // it is this call's own
				_ = g.Health()[0].LastError.Message
			}
		})
	}
	wg.Wait()

	assert.Equal(t, sharedBefore, *shared)
	assert.Equal(t, timeoutBefore, *timeout)
}

func TestErrorValueMarshalsLikeAPointerWithoutItsCause(t *testing.T) {
	e := resilience.CircuitOpenError("x", 30*time.Second)
	e.Err = errors.New("password=secret")
	assert.Equal(t, jsonOf(t, e), jsonOf(t, *e))
	assert.NotContains(t, jsonOf(t, map[string]any{"error": *e}), "secret")
}

func TestErrorUnmarshalsWhatItMarshals(t *testing.T) {
	for name, tc := range map[string]struct {
		json string
		want resilience.Error
	}{
		"whole": {
			json: `{"code":"CIRCUIT_OPEN","tool":"x","message":"m","suggestion":"s",` +
				`"retryable":true,"retryAfter":30,"details":{"n":1}}`,
			want: resilience.Error{
				Code: resilience.CodeCircuitOpen, Tool: "x", Message: "m", Suggestion: "s",
				Retryable: true, RetryAfter: 30 * time.Second, Details: map[string]any{"n": 1.0},
			},
		},
		"exhausted": {
			json: `{"code":"RETRY_EXHAUSTED","attempts":3,"lastCode":"TIMEOUT"}`,
			want: resilience.Error{Code: resilience.CodeRetryExhausted, Attempts: 3, LastCode: resilience.CodeTimeout},
		},
		"little":       {json: `{"code":"TIMEOUT"}`, want: resilience.Error{Code: resilience.CodeTimeout}},
		"negative":     {json: `{"retryAfter":-1}`},
		"too far away": {json: `{"retryAfter":9223372036854775807}`},
		"as far as can be": {
			json: `{"retryAfter":9223372036}`,
			want: resilience.Error{RetryAfter: 9223372036 * time.Second},
		},
		"no integer":        {json: `{"retryAfter":2.5}`, want: resilience.Error{RetryAfter: 3 * time.Second}},
		"an exponent":       {json: `{"retryAfter":1e3}`, want: resilience.Error{RetryAfter: 1000 * time.Second}},
		"just too far away": {json: `{"retryAfter":9223372037}`},
		"twice":             {json: `{"retryAfter":5,"retryAfter":-1}`},
		"out of an int64":   {json: `{"retryAfter":99999999999999999999}`},
		"out of a float":    {json: `{"retryAfter":1e400}`},
		"far in the past":   {json: `{"retryAfter":-1e400}`},
		"null":              {json: `{"retryAfter":null}`},
		"other fields":      {json: `{"Err":"x","origin":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			e := resilience.Error{Message: "old", Err: errBoom}
			require.NoError(t, json.Unmarshal([]byte(tc.json), &e))
			assert.Equal(t, tc.want, e)
		})
	}

	var e resilience.Error
	assert.Error(t, json.Unmarshal([]byte(`{"retryAfter":"soon"}`), &e))
}

func TestNullUnmarshalsToNoChange(t *testing.T) {
	e := resilience.Error{Code: "OWN"}
	require.NoError(t, json.Unmarshal([]byte("null"), &e))
	assert.Equal(t, resilience.Code("OWN"), e.Code)
}

func TestAsErrorOfACancelWithWordsOfTheToolsOwn(t *testing.T) {
	r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{}), "x", func(context.Context) (int, error) {
		e := resilience.AsError("x", context.Canceled)
		e.Message = "The user closed the dialog"
		return 0, e
	})
	assert.Equal(t, resilience.CodeCanceled, r.Err.Code)
	assert.Equal(t, "The user closed the dialog", r.Err.Message)
}

func TestErrorsShareNothing(t *testing.T) {
	g := guardWith(t, resilience.Tool{})
	_, _ = resilience.Do(t.Context(), g, "x", failing(9, errBoom))
	g.Health()[0].LastError.Message = "changed"
	assert.NotEqual(t, "changed", g.Health()[0].LastError.Message)

	own := &resilience.Error{Message: "m", Details: map[string]any{}}
	resilience.AsError("x", own).Details["k"] = 1
	assert.Empty(t, own.Details)
}

func TestDetailsThatPanicAreLeftOut(t *testing.T) {
	e := resilience.TimeoutError("x", time.Second)
	e.Details = map[string]any{"v": marshaler{func() { panic("p") }}}
	assert.Equal(t, jsonOf(t, resilience.TimeoutError("x", time.Second)), jsonOf(t, e))
}

func TestTimeToWaitReachesTheAgentWithAnErrorOfTheToolsOwn(t *testing.T) {
	own := &resilience.Error{Message: "The search is busy", Retryable: true, Err: waitError{30 * time.Second}}
	assert.Equal(t, 30*time.Second, resilience.AsError("x", own).RetryAfter)
	assert.Zero(t, own.RetryAfter)
	assert.Zero(t, resilience.AsError("x", &resilience.Error{Message: "m", Err: own.Err}).RetryAfter, "it isn't retryable")

	r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{Retry: &resilience.Retry{}}), "x",
		func(ctx context.Context) (int, error) {
			resilience.ReportBackend(ctx, own.Err)
			return 0, &resilience.Error{Message: "The search is busy", Retryable: true}
		})
	assert.Equal(t, 1, r.Attempts)
	assert.Equal(t, 30*time.Second, r.Err.RetryAfter)
}

// Nothing is known of what words of the Config recommend.
func TestSuggestionOfTheConfigKeepsTheCautionWhereOursNeedsNone(t *testing.T) {
	for effect, want := range map[resilience.Effect]string{
		resilience.EffectUnknown: "Again. " + suggestCaution, resilience.NonIdempotent: "Again. " + suggestCheck,
		resilience.ReadOnly: "Again.",
	} {
		cfg := configWith(resilience.Tool{Effect: effect})
		cfg.Suggestions = map[resilience.Code]string{resilience.CodeToolFailed: "Again.", resilience.CodeValidation: "Mend it."}
		g := newGuard(t, cfg)
		r := resilience.Run(t.Context(), g, "x", failing(9, resilience.MarkPermanent(errBoom)))
		assert.Equal(t, want, r.Err.Suggestion)
		r = resilience.Run(t.Context(), g, "x", failing(9, resilience.MarkInvalid(errBoom)))
		assert.Equal(t, "Mend it.", r.Err.Suggestion)
	}
}
