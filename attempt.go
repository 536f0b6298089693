package resilience

import (
	"context"
	"sync/atomic"
)

// An attempt is the context that a tool receives. Each attempt of a guarded call has one, so that
// what is left of an earlier attempt can't speak for a later one, and so has each call of
// [WithBreaker].
type attempt struct {
	context.Context          // ends with the call
	scope           *scope   // of the call; nil for WithBreaker
	outer           *attempt // around the call; nil if there is none
	ticket          *ticket  // of the call
	number          int      // counted from 1

	report atomic.Pointer[meaning] // of the backend's last answer; nil if there is none
	over   atomic.Bool             // the attempt has ended
}

type (
	scopeKey   struct{} // of the innermost *attempt
	attemptKey struct{} // of the number of the innermost attempt, an int
)

// Value answers for the attempt.
func (a *attempt) Value(key any) any {
	switch key.(type) {
	case scopeKey:
		return a
	case attemptKey:
		if a.scope != nil {
			return a.number
		}
	}
	return a.Context.Value(key)
}

// String keeps fmt from reading the fields of a context that is in use.
func (a *attempt) String() string { return "resilience.attempt" }

// attemptOf returns the innermost attempt that ctx belongs to, nil if there is none.
func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(scopeKey{}).(*attempt)
	return a
}

// guardedAttempt returns the innermost attempt of a guarded call that ctx belongs to, nil if there is none.
func guardedAttempt(ctx context.Context) *attempt { return attemptOf(ctx).guarded() }

// guarded returns a, or the next attempt around it, if that is of a guarded call. Like the following
// methods, it may be called on nil.
func (a *attempt) guarded() *attempt {
	for a != nil && a.scope == nil {
		a = a.outer
	}
	return a
}

// ticketOf returns the ticket of the call that b has admitted and that a belongs to, nil if there is none.
func (a *attempt) ticketOf(b *Breaker) *ticket {
	for ; a != nil; a = a.outer {
		if a.ticket.b == b && !a.ticket.used.Load() {
			return a.ticket
		}
	}
	return nil
}

// belongsTo reports whether a belongs to a call of g that goes on, of the tool, or of any if that is empty.
func (a *attempt) belongsTo(g *Guard, tool string) bool {
	for ; a != nil; a = a.outer {
		if s := a.scope; s != nil && s.guard == g && (tool == "" || tool == s.tool) && s.end.Load() != returned {
			return true
		}
	}
	return false
}
