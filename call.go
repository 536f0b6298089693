package resilience

import (
	"context"
	"maps"
	"time"
)

// A call is one run of a tool under a guard, and all that is decided about it. It
// is used by one goroutine: the caller's.
type call struct {
	guard     *Guard
	tool      *tool   // nil if the call was refused before it came to one
	ctx       limited // has its name, its start, and the limits that it is given
	ticket    ticket
	options   options
	observers *callObservers // nil: there are no observers

	attempts   int
	known      Effect // what EffectFrom said
	admitted   bool   // ctx and ticket are in use
	shortened  bool   // the limit is less than the tool's own, because the caller wished so
	redacted   bool   // options.args may be shown
	unfinished bool   // the tool said ErrUnfinished
	finished   bool

	err      *Error
	duration time.Duration
}

// A job is a call and the function that it calls.
type job[T any] struct {
	call
	runner runner[T]
}

// do is what Do, Run, All and Wrap have in common.
func do[T any](ctx context.Context, g *Guard, name string, fn func(context.Context) (T, error), o options) (value T, c *call) {
	mustHave(ctx, g)
	j := &job[T]{call: call{guard: g, options: o}}
	c = &j.call
	c.ctx.tool = name
	if len(g.observers) > 0 {
		ctx = c.notifyStart(ctx)
	}
	c.ctx.start = time.Now() // an observer that is slow doesn't use up the limit
	defer func() {
		if !c.finished { // a Cooperative tool called runtime.Goexit
			c.finish(crashed(name, ErrGoexit).(*Error), errFailed)
		}
	}()
	if refused := c.refuse(ctx, fn == nil); refused != nil {
		c.finish(refused, errNeutral)
		return value, c
	}
	if rejected := c.admit(ctx); rejected != nil {
		c.finish(rejected, errNeutral)
		return value, c
	}
	for !c.finished {
		var err error
		var answered bool
		value, err, answered = j.attempt(fn)
		c.decide(err, answered)
	}
	return value, c
}

// refuse returns why there is nothing to call, nil if there is.
func (c *call) refuse(ctx context.Context, nilFunc bool) *Error {
	if err := checkName(c.ctx.tool); err != nil {
		return err
	}
	if err := checkFunc(ctx, c.ctx.tool, nilFunc); err != nil {
		return err
	}
	if c.options.limitSet && c.options.limit <= 0 {
		return validationError(c.ctx.tool, "The limit of this call is %s: it must be positive", c.options.limit)
	}
	return endOf(ctx, c.ctx.tool)
}

// admit asks the breaker, starts the limit, or returns why the call can't be made.
func (c *call) admit(ctx context.Context) *Error {
	if c.debug() && c.options.args != nil {
		// Now: a tool that was given up on may go on changing them.
		c.options.args = redactValue(c.options.args, &budget{}, 1)
		c.redacted = true
	}
	t := c.guard.tool(c.ctx.tool, c.options.shared)
	if !t.used.Load() { // all calls of the tool share it: reading is cheaper
		t.used.Store(true)
	}
	own, most := t.timeout, t.maxTimeout
	if t == c.guard.others {
		own = c.guard.Timeout(c.ctx.tool)
		most = own
	}
	limit := own
	if c.options.limitSet {
		limit = min(c.options.limit, most)
	}
	bound := limit
	if most > own { // it has a MaxTimeout
		bound = most
	}
	c.ctx.limit, c.shortened = limit, limit < own // a call that is rejected tells of it, too
	c.tool = t
	if rejected := t.breaker.admit(&c.ticket); rejected != nil {
		rejected.Tool = c.ctx.tool
		return rejected
	}
	if c.guard.crowded(t) {
		c.ticket.settle(errNeutral)
		return overloadedError(c.ctx.tool)
	}
	t.inFlight.Add(1)
	c.admitted = true
	attended := !t.cooperative && c.guard.cfg.AttemptTimeout == 0
	c.ctx.begin(ctx, limit, bound, attended)
	if c.ticket.isProbe() {
		c.ticket.call.Store(&c.ctx)
	}
	return nil
}

// attempt calls fn once. If it isn't answered, fn has been given up on because the
// call has ended.
func (j *job[T]) attempt(fn func(context.Context) (T, error)) (value T, err error, answered bool) {
	j.attempts++
	ctx, r := &j.ctx, &j.runner
	if limit := j.guard.cfg.AttemptTimeout; limit > 0 {
		most := limit
		if j.ctx.bound > j.ctx.limit {
			most = max(limit, j.ctx.bound) // progress restarts it too
		}
		ctx = limitedContext(ctx, ctx.tool, limit, most, !j.tool.cooperative)
		defer ctx.stop()
		r = new(runner[T]) // the one before may still run
	}
	ctx.attempt.Store(int32(j.attempts)) // its own where an earlier attempt may still run
	if j.tool.cooperative {
		value, err = protect(ctx, fn)
		answered = true
	} else {
		value, err, answered = r.run(ctx, &j.tool.stillRunning, j.late(ctx), fn)
	}
	if ctx == &j.ctx || answered && err == nil {
		return value, err, answered
	}
	// If only the attempt has ended, that is an error like any other of the tool's.
	if whole, _ := j.ctx.ended(); whole == nil {
		ended, _ := ctx.ended()
		if e := settle(ended, err); e != nil {
			return value, e, true
		}
	}
	return value, err, answered
}

