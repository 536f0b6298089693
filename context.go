package resilience

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A callContext is the context of a call or of an attempt. The context package can end a call at a deadline too, but
// there the parent's end and the timeout are two events with two causes. Here the call ends once, by a single ending, so
// that it has one outcome and context.Cause says what ended it.
type callContext struct {
	parent context.Context
	name   string    // the tool's, for errors
	start  time.Time // all times of the clock are since then

	// wake holds a token once the context has ended or the function under it has returned. It is for the one goroutine
	// that waits for both, in runner.run, and nil if there is none.
	wake chan struct{}

	ticket *ticket // of the call; nil for an attempt, and outside of a guard

	mu       sync.Mutex // guards what follows
	clock    clock
	timer    *time.Timer
	done     chan struct{} // made when it is asked for
	after    map[*func()]struct{}
	holds    map[*hold]struct{} // pauses and excuses that have not ended
	unwatch  func() bool        // stops watching the parent; nil if it isn't watched
	attended bool               // runner.run waits, and notices the end of the parent
	waiting  bool               // for the next attempt
	excuses  excuses            // of the tool, for a timeout

	ending  atomic.Pointer[ending] // nil until the context has ended
	attempt atomic.Int32           // for Attempt; 0 means that the parent knows
	asked   atomic.Bool            // Pause was called, so a person may have been asked
	stopped atomic.Bool            // the call has returned; a tool that is waited for goes on after its context has ended
	backend backendLog             // what the backend has said during the attempt
	questions
}

var _ context.Context = (*callContext)(nil)

// newCallContext starts a timeout, which progress may restart until maximum has passed. An earlier deadline of the
// parent takes its place. The context must be attended if a function is enforced under it. The caller must call stop.
func newCallContext(parent context.Context, name string, timeout, maximum time.Duration, attended bool) *callContext {
	c := &callContext{name: name, start: time.Now(), clock: newClock(timeout, maximum)}
	if call, ok := parent.(*callContext); ok {
		c.clock.deadline = c.sinceStart(call.knownDeadline(), true) // a method of the caller's may block by now
	} else {
		c.clock.deadline = c.sinceStart(parent.Deadline())
	}
	if around := innermost(parent); around != nil {
		c.backend.unexplained = around.backend.unexplained
	}
	c.begin(parent, attended)
	return c
}

// begin starts a context that already has its name, its start and its clock with the deadline of the
// parent. Some of its time may have elapsed. It calls no method of the parent.
func (c *callContext) begin(parent context.Context, attended bool) {
	c.parent, c.attended = parent, attended
	if attended {
		c.wake = make(chan struct{}, 1)
	}

	c.mu.Lock() // expire may run before the timer is stored
	defer c.mu.Unlock()
	c.schedule(c.elapsed())
}

func (c *callContext) elapsed() time.Duration { return time.Since(c.start) }

// sinceStart returns a deadline as the clock has it.
func (c *callContext) sinceStart(deadline time.Time, ok bool) time.Duration {
	if !ok {
		return never
	}

	return max(deadline.Sub(c.start), 0)
}

// parentFirst is the head start of a parent at its own deadline, since it knows the cause.
const parentFirst = time.Millisecond

// schedule sets the timer for the end of the timeout or for the parent's deadline,
// whichever is first. c.mu must be held.
func (c *callContext) schedule(now time.Duration) {
	at, callers := c.clock.end()
	if at == never && c.timer != nil { // in a pause: a bubble would wait for the year 2300
		c.timer.Stop()
		return
	}

	wait := at - now
	if callers && wait < never-parentFirst {
		wait += parentFirst
	}

	wait = max(wait, 1) // under the race detector, the runtime may crash if a bubble's timer is due at once
	if c.timer == nil {
		c.timer = time.AfterFunc(wait, c.expire)
	} else {
		c.timer.Reset(wait)
	}
}

