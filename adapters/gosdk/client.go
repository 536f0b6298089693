package gosdk

import (
	"context"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// ClientMiddleware guards a client's calls of another server's tools with g. Add it to the sending
// middleware of an mcp.Client. Other methods than tools/call pass through it unchanged, and of the
// options only [Failure] and [BreakerKey] have an effect. It panics if g is nil.
//
// A call that ends without a result of the tool's own returns a *resilience.Error. It is
// CONNECTION_LOST if the connection is refused or the session is lost, as after io.EOF,
// mcp.ErrConnectionClosed and mcp.ErrSessionMissing. After an error of the SDK's that doesn't tell, the
// session is pinged, which takes half a second at most, and lost if the connection turns out to be closed. A server that
// replies that it is busy, by HTTP status 429 or 503, isn't lost. A request that is refused by another status from
// 400 to 499, or by the client's own login, says nothing about the server, but for 404, by which MCP ends a session, and
// neither does an answer without a result; what the client's transport or login says by a mark or a
// *resilience.Error stands. A login whose own server can't be reached looks like a server that can't be, unless it says by
// [resilience.MarkNeutral] that it isn't. If it renews a token with the context in which it has logged in, as the SDK's
// extauth.ClientCredentialsHandler does, no call succeeds once that has ended, and what ended it may count: let an own
// Authorize call it with [context.WithoutCancel]. In a later round of a call, neither should call a failure the caller's
// mistake: the agent would read that it may call again, though an earlier round may have had an effect.
//
// A call whose connection is refused is retried for any tool, unless it may have reached the server before:
// in an earlier round, in which the server has asked for something, or at the address that has redirected
// it. An http.Client whose transport isn't that of net/http may not tell, and counts as if it had.
//
// A result with isError is returned with error metadata in its _meta, as by [Middleware]. If the
// server has a guard of its own, the metadata from that guard is believed and kept.
//
// The time in which the client's user answers a server's questions counts towards the timeout of the
// call. Use [NewClient] for a client that answers such questions. What a handler of the client's returns instead of an
// answer is neither retried nor counted, as it is no failure of the server's.
//
// The annotations of another server aren't trusted. List the tools that may be retried in the
// guard's Config.
func ClientMiddleware(g *resilience.Guard, opts ...Option) mcp.Middleware {
	return newClientMiddleware(g, nil, opts)
}

func newClientMiddleware(g *resilience.Guard, q *questions, opts []Option) mcp.Middleware {
	if g == nil {
		panic("resilience: gosdk: nil *Guard")
	}

	o := newOptions(clientFailure, opts)
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		c := &client{guard: g, options: o, next: next, questions: q, ids: newSessionIDs()}
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			params, _ := req.GetParams().(*mcp.CallToolParams)
			switch {
			case method == methodCallTool && params != nil:
				return c.call(ctx, req, params)
			case method == methodInitialize:
				return c.initialize(ctx, req)
			}
			return next(ctx, method, req)
		}
	}
}

// A client makes the tool calls of one mcp.Client under a guard.
type client struct {
	guard     *resilience.Guard
	options   options
	next      mcp.MethodHandler
	questions *questions // nil without NewClient
	ids       sessionIDs
}

// initialize passes the request on that initializes a session, and learns the ID of that.
func (c *client) initialize(ctx context.Context, req mcp.Request) (mcp.Result, error) {
	result, err := c.next(ctx, methodInitialize, req)
	if err == nil {
		c.ids.learn(req.GetSession())
	}
	return result, err
}

