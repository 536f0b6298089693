package mcpgo

import (
	"context"
	"runtime/debug"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
)

// An Option configures a [Middleware].
type Option func(*options)

type options struct {
	failure      func(*mcp.CallToolResult) error
	allowDebug   bool
	allowTimeout bool
}

// Failure sets the function that decides what a result with isError means. It returns the
// error that the result stands for, which may be marked (resilience.MarkInvalid and so on), or
// nil if the tool hasn't failed.
//
// f is called once for each attempt that ends with such a result, possibly concurrently, and
// must not change res. If f is nil, every such result is a transient failure, except for
// mcp-go's own complaints about arguments, which are the caller's mistake.
func Failure(f func(res *mcp.CallToolResult) error) Option {
	return func(o *options) {
		if f != nil {
			o.failure = f
		}
	}
}

// AllowDebug allows clients to turn debug on for a request, by resilience.MetaDebug.
func AllowDebug() Option { return func(o *options) { o.allowDebug = true } }

// AllowTimeout allows clients to set the timeout of a request, by resilience.MetaTimeout. That
// timeout never exceeds the tool's own maximum.
func AllowTimeout() Option { return func(o *options) { o.allowTimeout = true } }

// Middleware returns middleware that puts every tool of a server under g. Options that are nil
// are ignored. Middleware panics if g is nil.
func Middleware(g *resilience.Guard, opts ...Option) server.ToolHandlerMiddleware {
	if g == nil {
		panic("resilience: mcpgo: nil *Guard")
	}

	o := options{failure: defaultFailure}
	for _, set := range opts {
		if set != nil {
			set(&o)
		}
	}

	return func(next server.ToolHandlerFunc) server.ToolHandlerFunc {
		h := &handler{guard: g, next: next, options: o}
		return func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			switch {
			case req.Params.Name == "":
				return next(ctx, req)
			case runsAsTask(ctx, req):
				return h.callTask(ctx, req)
			}
			return h.call(ctx, req)
		}
	}
}

// A handler calls the next handler of the chain under a guard. mcp-go makes a chain for each
// request, and calls it again when the user has answered an elicitation.
type handler struct {
	guard   *resilience.Guard
	next    server.ToolHandlerFunc
	options options
}

func (h *handler) call(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	name := req.Params.Name
	request := h.requestOf(ctx, req)
	progress := newCallProgress(req)
	defer progress.end()

	arguments := copyOf(req.Params.Arguments) // as hooks and other middleware have left them
	got, err := resilience.Do(ctx, h.guard, name, func(ctx context.Context) (answer, error) {
		ctx, returned := progress.begin(ctx)
		defer returned()
		// An abandoned tool may change its arguments while another attempt, or a hook of the
		// server, reads them.
		req := req
		req.Params.Arguments = copyOf(arguments)
		return h.attempt(ctx, req)
	}, resilience.ForRequest(request), resilience.WaitForTool())

	e, failed := err.(*resilience.Error)
	switch {
	case !failed, got.needsInput:
		return got.result, nil
	case got.err != nil:
		return nil, got.err
	case got.result != nil:
		return withErrorMetadata(got.result, e), nil
	}
	return errorResult(ctx, name, e), nil
}

// An answer is what one attempt returned, which stands, whatever the guard makes of it. Its fields
// are filled in while the guard is on the stack and recovers panics, because the methods of a handler's
// error may panic. A handler that returned neither a result nor an error, or a *resilience.Error,
// leaves the answer to the guard: then the answer is empty.
type answer struct {
	result     *mcp.CallToolResult
	needsInput bool  // result asks for elicitation: the call has neither failed nor succeeded yet
	err        error // becomes a protocol error, or a request to the user
}

// attempt calls the tool once, and turns what it returns into a value and an error for the
// guard.
func (h *handler) attempt(ctx context.Context, req mcp.CallToolRequest) (answer, error) {
	res, err := h.next(ctx, req)
	switch {
	case err != nil:
		return answerOfError(ctx, err), handlerError(err)
	case res == nil:
		return answer{}, resilience.MarkPermanent(errNoResult)
	case needsInput(res):
		return answer{result: res, needsInput: true}, resilience.ErrUnfinished
	case res.IsError:
		return answer{result: res}, h.options.failure(res)
	}
	return answer{result: res}, nil
}

// callTask calls a tool as a task, which outlives its request. mcp-go runs it on a goroutine of
// its own without recover, so a panic would end the process.
func (h *handler) callTask(ctx context.Context, req mcp.CallToolRequest) (res *mcp.CallToolResult, err error) {
	defer func() {
		if v := recover(); v != nil {
			crash := &resilience.PanicError{Value: v, Stack: debug.Stack()}
			res, err = nil, resilience.AsError(req.Params.Name, crash)
		}
	}()
	return h.next(ctx, req)
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