// decide says what an attempt's outcome means: it finishes the call, or waits
// until the next attempt may be made.
func (c *call) decide(err error, answered bool) {
	if answered && err == nil {
		c.finish(nil, nil)
		return
	}
	ended, own := c.ctx.ended()
	if e := settle(ended, err); e != nil {
		c.cutOff(e, own)
		return
	}
	retry, effect := c.tool.retry, c.effect()
	d := diagnose(err, retry.Classify)
	c.unfinished = d.unfinished
	counts := count(err, c.guard.cfg.Breaker.Classify)
	if ended != nil {
		// The tool's own *Error stands, but the caller's end makes it neutral.
		if !own || c.shortened {
			counts = errNeutral
		}
		c.finish(c.failure(d, err, effect), counts)
		return
	}
	if d.class == Canceled && d.bareCancel {
		// The caller is still here: it was the tool that canceled something.
		d = d.callerIsHere()
		counts = errFailed
	}
	again := d.class == Transient && d.repeatable(effect)
	delay := retry.delay(c.attempts, d.retryAfter)
	switch {
	case again && c.attempts > 1 && c.attempts > retry.MaxRetries && !wasNotMade(err):
		c.finish(RetryExhaustedError(c.ctx.tool, c.attempts, err), counts)
	case !again || c.attempts > retry.MaxRetries || c.guard.crowded(c.tool) || !fits(&c.ctx, delay):
		c.finish(c.failure(d, err, effect), counts)
	case !c.ticket.current():
		c.turnAway(err, counts)
	default:
		c.ctx.leave()
		retry.notify(c.attempts, delay, err)
		c.notifyRetry(delay, err)
		if !sleep(&c.ctx, delay) {
			ended, own := c.ctx.ended()
			c.cutOff(ended.withCause(err), own)
		} else if !c.ticket.current() {
			c.turnAway(err, counts)
		}
	}
}

// failure makes an error that is this call's own.
func (c *call) failure(d diagnosis, err error, effect Effect) *Error {
	e := d.toError(c.ctx.tool, err, effect)
	if e == d.own {
		copied := *e
		copied.origin = e
		return &copied
	}
	return e
}

// cutOff finishes a call that the end of its context ended. Only the tool's own
// limit is its failure: a caller who is in a hurry, or leaves, says nothing about it.
func (c *call) cutOff(e *Error, own bool) {
	counts := errNeutral
	if own && !c.shortened {
		counts = count(e, c.guard.cfg.Breaker.Classify)
	}
	copied := *e
	copied.origin = e
	if copied.Retryable {
		copied.forEffect(c.effect(), false)
	}
	c.finish(&copied, counts)
}

// turnAway finishes a call whose breaker opened before it could be retried.
func (c *call) turnAway(last error, counts error) {
	e := c.tool.breaker.rejection()
	e.Tool, e.Err = c.ctx.tool, last
	c.finish(e, counts)
}

// effect is asked for after a failure only.
func (c *call) effect() Effect {
	if f := c.options.effect; f != nil && !c.tool.listed {
		c.options.effect = nil
		c.known = askEffect(f)
	}
	if c.known != EffectUnknown {
		return c.known
	}
	return c.tool.effect
}

func askEffect(f func() Effect) (e Effect) {
	defer func() {
		if recover() != nil {
			e = EffectUnknown
		}
	}()
	return f()
}

// finish is where every call ends, once. e is this call's own, and counts is what the
// breaker is told: nil (success), errFailed or errNeutral.
func (c *call) finish(e *Error, counts error) {
	c.finished = true
	if c.admitted {
		c.ctx.stop()
		c.ticket.settle(counts)
		c.tool.inFlight.Add(-1)
	}
	if e != nil || c.observers != nil {
		c.took()
	}
	if e != nil {
		c.present(e)
		c.err = e
	}
	if c.admitted && counts == errFailed {
		last := *c.err
		last.Details = nil
		c.tool.lastErr.Store(&last)
	}
	c.notifyEnd()
	c.options = options{} // a tool may keep the context, and this with it
}

// took returns how long the call took, once it is finished. Most successes are not asked.
func (c *call) took() time.Duration {
	if c.duration == 0 {
		c.duration = c.ctx.elapsed()
	}
	return c.duration
}

func (c *call) debug() bool { return c.options.debug || c.guard.cfg.Debug }

// present makes of e what the agent gets: with the configured suggestion, and details
// only with debug.
func (c *call) present(e *Error) {
	if own, ok := c.guard.cfg.Suggestions[e.Code]; ok {
		switch e.Suggestion {
		case suggestions[e.Code], suggestChange:
			e.Suggestion = own
		case suggestCheck:
			e.Suggestion = own + " " + suggestCheck
		}
	}
	if c.debug() {
		e.Details = c.details(e)
	} else {
		e.Details = nil
	}
}

func (c *call) details(e *Error) map[string]any {
	d := maps.Clone(e.Details)
	if d == nil {
		d = make(map[string]any)
	}
	d["tool"] = c.ctx.tool
	d["attempt"] = c.attempts
	d["elapsed"] = formatDuration(c.duration)
	if c.ctx.limit > 0 {
		d["limit"] = formatDuration(c.ctx.limit)
	}
	if e.Err != nil {
		d["cause"] = textOf(e.Err)
	}
	d = Redact(d)
	if c.redacted {
		d["arguments"] = c.options.args // redacted before the tool ran
	}
	return d
}
