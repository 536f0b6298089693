package programs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed8d1e2389/resilience"
)

// This file holds the eighth promise: what may have taken effect is neither repeated nor recommended.

// repeatable reports whether the tool may run again, whatever it has done.
func (t tool) repeatable() bool {
	return t.effect == resilience.ReadOnly || t.effect == resilience.Idempotent
}

// asked reports whether the call, or one within it, has been paused by then.
func (r *record) asked(by moment) bool {
	return slices.ContainsFunc(r.ticks, func(t tick) bool { return t.kind == stepPause && t.at < by.at })
}

// mayHaveChanged reports whether a call within the attempt, or a report, leaves open what was changed by then.
func (a *attempt) mayHaveChanged(by moment) bool {
	return !a.changed.never() && a.changed.before(by) || slices.ContainsFunc(a.calls, func(r *record) bool {
		return slices.ContainsFunc(r.attempts, func(inner *attempt) bool {
			return inner.mayHaveChanged(by) || !r.config.repeatable() && !inner.hadNoEffect(by)
		})
	})
}

// hadNoEffect reports whether the attempt has certainly left everything as it was, by then.
func (a *attempt) hadNoEffect(by moment) bool {
	switch e := a.ending; {
	case e == nil:
		return false
	case e.marked:
		return true
	case strings.HasPrefix(e.name, "pass on"):
		within := a.calls[len(a.calls)-1]
		return !a.mayHaveChanged(by) && !slices.ContainsFunc(within.attempts, func(inner *attempt) bool {
			return !inner.hadNoEffect(by)
		})
	default:
		return e.noEffect && !a.mayHaveChanged(by)
	}
}

func isNotRepeated(r *record) string {
	for i := range max(len(r.attempts)-1, 0) {
		a, next := r.attempts[i], r.attempts[i+1]
		if r.asked(next.began) {
			return fmt.Sprintf("attempt %d follows a pause", next.number)
		}
		if !r.config.repeatable() && (a.ended.never() || a.ended.at > next.began.at || !a.hadNoEffect(next.began)) {
			return fmt.Sprintf("attempt %d follows one that may have had an effect", next.number)
		}
	}
	return ""
}

func isNotRecommended(r *record) string {
	harmless := true
	for _, a := range r.attempts {
		harmless = harmless && a.ended.at <= r.returned.at && a.hadNoEffect(r.returned)
	}
	if r.err == nil || harmless || r.config.repeatable() {
		return ""
	}

	ours := true
	if a := r.last(); a.ending != nil && a.ending.own && !slices.Contains([]resilience.Code{
		resilience.CodeTimeout, resilience.CodeConnectionLost}, r.err.Code) {
		ours = false
	}
	retry := strings.Contains(strings.ToLower(r.err.Suggestion), "try again")
	switch {
	case !ours || r.err.Code == resilience.CodeCircuitOpen:
	case r.config.effect == resilience.NonIdempotent && (r.err.Retryable || retry):
		return "it says that the call may be repeated"
	case r.config.effect == resilience.EffectUnknown && (r.err.Retryable || retry) &&
		!strings.Contains(r.err.Suggestion, "check"):
		return "it doesn't say that the effect is to be checked first"
	}
	return ""
}
