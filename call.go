package resilience

import (
	"context"
	"reflect"
	"sync/atomic"
	"time"
)

// A call is one run of a tool under a guard, and everything that is decided about it. Only the
// caller's goroutine uses it.
type call struct {
	entry
	scope       *scope
	asRequest   request // this call, as a request of the calls around it: their retry would repeat it
	current     *attempt
	last        error   // the last one that the tool itself returned
	lastBy      int     // the number of the attempt that did
	acted       bool    // an attempt may have had an effect
	lastOutcome outcome // of the last attempt; outcomePending if there is none
	orphaned    *orphan // this call, from when its agent won't learn how the tool ends until that is settled
	err         *Error
}

// A scope is the part of a call that a tool can reach by its context, for as long as it keeps that.
type scope struct {
	callContext
	guard       *Guard
	outer       *attempt
	first       attempt
	ticket      ticket        // unused if the call has an outerTicket
	toolTimeout time.Duration // without options
	unexplained Class         // of a failure of which nothing is known

	asked   atomic.Bool  // Pause was called, so a person may have been asked
	changes atomic.Int32 // requests that may have changed something
}

// do implements Do, Run, All and Wrap. It fills in r, even if a Cooperative tool ends the goroutine. Only a timed call
// has a Duration.
func do[T any](
	ctx context.Context, g *Guard, tool string, fn func(context.Context) (T, error), opts *options,
	r *Result[T], timed bool,
) {
	mustHave(ctx, g)
	if len(tool) > maxNameLen {
		tool = g.shortName(tool)
	}
	e := entry{guard: g, tool: tool, opts: opts, once: onceKey{value: reflect.TypeFor[T]()}}
	if len(g.observers) > 0 {
		ctx = e.notifyStart(ctx)
	}
	e.start = time.Now() // a slow observer doesn't use up the timeout

	if timed {
		defer func() { r.Duration = time.Since(e.start) }()
	}

	r.Tool = tool
	admitted, rejected := e.admit(ctx, fn == nil)
	if e.same != nil {
		r.Value, _ = (*e.same.result.Load()).(T)
		r.Joined = time.Since(e.same.start)
	}
	if e.same != nil || rejected != nil {
		r.Err = e.end(rejected)
		return
	}

	c, again := call{entry: e}, true
	c.begin(ctx, admitted)
	defer func() {
		if again { // a Cooperative tool has ended the goroutine
			c.decide(c.current.examine(ErrGoexit))
		}
		r.Err, r.Attempts = c.err, c.current.number
	}()
	for again {
		value, f, answered := attemptOnce(&c, fn)
		r.Value = value
		if answered && (c.orphaned != nil || ctx.Err() != nil) {
			c.settleOrphan(value, f)
		}
		again = c.decide(f)
	}
}

// begin starts the timeout.
func (c *call) begin(ctx context.Context, a admission) {
	s := &scope{guard: c.guard, outer: c.outer, toolTimeout: c.state.Timeout, unexplained: c.opts.request.Unexplained}
	if s.outer != nil && c.opts.request == noRequest {
		if around := s.outer.guarded(); around != nil {
			s.unexplained = around.scope.unexplained // a nested call takes unknown errors as its outer call does
		}
	}
	s.ticket.admission = a
	c.scope = s

	s.tool, s.start = c.tool, c.start
	s.begin(ctx, c.limits, !c.state.Cooperative)
	if s.outer != nil && !c.effect().repeatable() {
		c.asRequest = newRequest(ctx, true)
	}
}

// decide acts on the result of an attempt: it finishes the call, or returns true after the delay before
// the next attempt.
func (c *call) decide(f *failure) (again bool) {
	if f == nil {
		c.finish(nil, outcomeSuccess)
		return false
	}

	end := c.scope.endIfDue()
	c.note(f, end)
	if end != nil && !f.stands(end) {
		c.cutOff(end, f)
		return false
	}

	c.includeEarlier(f)
	if end == nil {
		return c.retry(f)
	}
	if !end.byTimeout || c.scope.hasLessTime() { // the caller left: that proves nothing against the backend
		f.outcome = outcomeNeutral
	}
	c.finish(c.errorOf(f), f.outcome)
	return false
}

