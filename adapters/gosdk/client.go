package gosdk

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
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
					return answer{}, clientError(err, sessionID(req.GetSession()))
				}
				res, _ := result.(*mcp.CallToolResult)
				return resultAnswer(res, o.failure)
			}, resilience.ForRequest(resilience.Request{
				RequestInfo: resilience.RequestInfo{
					Method:  methodCallTool,
					Client:  true,
					Session: sessionID(req.GetSession()),
					Meta:    params.Meta,
				},
				Arguments: params.Arguments,
				Known:     true, // the program chooses the names
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
	if !retryable && resilience.Classify(e) == resilience.ClassTransient {
		return resilience.MarkPermanent(e) // its outcome may be unknown
	}
	return e
}

// codeRejected is what the SDK makes of HTTP 429, 502, 503 and 504. It is no protocol error
// of the server's.
const codeRejected = -32005

// clientError tells a lost connection from everything else that a call of a session may
// end with.
func clientError(err error, session string) error {
	var dial *net.OpError
	switch {
	case errors.As(err, &dial) && dial.Op == "dial":
		lost := resilience.AsError("", dial)
		lost.Err = resilience.MarkTransient(err) // it never got there
		return lost
	case errors.Is(err, mcp.ErrSessionMissing), forgotten(err, session):
		// That wasn't this call's own request, perhaps, but ended it in flight.
		return lost("the server has ended the session", err)
	case notSent(err):
		return lost("the server has closed the connection", resilience.MarkTransient(err))
	case errors.Is(err, mcp.ErrConnectionClosed), errors.Is(err, io.EOF), unanswered(err):
		return lost("the server has closed the connection", err)
	}
	var wire *jsonrpc.Error
	if errors.As(err, &wire) && wire.Code == codeRejected {
		return err // the server is busy: transient, and it may have been reached
	}
	_, err = wireAnswer(err)
	return err
}

func lost(reason string, err error) *resilience.Error {
	e := resilience.ConnectionLostError(reason)
	e.Err = err
	return e
}

// forgotten reports whether err is a 404 with a protocol error in it. Servers in Python
// answer so when they don't know the session any more, and the SDK then doesn't say
// mcp.ErrSessionMissing.
func forgotten(err error, session string) bool {
	var wire *jsonrpc.Error
	return session != "" && errors.As(err, &wire) && wire.Code != codeRejected &&
		errors.Is(err, &jsonrpc.Error{Code: codeRejected}) &&
		strings.HasSuffix(err.Error(), ": "+http.StatusText(http.StatusNotFound))
}

// notSent reports whether err says, in the SDK's own words, that it refused to make a call
// on a connection that was closed already. A server may make it say mcp.ErrConnectionClosed
// by an error code.
func notSent(err error) bool {
	return errors.Is(err, mcp.ErrConnectionClosed) && strings.Contains(err.Error(), ": client is closing")
}

// unanswered reports whether err says, in words of the SDK's or of net/http's that are no
// error of their own, that the server closed the connection instead of answering.
func unanswered(err error) bool {
	text := err.Error()
	return strings.HasSuffix(text, ": request terminated without response") ||
		strings.HasSuffix(text, ": http: server closed idle connection")
}

// ofCall reports whether err is what the SDK says of a call that failed.
func ofCall(err error) bool { return strings.Contains(err.Error(), `calling "`) }

// sessionOver reports whether err says that the session is of no more use. A request that
// only broke on its way (the SDK calls it rejected) doesn't, unless nobody was there.
func sessionOver(err error, session string) bool {
	var dial *net.OpError
	var wire *jsonrpc.Error
	switch {
	case !ofCall(err):
		return false
	case errors.As(err, &dial) && dial.Op == "dial", forgotten(err, session), notSent(err), errors.Is(err, mcp.ErrSessionMissing):
		return true
	}
	return errors.Is(err, io.EOF) && !errors.As(err, &wire)
}

// unexplained reports whether err, of a call, may be the echo of the session's end: the SDK
// has many of those and exports few.
func unexplained(err error) bool {
	var wire *jsonrpc.Error
	return !errors.As(err, &wire) && !unanswered(err)
}
