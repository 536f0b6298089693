package resilience

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"
)

// LogObserver returns an [Observer] that writes to log; nil is slog.Default():
//
//	Debug  call succeeded, call unfinished
//	Info   call failed (not counted), call canceled, call invalid (VALIDATION_ERROR, TOOL_NOT_FOUND)
//	Info   call rejected (CIRCUIT_OPEN, OVERLOADED, SHUTTING_DOWN)
//	Info   retry, late result, breaker changed, connection up, connection closed
//	Warn   call failed (counted by the breaker), breaker isolated, connection down
//	Error  breaker opened, connection exhausted
//
// The keys of a call are tool, attempts, duration, timeout, with debug arguments and, if it has failed, code, counted,
// error and, if there are any, retryAfter and the stack of a panic. The error is the text of the cause, which may
// contain addresses and credentials.
func LogObserver(log *slog.Logger) Observer {
	l := logger{log}
	return Observer{Retry: l.retry, End: l.end, Late: l.late, Breaker: l.breaker, Connection: l.connection}
}

type logger struct {
	log *slog.Logger // nil means slog.Default()
}

// record writes one record, with the time of the event instead of the time of writing.
func (l logger) record(ctx context.Context, at time.Time, level slog.Level, msg string, args ...any) {
	if h := cmp.Or(l.log, slog.Default()).Handler(); h.Enabled(ctx, level) {
		r := slog.NewRecord(at, level, msg, 0)
		r.Add(args...)
		_ = h.Handle(ctx, r) // there is nowhere else to report its error
	}
}

func (l logger) retry(ctx context.Context, e CallRetry) {
	args := []any{"tool", e.Tool, "attempt", e.Attempt, "delay", e.Delay}
	l.record(ctx, e.Time, slog.LevelInfo, "retry", withError(args, e.Err)...)
}

func (l logger) end(ctx context.Context, e CallEnd) {
	args := []any{"tool", e.Tool, "attempts", e.Attempts, "duration", e.Duration, "timeout", e.Timeout}
	if e.Err != nil {
		args = append(args, "code", string(e.Err.Code), "counted", e.Counted)
		if e.Err.RetryAfter > 0 {
			args = append(args, "retryAfter", e.Err.RetryAfter)
		}
		args = withError(args, e.Err)
	}
	if e.Arguments != nil {
		args = append(args, "arguments", e.Arguments)
	}

	level, msg := slog.LevelDebug, "call succeeded"
	switch {
	case e.Unfinished:
		msg = "call unfinished"
	case e.Counted:
		level, msg = slog.LevelWarn, "call failed"
	case e.Err != nil:
		level, msg = slog.LevelInfo, cmp.Or(notFailed[e.Err.Code], "call failed")
	}
	l.record(ctx, e.Time, level, msg, args...)
}

// notFailed has the messages for codes that aren't failures of the tool.
var notFailed = map[Code]string{
	CodeCanceled: "call canceled", CodeCircuitOpen: "call rejected", CodeOverloaded: "call rejected",
	CodeShuttingDown: "call rejected",
	CodeValidation:   "call invalid", CodeToolNotFound: "call invalid",
}

func (l logger) late(ctx context.Context, e LateResult) {
	l.record(ctx, e.Time, slog.LevelInfo, "late result", withError([]any{"tool", e.Tool, "late", e.Late}, e.Err)...)
}

func (l logger) breaker(e BreakerChange) {
	args := []any{"breaker", e.Breaker, "from", string(e.From), "to", string(e.To), "cause", string(e.Cause)}
	level, msg := slog.LevelInfo, "breaker changed"
	switch e.To {
	case StateOpen:
		level, msg = slog.LevelError, "breaker opened"
	case StateIsolated:
		level, msg = slog.LevelWarn, "breaker isolated"
	}
	if e.Reason != "" {
		args = append(args, "reason", e.Reason)
	}
	l.record(context.Background(), e.Time, level, msg, args...)
}

func (l logger) connection(e ConnectionChange) {
	level, args := slog.LevelInfo, []any{"connection", e.Connection, "attempts", e.Attempts}
	switch e.State {
	case ConnectionDown:
		level, args = slog.LevelWarn, append(withError(args, e.Err), "next", e.NextDial)
	case ConnectionExhausted:
		level, args = slog.LevelError, withError(args, e.Err)
	}
	l.record(context.Background(), e.Time, level, "connection "+string(e.State), args...)
}

// withError appends the text of err and the stack of a panic in its chain. A nil err adds nothing.
func withError(args []any, err error) []any {
	if err == nil {
		return args
	}

	args = append(args, "error", causeText(err))
	var p *PanicError
	if errors.As(err, &p) {
		args = append(args, "stack", string(p.Stack))
	}
	return args
}

// causeText returns the text of err, with the texts of the causes that an [Error] leaves out of its own.
func causeText(err error) string {
	switch e := err.(type) {
	case *Error:
		if e.Err != nil {
			return causeText(e.Err)
		}
		return cmp.Or(e.Message, string(e.Code))
	case *resultError:
		return e.text // its cause is a part of it
	}

	text := err.Error()
	several, single := unwrap(err)
	if single != nil {
		several = []error{single}
	}
	for _, inner := range several {
		if cause := causeText(inner); !strings.Contains(text, cause) {
			text += ": " + cause
		}
	}
	return text
}
