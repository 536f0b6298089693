package resilience

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// A weight orders joined errors: the heaviest decides what all of them mean, the first of equals.
type weight uint8

const (
	weightNone     weight = iota // canceled, or marked as neutral
	weightRejected               // by another guard, before anything was done
	weightDeclined               // by a Connector or a rate limit, before anything was done: it may be asked again
	weightUnknown                // nothing is known, or the type leaves open whose fault the failure is
	weightAnswer                 // the backend, or the operating system, rejected the request
	weightTrouble                // the backend is in trouble
	weightExplicit               // an author decided, by a mark or an *Error, or the tool crashed
)

// A meaning is what an error means, together with the errors that it wraps. It decides whether the breaker counts the
// failure, whether another attempt may follow, and what the agent reads. It is found in two steps: read looks at the
// error alone, and judge adds what is known besides.
type meaning struct {
	err        error
	own        *Error // the outermost *Error, which the agent reads; nil if there is none
	weight     weight
	class      Class         // before MarkNeutral, see countedClass
	code       Code          // that types of errors and reports mean; empty means TOOL_FAILED
	reason     string        // why the call failed, in a few words for an agent; empty if unknown
	retryAfter time.Duration // how long the error asks to wait; zero if it doesn't

	noEffect       bool // the failed operation certainly changed nothing
	markedNoEffect bool // nor did anything before it, by MarkNoEffect
	neutral        bool // marked by MarkNeutral
	ambiguous      bool // an agent brings such errors about, as well as a backend in trouble
}

// The reasons of TIMEOUT and RATE_LIMITED. Those of CONNECTION_LOST are in evidence.go.
const (
	timedOut  = "timed out"
	rateLimit = "rate limit"
)

// meaningOf returns what err means outside of a guard. The Err of a [Result] may be a nil *Error.
func meaningOf(err error) meaning {
	if err == error((*Error)(nil)) {
		err = nil
	}
	m := read(err)
	m.judge(nil, ClassTransient)
	return m
}

// read returns what err means by itself, without reports. In a chain, each error overrides the errors that it wraps.
func read(err error) meaning {
	m := meaning{weight: weightUnknown}
	if err == nil {
		return m
	}

	several, single := unwrap(err)
	for i, e := range several {
		if i == 0 {
			m = read(e)
		} else {
			m.join(read(e))
		}
	}
	if single != nil {
		m = read(single)
	}
	if several == nil {
		m.add(err)
	}
	m.err = err
	if asks, ok := err.(interface{ RetryAfter() time.Duration }); ok {
		m.retryAfter = max(asks.RetryAfter(), 0)
	}
	return m
}

// unwrap returns the errors that err wraps. The types for several errors that are older than errors.Join, such as those
// of go-multierror and Kubernetes, have methods of their own.
func unwrap(err error) (several []error, single error) {
	switch x := err.(type) {
	case interface{ Unwrap() []error }:
		return x.Unwrap(), nil
	case interface{ WrappedErrors() []error }:
		return x.WrappedErrors(), nil
	case interface{ Errors() []error }:
		return x.Errors(), nil
	case interface{ Unwrap() error }:
		return nil, x.Unwrap()
	}
	return nil, nil
}

// join adds another one of several errors. The heaviest decides, but all of them must have had no effect, and the
// longest time to wait counts.
func (m *meaning) join(other meaning) {
	first := *m
	if other.joinWeight() > first.joinWeight() {
		*m = other
	}
	m.noEffect = first.noEffect && other.noEffect
	m.markedNoEffect = first.markedNoEffect && other.markedNoEffect
	m.retryAfter = max(first.retryAfter, other.retryAfter)
}

func (m *meaning) joinWeight() weight {
	if m.neutral {
		return weightNone
	}
	return m.weight
}

// add adds what err itself means to the meaning of the error that it wraps.
func (m *meaning) add(err error) {
	switch x := err.(type) {
	case *Error:
		m.addError(x)
	case *marked:
		m.addMark(x)
	case *backoff.PermanentError:
		m.decide(ClassPermanent)
	case *notMade:
		m.decide(ClassTransient)
		m.weight, m.noEffect = weightDeclined, true
	case *repeated:
		if m.weight == weightDeclined {
			m.weight = weightTrouble // something else had failed before
		}
		m.noEffect, m.markedNoEffect = false, false
	case *PanicError:
		*m = meaning{weight: weightExplicit, class: ClassPermanent}

	default:
		switch {
		case err == ErrGoexit:
			m.decide(ClassPermanent)
		case is(err, context.Canceled):
			m.weight, m.class = weightNone, ClassCanceled
		case m.undecided():
			m.addEvidence(err)
		}
	}
}

// decide notes the class that an author chose. It overrides the errors within.
func (m *meaning) decide(c Class) {
	m.weight, m.class, m.neutral = weightExplicit, c, false
}

