package resilience

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
)

// ErrGoexit is the cause of a call whose tool ended its goroutine by
// runtime.Goexit, which is also what testing.T's FailNow does.
var ErrGoexit = errors.New("resilience: tool called runtime.Goexit")

// PanicError is the cause of a call whose tool panicked. If the tool panicked
// with an error, errors.Is and errors.As reach it.
type PanicError struct {
	Value any    // what the tool panicked with
	Stack []byte // where, as runtime/debug.Stack formats it
}

// Error returns the panic's value. It doesn't hold the stack.
func (p *PanicError) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Unwrap returns the panic's value if it is an error.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// protect calls fn on this goroutine and returns a panic as a *PanicError. A
// runtime.Goexit can't be stopped: whoever must know of it has to defer.
func protect[T any](ctx context.Context, fn func(context.Context) (T, error)) (value T, err error) {
	returned := false
	defer func() {
		if !returned {
			err = crashOf(recover())
		}
	}()
	value, err = fn(ctx)
	returned = true
	return value, err
}

// crashOf is for what was recovered when a function didn't return: nil after a
// runtime.Goexit, or a panic(nil) where GODEBUG brings those back.
func crashOf(recovered any) error {
	if recovered == nil {
		return ErrGoexit
	}
	return &PanicError{Value: recovered, Stack: debug.Stack()}
}

// The states of a function that runs on its own goroutine.
const (
	running   int32 = iota
	returned        // its outcome is there
	abandoned       // its caller has left
)

// A runner calls a function on a goroutine of its own.
type runner[T any] struct {
	ctx   *limited
	fn    func(context.Context) (T, error)
	late  func(error)   // nil: nobody wants to know
	still *atomic.Int64 // nil: nobody counts

	state atomic.Int32
	value T // as err: to be read once it has returned
	err   error
}

// enforce calls fn on a goroutine of its own and returns when fn does or when ctx, which
// was made for that, ends: whichever is first. Of the two exactly one wins: if ctx does,
// answered is false and fn has been given up on. While such an fn still runs, it is counted
// in still, and its outcome is reported to late; both may be nil.
func enforce[T any](ctx *limited, still *atomic.Int64, late func(error), fn func(context.Context) (T, error)) (value T, err error, answered bool) {
	return new(runner[T]).run(ctx, still, late, fn)
}

// run is enforce. If it was answered, the runner may be used again. A token in ctx.wake says
// only that it is time to look: one that an earlier attempt has left does no harm.
func (r *runner[T]) run(ctx *limited, still *atomic.Int64, late func(error), fn func(context.Context) (T, error)) (value T, err error, answered bool) {
	r.ctx, r.fn, r.late, r.still = ctx, fn, late, still
	r.state.Store(running)
	go r.call()
	gone := ctx.parent.Done()
	for {
		select {
		case <-ctx.wake:
		case <-gone:
			ctx.parentDone()
		}
		if r.state.Load() == returned {
			return r.take()
		}
		if ctx.over() {
			break
		}
	}
	if still != nil {
		still.Add(1) // before the goroutine can see that it was given up on
	}
	if r.state.CompareAndSwap(running, abandoned) {
		return value, nil, false
	}
	if still != nil {
		still.Add(-1)
	}
	return r.take()
}

// take leaves nothing behind: a tool may keep its context for long, and with it the call
// that the runner is part of.
func (r *runner[T]) take() (value T, err error, answered bool) {
	value, err = r.value, r.err
	var none T
	r.value, r.err = none, nil
	return value, err, true
}

// call runs on the goroutine.
func (r *runner[T]) call() {
	ctx := r.ctx // once it has returned, r may be another's
	ok := false
	defer func() {
		if !ok {
			r.err = crashOf(recover())
		}
		r.fn = nil
		if r.state.CompareAndSwap(running, returned) {
			ctx.awake()
			return
		}
		if r.still != nil {
			r.still.Add(-1)
		}
		_, err, _ := r.take()
		if r.late != nil {
			r.late(err)
		}
	}()
	r.value, r.err = r.fn(ctx)
	ok = true
}
