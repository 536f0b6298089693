package resilience

import (
	"fmt"
	"strings"
)

// Effect is what running a tool twice may do, after MCP's tool annotations. It decides whether a
// call is retried after a failure that leaves open whether the tool took effect, and whether the
// agent is to call again.
type Effect uint8

const (
	EffectUnknown Effect = iota // retried only after a failure that certainly had no effect
	ReadOnly                    // changes nothing (readOnlyHint): retried
	Idempotent                  // may be repeated without harm (idempotentHint): retried
	NonIdempotent               // must not be repeated: like EffectUnknown, and not retryable for the agent either
)

// String returns the effect's name.
func (e Effect) String() string {
	switch e {
	case EffectUnknown:
		return "unknown"
	case ReadOnly:
		return "read-only"
	case Idempotent:
		return "idempotent"
	case NonIdempotent:
		return "non-idempotent"
	}
	return fmt.Sprintf("Effect(%d)", uint8(e))
}

// EffectFromHints returns the effect of a tool with MCP's annotations readOnlyHint and
// idempotentHint. Both are false by default, which means NonIdempotent.
func EffectFromHints(readOnly, idempotent bool) Effect {
	switch {
	case readOnly:
		return ReadOnly
	case idempotent:
		return Idempotent
	default:
		return NonIdempotent
	}
}

// repeatable reports whether a tool of this effect may run again, whatever the run before
// has done.
func (e Effect) repeatable() bool { return e == ReadOnly || e == Idempotent }

// askEffect calls f. If there is none, or it panics, nothing is known of the effect.
func askEffect(f func() Effect) (e Effect) {
	if f == nil {
		return EffectUnknown
	}
	defer func() {
		if recover() != nil {
			e = EffectUnknown
		}
	}()

	return f()
}

// giveUp makes e an error that isn't retryable. Words of ours become the suggestion.
func (e *Error) giveUp(words string) {
	e.Retryable, e.RetryAfter = false, 0
	if e.hasOurWords() {
		e.suggest(words)
	}
}

// forEffect keeps what an agent reads from recommending to call a tool again that may have taken
// effect and must not be repeated. Words of the tool's own stand, but a TIMEOUT or CONNECTION_LOST
// isn't retryable, whatever they say. It changes e, the error of a call that had begun. A call that
// crashed, has sent a request, or has failed in a way that says nothing leaves more open than other
// failures that aren't retryable.
func (e *Error) forEffect(effect Effect, open bool) {
	ours, lost := e.hasOurWords(), e.Code == CodeTimeout || e.Code == CodeConnectionLost
	harmless := e.Suggestion == suggestChange && !open && !lost
	switch e.Code {
	case CodeValidation, CodeToolNotFound:
		harmless = !open
	case CodeRetryExhausted:
		harmless = e.Suggestion == suggestOther
	}

	e.caution = ""
	switch {
	case effect.repeatable() || !open && (e.Code == CodeValidation || e.Code == CodeToolNotFound):
	case effect == EffectUnknown:
		e.caution = suggestCaution
	default:
		e.caution = suggestCheck
	}

	switch {
	case effect.repeatable():
	case effect == EffectUnknown:
		said := strings.HasSuffix(e.Suggestion, suggestCaution) || strings.HasSuffix(e.Suggestion, suggestCheck)
		if ours && !harmless && !said {
			e.suggest(e.Suggestion + " " + suggestCaution)
		}
	case ours && !harmless:
		e.giveUp(suggestCheck)
	case ours, lost:
		e.Retryable, e.RetryAfter = false, 0
	}
}
