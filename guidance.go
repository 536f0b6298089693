package resilience

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// codes are the codes for which there are words. A code of a tool's own has those of TOOL_FAILED.
var codes = []Code{
	CodeCanceled, CodeCircuitOpen, CodeConnectionLost, CodeOverloaded, CodeRateLimited, CodeRetryExhausted,
	CodeShuttingDown, CodeTimeout, CodeToolFailed, CodeToolNotFound, CodeValidation,
}

// fixedWords are the suggestions of codes that need to know nothing else of the failure.
var fixedWords = map[Code]string{
	CodeOverloaded:   "Wait for earlier calls of this tool to end before you call it again.",
	CodeToolNotFound: "List the available tools and call one of those.",
	CodeValidation:   "Correct the arguments, or use another tool.",
	CodeCanceled:     "Call again only if the result is still wanted.",
	CodeShuttingDown: "Call again once the server is back; use others meanwhile.",
}

// A check is what an agent has to look at before it calls a tool again.
type check uint8

const (
	checkNothing   check = iota
	checkIfChanges       // the call may have taken effect, if the tool changes anything
	checkFirst           // the call may have taken effect, and must not be repeated blindly
)

// guidance is the part of an Error that this package, rather than a tool's author, wrote.
type guidance struct {
	words string // the suggestion
	check check
	quiet bool // the tool's own answer needs no guidance beside it
	keyed bool // only calls with the same BreakerKey are rejected
}

// words returns our suggestion, or the configured one. It is the table of all advice to agents.
func (e *Error) words(configured map[Code]string) string {
	code := e.Code
	if !slices.Contains(codes, code) {
		code = CodeToolFailed
	}
	wait, when := "", "" // both empty if it isn't known when the call may succeed
	if e.RetryAfter > 0 {
		wait = plural(wholeSeconds(e.RetryAfter), "second")
		when = " that in " + wait
	}

	var words string
	switch {
	case configured[code] != "":
		words = configured[code]
	case e.guidance.check == checkFirst: // its own words are enough
	case fixedWords[code] != "":
		words = fixedWords[code]
	case e.guidance.keyed:
		words = "Do not make this call for " + wait + "; calls of this tool for others may succeed."
	case code == CodeCircuitOpen && !e.Retryable:
		words = "Use other tools."
	case code == CodeRateLimited && wait == "":
		words = "Call again later; use others meanwhile."
	case code == CodeRateLimited:
		words = "Call again in " + wait + "; use others meanwhile."
	case wait != "" && !e.Retryable:
		words = "Do not repeat this call, and do not call this tool for " + wait + "; use others."
	case wait != "":
		words = "Do not call this tool for " + wait + "; use others."
	case !e.Retryable:
		words = "Do not repeat this call: change the request or use another tool."
	case code == CodeRetryExhausted:
		words = fmt.Sprintf("%d attempts failed. Try again later.", e.Attempts)
	case code == CodeToolFailed:
		words = "Try again, or use another tool."
	default:
		words = "Try again later."
	}

	switch e.guidance.check {
	case checkIfChanges:
		words += " If it changes anything, check first whether it took effect."
	case checkFirst:
		words += " It may have taken effect: check" + when + " before you call it again."
	}
	return strings.TrimSpace(words)
}

// suggest makes our words, or the configured ones, the suggestion, unless it is the tool's own.
func (e *Error) suggest(configured map[Code]string) {
	if e.Suggestion == e.guidance.words {
		e.Suggestion = e.words(configured)
		e.guidance.words = e.Suggestion
	}
}

// expect notes that b will reject the next call, if it is open: the agent needn't try it.
func (e *Error) expect(b *Breaker) {
	if after := b.RetryAfter(); after > 0 {
		e.RetryAfter, e.guidance.keyed = max(e.RetryAfter, after), b.key != ""
		e.suggest(nil)
	}
}

// HasGuidance reports whether e adds advice to the tool's own answer. Only then does an adapter pass it on.
func (e *Error) HasGuidance() bool { return e != nil && (!e.guidance.quiet || len(e.Details) > 0) }

// Line returns what a model should read of e, in one line: beside the tool's own answer what to do next, or "" if there
// is nothing to add; otherwise also the code and what happened. With Details it is the JSON of e. e may be nil.
func (e *Error) Line(beside bool) string {
	if e == nil {
		return ""
	}
	if len(e.Details) > 0 {
		text, _ := json.Marshal(e) // it can't fail
		return string(text)
	}

	once := e.Retryable && e.RetryAfter <= 0 && e.Code != CodeRetryExhausted && e.guidance.check == checkNothing
	switch ours := e.Suggestion == e.guidance.words; {
	case beside && (!e.HasGuidance() || ours && once):
		return ""
	case beside:
		return e.Suggestion
	}

	what := strings.TrimPrefix(e.Message, sentence(e.Tool, ""))
	switch e.Code {
	case CodeCircuitOpen:
		what = cmp.Or(e.reason, what)
	case CodeRateLimited:
		if e.reason == rateLimit { // otherwise the words are the author's
			what = ""
		}
	case CodeRetryExhausted: // the suggestion has the number of attempts
		what = strings.TrimPrefix(strings.TrimPrefix(what, failedAfter(e.Attempts)), ": ")
	case CodeConnectionLost:
		what = strings.TrimPrefix(what, lostPrefix)
	}
	if what != "" {
		what = " " + stopped(what)
	}
	return strings.TrimSpace(string(e.Code) + ":" + what + " " + e.Suggestion)
}

// stopped returns a sentence with a full stop.
func stopped(s string) string {
	if strings.ContainsAny(s[len(s)-1:], ".!?") {
		return s
	}
	return s + "."
}

// forEffect keeps e from recommending another call of a tool that may have taken effect and must not be repeated. A
// suggestion of the tool's own stands, but TIMEOUT and CONNECTION_LOST aren't retryable in any case. A call is
// uncertain if it crashed, sent a request that may have changed something, or failed for an unknown reason.
func (e *Error) forEffect(effect Effect, uncertain bool) {
	lost := e.Code == CodeTimeout || e.Code == CodeConnectionLost
	rejected := e.Code == CodeValidation || e.Code == CodeToolNotFound
	final := !e.Retryable && !lost && e.Code != CodeCanceled // nothing recommends another call
	if effect == NonIdempotent && (lost || e.Suggestion == e.guidance.words) {
		e.Retryable = false
	}

	switch {
	case effect.repeatable() || !uncertain && (rejected || final):
		e.guidance.check = checkNothing
	case effect == NonIdempotent:
		e.guidance.check = checkFirst
	default:
		e.guidance.check = checkIfChanges
	}
	e.suggest(nil)
}
