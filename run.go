package resilience

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"
)

// attemptOnce calls the tool once. A nil failure is a success. If the tool hasn't answered, the failure is empty if the
// call has ended, and otherwise the timeout of the attempt.
func attemptOnce[T any](c *call, fn func(context.Context) (T, error)) (value T, f *failure) {
	a, limit := c.nextAttempt()
	defer a.over.Store(true)
	if limit != &c.scope.callContext {
		defer limit.finish(returned)
	}

	if c.state.Cooperative {
		value, err := protect(a, fn)
		if err != nil {
			f = c.attemptTimeout(a.examine(err), limit)
		}
		return value, f
	}

	r := &runner[T]{limit: limit, ctx: a, fn: fn}
	if !r.run(c.opts.waits) {
		grace := c.state.Timeout - time.Since(c.start)
		if timeout := c.state.AttemptTimeout; timeout > 0 {
			grace = min(grace, timeout-time.Since(limit.start))
		}
		release := c.state.countAbandoned(grace)
		if r.abandon(c.late(limit, release)) {
			return value, c.attemptTimeout(&failure{}, limit)
		}
		release()
	}
	if r.err != nil {
		f = c.attemptTimeout(a.examine(r.err), limit)
	}
	return r.value, f
}

// nextAttempt returns the context of the next attempt, and the context that ends it.
func (c *call) nextAttempt() (*attempt, *callContext) {
	a, number := &c.scope.first, 1
	if c.current != nil {
		a, number = new(attempt), c.current.number+1 // the earlier one may still be in use
	}

	limit := &c.scope.callContext
	if timeout := c.state.AttemptTimeout; timeout > 0 {
		maximum := timeout
		if c.state.MaxTimeout > c.state.Timeout { // progress restarts this timeout too
			maximum = max(timeout, c.state.MaxTimeout)
		}
		limit = &callContext{tool: c.tool, start: time.Now()}
		limit.begin(&c.scope.callContext, newLimits(timeout, min(maximum, c.scope.atMost())), !c.state.Cooperative)
	}

	a.Context, a.scope, a.number = limit, c.scope, number
	a.outer, a.ticket = c.scope.outer, cmp.Or(c.joined, &c.scope.ticket)
	c.current = a
	return a, limit
}

// attemptTimeout turns the failure of an attempt whose own timeout has passed into that timeout, unless the
// whole call has ended, or the tool's own error stands.
func (c *call) attemptTimeout(f *failure, limit *callContext) *failure {
	if limit == &c.scope.callContext || c.scope.endIfDue() != nil {
		return f
	}
	end := limit.endIfDue()
	if end == nil || f.stands(end) {
		return f
	}

	c.note(f, end)
	e := c.endedBy(end, f)
	timeout := &failure{meaning: meaningOf(e)}
	c.guard.classify(&timeout.meaning)
	timeout.outcome = timeout.meaning.outcome()
	return timeout
}

// The states of a function that runs on a goroutine of its own.
const (
	running   int32 = iota
	finished        // its result is there
	abandoned       // its caller has left
)

// A runner calls a function on a goroutine of its own. Either the function finishes or it is
// abandoned, never both. A runner is for one call.
type runner[T any] struct {
	limit *callContext    // begun with hasRunner
	ctx   context.Context // for the function
	fn    func(context.Context) (T, error)

	state atomic.Int32
	value T // to be read once the function has finished, like err
	err   error
	late  func(err error) // called once an abandoned function has returned; may be nil
}

// run returns once the function has finished, or its context has ended. In the latter case it
// returns false, and the function must be abandoned. If the caller has ended the context and waits
// for the tool, run waits until the function's own timeout has passed.
func (r *runner[T]) run(waits bool) bool {
	parent := r.limit.Context.Done()
	go r.execute()
	for {
		select {
		case <-r.limit.wake: // a hint to look
		case <-parent:
			r.limit.parentEnded()
			parent = nil
		}

		switch {
		case r.state.Load() == finished:
			return true
		case r.limit.end.Load() == nil:
		case !waits || r.limit.left() <= 0:
			return false
		}
	}
}

// abandon reports whether the function was abandoned, rather than finished meanwhile. If it was,
// late is called with the function's error once that has returned.
func (r *runner[T]) abandon(late func(err error)) bool {
	r.late = late
	return r.state.CompareAndSwap(running, abandoned)
}

// execute runs on the goroutine.
func (r *runner[T]) execute() {
	defer r.finish()
	r.err = ErrGoexit // unless fn returns or panics
	r.value, r.err = protect(r.ctx, r.fn)
}

// finish hands the result over, unless the function was abandoned.
func (r *runner[T]) finish() {
	if r.state.CompareAndSwap(running, finished) {
		r.limit.awake()
	} else if r.late != nil {
		r.late(r.err)
	}
}
