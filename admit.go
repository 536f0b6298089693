package resilience

import (
	"cmp"
	"context"
	"time"
)

// An entry is what is known of a call before its tool runs. Only the caller's goroutine uses it.
type entry struct {
	guard       *Guard
	tool        string
	opts        *options
	start       time.Time
	observed    context.Context // for observers: with values of theirs, without an end; nil if there are none
	arguments   any             // redacted, with debug only
	outer       *attempt        // around the call; nil if there is none
	state       *toolState      // nil until the call has come to a tool
	breaker     *Breaker        // nil until then
	outerTicket *ticket         // of the call around it that the breaker has admitted, and that counts; nil if none
	limits      limits          // of the whole call; zero until then
	once        onceKey         // without a sum if no call is the same
	same        *orphan         // the same call, whose result this one returns; nil if there is none
}

// check returns why there is nothing to call, nil if there is.
func (e *entry) check(ctx context.Context, nilFunc bool) *Error {
	o := e.opts
	switch {
	case e.tool == "":
		return validationError("", "The tool's name is empty")
	case nilFunc:
		return checkFunc(ctx, e.tool, nilFunc)
	case o.invalid != nil:
		invalid := o.invalid.clone()
		invalid.Tool = e.tool
		return invalid
	case o.timeoutSet && o.timeout <= 0:
		return validationError(e.tool, "The timeout of this call is %s: it must be positive", o.timeout)
	case !o.waits:
		return endOf(ctx, e.tool)
	}
	return nil
}

// admit asks everything that may reject the call: the guard, the breaker, and the limits of the tool. It may wait, as a
// part of the call's timeout. A call within one that the breaker has admitted has no admission of its own.
func (e *entry) admit(ctx context.Context, nilFunc bool) (a admission, rejected *Error) {
	if rejected := e.check(ctx, nilFunc); rejected != nil {
		return a, rejected
	}
	if e.opts.args != nil && e.debug() {
		e.arguments = redactValue(e.opts.args, 1) // now, since an abandoned tool may change them
	}

	g := e.guard
	e.outer = attemptOf(ctx)
	g.inFlight.Add(1) // before closed is read, so that Close waits for the call
	if g.closed.Load() && !e.outer.belongsTo(g, "") {
		g.inFlight.Add(-1)
		return a, shuttingDownError(e.tool)
	}

	s := g.state(e.tool, !e.opts.request.Unknown)
	e.state = s
	e.breaker = g.breakerOf(s, e.opts)
	e.setLimits()
	over, rejected := e.enter(ctx)
	if e.same != nil || rejected != nil {
		return a, rejected
	}

	if e.outer != nil && s != g.others { // others are many backends
		e.outerTicket = e.outer.ticketOf(e.breaker)
	}
	if e.outerTicket == nil {
		if a, rejected = e.breaker.admit(e.limits.maximum); rejected != nil {
			s.leave() // until it is admitted or ends: a call that is held takes no place of Tool.MaxInFlight
			a, rejected = e.hold(ctx, rejected)
			over = e.isOver(s.inFlight.Add(1))
		}
		if rejected != nil {
			rejected.Tool = e.tool
			return a, rejected
		}
	}
	switch {
	case g.overloaded(s):
		rejected = overloadedError(e.tool, "earlier calls")
	case over:
		rejected = overloadedError(e.tool, "calls")
	}
	if rejected != nil && a.b != nil {
		(&ticket{admission: a}).settle(outcomeNeutral, "")
	}
	return a, rejected
}

// enter waits for the same call, counts this one among those in flight, and waits for a slot if the tool has a MaxWait.
// It reports whether the call is over the tool's MaxInFlight.
func (e *entry) enter(ctx context.Context) (over bool, rejected *Error) {
	e.same, rejected = e.join(ctx)
	over = e.isOver(e.state.inFlight.Add(1))
	if e.same != nil || rejected != nil {
		return over, rejected
	}

	if over && e.state.MaxWait > 0 && e.breaker.State() == StateClosed {
		return false, e.waitInLine(ctx)
	}
	return over, nil
}

// isOver reports whether the n-th call in flight is over the tool's MaxInFlight.
func (e *entry) isOver(n int64) bool {
	s := e.state
	return s.MaxInFlight > 0 && n > int64(s.MaxInFlight) && !e.outer.belongsTo(e.guard, e.tool)
}

// end ends a call that was rejected, or whose result is that of the same call.
func (e *entry) end(rejected *Error) *Error {
	if rejected != nil {
		e.present(rejected, 0)
	}
	if e.observed != nil {
		e.notifyEnd(rejected, 0, false)
	}
	if e.state != nil {
		e.exit()
	}
	return rejected
}

// declaredEffect returns what running the tool again may do, by its configuration or, if that doesn't list it with an
// effect, by its annotations.
func (e *entry) declaredEffect() Effect {
	if e.state.listed {
		return cmp.Or(e.state.Effect, e.opts.request.Effect)
	}
	return cmp.Or(e.opts.request.Effect, e.state.Effect)
}

// exit is called last, so that Close waits until the observers have been notified.
func (e *entry) exit() {
	e.state.leave()
	e.guard.inFlight.Add(-1)
}

// setLimits sets the limits of the whole call. Without a MaxTimeout, its timeout is its maximum too.
func (e *entry) setLimits() {
	timeout, maximum := e.state.Timeout, e.state.MaxTimeout
	if extensible := maximum > timeout; e.opts.timeoutSet {
		timeout = e.opts.timeout
		if e.opts.capped {
			timeout = min(timeout, maximum)
		}
		if !extensible || timeout > maximum {
			maximum = timeout
		}
	}
	e.limits = newLimits(timeout, maximum)
}
