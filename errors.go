package resilience

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"time"
)

// Code names a way in which a call fails. It is an error itself: errors.Is(err, resilience.CodeCircuitOpen) holds for
// every [*Error] of that code.
type Code string

// The codes that an agent may read. README.md has a table of them.
const (
	CodeTimeout        Code = "TIMEOUT"          // the call exceeded its timeout
	CodeCircuitOpen    Code = "CIRCUIT_OPEN"     // the breaker rejected the call
	CodeConnectionLost Code = "CONNECTION_LOST"  // the connection to the tool's backend is gone
	CodeRetryExhausted Code = "RETRY_EXHAUSTED"  // every attempt failed
	CodeRateLimited    Code = "RATE_LIMITED"     // the tool's backend limits requests
	CodeOverloaded     Code = "OVERLOADED"       // too many calls or abandoned attempts of the tool still run
	CodeToolFailed     Code = "TOOL_FAILED"      // the tool returned an error or panicked
	CodeToolNotFound   Code = "TOOL_NOT_FOUND"   // there is no such tool
	CodeValidation     Code = "VALIDATION_ERROR" // the caller made a mistake
	CodeCanceled       Code = "CANCELED"         // the caller left
	CodeShuttingDown   Code = "SHUTTING_DOWN"    // the guard was closed
)

// Error returns the code's name.
func (c Code) Error() string { return string(c) }

// Error is the error of a failed call. Its exported fields are written for an agent, except Err, which is for programs
// and logs. Reading it is safe for concurrent use.
//
// A tool that wants to explain a failure to the agent returns an *Error with a Message. A guard returns a copy of it,
// with empty fields filled in, scrubbed, and without Details unless debug is on. If a NonIdempotent tool may have taken
// effect, TIMEOUT and CONNECTION_LOST are never retryable, and another Error is only if it has its own Suggestion.
type Error struct {
	Code       Code           `json:"code"`
	Tool       string         `json:"tool,omitempty"`       // the tool's name; empty if it isn't known
	Message    string         `json:"message"`              // what happened; safe to show to an agent
	Suggestion string         `json:"suggestion,omitempty"` // what to do next
	Retryable  bool           `json:"retryable"`            // whether the agent may call again
	RetryAfter time.Duration  `json:"-"`                    // how long to wait before that; unknown if not positive
	Attempts   int            `json:"attempts,omitempty"`   // with RETRY_EXHAUSTED: failed attempts; zero if unknown
	LastCode   Code           `json:"lastCode,omitempty"`   // with RETRY_EXHAUSTED: the last failure's code, if known
	Details    map[string]any `json:"-"`                    // with debug only; must not contain e itself
	Err        error          `json:"-"`                    // the cause, which may be nil, for Details and logs

	origin   *Error   // the Error that this one is a copy of; nil if it isn't a copy
	guidance guidance // the parts that this package wrote
	class    Class    // of the failure; zero means as Code and Retryable say
	reason   string   // why the call failed, in a few words of our own: "connection refused", "status 503"
}

// Error returns the code and the message. It leaves out the cause, because MCP SDKs send an error's text to the agent.
// %+v and slog show the cause.
func (e *Error) Error() string {
	switch {
	case e == nil: // as Result.Err is after a success
		return "<nil>"
	case e.Message == "":
		return string(e.Code)
	}
	return string(e.Code) + ": " + e.Message
}

// Format prints the code and the message, and with %+v the causes' texts too.
func (e *Error) Format(f fmt.State, verb rune) {
	text := e.Error()
	if f.Flag('+') && e != nil && e.Err != nil {
		text += ": " + causeText(e.Err)
	}
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), text)
}

// Unwrap returns the cause, Err.
func (e *Error) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// Is reports whether target is the [Code] of e, or the *Error that a guard has copied. A TIMEOUT is
// [context.DeadlineExceeded] too, and a CANCELED [context.Canceled].
func (e *Error) Is(target error) bool {
	if e == nil {
		return false
	}

	switch t := target.(type) {
	case Code:
		return e.Code == t
	case *Error:
		return t != nil && cmp.Or(e.origin, e) == cmp.Or(t.origin, t)
	}
	return e.Code == CodeTimeout && target == context.DeadlineExceeded ||
		e.Code == CodeCanceled && target == context.Canceled
}

// clone returns a copy that may be changed, and that errors.Is finds to be e.
func (e *Error) clone() *Error {
	c := *e
	c.origin = cmp.Or(e.origin, e)
	return &c
}

// addCause puts err, which may be nil, before the cause that e has. e must not be shared yet.
func (e *Error) addCause(err error) {
	if e.Err == nil {
		e.Err = err
	} else if err != nil {
		e.Err = errors.Join(err, e.Err)
	}
}

