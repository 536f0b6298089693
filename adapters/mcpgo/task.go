package mcpgo

import (
	"context"
	"errors"
	"runtime/debug"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/seed8d1e2389/resilience"
)

// callTask calls a tool as a task, which outlives its request. mcp-go runs it on a goroutine of
// its own without recover, so a panic would end the process, and the end of the goroutine leave the task at work for
// ever.
func (h *handler) callTask(ctx context.Context, req mcp.CallToolRequest) (res *mcp.CallToolResult, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = resilience.AsError(req.Params.Name, resilience.ErrGoexit)
		defer func() {
			if v := recover(); v != nil {
				crash := &resilience.PanicError{Value: v, Stack: debug.Stack()}
				res, err = nil, resilience.AsError(req.Params.Name, crash)
			}
		}()
		res, err = h.answerTask(ctx, req)
	}()
	<-done
	if e, ok := err.(*resilience.Error); ok {
		err = &taskError{err: scrubbedWords(e), ours: true}
	} else if err != nil {
		err = &taskError{err: err}
	}
	return res, err
}

// answerTask makes the answer of a task, which the guard neither counts nor ends, but may reject.
func (h *handler) answerTask(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	name, request := req.Params.Name, resilience.ForRequest(h.requestOf(ctx, req))
	if rejected := h.guard.Rejection(name, request); rejected != nil {
		return nil, rejected
	}

	got, err := h.attempt(ctx, copyOf(req)) // mcp-go calls hooks meanwhile
	e := h.guard.AsError(name, err, request)
	if got.isEmpty() {
		return nil, e
	}
	return got.forClient(scrubbedWords(e))
}

// A taskError is the error of a task, which mcp-go looks at on a goroutine without recover: the methods of a tool's
// error may panic. mcp-go takes an error that matches those of contexts for a cancellation, whose result is an empty
// success, so the guard's own doesn't match them. Of a task that a client cancels, mcp-go asks no error, and the end
// of its context says nothing, since that ends with the request. Hooks find all else by it.
type taskError struct {
	err  error
	ours bool
}

func (e *taskError) Error() (text string) {
	defer func() {
		if recover() != nil {
			text = "[unprintable]"
		}
	}()
	return e.err.Error()
}

func (e *taskError) As(target any) bool {
	defer func() { _ = recover() }()
	return errors.As(e.err, target)
}

func (e *taskError) Is(target error) bool {
	defer func() { _ = recover() }()
	isContexts := target == context.Canceled || target == context.DeadlineExceeded
	return !(e.ours && isContexts) && errors.Is(e.err, target)
}

// runsAsTask reports whether mcp-go runs a call as a task. That the client asks for a task
// isn't enough: otherwise any client could bypass the guard.
func runsAsTask(ctx context.Context, req mcp.CallToolRequest) bool {
	if req.Params.Task == nil {
		return false
	}

	tool := lookUp(ctx, req.Params.Name)
	if tool == nil || tool.Execution == nil {
		return false
	}
	support := tool.Execution.TaskSupport
	return support == mcp.TaskSupportOptional || support == mcp.TaskSupportRequired
}
