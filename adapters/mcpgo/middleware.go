package mcpgo

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
)

// Middleware returns middleware that puts every tool of a server under g. Add it to a server once: if a call passes it
// twice, the outer guard hardly counts a failure. Options that are nil are ignored. Middleware panics if g is nil.
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
			if s := server.ServerFromContext(ctx); s != nil {
				check.Do(func() { g.CheckTools(toolNames(ctx, s)) })
			}
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
	name, progress := req.Params.Name, newProgress(req)
	defer progress.end()
	defer progress.beat(ctx, req, cmp.Or(h.options.heartbeat, heartbeat))()

	r := resilience.Run(ctx, h.guard, name, func(ctx context.Context) (answer, error) {
		return h.attempt(progress.begin(ctx), cloneOf(req))
	}, resilience.ForRequest(h.requestOf(ctx, req)), resilience.WaitForTool())

	got, e := r.Value, r.Err
	switch {
	case r.Joined > 0:
		return joinedResult(got.result, r.Message()), nil
	case got.err != nil:
		return nil, got.scrubbedError(h.guard)
	case got.result == nil:
		return errorResult(ctx, name, e), nil
	case got.result.IsError:
		return failedResult(h.guard, got.result, e), nil
	}
	return got.result, nil
}

// An answer is what one attempt returned, and it stands, whatever the guard makes of it. If the answer is empty, the
// guard gives one.
type answer struct {
	result *mcp.CallToolResult
	err    error  // becomes a protocol error, or a request to the user
	text   string // of err
}

// MarshalJSON returns the JSON of the result, whose size decides whether a guard keeps it.
func (a answer) MarshalJSON() ([]byte, error) { return json.Marshal(a.result) }

// attempt calls the tool once. It returns its answer, and what that means to the guard. All that may panic, such as the
// methods of a handler's error, is called here, where the guard recovers panics.
func (h *handler) attempt(ctx context.Context, req mcp.CallToolRequest) (answer, error) {
	res, err := h.next(ctx, req)
	switch {
	case err != nil:
		return h.answerOfError(ctx, err)
	case res == nil:
		return answer{}, errNoResult
	}
	if bad := checkJSON(res); bad != nil {
		return answer{}, bad
	}

	switch {
	case needsInput(res):
		return answer{result: res}, resilience.ErrUnfinished
	case !res.IsError:
		return answer{result: res}, nil
	}

	err = h.options.failure(ctx, req, res)
	switch {
	case h.options.hideErrors && setError(res) != nil:
		if err == nil { // it isn't a failure, but the guard must answer
			err = resilience.MarkNeutral(errHidden)
		}
		return answer{}, err
	case timedOut(ctx, err):
		return answer{}, err
	}
	return answer{result: res}, err
}

// answerOfError does the same for a handler's error. A *resilience.Error is for the guard to show.
func (h *handler) answerOfError(ctx context.Context, err error) (answer, error) {
	if required := urlElicitation(err); required != nil {
		if h.options.hideErrors {
			err = required // without the words around it
		}
		return answer{err: err, text: err.Error()}, errors.Join(resilience.ErrUnfinished, err)
	}

	got := answer{err: err, text: err.Error()}
	var own *resilience.Error
	if h.options.hideErrors || errors.As(err, &own) || timedOut(ctx, err) {
		got = answer{}
	}
	return got, markArguments(err)
}

// timedOut reports whether err only repeats that the timeout of ctx, a guarded call's, has passed. net/http returns the
// cause of that, of which a tool's result has the text. Whether the tool returns before it is abandoned is chance.
func timedOut(ctx context.Context, err error) bool {
	end, ok := context.Cause(ctx).(*resilience.Error)
	if !ok || end.Code != resilience.CodeTimeout || err == nil {
		return false
	}
	return errors.Is(err, context.DeadlineExceeded) || strings.HasSuffix(err.Error(), end.Error())
}
