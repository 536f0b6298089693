package resilience

import (
	"context"
	"reflect"
	"time"
)

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

// A callersContext is the parent of a callContext as the context package sees it. If the parent has a
// Done channel of its own, the package calls its methods on a goroutine of the package's, where nothing
// would recover a panic.
type callersContext callContext

// A callersNotifier is a callersContext that needs no such goroutine, as that of a call around this one.
type callersNotifier struct{ *callersContext }

type notifier interface{ AfterFunc(func()) func() bool }

// watched returns the parent for context.AfterFunc.
func (c *callContext) watched() context.Context {
	watched := (*callersContext)(c)
	if _, ok := c.parent.(notifier); ok {
		return callersNotifier{watched}
	}
	return watched
}

func (c callersNotifier) AfterFunc(f func()) func() bool { return c.parent.(notifier).AfterFunc(f) }

func (c *callersContext) Deadline() (time.Time, bool) { return (*callContext)(c).parentDeadline() }

func (c *callersContext) Done() <-chan struct{} { return (*callContext)(c).parentDone() }

// Err is only called once the parent is done, and must not return nil then: that would be a panic of the
// package's.
func (c *callersContext) Err() error {
	if err := (*callContext)(c).parentErr(); err != nil {
		return err
	}
	return context.Canceled
}

// Value lets the package find its own context within the parent, which needs no goroutine either.
func (c *callersContext) Value(key any) any {
	return ask(func() any { return c.parent.Value(key) })
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

// maxAncestors bounds the search for an ancestor that has ended.
const maxAncestors = 100

// awaitAncestors waits for the end of the parent if that is on its way: a context has ended before it
// tells its children so, one after the other, and a tool may know an ancestor of the parent.
func (c *callContext) awaitAncestors() {
	if c.parentErr() != nil || !ask(func() bool { return ancestorEnded(c.parent) }) {
		return
	}
	select {
	case <-c.parentDone():
	case <-c.Done(): // at the timeout, at the latest
	}
}

// ancestorEnded reports whether a context that ctx was derived from has ended. It looks only through the
// types of the context package, which are sure to pass the end on, and through our own. The package
// has no function for it, but each of these types embeds its parent.
func ancestorEnded(ctx context.Context) bool {
	for range maxAncestors {
		if ctx == nil || ctx.Err() != nil {
			return ctx != nil
		}

		switch c := ctx.(type) {
		case *callContext:
			ctx = c.parent
		case *startContext:
			ctx = c.Context
		case valuesContext:
			ctx = c.Context
		default:
			ctx = embedded(ctx)
		}
	}
	return false
}

// embedded returns the context from which the context package has derived ctx, and nil if it hasn't, or if
// the two don't end together.
func embedded(ctx context.Context) context.Context {
	v := reflect.ValueOf(ctx)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Type().Elem().PkgPath() != "context" {
		return nil
	}
	parent := v.Elem().FieldByName("Context")
	if !parent.IsValid() || !parent.CanInterface() {
		return nil
	}

	ctx, _ = parent.Interface().(context.Context)
	return ctx
}
