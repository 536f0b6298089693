package resilience

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Class says what a failure means for the breaker and for retries. Neutral
// classes count neither as a failure nor as a success, and a half-open
// breaker's probe that ends so gives its slot back.
type Class uint8

const (
	Transient Class = iota // the tool failed; another try may help   counts · may be retried
	Permanent              // the tool failed; another try won't      counts · not retried
	Invalid                // the caller's mistake                    neutral · not retried
	Canceled               // the caller went away                    neutral · not retried
)

// String returns the class's name in lower case.
func (c Class) String() string {
	switch c {
	case Permanent:
		return "permanent"
	case Invalid:
		return "invalid"
	case Canceled:
		return "canceled"
	default:
		return "transient"
	}
}

func (c Class) neutral() bool { return c == Invalid || c == Canceled }

// Classify is the default for every Classify field. It takes, in this order:
//
//   - the outermost mark of [MarkTransient], [MarkPermanent] or [MarkInvalid],
//     [*Error] or backoff.Permanent. An Error counts by its code: VALIDATION_ERROR
//     and TOOL_NOT_FOUND are Invalid, CANCELED is Canceled, RETRY_EXHAUSTED is
//     Permanent, TOOL_FAILED is Transient if it is Retryable and Permanent if not,
//     the others are Transient;
//   - a [*PanicError] or [ErrGoexit]: Permanent, what crashed once will crash again;
//   - [context.Canceled]: Canceled;
//   - everything else, [context.DeadlineExceeded] and lost connections among it:
//     Transient.
//
// A nil error has no class; Classify returns Transient for it.
func Classify(err error) Class {
	if c, ok := explicitClass(err); ok {
		return c
	}
	if errors.Is(err, context.Canceled) {
		return Canceled
	}
	return Transient
}

// MarkTransient marks err as a failure that certainly had no effect: it is
// retried even for a tool that isn't idempotent. It returns nil for nil, and an
// error with err's text otherwise, which unwraps to err.
//
// A refused connection and a failed dial count as having had no effect without a mark.
// A tool that did something else before it dialled, or follows a redirect after a
// POST, says otherwise with [MarkPermanent].
func MarkTransient(err error) error { return mark(err, Transient) }

// MarkPermanent marks err as a failure of the tool that another try won't mend:
// the breaker counts it, and it isn't retried. It returns nil for nil.
func MarkPermanent(err error) error { return mark(err, Permanent) }

// MarkInvalid marks err as the caller's mistake, which the breaker doesn't count
// and which isn't retried. It returns nil for nil. The agent sees
// VALIDATION_ERROR without err's text; to tell it what is wrong, return an
// [*Error] with CodeValidation and a Message.
func MarkInvalid(err error) error { return mark(err, Invalid) }

type marked struct {
	error
	class Class
}

func (m *marked) Unwrap() error { return m.error }

func mark(err error, c Class) error {
	if err == nil {
		return nil
	}
	return &marked{err, c}
}

// AsError turns any error into an *Error that names tool, around err; nil stays nil.
// An *Error in err's chain decides by its own fields, Details among them, with only
// empty ones filled in. Any other error becomes TIMEOUT (a context.DeadlineExceeded), CONNECTION_LOST, CANCELED,
// VALIDATION_ERROR ([MarkInvalid]) or TOOL_FAILED, with a message that holds
// none of its text.
func AsError(tool string, err error) *Error {
	if err == nil {
		return nil
	}
	return diagnose(err, nil).toError(tool, err, EffectUnknown)
}

// A diagnosis is all that there is to know of an error that a tool returned.
type diagnosis struct {
	class      Class
	own        *Error // the outermost *Error in the chain
	code       Code   // what it becomes when there is no such *Error
	reason     string // of a lost connection
	noEffect   bool   // certainly nothing was done: repeating is safe
	retryAfter time.Duration
	bareCancel bool // context.Canceled, and nobody said on purpose what it means
}

