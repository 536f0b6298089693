package resilience

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"time"
)

// AsError turns any error into an *Error that names tool, around err; nil stays nil.
// An *Error in err's chain decides by its own fields, Details among them, with only
// empty ones filled in. Any other error becomes TIMEOUT (a context.DeadlineExceeded),
// CONNECTION_LOST, CANCELED, VALIDATION_ERROR ([MarkInvalid]) or TOOL_FAILED, with a
// message that holds none of its text.
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
	unfinished bool // neutral, and ErrUnfinished is why
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
	d.unfinished = d.class.neutral() && errors.Is(err, ErrUnfinished)
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

// count is what a breaker is told of err: errFailed or errNeutral.
func count(err error, classify func(error) Class) error {
	if classOf(err, classify).neutral() || wasNotMade(err) {
		return errNeutral
	}
	return errFailed
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
	} else if e.Code == CodeToolFailed {
		e.Suggestion = suggestChange
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
		if e.Code == CodeToolFailed && !e.Retryable {
			e.Suggestion = suggestChange
		}
	}
	return &e
}

// hadNoEffect reports whether err is certain to have left the backend as it was:
// marked so, refused, or never connected. Of several errors joined, all must be.
func hadNoEffect(err error) bool {
	switch x := err.(type) {
	case *marked:
		if x.class == Transient {
			return true
		}
	case *notMade:
		return true
	case *net.OpError:
		return x.Op == "dial"
	case *net.DNSError:
		return true
	case errno:
		return lostErrno[x] == refused
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

// refused is the one reason that is certain to be told before the backend did anything.
const refused = "connection refused"

// lostReason says in words of our own why err means that a connection is gone,
// or "" if it doesn't.
func lostReason(err error) string {
	switch x := err.(type) {
	case nil:
		return ""
	case errno: // a net.Error too, also for ENOENT
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
