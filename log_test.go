package resilience_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	stdlog "log"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type panicky struct{}

func (panicky) Error() string { panic("p") }

// One record for each event, with stable keys; all else that it might hold is left out.
func TestLogObserver(t *testing.T) {
	own := &resilience.Error{Code: resilience.CodeToolFailed, Message: "m", RetryAfter: 2 * time.Second,
		Err: &resilience.Error{Code: resilience.CodeConnectionLost, Err: syscall.EPIPE}}
	type fn = func(context.Context) (int, error)
	for name, tc := range map[string]struct {
		fn   fn
		opts []resilience.Option
		want string // what follows the time, without durations that depend on chance
	}{
		"success": {failing(0, nil), nil,
			"level=DEBUG msg=\"call succeeded\" tool=x attempts=1 duration=0s timeout=1m0s\n"},
		"unfinished": {func(context.Context) (int, error) { return 0, resilience.ErrUnfinished }, nil,
			"level=DEBUG msg=\"call unfinished\" tool=x attempts=1 duration=0s timeout=1m0s\n"},
		"failure": {failing(9, resilience.MarkPermanent(errors.New("at 10.0.0.7"))), nil,
			"level=WARN msg=\"call failed\" tool=x attempts=1 duration=0s timeout=1m0s code=TOOL_FAILED error=\"at 10.0.0.7\"\n"},
		"in its own words": {failing(9, own), nil,
			"level=WARN msg=\"call failed\" tool=x attempts=1 duration=0s timeout=1m0s code=TOOL_FAILED retryAfter=2s error=\"broken pipe\"\n"},
		"timeout": {obeyInt, []resilience.Option{resilience.Timeout(time.Second)},
			"level=WARN msg=\"call failed\" tool=x attempts=1 duration=1s timeout=1s code=TIMEOUT error=\"context deadline exceeded\"\n"},
		"invalid": {nil, nil,
			"level=INFO msg=\"call invalid\" tool=x attempts=0 duration=0s timeout=0s code=TOOL_NOT_FOUND error=\"Tool 'x' not found: its function is nil\"\n"},
		"canceled": {failing(9, resilience.MarkPermanent(&resilience.Error{Code: resilience.CodeCanceled, Message: "m"})), nil,
			"level=INFO msg=\"call canceled\" tool=x attempts=1 duration=0s timeout=1m0s code=CANCELED error=\"CANCELED: m\"\n"},
		"unprintable": {failing(9, resilience.MarkPermanent(panicky{})), nil,
			"level=WARN msg=\"call failed\" tool=x attempts=1 duration=0s timeout=1m0s code=TOOL_FAILED error=[unprintable]\n"},
		"retry": {failing(1, resilience.MarkTransient(io.ErrUnexpectedEOF)), nil,
			"level=INFO msg=retry tool=x attempt=1 delay=100ms error=\"unexpected EOF\"\n" +
				"level=DEBUG msg=\"call succeeded\" tool=x attempts=2 duration=100ms timeout=1m0s\n"},
		"debug": {failing(0, nil), []resilience.Option{resilience.Debug(), resilience.Args(map[string]any{"q": 1, "token": "t"})},
			"level=DEBUG msg=\"call succeeded\" tool=x attempts=1 duration=0s timeout=1m0s arguments=\"map[q:1 token:[REDACTED]]\"\n"},
		"no debug": {failing(0, nil), []resilience.Option{resilience.Args(map[string]any{"q": 1})},
			"level=DEBUG msg=\"call succeeded\" tool=x attempts=1 duration=0s timeout=1m0s\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, out := textLog(slog.LevelDebug)
				g := newGuard(t, observed(resilience.Tool{Cooperative: true}, resilience.LogObserver(log)))
				_, _ = resilience.Do(t.Context(), g, "x", tc.fn, tc.opts...)
				flush(t, g)
				assert.Equal(t, tc.want, out.String())
			})
		})
	}
}

// textLog writes without times.
func textLog(level slog.Level) (*slog.Logger, *bytes.Buffer) {
	var out bytes.Buffer
	return slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})), &out
}

func TestLogObserverBreakerAndLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out := textLog(slog.LevelInfo)
		g := newGuard(t, observed(resilience.Tool{Breaker: "db"}, resilience.LogObserver(log)))
		open(t, g.Breaker("x"))
		time.Sleep(31 * time.Second)
		_, err := resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) {
			time.Sleep(90 * time.Second)
			return 0, errors.New("too late")
		})
		require.Error(t, err)
		time.Sleep(time.Hour)
		flush(t, g)
		assert.Equal(t, "level=ERROR msg=\"breaker opened\" breaker=db from=closed to=open\n"+
			"level=INFO msg=\"breaker changed\" breaker=db from=open to=half-open\n"+
			"level=ERROR msg=\"breaker opened\" breaker=db from=half-open to=open\n"+
			"level=WARN msg=\"call failed\" tool=x attempts=1 duration=1m0s timeout=1m0s code=TIMEOUT error=\"Tool 'x' exceeded timeout of 60s\"\n"+
			"level=INFO msg=\"late result\" tool=x late=30s error=\"too late\"\n", out.String())
	})
}

// The operator of a server wants to know where it panicked.
func TestLogObserverStack(t *testing.T) {
	log, out := textLog(slog.LevelInfo)
	g := newGuard(t, observed(resilience.Tool{}, resilience.LogObserver(log)))
	_, err := resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) { panic("p") })
	require.Error(t, err)
	flush(t, g)
	assert.Contains(t, out.String(), `error="panic: p"`)
	assert.Contains(t, out.String(), "TestLogObserverStack")
}

// Records have the time of the event, and the default logger is that of the moment.
func TestLogObserverDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var records []slog.Record
		old, out, flags := slog.Default(), stdlog.Writer(), stdlog.Flags()
		defer func() {
			slog.SetDefault(old)
			stdlog.SetOutput(out) // which slog has taken over
			stdlog.SetFlags(flags)
		}()
		g := newGuard(t, observed(resilience.Tool{}, resilience.LogObserver(nil)))
		slog.SetDefault(slog.New(handlerFunc(func(_ context.Context, r slog.Record) error {
			time.Sleep(time.Minute)
			records = append(records, r)
			return errBoom
		})))
		begin := time.Now()
		for range 2 {
			_, _ = resilience.Do(t.Context(), g, "x", failing(0, nil))
		}
		require.NoError(t, g.Flush(t.Context()))
		require.Len(t, records, 2)
		assert.InDelta(t, 2*time.Minute, time.Since(begin), float64(time.Second))
		for _, r := range records {
			assert.Equal(t, begin, r.Time)
			assert.Equal(t, "call succeeded", r.Message)
		}
	})
}

// A handler that is broken harms nothing, and is mentioned once.
func TestLogObserverBrokenHandler(t *testing.T) {
	log, out := textLog(slog.LevelInfo)
	cfg := observed(resilience.Tool{}, resilience.LogObserver(slog.New(handlerFunc(func(context.Context, slog.Record) error { panic("p") }))))
	cfg.Log = log
	g := newGuard(t, cfg)
	for range 10 {
		_, err := resilience.Do(t.Context(), g, "x", failing(0, nil))
		require.NoError(t, err)
	}
	flush(t, g)
	assert.Equal(t, 1, strings.Count(out.String(), "level=WARN msg=\"resilience: an observer panicked"), out.String())
	assert.Equal(t, 1, strings.Count(out.String(), "\n"), out.String())
}
