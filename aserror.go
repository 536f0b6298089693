package resilience

import (
	"cmp"
	"maps"
	"time"
)

// AsError returns any error as a new *Error for the named tool, around err, and nil for nil. An *Error in err's chain
// stands, with its empty fields filled in. Any other error becomes TIMEOUT, CONNECTION_LOST, RATE_LIMITED, CANCELED,
// VALIDATION_ERROR or TOOL_FAILED; the message has none of its text.
func AsError(tool string, err error) *Error {
	m := meaningOf(err)
	if m.err == nil {
		return nil
	}
	return m.toError(tool)
}

// toError returns the error for an agent: the *Error of the tool's author, or else one in our words.
func (m *meaning) toError(tool string) *Error {
	if m.own != nil {
		return m.completed(tool)
	}

	code, message := m.inOurWords(tool)
	e := &Error{Code: code, Tool: tool, Message: message, Retryable: m.class == ClassTransient, Err: m.err}
	e.class, e.reason = m.countedClass(), m.reason
	e.guidance.quiet = e.class.neutral()
	if e.Retryable {
		e.RetryAfter = m.retryAfter
	}
	e.suggest(nil)
	return e
}

// completed returns a copy of the *Error of the tool's author with its empty fields filled in. The original may be a
// package variable.
func (m *meaning) completed(tool string) *Error {
	e := m.own.clone()
	if m.err != error(m.own) {
		e.Err = m.err // to keep the errors around it
	}
	e.class, e.Details = m.countedClass(), maps.Clone(e.Details)
	e.Code = cmp.Or(e.Code, CodeToolFailed)
	e.Tool = cmp.Or(e.Tool, tool)
	e.Message = cmp.Or(e.Message, sentence(e.Tool, "failed"))

	if m.class == ClassPermanent && m.own.meansClass() == ClassTransient { // by a mark around it
		e.Retryable, e.RetryAfter = false, 0
	}
	if e.Retryable && e.RetryAfter <= 0 {
		e.RetryAfter = m.retryAfter
	}
	e.suggest(nil)
	return e
}

// inOurWords returns the code and the message for an error without an *Error.
func (m *meaning) inOurWords(tool string) (Code, string) {
	switch {
	case m.class == ClassInvalid && m.weight == weightExplicit:
		return CodeValidation, sentence(tool, "got invalid arguments")
	case m.class == ClassInvalid:
		return CodeValidation, sentence(tool, "rejected the request")
	case m.class == ClassCanceled:
		return CodeCanceled, canceledMessage
	case m.code == CodeRateLimited:
		return CodeRateLimited, limitedMessage(tool, m.retryAfter)
	case m.code == CodeTimeout:
		return CodeTimeout, sentence(tool, timedOut)
	case m.code == CodeConnectionLost && (m.class != ClassNeutral || m.weight > weightUnknown):
		return CodeConnectionLost, lostPrefix + m.reason
	}
	return CodeToolFailed, sentence(tool, "failed")
}

// exhausted returns the error of a call whose attempts have all failed, the last one as m describes.
func (m *meaning) exhausted(tool string, attempts int) *Error {
	last := &Error{Retryable: true}
	if m.err != nil {
		last = m.toError(tool)
	}

	message := sentence(tool, failedAfter(attempts))
	if m.own != nil && m.own.Message != "" {
		message += ": " + m.own.Message
	} else if m.reason != "" && m.code != CodeTimeout {
		message += ": " + m.reason
	}
	e := newError(CodeRetryExhausted, tool, message, last.Retryable)
	e.Err, e.Attempts, e.LastCode, e.RetryAfter, e.reason = m.err, attempts, last.Code, last.RetryAfter, last.reason
	e.suggest(nil)
	if last.Suggestion != last.guidance.words {
		e.Suggestion = last.Suggestion
	}
	return e
}

func failedAfter(attempts int) string { return "failed after " + plural(int64(attempts), "attempt") }

// sentence returns a sentence about a tool whose name may not be known.
func sentence(tool, rest string) string {
	if tool == "" {
		return "The tool " + rest
	}
	return "Tool '" + tool + "' " + rest
}

func limitedMessage(tool string, after time.Duration) string {
	message := "The backend limits requests: call again "
	if tool != "" {
		message = "The backend of '" + tool + "' limits requests: call again "
	}
	if after <= 0 {
		return message + "later"
	}
	return message + "in " + plural(wholeSeconds(after), "second")
}

const (
	canceledMessage = "The call was canceled"
	lostPrefix      = "Connection lost: "
)

// why returns why the call failed in a few words, "" if that isn't known. It may be called on nil.
func (e *Error) why() string {
	if e == nil {
		return ""
	}
	if code := cmp.Or(e.LastCode, e.Code); e.reason == "" && code != CodeToolFailed {
		return string(code)
	}
	return e.reason
}

func lastCall(why string) string {
	if why == "" {
		return "the last calls failed"
	}
	return "the last call failed with " + why
}

func circuitOpenMessage(why string, seconds int64) string {
	msg := "Circuit breaker open due to repeated failures."
	if why != "" {
		msg = "Circuit breaker open: " + lastCall(why) + "."
	}
	if seconds > 0 {
		msg += " Calls are rejected for " + plural(seconds, "more second") + "."
	}
	return msg
}
