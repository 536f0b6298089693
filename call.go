package resilience

import (
	"context"
	"time"
)

// A call is one run of a tool under a guard, and all that is decided about it. Only the
// caller's goroutine uses it.
type call struct {
	guard     *Guard
	state     *toolState  // nil until the call has come to a tool
	ctx       callContext // begins once the call is admitted
	ticket    ticket      // unused if the call belongs to one around it, on the same breaker
	options   options
	observers *callObservers // nil if there are no observers

	attempts   int
	lastErr    error  // the last one that the tool itself returned
	effect     Effect // what options.effect returned
	arguments  any    // redacted, with debug only
	outcome    outcome
	unfinished bool // the tool returned ErrUnfinished

	err      *Error
	duration time.Duration
}

// A job is a call and the runner of its function.
type job[T any] struct {
	call
	runner runner[T]
}

// do implements Do, Run, All and Wrap.
func do[T any](
	ctx context.Context, g *Guard, name string, fn func(context.Context) (T, error), o options,
) (value T, c *call) {
	mustHave(ctx, g)
	j := &job[T]{call: call{guard: g, options: o}}
	c = &j.call
	c.ctx.name = name
	if len(g.observers) > 0 {
		ctx = c.notifyStart(ctx)
	}
	c.ctx.start = time.Now() // a slow observer doesn't use up the timeout

	defer func() {
		if c.outcome == outcomePending { // a Cooperative tool called runtime.Goexit
			c.finish(crashError(name, ErrGoexit).(*Error), outcomeFailure)
		}
	}()

	if invalid := c.check(ctx, fn == nil); invalid != nil {
		c.finish(invalid, outcomeNeutral)
		return value, c
	}
	if rejected := c.begin(ctx); rejected != nil {
		c.finish(rejected, outcomeNeutral)
		return value, c
	}

	for c.outcome == outcomePending {
		var failure errorTree
		var answered bool
		value, failure, answered = j.attempt(fn)
		c.decide(failure, answered)
	}
	return value, c
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
	return endOf(ctx, c.ctx.name)
}

// begin asks the breaker and starts the timeout, or returns why the call can't be made.
func (c *call) begin(ctx context.Context) *Error {
	if c.debug() && c.options.args != nil {
		// Now, because an abandoned tool may change them at any time.
		c.arguments = redactValue(c.options.args, &budget{}, 1)
	}

	unknown := false
	if c.options.unknown != nil {
		unknown = c.isUnknown(ctx)
		if e := endOf(ctx, c.ctx.name); e != nil { // it has taken some time
			return e
		}
	}
	s := c.guard.stateOf(c.ctx.name, unknown)
	if !s.used.Load() { // all calls of the tool share it, and reading is cheaper
		s.used.Store(true)
	}
	c.state = s
	c.ctx.clock = c.newClock() // also for what a rejected call reports

	c.ctx.ticket = ticketOf(ctx, s.breaker)
	if c.ctx.ticket == nil {
		_, maximum := c.toolTimeouts()
		if rejected := s.breaker.admit(&c.ticket, maximum); rejected != nil {
			rejected.Tool = c.ctx.name
			return rejected
		}
		c.ctx.ticket = &c.ticket
	}
	if c.guard.overloaded(s) {
		c.settle(outcomeNeutral)
		return overloadedError(c.ctx.name)
	}

	s.inFlight.Add(1)
	attended := !s.cooperative && c.guard.cfg.AttemptTimeout == 0
	c.ctx.begin(ctx, attended)
	if c.ticket.isProbe() {
		c.ticket.probe.Store(&c.ctx)
	}
	return nil
}

// isUnknown asks whether the server lacks the tool, which may take half of the call's timeout.
func (c *call) isUnknown(ctx context.Context) bool {
	limit := c.guard.Timeout(c.ctx.name)
	if c.options.timeoutSet {
		limit = min(limit, c.options.timeout)
	}
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, max(time.Until(deadline), 0))
	}
	return ask(c.options.unknown, limit/2)
}

// timeLeft returns how long the call may go on without progress, which is zero once it has ended.
func (c *call) timeLeft() time.Duration {
	if c.ctx.Err() != nil {
		return 0
	}
	return max(c.ctx.left(), 0)
}

// settle reports the outcome to the breaker, unless the call belongs to one around it.
func (c *call) settle(o outcome) {
	if c.ctx.ticket == &c.ticket {
		c.ticket.settle(o)
	}
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
	whole.own = own
	return whole
}

// attempt calls fn once. If fn isn't answered, it is abandoned because the call has ended.
func (j *job[T]) attempt(fn func(context.Context) (T, error)) (value T, failure errorTree, answered bool) {
	j.attempts++
	ctx, r := &j.ctx, &j.runner
	if timeout := j.guard.cfg.AttemptTimeout; timeout > 0 {
		maximum := timeout
		if whole := &j.ctx.clock; whole.maximum > whole.timeout {
			maximum = max(timeout, whole.maximum) // progress restarts this timeout too
		}
		ctx = newCallContext(ctx, ctx.name, timeout, maximum, !j.state.cooperative)
		defer ctx.stop()
		r = new(runner[T]) // the one of an earlier attempt may still run
	}

	var err error
	ctx.attempt.Store(int32(j.attempts)) // in its own context where an earlier attempt may still run
	if j.state.cooperative {
		value, err = protect(ctx, fn)
		answered = true
	} else {
		value, err, answered = r.run(ctx, &j.state.abandoned, j.late(ctx), fn)
	}
	ctx.endPauses()
	if answered && err == nil {
		return value, failure, true
	}

	failure = treeOf(err)
	if err != nil && !failure.echoes(ctx) {
		j.lastErr = failure.err
	}
	if ctx == &j.ctx {
		return value, failure, answered
	}

	// If only the attempt has ended, that is an error of the tool like any other.
	if whole, _ := j.ctx.ended(); whole == nil {
		ended, _ := ctx.ended()
		if e := endedWith(ended, failure.err); e != nil {
			return value, treeOf(j.withLast(e)), true
		}
	}
	return value, failure, answered
}

