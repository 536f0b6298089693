package resilience

import (
	"context"
	"errors"
	"reflect"

	"github.com/cenkalti/backoff/v4"
)

// maxErrors bounds what is looked at of a tool's error, which is a program's own code: it may wrap
// itself, and errors that share what they wrap make a tree of any size. A tool that joins its
// complaints about a few thousand items is within the bound.
const maxErrors = 10_000

// errUnreadable takes the place of an error that exceeds the bound, or whose methods end their
// goroutine. It says nothing.
var errUnreadable = errors.New("resilience: an error that wraps itself or too many others, or can't be examined")

// A nilPointer takes the place of a nil pointer in an error, whose methods may panic.
type nilPointer struct{ pointer error }

func (n *nilPointer) Error() string        { return textOf(n.pointer) }
func (n *nilPointer) Is(target error) bool { return n.pointer == target }

// As finds the pointer by its own type only. By an interface, a program would go on to call its methods.
func (n *nilPointer) As(target any) bool {
	v := reflect.ValueOf(target).Elem()
	if v.Type() != reflect.TypeOf(n.pointer) {
		return false
	}

	v.SetZero()
	return true
}

// An errorTree is a snapshot of an error and of the errors that it wraps. It is taken once,
// so that everything that is decided about an error is decided about the same tree.
type errorTree struct {
	err   error
	wraps []errorTree
	cut   bool // it exceeds the bound, and errUnreadable takes the place of what is left out
}

// treeOf returns the tree of err. What the program says by the outermost errors counts, however much they
// wrap.
func treeOf(err error) errorTree {
	if err == nil {
		return errorTree{}
	}

	room := maxErrors
	return grow(err, &room)
}

// grow takes the snapshot. room is how many more errors may be in it.
func grow(err error, room *int) errorTree {
	*room--
	if *room < 0 {
		return errorTree{err: errUnreadable, cut: true}
	}

	if isNil(err) {
		return errorTree{err: &nilPointer{err}}
	}

	t := errorTree{err: err}
	several, single := unwrap(err)
	if single != nil {
		t.add(grow(single, room))
	}
	for _, e := range several {
		if t.cut {
			break
		}
		if e != nil {
			t.add(grow(e, room))
		}
	}
	return t
}

func (t *errorTree) add(inner errorTree) {
	t.wraps = append(t.wraps, inner)
	t.cut = t.cut || inner.cut
}

// readable returns the error of t for others, who may look at all that it wraps. Of a tree that was cut, it
// is what the program says by the outermost errors, around errUnreadable.
func (t errorTree) readable() error {
	if !t.cut {
		return t.err
	}

	inner := errUnreadable
	if len(t.wraps) == 1 {
		inner = t.wraps[0].readable()
	}
	switch x := t.err.(type) {
	case *marked:
		return &marked{inner, x.class, x.noEffect}
	case *backoff.PermanentError:
		return backoff.Permanent(inner)
	case *repeated:
		return &repeated{inner}
	case *PanicError:
		return &PanicError{Value: errUnreadable, Stack: x.Stack}
	case *Error:
		c := x.clone()
		c.Err = errUnreadable
		return c
	}
	return inner
}

// unwrap returns what err wraps: nothing if its method panics, as that of a typed nil does.
func unwrap(err error) (several []error, single error) {
	defer func() {
		if recover() != nil {
			several, single = nil, nil
		}
	}()

	switch x := err.(type) {
	case interface{ Unwrap() error }:
		return nil, x.Unwrap()
	case interface{ Unwrap() []error }:
		return x.Unwrap(), nil
	}
	return nil, nil
}

// all reports whether f holds for each error that t wraps, of which there must be one.
func (t errorTree) all(f func(errorTree) bool) bool {
	for _, inner := range t.wraps {
		if !f(inner) {
			return false
		}
	}
	return len(t.wraps) > 0
}

// is is errors.Is.
func (t errorTree) is(target error) bool {
	if isItself(t.err, target) {
		return true
	}

	for _, inner := range t.wraps {
		if inner.is(target) {
			return true
		}
	}
	return false
}

// same is ==, also for values that can't be compared.
func same(a, b error) (yes bool) {
	defer func() { _ = recover() }()
	return a == b
}

// isItself compares err, which may be of a type that can't be compared, and asks its Is method.
// Both may panic.
func isItself(err, target error) (yes bool) {
	defer func() {
		if recover() != nil {
			yes = false
		}
	}()

	if err == target {
		return true
	}
	x, ok := err.(interface{ Is(error) bool })
	return ok && x.Is(target)
}

// as is errors.As: it returns the first error of type T in t, from the outside in.
func as[T error](t errorTree) (found T, ok bool) {
	if found, ok := t.err.(T); ok {
		return found, true
	}
	if found, ok := asItself[T](t.err); ok {
		return found, true
	}

	for _, inner := range t.wraps {
		if found, ok := as[T](inner); ok {
			return found, true
		}
	}
	return found, false
}

// isNil reports whether err is a nil pointer.
func isNil(err error) bool {
	v := reflect.ValueOf(err)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// asItself asks the As method of err, if it has one.
func asItself[T error](err error) (found T, ok bool) {
	if x, has := err.(conversion); has {
		return convert[T](x)
	}
	return found, false
}

// A conversion is an error with a method for errors.As, which may panic.
type conversion interface{ As(any) bool }

func convert[T error](x conversion) (found T, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	ok = x.As(&found) && !isNil(found)
	return found, ok
}

// echoes reports whether t says no more than that ctx has ended.
func (t errorTree) echoes(ctx *callContext) bool {
	if isCrash(t.err) || ctx.Err() == nil {
		return false
	}

	return t.is(ctx.Err()) || t.is(context.Cause(ctx))
}