// diagnose looks into err. That calls methods of the tool's errors, which may
// panic (a typed nil does), on a goroutine that isn't the tool's: so it recovers,
// and such an error is a failure about which nothing else is known.
func diagnose(err error, classify func(error) Class) (d diagnosis) {
	defer func() {
		if recover() != nil {
			d = diagnosis{class: Transient, code: CodeToolFailed}
		}
	}()
	d.class = classOf(err, classify)
	if crash(err) {
		d.code = CodeToolFailed
		return d // what it crashed with says nothing of what was done before
	}
	errors.As(err, &d.own)
	if _, explicit := explicitClass(err); !explicit {
		d.bareCancel = errors.Is(err, context.Canceled)
	}
	d.noEffect = hadNoEffect(err)
	d.retryAfter = retryAfterOf(err, d.own)
	switch d.reason = lostReason(err); {
	case d.class == Invalid:
		d.code = CodeValidation
	case d.class == Canceled:
		d.code = CodeCanceled
	case errors.Is(err, context.DeadlineExceeded):
		d.code = CodeTimeout
	case d.reason != "":
		d.code = CodeConnectionLost
	default:
		d.code = CodeToolFailed
	}
	return d
}

// crash reports whether err is a panic or a runtime.Goexit of the tool's.
func crash(err error) bool {
	_, panicked := err.(*PanicError)
	return panicked || err == ErrGoexit
}

// classOf is the class alone. What crashed once will crash again, whatever classify
// says of it; a nil classify is Classify, and one that panics says nothing.
func classOf(err error, classify func(error) Class) (c Class) {
	defer func() {
		if recover() != nil {
			c = Transient
		}
	}()
	if classify == nil || crash(err) {
		return Classify(err)
	}
	return classify(err)
}

// repeatable says whether a failure may be repeated without knowing more: its
// tool may always run again, or it did nothing.
func (d diagnosis) repeatable(e Effect) bool {
	return e == ReadOnly || e == Idempotent || d.noEffect
}

// callerIsHere takes back that an error meant the caller's leaving.
func (d diagnosis) callerIsHere() diagnosis {
	d.class = Transient
	d.code = CodeToolFailed
	if d.reason != "" {
		d.code = CodeConnectionLost
	}
	return d
}

// toError makes what an agent reads of err.
func (d diagnosis) toError(tool string, err error, effect Effect) *Error {
	if d.own != nil {
		e := complete(tool, err, d.own)
		if effect == NonIdempotent && (e.Code == CodeTimeout || e.Code == CodeConnectionLost) {
			copied := *e
			copied.origin = e
			e = copied.forEffect(effect, d.noEffect)
		}
		return e
	}
	var e *Error
	switch d.code {
	case CodeTimeout:
		e = TimeoutError(tool, 0)
	case CodeConnectionLost:
		e = ConnectionLostError(d.reason)
		e.Tool = tool
	case CodeValidation:
		e = validationError(tool, "%s got invalid arguments", subject(tool))
	case CodeCanceled:
		e = canceledError(tool, nil)
	default:
		e = newError(CodeToolFailed, tool, subject(tool)+" failed", false)
	}
	e.Err = err
	e.Retryable = d.class == Transient
	if e.Retryable {
		e.RetryAfter = d.retryAfter
	}
	return e.forEffect(effect, d.noEffect)
}

// forEffect takes back the advice to try again where that might do twice what
// must be done once.
func (e *Error) forEffect(effect Effect, noEffect bool) *Error {
	if effect == NonIdempotent && !noEffect && e.Retryable {
		e.Retryable = false
		e.RetryAfter = 0
		if e.Suggestion == suggestions[e.Code] { // not in a tool's own words
			e.Suggestion = suggestCheck
		}
	}
	return e
}

// complete fills in what a tool left empty in its own *Error, in a copy: the
// original may be a package variable of the tool's.
func complete(tool string, err error, own *Error) *Error {
	if err == error(own) && own.Code != "" && own.Tool != "" && own.Message != "" && own.Suggestion != "" {
		return own
	}
	e := *own
	e.origin = own
	if err != error(own) {
		e.Err = err // keep what it is wrapped in
	}
	if e.Code == "" {
		e.Code = CodeToolFailed
	}
	if e.Tool == "" {
		e.Tool = tool
	}
	if e.Message == "" {
		e.Message = subject(e.Tool) + " failed"
	}
	if e.Suggestion == "" {
		e.Suggestion = suggestions[e.Code]
	}
	return &e
}

