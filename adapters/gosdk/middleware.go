package gosdk

import (
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
	failure      func(*mcp.CallToolResult) error
	debug, limit bool
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

// AllowLimit lets clients give a request a limit of its own, by resilience.MetaLimit.
// It is never above the tool's own maximum.
func AllowLimit() Option { return func(o *options) { o.limit = true } }

func gather(opts []Option) options {
	o := options{failure: failureOf}
	for _, set := range opts {
		if set != nil {
			set(&o)
		}
	}
	return o
}

// Protect puts every tool of server under g, and lets the progress that tools report
// restart their limits. Call it once, before the server is connected. It panics if
// server or g is nil.
func Protect(server *mcp.Server, g *resilience.Guard, opts ...Option) {
	if server == nil {
		panic("resilience: gosdk: nil *mcp.Server")
	}
	calls := &calls{}
	server.AddReceivingMiddleware(middleware(g, calls, gather(opts)))
	server.AddSendingMiddleware(calls.watch)
}

// Middleware puts every tool of the server whose receiving middleware it becomes under
// g; other methods pass untouched. It panics if g is nil.
func Middleware(g *resilience.Guard, opts ...Option) mcp.Middleware {
	return middleware(g, nil, gather(opts))
}

func middleware(g *resilience.Guard, calls *calls, o options) mcp.Middleware {
	if g == nil {
		panic("resilience: gosdk: nil *Guard")
	}
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		s := &server{guard: g, next: next, calls: calls, options: o}
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			call, ok := req.(*mcp.CallToolRequest)
			if method != methodCallTool || !ok || call.Params == nil || !s.registered(ctx, call) {
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
	opts, err := resilience.MetaOptions(req.Params.Meta, s.options.debug, s.options.limit)
	if err != nil {
		e := resilience.AsError(name, err)
		return s.failed(ctx, req, e), nil
	}
	opts = append(opts, resilience.RawArgs(req.Params.Arguments), resilience.EffectFrom(func() resilience.Effect {
		return effectOf(s.lookUp(ctx, req, name))
	}))
	ctx, told := s.calls.begin(ctx, req)
	defer told.end()
	res, err := resilience.Do(ctx, s.guard, name, func(ctx context.Context) (*mcp.CallToolResult, error) {
		told.attempt(ctx)
		res, err := s.attempt(ctx, req)
		if err != nil && told.hasAsked() && resilience.Classify(err) == resilience.Transient {
			err = resilience.MarkPermanent(err)
		}
		return res, err
	}, opts...)
	if err == nil {
		return res, nil
	}
	var e *resilience.Error
	errors.As(err, &e)
	var wire *jsonrpc.Error
	switch {
	case errors.Is(err, errAsks):
		return res, nil
	case errors.As(err, &wire) && (e.Code == resilience.CodeValidation || e.Code == resilience.CodeToolFailed):
		return nil, wire
	case res != nil && e.Code != resilience.CodeCanceled:
		return advise(res, e), nil
	default:
		return s.failed(ctx, req, e), nil
	}
}

// errAsks stands for a result that asks the user something: it is no failure, and no
// success yet either.
var errAsks = errors.New("the tool asks for input")

// attempt turns what comes back from the SDK into a value and an error for the guard.
func (s *server) attempt(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	result, err := s.next(ctx, methodCallTool, req)
	if err != nil {
		return nil, classifyWire(err)
	}
	res, _ := result.(*mcp.CallToolResult)
	switch {
	case res == nil:
		return nil, nil
	case res.InputRequests != nil:
		return res, resilience.MarkInvalid(errAsks) // neutral, and never retried
	case res.IsError:
		return res, s.options.failure(res)
	}
	return res, nil
}

// classifyWire marks a protocol error, which a handler makes on purpose: it isn't
// retried, and it counts unless it says that the request is wrong.
func classifyWire(err error) error {
	var wire *jsonrpc.Error
	if !errors.As(err, &wire) {
		return err
	}
	switch wire.Code {
	case jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidRequest, jsonrpc.CodeMethodNotFound, jsonrpc.CodeParseError,
		-32002: // a resource not found, on older protocols
		return resilience.MarkInvalid(err)
	}
	return resilience.MarkPermanent(err)
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

// failed makes a result of an error for which there is none of the tool's.
func (s *server) failed(ctx context.Context, req *mcp.CallToolRequest, e *resilience.Error) *mcp.CallToolResult {
	text, _ := json.Marshal(e) // it never fails
	res := &mcp.CallToolResult{}
	if req.ProtocolVersion() >= "2026-07-28" || req.ProtocolVersion() == "" {
		// The protocol requires the field, and only unmarshaling can set it.
		_ = json.Unmarshal([]byte(`{"content":[],"resultType":"complete"}`), res)
	}
	res.IsError = true
	res.Content = []mcp.Content{&mcp.TextContent{Text: string(text)}}
	res.Meta = mcp.Meta{resilience.MetaError: e}
	if tool := s.lookUp(ctx, req, req.Params.Name); tool != nil && tool.OutputSchema == nil {
		res.StructuredContent = e
	}
	return res
}
