package resilience

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
)

// ErrGoexit is the cause of a call whose tool ended its goroutine by runtime.Goexit, which
// testing.T's FailNow does too.
var ErrGoexit = errors.New("resilience: tool called runtime.Goexit")

// PanicError is the cause of a call whose tool panicked. If the tool panicked with an
// error, errors.Is and errors.As reach it.
type PanicError struct {
	Value any    // what the tool panicked with
	Stack []byte // where, as runtime/debug.Stack formats it
}

// Error returns the text of the panic's value, or the type of a value that is neither an error nor a
// fmt.Stringer, string, number or boolean. It doesn't contain the stack.
func (p *PanicError) Error() string {
	if p == nil { // a tool may return a nil *PanicError as an error
		return "<nil>"
	}

	return "panic: " + panicText(p.Value)
}

// panicText prints no more of a value than the runtime does: one that contains itself would exhaust the
// stack, which ends the process.
func panicText(v any) string {
	if err, ok := v.(error); ok {
		v = readable(err)
	}
	switch v.(type) {
	case nil, error, fmt.Stringer:
		return fmt.Sprint(v)
	}

	switch k := reflect.TypeOf(v).Kind(); {
	case k == reflect.String, k <= reflect.Complex128: // and so a number or a boolean
		return fmt.Sprint(v)
	default:
		return fmt.Sprintf("a value of type %T", v)
	}
}

// Unwrap returns the panic's value if it is an error.
func (p *PanicError) Unwrap() error {
	if p == nil {
		return nil
	}

	err, _ := p.Value.(error)
	return err
}

// protect calls fn on this goroutine and returns a panic as a *PanicError. It can't stop a
// runtime.Goexit, which only a deferred function of the caller notices.
func protect[T any](ctx context.Context, fn func(context.Context) (T, error)) (value T, err error) {
	ok := false
	defer func() {
		if !ok {
			err = panicError(recover())
		}
	}()

	value, err = fn(ctx)
	ok = true
	return value, err
}

// panicError returns an error for what was recovered when a function didn't return. That is
// nil after a runtime.Goexit, or after a panic(nil) where GODEBUG brings it back.
func panicError(recovered any) error {
	if recovered == nil {
		return ErrGoexit
	}

	return &PanicError{Value: recovered, Stack: debug.Stack()}
}

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
	e.suggest(suggestChange)
	e.Err = err
	return e
}

// ignorePanic is deferred where a panic has nothing to say.
func ignorePanic() { _ = recover() }

// recovered calls fn and returns a panic as a [*PanicError].
func recovered(fn func() error) error {
	_, err := protect(context.Background(), func(context.Context) (struct{}, error) { return struct{}{}, fn() })
	return err
}

// textOf returns the text of err, whose method may panic.
func textOf(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = unprintable
		}
	}()

	return err.Error()
}

// marshal is json.Marshal for values whose methods may panic.
func marshal(v any) (b []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicError(p)
		}
	}()

	return json.Marshal(v)
}
