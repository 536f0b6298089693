package gosdk

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// ClientMiddleware guards a client's calls of another server's tools with g. Add it to the sending middleware of an
// mcp.Client. Other methods than tools/call pass through it unchanged, and of the options only [Failure] and
// [BreakerKey] have an effect. It panics if g is nil.
//
// A call without a result of the tool's own returns a *resilience.Error. It is CONNECTION_LOST if the server can't be
// reached or the session is gone. A refused connection is retried for any tool, unless an earlier request of the call
// may have reached the server. Only an answer about the call's arguments is the agent's mistake. A refusal by an HTTP
// status from 400 to 499 isn't counted, except 404, by which a server ends a session; 429 is RATE_LIMITED. [Transport]
// reports more, such as how long a busy server asks to wait.
//
// A result with isError is returned with error metadata in its _meta, as by [Middleware]. Metadata from a guard of the
// server's own is believed and kept. The annotations of another server aren't trusted: list the tools that may be
// retried in the guard's Config. For a client that answers questions of servers, use [NewClient].
func ClientMiddleware(g *resilience.Guard, opts ...Option) mcp.Middleware {
	return newClientMiddleware(g, nil, opts)
}

func newClientMiddleware(g *resilience.Guard, q *questions, opts []Option) mcp.Middleware {
	if g == nil {
		panic("resilience: gosdk: nil *Guard")
	}

	o := newOptions(clientFailure, opts)
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		c := &client{guard: g, options: o, next: next, questions: q}
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			params, _ := req.GetParams().(*mcp.CallToolParams)
			if method != methodCallTool || params == nil {
				return next(ctx, method, req)
			}
			return c.call(ctx, req, params)
		}
	}
}

// A client makes the tool calls of one mcp.Client under a guard.
type client struct {
	guard     *resilience.Guard
	options   options
	next      mcp.MethodHandler
	questions *questions // nil without NewClient
}

func (c *client) call(ctx context.Context, req mcp.Request, params *mcp.CallToolParams) (mcp.Result, error) {
	request := resilience.Request{
		RequestInfo: resilience.RequestInfo{Method: methodCallTool, Client: true, Meta: params.Meta},
		Arguments:   params.Arguments,
		BreakerKey:  c.options.breakerKeyOf(ctx, req),
		Unexplained: resilience.ClassNeutral,
	}

	req = cloneClientRequest(req) // the caller may change its own while an abandoned attempt still runs
	got, err := resilience.Do(ctx, c.guard, params.Name, func(ctx context.Context) (answer, error) {
		defer c.questions.begin(req.GetSession(), ctx)()
		return c.attempt(ctx, req)
	}, resilience.ForRequest(request))

	e, failed := err.(*resilience.Error)
	switch {
	case !failed, got.needsInput:
		return got.forClient(c.guard), nil
	case got.result == nil, e.Code == resilience.CodeCanceled && ctx.Err() != nil: // the caller has left
		return nil, e
	case got.result.Meta[resilience.MetaError] != nil:
		return got.forClient(c.guard), nil // the server's own guard knows more about the failure
	}
	return withMetadata(got.forClient(c.guard), e), nil
}

// attempt sends a copy of the request once.
func (c *client) attempt(ctx context.Context, req mcp.Request) (answer, error) {
	var sent trace
	result, err := c.next(sent.watch(ctx), methodCallTool, cloneClientRequest(req))
	if err != nil {
		return answer{}, failureOf(err, &sent)
	}

	res, _ := result.(*mcp.CallToolResult)
	return c.options.answerOfResult(ctx, req, res)
}

// clientFailure is the default of Failure for a client. It believes the error metadata of a server that has a guard of
// its own.
func clientFailure(ctx context.Context, req mcp.Request, res *mcp.CallToolResult) error {
	metadata, ok := res.Meta[resilience.MetaError].(map[string]any)
	if !ok {
		return CountKnown(ctx, req, res)
	}

	var e resilience.Error
	text, _ := json.Marshal(metadata) // it was received as JSON
	if json.Unmarshal(text, &e) != nil {
		return CountKnown(ctx, req, res)
	}
	if !e.Retryable && resilience.Classify(&e) == resilience.ClassTransient {
		return resilience.MarkPermanent(&e) // the call may have taken effect
	}
	return &e
}