// LogValue returns the error as a slog group, with the text of the cause.
func (e *Error) LogValue() slog.Value {
	if e == nil {
		return slog.Value{}
	}

	attrs := []slog.Attr{slog.String("code", string(e.Code))}
	if e.Tool != "" {
		attrs = append(attrs, slog.String("tool", e.Tool))
	}
	attrs = append(attrs, slog.String("message", e.Message), slog.Bool("retryable", e.Retryable))
	if e.RetryAfter > 0 {
		attrs = append(attrs, slog.Duration("retryAfter", e.RetryAfter))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("cause", causeText(e.Err)))
	}
	if len(e.Details) > 0 {
		attrs = append(attrs, slog.Any("details", e.Details))
	}
	return slog.GroupValue(attrs...)
}

// errorJSON is the part of an Error that an agent reads.
type errorJSON struct {
	plainError
	RetryAfter float64        `json:"retryAfter,omitempty"` // seconds
	Details    map[string]any `json:"details,omitempty"`
}

type plainError Error // without its methods

// MarshalJSON returns an object with code, tool, message, suggestion, retryable, attempts, lastCode, retryAfter in
// whole seconds (rounded up), and details. Unknown values are left out.
func (e Error) MarshalJSON() ([]byte, error) {
	out := errorJSON{plainError(e), float64(wholeSeconds(e.RetryAfter)), e.Details}
	if b, err := marshal(out); err == nil {
		return b, nil
	}
	out.Details = nil
	return json.Marshal(out)
}

// UnmarshalJSON reads the object of MarshalJSON, in which there is no cause.
func (e *Error) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	var in errorJSON
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}

	*e = Error(in.plainError)
	e.Details = in.Details
	if s := math.Ceil(in.RetryAfter); s > 0 && s < never.Seconds() {
		e.RetryAfter = time.Duration(s) * time.Second
	}
	if e.Suggestion == e.words(nil) { // it is this package's, on the other side
		e.guidance.words = e.Suggestion
	}
	return nil
}

// TimeoutError returns the retryable error of a call that exceeded its timeout. Its message omits an empty name and a
// timeout that isn't positive.
func TimeoutError(tool string, timeout time.Duration) *Error {
	rest := "timed out"
	if timeout > 0 {
		rest = "exceeded timeout of " + formatDuration(timeout)
	}
	return newError(CodeTimeout, tool, sentence(tool, rest), true)
}

// CircuitOpenError returns the error of a call that a breaker rejected. A retryAfter that isn't positive is unknown.
func CircuitOpenError(tool string, retryAfter time.Duration) *Error {
	e := newError(CodeCircuitOpen, tool, circuitOpenMessage("", wholeSeconds(retryAfter)), true)
	e.RetryAfter = max(retryAfter, 0)
	e.suggest(nil)
	return e
}

// ConnectionLostError returns the retryable error of a call that lost the connection to its backend. Agents read the
// reason, so it must not contain addresses or credentials; it may be empty. A guard fills in the Tool.
func ConnectionLostError(reason string) *Error {
	if reason != "" {
		reason = ": " + reason
	}
	return newError(CodeConnectionLost, "", "Connection lost"+reason, true)
}

// RetryExhaustedError returns the error of a call whose attempts have all failed. The last error, which may be nil,
// is its cause, and decides Retryable.
func RetryExhaustedError(tool string, attempts int, last error) *Error {
	m := meaningOf(last)
	return m.exhausted(tool, attempts)
}

func overloadedError(tool, tooMany string) *Error {
	return newError(CodeOverloaded, tool, fmt.Sprintf("Too many %s of tool '%s' still run", tooMany, tool), true)
}

func shuttingDownError(tool string) *Error {
	return newError(CodeShuttingDown, tool, "The server is shutting down", true)
}

func validationError(tool, format string, args ...any) *Error {
	return newError(CodeValidation, tool, fmt.Sprintf(format, args...), false)
}

func newError(code Code, tool, message string, retryable bool) *Error {
	e := &Error{Code: code, Tool: tool, Message: message, Retryable: retryable}
	e.suggest(nil)
	e.guidance.quiet = code == CodeCanceled
	return e
}

// endOf returns an error for the end of a context, nil if it hasn't ended.
func endOf(ctx context.Context, tool string) *Error {
	if ctx.Err() == nil {
		return nil
	}

	e := newError(CodeCanceled, tool, canceledMessage, false)
	if ctx.Err() == context.DeadlineExceeded {
		e = TimeoutError(tool, 0)
	}
	if cause := context.Cause(ctx); cause != ctx.Err() {
		e.Err = cause
	}
	return e
}

// wholeSeconds rounds up, so that an agent that waits for so long doesn't come too early. It returns 0, for unknown, if
// d isn't positive.
func wholeSeconds(d time.Duration) int64 { return int64(math.Ceil(max(d, 0).Seconds())) }

// formatDuration returns d without meaningless digits, in seconds rather than minutes: 90s is easier to read than
// 1m30s.
func formatDuration(d time.Duration) string {
	if d < time.Millisecond {
		return d.Round(time.Microsecond).String()
	}

	d = d.Round(time.Millisecond)
	if d < time.Second {
		return d.String()
	}
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}

// plural returns "1 noun" or "2 nouns".
func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.FormatInt(n, 10) + " " + noun + "s"
}