func (c *client) call(ctx context.Context, req mcp.Request, params *mcp.CallToolParams) (mcp.Result, error) {
	request := resilience.Request{
		RequestInfo: resilience.RequestInfo{
			Method:  methodCallTool,
			Client:  true,
			Session: c.ids.of(req.GetSession()),
			Meta:    params.Meta,
		},
		Arguments:   params.Arguments,
		BreakerKey:  c.options.breakerKeyOf(ctx, req),
		Unexplained: resilience.ClassNeutral,
	}

	req, _ = cloneClientRequest(req) // after the call, the caller may write to its own
	got, err := resilience.Do(ctx, c.guard, params.Name, func(ctx context.Context) (answer, error) {
		defer c.questions.begin(req.GetSession(), ctx)()
		return c.attempt(ctx, req)
	}, resilience.ForRequest(request))

	e, failed := err.(*resilience.Error)
	switch {
	case !failed, got.needsInput:
		return got.forClient(c.guard), nil
	case got.result == nil || hasLeft(ctx, e):
		return nil, e
	case got.result.Meta[resilience.MetaError] != nil:
		return got.forClient(c.guard), nil // the server's own guard knows more about the failure
	default:
		return withMetadata(got.forClient(c.guard), e), nil
	}
}

// attempt sends a copy of the request once.
func (c *client) attempt(ctx context.Context, req mcp.Request) (answer, error) {
	session := req.GetSession()
	c.ids.learn(session) // if the client was connected before it was guarded
	clone, params := cloneClientRequest(req)
	c.questions.watchRounds(ctx, params)
	var sent reach
	result, err := c.next(sent.watch(ctx), methodCallTool, clone)
	if err != nil {
		return answer{}, c.lossOf(ctx, session, err, &sent)
	}

	res, _ := result.(*mcp.CallToolResult)
	return c.options.answerOfResult(ctx, req, res)
}

// lossOf returns the error for the guard that err stands for, as clientError does. The SDK ends all calls of a
// connection with the error that ended it, such as that half of an answer isn't JSON, so lossOf asks the session, which
// refuses a ping at once if it is closed. One that doesn't reply so soon may be busy, or wait behind a middleware.
func (c *client) lossOf(ctx context.Context, session mcp.Session, err error, sent *reach) error {
	p, ok := partsOf(err, known{})
	if !ok {
		return err
	}
	p.noteEarlier(ctx, sent)
	id := c.ids.of(session)
	failed := p.errorOf(err, id, sent)
	cs, _ := session.(*mcp.ClientSession)
	if u, _ := ctx.Value(useKey{}).(*use); u != nil && u.cs == cs && !p.authored && u.isUnmade(p, sent) {
		return resilience.MarkNeutral(resilience.MarkTransient(failed)) // the Session will tell why
	}
	if _, known := failed.(*resilience.Error); known || p.authored || cs == nil || ctx.Err() != nil {
		return failed
	}

	switch {
	case slices.ContainsFunc(p.said, mayFollowSessionEnd):
		if !isClosed(pingWithin(ctx, pingTimeout, cs), id) {
			return failed
		}
	case slices.ContainsFunc(p.said, mayLackResult) && !sent.isStreamable():
		if reply, isStuck := pingUntil(ctx, pingTimeout, cs); !isStuck && !hasEnded(reply) {
			return failed
		}
	default:
		return failed
	}
	return connectionLost(reasonClosed, err)
}

// hasLeft reports whether e says that the caller has left, rather than that the tool says so.
func hasLeft(ctx context.Context, e *resilience.Error) bool {
	return e.Code == resilience.CodeCanceled && ctx.Err() != nil
}

// clientFailure is the default of Failure for a client. It believes the error metadata of a server
// that has a guard of its own.
func clientFailure(ctx context.Context, req mcp.Request, res *mcp.CallToolResult) error {
	metadata, ok := res.Meta[resilience.MetaError].(map[string]any)
	if !ok {
		return CountKnown(ctx, req, res)
	}

	code, _ := metadata["code"].(string)
	message, _ := metadata["message"].(string)
	retryable, _ := metadata["retryable"].(bool)
	e := &resilience.Error{Code: resilience.Code(code), Message: message, Retryable: retryable}
	if seconds, _ := metadata["retryAfter"].(float64); seconds > 0 && seconds < 1e9 {
		e.RetryAfter = time.Duration(seconds * float64(time.Second))
	}

	if !retryable && resilience.Classify(e) == resilience.ClassTransient {
		return resilience.MarkPermanent(e) // the call may have had an effect
	}
	return e
}
