package resilience

import (
	"context"
	"errors"
)

// An outcome is what the end of a call means to its breaker.
type outcome uint8

const (
	outcomePending outcome = iota // the call has not ended
	outcomeSuccess
	outcomeFailure
	outcomeNeutral // counts neither way, and gives the slot of a probe back
)

// A failure is what the error of an attempt means to its call.
type failure struct {
	meaning
	outcome      outcome
	inconclusive bool // a timeout of a caller with less time than the tool's timeout
}

// examine returns what the error of a tool means, nil if there is none. It calls methods of the error, and
// Config.Classify. If a method panics, the tool has failed by that panic.
func (a *attempt) examine(err error) (f *failure) {
	if err == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			f = &failure{meaning: read(panicError(p)), outcome: outcomeFailure}
		}
	}()

	s, report := a.scope, a.report.Load()
	f = &failure{meaning: read(err)}
	if report.inTrouble() && report.noEffect && f.weight == weightUnknown {
		var again *repeated
		f.noEffect = !errors.As(err, &again) // the last request was refused, and the error has no meaning of its own
	}
	f.judge(report, s.unexplained)
	if f.class == ClassCanceled && f.own == nil {
		f.class = ClassNeutral // the tool has canceled something: the caller is still there
	}
	s.guard.classify(&f.meaning)
	if f.own != nil {
		f.own = s.guard.scrubbed(f.own)
	}

	f.outcome = f.meaning.outcome()
	if s.hasLessTime() && f.isTimeout() {
		f.inconclusive, f.outcome = true, outcomeNeutral
	}
	return f
}

// mayBeRepeated reports whether another attempt may help, as far as the failure is concerned.
func (f *failure) mayBeRepeated() bool {
	return f.countedClass() == ClassTransient && f.weight != weightRejected && !f.inconclusive
}

// outcome returns what the error means to a breaker.
func (m *meaning) outcome() outcome {
	if m.countedClass().neutral() || m.rejected() {
		return outcomeNeutral
	}
	return outcomeFailure
}

// hasLessTime reports whether the call has less time than the tool's own timeout, by an option or by its caller's
// deadline. Then a timeout proves nothing against the tool.
func (s *scope) hasLessTime() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.limits
	short := l.timeout < s.toolTimeout && l.due-l.paused() < s.toolTimeout // and no progress has made up for that
	return short || s.deadline < l.due
}

// classify asks Config.Classify, which decides unless the tool crashed or isn't finished. The error that it receives
// has the class that the guard has found, for the package's Classify.
func (g *Guard) classify(m *meaning) {
	if g.cfg.Classify == nil || m.unfinished() || isCrash(m.err) {
		return
	}

	class := m.countedClass()
	asked := ask(g, "Config.Classify", class, func() Class { return g.cfg.Classify(mark(m.err, class, false)) })
	if asked == class {
		return
	}
	m.class, m.neutral = asked, false
	if m.rejected() {
		m.weight = weightTrouble
	}
}

// stands reports whether the error stands although the call has ended. Usually a tool only returns the end of its
// context then. But an *Error with another code stands, and after a timeout a mark that means more than TIMEOUT.
func (f *failure) stands(end *ending) bool {
	if isCrash(f.err) {
		return false
	}
	if f.own != nil {
		return f.own.Code != CodeTimeout && f.own.Code != CodeCanceled
	}
	marked := f.weight == weightExplicit && (f.class != ClassTransient || f.noEffect)
	return end.err == context.DeadlineExceeded && (marked || f.neutral || f.unfinished())
}
