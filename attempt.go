package resilience

import (
	"context"
	"time"
)

// newAttemptContext returns the context of an attempt that has a timeout of its own.
func (c *call) newAttemptContext() *callContext {
	timeout := c.state.attemptTimeout
	maximum := timeout
	if own, longest := c.toolTimeouts(); longest > own {
		maximum = max(timeout, c.ctx.clock.maximum) // progress restarts this timeout too
	}

	ctx := newCallContext(&c.ctx, c.ctx.name, timeout, maximum, !c.state.cooperative)
	c.ctx.backend.first.last.Store(nil) // what the call keeps of an earlier attempt
	return ctx
}

// An attemptContext is the context of a later attempt of a call whose attempts share a callContext.
type attemptContext struct {
	*callContext
	number int
	log    attemptLog
}

func (c *attemptContext) Value(key any) any {
	switch key.(type) {
	case attemptKey:
		return c.number
	case logKey:
		return &c.log
	}
	return c.callContext.Value(key)
}

// again returns fn for a later attempt with the context c.
func again[T any](
	fn func(context.Context) (T, error), c *callContext, number int,
) func(context.Context) (T, error) {
	attempt := &attemptContext{callContext: c, number: number}
	c.backend.later.Store(&attempt.log)
	return func(context.Context) (T, error) { return fn(attempt) }
}

// attempt calls fn once. If fn isn't answered, it is abandoned because the call has ended.
func (j *job[T]) attempt(fn func(context.Context) (T, error)) (value T, f *failure, answered bool) {
	j.attempts++
	j.harmless = false
	ctx, r := &j.ctx, &j.runner
	if j.state.attemptTimeout > 0 {
		ctx = j.newAttemptContext()
		defer ctx.stop()
		r = new(runner[T]) // the one of an earlier attempt may still run
	}

	ctx.attempt.CompareAndSwap(0, int32(j.attempts))
	if ctx == &j.ctx && j.attempts > 1 { // what is left of the first attempt may still use the context
		fn = again(fn, ctx, j.attempts)
	}
	if j.state.cooperative {
		var err error
		value, err = protect(ctx, fn)
		if answered = true; err != nil {
			examine(j.state, ctx, err, &f)
		}
	} else {
		r.tool = j.state
		if j.options.waits {
			r.waits = &j.ctx
		}
		var err error
		value, err, answered = r.run(ctx, func() func() { return j.abandon(ctx) }, j.late(ctx), fn)
		if answered {
			f, r.failure = r.failure, nil
		} else if err != nil {
			f = j.examineLate(ctx, err)
		}
	}
	ctx.endHolds()
	if f != nil && !f.echo && !isCrash(f.err) {
		j.past.err, j.past.attempt = f.err, int32(j.attempts)
	}
	if answered && f == nil || ctx == &j.ctx {
		return value, f, answered
	}

	// If only the attempt has ended, that is an error of the tool like any other.
	if whole, _ := j.ctx.ended(); whole == nil {
		ended, _ := ctx.ended()
		if e := j.endsWith(ended, f); e != nil {
			return value, j.examineAside(j.withCrash(e, f), ctx), true
		}
	}
	return value, f, answered
}

// decide acts on the result of an attempt: it finishes the call, or waits until the next
// attempt may be made. Without an answer, f is what is known of the tool's error, or nil.
func (c *call) decide(f *failure, answered bool) {
	if answered && f == nil {
		c.finish(nil, outcomeSuccess)
		return
	}

	ended, ownTimeout := c.ctx.ended()
	if e := c.endsWith(ended, f); e != nil {
		c.cutOff(c.withLast(e), ownTimeout)
		return
	}

	c.unfinished = f.unfinished
	c.past.join(f)
	c.nested = f.nested
	if c.harmless = f.noEffect && !c.ctx.asked.Load(); c.harmless {
		c.harmless = c.ctx.backend.changes.forgive(f.begun)
		f.changed = !c.harmless
	}
	if ended == nil {
		c.retry(f)
		return
	}
	// The tool's own *Error stands, but an end that the caller brought makes it neutral. A deadline may be that of a call
	// around this one, which then decides by itself what would count.
	if !ownTimeout {
		f.inconclusive = ended.Code == CodeTimeout && (f.inconclusive || f.outcome == outcomeFailure)
		f.outcome = outcomeNeutral
	}
	c.finish(c.errorOf(f), f.outcome)
}