// addMark adds a mark. A rejection remains one if it is marked by MarkNoEffect.
func (m *meaning) addMark(x *marked) {
	if x.class == ClassNeutral {
		m.neutral = true
		return
	}

	if !x.noEffect || !m.rejected() {
		m.decide(x.class)
	}
	m.noEffect, m.markedNoEffect = x.noEffect, x.noEffect
}

// addError adds an *Error. Its cause proves that there was no effect only if the code is CONNECTION_LOST or
// TOOL_FAILED. With other codes it may be the last of several failures. RATE_LIMITED proves it by itself.
func (m *meaning) addError(e *Error) {
	cause := *m
	m.decide(e.meansClass())
	m.own, m.noEffect, m.markedNoEffect = e, false, false
	if e.RetryAfter > 0 {
		m.retryAfter = e.RetryAfter
	}

	switch e.Code {
	case CodeConnectionLost:
		m.noEffect = cause.noEffect
		if cause.weight == weightDeclined {
			m.weight = weightDeclined
		}
	case CodeToolFailed:
		m.noEffect = cause.noEffect
	case CodeRateLimited:
		m.refuse()
	case CodeTimeout:
		m.code, m.reason = CodeTimeout, timedOut
	case CodeRetryExhausted, CodeCanceled:
		if _, ofConnector := e.Err.(*notMade); ofConnector {
			m.weight, m.noEffect = weightDeclined, true
		}
	case CodeCircuitOpen, CodeOverloaded, CodeShuttingDown:
		m.weight = weightRejected
	}
}

// meansClass returns the class of a failure that e is returned for.
func (e *Error) meansClass() Class {
	switch code := e.Code; {
	case e.class != ClassTransient:
		return e.class
	case code == CodeValidation, code == CodeToolNotFound:
		return ClassInvalid
	case code == CodeCanceled:
		return ClassCanceled
	case code == CodeRetryExhausted:
		return ClassPermanent
	case e.Retryable, code == CodeTimeout, code == CodeConnectionLost, code == CodeCircuitOpen, code == CodeOverloaded,
		code == CodeRateLimited:
		return ClassTransient
	}
	return ClassPermanent
}

// judge completes m by the last report of the backend, nil if there is none, and by the class of a failure that nothing
// explains. Trouble in a report outweighs the type of the error. Any report explains an unknown error.
func (m *meaning) judge(report *meaning, unexplained Class) {
	trouble, limited := report.inTrouble(), report.limits()
	if trouble || limited {
		m.retryAfter = max(m.retryAfter, report.retryAfter)
	}

	switch {
	case m.unfinished():
		m.class = ClassInvalid
	case !m.undecided(): // an author or a rejection decides
	case limited && (trouble || m.weight == weightUnknown):
		m.limit()
	case trouble:
		m.trouble(report.code, report.reason)
		m.class = report.countedClass()
	case m.weight != weightUnknown: // its type has decided
	case report != nil:
		m.class = report.countedClass()
	case m.neutral:
		m.class = ClassNeutral
	default:
		m.class = unexplained
	}
}

// countedClass returns the class for breakers and retries.
func (m *meaning) countedClass() Class {
	if m.neutral {
		return ClassNeutral
	}
	return m.class
}

// isLost reports whether the connection was lost, rather than slow.
func (m *meaning) isLost() bool { return m.code == CodeConnectionLost && m.reason != networkTimeout }

// limit notes that a rate limit declined the request: the backend is alive, but doesn't answer now.
func (m *meaning) limit() {
	m.weight, m.class = weightDeclined, ClassTransient
	m.code, m.reason = CodeRateLimited, rateLimit
}

// rejected reports whether another guard, a Connector or a rate limit rejected what the tool asked for.
func (m *meaning) rejected() bool { return m.weight == weightRejected || m.weight == weightDeclined }

// undecided reports whether the types of errors and reports may still change what the failure means.
func (m *meaning) undecided() bool { return m.weight >= weightUnknown && m.weight < weightExplicit }

// unfinished reports whether the call isn't finished. A crash always ends it.
func (m *meaning) unfinished() bool { return !isCrash(m.err) && errors.Is(m.err, ErrUnfinished) }

// isTimeout reports whether the error only means that some deadline has passed.
func (m *meaning) isTimeout() bool {
	if m.own != nil {
		return m.own.Code == CodeTimeout && m.class == ClassTransient
	}
	return m.weight != weightExplicit && (m.code == CodeTimeout || m.reason == networkTimeout)
}

// is reports whether err itself, rather than an error that it wraps, is one of targets.
func is(err error, targets ...error) bool {
	asks, ok := err.(interface{ Is(error) bool })
	return slices.ContainsFunc(targets, func(t error) bool { return err == t || ok && asks.Is(t) })
}