// explicitClass looks for what a program said on purpose, from the outside in.
func explicitClass(err error) (Class, bool) {
	switch x := err.(type) {
	case *marked:
		return x.class, true
	case *Error:
		return x.class(), true
	case *backoff.PermanentError, *PanicError:
		return Permanent, true
	}
	if err == ErrGoexit {
		return Permanent, true
	}
	for _, inner := range unwrap(err) {
		if c, ok := explicitClass(inner); ok {
			return c, true
		}
	}
	return 0, false
}

func (e *Error) class() Class {
	switch e.Code {
	case CodeValidation, CodeToolNotFound:
		return Invalid
	case CodeCanceled:
		return Canceled
	case CodeRetryExhausted:
		return Permanent
	case CodeTimeout, CodeCircuitOpen, CodeConnectionLost, CodeOverloaded:
		return Transient
	}
	if e.Retryable {
		return Transient
	}
	return Permanent
}

// hadNoEffect reports whether err is certain to have left the backend as it was:
// marked so, refused, or never connected. Of several errors joined, all must be.
func hadNoEffect(err error) bool {
	switch x := err.(type) {
	case *marked:
		if x.class == Transient {
			return true
		}
	case *net.OpError:
		return x.Op == "dial"
	case *net.DNSError:
		return true
	case syscall.Errno:
		return x == syscall.ECONNREFUSED
	case *Error:
		// The cause of any other code is the last of several things that
		// happened, and says nothing of those before it.
		if x.Code != CodeConnectionLost && x.Code != CodeToolFailed {
			return false
		}
	}
	inner := unwrap(err)
	for _, e := range inner {
		if !hadNoEffect(e) {
			return false
		}
	}
	return len(inner) > 0
}

// lostReason says in words of our own why err means that a connection is gone,
// or "" if it doesn't.
func lostReason(err error) string {
	switch x := err.(type) {
	case nil:
		return ""
	case syscall.Errno: // a net.Error too, also for ENOENT
		return lostErrno[x]
	case *net.ParseError, *net.AddrError: // net.Errors too, but of no connection
		return ""
	case *url.Error: // a net.Error too, also for a URL that can't be parsed
		if x.Op != "parse" && x.Err == io.EOF {
			return "connection closed by the other side"
		}
		return lostReason(x.Err)
	}
	for _, inner := range unwrap(err) {
		if r := lostReason(inner); r != "" {
			return r
		}
	}
	switch err {
	case net.ErrClosed:
		return "connection closed"
	case io.ErrUnexpectedEOF:
		return "connection closed by the other side"
	}
	switch x := err.(type) {
	case *net.DNSError:
		return "host not found"
	case net.Error:
		if x.Timeout() {
			return "network timeout"
		}
		return "network error"
	}
	return ""
}

var lostErrno = map[syscall.Errno]string{
	syscall.ECONNREFUSED: "connection refused",
	syscall.ECONNRESET:   "connection reset by the other side",
	syscall.ECONNABORTED: "connection aborted",
	syscall.EPIPE:        "connection closed by the other side",
	syscall.ETIMEDOUT:    "network timeout",
	syscall.EHOSTUNREACH: "host unreachable",
	syscall.ENETUNREACH:  "network unreachable",
}

// retryAfterOf is how long err says to wait, 0 if it doesn't.
func retryAfterOf(err error, own *Error) time.Duration {
	if own != nil && own.RetryAfter > 0 {
		return own.RetryAfter
	}
	var says interface{ RetryAfter() time.Duration }
	if errors.As(err, &says) {
		return max(says.RetryAfter(), 0)
	}
	return 0
}

func unwrap(err error) []error {
	switch x := err.(type) {
	case interface{ Unwrap() error }:
		if inner := x.Unwrap(); inner != nil {
			return []error{inner}
		}
	case interface{ Unwrap() []error }:
		return x.Unwrap()
	}
	return nil
}
