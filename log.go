package resilience

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"
)

// LogObserver returns an [Observer] that writes to log, one record for each event that is
// worth one. A nil log is slog.Default() at the time of the event.
//
//	level  message          keys
//	Debug  call succeeded   tool attempts duration limit
//	Debug  call unfinished  tool attempts duration limit
//	Info   retry            tool attempt delay error
//	Info   call invalid     tool attempts duration limit code error
//	Warn   call failed      tool attempts duration limit code error
//	Info   late result      tool late error
//	Error  breaker opened   breaker from to
//	Info   breaker changed  breaker from to
//	Info   connection up    connection attempts
//	Warn   connection down  connection attempts error next
//	Error  connection exhausted  connection attempts error
//	Info   connection closed     connection attempts
//
// A call is refused, rather than failed, if it was its caller's doing: CANCELED,
// VALIDATION_ERROR, TOOL_NOT_FOUND. The value of error is the text of the cause, or the
// message of an error that has none; it may hold addresses and credentials, and is left
// out where there is no error. With it come retryAfter, where known, and stack, the stack
// of a panic. Durations are values of time.Duration. Arguments, redacted, are under the
// key arguments, with debug only.
func LogObserver(log *slog.Logger) Observer {
	l := logger{log}
	return Observer{Retry: l.retry, End: l.end, Late: l.late, Breaker: l.breaker, Connection: l.connection}
}

type logger struct{ log *slog.Logger }

// record writes with the time of the event, which may have waited.
func (l logger) record(ctx context.Context, at time.Time, level slog.Level, msg string, attrs ...slog.Attr) {
	log := l.log
	if log == nil {
		log = slog.Default()
	}
	if h := log.Handler(); h.Enabled(ctx, level) {
		r := slog.NewRecord(at, level, msg, 0)
		r.AddAttrs(attrs...)
		_ = h.Handle(ctx, r) // there is nobody else to tell
	}
}

func (l logger) retry(ctx context.Context, e CallRetry) {
	attrs := []slog.Attr{
		slog.String("tool", e.Tool),
		slog.Int("attempt", e.Attempt),
		slog.Duration("delay", e.Delay),
	}
	l.record(ctx, e.Time, slog.LevelInfo, "retry", withError(attrs, e.Err)...)
}

func (l logger) end(ctx context.Context, e CallEnd) {
	attrs := make([]slog.Attr, 0, 9)
	attrs = append(attrs,
		slog.String("tool", e.Tool),
		slog.Int("attempts", e.Attempts),
		slog.Duration("duration", e.Duration),
		slog.Duration("timeout", e.Timeout))
	level, msg := slog.LevelDebug, "call succeeded"
	switch {
	case e.Err != nil:
		level, msg = slog.LevelWarn, "call failed"
		switch e.Err.Code {
		case CodeCanceled, CodeValidation, CodeToolNotFound:
			level, msg = slog.LevelInfo, "call invalid"
		}
		attrs = append(attrs, slog.String("code", string(e.Err.Code)))
		if e.Err.RetryAfter > 0 {
			attrs = append(attrs, slog.Duration("retryAfter", e.Err.RetryAfter))
		}
		attrs = withError(attrs, e.Err)
	case e.Unfinished:
		msg = "call unfinished"
	}
	if e.Arguments != nil {
		attrs = append(attrs, slog.Any("arguments", e.Arguments))
	}
	l.record(ctx, e.Time, level, msg, attrs...)
}

func (l logger) late(ctx context.Context, e LateResult) {
	attrs := []slog.Attr{slog.String("tool", e.Tool), slog.Duration("late", e.Late)}
	l.record(ctx, e.Time, slog.LevelInfo, "late result", withError(attrs, e.Err)...)
}

func (l logger) breaker(e BreakerChange) {
	level, msg := slog.LevelInfo, "breaker changed"
	if e.To == StateOpen {
		level, msg = slog.LevelError, "breaker opened"
	}
	l.record(context.Background(), e.Time, level, msg,
		slog.String("breaker", e.Breaker), slog.String("from", e.From.String()), slog.String("to", e.To.String()))
}

func (l logger) connection(e ConnectionChange) {
	attrs := []slog.Attr{slog.String("connection", e.Connection), slog.Int("attempts", e.Attempts)}
	level := slog.LevelInfo
	switch e.State {
	case ConnectionDown:
		level = slog.LevelWarn
		attrs = append(withError(attrs, e.Err), slog.Duration("next", e.NextDial))
	case ConnectionExhausted:
		level = slog.LevelError
		attrs = withError(attrs, e.Err)
	}
	l.record(context.Background(), e.Time, level, "connection "+e.State.String(), attrs...)
}

// withError adds what there is to know of an error whose methods may panic.
func withError(attrs []slog.Attr, err error) []slog.Attr {
	if err == nil {
		return attrs
	}
	attrs = append(attrs, slog.String("error", causeText(err)))
	if p := panicIn(err); p != nil {
		attrs = append(attrs, slog.String("stack", string(p.Stack)))
	}
	return attrs
}

// causeText looks for what an Error's own text leaves out.
func causeText(err error) string {
	e, ok := err.(*Error)
	switch {
	case !ok || e == nil:
		return textOf(err)
	case e.Err != nil:
		return causeText(e.Err)
	default:
		return cmp.Or(e.Message, string(e.Code))
	}
}

// panicIn returns the panic that err tells of, nil if none.
func panicIn(err error) (p *PanicError) {
	defer func() {
		if recover() != nil {
			p = nil
		}
	}()
	errors.As(err, &p)
	return p
}
