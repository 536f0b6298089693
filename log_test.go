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

func TestLogObserverWritesNoRecordOfADisabledLevel(t *testing.T) {
	log, out := textLog(slog.LevelWarn)
	o := resilience.LogObserver(log)
	o.End(t.Context(), resilience.CallEnd{})
	o.Retry(t.Context(), resilience.CallRetry{})
	o.Late(t.Context(), resilience.LateResult{})
	o.Breaker(resilience.BreakerChange{To: resilience.StateHalfOpen})
	o.Connection(resilience.ConnectionChange{State: resilience.ConnectionUp})
	assert.Empty(t, out.String())

	o.Connection(resilience.ConnectionChange{State: resilience.ConnectionDown, NextDial: time.Second})
	assert.Equal(t, "level=WARN msg=\"connection down\" connection=\"\" attempts=0 next=1s\n", out.String())
}

func TestLogObserverWritesOneRecordPerEvent(t *testing.T) {
	withMessage := &resilience.Error{
		Code:       resilience.CodeToolFailed,
		Message:    "m",
		RetryAfter: 2 * time.Second,
		Err:        &resilience.Error{Code: resilience.CodeConnectionLost, Err: syscall.EPIPE},
	}
	canceled := failing(9, &resilience.Error{Code: resilience.CodeCanceled, Message: "m"})
	atAddress := failing(9, resilience.MarkPermanent(errors.New("at 10.0.0.7")))
	args, debug := resilience.Args(map[string]any{"q": 1, "token": "t"}), resilience.Debug()
	const one = " tool=x attempts=1 duration=0s timeout=1m0s"
	short, shown := []resilience.Option{resilience.Timeout(time.Second)}, []resilience.Option{debug, args}
	for name, tc := range map[string]struct {
		fn   toolFunc
		opts []resilience.Option
		want string
	}{
		"success":    {fn: succeed, want: `DEBUG msg="call succeeded"` + one},
		"unfinished": {fn: unfinished, want: `DEBUG msg="call unfinished"` + one},
		"failure": {
			fn:   atAddress,
			want: `WARN msg="call failed"` + one + ` code=TOOL_FAILED counted=true error="at 10.0.0.7"`,
		},
		"not counted": {
			fn:   failing(9, resilience.MarkNeutral(errors.New("at 10.0.0.7"))),
			want: `INFO msg="call failed"` + one + ` code=TOOL_FAILED counted=false error="at 10.0.0.7"`,
		},
		"canceled": {fn: canceled, want: `INFO msg="call canceled"` + one + ` code=CANCELED counted=false error=m`},
		"failure with a message": {
			fn:   failing(9, withMessage),
			want: `WARN msg="call failed"` + one + ` code=TOOL_FAILED counted=true retryAfter=2s error="broken pipe"`,
		},
		"timeout": {fn: untilDone, opts: short, want: `INFO msg="call failed" tool=x attempts=1 duration=1s ` +
			`timeout=1s code=TIMEOUT counted=false error="context deadline exceeded"`},
		"invalid": {want: `INFO msg="call invalid" tool=x attempts=0 duration=0s timeout=0s ` +
			`code=TOOL_NOT_FOUND counted=false error="Tool 'x' not found: its function is nil"`},
		"retry": {
			fn: failing(1, resilience.MarkNoEffect(io.ErrUnexpectedEOF)),
			want: `INFO msg=retry tool=x attempt=1 delay=100ms error="unexpected EOF"` + "\n" +
				`level=DEBUG msg="call succeeded" tool=x attempts=2 duration=100ms timeout=1m0s`,
		},
		"arguments with debug": {
			fn: succeed, opts: shown,
			want: `DEBUG msg="call succeeded"` + one + ` arguments="map[q:1 token:[REDACTED]]"`,
		},
		"arguments without debug": {fn: succeed, opts: shown[1:], want: `DEBUG msg="call succeeded"` + one},
	} {
		runInBubble(t, name, func(t *testing.T) {
			log, out := textLog(slog.LevelDebug)
			g := observedGuard(t, resilience.Tool{Cooperative: true}, resilience.LogObserver(log))
			_, _ = resilience.Do(t.Context(), g, "x", tc.fn, tc.opts...)
			flush(t, g)
			assert.Equal(t, "level="+tc.want+"\n", out.String())
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
		g.Breaker("x").Isolate("moving")
		flush(t, g)

		assert.Equal(t, `level=ERROR msg="breaker opened" breaker=db from=closed to=open cause=calls
level=INFO msg="breaker changed" breaker=db from=open to=half-open cause=cooldown
level=ERROR msg="breaker opened" breaker=db from=half-open to=open cause=calls reason=TIMEOUT
level=WARN msg="call failed" tool=x attempts=1 duration=1m0s timeout=1m0s `+
			`code=TIMEOUT counted=true retryAfter=30s error="Tool 'x' exceeded timeout of 60s"
level=INFO msg="late result" tool=x late=30s error="too late"
level=WARN msg="breaker isolated" breaker=db from=open to=isolated cause=manual reason=moving
`, out.String())
	})
}

func TestLogObserverNamesHowACallHasEnded(t *testing.T) {
	for code, want := range map[resilience.Code]string{
		resilience.CodeCanceled:     `"call canceled"`,
		resilience.CodeShuttingDown: `"call rejected"`,
		resilience.CodeCircuitOpen:  `"call rejected"`,
		resilience.CodeOverloaded:   `"call rejected"`,
		resilience.CodeValidation:   `"call invalid"`,
		resilience.CodeToolNotFound: `"call invalid"`,
		resilience.CodeTimeout:      `"call failed"`,
	} {
		log, out := textLog(slog.LevelInfo)
		end := resilience.LogObserver(log).End
		end(t.Context(), resilience.CallEnd{Err: &resilience.Error{Code: code}})
		assert.Regexp(t, `^level=INFO msg=`+want+` .* counted=false `, out.String(), code)
		out.Reset()
		end(t.Context(), resilience.CallEnd{Err: &resilience.Error{Code: code}, Counted: true})
		assert.Regexp(t, `^level=WARN msg="call failed" .* counted=true `, out.String(), code)
	}

	log, out := textLog(slog.LevelInfo)
	panicked := &resilience.PanicError{Value: "p", Stack: []byte("where")}
	resilience.LogObserver(log).Late(t.Context(), resilience.LateResult{Err: panicked})
	assert.Contains(t, out.String(), "stack=where")
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

// An Error leaves its cause out of its text. A log names the cause all the same.
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
		"without a cause":       {fmt.Errorf("list: %w", lost(nil)), "list: " + code},
		"no Error":              {root, text},
		"an Error without more": {&resilience.Error{Code: "BUSY"}, "Tool 'x' failed"},
	} {
		t.Run(name, func(t *testing.T) {
			log, out := textLog(slog.LevelInfo)
			g := observedGuard(t, resilience.Tool{}, resilience.LogObserver(log))
			r := resilience.Run(t.Context(), g, "x", failing(9, tc.err), resilience.Debug())
			require.NoError(t, g.Flush(t.Context()))
			assert.Contains(t, out.String(), fmt.Sprintf("error=%q", tc.want))
			if r.Err.Err != nil {
				assert.Equal(t, tc.want, r.Err.Details["cause"])
				out.Reset()
				log.Error("call", "err", r.Err)
				assert.Contains(t, out.String(), fmt.Sprintf("err.cause=%q", tc.want))
			}
		})
	}
}
