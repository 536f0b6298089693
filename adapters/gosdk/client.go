package gosdk

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
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
// result with isError is passed on with advice in its _meta, as [Middleware] does; that of
// a server under a guard of its own is taken at its word, and kept.
//
// Annotations of somebody else's server are not to be trusted: list the tools that may be
// repeated in the guard's Config.
func ClientMiddleware(g *resilience.Guard, opts ...Option) mcp.Middleware {
	if g == nil {
		panic("resilience: gosdk: nil *Guard")
	}
	o := options{failure: advisedFailure}.with(opts)
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			params, ok := req.GetParams().(*mcp.CallToolParams)
			if method != methodCallTool || !ok || params == nil {
				return next(ctx, method, req)
			}
			got, err := resilience.Do(ctx, g, params.Name, func(ctx context.Context) (answer, error) {
				result, err := next(ctx, method, req)
				if err != nil {
					return answer{}, clientError(err)
				}
				res, _ := result.(*mcp.CallToolResult)
				return resultAnswer(res, o.failure)
			}, arguments(params.Arguments), resilience.ForRequest(resilience.Request{
				Method: methodCallTool, Client: true, Session: sessionID(req.GetSession()), Meta: params.Meta,
			}))
			e, failed := err.(*resilience.Error)
			switch {
			case !failed, got.asks:
				return got.result, nil
			case got.result == nil || e.Code == resilience.CodeCanceled:
				return nil, e
			case got.result.Meta[resilience.MetaError] != nil:
				return got.result, nil // the server's own guard knows better
			default:
				return advise(got.result, e), nil
			}
		}
	}
}

// advisedFailure is the default for Failure in a client: a server under a guard of its
// own has said what its failure means.
func advisedFailure(res *mcp.CallToolResult) error {
	said, ok := res.Meta[resilience.MetaError].(map[string]any)
	if !ok {
		return failureOf(res)
	}
	code, _ := said["code"].(string)
	message, _ := said["message"].(string)
	retryable, _ := said["retryable"].(bool)
	after, _ := said["retryAfter"].(float64)
	e := &resilience.Error{Code: resilience.Code(code), Message: message, Retryable: retryable}
	if after > 0 && after < 1e9 {
		e.RetryAfter = time.Duration(after * float64(time.Second))
	}
	if !retryable && resilience.Classify(e) == resilience.Transient {
		return resilience.MarkPermanent(e) // its outcome may be unknown
	}
	return e
}

// codeRejected is what the SDK makes of HTTP 429, 502, 503 and 504. It is no protocol error
// of the server's.
const codeRejected = -32005

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
	var wire *jsonrpc.Error
	if errors.As(err, &wire) && wire.Code == codeRejected {
		return err // the server is busy: transient, and it may have been reached
	}
	_, err = wireAnswer(err)
	return err
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
