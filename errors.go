package resilience

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"time"
)

// Code names a way in which a call fails. It is an error itself, so that
//
//	errors.Is(err, resilience.CodeCircuitOpen)
//
// holds for every [*Error] of that code, however deeply it is wrapped.
type Code string

// These are the codes that an agent may read. README.md has a table of what each of them
// means.
const (
	CodeTimeout        Code = "TIMEOUT"          // the call exceeded its timeout
	CodeCircuitOpen    Code = "CIRCUIT_OPEN"     // the breaker rejected the call
	CodeConnectionLost Code = "CONNECTION_LOST"  // the connection to the tool's backend is gone
	CodeRetryExhausted Code = "RETRY_EXHAUSTED"  // every attempt failed
	CodeOverloaded     Code = "OVERLOADED"       // too many calls or abandoned attempts of the tool still run
	CodeToolFailed     Code = "TOOL_FAILED"      // the tool returned an error or panicked
	CodeToolNotFound   Code = "TOOL_NOT_FOUND"   // there is no such tool
	CodeValidation     Code = "VALIDATION_ERROR" // the caller made a mistake
	CodeCanceled       Code = "CANCELED"         // the caller left
	CodeShuttingDown   Code = "SHUTTING_DOWN"    // the guard was closed
)

// Error returns the code's name.
func (c Code) Error() string { return string(c) }

func (c Code) valid() bool { return suggestions[c] != "" }

// suggestion returns our words for a code.
func (c Code) suggestion() string { return suggestions[c.worded()] }

// worded returns c, or TOOL_FAILED for a code of a tool's own, for which there are no words.
func (c Code) worded() Code {
	if suggestions[c] == "" {
		return CodeToolFailed
	}
	return c
}

// suggestions say what an agent should do next. Config.Suggestions replaces them.
var suggestions = map[Code]string{
	CodeTimeout: "Try again, or use another tool.",
	CodeCircuitOpen: "Do not call this tool again before the time in retryAfter has passed; " +
		"go on with other tools meanwhile.",
	CodeConnectionLost: "Wait for the connection to come back, then try again.",
	CodeRetryExhausted: "Several attempts have failed already: do not repeat the call at once. " +
		"Try again later; go on with other tools meanwhile, or tell the user.",
	CodeOverloaded:   "Earlier calls of this tool are still running. Wait for them to end before calling it again.",
	CodeToolFailed:   "Try again. If it fails again, change the request or use another tool.",
	CodeToolNotFound: "List the available tools and call one of those.",
	CodeValidation:   "Correct the arguments, then call again.",
	CodeShuttingDown: "Call again once the server is back; go on with other tools meanwhile.",
	CodeCanceled:     "The call was canceled. Call again only if its result is still wanted.",
}

// suggestCaution follows the suggestion to call a tool again that may have taken effect, where it
// isn't known what that is.
const suggestCaution = "If this tool changes anything, check first whether this call took effect."

// suggestCheck is for a call that must not be repeated blindly and may have taken effect.
const suggestCheck = "The outcome of this call is unknown: " +
	"check whether it took effect before you call this tool again."

// suggestChange replaces the suggestion of TOOL_FAILED where another try won't help.
const suggestChange = "Do not repeat the same call: change the request or use another tool."

// suggestOther replaces the suggestion of RETRY_EXHAUSTED where another try won't help.
const suggestOther = "Do not repeat the call: use another tool or tell the user."

// suggestElsewhere is for a tool that an operator has taken out of service.
const suggestElsewhere = "Do not call this tool again before it is back; go on with other tools meanwhile."

// suggestOtherKey is for a tool of which one of several backends is broken.
const suggestOtherKey = "Do not make this call again before the time in retryAfter has passed; " +
	"calls of this tool for others may succeed."

