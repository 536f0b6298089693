package resilience

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A limited is the context of a call that has a time limit. The context package
// can end a call at a deadline too, but there the parent's end and the limit's
// are two events with two causes; here whatever ends the call first goes through
// end, once, so that a call has one outcome, and context.Cause is an *Error unless the
// call has simply returned.
type limited struct {
	parent context.Context
	tool   string
	start  time.Time     // from which all other times are counted
	limit  time.Duration // restarted by progress
	bound  time.Duration // the limit for all of it, which isn't restarted

	// wake holds a token once the context has ended or a function under it has returned,
	// for the one goroutine that waits for both, in runner.run; nil if none does.
	wake chan struct{}

	mu       sync.Mutex
	timer    *time.Timer
	most     time.Duration // bound, and the time of pauses
	own      time.Duration // when the limit ends the call
	expiry   time.Duration // own, or the parent's deadline if that is first
	since    time.Duration // when the first of the pauses began
	at       time.Duration // when it was ended, unless by stop
	unwatch  func() bool   // stops watching the parent; nil if it isn't watched
	done     chan struct{} // made when asked for
	err      error         // nil until the end
	cause    error
	dead     context.Context // after the end: a context of the standard library's that has the cause
	after    map[*func()]struct{}
	paused   int32 // how many pauses there are: only the caller can end the call
	callers  bool  // expiry is the caller's deadline, which comes before the tool's own
	mine     bool  // ended by the tool's own limit
	attended bool  // somebody waits in runner.run, and sees the end of the parent

	attempt atomic.Int32 // for Attempt; 0: ask the parent
}

var _ context.Context = (*limited)(nil)

// limitedContext starts a limit, which progress may restart until most has passed: not
// at all if most is limit. A deadline of the parent's that comes sooner takes its place.
// It is attended if a function is to be enforced under it. The caller must call stop.
func limitedContext(parent context.Context, tool string, limit, most time.Duration, attended bool) *limited {
	c := &limited{tool: tool, start: time.Now()}
	c.begin(parent, limit, most, attended)
	return c
}

// begin is limitedContext for a limited that has its tool and its start, just now.
func (c *limited) begin(parent context.Context, limit, most time.Duration, attended bool) {
	c.parent, c.limit, c.bound, c.most = parent, limit, most, most
	if c.attended = attended; attended {
		c.wake = make(chan struct{}, 1)
	}
	c.mu.Lock() // expire may run before the timer is stored
	defer c.mu.Unlock()
	c.arm(0)
}

// watch notices the end of the parent, if somebody wants to hear of it and nobody does
// already: that is dearer than all the rest of a call. It requires that c.mu is held.
func (c *limited) watch() {
	if c.attended || c.unwatch != nil || c.err != nil || c.done == nil && c.after == nil || c.parent.Done() == nil {
		return
	}
	c.unwatch = context.AfterFunc(c.parent, c.parentDone)
}

// leave is called when the function that was waited for has returned, and the context
// goes on.
func (c *limited) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attended = false
	c.watch()
}

// parentFirst is the lead that a parent gets at its own deadline: it knows the cause.
const parentFirst = time.Millisecond

func (c *limited) elapsed() time.Duration { return time.Since(c.start) }

// arm lets the limit begin at now. It requires that c.mu is held.
func (c *limited) arm(now time.Duration) {
	c.own = min(now+min(c.limit, math.MaxInt64-now), c.most)
	if c.paused > 0 {
		c.own = math.MaxInt64
	}
	c.schedule(now)
}

// schedule sets the timer for the end of the limit or the parent's deadline, whichever
// is first. It requires that c.mu is held.
func (c *limited) schedule(now time.Duration) {
	c.expiry, c.callers = c.own, false
	wait := c.expiry - now
	if d, ok := c.parent.Deadline(); ok {
		if by := max(d.Sub(c.start), 0); by < c.expiry {
			c.expiry, c.callers = by, true
			wait = by - now
			if wait < math.MaxInt64-parentFirst {
				wait += parentFirst
			}
		}
	}
	if c.timer == nil {
		c.timer = time.AfterFunc(wait, c.expire)
	} else {
		c.timer.Reset(wait)
	}
}

// expire also stands in for a parent that has a deadline and doesn't keep it.
func (c *limited) expire() {
	if c.parent.Err() != nil { // which nobody may have watched
		c.parentDone()
		return
	}
	c.mu.Lock()
	now := c.elapsed()
	if c.callers && c.err == nil {
		c.schedule(now) // a call around this one may have been paused since
	}
	if now < c.expiry { // also if the timer fired just before it was reset
		c.mu.Unlock()
		return
	}
	told, mine := c.told(), !c.callers
	c.mu.Unlock()
	c.end(context.DeadlineExceeded, TimeoutError(c.tool, told), mine)
}

// told is the limit that ends the call, as it is called in its error. It requires that
// c.mu is held.
func (c *limited) told() time.Duration {
	switch {
	case c.callers:
		return c.expiry
	case c.own == c.most:
		return c.bound
	default:
		return c.limit
	}
}

// parentDone tells a deadline of the parent's that equals the limit, which is the
// limit whichever timer was first, from an end that only the caller knew of.
func (c *limited) parentDone() {
	e := endOf(c.parent, c.tool)
	if e.Code != CodeTimeout {
		c.end(context.Canceled, e, false)
		return
	}
	outer := innermost(c.parent)
	c.mu.Lock()
	reached := c.elapsed() >= c.expiry
	if outer != nil && outer.endedBefore(c.start.Add(c.expiry)) {
		reached = false // it was an outer call's limit, however late that is noticed here
	}
	if reached {
		e.Message = TimeoutError(c.tool, c.told()).Message
	}
	mine := reached && !c.callers
	c.mu.Unlock()
	c.end(context.DeadlineExceeded, e, mine)
}

