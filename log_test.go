package resilience_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A handlerFunc is the Handle of a slog.Handler.
type handlerFunc func(context.Context, slog.Record) error

func (f handlerFunc) Enabled(context.Context, slog.Level) bool        { return true }
func (f handlerFunc) Handle(ctx context.Context, r slog.Record) error { return f(ctx, r) }
func (f handlerFunc) WithAttrs([]slog.Attr) slog.Handler              { return f }
func (f handlerFunc) WithGroup(string) slog.Handler                   { return f }

// textLog returns a log without times, and what it writes.
func textLog(level slog.Level) (*slog.Logger, *bytes.Buffer) {
	var out bytes.Buffer
	withoutTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: withoutTime}
	return slog.New(slog.NewTextHandler(&out, opts)), &out
}

// setDefaultLog replaces slog.Default() for the rest of the test.
func setDefaultLog(t *testing.T, log *slog.Logger) {
	t.Helper()
	old, out, flags := slog.Default(), stdlog.Writer(), stdlog.Flags()
	slog.SetDefault(log)
	t.Cleanup(func() {
		slog.SetDefault(old)
		stdlog.SetOutput(out) // which SetDefault has redirected
		stdlog.SetFlags(flags)
	})
}

// A quietHandler wants only records of a level and above.
type quietHandler struct {
	handlerFunc
	from slog.Level
}

func (h quietHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.from }

func TestLogObserverWritesNoRecordOfADisabledLevel(t *testing.T) {
	var written []string
	handler := quietHandler{from: slog.LevelWarn, handlerFunc: func(_ context.Context, r slog.Record) error {
		written = append(written, r.Message)
		return nil
	}}
	o := resilience.LogObserver(slog.New(handler))
	o.End(t.Context(), resilience.CallEnd{})
	o.Retry(t.Context(), resilience.CallRetry{})
	o.Late(t.Context(), resilience.LateResult{})
	o.Breaker(resilience.BreakerChange{To: resilience.StateOpen})
	o.Breaker(resilience.BreakerChange{To: resilience.StateHalfOpen})
	o.Connection(resilience.ConnectionChange{State: resilience.ConnectionUp})
	o.Connection(resilience.ConnectionChange{State: resilience.ConnectionDown})
	assert.Equal(t, []string{"breaker opened", "connection down"}, written)
}

