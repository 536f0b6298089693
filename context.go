package resilience

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A limited is the context of a call that has a time limit. The context package
// can end a call at a deadline too, but there the parent's end and the limit's
// are two events with two causes; here whatever ends the call first goes through
// end, once, so that a call has one outcome and context.Cause is always an *Error.
type limited struct {
	parent   context.Context
	tool     string
	limit    time.Duration // as told in the error
	deadline time.Time
	callers  bool         // the limit is the caller's deadline, which comes before the tool's own
	attempt  atomic.Int32 // for Attempt; 0: ask the parent

	timer   *time.Timer
	unwatch func() bool // stops watching the parent; nil if it never ends

	mu    sync.Mutex
	done  chan struct{} // made when asked for
	err   error         // nil until the end
	cause error
	mine  bool            // ended by the tool's own limit
	dead  context.Context // after the end: a context of the standard library's that has the cause
	after map[*func()]struct{}
}

var _ context.Context = (*limited)(nil)

// limitedContext starts a limit. A deadline of the parent's that comes sooner
// takes its place. The caller must call stop.
func limitedContext(parent context.Context, tool string, limit time.Duration) *limited {
	c := &limited{parent: parent, tool: tool, limit: limit}
	now := time.Now()
	c.deadline = now.Add(limit)
	wait := limit
	if d, ok := parent.Deadline(); ok && d.Before(c.deadline) {
		c.deadline, c.limit, c.callers = d, d.Sub(now), true
		wait = c.limit + time.Millisecond // the parent goes first: it knows the cause
	}
	c.mu.Lock() // expire and parentDone may run before their stop functions are stored
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(wait, c.expire)
	if parent.Done() != nil {
		c.unwatch = context.AfterFunc(parent, c.parentDone)
	}
	return c
}

// expire also stands in for a parent that has a deadline and doesn't keep it.
func (c *limited) expire() {
	c.end(context.DeadlineExceeded, TimeoutError(c.tool, c.limit), !c.callers)
}

// parentDone tells a deadline of the parent's that equals the limit, which is the
// limit whichever timer was first, from an end that only the caller knew of.
func (c *limited) parentDone() {
	e := endOf(c.parent, c.tool)
	if e.Code != CodeTimeout {
		c.end(context.Canceled, e, false)
		return
	}
	reached := !time.Now().Before(c.deadline)
	if reached {
		e.Message = TimeoutError(c.tool, c.limit).Message
	}
	c.end(context.DeadlineExceeded, e, reached && !c.callers)
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
	if c.done != nil {
		close(c.done)
	}
	after := c.after
	c.after = nil
	c.mu.Unlock()

	c.timer.Stop()
	if c.unwatch != nil {
		c.unwatch()
	}
	for f := range after {
		(*f)()
	}
}

// ended returns the *Error that ended the call, nil if nothing has, and whether it
// was the tool's own limit.
func (c *limited) ended() (e *Error, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, _ = c.cause.(*Error)
	return e, c.mine
}

func (c *limited) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *limited) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
	}
	return c.done
}

func (c *limited) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// AfterFunc is what the context package looks for in a context that isn't its
// own: without it, each child context would cost a goroutine. Unlike
// context.AfterFunc it calls f on the goroutine that ends the context, as the
// package's own f only cancels a child; but never on AfterFunc's own goroutine,
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
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, waiting := c.after[&f]
		delete(c.after, &f)
		return waiting
	}
}

type attemptKey struct{}

// Value also answers the context package's private question for a context of its
// own, by which context.Cause finds the cause. Before the end there is none to
// find, and children use AfterFunc: the parent may answer as it likes.
func (c *limited) Value(key any) any {
	if key == (attemptKey{}) {
		if n := c.attempt.Load(); n > 0 {
			return int(n)
		}
	}
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
