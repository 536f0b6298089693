package resilience

import (
	"context"
	"reflect"
	"sync/atomic"
	"time"
)

// The parent of a call's context is the caller's own code. While the call is being made, on whatever
// goroutine, the parent's methods are only called through those below, and never under a lock. If a
// method panics, it has said nothing: a call that has begun must come to its end, and a goroutine of
// the guard must not end the process. A method may also block, as on a lock that a hanging tool holds. Once
// the tool runs, the guard therefore asks aside, and goes on without a parent that takes too long. Only the
// tool itself asks directly, by the methods of its context.

// ask calls a method of the caller's. It returns zero if that panics.
func ask[T any](method func() T) (answer T) {
	defer func() { _ = recover() }()
	return method()
}

// The questions to a parent.
type questions struct {
	hanging atomic.Int32 // those that have taken too long, and still run
	trust   atomic.Int32 // positive if the parent is one that can't hang, negative if it isn't, 0 if that isn't known
}

// askAside calls a function that calls methods of the parent, and reports whether it has come to an end.
// While one hangs, no other is called. It needs no goroutine if nothing but the context package is asked, and a
// function that uses nothing but its argument isn't allocated.
func (c *callContext) askAside(f func(*callContext)) bool {
	if c.trusted() {
		f(c)
		return true
	}
	return c.hanging.Load() == 0 && aside(&c.hanging, func() { f(c) })
}

// trusted reports whether the methods of the parent are sure not to hang.
func (c *callContext) trusted() bool {
	if c.trust.Load() == 0 {
		answer := int32(-1)
		if standard(c.parent) {
			answer = 1
		}
		c.trust.Store(answer)
	}
	return c.trust.Load() > 0
}

// standard reports whether ctx consists of nothing but contexts of the context package, and of our own.
func standard(ctx context.Context) bool {
	for range maxAncestors {
		switch ctx {
		case nil:
			return false
		case context.Background(), context.TODO():
			return true
		}

		switch c := ctx.(type) {
		case *callContext:
			ctx = c.parent
		case *attemptContext:
			ctx = c.parent
		case *startContext:
			ctx = c.Context
		default:
			ctx = embedded(ctx)
		}
	}
	return false
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
// package's. Nobody learns what it returns.
func (c *callersContext) Err() error { return context.Canceled }

// Value lets the package find its own context within the parent, which needs no goroutine either.
func (c *callersContext) Value(key any) any {
	return ask(func() any { return c.parent.Value(key) })
}

// forget ends the subscription to the parent, also while the parent hangs: otherwise it would keep the call.
func (c *callContext) forget(unwatch func() bool) {
	switch {
	case c.trusted():
		ask(unwatch)
	case c.hanging.Load() == 0:
		aside(&c.hanging, func() { ask(unwatch) })
	default:
		go ask(unwatch)
	}
}

// subscribing is the unwatch of a context that is about to watch its parent.
func subscribing() bool { return false }

// watch subscribes to the parent, unless it is watched already. It is the most expensive step of
// a call, so it is deferred until something depends on it. c.mu must not be held, since the
// parent, which may end right now, is the caller's code.
func (c *callContext) watch() {
	c.mu.Lock()
	if c.attended || c.unwatch != nil || c.ending.Load() != nil {
		c.mu.Unlock()
		return
	}
	c.unwatch = subscribing
	c.mu.Unlock()

	if c.parentDone() == nil {
		return
	}
	stop := ask(func() func() bool { return context.AfterFunc(c.watched(), c.parentEnded) })
	if stop == nil {
		return
	}

	c.mu.Lock()
	c.unwatch = stop
	over := c.ending.Load() != nil
	c.mu.Unlock()
	if over { // meanwhile, and end has not seen stop
		c.forget(stop)
	}
}

// leave is called when the attended function has returned and the context goes on: it then watches the
// parent for itself.
func (c *callContext) leave() {
	c.mu.Lock()
	c.attended = false
	c.mu.Unlock()
	c.askAside((*callContext).watch)
}

// parentEnd returns the error for the end of the parent, which has ended, and the call around this one, nil
// if there is none.
func (c *callContext) parentEnd() (e *Error, outer *callContext) {
	var end *Error
	var around *callContext
	if c.askAside(func(c *callContext) {
		end = ask(func() *Error { return endAfterDone(c.parent, c.name) })
		around = c.outer()
	}) {
		e, outer = end, around
	}

	if e == nil {
		e = canceledError(c.name)
	}
	return e, outer
}

// outer returns the call around this one, nil if there is none.
func (c *callContext) outer() *callContext {
	return ask(func() *callContext { return innermost(c.parent) })
}

// maxAncestors bounds the search for an ancestor that has ended.
const maxAncestors = 100

// endedAbove returns ctx, or the next context that it was derived from, if that has ended, and otherwise nil: a context
// has ended before it tells its children so, one after the other, and a tool may know an ancestor of its caller's. It
// looks only through the types of the context package, which are sure to pass the end on, and through our own. The
// package has no function for it, but each of these types embeds its parent.
func endedAbove(ctx context.Context) (ended context.Context) {
	defer func() { _ = recover() }()
	for range maxAncestors {
		if ctx == nil || ctx.Err() != nil {
			return ctx
		}

		switch c := ctx.(type) {
		case *callContext:
			ctx = c.parent
		case *attemptContext:
			ctx = c.parent
		case *startContext:
			ctx = c.Context
		case valuesContext:
			ctx = c.Context
		default:
			ctx = embedded(ctx)
		}
	}
	return nil
}

// canceledAbove reports whether ctx, or the next ended context that it was derived from, was canceled.
func canceledAbove(ctx context.Context) bool {
	ended := endedAbove(ctx)
	return ended != nil && ask(ended.Err) == context.Canceled
}

// embedded returns the context from which the context package has derived ctx, and nil if it hasn't, or if
// the two don't end together. It is what the types of the package embed first: a look by its name would allocate.
func embedded(ctx context.Context) context.Context {
	v := reflect.ValueOf(ctx)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct || v.Type().PkgPath() != "context" {
		return nil
	}
	for v.Kind() == reflect.Struct && v.NumField() > 0 {
		v = v.Field(0)
	}
	if !v.CanInterface() {
		return nil
	}

	ctx, _ = v.Interface().(context.Context)
	return ctx
}