// Error is the error of a failed call. Its exported fields are written for an agent, except
// Err, which is written for programs and logs.
//
// A tool that has something to say to the agent returns an *Error with a Message. A copy of it
// passes through the guard: empty fields are filled in (the Suggestion for a code of the tool's own is
// that of TOOL_FAILED), and Details are left out unless debug is on.
// If it leaves open whether a NonIdempotent tool took effect, a TIMEOUT or CONNECTION_LOST isn't
// retryable, nor is an error of ours, such as that of [AsError], or one without a Suggestion.
//
// An Error is a plain value, also one of ours, such as that of a guarded call within the tool: with a Message, a
// Suggestion or a RetryAfter of its own, a program speaks to the agent, and with another Code or Retryable it says what
// the failure means, as [Classify] reads them. Reading an Error is safe for concurrent use, changing one is not.
type Error struct {
	Code       Code
	Tool       string         // the tool's name; empty if it isn't known
	Message    string         // what happened; safe to show to an agent
	Suggestion string         // what to do next
	Retryable  bool           // whether the agent may call again
	RetryAfter time.Duration  // how long to wait before that; zero or negative means that it isn't known
	Attempts   int            // of a RETRY_EXHAUSTED, how many have failed; zero means that it isn't known
	LastCode   Code           // of a RETRY_EXHAUSTED, that of the last failure; empty if it isn't known
	Details    map[string]any // with debug only; e itself must not be in them
	Err        error          // the cause, which may be nil; its text appears in Details and logs only

	// origin is the *Error of which this one is a copy, or a copy of a copy. It is nil if it is none.
	origin *Error

	// ours is the suggestion that this package wrote, whatever the suggestion is now.
	ours string

	// caution is what follows a suggestion of other words than ours, as the call may have taken effect.
	caution string

	// known is what we know of an error that we made, and that its fields don't tell. It holds while they are as sealed,
	// which is zero for an error that isn't complete yet, or of which we know nothing.
	known  known
	sealed wording
}

// Error returns the code and the message. It leaves the cause out on purpose, because MCP
// SDKs send an error's text to the agent, and a cause may contain addresses, paths or
// credentials. To see the cause, log the Error with slog or follow Unwrap.
func (e *Error) Error() string {
	if e == nil { // a tool may return a nil *Error as an error
		return "<nil>"
	}

	if e.Message == "" {
		return string(e.Code)
	}
	return string(e.Code) + ": " + e.Message
}

// HasGuidance reports whether e tells an agent more than the tool's own words do, such as that another try
// may help. It doesn't for a caller who has left, for a mistake of the agent's, or for another failure that
// says nothing about the tool's backend, unless the tool's author wrote e or e has Details. An adapter that passes
// on a tool's own answer adds e to it only if HasGuidance.
func (e *Error) HasGuidance() bool { return e != nil && (!e.holds().quiet || len(e.Details) > 0) }

// Unwrap returns the cause, Err.
func (e *Error) Unwrap() error {
	if e == nil {
		return nil
	}

	return e.Err
}

// Is reports whether target is the [Code] of e. A TIMEOUT is [context.DeadlineExceeded] too,
// and a CANCELED is [context.Canceled]. A copy that a guard has completed or changed is the
// *Error that it was made from, and so are other such copies, but for Health's LastError.
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
		return t != nil && e.first() == t.first()
	}
	return false
}

// first returns the *Error that e was copied from, which may be e itself.
func (e *Error) first() *Error {
	if e.origin != nil {
		return e.origin
	}
	return e
}

// LogValue returns the error as a slog group. It contains the text of the cause: logs are
// for the server's operator.
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
		attrs = append(attrs, slog.String("cause", causeText(e.Err)))
	}
	if len(e.Details) > 0 {
		attrs = append(attrs, slog.Any("details", e.Details))
	}
	return slog.GroupValue(attrs...)
}

// TimeoutError returns the error of a call that exceeded its timeout. A timeout that isn't
// positive isn't known, and is left out of the message, as is an empty name. The error is
// retryable; a guard changes that for a NonIdempotent tool.
func TimeoutError(tool string, timeout time.Duration) *Error {
	rest := "timed out"
	if timeout > 0 {
		rest = "exceeded timeout of " + formatDuration(timeout)
	}
	return newError(CodeTimeout, tool, sentence(tool, rest), true)
}

// CircuitOpenError returns the error of a call that a breaker rejected and that may be made
// again after retryAfter. A retryAfter that isn't positive isn't known.
func CircuitOpenError(tool string, retryAfter time.Duration) *Error {
	e := newError(CodeCircuitOpen, tool, circuitOpenMessage(wholeSeconds(retryAfter)), true)
	e.RetryAfter = max(retryAfter, 0)
	return e
}

