package resilience

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrGoexit is the cause of a call whose tool called runtime.Goexit.
var ErrGoexit = errors.New("resilience: tool called runtime.Goexit")

// PanicError is the cause of a call whose tool panicked.
type PanicError struct {
	Value any    // the value that the tool panicked with
	Stack []byte // where, as runtime/debug.Stack formats it
}

// Error has the text of an error, string or fmt.Stringer, or else the type.
func (p *PanicError) Error() string {
	switch p.Value.(type) {
	case error, string, fmt.Stringer:
		return fmt.Sprint("panic: ", p.Value)
	}
	return fmt.Sprintf("panic: a value of type %T", p.Value) // to print one that contains itself ends the process
}

// Unwrap returns the panic's value if it is an error.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// protect calls fn on this goroutine and returns a panic as a *PanicError. It can't stop a
// runtime.Goexit; a deferred function of the caller notices that.
func protect[T any](ctx context.Context, fn func(context.Context) (T, error)) (value T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicError(p)
		}
	}()
	return fn(ctx)
}

// panicError returns an error for the value of a panic. It must be called while the function panics, for its stack.
func panicError(value any) error { return &PanicError{Value: value, Stack: debug.Stack()} }

// isCrash reports whether err is a panic or a runtime.Goexit of the tool.
func isCrash(err error) bool {
	_, panicked := err.(*PanicError)
	return panicked || err == ErrGoexit
}

// crashError returns TOOL_FAILED around a panic or a runtime.Goexit. It returns any other
// error unchanged.
func crashError(tool string, err error) error {
	if !isCrash(err) {
		return err
	}

	e := newError(CodeToolFailed, tool, sentence(tool, "failed"), false)
	e.Err = err
	return e
}

// recovered calls fn and returns a panic as an error.
func recovered(fn func() error) error {
	_, err := protect(context.Background(), func(context.Context) (struct{}, error) { return struct{}{}, fn() })
	return err
}

// marshal is json.Marshal for values whose methods may panic.
func marshal(v any) ([]byte, error) {
	return protect(context.Background(), func(context.Context) ([]byte, error) { return json.Marshal(v) })
}