// expire ends the context when its time is up. It also stands in for a parent that has a
// deadline and doesn't keep it.
func (c *callContext) expire() {
	var parentErr error // nothing may have watched the parent
	deadline := never   // may have been put off since, by a pause of a call around this one
	answered := c.askAside(func(c *callContext) {
		parentErr, deadline = c.parentErr(), c.sinceStart(c.parentDeadline())
	})
	if answered && parentErr != nil {
		c.parentEnded()
		return
	}

	now := c.elapsed()
	c.mu.Lock()
	if answered {
		c.clock.deadline = deadline
	}
	at, callers := c.clock.end()
	own, exceeded := !callers && !c.clock.shortened(), c.clock.exceeded()
	if now < at && c.ending.Load() == nil {
		c.schedule(c.elapsed())
	}
	c.mu.Unlock()

	if now < at { // also if the timer fired just before it was reset
		return
	}
	e := TimeoutError(c.name, exceeded)
	c.end(newEnding(context.DeadlineExceeded, e, c.start.Add(now), own))
}

// parentEnded ends the context because its parent has ended. A deadline of the parent that
// equals the timeout counts as the timeout, whichever timer fired first.
func (c *callContext) parentEnded() {
	e, outer := c.parentEnd()
	if e.Code != CodeTimeout {
		c.end(newEnding(context.Canceled, e, time.Now(), false))
		return
	}

	c.mu.Lock()
	at, callers := c.clock.end()
	own, exceeded := !callers && !c.clock.shortened(), c.clock.exceeded()
	c.mu.Unlock()

	reached := c.elapsed() >= at
	if outer != nil && outer.endedBefore(c.start.Add(at), e.Err) {
		reached = false // it was the timeout of an outer call, however late it is noticed here
	}
	if reached {
		e.Message = TimeoutError(c.name, exceeded).Message
	}
	c.end(newEnding(context.DeadlineExceeded, e, time.Now(), reached && own))
}

// stop ends the context of a call that has returned.
func (c *callContext) stop() {
	c.stopped.Store(true)
	c.end(returned)
}

// end is the only way in which the context ends. The first ending holds.
func (c *callContext) end(e *ending) {
	c.mu.Lock()
	if c.ending.Load() != nil {
		c.mu.Unlock()
		return
	}
	if c.done != nil {
		close(c.done) // first: Err must not be set before Done is closed, and Err waits for c.mu
	}
	c.ending.Store(e)
	after, unwatch, holds := c.after, c.unwatch, c.stopHolds()
	c.after = nil
	c.mu.Unlock()

	c.timer.Stop()
	if e != returned { // for which nobody waits
		c.awake()
	}
	for h := range holds {
		h.endIn(c)
	}
	callAfter(after)
	if unwatch != nil {
		c.forget(unwatch)
	}
}

// awake wakes the goroutine that waits in runner.run, if there is one.
func (c *callContext) awake() {
	select {
	case c.wake <- struct{}{}:
	default: // there is a token already
	}
}

// catchUp ends the context now if it should have ended already. Its parent and its timer
// notify it on goroutines of their own, and a tool may have noticed the same end before:
// by the caller's context, or by a connection with the same deadline.
func (c *callContext) catchUp() *ending {
	if e := c.ending.Load(); e != nil {
		return e
	}

	c.mu.Lock()
	at, _ := c.clock.end()
	c.mu.Unlock()
	switch {
	case c.parentErr() != nil:
		c.parentEnded()
	case c.elapsed() >= at:
		c.expire()
	}
	return c.ending.Load()
}

// left returns how long the call may go on without progress, or might have if its caller hadn't left: as far as
// its own timeout is concerned.
func (c *callContext) left() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clock.due - c.elapsed()
}

// over reports whether the context is known to have ended.
func (c *callContext) over() bool { return c.ending.Load() != nil }

// endedBefore reports whether the context ended before t, with that cause: one that was detached has another.
func (c *callContext) endedBefore(t time.Time, cause error) bool {
	e := c.ending.Load()
	return e != nil && e.at.Before(t) && e.cause == cause
}

