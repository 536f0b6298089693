package resilience

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/cenkalti/backoff/v4"
)

// maxErrors bounds what is looked at of a tool's error, which is a program's own code: it may wrap
// itself, and errors that share what they wrap make a tree of any size. A tool that joins its
// complaints about a few thousand items is within the bound.
const maxErrors = 10_000

// errUnreadable takes the place of an error that exceeds the bound, or whose methods end their
// goroutine. It says nothing.
var errUnreadable = errors.New("resilience: an error that wraps itself or too many others, or can't be examined")

// facts are what an error and all that it wraps tell. A single walk gathers them, so that everything that is
// decided about an error is decided by the same answers, and its methods, which are a tool's code, are asked
// once. A fact of an error follows from what the error itself tells and from the facts of what it wraps.
type facts struct {
	err   error    // itself, or what takes its place for others, who may look at all that it wraps: see standIn
	wraps bool     // it wraps others
	cut   bool     // it exceeds the bound, and errUnreadable takes the place of what wasn't read
	among landmark // those that errors.Is finds
	rank  rank     // beside other errors

	statement // of the program
	evidence  // of the types
}

// A landmark is an error that errors.Is looks for.
type landmark uint16

const (
	isUnfinished landmark = 1 << iota
	isCanceled
	isDeadlineExceeded
	isEOF
	isUnexpectedEOF
	isUnreadable
	isNotExist
	isExist
	isPermission
	isIODeadline
)

// landmarks are in the order of their bits.
var landmarks = [...]error{
	ErrUnfinished, context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, errUnreadable,
	fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, os.ErrDeadlineExceeded,
}

// has is errors.Is for a landmark.
func (f *facts) has(l landmark) bool { return f.among&l != 0 }

// read gathers the facts of err. What the program says by the outermost errors counts, however much they wrap.
func (f *facts) read(err error) {
	if err != nil {
		(&walk{room: maxErrors}).read(err, f)
	}
}

// readAlone gathers the facts of err as if it wrapped nothing.
func (f *facts) readAlone(err error) {
	f.add(err, nil)
	f.err = err
}

// factsOf returns the facts of err.
func factsOf(err error) (f facts) {
	f.read(err)
	return f
}

// readable returns an error of a tool for others, who may look at all that it wraps.
func readable(err error) error { return inspect(err, func(error) {}) }

// inspect is readable, and calls visit with each of the errors, from the outside in. It asks none of their methods but
// Unwrap.
func inspect(err error, visit func(error)) error {
	var f facts
	(&walk{room: maxErrors, visit: visit}).read(err, &f)
	return f.err
}

// A walk reads an error and all that it wraps.
type walk struct {
	room   int         // for so many more errors
	visit  func(error) // is called with each of them; nil means to gather their facts
	speaks []*Error    // those that were read, which an As method outside may find again
}

// read gathers the facts of err in f, which has none yet.
func (w *walk) read(err error, f *facts) {
	if w.room--; w.room < 0 {
		f.readAlone(errUnreadable)
		f.cut = true
		return
	}
	if isNil(err) {
		f.readAlone(&nilPointer{err})
		return
	}

	if w.visit != nil {
		w.visit(err)
	}
	read := len(w.speaks)
	if several, single := unwrap(err); single != nil {
		w.read(single, f)
		f.wraps, f.blamed = true, nil
	} else {
		w.readAll(several, f)
	}
	if w.visit == nil {
		f.add(err, w.speaks[read:])
		if e, ok := err.(*Error); ok {
			w.speaks = append(w.speaks, e)
		}
	}
	if f.cut {
		err = standIn(err, f.err)
	}
	f.err = err
}

// readAll gathers the facts of joined errors in f. Of those that exceed the bound, one stands for all: nothing is
// known of it, whatever is certain of those before.
func (w *walk) readAll(several []error, f *facts) {
	for i, err := range several {
		if err == nil {
			continue
		}
		var inner facts
		w.read(err, &inner)
		f.join(&inner)
		if !inner.cut {
			continue
		}

		left := &remains{errs: slices.DeleteFunc(slices.Clone(several[:i]), isNone)}
		left.add(inner.err)
		if !left.unread && slices.ContainsFunc(several[i+1:], isSome) {
			inner = facts{cut: true}
			inner.readAlone(errUnreadable)
			f.join(&inner)
			left.add(errUnreadable)
		}
		f.err = left
		return
	}
}

func isNone(err error) bool { return err == nil }
func isSome(err error) bool { return err != nil }