func circuitOpenMessage(seconds int64) string {
	const msg = "Circuit breaker open due to repeated failures."
	if seconds == 0 {
		return msg
	}
	return msg + " Calls are rejected for " + plural(seconds, "more second") + "."
}

// plural returns "1 noun" or "2 nouns".
func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.FormatInt(n, 10) + " " + noun + "s"
}

// ConnectionLostError returns the error of a call whose connection to the tool's backend is
// gone. Agents read the reason, so it must not contain addresses or credentials; an empty one
// is left out. The error is retryable and its Tool is empty. A guard fills in the Tool, and
// changes Retryable for a NonIdempotent tool.
func ConnectionLostError(reason string) *Error {
	msg := "Connection lost"
	if reason != "" {
		msg += ": " + reason
	}
	return newError(CodeConnectionLost, "", msg, true)
}

// RetryExhaustedError returns the error of a call whose attempts have all failed. The last error, which
// may be nil, becomes its cause. Of that, it keeps what an agent may read: the code, the time to wait,
// why a connection was lost, and the message and suggestion of an [*Error] of the tool's. The error is
// retryable, later, unless the last one isn't. A guard changes that for a NonIdempotent tool.
func RetryExhaustedError(tool string, attempts int, last error) *Error {
	if last == nil {
		return retryExhausted(tool, attempts)
	}

	d := diagnose(last, nil)
	return d.exhausted(tool, attempts)
}

func retryExhausted(tool string, attempts int) *Error {
	e := newError(CodeRetryExhausted, tool, sentence(tool, "failed after "+plural(int64(attempts), "attempt")), true)
	e.Attempts = attempts
	return e
}

// overloadedError begins with what there is too much of.
func overloadedError(tool, much string) *Error {
	return newError(CodeOverloaded, tool, fmt.Sprintf("%s tool '%s' still run", much, tool), true)
}

func shuttingDownError(tool string) *Error {
	return newError(CodeShuttingDown, tool, "The server is shutting down", true)
}

func canceledError(tool string) *Error {
	e := newError(CodeCanceled, tool, "The call was canceled", false)
	e.known.bare, e.known.quiet = true, true
	e.seal()
	return e
}

func validationError(tool, format string, args ...any) *Error {
	return newError(CodeValidation, tool, fmt.Sprintf(format, args...), false)
}

func newError(code Code, tool, message string, retryable bool) *Error {
	e := new(Error)
	e.fill(code, tool, message, retryable)
	return e
}

// fill makes e, which is empty, an error of ours.
func (e *Error) fill(code Code, tool, message string, retryable bool) {
	e.Code, e.Tool, e.Message, e.Retryable = code, tool, message, retryable
	e.suggest(suggestions[code])
}

// suggest makes words of ours the suggestion.
func (e *Error) suggest(words string) { e.Suggestion, e.ours = words, words }

// hasOurWords reports whether the suggestion is ours, and not the tool's.
func (e *Error) hasOurWords() bool {
	return e.Suggestion == e.ours || e.Suggestion == e.Code.suggestion()
}

// clone returns a copy that may be changed, and that errors.Is finds to be e.
func (e *Error) clone() *Error {
	c := *e
	c.origin = e.first() // not e: a tool may return what it got from a guard, again and again
	return &c
}

// withCause returns a copy that has err as its cause, before any that it has.
func (e *Error) withCause(err error) *Error {
	if err == nil || err == error(e) {
		return e
	}

	c := e.clone()
	c.Err = err
	if e.Err != nil {
		c.Err = errors.Join(err, e.Err)
	}
	return c
}

// sentence returns a sentence about a tool whose name may not be known.
func sentence(tool, rest string) string {
	if tool == "" {
		return "The tool " + rest
	}
	return "Tool '" + tool + "' " + rest
}

// wholeSeconds rounds up, so that an agent that waits for so long doesn't come too early. It
// returns 0, for not known, if d isn't positive.
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

// formatDuration writes seconds as an agent reads them best, 90s and not 1m30s, and without
// digits that mean nothing.
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