// note remembers the error that the tool returned, unless it crashed or only returned the end of its context.
func (c *call) note(f *failure, end *ending) {
	echo := end != nil && (f.err == end.err || f.err == error(end.cause))
	if f.err != nil && !isCrash(f.err) && !echo {
		c.last, c.lastBy = f.err, c.current.number
	}
}

// includeEarlier merges the earlier attempts into f, and notes whether the tool may have had an effect.
func (c *call) includeEarlier(f *failure) {
	if f.noEffect && c.acted {
		f.noEffect, f.err = false, &repeated{f.err}
	}
	if f.rejected() && c.lastOutcome != outcomePending { // it mustn't hide that an earlier attempt has failed
		f.outcome = c.lastOutcome
	}
	c.lastOutcome = f.outcome

	changed := c.scope.changes.Load() > 0 // then only a mark proves anything
	c.acted = c.acted || !f.noEffect || changed && !f.markedNoEffect || c.scope.asked.Load()
	if !c.acted {
		c.scope.changes.Store(0) // a mark vouches for these requests, too
	}
}

// errorOf returns the error of a call whose last attempt has failed by f.
func (c *call) errorOf(f *failure) *Error {
	e := f.toError(c.tool)
	if c.lastBy != c.current.number {
		e.addCause(c.last) // of a crash, which isn't an error that the tool returned
	}
	if c.acted {
		e.forEffect(c.effect(), c.scope.changes.Load() > 0 || isCrash(f.err) || f.class == ClassNeutral)
	}
	return e
}

// cutOff finishes a call that the end of its context ended. f is the failure of the attempt at that time, or before.
// Only the tool's own timeout is a failure of the tool: a caller that leaves, or has less time, tells nothing about it.
func (c *call) cutOff(end *ending, f *failure) {
	e, o := end.cause.clone(), outcomeNeutral
	if f.err != error(end.cause) {
		e.addCause(f.err)
	}
	if c.lastBy != c.current.number {
		e.addCause(c.last)
	}
	if end.byTimeout && !c.scope.hasLessTime() {
		m := meaningOf(e)
		c.guard.classify(&m)
		o, e.class = m.outcome(), m.countedClass()
	}

	began := true
	if last := c.current.report.Load(); e.Code == CodeTimeout && last.inTrouble() { // its client retries by itself
		began = !last.noEffect || c.scope.changes.Load() > 0
		e.RetryAfter = last.retryAfter
		e.suggest(nil)
		if last.code != "" && last.code != CodeTimeout {
			e.Message += "; the last attempt: " + last.reason
		}
		if last.limits() {
			o = outcomeNeutral
		}
	}

	c.acted = c.acted || began // as far as anyone knows
	if c.acted {
		e.forEffect(c.effect(), false)
	}
	c.finish(e, o)
}

// effect returns what running the tool again may do. A question to a person must not be repeated.
func (c *call) effect() Effect {
	if c.scope.asked.Load() {
		return NonIdempotent
	}
	return c.declaredEffect()
}

// finish ends the call with its outcome. e is nil after a success.
func (c *call) finish(e *Error, o outcome) {
	c.scope.finish(returned)
	if e != nil && !c.acted {
		c.asRequest.count(-1)
	}

	counted := false
	if c.outerTicket == nil {
		counted = c.scope.ticket.settle(o, e.why()) && o == outcomeFailure
	}
	if o == outcomeFailure {
		e.expect(c.breaker)
	}
	switch seen := c.state.reported.Load(); {
	case !seen && c.current.report.Load() != nil:
		c.state.reported.Store(true)
	case !seen && e != nil:
		c.noteUnexplained(e)
	}

	if e != nil {
		c.present(e, c.current.number)
		c.err = e
	}
	if counted {
		c.state.noteError(e)
	}
	if c.observed != nil {
		c.notifyEnd(e, c.current.number, counted)
	}
	c.exit()
}
