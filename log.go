package resilience

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// LogObserver returns an [Observer] that writes to log. If log is nil, it writes to what
// slog.Default() is at the time of the event. Each record has the time of its event.
//
//	level  message               keys
//	Debug  call succeeded        tool attempts duration timeout
//	Debug  call unfinished       tool attempts duration timeout
//	Info   call canceled         tool attempts duration timeout code error
//	Info   call rejected         tool attempts duration timeout code error
//	Info   call invalid          tool attempts duration timeout code error
//	Warn   call failed           tool attempts duration timeout code error
//	Info   retry                 tool attempt delay error
//	Info   late result           tool late error
//	Error  breaker opened        breaker from to cause
//	Warn   breaker isolated      breaker from to cause reason
//	Info   breaker changed       breaker from to cause
//	Info   connection up         connection attempts
//	Warn   connection down       connection attempts error next
//	Error  connection exhausted  connection attempts error
//	Info   connection closed     connection attempts
//
// A call with the code CANCELED is canceled, one with SHUTTING_DOWN is rejected, one with VALIDATION_ERROR or
// TOOL_NOT_FOUND is invalid, and one with any other code has failed. Durations are logged as values of type
// time.Duration.
//
// The value of error is the text of the cause, or the message of an error that has no cause. It may
// contain addresses and credentials. A text that takes longer than about 100ms is "[unprintable]". The key is omitted
// where there is no error, as for a late result that succeeded. Three more keys appear where they apply: retryAfter,
// if the error has one; stack, for a panic; and arguments, redacted, with debug only.
func LogObserver(log *slog.Logger) Observer {
	l := logger{log, new(atomic.Int32)}
	return Observer{Retry: l.retry, End: l.end, Late: l.late, Breaker: l.breaker, Connection: l.connection}
}

type logger struct {
	log      *slog.Logger  // nil means slog.Default()
	printing *atomic.Int32 // errors that it has gone on without, and that are still being printed
}

func (l logger) aside(f func()) bool { return aside(l.printing, f) }

// record writes one record, with the time of the event instead of the time of writing.
func (l logger) record(ctx context.Context, at time.Time, level slog.Level, msg string, attrs ...slog.Attr) {
	log := l.log
	if log == nil {
		log = slog.Default()
	}
	h := log.Handler()
	if !h.Enabled(ctx, level) {
		return
	}
	r := slog.NewRecord(at, level, msg, 0)
	r.AddAttrs(attrs...)
	_ = h.Handle(ctx, r) // there is nowhere else to report its error
}

func (l logger) retry(ctx context.Context, e CallRetry) {
	attrs := []slog.Attr{
		slog.String("tool", e.Tool),
		slog.Int("attempt", e.Attempt),
		slog.Duration("delay", e.Delay),
	}
	l.record(ctx, e.Time, slog.LevelInfo, "retry", l.withError(attrs, e.Err)...)
}

func (l logger) end(ctx context.Context, e CallEnd) {
	attrs := make([]slog.Attr, 0, 9)
	attrs = append(attrs,
		slog.String("tool", e.Tool),
		slog.Int("attempts", e.Attempts),
		slog.Duration("duration", e.Duration),
		slog.Duration("timeout", e.Timeout))

	if e.Err != nil {
		attrs = append(attrs, slog.String("code", string(e.Err.Code)))
		if e.Err.RetryAfter > 0 {
			attrs = append(attrs, slog.Duration("retryAfter", e.Err.RetryAfter))
		}
		attrs = l.withError(attrs, e.Err)
	}
	if e.Arguments != nil {
		attrs = append(attrs, slog.Any("arguments", e.Arguments))
	}

	level, msg := endMessage(e)
	l.record(ctx, e.Time, level, msg, attrs...)
}