func TestLogObserverWritesOneRecordPerEvent(t *testing.T) {
	withMessage := &resilience.Error{
		Code:       resilience.CodeToolFailed,
		Message:    "m",
		RetryAfter: 2 * time.Second,
		Err:        &resilience.Error{Code: resilience.CodeConnectionLost, Err: syscall.EPIPE},
	}
	canceled := &resilience.Error{Code: resilience.CodeCanceled, Message: "m"}
	for name, tc := range map[string]struct {
		fn   func(context.Context) (int, error)
		opts []resilience.Option
		open bool // whether the breaker is open, which is logged first
		want string
	}{
		"success": {
			fn:   failing(0, nil),
			want: `level=DEBUG msg="call succeeded" tool=x attempts=1 duration=0s timeout=1m0s`,
		},
		"unfinished": {
			fn:   unfinished,
			want: `level=DEBUG msg="call unfinished" tool=x attempts=1 duration=0s timeout=1m0s`,
		},
		"failure": {
			fn: failing(9, resilience.MarkPermanent(errors.New("at 10.0.0.7"))),
			want: `level=WARN msg="call failed" tool=x attempts=1 duration=0s timeout=1m0s ` +
				`code=TOOL_FAILED error="at 10.0.0.7"`,
		},
		"failure with a message": {
			fn: failing(9, withMessage),
			want: `level=WARN msg="call failed" tool=x attempts=1 duration=0s timeout=1m0s ` +
				`code=TOOL_FAILED retryAfter=2s error="broken pipe"`,
		},
		"timeout": {
			fn:   obeyInt,
			opts: []resilience.Option{resilience.Timeout(time.Second)},
			want: `level=WARN msg="call failed" tool=x attempts=1 duration=1s timeout=1s ` +
				`code=TIMEOUT error="context deadline exceeded"`,
		},
		"rejected": {
			fn:   failing(0, nil),
			open: true,
			want: `level=ERROR msg="breaker opened" breaker=x from=closed to=open cause=calls` + "\n" +
				`level=WARN msg="call failed" tool=x attempts=0 duration=0s timeout=1m0s ` +
				`code=CIRCUIT_OPEN retryAfter=30s ` +
				`error="Circuit breaker open due to repeated failures. Calls are rejected for 30 more seconds."`,
		},
		"invalid": {
			want: `level=INFO msg="call invalid" tool=x attempts=0 duration=0s timeout=0s ` +
				`code=TOOL_NOT_FOUND error="Tool 'x' not found: its function is nil"`,
		},
		"canceled": {
			fn: failing(9, resilience.MarkPermanent(canceled)),
			want: `level=INFO msg="call canceled" tool=x attempts=1 duration=0s timeout=1m0s ` +
				`code=CANCELED error="CANCELED: m"`,
		},
		"unprintable": {
			fn: failing(9, resilience.MarkPermanent(&unprintableError{})),
			want: `level=WARN msg="call failed" tool=x attempts=1 duration=0s timeout=1m0s ` +
				`code=TOOL_FAILED error=[unprintable]`,
		},
		"retry": {
			fn: failing(1, resilience.MarkTransient(io.ErrUnexpectedEOF)),
			want: `level=INFO msg=retry tool=x attempt=1 delay=100ms error="unexpected EOF"` + "\n" +
				`level=DEBUG msg="call succeeded" tool=x attempts=2 duration=100ms timeout=1m0s`,
		},
		"arguments with debug": {
			fn:   failing(0, nil),
			opts: []resilience.Option{resilience.Debug(), resilience.Args(map[string]any{"q": 1, "token": "t"})},
			want: `level=DEBUG msg="call succeeded" tool=x attempts=1 duration=0s timeout=1m0s ` +
				`arguments="map[q:1 token:[REDACTED]]"`,
		},
		"arguments without debug": {
			fn:   failing(0, nil),
			opts: []resilience.Option{resilience.Args(map[string]any{"q": 1})},
			want: `level=DEBUG msg="call succeeded" tool=x attempts=1 duration=0s timeout=1m0s`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, out := textLog(slog.LevelDebug)
				g := observedGuard(t, resilience.Tool{Cooperative: true}, resilience.LogObserver(log))
				if tc.open {
					trip(t, g.Breaker("x"))
				}

				_, _ = resilience.Do(t.Context(), g, "x", tc.fn, tc.opts...)
				flush(t, g)

				assert.Equal(t, tc.want+"\n", out.String())
			})
		})
	}
}

func TestLogObserverWritesBreakerChangesAndLateResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out := textLog(slog.LevelInfo)
		g := observedGuard(t, resilience.Tool{Breaker: "db"}, resilience.LogObserver(log))

		trip(t, g.Breaker("x"))
		time.Sleep(31 * time.Second)
		_, err := resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) {
			time.Sleep(90 * time.Second)
			return 0, errors.New("too late")
		})
		require.Error(t, err)
		time.Sleep(time.Hour)
		flush(t, g)

		assert.Equal(t, `level=ERROR msg="breaker opened" breaker=db from=closed to=open cause=calls
level=INFO msg="breaker changed" breaker=db from=open to=half-open cause=cooldown
level=ERROR msg="breaker opened" breaker=db from=half-open to=open cause=calls
level=WARN msg="call failed" tool=x attempts=1 duration=1m0s timeout=1m0s `+
			`code=TIMEOUT error="Tool 'x' exceeded timeout of 60s"
level=INFO msg="late result" tool=x late=30s error="too late"
`, out.String())
	})
}

func TestLogObserverWritesAnIsolationWithItsReason(t *testing.T) {
	log, out := textLog(slog.LevelInfo)
	g := observedGuard(t, resilience.Tool{}, resilience.LogObserver(log))
	g.Breaker("x").Isolate("moving")
	flush(t, g)
	assert.Equal(t, "level=WARN msg=\"breaker isolated\" breaker=x from=closed to=isolated cause=manual reason=moving\n",
		out.String())
}

func TestLogObserverNamesHowACallHasEnded(t *testing.T) {
	for code, want := range map[resilience.Code]string{
		resilience.CodeCanceled:     `level=INFO msg="call canceled"`,
		resilience.CodeShuttingDown: `level=INFO msg="call rejected"`,
		resilience.CodeValidation:   `level=INFO msg="call invalid"`,
		resilience.CodeToolNotFound: `level=INFO msg="call invalid"`,
		resilience.CodeOverloaded:   `level=WARN msg="call failed"`,
	} {
		for _, unfinished := range []bool{true, false} {
			log, out := textLog(slog.LevelInfo)
			e := resilience.CallEnd{Err: &resilience.Error{Code: code}, Unfinished: unfinished}
			resilience.LogObserver(log).End(t.Context(), e)
			assert.Contains(t, out.String(), want, code)
		}
	}
}

