package resilience

import "time"

// known is what this package knows of an error that it made.
type known struct {
	// quiet is whether the tool's own words are all that there is to say but for Details, since nobody but us has said
	// anything, and it isn't counted.
	quiet bool

	// bare is whether this CANCELED says no more than context.Canceled does, since no program chose it.
	bare bool

	// class is what the failure means, whatever the Code says, as a mark or a Classify has said; ClassTransient if the
	// Code says it.
	class Class

	// outcome is what the breaker of the call has made of it; outcomePending if that isn't known, or the calls around it
	// decide by themselves.
	outcome outcome

	// derived is whether AsError or WithRetry made it of an error, which says what it means.
	derived bool
}

// derives notes that e, a new error of [AsError] or [WithRetry], was made of a failure, and whether that was counted.
func (e *Error) derives(d *diagnosis) {
	e.known.derived = true
	if d.counted {
		e.known.outcome = outcomeFailure
	}
}

// A wording consists of the fields of an Error by which an agent decides.
type wording struct {
	code                Code
	message, suggestion string
	retryable           bool
	retryAfter          time.Duration
}

// seal notes that what is known of e holds for the words that it has now. Every error of which something is known is
// sealed before a program sees it.
func (e *Error) seal() { e.sealed = e.wording() }

func (e *Error) wording() wording {
	return wording{e.Code, e.Message, e.Suggestion, e.Retryable, e.RetryAfter}
}

// isAsSealed reports whether no program has changed the wording of e, of which something is known.
func (e *Error) isAsSealed() bool { return e.sealed == e.wording() }

// holds returns what is known of e and still holds: a program that has changed other words than the Code and Retryable
// speaks to agents, and one that has changed these says what the failure means, as by an Error of its own.
func (e *Error) holds() (k known) {
	if e.Code != e.sealed.code || e.Retryable != e.sealed.retryable {
		return known{}
	}

	k = e.known
	if !e.isAsSealed() {
		k.quiet, k.bare = false, false
	}
	return k
}
