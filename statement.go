package resilience

import (
	"slices"

	"github.com/cenkalti/backoff/v4"
)

// A statement is what a program says on purpose by an error, or by one that it wraps.
type statement struct {
	explicit *Error // the outermost one, nil if there is none
	rejects  *Error // a rejection that has given way, which agents read if nothing else says anything
	neutral  bool   // it doesn't count, around all that follows: by a mark, or as a failure of a call within the tool
	said     bool   // what the error means, which is
	says     Class
	timeout  bool // an *Error says so, which is TIMEOUT
	derived  bool // an *Error says so that was made of what it wraps
	final    bool // it is marked as a failure that another try won't help, outside of any *Error
	notMade  bool // nothing but rejections by connectors is in it
	rejected bool // nothing but rejections of other calls, which the tool made, is in it
	nested   bool // such a rejection is in it
	counted  bool // the breaker of a call within has counted it, and no program has said otherwise since
}

// join adds the statement of another one of several errors, of the same rank, or of a lower one that has given way.
func (s *statement) join(inner *statement) {
	// What a program says on purpose is better than what was derived, and trouble than what isn't counted.
	better := s.derived && inner.said && (!inner.derived || s.says.neutral() && !inner.says.neutral())
	if inner.explicit != nil && (better || s.explicit.saysNothing()) || better && s.explicit.isAsSealed() {
		s.explicit = inner.explicit
	}
	if s.rejects == nil {
		s.rejects = inner.rejects
	}

	if !s.said || better {
		s.said, s.says, s.timeout, s.derived = inner.said, inner.says, inner.timeout, inner.derived
	}
	s.neutral = s.neutral || inner.neutral
	s.final = s.final || inner.final
	s.notMade = s.notMade && inner.notMade
	s.rejected = s.rejected && inner.rejected
	s.nested = s.nested || inner.nested
	s.counted = s.counted || inner.counted
}

// addStatement adds what err itself says. The outermost error counts. What its As method finds within was read there.
func (s *statement) addStatement(err error, within []*Error) {
	switch x := err.(type) {
	case *marked:
		if x.class == ClassNeutral {
			s.neutral, s.counted = true, false
			break
		}
		s.say(x.class)
		s.final = x.class != ClassTransient
		if !x.noEffect { // the program knows better
			s.notMade, s.rejected = false, false
		}
	case *backoff.PermanentError:
		s.say(ClassPermanent)
		s.final = true
	case *PanicError:
		s.say(ClassPermanent)
		s.notMade = false
	case *notMade: // why there is no connection was counted where it was
		s.notMade, s.counted = true, false
	case *repeated:
		s.notMade = false
	case *Error:
		s.addError(x)
	default:
		if e, ok := asItself[*Error](err); ok && !slices.Contains(within, e) {
			s.addError(e)
		}
		if err == ErrGoexit {
			s.say(ClassPermanent)
		}
	}
}

// addError adds what an *Error says, which speaks for itself.
func (s *statement) addError(e *Error) {
	k := e.holds()
	s.explicit, s.derived, s.final = e, k.derived && (!s.said || s.derived), false
	s.said, s.says = !e.saysNothing() || k.outcome == outcomeFailure, e.class()
	s.neutral = s.says == ClassNeutral || k.bare && k.outcome == outcomeNeutral
	s.timeout = e.Code == CodeTimeout && k.class == ClassTransient
	if k.derived && e.Code == CodeRetryExhausted {
		s.timeout = e.LastCode == CodeTimeout
	}

	switch {
	case k.outcome == outcomeFailure:
		s.counted = true
	case s.says.neutral(), e.isRejection():
		s.counted = false
	}

	if (e.Code == CodeTimeout || e.Code == CodeCanceled) && !e.isOfConnector() {
		s.notMade = false // something began, and was ended; the cause may be that of an earlier attempt
	}
	if e.Code != CodeRetryExhausted {
		s.rejected = e.isRejection() && (!k.derived || s.rejected)
		s.nested = s.nested || s.rejected
	}
}

func (s *statement) say(c Class) {
	s.neutral, s.said, s.says, s.timeout, s.derived = false, true, c, false, false
	s.counted = s.counted && !c.neutral()
}

// isOfConnector reports whether a [Connector] has made e after several dials, or for a context that has ended.
func (e *Error) isOfConnector() bool {
	_, unmade := e.Err.(*notMade)
	return unmade && (e.Code == CodeRetryExhausted || e.Code == CodeTimeout || e.Code == CodeCanceled)
}
