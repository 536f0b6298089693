package resilience

import "time"

// The parent of a call's context is the caller's own code. While the call is being made, on whatever
// goroutine, the parent's methods are only called through those below, and never under a lock. If a
// method panics, it has said nothing: a call that has begun must come to its end, and a goroutine of
// the guard must not end the process.

// ask calls a method of the caller's. It returns zero if that panics.
func ask[T any](method func() T) (answer T) {
	defer func() { _ = recover() }()
	return method()
}

func (c *callContext) parentErr() error { return ask(c.parent.Err) }

func (c *callContext) parentDone() <-chan struct{} {
	defer func() { _ = recover() }() // ask would allocate
	return c.parent.Done()
}

func (c *callContext) parentDeadline() (deadline time.Time, ok bool) {
	defer func() { _ = recover() }()
	return c.parent.Deadline()
}

// parentEnd returns the error for the end of the parent, which has ended.
func (c *callContext) parentEnd() *Error {
	e := ask(func() *Error { return endAfterDone(c.parent, c.name) })
	if e == nil {
		e = canceledError(c.name)
	}
	return e
}

// outer returns the call around this one, nil if there is none.
func (c *callContext) outer() *callContext {
	return ask(func() *callContext { return innermost(c.parent) })
}