// remains take the place of joined errors that weren't all read. They are those that were, so that a walk through all
// that they wrap has an end, and what takes the place of the others.
type remains struct {
	errs   []error
	unread bool // the last one is errUnreadable, or of remains that end so
}

func (r *remains) add(err error) {
	inner, _ := err.(*remains)
	r.errs, r.unread = append(r.errs, err), err == errUnreadable || inner != nil && inner.unread
}

func (r *remains) Unwrap() []error { return r.errs }

// Error returns the texts of the errors, one a line, as errors.Join does.
func (r *remains) Error() string { return strings.Join(r.texts(nil), "\n") }

// texts appends the texts to those of the errors before. To join those of each of many remains within others would take
// long.
func (r *remains) texts(before []string) []string {
	for _, err := range r.errs {
		if inner, ok := err.(*remains); ok {
			before = inner.texts(before)
		} else {
			before = append(before, textOf(err))
		}
	}
	return before
}

// join adds the facts of another one of several errors.
func (f *facts) join(inner *facts) {
	if !f.wraps {
		*f = *inner
		f.wraps, f.blamed = true, nil
		return
	}

	if f.rank < inner.rank {
		f.giveWay()
	} else if inner.rank < f.rank || f.rank <= rankRejected {
		inner.giveWay()
	}
	f.rank = max(f.rank, inner.rank)
	f.cut = inner.cut // as are those after the first one that is
	f.among |= inner.among
	f.statement.join(&inner.statement)
	f.evidence.join(&inner.evidence)
}

// add adds what err itself tells to the facts of what it wraps, in which these were read.
func (f *facts) add(err error, within []*Error) {
	x, asks := err.(interface{ Is(error) bool })
	for i, l := range landmarks {
		if err == l || asks && isLike(x, l) {
			f.among |= 1 << i
		}
	}

	if _, crashed := err.(*PanicError); crashed {
		f.among &^= isUnfinished // nobody has returned that
	}
	f.addStatement(err, within)
	f.addEvidence(err)
	f.addRank(err)
}

// standIn returns what takes the place of an error that wraps too many others: what the program says by the
// outermost errors, around what was read. inner takes the place of what err wraps.
func standIn(err, inner error) error {
	switch x := err.(type) {
	case *marked:
		return &marked{inner, x.class, x.noEffect}
	case *backoff.PermanentError:
		return backoff.Permanent(inner)
	case *repeated:
		return &repeated{inner}
	case *PanicError:
		return &PanicError{Value: inner, Stack: x.Stack}
	case *Error:
		c := x.clone()
		c.Err = inner
		return c
	}
	return inner
}

// unwrap returns what err wraps: nothing if its method panics, as that of a typed nil does. Types for several errors
// that are older than errors.Join have methods of their own, such as go-multierror's and those of Kubernetes.
func unwrap(err error) (several []error, single error) {
	defer func() {
		if recover() != nil {
			several, single = nil, nil
		}
	}()

	if reflect.TypeOf(err).NumMethod() == 1 {
		return nil, nil // most errors have no method but Error
	}
	switch x := err.(type) {
	case interface{ Unwrap() []error }:
		return x.Unwrap(), nil
	case interface{ WrappedErrors() []error }:
		several = x.WrappedErrors()
	case interface{ Errors() []error }:
		several = x.Errors()
	}
	if x, ok := err.(interface{ Unwrap() error }); ok && len(several) == 0 {
		return nil, x.Unwrap()
	}
	return several, nil
}

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

// isNil reports whether err is a nil pointer.
func isNil(err error) bool {
	v := reflect.ValueOf(err)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// isItself is errors.Is for err without what it wraps. The target must be of a type that can be compared.
func isItself(err, target error) bool {
	x, asks := err.(interface{ Is(error) bool })
	return err == target || asks && isLike(x, target)
}

// isLike asks the Is method of err, which may panic.
func isLike(err interface{ Is(error) bool }, target error) (yes bool) {
	defer func() {
		if recover() != nil {
			yes = false
		}
	}()
	return err.Is(target)
}

// asItself is errors.As for err without what it wraps.
func asItself[T error](err error) (found T, ok bool) {
	if found, ok := err.(T); ok {
		return found, true
	}
	if x, asks := err.(interface{ As(any) bool }); asks {
		return asLike[T](x)
	}
	return found, false
}

// asLike asks the As method of an error, which may panic.
func asLike[T error](x interface{ As(any) bool }) (found T, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	ok = x.As(&found) && !isNil(found)
	return found, ok
}