// A handler of one's own may not expect an empty attribute, which those of slog ignore.
func TestLogObserverWritesNoEmptyAttributes(t *testing.T) {
	var keys []string
	o := resilience.LogObserver(slog.New(handlerFunc(func(_ context.Context, r slog.Record) error {
		r.Attrs(func(a slog.Attr) bool { keys = append(keys, a.Key); return true })
		return nil
	})))
	o.End(t.Context(), resilience.CallEnd{})
	assert.Equal(t, []string{"tool", "attempts", "duration", "timeout"}, keys)
	keys = nil
	o.Late(t.Context(), resilience.LateResult{})
	assert.Equal(t, []string{"tool", "late"}, keys)
}

func TestLogObserverWritesTheStackOfAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out := textLog(slog.LevelInfo)
		g := observedGuard(t, resilience.Tool{}, resilience.LogObserver(log))

		_, err := resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) { panic("p") })
		require.Error(t, err)
		flush(t, g)

		assert.Contains(t, out.String(), `error="panic: p"`)
		assert.Contains(t, out.String(), "TestLogObserverWritesTheStackOfAPanic")
	})
}

// A tool may panic with the panic that it has recovered: the first place is where it was passed on.
func TestLogObserverWritesTheStackOfTheOutermostPanic(t *testing.T) {
	log, out := textLog(slog.LevelInfo)
	inner := &resilience.PanicError{Value: "p", Stack: []byte("inner")}
	err := fmt.Errorf("x: %w", &resilience.PanicError{Value: inner, Stack: []byte("outer")})
	resilience.LogObserver(log).Late(t.Context(), resilience.LateResult{Err: err})
	assert.Contains(t, out.String(), "stack=outer")
}

// The handler sleeps, so the time of writing differs from that of the event.
func TestLogObserverUsesTheDefaultLoggerAndTheTimeOfTheEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var records []slog.Record
		g := observedGuard(t, resilience.Tool{}, resilience.LogObserver(nil))
		setDefaultLog(t, slog.New(handlerFunc(func(_ context.Context, r slog.Record) error {
			time.Sleep(time.Minute)
			records = append(records, r)
			return errBoom
		})))

		start := time.Now()
		for range 2 {
			mustSucceed(t, g)
		}
		require.NoError(t, g.Flush(t.Context()))

		require.Len(t, records, 2)
		assert.InDelta(t, 2*time.Minute, time.Since(start), float64(time.Second))
		for _, r := range records {
			assert.Equal(t, start, r.Time)
			assert.Equal(t, "call succeeded", r.Message)
			assert.Zero(t, r.PC, "no line of a program has called")
		}
	})
}

func TestLogObserverWithABrokenHandlerIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := slog.New(handlerFunc(func(context.Context, slog.Record) error { panic("p") }))
		g, log := loggedGuard(t, resilience.Tool{}, resilience.LogObserver(broken))

		for range 10 {
			mustSucceed(t, g)
		}
		flush(t, g)

		assertLogged(t, log, 1, `level=WARN msg="resilience: an observer panicked`)
		assertLogged(t, log, 1, "\n")
	})
}

// The text of an Error leaves its cause out. A log names it all the same, however the tool has wrapped the Error.
func TestLogsNameTheCauseOfAnErrorThatTheToolWraps(t *testing.T) {
	lost := func(cause error) error {
		return &resilience.Error{Code: resilience.CodeConnectionLost, Message: "Connection lost", Err: cause}
	}
	const code, text = "CONNECTION_LOST: Connection lost", "dial tcp 10.0.0.7:5432: no route to host"
	root := errors.New(text)
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"as it is":              {lost(root), text},
		"wrapped":               {fmt.Errorf("list: %w", lost(root)), "list: " + code + ": " + text},
		"in another Error":      {lost(lost(root)), text},
		"wrapped twice":         {lost(fmt.Errorf("a: %w", lost(fmt.Errorf("b: %w", root)))), "a: " + code + ": b: " + text},
		"without a cause":       {fmt.Errorf("list: %w", lost(nil)), "list: " + code},
		"no Error":              {root, text},
		"an Error without more": {&resilience.Error{Code: "BUSY"}, "Tool 'x' failed"},
	} {
		t.Run(name, func(t *testing.T) {
			var buf bytes.Buffer
			log := slog.New(slog.NewTextHandler(&buf, nil))
			g := newGuard(t, resilience.Config{
				Debug: true, Observers: []resilience.Observer{resilience.LogObserver(log)},
			})
			_, err := resilience.Do(t.Context(), g, "x", failing(9, tc.err))
			require.NoError(t, g.Flush(t.Context()))
			assert.Contains(t, buf.String(), fmt.Sprintf("error=%q", tc.want))

			var e *resilience.Error
			require.ErrorAs(t, err, &e)
			if e.Err != nil {
				assert.Equal(t, tc.want, e.Details["cause"])
				buf.Reset()
				log.Error("call", "err", err)
				assert.Contains(t, buf.String(), fmt.Sprintf("err.cause=%q", tc.want))
			}
		})
	}
}

