package gosdk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

const methodCallTool = "tools/call"

// Option changes what a middleware does.
type Option func(*options)

type options struct {
	failure        func(*mcp.CallToolResult) error
	debug, timeout bool
}

// Failure says what a result with isError means: f returns the error that it stands for,
// which may be marked (resilience.MarkInvalid and so on), or nil if the tool has not
// failed. It is called concurrently, once for each attempt that ends so, and may look at
// res.GetError, the error of a typed handler; it must not change res. If f is nil, that
// error counts, or a transient one if there is none.
func Failure(f func(res *mcp.CallToolResult) error) Option {
	return func(o *options) {
		if f != nil {
			o.failure = f
		}
	}
}

// AllowDebug lets clients turn debug on for a request, by resilience.MetaDebug.
func AllowDebug() Option { return func(o *options) { o.debug = true } }

// AllowTimeout lets clients give a request a limit of its own, by resilience.MetaTimeout.
// It is never above the tool's own maximum.
func AllowTimeout() Option { return func(o *options) { o.timeout = true } }

func (o options) with(opts []Option) options {
	for _, set := range opts {
		if set != nil {
			set(&o)
		}
	}
	return o
}

// Protect puts every tool of server under g, lets the progress that tools report restart
// their limits, and stops their clocks while they ask their users something. Call it once,
// before the server is connected. It panics if server or g is nil.
func Protect(server *mcp.Server, g *resilience.Guard, opts ...Option) {
	if server == nil {
		panic("resilience: gosdk: nil *mcp.Server")
	}
	calls := &calls{}
	server.AddReceivingMiddleware(middleware(g, calls, options{failure: failureOf}.with(opts)))
	server.AddSendingMiddleware(calls.watch)
}

// Middleware puts every tool of the server whose receiving middleware it becomes under
// g; other methods pass untouched. It panics if g is nil.
func Middleware(g *resilience.Guard, opts ...Option) mcp.Middleware {
	return middleware(g, nil, options{failure: failureOf}.with(opts))
}

func middleware(g *resilience.Guard, calls *calls, o options) mcp.Middleware {
	if g == nil {
		panic("resilience: gosdk: nil *Guard")
	}
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		s := &server{guard: g, next: next, calls: calls, options: o}
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			call, ok := req.(*mcp.CallToolRequest)
			if method != methodCallTool || !ok || call.Params == nil {
				return next(ctx, method, req)
			}
			return s.call(ctx, call)
		}
	}
}

// A server is one server's chain of handlers under a guard.
type server struct {
	guard   *resilience.Guard
	next    mcp.MethodHandler
	calls   *calls // nil if nobody watches progress
	options options
	tools   directory
}

func (s *server) call(ctx context.Context, req *mcp.CallToolRequest) (mcp.Result, error) {
	name := req.Params.Name
	request := resilience.Request{
		RequestInfo: resilience.RequestInfo{
			Method:   methodCallTool,
			Session:  sessionID(req.Session),
			Protocol: req.ProtocolVersion(),
			Meta:     req.Params.Meta,
		},
		Arguments:    req.Params.Arguments,
		Effect:       func() resilience.Effect { return s.effect(ctx, req) },
		Known:        s.registered(ctx, req), // otherwise it is made up, or hidden from us
		AllowDebug:   s.options.debug,
		AllowTimeout: s.options.timeout,
	}
	ctx, told := s.calls.begin(ctx, req)
	defer told.end()
	got, err := resilience.Do(ctx, s.guard, name, func(ctx context.Context) (answer, error) {
		told.attempt(ctx)
		got, err := s.attempt(ctx, copyOf(req))
		if err != nil && told.hasAsked() && resilience.Classify(err) == resilience.ClassTransient {
			err = resilience.MarkPermanent(err)
		}
		return got, err
	}, resilience.ForRequest(request))
	e, failed := err.(*resilience.Error)
	switch {
	case !failed, got.asks:
		return got.result, nil
	case got.protocol != nil && !cutOff(e):
		return nil, got.protocol
	case got.result != nil && e.Code != resilience.CodeCanceled:
		return advise(got.result, e), nil
	default:
		return s.failure(req, e), nil
	}
}

