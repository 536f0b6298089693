package mcpgo

import (
	"context"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
)

// Middleware returns middleware that puts every tool of a server under g. Add it to a server once: a call that passes
// it twice belongs to the outer one, for which the answer that the inner one has made of a failure isn't one, so that
// hardly any failure counts. Options that are nil are ignored. Middleware panics if g is nil.
func Middleware(g *resilience.Guard, opts ...Option) server.ToolHandlerMiddleware {
	if g == nil {
		panic("resilience: mcpgo: nil *Guard")
	}

	o := options{failure: CountKnown}
	for _, set := range opts {
		if set != nil {
			set(&o)
		}
	}

	var check sync.Once
	return func(next server.ToolHandlerFunc) server.ToolHandlerFunc {
		h := &handler{guard: g, next: next, options: o}
		return func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			check.Do(func() { g.CheckTools(toolNames(ctx, g)) })
			if req.Params.Name == "" || runsAsTask(ctx, req) {
				return next(ctx, req)
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
	req = copyOf(req) // as hooks and other middleware have left it
	request := h.requestOf(ctx, req)
	progress := newCallProgress(req)
	defer progress.end()

	got, err := resilience.Do(ctx, h.guard, name, func(ctx context.Context) (answer, error) {
		ctx, returned := progress.begin(ctx)
		defer returned()
		// An abandoned tool may change its request while another attempt, an observer or a hook of the
		// server reads it.
		return h.attempt(ctx, copyOf(req))
	}, resilience.ForRequest(request), resilience.WaitForTool())

	e, _ := err.(*resilience.Error)
	e = scrubbedWords(h.guard, e)
	if got.isEmpty() {
		return errorResult(ctx, name, e), nil
	}
	return got.forClient(h.guard, e)
}

// An answer is what one attempt returned, which stands, whatever the guard makes of it. Its fields
// are filled in while the guard is on the stack and recovers panics, because the methods of a handler's
// error may panic. It is scrubbed afterwards: that may take long, and isn't the tool's time. A handler that
// returned neither a result nor an error, or a *resilience.Error, leaves the answer to the guard: then the
// answer is empty.
type answer struct {
	result     *mcp.CallToolResult
	needsInput bool   // result asks for elicitation: the call has neither failed nor succeeded yet
	err        error  // becomes a protocol error, or a request to the user
	text       string // of err
	goError    bool   // err, or the result, has the text of a Go error
}

func (a answer) isEmpty() bool { return a.result == nil && a.err == nil }

// forClient returns what the client receives of a, which isn't empty, and of what the guard has to say, which may
// be nil.
func (a answer) forClient(g *resilience.Guard, e *resilience.Error) (*mcp.CallToolResult, error) {
	switch {
	case a.needsInput:
		return a.result, nil
	case a.err != nil:
		return nil, a.scrubbedError(g)
	}
	return withGuidance(scrubbed(g, a.result), e), nil
}

// attempt calls the tool once, and turns what it returns into a value and an error for the
// guard.
func (h *handler) attempt(ctx context.Context, req mcp.CallToolRequest) (answer, error) {
	res, err := h.next(ctx, req)
	if err != nil && h.options.hideErrors {
		if required := urlElicitation(err); required != nil {
			err = required // without the words around it
		}
	}

	var got answer
	switch {
	case err != nil:
		got, err = answerOfError(err), handlerError(err)
	case res == nil:
		err = errNoResult
	case needsInput(res):
		got, err = answer{result: res, needsInput: true}, resilience.ErrUnfinished
	case res.IsError:
		got = answer{result: res, goError: setError(res) != nil}
		err = h.options.failure(ctx, req, res)
	default:
		got.result = res
	}
	if bad := got.checkJSON(); bad != nil {
		got, err = answer{}, bad
	}

	hidden := h.options.hideErrors && got.goError
	switch {
	case hidden && err == nil: // it isn't a failure, of which the guard would say something
		e := resilience.AsError(req.Params.Name, resilience.MarkPermanent(errResult))
		got = answer{result: errorResult(ctx, req.Params.Name, e)}
	case hidden, timedOut(ctx, err): // whether the end of the timeout comes before the guard gives up is chance
		got = answer{}
	}
	return got, err
}