// endOf makes an error of a context's end, nil if it goes on.
func endOf(ctx context.Context, tool string) *Error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	e := canceledError(tool, nil)
	if err == context.DeadlineExceeded {
		e = TimeoutError(tool, 0)
	}
	e.Err = causeOf(ctx)
	return e
}

// causeOf is why ctx ended, if that says more than the error's code does.
func causeOf(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != context.DeadlineExceeded && cause != context.Canceled {
		return cause
	}
	return nil
}

// stop ends the context of a call that has returned.
func (c *limited) stop() { c.end(context.Canceled, context.Canceled, false) }

// end is the only way in which the context ends; the first caller's reason holds.
func (c *limited) end(err, cause error, mine bool) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err, c.cause, c.mine = err, cause, mine
	if cause != context.Canceled {
		c.at = c.elapsed()
	}
	if c.done != nil {
		close(c.done)
	}
	after, unwatch := c.after, c.unwatch
	c.after = nil
	c.mu.Unlock()

	c.timer.Stop()
	if unwatch != nil {
		unwatch()
	}
	c.awake()
	for f := range after {
		(*f)()
	}
}

// awake wakes the goroutine that waits in runner.run, if there is one.
func (c *limited) awake() {
	select {
	case c.wake <- struct{}{}:
	default: // there is a token already
	}
}

// catchUp ends the context now if it should have ended already. Its parent and its
// timer tell it so on goroutines of their own, and a tool may have heard of the same
// end before: from the caller's context, or from a connection with the same deadline.
func (c *limited) catchUp() {
	c.mu.Lock()
	over, expired := c.err != nil, c.elapsed() >= c.expiry
	c.mu.Unlock()
	switch {
	case over:
	case c.parent.Err() != nil:
		c.parentDone()
	case expired:
		c.expire()
	}
}

// left is how long the call may go on without progress.
func (c *limited) left() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.expiry - c.elapsed()
}

// over reports whether the call has ended.
func (c *limited) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil
}

// endedBefore reports whether the limit or the caller ended the call before t.
func (c *limited) endedBefore(t time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil && c.start.Add(c.at).Before(t)
}

// endedAt is when the limit or the caller ended the call.
func (c *limited) endedAt() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.start.Add(c.at)
}

// progress lets the limit begin anew.
func (c *limited) progress() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && c.paused == 0 && c.bound > c.limit {
		c.arm(c.elapsed())
	}
}

// pause stops the clock until resume is called, once.
func (c *limited) pause() (resume func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused++; c.paused == 1 {
		c.since = c.elapsed()
		if c.err == nil {
			c.arm(c.since)
		}
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.paused--
		if c.paused > 0 || c.err != nil {
			return
		}
		now := c.elapsed()
		c.most += min(now-c.since, math.MaxInt64-c.most)
		c.most = max(c.most, now+min(c.limit, math.MaxInt64-now)) // the limit begins anew in any case
		c.arm(now)
	}
}

// ended returns the *Error that ended the call, nil if nothing has, and whether it
// was the tool's own limit.
func (c *limited) ended() (e *Error, mine bool) {
	c.catchUp()
	c.mu.Lock()
	defer c.mu.Unlock()
	e, _ = c.cause.(*Error)
	return e, c.mine
}

// Deadline is the latest at which the call may end: what a tool hands on to its
// backend must outlast the progress that it reports.
func (c *limited) Deadline() (time.Time, bool) {
	c.mu.Lock()
	last := c.start.Add(c.most)
	if c.paused > 0 {
		last = c.start.Add(c.expiry)
	}
	c.mu.Unlock()
	if d, ok := c.parent.Deadline(); ok && d.Before(last) {
		last = d
	}
	return last, true
}

func (c *limited) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
		c.watch()
	}
	return c.done
}

func (c *limited) Err() error {
	c.catchUp()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// AfterFunc is what the context package looks for in a context that isn't its
// own: without it, each child context would cost a goroutine. Unlike
// context.AfterFunc it calls f on the goroutine that ends the context, which may be the
// caller's: it is for that package, whose own f only cancels a child; but never on AfterFunc's own goroutine,
// where the package holds the lock of that child.
func (c *limited) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		go f()
		return func() bool { return false }
	}
	defer c.mu.Unlock()
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

type (
	attemptKey struct{} // of the attempt's number, an int
	limitedKey struct{} // of the innermost limited context itself
)

// innermost returns the nearest call with a limit that ctx belongs to, nil if there
// is none.
func innermost(ctx context.Context) *limited {
	c, _ := ctx.Value(limitedKey{}).(*limited)
	return c
}

// Value also answers the context package's private question for a context of its
// own, by which context.Cause finds the cause. Go 1.25 asks it before Err: so Value
// notices the end as Err does. Before the end there is no cause to find, and children
// use AfterFunc: the parent may answer as it likes.
func (c *limited) Value(key any) any {
	switch key {
	case limitedKey{}:
		return c
	case attemptKey{}:
		if n := c.attempt.Load(); n > 0 {
			return int(n)
		}
	}
	c.catchUp()
	c.mu.Lock()
	if c.err != nil && c.dead == nil {
		dead, cancel := context.WithCancelCause(context.Background())
		cancel(c.cause)
		c.dead = dead
	}
	dead := c.dead
	c.mu.Unlock()
	if dead != nil {
		if v := dead.Value(key); v != nil {
			return v
		}
	}
	return c.parent.Value(key)
}

// String keeps fmt from reading the fields of a context that is in use.
func (c *limited) String() string { return "resilience.limited" }
