package gosdk

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// ClientMiddleware puts a client's calls of somebody else's tools under g: add it as
// sending middleware of an mcp.Client. Other methods pass untouched. Of the options only
// [Failure] matters here. It panics if g is nil.
//
// A call that fails without a result of the tool's returns a *resilience.Error. A lost
// session is CONNECTION_LOST: io.EOF, mcp.ErrConnectionClosed, mcp.ErrSessionMissing and
// refused connections, but not a server that answers that it is busy (HTTP 429, 503). A
// result with isError is passed on with advice in its _meta, as [Middleware] does.
//
// Annotations of somebody else's server are not to be trusted: list the tools that may be
// repeated in the guard's Config.
func ClientMiddleware(g *resilience.Guard, opts ...Option) mcp.Middleware {
	if g == nil {
		panic("resilience: gosdk: nil *Guard")
	}
	o := gather(opts)
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			params, ok := req.GetParams().(*mcp.CallToolParams)
			if method != methodCallTool || !ok || params == nil {
				return next(ctx, method, req)
			}
			res, err := resilience.Do(ctx, g, params.Name, func(ctx context.Context) (*mcp.CallToolResult, error) {
				result, err := next(ctx, method, req)
				if err != nil {
					return nil, clientError(err)
				}
				res, _ := result.(*mcp.CallToolResult)
				switch {
				case res == nil:
					return nil, errNoResult
				case res.InputRequests != nil:
					return res, resilience.MarkInvalid(errAsks)
				case res.IsError:
					return res, o.failure(res)
				}
				return res, nil
			}, arguments(params.Arguments))
			var e *resilience.Error
			switch {
			case err == nil, errors.Is(err, errAsks):
				return res, nil
			case errors.As(err, &e) && res != nil && e.Code != resilience.CodeCanceled:
				return advise(res, e), nil
			}
			return nil, err
		}
	}
}

var errNoResult = errors.New("the server sent no result")

// clientError tells a lost connection from everything else that a call may end with.
func clientError(err error) error {
	var dial *net.OpError
	switch {
	case errors.As(err, &dial) && dial.Op == "dial":
		lost := resilience.AsError("", dial)
		lost.Err = resilience.MarkTransient(err) // it never got there
		return lost
	case errors.Is(err, mcp.ErrSessionMissing):
		return lost("the server has ended the session", err)
	case errors.Is(err, mcp.ErrConnectionClosed), errors.Is(err, io.EOF):
		return lost("the server has closed the connection", err)
	}
	return classifyWire(err)
}

func lost(reason string, err error) error {
	e := resilience.ConnectionLostError(reason)
	e.Err = err
	return e
}

// arguments are marshaled with debug only.
func arguments(v any) resilience.Option {
	switch v := v.(type) {
	case map[string]any:
		return resilience.Args(v)
	case json.RawMessage:
		return resilience.RawArgs(v)
	}
	return nil
}
