package resilience

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// attemptOnce calls the tool once. A nil failure is a success. If the tool hasn't answered before the end of the call,
// the failure is empty.
func attemptOnce[T any](c *call, fn func(context.Context) (T, error)) (value T, f *failure, answered bool) {
	a := c.nextAttempt()
	defer a.over.Store(true)
	if c.state.Cooperative {
		value, err := protect(a, fn)
		return value, a.examine(err), true
	}

	r := &runner[T]{limit: &c.scope.callContext, ctx: a, fn: fn}
	if !r.run() {
		c.orphan()
		waitedFor := c.opts.waits && r.outlast()
		if !waitedFor && abandon(c, r) {
			return value, &failure{}, false
		}
	}
	return r.value, a.examine(r.err), true
}

// abandon abandons the tool, and returns false if that has finished meanwhile. An orphan is settled when the tool has
// returned.
func abandon[T any](c *call, r *runner[T]) bool {
	release := c.state.countAbandoned(c.state.Timeout - time.Since(c.start))
	g, o, late := c.guard, c.orphaned, c.late(release)

	abandoned := r.abandon(func(value T, err error) {
		if crash := recovered(func() error { _ = errors.Is(err, context.Canceled); return nil }); crash != nil {
			err = crash // the methods of err panic
		}
		late(err)
		if o != nil {
			g.settle(o, value, err)
		}
	})
	if !abandoned {
		release()
	}
	return abandoned
}

// nextAttempt returns the context of the next attempt.
func (c *call) nextAttempt() *attempt {
	a, number := &c.scope.first, 1
	if c.current != nil {
		a, number = new(attempt), c.current.number+1 // the earlier one may still be in use
	}

	a.Context, a.scope, a.number = &c.scope.callContext, c.scope, number
	a.outer, a.ticket = c.scope.outer, cmp.Or(c.outerTicket, &c.scope.ticket)
	c.current = a
	return a
}

// The states of a function that runs on a goroutine of its own.
const (
	stateRunning   int32 = iota
	stateFinished        // its result is there
	stateAbandoned       // its caller has left
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
	late  func(T, error) // called once an abandoned function has returned; may be nil
}

// run starts the function, and returns once it has finished or its context has ended. In the latter case it returns
// false, and the function must be abandoned.
func (r *runner[T]) run() (finished bool) {
	go r.execute()
	return r.wait(r.limit.Context.Done(), func() bool { return r.limit.end.Load() != nil })
}

// outlast is run for a caller that has ended the context and waits for the tool, until the function's own timeout.
func (r *runner[T]) outlast() (finished bool) {
	return r.wait(nil, func() bool { return r.limit.left() <= 0 })
}

func (r *runner[T]) wait(parent <-chan struct{}, isOver func() bool) bool {
	for {
		switch {
		case r.state.Load() == stateFinished:
			return true
		case isOver():
			return false
		}

		select {
		case <-r.limit.wake: // a hint to look
		case <-parent:
			r.limit.parentEnded()
			parent = nil
		}
	}
}

// abandon reports whether the function was abandoned, rather than finished meanwhile. If it was,
// late is called with its results once it has returned.
func (r *runner[T]) abandon(late func(T, error)) bool {
	r.late = late
	return r.state.CompareAndSwap(stateRunning, stateAbandoned)
}

// execute runs on the goroutine.
func (r *runner[T]) execute() {
	defer r.finish()
	r.err = ErrGoexit // unless fn returns or panics
	r.value, r.err = protect(r.ctx, r.fn)
}

// finish hands the result over, unless the function was abandoned.
func (r *runner[T]) finish() {
	if r.state.CompareAndSwap(stateRunning, stateFinished) {
		r.limit.awake()
	} else if r.late != nil {
		r.late(r.value, r.err)
	}
}
