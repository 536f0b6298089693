package gosdk

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

const (
	methodCallTool   = "tools/call"
	methodInitialize = "initialize"
)

// Protect guards every tool of server with g, as [Middleware] does. In addition, progress that a tool
// reports restarts its timeout, and an elicitation pauses it. Call Protect once, before the server is
// connected. It panics if server or g is nil.
func Protect(server *mcp.Server, g *resilience.Guard, opts ...Option) {
	if server == nil {
		panic("resilience: gosdk: nil *mcp.Server")
	}

	tracker := &tracker{budget: budget{share: 100}}
	server.AddReceivingMiddleware(newMiddleware(g, tracker, opts))
	server.AddSendingMiddleware(tracker.middleware)
}

// Middleware guards every tool of a server with g. Add it to the server's receiving middleware, once, and not to one
// that [Protect] has guarded. Other methods than tools/call pass through it unchanged. It panics if g is nil.
func Middleware(g *resilience.Guard, opts ...Option) mcp.Middleware {
	return newMiddleware(g, nil, opts)
}

func newMiddleware(g *resilience.Guard, tracker *tracker, opts []Option) mcp.Middleware {
	if g == nil {
		panic("resilience: gosdk: nil *Guard")
	}

	o := newOptions(CountKnown, opts)
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		s := &server{guard: g, options: o, next: next, tracker: tracker, tools: o.tools}
		if s.tools == nil {
			s.tools = &directory{}
		}
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			ctx = tracker.receive(ctx, req.GetSession())
			call, ok := req.(*mcp.CallToolRequest)
			if method != methodCallTool || !ok || call.Params == nil || call.Params.Name == "" {
				result, err := next(ctx, method, req)
				if err == nil {
					s.learn(req, result)
				}
				return result, err
			}
			return s.call(ctx, call)
		}
	}
}

// A server makes the tool calls of one mcp.Server under a guard.
type server struct {
	guard   *resilience.Guard
	options options
	next    mcp.MethodHandler
	tracker *tracker // nil without Protect
	tools   *directory
}

// learn learns what tools there are. A list of one page is complete.
func (s *server) learn(req mcp.Request, result mcp.Result) {
	s.tools.learn(result)

	list, ok := req.(*mcp.ListToolsRequest)
	page, _ := result.(*mcp.ListToolsResult)
	if !ok || page == nil || page.NextCursor != "" || list.Params != nil && list.Params.Cursor != "" {
		return
	}
	var names []string
	for _, t := range page.Tools {
		if t != nil {
			names = append(names, t.Name)
		}
	}
	s.guard.CheckTools(names)
}

func (s *server) call(ctx context.Context, req *mcp.CallToolRequest) (mcp.Result, error) {
	request := s.describe(ctx, req)
	tracked := s.tracker.track(req, s.guard)
	ofTool := false
	defer func() { tracked.end(ctx, ofTool) }()

	got, err := resilience.Do(ctx, s.guard, req.Params.Name, func(ctx context.Context) (answer, error) {
		ctx, returned := tracked.begin(ctx)
		defer returned()
		return s.attempt(ctx, cloneRequest(req))
	}, resilience.ForRequest(request), resilience.WaitForTool())

	e, failed := err.(*resilience.Error)
	e = scrubbedWords(s.guard, e)
	ofTool = got.err != nil || got.result != nil
	switch {
	case !failed, got.needsInput:
		return got.forClient(s.guard), nil
	case got.err != nil:
		return nil, got.err.forClient(s.guard, e)
	case got.result != nil:
		return withGuidance(got.forClient(s.guard), e), nil
	}
	return s.errorResult(req, e), nil
}

// describe returns what the guard needs to know of req.
func (s *server) describe(ctx context.Context, req *mcp.CallToolRequest) resilience.Request {
	name := req.Params.Name
	info, listed := s.tools.get(name)

	return resilience.Request{
		RequestInfo: resilience.RequestInfo{
			Method:   methodCallTool,
			Session:  sessionID(req.Session),
			Protocol: req.ProtocolVersion(),
			Meta:     req.Params.Meta,
		},
		Arguments:    req.Params.Arguments,
		Effect:       info.effect,
		Unknown:      !listed && !s.tools.isEmpty(), // without any list, every tool may exist
		BreakerKey:   s.options.breakerKeyOf(ctx, req),
		Unexplained:  resilience.ClassNeutral,
		AllowDebug:   s.options.allowDebug,
		AllowTimeout: s.options.allowTimeout,
	}
}

// attempt calls the tool once.
func (s *server) attempt(ctx context.Context, req *mcp.CallToolRequest) (answer, error) {
	result, err := s.next(ctx, methodCallTool, req)
	var got answer
	if err != nil {
		got, err = s.options.answerOfError(err)
	} else {
		res, _ := result.(*mcp.CallToolResult)
		got, err = s.options.answerOfResult(ctx, req, res)
	}
	if bad := checkJSON(got.result); bad != nil {
		got, err = answer{}, bad
	}

	hidden := s.options.hideErrors && got.goError
	switch {
	case hidden && err == nil: // it isn't a failure, of which the guard would say something
		e := resilience.AsError(req.Params.Name, resilience.MarkPermanent(errResult))
		got = answer{result: s.errorResult(req, e)}
	case hidden, timedOut(ctx, err): // whether the end of the timeout comes before the guard gives up is chance
		got = answer{}
	}
	return got, err
}

// errorResult returns the result of a call for which the tool returned none.
func (s *server) errorResult(req *mcp.CallToolRequest, e *resilience.Error) *mcp.CallToolResult {
	info, ok := s.tools.get(req.Params.Name)
	return errorResult(e, req.ProtocolVersion(), ok && !info.hasOutputSchema)
}

// sessionID returns the ID of s, or "" if there is no session: a program may make a request without one.
func sessionID(s *mcp.ServerSession) string {
	if s == nil {
		return ""
	}
	return s.ID()
}
