package resilience

import (
	"cmp"
	"maps"
	"strconv"
	"strings"
	"time"
)

// suggestions tell an agent what to do next. Config.Suggestions replaces them.
var suggestions = map[Code]string{
	CodeTimeout: "Try again, or use another tool.",
	CodeCircuitOpen: "Do not call this tool again before the time in retryAfter has passed; " +
		"go on with other tools meanwhile.",
	CodeConnectionLost: "Wait for the connection to come back, then try again.",
	CodeRetryExhausted: "Several attempts have failed already: do not repeat the call at once. " +
		"Try again later; go on with other tools meanwhile, or tell the user.",
	CodeRateLimited: "Do not call this tool again before the time in retryAfter has passed, or for a minute if there is none; " +
		"go on with other tools meanwhile.",
	CodeOverloaded:   "Earlier calls of this tool are still running. Wait for them to end before calling it again.",
	CodeToolFailed:   "Try again. If it fails again, change the request or use another tool.",
	CodeToolNotFound: "List the available tools and call one of those.",
	CodeValidation:   "Correct the arguments, then call again.",
	CodeShuttingDown: "Call again once the server is back; go on with other tools meanwhile.",
	CodeCanceled:     "The call was canceled. Call again only if its result is still wanted.",
}

const (
	// suggestCaution follows another suggestion if a tool of unknown effect may have taken effect.
	suggestCaution = "If this tool changes anything, check first whether this call took effect."

	// suggestCheck is for a call that must not be repeated blindly and may have taken effect.
	suggestCheck = "The outcome of this call is unknown: " +
		"check whether it took effect before you call this tool again."

	// suggestChange replaces the suggestion of TOOL_FAILED if another try won't help.
	suggestChange = "Do not repeat the same call: change the request or use another tool."

	// suggestOther replaces the suggestion of RETRY_EXHAUSTED if another try won't help.
	suggestOther = "Do not repeat the call: use another tool or tell the user."

	// suggestElsewhere is for a tool that an operator has taken out of service.
	suggestElsewhere = "Do not call this tool again before it is back; go on with other tools meanwhile."

	// suggestOtherKey is for a tool with several backends, one of which is broken.
	suggestOtherKey = "Do not make this call again before the time in retryAfter has passed; " +
		"calls of this tool for others may succeed."
)

// guidance is the part of an Error that this package, rather than a tool's author, wrote.
type guidance struct {
	words   string // the suggestion
	caution string // follows the words of Config.Suggestions, because the call may have taken effect
	quiet   bool   // the tool's own answer needs no guidance beside it
}

// HasGuidance reports whether e adds advice to the tool's own answer, for example that another try may help. It is
// false if the caller has left, if the agent made a mistake, and if the failure isn't the backend's. It is true
// for an Error that the tool's author wrote or that has Details. An adapter that passes on a tool's own answer
// adds e only if HasGuidance.
func (e *Error) HasGuidance() bool { return e != nil && (!e.guidance.quiet || len(e.Details) > 0) }

// suggest makes words of ours the suggestion.
func (e *Error) suggest(words string) { e.Suggestion, e.guidance.words = words, words }

// hasOurWords reports whether the suggestion is ours, and not the tool's.
func (e *Error) hasOurWords() bool {
	return e.Suggestion == e.guidance.words || e.Suggestion == suggestions[e.Code.worded()]
}

// ourWords returns the suggestion for the code of e. If another try won't help, it doesn't recommend one.
func (e *Error) ourWords() string {
	code := e.Code.worded()
	switch {
	case e.Retryable:
	case code == CodeRetryExhausted:
		return suggestOther
	case code == CodeToolFailed, code == CodeTimeout, code == CodeConnectionLost:
		return suggestChange
	}
	return suggestions[code]
}

// worded returns c, or TOOL_FAILED for a code of a tool's own, for which there are no words.
func (c Code) worded() Code {
	if suggestions[c] == "" {
		return CodeToolFailed
	}
	return c
}

// giveUp makes e an error that isn't retryable. Words of ours become the suggestion.
func (e *Error) giveUp(words string) {
	e.Retryable, e.RetryAfter = false, 0
	if e.hasOurWords() {
		e.suggest(words)
	}
}

// reword replaces our suggestion by the configured one.
func (g *Guard) reword(e *Error) {
	if configured, ok := g.cfg.Suggestions[e.Code.worded()]; ok && e.hasOurWords() {
		e.suggest(strings.TrimSpace(configured + " " + e.guidance.caution))
	}
}

