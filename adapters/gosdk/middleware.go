package gosdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

const (
	methodCallTool  = "tools/call"
	methodListTools = "tools/list"
)

// Protect guards every tool of server with g, as [Middleware] does. In addition, progress that a tool
// reports restarts its timeout, and a question to the client's user pauses it. Call Protect once, before the
// server is connected. It panics if server or g is nil.
func Protect(server *mcp.Server, g *resilience.Guard, opts ...Option) {
	if server == nil {
		panic("resilience: gosdk: nil *mcp.Server")
	}
	server.AddReceivingMiddleware(newMiddleware(g, newOptions(CountKnown, opts)))
	server.AddSendingMiddleware(toClient)
}

// Middleware guards every tool of a server with g. Add it to the server's receiving middleware, once, and not to one
// that [Protect] has guarded. Other methods than tools/call pass through it unchanged. It sends no [Heartbeat]. It
// panics if g is nil.
func Middleware(g *resilience.Guard, opts ...Option) mcp.Middleware {
	o := newOptions(CountKnown, opts)
	o.heartbeat = -1 // it doesn't see the progress of tools
	return newMiddleware(g, o)
}

func newMiddleware(g *resilience.Guard, o options) mcp.Middleware {
	if g == nil {
		panic("resilience: gosdk: nil *Guard")
	}
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		s := &server{guard: g, options: o, next: next}
		return s.receive
	}
}

// A server makes the tool calls of one mcp.Server under a guard.
type server struct {
	guard   *resilience.Guard
	options options
	next    mcp.MethodHandler
	tools   directory
}

func (s *server) receive(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
	call, ok := req.(*mcp.CallToolRequest)
	switch {
	case method == methodCallTool && ok && call.Params != nil && call.Params.Name != "":
		return s.call(ctx, call)
	case method == methodListTools:
		s.tools.forget() // clients list the tools again when these have changed
	}
	return s.next(ctx, method, req)
}

func (s *server) call(ctx context.Context, req *mcp.CallToolRequest) (mcp.Result, error) {
	tool, unknown := s.find(ctx, req)
	request := s.describe(ctx, req, tool)
	request.Unknown = unknown
	progress := newProgress(req)
	defer progress.beat(ctx, req, s.options.heartbeat)()

	r := resilience.Run(ctx, s.guard, req.Params.Name, func(ctx context.Context) (answer, error) {
		ctx, returned := progress.begin(ctx)
		defer returned()
		return s.attempt(ctx, cloneRequest(req), tool)
	}, resilience.ForRequest(request), resilience.WaitForTool())

	got, e := r.Value, r.Err
	switch {
	case r.Joined > 0:
		return withJoined(got.forClient(s.guard), r.Message()), nil
	case e == nil && ctx.Err() != nil: // the guard keeps the result, and the SDK adds to what it gets
		return cloneResult(got.result), nil
	case e == nil, got.needsInput:
		return got.forClient(s.guard), nil
	case got.err != nil:
		return nil, got.err.forClient(s.guard, e)
	case got.result != nil:
		return withGuidance(got.forClient(s.guard), e), nil
	}
	return errorResult(e, req, tool), nil
}

// callerOf returns what identifies the agent: the ID of the session, or the user of stateless HTTP, which makes a
// session for each request. A session over stdio has no ID, and is its own identity.
func callerOf(req *mcp.CallToolRequest, session string) string {
	extra := req.GetExtra()
	switch {
	case session != "" || req.Session == nil:
		return session
	case extra != nil && extra.TokenInfo != nil && extra.TokenInfo.UserID != "":
		return "user " + extra.TokenInfo.UserID
	case extra != nil && extra.Header != nil:
		return ""
	}
	return fmt.Sprintf("%p", req.Session)
}

// argumentsOf returns the arguments of a request, which may be left out.
func argumentsOf(p *mcp.CallToolParamsRaw) json.RawMessage {
	if len(p.Arguments) == 0 {
		return json.RawMessage("{}")
	}
	return p.Arguments
}

// inputOf returns what a request has besides its arguments if it answers a request for input.
func inputOf(p *mcp.CallToolParamsRaw) any {
	if p.RequestState == "" && len(p.InputResponses) == 0 {
		return nil
	}
	return []any{p.RequestState, p.InputResponses}
}

// describe describes req, a call of the tool, for the guard. The tool is nil if it isn't known.
func (s *server) describe(ctx context.Context, req *mcp.CallToolRequest, tool *mcp.Tool) resilience.Request {
	session := ""
	if req.Session != nil { // a program may make a request without one
		session = req.Session.ID()
	}

	return resilience.Request{
		RequestInfo: resilience.RequestInfo{
			Method:   methodCallTool,
			Session:  session,
			Protocol: req.ProtocolVersion(),
			Meta:     req.Params.Meta,
		},
		Arguments:    argumentsOf(req.Params),
		Input:        inputOf(req.Params),
		Caller:       callerOf(req, session),
		Effect:       effectOf(tool),
		BreakerKey:   s.options.breakerKeyOf(ctx, req),
		Unexplained:  resilience.ClassNeutral,
		AllowDebug:   s.options.allowDebug,
		AllowTimeout: s.options.allowTimeout,
	}
}

// attempt calls the tool once.
func (s *server) attempt(ctx context.Context, req *mcp.CallToolRequest, tool *mcp.Tool) (answer, error) {
	result, err := s.next(ctx, methodCallTool, req)
	var got answer
	if err != nil {
		got, err = s.options.answerOfError(err)
	} else {
		res, _ := result.(*mcp.CallToolResult)
		got, err = s.options.answerOfResult(ctx, req, res)
	}
	if bad := checkJSON(got.result); bad != nil {
		return answer{}, bad
	}

	hidden := s.options.hideErrors && got.goError
	switch {
	case hidden && err == nil: // it isn't a failure, so the guard has no words of its own for it
		e := resilience.AsError(req.Params.Name, resilience.MarkPermanent(errResult))
		return answer{result: errorResult(e, req, tool)}, nil
	case hidden, timedOut(ctx, err):
		return answer{}, err
	}
	return got, err
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
