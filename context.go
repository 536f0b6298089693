package resilience

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A callContext is the context of a call. Unlike a context with a deadline it can be extended while it runs. It ends
// only once, by its timeout or by its parent, so that a call has one outcome and [context.Cause] is the call's error.
type callContext struct {
	context.Context // the parent
	tool            string
	start           time.Time // all times of limits are since then

	// wake holds a token once the context has ended or the function under it has returned. It is nil
	// unless a runner waits for both. The runner selects on the parent's Done itself, so watch does nothing then.
	wake chan struct{}

	end atomic.Pointer[ending] // nil until the context has ended

	mu       sync.Mutex // guards the following
	limits   limits
	deadline time.Duration // of the parent; never if it has none
	timer    *time.Timer   // fires at the end; nil as long as nothing depends on it
	done     chan struct{}
	after    map[*func()]struct{}
	unwatch  func() bool // ends the subscription to the parent; nil if there is none
}

// An ending is how a context ended. It never changes.
type ending struct {
	err       error           // context.Canceled or context.DeadlineExceeded
	cause     *Error          // nil if the call has simply returned
	byTimeout bool            // the timeout ended it, rather than the caller
	at        time.Time       // zero if the call has simply returned
	ended     context.Context // of the context package, in which context.Cause finds the cause
}

// returned is the ending of every context whose function has returned.
var returned = newEnding(context.Canceled, nil, false)

func newEnding(err error, cause *Error, byTimeout bool) *ending {
	ended, cancel := context.WithCancelCause(context.Background())
	e := &ending{err: err, cause: cause, byTimeout: byTimeout, ended: ended}
	if cause == nil {
		cancel(nil)
		return e
	}

	cancel(cause)
	e.at = time.Now()
	return e
}

// begin starts the timeout. The caller must call finish with returned. hasRunner means that a runner waits for
// the end of the context.
func (c *callContext) begin(parent context.Context, limits limits, hasRunner bool) {
	c.Context, c.limits = parent, limits
	if hasRunner {
		c.wake = make(chan struct{}, 1)
	}

	c.mu.Lock() // the timer may fire before it is stored
	defer c.mu.Unlock()
	c.schedule(time.Since(c.start))
}

// schedule rereads the parent's deadline and sets the timer, if anything depends on it. c.mu must be held.
func (c *callContext) schedule(now time.Duration) {
	c.deadline = never
	if at, ok := c.Context.Deadline(); ok && c.end.Load() == nil {
		c.deadline = at.Sub(c.start)
	}
	if c.wake == nil && c.unwatch == nil {
		return
	}

	wait := max(c.limits.due-now, 1) // under the race detector, a bubble's timer must not be due at once
	switch {
	case c.timer == nil:
		c.timer = time.AfterFunc(wait, c.expire)
	case c.limits.due == never: // during a pause
		c.timer.Stop()
	default:
		c.timer.Reset(wait)
	}
}

// timeUp reports whether the context must have ended by now, by its timeout rather than by the parent's deadline, and
// which time the call has exceeded then.
func (c *callContext) timeUp() (up, byTimeout bool, exceeded time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Since(c.start)
	if c.deadline < c.limits.due {
		return now >= c.deadline, false, c.deadline
	}
	return now >= c.limits.due, true, c.limits.exceeded()
}

// expire ends the context if its time is up.
func (c *callContext) expire() {
	up, byTimeout, exceeded := c.timeUp()
	switch {
	case !up: // the timeout was extended just before the timer fired
	case c.end.Load() != nil:
		c.awake() // a runner that still waits for its tool must not wait any longer
	case c.Context.Err() != nil:
		c.parentEnded()
	default:
		c.finish(newEnding(context.DeadlineExceeded, TimeoutError(c.tool, exceeded), byTimeout))
	}
}