// cutOff reports whether e says that the call ended otherwise than by its last attempt.
func cutOff(e *resilience.Error) bool {
	switch e.Code {
	case resilience.CodeTimeout, resilience.CodeCanceled, resilience.CodeCircuitOpen, resilience.CodeOverloaded:
		return true
	}
	return false
}

// An answer is what came of one attempt. It is made where a tool's errors may be looked
// into, because methods of theirs may panic; afterwards nobody does.
type answer struct {
	result   *mcp.CallToolResult
	asks     bool  // result asks the user something: no failure, and no success yet either
	protocol error // the handler made a protocol error, on purpose
}

var errNoResult = errors.New("the tool returned neither a result nor an error")

// attempt turns what comes back from the SDK into a value and an error for the guard.
func (s *server) attempt(ctx context.Context, req *mcp.CallToolRequest) (answer, error) {
	result, err := s.next(ctx, methodCallTool, req)
	if err != nil {
		return wireAnswer(err)
	}
	res, _ := result.(*mcp.CallToolResult)
	return resultAnswer(res, s.options.failure)
}

func resultAnswer(res *mcp.CallToolResult, failure func(*mcp.CallToolResult) error) (answer, error) {
	switch {
	case res == nil:
		return answer{}, resilience.MarkPermanent(errNoResult)
	case res.InputRequests != nil:
		return answer{result: res, asks: true}, resilience.ErrUnfinished
	case res.IsError:
		return answer{result: res}, failure(res)
	}
	return answer{result: res}, nil
}

// wireAnswer marks a protocol error: it isn't retried, and it counts unless it says that
// the request is wrong. Any other error is the tool's.
func wireAnswer(err error) (answer, error) {
	var wire *jsonrpc.Error
	if !errors.As(err, &wire) {
		return answer{}, err
	}
	switch wire.Code {
	case jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidRequest, jsonrpc.CodeMethodNotFound, jsonrpc.CodeParseError,
		-32002: // a resource not found, on older protocols
		return answer{protocol: err}, resilience.MarkInvalid(err)
	}
	return answer{protocol: err}, resilience.MarkPermanent(err)
}

// sessionID is for requests without a session too, which a program may make.
func sessionID(s mcp.Session) string {
	switch s := s.(type) {
	case *mcp.ServerSession:
		if s != nil {
			return s.ID()
		}
	case *mcp.ClientSession:
		if s != nil {
			return s.ID()
		}
	}
	return ""
}

// copyOf gives each attempt a request of its own: the one before may have changed its,
// and if it was given up on may do so yet.
func copyOf(req *mcp.CallToolRequest) *mcp.CallToolRequest {
	r, params := *req, *req.Params
	params.Meta = maps.Clone(params.Meta)
	params.Arguments = bytes.Clone(params.Arguments)
	r.Params = &params
	return &r
}

var errTool = errors.New("the tool returned a result with isError")

// failureOf is the default for Failure.
func failureOf(res *mcp.CallToolResult) error {
	err := res.GetError()
	switch {
	case err == nil:
		return errTool
	case strings.HasPrefix(err.Error(), `validating "arguments": `):
		return resilience.MarkInvalid(err) // the SDK's own words
	}
	return err
}

// advise returns a copy of a tool's own result with our advice in its _meta.
func advise(res *mcp.CallToolResult, e *resilience.Error) *mcp.CallToolResult {
	out := *res
	out.Meta = maps.Clone(res.Meta)
	if out.Meta == nil {
		out.Meta = mcp.Meta{}
	}
	out.Meta[resilience.MetaError] = e
	return &out
}

// failure makes a result of an error for which there is none of the tool's.
func (s *server) failure(req *mcp.CallToolRequest, e *resilience.Error) *mcp.CallToolResult {
	text, _ := json.Marshal(e) // it never fails
	res := &mcp.CallToolResult{}
	if version := req.ProtocolVersion(); version >= "2026-07-28" || version == "" {
		// The protocol requires the field, and only unmarshaling can set it.
		_ = json.Unmarshal([]byte(`{"content":[],"resultType":"complete"}`), res)
	}
	res.IsError = true
	res.Content = []mcp.Content{&mcp.TextContent{Text: string(text)}}
	res.Meta = mcp.Meta{resilience.MetaError: e}
	if known, ok := s.tools.get(req.Params.Name); ok && !known.hasOutputSchema {
		res.StructuredContent = e
	}
	return res
}
