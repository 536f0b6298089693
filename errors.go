package resilience

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"time"
)

// Code names a way in which a tool call fails. It is itself an error, so that
//
//	errors.Is(err, resilience.CodeCircuitOpen)
//
// holds for every [*Error] of that code, however deeply it is wrapped.
type Code string

// The codes that an agent may see. README.md has the table of what each of
// them tells it.
const (
	CodeTimeout        Code = "TIMEOUT"          // the call outran its limit
	CodeCircuitOpen    Code = "CIRCUIT_OPEN"     // the breaker turned the call away
	CodeConnectionLost Code = "CONNECTION_LOST"  // the connection to the tool's backend is gone
	CodeRetryExhausted Code = "RETRY_EXHAUSTED"  // every attempt failed
	CodeOverloaded     Code = "OVERLOADED"       // too many calls that were given up on still run
	CodeToolFailed     Code = "TOOL_FAILED"      // the tool returned an error or panicked
	CodeToolNotFound   Code = "TOOL_NOT_FOUND"   // there is no such tool
	CodeValidation     Code = "VALIDATION_ERROR" // the caller's mistake
	CodeCanceled       Code = "CANCELED"         // the caller went away
)

// Error returns the code's name.
func (c Code) Error() string { return string(c) }

func (c Code) valid() bool { return suggestions[c] != "" }

// suggestions are what an agent is told to do next, unless Config.Suggestions
// says otherwise.
var suggestions = map[Code]string{
	CodeTimeout:        "Try again with a smaller or simpler request, or use another tool.",
	CodeCircuitOpen:    "Do not call this tool again before the time in retryAfter has passed; go on with other tools meanwhile.",
	CodeConnectionLost: "Wait for the connection to come back, then try again.",
	CodeRetryExhausted: "Several attempts have failed already: do not repeat the call at once. Use another tool or tell the user.",
	CodeOverloaded:     "Earlier calls of this tool are still running. Wait for them to end before calling it again.",
	CodeToolFailed:     "Try again. If it fails again, change the request or use another tool.",
	CodeToolNotFound:   "List the available tools and call one of those.",
	CodeValidation:     "Correct the arguments, then call again.",
	CodeCanceled:       "The call was canceled. Call again only if its result is still wanted.",
}

// suggestCheck is what an agent is told when a call that must not be repeated
// blindly may have taken effect.
const suggestCheck = "The outcome of this call is unknown: check whether it took effect before you call this tool again."

// suggestChange takes the place of TOOL_FAILED's where another try won't help.
const suggestChange = "Do not repeat the same call: change the request or use another tool."

// Error is what a failed tool call comes back as. Its exported fields but Err
// are written for an agent; Err is written for programs and logs.
//
// A tool that wants its own words read by the agent returns an *Error with a
// Message: it passes through the guard whole, with only what it left empty
// filled in (Code, Tool and Suggestion), and Details left out unless debug is on.
//
// An Error is a plain value: reading one is safe for concurrent use, changing
// one is not.
type Error struct {
	Code       Code
	Tool       string         // the tool's name; empty where none is known
	Message    string         // what happened: safe to show to an agent
	Suggestion string         // what to do next
	Retryable  bool           // may the agent call again?
	RetryAfter time.Duration  // how long to wait first; 0 or negative: not known
	Details    map[string]any // debug only
	Err        error          // the cause, may be nil; its text is in Details and logs only

	// origin is the *Error that this one is a copy of, with something filled in or changed.
	origin *Error
}

// Error returns the code and the message. It leaves the cause out on purpose:
// MCP SDKs send an error's text to the agent, and a cause may hold addresses,
// paths or credentials. Log an Error with slog to see its cause, or follow
// Unwrap.
func (e *Error) Error() string {
	if e == nil { // a tool may return a nil *Error as an error
		return "<nil>"
	}
	if e.Message == "" {
		return string(e.Code)
	}
	return string(e.Code) + ": " + e.Message
}

// Unwrap returns the cause, Err.
func (e *Error) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// Is reports whether target is e's [Code]. A TIMEOUT is also
// [context.DeadlineExceeded], and a CANCELED is [context.Canceled].
func (e *Error) Is(target error) bool {
	if e == nil {
		return false
	}
	switch target {
	case context.DeadlineExceeded:
		return e.Code == CodeTimeout
	case context.Canceled:
		return e.Code == CodeCanceled
	}
	switch t := target.(type) {
	case Code:
		return e.Code == t
	case *Error:
		return e.origin != nil && (e.origin == t || e.origin.Is(t))
	}
	return false
}

// MarshalJSON writes what an agent reads: code, tool, message, suggestion,
// retryable, retryAfter in whole seconds (rounded up, left out when not known)
// and details (left out when empty). The cause is in it only as far as Details
// holds it, which is with debug. Details that can't be marshaled are left out
// rather than losing the rest.
func (e *Error) MarshalJSON() ([]byte, error) {
	out := struct {
		Code       Code           `json:"code"`
		Tool       string         `json:"tool,omitempty"`
		Message    string         `json:"message"`
		Suggestion string         `json:"suggestion,omitempty"`
		Retryable  bool           `json:"retryable"`
		RetryAfter int64          `json:"retryAfter,omitempty"`
		Details    map[string]any `json:"details,omitempty"`
	}{e.Code, e.Tool, e.Message, e.Suggestion, e.Retryable, wholeSeconds(e.RetryAfter), e.Details}
	b, err := json.Marshal(out)
	if err != nil {
		out.Details = nil
		b, err = json.Marshal(out)
	}
	return b, err
}