// parentEnded ends the context because its parent has ended. If the timeout has passed by then, and is not after the
// parent's deadline, it was the timeout.
func (c *callContext) parentEnded() {
	e := endOf(c.Context, c.tool)
	if e.Code == CodeCanceled {
		c.finish(newEnding(context.Canceled, e, false))
		return
	}

	up, byTimeout, exceeded := c.timeUp()
	if up {
		e.Message = TimeoutError(c.tool, exceeded).Message
	}
	c.finish(newEnding(context.DeadlineExceeded, e, up && byTimeout))
}

// finish is the only way in which the context ends. The first ending holds. The ending of a call that has returned also
// stops the timer.
func (c *callContext) finish(e *ending) {
	c.mu.Lock()
	if e == returned && c.timer != nil {
		c.timer.Stop()
	}
	if c.end.Load() != nil {
		c.mu.Unlock()
		return
	}
	if c.done != nil {
		close(c.done) // first: Err must not return an error before Done is closed
	}
	c.end.Store(e)
	after, unwatch := c.after, c.unwatch
	c.after = nil
	if e != returned && !e.byTimeout { // runner.outlast may wait for the tool until its own timeout
		c.schedule(time.Since(c.start))
	}
	c.mu.Unlock()

	if e != returned {
		c.awake()
	}
	for f := range after {
		(*f)()
	}
	if unwatch != nil {
		unwatch()
	}
}

// awake wakes the runner that waits, if there is one.
func (c *callContext) awake() {
	select {
	case c.wake <- struct{}{}:
	default: // there is a token already
	}
}

// endIfDue returns how the context ended, nil if it hasn't. The timer, and the end of the parent, may come a
// little later than a tool notices the same end elsewhere.
func (c *callContext) endIfDue() *ending {
	switch {
	case c.end.Load() != nil:
	case c.Context.Err() != nil:
		c.parentEnded()
	default:
		c.expire()
	}
	return c.end.Load()
}

// left returns how long the call may go on without progress.
func (c *callContext) left() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.limits.due - time.Since(c.start)
}

// Deadline returns the latest time at which the call may end, since the requests of a tool to its
// backend must outlast the progress that it reports.
func (c *callContext) Deadline() (time.Time, bool) {
	deadline, ok := c.Context.Deadline()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limits.pauses > 0 {
		return deadline, ok
	}

	if at := c.start.Add(c.limits.latest); !ok || at.Before(deadline) {
		return at, true
	}
	return deadline, true
}

// Done returns a channel that is closed when the context ends.
func (c *callContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.end.Load() != nil {
			close(c.done)
		}
		c.watch()
	}
	return c.done
}

// Err returns context.Canceled or context.DeadlineExceeded once the context has ended.
func (c *callContext) Err() error {
	if e := c.endIfDue(); e != nil {
		return e.err
	}
	return nil
}

// Value returns the value of the parent. Once the context has ended, its ending answers first: there
// context.Cause finds the cause.
func (c *callContext) Value(key any) any {
	if e := c.endIfDue(); e != nil {
		if v := e.ended.Value(key); v != nil {
			return v
		}
	}
	return c.Context.Value(key)
}

// AfterFunc is the method that the context package looks for in contexts that aren't its own:
// without it, each child context would cost a goroutine.
func (c *callContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.end.Load() != nil {
		go f()
		return func() bool { return false }
	}

	if c.after == nil {
		c.after = make(map[*func()]struct{})
	}
	c.after[&f] = struct{}{}
	c.watch()
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, waiting := c.after[&f]
		delete(c.after, &f)
		return waiting
	}
}

// watch subscribes to the parent, unless a runner watches it. This is the most expensive step of a
// call, so it is deferred until something depends on it. c.mu must be held.
func (c *callContext) watch() {
	if c.wake == nil && c.unwatch == nil && c.end.Load() == nil {
		look := func() { c.endIfDue() }
		c.unwatch = context.AfterFunc(c.Context, look)
		c.timer = time.AfterFunc(never, look)
		c.schedule(time.Since(c.start))
	}
}

// String keeps fmt from reading the fields of a context that is in use.
func (c *callContext) String() string { return "resilience.callContext" }