// ended returns the *Error that ended the call, nil if it goes on or has returned, and
// whether it was the tool's own timeout.
func (c *callContext) ended() (e *Error, ownTimeout bool) {
	if !c.over() {
		c.askAside(func(c *callContext) {
			if c.catchUp() == nil && endedAbove(c.parent) != nil {
				c.parentEnded()
			}
		})
	}
	end := c.ending.Load()
	if end == nil {
		return nil, false
	}

	e, _ = end.cause.(*Error)
	return e, end.ownTimeout
}

// knownDeadline is Deadline, without asking the parent again.
func (c *callContext) knownDeadline() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.start.Add(min(c.clock.last(), c.clock.deadline))
}

// Deadline returns the latest time at which the call may end, since what a tool passes to
// its backend must outlast the progress that it reports.
func (c *callContext) Deadline() (time.Time, bool) {
	c.mu.Lock()
	at := c.start.Add(c.clock.last())
	c.mu.Unlock()

	if d, ok := c.parentDeadline(); ok && d.Before(at) {
		at = d
	}
	return at, true
}

// Done returns a channel that is closed when the context ends.
func (c *callContext) Done() <-chan struct{} {
	c.mu.Lock()
	done := c.done
	if done != nil {
		c.mu.Unlock()
		return done
	}
	done = make(chan struct{})
	c.done = done
	if c.ending.Load() != nil {
		close(done)
	}
	c.mu.Unlock()

	c.watch()
	return done
}

// Err returns context.Canceled or context.DeadlineExceeded once the context has ended.
func (c *callContext) Err() error {
	if e := c.catchUp(); e != nil {
		return e.err
	}

	return nil
}

// callAfter calls what was passed to AfterFunc. The package's functions, which end children, have come to an end
// when it returns, but a tool's own may do anything.
func callAfter(after map[*func()]struct{}) {
	if len(after) == 0 {
		return
	}

	var all sync.WaitGroup
	for f := range after {
		all.Go(func() { defer ignorePanic(); (*f)() })
	}
	aside(new(atomic.Int32), all.Wait)
}

// AfterFunc is what the context package looks for in a context that isn't its own; without it each child would cost
// a goroutine for as long as it lives. It calls f on a goroutine of its own, since f need not be the package's,
// which only cancels a child: a tool may call this method.
func (c *callContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	if c.ending.Load() != nil {
		c.mu.Unlock()
		go func() { defer ignorePanic(); f() }()
		return func() bool { return false }
	}
	if c.after == nil {
		c.after = make(map[*func()]struct{})
	}
	c.after[&f] = struct{}{}
	c.mu.Unlock()
	c.watch()

	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, waiting := c.after[&f]
		delete(c.after, &f)
		return waiting
	}
}

type (
	attemptKey struct{} // of the attempt's number, an int
	contextKey struct{} // of the innermost callContext itself
	logKey     struct{} // of the log of its attempt
)

// innermost returns the nearest call that ctx belongs to, nil if there is none.
func innermost(ctx context.Context) *callContext {
	c, _ := ctx.Value(contextKey{}).(*callContext)
	return c
}

// Value also answers the context package's private question for a context of its own, by
// which context.Cause finds the cause. That key is an *int. Go 1.25 asks it before Err, so
// Value notices the end then, as Err does. Before the end there is no cause to find, and
// children use AfterFunc, so the parent may answer as it likes.
func (c *callContext) Value(key any) any {
	switch key := key.(type) {
	case contextKey:
		return c
	case logKey:
		return &c.backend.first
	case attemptKey:
		if n := c.attempt.Load(); n > 0 {
			return int(n)
		}
	case ticketKey:
		if c.ticket != nil && c.ticket.b == key.b {
			return c.ticket
		}
	case *int:
		if e := c.catchUp(); e != nil {
			if v := e.dead.Value(key); v != nil {
				return v
			}
		}
	}

	return c.parent.Value(key)
}

// String keeps fmt from reading the fields of a context that is in use.
func (c *callContext) String() string { return "resilience.callContext" }