func endMessage(e CallEnd) (slog.Level, string) {
	switch {
	case e.Err == nil && e.Unfinished:
		return slog.LevelDebug, "call unfinished"
	case e.Err == nil:
		return slog.LevelDebug, "call succeeded"
	}
	switch e.Err.Code {
	case CodeCanceled:
		return slog.LevelInfo, "call canceled"
	case CodeShuttingDown:
		return slog.LevelInfo, "call rejected"
	case CodeValidation, CodeToolNotFound:
		return slog.LevelInfo, "call invalid"
	}
	return slog.LevelWarn, "call failed"
}

func (l logger) late(ctx context.Context, e LateResult) {
	attrs := []slog.Attr{slog.String("tool", e.Tool), slog.Duration("late", e.Late)}
	l.record(ctx, e.Time, slog.LevelInfo, "late result", l.withError(attrs, e.Err)...)
}

func (l logger) breaker(e BreakerChange) {
	attrs := []slog.Attr{
		slog.String("breaker", e.Breaker),
		slog.String("from", e.From.String()),
		slog.String("to", e.To.String()),
		slog.String("cause", e.Cause.String()),
	}

	level, msg := slog.LevelInfo, "breaker changed"
	switch e.To {
	case StateOpen:
		level, msg = slog.LevelError, "breaker opened"
	case StateIsolated:
		level, msg = slog.LevelWarn, "breaker isolated"
		attrs = append(attrs, slog.String("reason", e.Reason))
	}
	l.record(context.Background(), e.Time, level, msg, attrs...)
}

func (l logger) connection(e ConnectionChange) {
	attrs := []slog.Attr{slog.String("connection", e.Connection), slog.Int("attempts", e.Attempts)}
	level := slog.LevelInfo
	switch e.State {
	case ConnectionDown:
		level = slog.LevelWarn
		attrs = append(l.withError(attrs, e.Err), slog.Duration("next", e.NextDial))
	case ConnectionExhausted:
		level = slog.LevelError
		attrs = l.withError(attrs, e.Err)
	}
	l.record(context.Background(), e.Time, level, "connection "+e.State.String(), attrs...)
}

// withError appends the text of err and the stack of a panic in its chain. A nil err adds nothing. The methods of err
// may block, and what has happened to other tools must be logged all the same.
func (l logger) withError(attrs []slog.Attr, err error) []slog.Attr {
	if err == nil {
		return attrs
	}

	var stack []byte
	text, ok := printAside(l.aside, func() string {
		if p := panicIn(err); p != nil {
			stack = p.Stack
		}
		return causeText(err)
	})
	if e, ours := err.(*Error); ours && !ok {
		text = e.Error() + ": " + text
	}
	attrs = append(attrs, slog.String("error", text))
	if ok && stack != nil {
		attrs = append(attrs, slog.String("stack", string(stack)))
	}
	return attrs
}

// panicIn returns the outermost panic in err, nil if there is none.
func panicIn(err error) (found *PanicError) {
	inspect(err, func(err error) {
		if found == nil {
			found, _ = asItself[*PanicError](err)
		}
	})
	return found
}

// maxCauses bounds how many causes of *Errors within an error its text names.
const maxCauses = 10

// causeText returns the text of err, with that of the causes, which an [Error] leaves out of its own text.
func causeText(err error) string {
	err = readable(err) // it may be a caller's, which nothing has examined yet
	var texts []string
	add := func(text string) {
		known := slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(t, text) })
		if !known && len(texts) < maxCauses {
			texts = append(texts, text)
		}
	}

	if _, ours := err.(*Error); !ours {
		add(textOf(err))
	}
	inspect(err, func(err error) {
		e, ok := err.(*Error)
		if !ok {
			return
		}
		if e.Err == nil {
			add(cmp.Or(e.Message, string(e.Code)))
		} else if _, inner := e.Err.(*Error); !inner {
			add(textOf(e.Err))
		}
	})
	if len(texts) == 0 {
		return textOf(err)
	}
	return strings.Join(texts, ": ")
}
