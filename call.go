package resilience

import (
	"cmp"
	"context"
	"time"
)

// A call is one run of a tool under a guard, and all that is decided about it. Only the
// caller's goroutine uses it.
type call struct {
	guard     *Guard
	state     *toolState    // nil until the call has come to a tool
	keyed     *keyedBreaker // nil unless the call has a breaker of its key
	crowded   bool          // there was no room for one
	ctx       callContext   // begins once the call is admitted
	ticket    ticket        // unused if the call belongs to one around it, on the same breaker
	options   options
	observers *callObservers // nil if there are no observers

	attempts  int
	past      past
	within    request // for the calls around this one; nil if there are none, or it changes nothing
	arguments any     // redacted, with debug only

	effect     Effect // what options.effect returned
	harmless   bool   // the attempts have certainly left everything as it was
	outcome    outcome
	unfinished bool   // the tool returned ErrUnfinished
	nested     bool   // its error holds the rejection of another call
	isolations uint32 // of the tool's own breaker when the call began
	running    bool   // it is one of the calls that Tool.MaxInFlight bounds

	err      *Error
	duration time.Duration
}

// A job is a call and the runner of its function.
type job[T any] struct {
	call
	runner runner[T]
}

func newJob[T any](g *Guard, name string, o options) *job[T] {
	j := &job[T]{call: call{guard: g, options: o}}
	j.ctx.name = name
	j.ctx.backend.unexplained = o.unexplained
	return j
}

// do implements Do, Run, All and Wrap. It may be called once.
func (j *job[T]) do(ctx context.Context, fn func(context.Context) (T, error)) (value T) {
	c, g := &j.call, j.guard
	mustHave(ctx, g)
	c.ctx.name = g.shortName(c.ctx.name)
	if len(g.observers) > 0 {
		ctx = c.notifyStart(ctx)
	}
	c.ctx.start = time.Now().Add(-c.options.elapsed) // a slow observer doesn't use up the timeout

	defer func() {
		if c.outcome == outcomePending { // a Cooperative tool or OnRetry called Goexit, or a method of ctx panicked
			c.crash(panicError(recover()))
		}
	}()

	if invalid := c.check(ctx, fn == nil); invalid != nil {
		c.finish(invalid, outcomeNeutral)
		return value
	}
	if rejected := c.begin(ctx); rejected != nil {
		c.finish(rejected, outcomeNeutral)
		return value
	}

	if c.ctx.ticket.isProbe() && !c.options.waits { // its breaker may have asked a fleet first
		if ended, _ := c.ctx.ended(); ended != nil {
			c.finish(ended.clone(), outcomeNeutral)
		}
	}
	for c.outcome == outcomePending {
		var f *failure
		var answered bool
		value, f, answered = j.attempt(fn)
		c.decide(f, answered)
	}
	return value
}

// crash finishes a call that can't go on, with its crash.
func (c *call) crash(err error) {
	if !c.begun() {
		c.finish(crashError(c.ctx.name, err).(*Error), outcomeFailure)
		return
	}

	c.past.attempt = 0 // whatever the tool has returned, it isn't this
	c.decide(newFailureAlone(err, &c.ctx, false), true)
}

// result returns the result of a call that has ended.
func (j *job[T]) result(tool string, value T) Result[T] {
	return Result[T]{Tool: tool, Value: value, Err: j.err, Attempts: j.attempts, Duration: j.took()}
}

// check returns why there is nothing to call, nil if there is.
func (c *call) check(ctx context.Context, nilFunc bool) *Error {
	if err := checkName(c.ctx.name); err != nil {
		return err
	}
	if err := checkFunc(ctx, c.ctx.name, nilFunc); err != nil {
		return err
	}

	if c.options.invalid != nil {
		e := c.options.invalid.clone()
		e.Tool = c.ctx.name
		return e
	}
	if d := c.options.timeout; c.options.timeoutSet && d <= 0 {
		return validationError(c.ctx.name, "The timeout of this call is %s: it must be positive", d)
	}
	if c.options.waits {
		return nil
	}
	return endOf(ctx, c.ctx.name)
}