// LogValue returns the error as a slog group, with the text of the cause, which
// is for the eyes of the server's owner.
func (e *Error) LogValue() slog.Value {
	if e == nil {
		return slog.Value{}
	}
	attrs := make([]slog.Attr, 0, 7)
	attrs = append(attrs, slog.String("code", string(e.Code)))
	if e.Tool != "" {
		attrs = append(attrs, slog.String("tool", e.Tool))
	}
	attrs = append(attrs, slog.String("message", e.Message), slog.Bool("retryable", e.Retryable))
	if e.RetryAfter > 0 {
		attrs = append(attrs, slog.Duration("retryAfter", e.RetryAfter))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("cause", textOf(e.Err)))
	}
	if len(e.Details) > 0 {
		attrs = append(attrs, slog.Any("details", e.Details))
	}
	return slog.GroupValue(attrs...)
}

// TimeoutError says that tool outran limit. A limit of 0 or less isn't known, and an
// empty name is "The tool". It is retryable: the guard takes that back for a tool that
// is NonIdempotent.
func TimeoutError(tool string, limit time.Duration) *Error {
	msg := subject(tool) + " timed out"
	if limit > 0 {
		msg = fmt.Sprintf("%s exceeded timeout of %s", subject(tool), formatDuration(limit))
	}
	return newError(CodeTimeout, tool, msg, true)
}

// CircuitOpenError says that a breaker turned a call of tool away and lets the
// next one through in retryAfter; 0 or less means that this isn't known. An empty
// name is left out.
func CircuitOpenError(tool string, retryAfter time.Duration) *Error {
	e := newError(CodeCircuitOpen, tool, circuitOpenMessage(wholeSeconds(retryAfter)), true)
	e.RetryAfter = max(retryAfter, 0)
	return e
}

func circuitOpenMessage(seconds int64) string {
	const msg = "Circuit breaker open due to repeated failures."
	switch seconds {
	case 0:
		return msg
	case 1:
		return msg + " Will retry in 1 second."
	default:
		return fmt.Sprintf("%s Will retry in %d seconds.", msg, seconds)
	}
}

// ConnectionLostError says that the connection to a tool's backend is gone.
// The reason is read by agents: keep addresses and credentials out of it. An empty
// one is left out. It is retryable, and its Tool is empty: a guard fills it in, and
// takes Retryable back for a tool that is NonIdempotent.
func ConnectionLostError(reason string) *Error {
	msg := "Connection lost"
	if reason != "" {
		msg += ": " + reason
	}
	return newError(CodeConnectionLost, "", msg, true)
}

// RetryExhaustedError says that tool failed attempts times, at last with last,
// which becomes the error's cause and may be nil. The number is told as it is, and an
// empty name is "The tool". It is not retryable.
func RetryExhaustedError(tool string, attempts int, last error) *Error {
	plural := "s"
	if attempts == 1 {
		plural = ""
	}
	e := newError(CodeRetryExhausted, tool, fmt.Sprintf("%s failed after %d attempt%s", subject(tool), attempts, plural), false)
	e.Err = last
	return e
}

func overloadedError(tool string) *Error {
	msg := "too many earlier calls of this tool still run"
	if tool != "" {
		msg = fmt.Sprintf("too many earlier calls of tool '%s' still run", tool)
	}
	return newError(CodeOverloaded, tool, msg, true)
}

func canceledError(tool string, cause error) *Error {
	e := newError(CodeCanceled, tool, "The call was canceled", false)
	e.Err = cause
	return e
}

func validationError(tool, format string, args ...any) *Error {
	return newError(CodeValidation, tool, fmt.Sprintf(format, args...), false)
}

func newError(code Code, tool, message string, retryable bool) *Error {
	return &Error{Code: code, Tool: tool, Message: message, Suggestion: suggestions[code], Retryable: retryable}
}

// withCause returns a copy that has err as its cause, before any that it has.
func (e *Error) withCause(err error) *Error {
	if err == nil || err == error(e) {
		return e
	}
	c := *e
	c.origin = e
	c.Err = err
	if e.Err != nil {
		c.Err = errors.Join(err, e.Err)
	}
	return &c
}

// subject begins a sentence about a tool whose name may not be known.
func subject(tool string) string {
	if tool == "" {
		return "The tool"
	}
	return "Tool '" + tool + "'"
}

// textOf is err's text; a tool's error may panic instead of giving one.
func textOf(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = unprintable
		}
	}()
	return err.Error()
}

// wholeSeconds rounds up, so that an agent that waits as told never comes too
// early. Anything that isn't positive is 0: not known.
func wholeSeconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	s := int64(d / time.Second)
	if d%time.Second != 0 {
		s++
	}
	return s
}

// formatDuration writes seconds as an agent reads them best, 90s and not 1m30s,
// and never more digits than say something.
func formatDuration(d time.Duration) string {
	if d < time.Second {
		switch {
		case d >= time.Millisecond:
			d = d.Round(time.Millisecond)
		case d >= time.Microsecond:
			d = d.Round(time.Microsecond)
		}
		return d.String()
	}
	s := math.Round(d.Seconds()*1000) / 1000
	return strconv.FormatFloat(s, 'f', -1, 64) + "s"
}