// withLast returns e with the last error of the tool itself among its causes, if an earlier
// attempt returned that.
func (c *call) withLast(e *Error) *Error {
	if c.lastErr == nil || treeOf(e).is(c.lastErr) {
		return e
	}

	return e.withCause(c.lastErr)
}

// decide acts on the result of an attempt: it finishes the call, or waits until the next
// attempt may be made.
func (c *call) decide(failure errorTree, answered bool) {
	if answered && failure.err == nil {
		c.finish(nil, outcomeSuccess)
		return
	}

	err := failure.err
	ended, ownTimeout := c.ctx.ended()
	if e := endedWith(ended, err); e != nil {
		c.cutOff(c.withLast(e), ownTimeout)
		return
	}

	d := diagnose(failure, c.state.retry.Classify)
	c.unfinished = d.unfinished
	o := failure.outcome(c.guard.cfg.Breaker.Classify, ended == nil)
	if ended != nil {
		// The tool's own *Error stands, but an end that the caller brought makes it neutral.
		if !ownTimeout {
			o = outcomeNeutral
		}
		c.finish(c.failure(d, err), o)
		return
	}
	if d.class == ClassCanceled && failure.bareCancel() {
		d = d.callerIsHere() // the tool itself canceled something
	}
	c.retry(d, failure, o)
}

// retry waits until the next attempt may be made, or finishes the call if none may.
func (c *call) retry(d diagnosis, failure errorTree, o outcome) {
	retry, err := c.state.retry, failure.err
	again := d.class == ClassTransient && !failure.rejected() && c.repeatable(d)
	delay := retry.delay(c.attempts, d.retryAfter)
	switch {
	case again && c.attempts > 1 && c.attempts > retry.MaxRetries && !failure.notMade():
		c.finish(RetryExhaustedError(c.ctx.name, c.attempts, err), o)
		return
	case !again || c.attempts > retry.MaxRetries || c.guard.overloaded(c.state) || !fits(&c.ctx, delay):
		c.finish(c.failure(d, err), o)
		return
	case !c.ctx.ticket.current():
		c.reject(err, o)
		return
	}

	c.ctx.leave()
	retry.notify(c.attempts, delay, err)
	c.notifyRetry(delay, err)
	if !sleep(&c.ctx, delay) {
		ended, ownTimeout := c.ctx.ended()
		c.cutOff(ended.withCause(err), ownTimeout)
	} else if !c.ctx.ticket.current() {
		c.reject(err, o)
	} else if c.ctx.asked.Load() { // an abandoned attempt has done so meanwhile
		c.finish(c.failure(d, err), o)
	}
}

// repeatable reports whether another attempt can do no harm.
func (c *call) repeatable(d diagnosis) bool {
	return d.noEffect && !c.ctx.asked.Load() || c.toolEffect().repeatable()
}

// failure returns an error of this call's own.
func (c *call) failure(d diagnosis, err error) *Error {
	d.noEffect = d.noEffect && !c.ctx.asked.Load()
	e := d.toError(c.ctx.name, err, c.toolEffect())
	if e == d.explicit {
		return e.clone()
	}

	return e
}

// cutOff finishes a call that the end of its context ended. Only the tool's own timeout is a
// failure of the tool: a caller that leaves, or has less time, says nothing about it.
func (c *call) cutOff(e *Error, ownTimeout bool) {
	o := outcomeNeutral
	if ownTimeout {
		o = treeOf(e).outcome(c.guard.cfg.Breaker.Classify, false)
	}

	e = e.clone()
	if e.Retryable {
		e.forEffect(c.toolEffect(), false)
	}
	c.finish(e, o)
}

// reject finishes a call whose breaker opened before it could be retried.
func (c *call) reject(last error, o outcome) {
	e := c.state.breaker.rejection()
	e.Tool, e.Err = c.ctx.name, last
	c.finish(e, o)
}

// toolEffect returns the tool's effect. Only failures need it. A question to a person is an effect
// of its own, which must not be repeated.
func (c *call) toolEffect() Effect {
	if c.ctx.asked.Load() {
		return NonIdempotent
	}
	if f := c.options.effect; f != nil && !c.state.listed {
		c.options.effect = nil
		c.effect = ask(f, c.timeLeft())
	}
	if c.effect != EffectUnknown {
		return c.effect
	}

	return c.state.effect
}

// finish ends every call, once. e must be this call's own.
func (c *call) finish(e *Error, o outcome) {
	c.outcome = o
	if c.begun() {
		c.ctx.stop()
		c.settle(o)
		c.state.inFlight.Add(-1)
	}

	if e != nil || c.observers != nil {
		c.took()
	}
	if e != nil {
		c.present(e)
		c.err = e
	}
	if c.begun() && o == outcomeFailure {
		last := *c.err
		last.Details = nil
		c.state.lastErr.Store(&last)
	}
	c.notifyEnd()
	c.options, c.arguments, c.lastErr = options{}, nil, nil // a tool may keep its context, and the call with it
}

// took returns how long the call took, once it has ended. Most successes don't need it.
func (c *call) took() time.Duration {
	if c.duration == 0 {
		c.duration = c.ctx.elapsed()
	}

	return c.duration
}