// begin asks the breaker and starts the timeout, or returns why the call can't be made. The methods of
// ctx may panic: it calls none once the breaker has admitted the call.
func (c *call) begin(ctx context.Context) *Error {
	if c.debug() && c.options.args != nil {
		c.arguments = c.redact(c.options.args)           // now, because an abandoned tool may change them at any time
		c.ctx.start = time.Now().Add(-c.options.elapsed) // nor does a slow argument
	}

	deadline, around := c.ctx.sinceStart(ctx.Deadline()), innermost(ctx)
	if around != nil && c.options.request == nil {
		c.ctx.backend.unexplained = around.backend.unexplained // an agent's mistake is one at any depth
	}
	closed := func() bool { return c.guard.isClosed() && !c.guard.serves(ctx, "") }
	if closed() {
		return shuttingDownError(c.ctx.name)
	}
	s := c.guard.enter(c.ctx.name, c.options.shared)
	if closed() { // again: once Close sees the call, it waits for it
		s.leave()
		return shuttingDownError(c.ctx.name)
	}
	c.state = s
	c.ctx.clock = c.newClock() // also for what a rejected call reports
	c.ctx.clock.deadline = deadline
	if rejected := c.admit(ctx); rejected != nil {
		return rejected
	}
	attended := !s.cooperative && s.attemptTimeout == 0
	c.ctx.begin(ctx, attended)
	if around != nil && !c.toolEffect().repeatable() {
		var within request
		if c.ctx.askAside(func(*callContext) { within = ask(func() request { return newRequest(ctx, true) }) }) {
			c.within = within
		}
	}
	return nil
}

// admit returns why the call is rejected, nil if its breaker and the limits of its tool let it pass.
func (c *call) admit(ctx context.Context) *Error {
	s, breaker := c.state, c.enterBreaker(ctx)
	c.ctx.ticket = ticketOf(ctx, breaker)
	bounded := s.maxInFlight > 0 && !c.guard.serves(ctx, c.ctx.name)
	if !s.used.Load() { // all calls of the tool share it, and reading is cheaper
		s.used.Store(true)
	}
	if c.options.elapsed >= c.ctx.clock.timeout {
		return TimeoutError(c.ctx.name, c.ctx.clock.timeout) // before the tool had any time
	}
	if c.ctx.ticket == nil {
		timeout, maximum := c.toolTimeouts()
		end, _ := c.ctx.clock.end()
		if rejected := breaker.admit(&c.ticket, timeout, maximum, end-c.options.elapsed); rejected != nil {
			rejected.Tool = c.ctx.name
			return rejected
		}
		c.ctx.ticket = &c.ticket
	}
	if c.guard.overloaded(s, c.impatient()) {
		c.settle(outcomeNeutral)
		return overloadedError(c.ctx.name, "Too many earlier calls of")
	}
	if bounded {
		if c.running = s.admit(); !c.running {
			c.settle(outcomeNeutral)
			return overloadedError(c.ctx.name, "Too many calls of")
		}
	}
	return nil
}

// enterBreaker returns the breaker of the call: that of its key, if it has one and there is room for it. Otherwise,
// or if the tool is isolated, that is the tool's own, unless the call belongs to one around it.
func (c *call) enterBreaker(ctx context.Context) *Breaker {
	key := c.options.breakerKey()
	if key != "" && c.state != c.guard.others {
		c.keyed = c.guard.enterKey(c.state, key)
		c.crowded = c.keyed == nil
	}

	own := c.state.breaker
	c.isolations = own.isolations.Load()
	if c.keyed == nil || own.isolated() && ticketOf(ctx, c.keyed.Breaker) == nil {
		return own
	}
	return c.keyed.Breaker
}

// toolIsolated reports whether the tool's own breaker is isolated, or has been since a call with a key began: that
// concerns the calls of all its keys.
func (c *call) toolIsolated() bool {
	own := c.state.breaker
	return own.isolated() || own.isolations.Load() != c.isolations
}

// current reports whether the call's breakers would still admit it.
func (c *call) current() bool { return c.ctx.ticket.current() && !c.state.breaker.isolated() }

// settle reports the outcome to the breaker, unless the call belongs to one around it, and whether it counts.
func (c *call) settle(o outcome) (counted bool) {
	if c.ctx.ticket != &c.ticket && !c.outlives(o) {
		return false
	}
	if c.crowded && !(o == outcomeSuccess && c.ticket.isProbe()) || c.keyed != nil && c.toolIsolated() {
		o = outcomeNeutral
	}
	return c.ticket.settle(o, c.nested) && o != outcomeNeutral
}