func TestLogsNameAnErrorWhoseCauseIsNil(t *testing.T) {
	log, out := textLog(slog.LevelInfo)
	err := &resilience.Error{Code: resilience.CodeConnectionLost, Message: "gone", Err: (*resilience.Error)(nil)}
	resilience.LogObserver(log).Late(t.Context(), resilience.LateResult{Err: err})
	assert.Contains(t, out.String(), `error="CONNECTION_LOST: gone"`)
}

func TestLogsNameAFewCauses(t *testing.T) {
	var many []error
	for i := range 1000 {
		many = append(many, &resilience.Error{Code: "C", Err: fmt.Errorf("cause %d", i)})
	}
	var buf bytes.Buffer
	err := &resilience.Error{Code: "C", Err: fmt.Errorf("%w", errors.Join(many[0], errors.Join(many...)))}
	slog.New(slog.NewTextHandler(&buf, nil)).Error("call", "err", err)
	assert.Contains(t, buf.String(), "cause 8")
	assert.NotContains(t, buf.String(), "cause 9")
}

// One error whose methods block doesn't silence the log of the other tools.
func TestLogGoesOnAfterErrorsThatBlock(t *testing.T) {
	for _, method := range []string{"Error", "Unwrap", "As"} {
		runInBubble(t, method, func(t *testing.T) {
			release := make(chan struct{})
			failure := errorsThatCall(func() { <-release })[method]
			log, out := textLog(slog.LevelDebug)
			o := resilience.LogObserver(log)
			own := &resilience.Error{Code: resilience.CodeToolFailed, Message: "m", Err: failure}
			start := time.Now()
			o.Retry(t.Context(), resilience.CallRetry{Tool: "a", Err: failure})
			o.End(t.Context(), resilience.CallEnd{Tool: "b", Err: own})
			o.Late(t.Context(), resilience.LateResult{Tool: "c", Err: failure})
			o.Connection(resilience.ConnectionChange{Connection: "d", State: resilience.ConnectionDown, Err: failure})
			assert.LessOrEqual(t, time.Since(start), 4*100*time.Millisecond)
			for _, line := range []string{
				"msg=retry tool=a attempt=0 delay=0s error=[unprintable]\n",
				`code=TOOL_FAILED error="TOOL_FAILED: m: [unprintable]"` + "\n",
				"tool=c late=0s error=[unprintable]\n",
				"connection=d attempts=0 error=[unprintable] next=0s\n",
			} {
				assertLogged(t, out, 1, line)
			}

			for range 200 { // of which no more than 64 are waited for
				o.Late(t.Context(), resilience.LateResult{Err: failure})
			}
			assert.LessOrEqual(t, time.Since(start), 64*100*time.Millisecond)
			o.End(t.Context(), resilience.CallEnd{Tool: "other", Err: own})
			assertLogged(t, out, 1, "tool=other")

			close(release)
			synctest.Wait()
			o.Late(t.Context(), resilience.LateResult{Tool: "x", Err: &resilience.PanicError{Value: "p", Stack: []byte("s")}})
			assertLogged(t, out, 1, `tool=x late=0s error="panic: p" stack=s`)
		})
	}
}

func TestBreakerIsLoggedAfterAnErrorThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		log, out := textLog(slog.LevelWarn)
		g := newGuard(t, resilience.Config{Observers: []resilience.Observer{resilience.LogObserver(log)}})
		blocked := resilience.MarkPermanent(textError{func() { <-release }})
		_, _ = resilience.Do(t.Context(), g, "blocked", failing(9, blocked))
		for range 5 {
			_, _ = resilience.Do(t.Context(), g, "other", failing(9, resilience.MarkPermanent(errBoom)))
		}
		flush(t, g)
		assertLogged(t, out, 1, `msg="breaker opened" breaker=other`)
		close(release)
	})
}
