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

type outcome[T any] struct {
	value T
	err   error
}

// protect calls fn on this goroutine and returns a panic as a *PanicError. A
// runtime.Goexit can't be stopped: whoever must know of it has to defer.
func protect[T any](ctx context.Context, fn func(context.Context) (T, error)) (value T, err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		err = ErrGoexit // or a panic(nil), where GODEBUG brings those back
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	value, err = fn(ctx)
	returned = true
	return value, err
}

// The states of a function that runs on its own goroutine.
const (
	running   int32 = iota
	returned        // its outcome is or soon will be in the channel
	abandoned       // its caller has left
)

// enforce calls fn on a goroutine of its own and returns when fn does or when ctx
// ends, whichever is first. Of the two exactly one wins: if ctx does, ok is false
// and fn has been given up on. While such an fn still runs, it is counted in
// stillRunning, and its outcome reported to late; both may be nil.
func enforce[T any](ctx context.Context, stillRunning *atomic.Int64, late func(error), fn func(context.Context) (T, error)) (o outcome[T], ok bool) {
	var state atomic.Int32
	result := make(chan outcome[T], 1)
	go func() {
		o := outcome[T]{err: ErrGoexit}
		defer func() {
			if state.CompareAndSwap(running, returned) {
				result <- o
			} else {
				if stillRunning != nil {
					stillRunning.Add(-1)
				}
				if late != nil {
					late(o.err)
				}
			}
		}()
		o.value, o.err = protect(ctx, fn)
	}()
	select {
	case o = <-result:
		return o, true
	case <-ctx.Done():
	}
	if stillRunning != nil {
		stillRunning.Add(1) // before the goroutine can see that it was given up on
	}
	if state.CompareAndSwap(running, abandoned) {
		return o, false
	}
	if stillRunning != nil {
		stillRunning.Add(-1)
	}
	return <-result, true
}