// outlives reports whether the call, which belongs to one around it, has outlived that, and has a ticket of its own now.
func (c *call) outlives(o outcome) bool {
	around := c.ctx.ticket
	if around == nil || around.state.Load() != ticketUsed || o == outcomeNeutral {
		return false
	}
	alone := false
	asked := c.ctx.askAside(func(ctx *callContext) { alone = around.isOutlived(ctx.parent) })
	return asked && alone && c.ticket.outlive(around)
}

// begun reports whether begin has let the call pass.
func (c *call) begun() bool { return c.ctx.parent != nil }

// toolTimeouts returns the timeout and the maximum of the tool itself.
func (c *call) toolTimeouts() (timeout, maximum time.Duration) {
	if c.state == c.guard.others {
		timeout = c.guard.Timeout(c.ctx.name)
		return timeout, timeout
	}

	return c.state.timeout, c.state.maxTimeout
}

// newClock returns the clock of the whole call. Without a MaxTimeout, its timeout is its
// maximum too.
func (c *call) newClock() clock {
	own, maximum := c.toolTimeouts()
	timeout, hasMaximum := own, maximum > own
	if c.options.timeoutSet {
		timeout = min(c.options.timeout, maximum)
	}
	if !hasMaximum {
		maximum = timeout
	}
	whole := newClock(timeout, maximum)
	whole.own, whole.before = own, c.options.elapsed
	return whole
}

// toolEffect returns the tool's effect. Only failures need it. A question to a person is an effect
// of its own, which must not be repeated.
func (c *call) toolEffect() Effect {
	if c.ctx.asked.Load() {
		return NonIdempotent
	}
	if f := c.options.effect; f != nil && !c.state.listed {
		c.options.effect = nil
		c.effect = askEffect(f)
	}
	return cmp.Or(c.effect, c.state.effect)
}

// finish ends every call, once. e must be this call's own.
func (c *call) finish(e *Error, o outcome) {
	c.outcome = o
	counted := false
	if c.begun() {
		c.ctx.stop()
		counted = c.settle(o)
		if c.within != nil {
			c.within.end(&verdict{silent: true, noEffect: c.harmless})
		}
	}

	if e != nil || c.observers != nil {
		c.took()
	}
	if e != nil {
		c.present(e)
		c.err = e
	}
	failed := counted && o == outcomeFailure
	if failed {
		c.keep(c.err)
	}
	c.notifyEnd(failed)
	c.leave()
	c.options, c.arguments, c.past = options{}, nil, past{} // a tool may keep its context, and the call with it
}

// keep keeps a copy of e for Health.
func (c *call) keep(e *Error) {
	var kept *Error
	if c.past.failure != nil {
		kept = &c.past.failure.kept
	} else {
		kept = new(Error)
	}
	*kept = *e
	kept.Details = nil
	c.state.lastErr.Store(kept)
}

// leave is called last, so that Close sees a call until its end has been notified.
func (c *call) leave() {
	if c.running {
		c.state.release()
	}
	if c.keyed != nil {
		c.keyed.leave()
	}
	if c.state != nil {
		if !c.state.found.Load() && c.hasComeToTool() {
			c.state.found.Store(true)
		}
		c.state.leave()
	}
}

// hasComeToTool reports whether a call that has ended shows that there is such a tool. A program knows its
// tools, but a name in a client's request may be made up, which is a mistake of the client's.
func (c *call) hasComeToTool() bool {
	e := c.err
	if e == nil || c.options.request == nil || c.unfinished {
		return true
	}

	switch e.Code {
	case CodeValidation, CodeToolNotFound, CodeCanceled, CodeCircuitOpen, CodeOverloaded, CodeShuttingDown:
		return false
	case CodeTimeout:
		return c.outcome == outcomeFailure // of the tool's own
	}
	return true
}

// sinceBegun returns how long ago the call began. The context's time is since the request was received.
func (c *call) sinceBegun() time.Duration { return c.ctx.elapsed() - c.options.elapsed }

// took returns how long the call took, once it has ended. Most successes don't need it.
func (c *call) took() time.Duration {
	if c.duration == 0 {
		c.duration = c.ctx.elapsed()
	}

	return c.duration
}
