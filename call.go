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
	tool      *tool  // nil if the call was refused before it came to one
	name      string // as called; tool may stand for many
	options   options
	start     time.Time
	limit     time.Duration // what the call is given
	most      time.Duration // what progress may make of it
	shortened bool          // limit is less than the tool's own, because the caller wished so
	ctx       *limited
	ticket    *ticket
	attempts  int
	known     Effect // what EffectFrom said
	redacted  bool   // options.args may be shown

	finished   bool
	unfinished bool // the tool said ErrUnfinished
	err        *Error
	duration   time.Duration
	observed   *observed // nil: there are no observers
}

// do is what Do, Run, All and Wrap have in common.
func do[T any](ctx context.Context, g *Guard, name string, fn func(context.Context) (T, error), o options) (value T, c *call) {
	mustHave(ctx, g)
	c = &call{guard: g, name: name, options: o, start: time.Now()}
	if len(g.observers) > 0 {
		ctx = c.announce(ctx)
	}
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
		value, err, answered = attempt(c, fn)
		c.after(err, answered)
	}
	return value, c
}

// refuse returns why there is nothing to call, nil if there is.
func (c *call) refuse(ctx context.Context, nilFunc bool) *Error {
	if err := checkName(c.name); err != nil {
		return err
	}
	if err := checkFunc(ctx, c.name, nilFunc); err != nil {
		return err
	}
	if c.options.limitSet && c.options.limit <= 0 {
		return validationError(c.name, "The limit of this call is %s: it must be positive", c.options.limit)
	}
	return endOf(ctx, c.name)
}

// admit asks the breaker, starts the limit, or returns why the call can't be made.
func (c *call) admit(ctx context.Context) *Error {
	if c.debug() && c.options.args != nil {
		// Now: a tool that was given up on may go on changing them.
		c.options.args = redactValue(c.options.args, &budget{}, 1)
		c.redacted = true
	}
	t := c.guard.tool(c.name, c.options.shared)
	t.used.Store(true)
	own, most := t.timeout, t.maxTimeout
	if t == c.guard.others {
		own = c.guard.Timeout(c.name)
		most = own
	}
	c.limit = own
	if c.options.limitSet {
		c.limit = min(c.options.limit, most)
	}
	c.most = c.limit
	if most > own { // it has a MaxTimeout
		c.most = most
	}
	c.shortened = c.limit < own
	ticket, rejected := t.breaker.admit(most)
	if rejected != nil {
		rejected.Tool = c.name
		return rejected
	}
	c.tool, c.ticket = t, ticket
	t.inFlight.Add(1)
	if c.guard.crowded(c.tool) {
		return overloadedError(c.name)
	}
	c.ctx = limitedContext(ctx, c.name, c.limit, c.most)
	ticket.call.Store(c.ctx)
	return nil
}

// attempt calls fn once. If it isn't answered, fn has been given up on because the
// call has ended.
func attempt[T any](c *call, fn func(context.Context) (T, error)) (value T, err error, answered bool) {
	c.attempts++
	ctx := c.ctx
	if limit := c.guard.cfg.AttemptTimeout; limit > 0 {
		most := limit
		if c.most > c.limit {
			most = max(limit, c.most) // progress restarts it too
		}
		ctx = limitedContext(c.ctx, c.name, limit, most)
		defer ctx.stop()
	}
	ctx.attempt.Store(int32(c.attempts)) // its own where an earlier attempt may still run
	if c.tool.cooperative {
		value, err = protect(ctx, fn)
		answered = true
	} else {
		var o outcome[T]
		o, answered = enforce(ctx, &c.tool.stillRunning, c.late(ctx), fn)
		value, err = o.value, o.err
	}
	if ctx == c.ctx || answered && err == nil {
		return value, err, answered
	}
	// If only the attempt has ended, that is an error like any other of the tool's.
	if whole, _ := c.ctx.ended(); whole == nil {
		ended, _ := ctx.ended()
		if e := settle(ended, err); e != nil {
			return value, e, true
		}
	}
	return value, err, answered
}

// after decides what an attempt's outcome means: it finishes the call, or waits
// until the next attempt may be made.
func (c *call) after(err error, answered bool) {
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
	c.unfinished = d.unfinished && d.class.neutral()
	counts := countAs(classOf(err, c.guard.cfg.Breaker.Classify))
	if ended != nil {
		// The tool's own *Error stands, but the caller's end makes it neutral.
		if !own || c.shortened {
			counts = errNeutral
		}
		c.finish(d.toError(c.name, err, effect), counts)
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
	case again && c.attempts > 1 && c.attempts > retry.MaxRetries:
		c.finish(RetryExhaustedError(c.name, c.attempts, err), counts)
	case !again || c.attempts > retry.MaxRetries || c.guard.crowded(c.tool) || !fits(c.ctx, delay):
		c.finish(d.toError(c.name, err, effect), counts)
	case !c.ticket.current():
		c.turnAway(err, counts)
	default:
		retry.notify(c.attempts, delay, err)
		c.retrying(delay, err)
		if !sleep(c.ctx, delay) {
			ended, own := c.ctx.ended()
			c.cutOff(ended.withCause(err), own)
		} else if !c.ticket.current() {
			c.turnAway(err, counts)
		}
	}
}

// cutOff finishes a call that the end of its context ended. Only the tool's own
// limit is its failure: a caller who is in a hurry, or leaves, says nothing about it.
func (c *call) cutOff(e *Error, own bool) {
	counts := errNeutral
	if own && !c.shortened {
		counts = countAs(classOf(e, c.guard.cfg.Breaker.Classify))
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
	e.Tool, e.Err = c.name, last
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

// finish is where every call ends, once. counts is what the breaker is told: nil
// (success), errFailed or errNeutral.
func (c *call) finish(e *Error, counts error) {
	c.finished = true
	c.duration = time.Since(c.start)
	if c.ctx != nil {
		c.ctx.stop()
	}
	if c.ticket != nil {
		c.ticket.settle(counts)
		c.tool.inFlight.Add(-1)
	}
	if e != nil {
		c.err = c.present(e)
	}
	if c.ticket != nil && counts == errFailed {
		last := *c.err
		last.Details = nil
		c.tool.lastErr.Store(&last)
	}
	c.ended()
}

func (c *call) debug() bool { return c.options.debug || c.guard.cfg.Debug }

// present returns a copy of e as the agent gets it: with the configured suggestion,
// and details only with debug.
func (c *call) present(e *Error) *Error {
	out := *e
	out.origin = e
	if own, ok := c.guard.cfg.Suggestions[out.Code]; ok {
		switch out.Suggestion {
		case suggestions[out.Code], suggestChange:
			out.Suggestion = own
		case suggestCheck:
			out.Suggestion = own + " " + suggestCheck
		}
	}
	if c.debug() {
		out.Details = c.details(&out)
	} else {
		out.Details = nil
	}
	return &out
}

func (c *call) details(e *Error) map[string]any {
	d := maps.Clone(e.Details)
	if d == nil {
		d = make(map[string]any)
	}
	d["tool"] = c.name
	d["attempt"] = c.attempts
	d["elapsed"] = formatDuration(c.duration)
	if c.limit > 0 {
		d["limit"] = formatDuration(c.limit)
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
