package resilience

import (
	"context"
	"time"
)

// An ending says how a context ended. It never changes.
type ending struct {
	err        error           // context.Canceled or context.DeadlineExceeded
	cause      error           // an *Error, or context.Canceled if the call has simply returned
	at         time.Time       // zero if the call has simply returned
	ownTimeout bool            // the tool's own timeout ended it, rather than the caller
	dead       context.Context // of the context package, which finds the cause in it
}

// returned is the ending of every call that ended because its function returned.
var returned = newEnding(context.Canceled, context.Canceled, time.Time{}, false)

func newEnding(err, cause error, at time.Time, ownTimeout bool) *ending {
	dead, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	return &ending{err, cause, at, ownTimeout, dead}
}

// hurried is clock.hurried, at this moment. A pause, or progress, of a call around this one may have put its deadline
// off.
func (c *callContext) hurried() bool {
	deadline := never
	answered := c.askAside(func(c *callContext) { deadline = c.sinceStart(c.parentDeadline()) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if answered {
		c.clock.deadline = deadline
	}
	return c.clock.hurried(c.elapsed())
}

// echoedBy reports whether err is the error or the cause of the context, which has ended.
func (c *callContext) echoedBy(err error) bool {
	c.ended()
	e := c.ending.Load()
	return e != nil && (err == e.err || err == e.cause)
}

// echo returns the error of a tool for others, and whether it says no more than that the context has ended, as
// it has.
func (c *callContext) echo(err error) (read error, echoes bool) {
	e := c.ending.Load()
	read = inspect(err, func(err error) {
		echoes = echoes || isItself(err, e.err) // as the cause is, too
	})
	return read, echoes && !isCrash(err)
}

// endOf returns an error for the end of a context, nil if it has not ended.
func endOf(ctx context.Context, tool string) *Error {
	err := ctx.Err()
	if err == nil {
		return nil
	}

	e := canceledError(tool)
	if err == context.DeadlineExceeded {
		e = TimeoutError(tool, 0)
	}
	e.Err = causeOf(ctx)
	return e
}

// endAfterDone is endOf for a context that has ended, or is about to because one above it has. It returns an error even
// if Err doesn't say so, as it should.
func endAfterDone(ctx context.Context, tool string) *Error {
	if ended := endedAbove(ctx); ended != nil {
		return endOf(ended, tool)
	}
	return canceledError(tool)
}

// causeOf returns why ctx ended, if that says more than the error's code does.
func causeOf(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != context.DeadlineExceeded && cause != context.Canceled {
		return cause
	}

	return nil
}

// endsWith is endedWith for the failure of an attempt, nil if there is none. At a timeout, a mark of a Cooperative
// tool, which answers for itself, stands too, if it says more than TIMEOUT does, and so does ErrUnfinished. Others
// have been abandoned by then, but for luck.
func (c *call) endsWith(ended *Error, f *failure) *Error {
	if f == nil {
		return endedWith(ended, nil, nil)
	}

	says := f.unfinished || f.neutral || f.said && (f.says != ClassTransient || f.noEffect)
	marked := says && f.explicit == nil && !isCrash(f.err)
	if marked && c.state.cooperative && ended != nil && ended.Code == CodeTimeout {
		return nil
	}
	return endedWith(ended, f.err, f.explicit)
}

// endedWith decides between the end of a call and the error that its function returned, nil
// if it returned none. Once the call has ended, what the function returns is most likely the
// echo of that end, so it becomes the end's cause. Only an *Error in it that deliberately says
// something else stands: endedWith then returns nil.
func endedWith(ended *Error, err error, said *Error) *Error {
	if ended == nil {
		return nil
	}

	if said != nil && said.Code != CodeTimeout && said.Code != CodeCanceled {
		return nil
	}
	return ended.withCause(err)
}