// retry waits until the next attempt may be made, or finishes the call if none may.
func (c *call) retry(f *failure) {
	retry := c.state.retry
	again := f.class == ClassTransient && !f.rejected && !f.inconclusive && !c.ctx.ticket.isProbe() &&
		(c.harmless || c.toolEffect().repeatable())
	var delay time.Duration
	ok := again && c.attempts <= retry.MaxRetries
	if ok {
		delay, ok = retry.delay(c.attempts, f.retryAfter, c.sinceBegun())
	}
	switch {
	case again && c.attempts > 1 && c.attempts > retry.MaxRetries && !f.notMade:
		e := f.exhausted(c.ctx.name, c.attempts)
		noteFailure(e, f)
		c.finish(e, f.outcome)
		return
	case !ok || !c.fits(delay) || c.guard.overloaded(c.state, c.impatient()):
		c.finish(c.errorOf(f), f.outcome)
		return
	case !c.current():
		c.reject(f)
		return
	}

	c.ctx.leave()
	retry.notify(c.attempts, delay, f.err)
	c.notifyRetry(delay, f.err)
	c.ctx.wait(delay)
	ended, ownTimeout := c.ctx.ended()
	_, changed := c.ctx.backend.changes.look()
	switch {
	case ended != nil:
		c.cutOff(ended.withCause(f.err), ownTimeout)
	case !c.toolEffect().repeatable() && (changed || c.ctx.asked.Load()):
		// What is left of the attempt has done something meanwhile.
		c.harmless, f.changed = false, true
		c.finish(c.errorOf(f), f.outcome)
	case !c.current():
		c.reject(f)
	}
}

// fits reports whether any of the time that is left is left after delay.
func (c *call) fits(delay time.Duration) bool {
	var yes bool
	return c.ctx.askAside(func(ctx *callContext) { yes = fits(ctx, delay) }) && yes
}

// errorOf returns an error of this call's own.
func (c *call) errorOf(f *failure) *Error {
	e := c.withLast(f.toError(c.ctx.name, &f.reply)) // of a crash, which isn't what the tool returned
	noteFailure(e, f)
	if !c.harmless {
		e.forEffect(c.toolEffect(), f.changed || isCrash(f.err) || f.reads == ClassNeutral)
	}
	return e
}

// cutOff finishes a call that the end of its context ended. Only the tool's own timeout is a
// failure of the tool: a caller that leaves, or has less time, says nothing about it.
func (c *call) cutOff(e *Error, ownTimeout bool) {
	o := outcomeNeutral
	if ownTimeout {
		c.past.failure = c.examineAside(e, &c.ctx)
		o = c.past.failure.outcome
	}

	e = e.clone()
	if ownTimeout {
		noteFailure(e, c.past.failure)
	}
	if last := c.ctx.backend.last(); e.Code == CodeTimeout && last.inTrouble() {
		e.RetryAfter = last.retryAfter
	}
	e.forEffect(c.toolEffect(), false)
	c.finish(e, o)
}

// noteFailure notes in e, a new error, what its failure f means to the calls around this one: its class, and whether the
// breaker has counted it. What hasn't been made they see themselves, and they decide about what it hasn't counted since its
// caller had less time: that may be what limits them, or their own tool.
func noteFailure(e *Error, f *failure) {
	e.known.class = f.class
	switch {
	case f.outcome == outcomeFailure:
		e.known.outcome = outcomeFailure
	case f.inconclusive && !f.excused && !f.neutral && !f.meaning().neutral():
		e.known.class = ClassTransient
	case (f.rejected || f.notMade) && !isCrash(f.err):
	default:
		e.known.outcome = outcomeNeutral
	}
}

// reject finishes a call whose breaker opened before it could be retried.
func (c *call) reject(f *failure) {
	b := c.ctx.ticket.b
	if own := c.state.breaker; own.isolated() {
		b = own
	}
	e := b.rejection()
	e.Tool, e.Err = c.ctx.name, f.err
	c.finish(e, f.outcome)
}