// forEffect keeps e from recommending another call of a tool that may have taken effect and must not be repeated. A
// suggestion of the tool's own stands, but TIMEOUT and CONNECTION_LOST aren't retryable in any case. A call that is
// open crashed, sent a request that may have changed something, or failed for an unknown reason.
func (e *Error) forEffect(effect Effect, open bool) {
	rejected := (e.Code == CodeValidation || e.Code == CodeToolNotFound) && !open
	lost := e.Code == CodeTimeout || e.Code == CodeConnectionLost
	ours := e.hasOurWords()
	if effect == NonIdempotent && (ours || lost) {
		e.Retryable, e.RetryAfter = false, 0
	}
	e.guidance.caution = ""
	if effect.repeatable() || rejected {
		return
	}

	words := suggestCheck
	e.guidance.caution = words
	if effect == EffectUnknown {
		e.guidance.caution, words = suggestCaution, e.Suggestion
		if !strings.HasSuffix(words, suggestCaution) && !strings.HasSuffix(words, suggestCheck) {
			words += " " + suggestCaution
		}
	}
	safe := e.Suggestion == suggestOther || e.Suggestion == suggestChange && !open && !lost
	if ours && !safe {
		e.suggest(words)
	}
}

// AsError returns any error as a new [*Error] for the named tool, around err. It returns nil for nil. An *Error in
// err's chain stands, including its Details; only its empty fields are filled in. Any other error becomes TIMEOUT
// (a context.DeadlineExceeded, or that status of gRPC or HTTP), CONNECTION_LOST, CANCELED, VALIDATION_ERROR
// ([MarkInvalid], or an answer that rejects the request, see [Classify]) or TOOL_FAILED. Its message contains none
// of err's text.
func AsError(tool string, err error) *Error {
	if err == nil {
		return nil
	}

	m := meaningOf(err)
	return m.toError(tool)
}

// toError returns the error for an agent: the *Error of the tool's author, or else one in our words.
func (m *meaning) toError(tool string) *Error {
	if m.own != nil {
		return m.completed(tool)
	}

	code, message := m.inOurWords(tool)
	e := newError(code, tool, message, m.class == ClassTransient)
	e.Err, e.class, e.reason = m.err, m.countedClass(), m.reason()
	e.guidance.quiet = e.class.neutral()
	if e.Retryable {
		e.RetryAfter = m.retryAfter
	}
	if code == CodeValidation && m.weight != weightExplicit {
		e.suggest(suggestChange) // the arguments may be right
	}
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

	switch {
	case m.class == ClassPermanent && m.own.meansClass() == ClassTransient: // by a mark around it
		e.giveUp(suggestChange)
	case e.Suggestion == "", e.Suggestion == suggestions[e.Code.worded()]:
		e.suggest(e.ourWords())
	}
	if e.Retryable && e.RetryAfter <= 0 {
		e.RetryAfter = m.retryAfter
	}
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
	case m.lost == rateLimit:
		return CodeRateLimited, limitedMessage(tool, m.retryAfter)
	case m.lost == timedOut:
		return CodeTimeout, sentence(tool, timedOut)
	case m.lost != "" && (m.class != ClassNeutral || m.weight > weightUnknown):
		return CodeConnectionLost, "Connection lost: " + m.lost
	}
	return CodeToolFailed, sentence(tool, "failed")
}

// exhausted returns the error of a call whose attempts have all failed, the last one as m describes.
func (m *meaning) exhausted(tool string, attempts int) *Error {
	last := &Error{Retryable: true}
	if m.err != nil {
		last = m.toError(tool)
	}

	message := sentence(tool, "failed after "+plural(int64(attempts), "attempt"))
	if why := m.reason(); m.own != nil && m.own.Message != "" {
		message += ": " + m.own.Message
	} else if why != "" && why != timedOut {
		message += ": " + why
	}
	e := newError(CodeRetryExhausted, tool, message, last.Retryable)
	e.Err, e.Attempts, e.LastCode, e.RetryAfter, e.reason = m.err, attempts, last.Code, last.RetryAfter, last.reason
	if !last.hasOurWords() {
		e.Suggestion = last.Suggestion
	}
	return e
}

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

const canceledMessage = "The call was canceled"

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

func circuitOpenMessage(why string, seconds int64) string {
	msg := "Circuit breaker open due to repeated failures."
	if why != "" {
		msg = "Circuit breaker open: the last call failed with " + why + "."
	}
	switch seconds {
	case 0:
		return msg
	case 1:
		return msg + " Calls are rejected for 1 more second."
	}
	return msg + " Calls are rejected for " + strconv.FormatInt(seconds, 10) + " more seconds."
}
