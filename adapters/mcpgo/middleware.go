package mcpgo

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"regexp"
	"runtime/debug"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
)

// Option changes what a middleware does.
type Option func(*options)

type options struct {
	failure      func(*mcp.CallToolResult) error
	debug, limit bool
}

// Failure says what a result with isError means: f returns the error that it stands for,
// which may be marked (resilience.MarkInvalid and so on), or nil if the tool has not
// failed. It is called concurrently, once for each attempt that ends so; it must not
// change res. If f is nil, such a result is a transient failure, unless it holds what
// mcp-go itself says of arguments.
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

// Middleware puts every tool of the server whose tool handler middleware it becomes under
// g. It panics if g is nil.
func Middleware(g *resilience.Guard, opts ...Option) server.ToolHandlerMiddleware {
	if g == nil {
		panic("resilience: mcpgo: nil *Guard")
	}
	o := options{failure: failureOf}
	for _, set := range opts {
		if set != nil {
			set(&o)
		}
	}
	return func(next server.ToolHandlerFunc) server.ToolHandlerFunc {
		h := &handler{guard: g, next: next, options: o}
		return func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if runsAsTask(ctx, req) {
				return h.task(ctx, req)
			}
			return h.call(ctx, req)
		}
	}
}

// A handler is what is next in the chain, under a guard. mcp-go makes one for each
// request, and calls it again when the user has answered what a tool asked.
type handler struct {
	guard   *resilience.Guard
	next    server.ToolHandlerFunc
	options options
	heights heights
}

func (h *handler) call(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	name := req.Params.Name
	var meta map[string]any
	if req.Params.Meta != nil {
		meta = req.Params.Meta.AdditionalFields
	}
	opts, refused := resilience.MetaOptions(meta, h.options.debug, h.options.limit)
	opts = append(opts, arguments(req), resilience.EffectFrom(func() resilience.Effect {
		return effectOf(lookUp(ctx, name))
	}), resilience.ForRequest(requestOf(ctx, meta)))
	ctx, told := h.begin(ctx, req)
	defer told.end()
	args := copyOf(req.Params.Arguments) // as hooks and other middleware have left them
	got, err := resilience.Do(ctx, h.guard, name, func(ctx context.Context) (answer, error) {
		if refused != nil {
			return answer{}, refused
		}
		req := req
		if resilience.Attempt(ctx) > 1 {
			// The attempt before may have changed its arguments, and may yet.
			req.Params.Arguments = copyOf(args)
		}
		return h.attempt(ctx, req)
	}, opts...)
	e, failing := err.(*resilience.Error)
	switch {
	case !failing, got.asks && e.Code != resilience.CodeCanceled:
		return got.result, nil
	case got.url != nil && e.Code == resilience.CodeValidation:
		return nil, got.url
	case got.result == nil || e.Code == resilience.CodeCanceled:
		return failed(ctx, name, e), nil
	default:
		return advise(got.result, e), nil
	}
}

// An answer is what came of one attempt. It is made where a tool's errors may be looked
// into, because methods of theirs may panic; afterwards nobody does.
type answer struct {
	result *mcp.CallToolResult
	asks   bool  // result asks the user something: no failure, and no success yet either
	url    error // a request to the user, which mcp-go makes of this error
}

var (
	errTool     = errors.New("the tool returned a result with isError")
	errNoResult = errors.New("the tool returned neither a result nor an error")
)

// attempt turns what comes back from the tool into a value and an error for the guard.
func (h *handler) attempt(ctx context.Context, req mcp.CallToolRequest) (answer, error) {
	res, err := h.next(ctx, req)
	switch {
	case err != nil:
		return answer{url: urlRequired(err)}, errorOf(err)
	case res == nil:
		return answer{}, resilience.MarkPermanent(errNoResult)
	case asks(res):
		return answer{result: res, asks: true}, resilience.ErrUnfinished
	case res.IsError:
		return answer{result: res}, h.options.failure(res)
	}
	return answer{result: res}, nil
}

// asks reports whether a result asks the user something, as since mcp-go v1.0 it may.
func asks(res any) bool {
	r, ok := res.(interface{ NeedsInput() bool })
	return ok && r.NeedsInput()
}

// task runs a call that outlives its request. mcp-go runs it on a goroutine of its own,
// without recover: a panic would end the process.
func (h *handler) task(ctx context.Context, req mcp.CallToolRequest) (res *mcp.CallToolResult, err error) {
	defer func() {
		if v := recover(); v != nil {
			res, err = nil, resilience.AsError(req.Params.Name, &resilience.PanicError{Value: v, Stack: debug.Stack()})
		}
	}()
	return h.next(ctx, req)
}

// runsAsTask reports whether mcp-go runs a call as a task: what the client wishes isn't
// enough, or it could do without the guard.
func runsAsTask(ctx context.Context, req mcp.CallToolRequest) bool {
	if req.Params.Task == nil {
		return false
	}
	tool := lookUp(ctx, req.Params.Name)
	return tool != nil && tool.Execution != nil &&
		(tool.Execution.TaskSupport == mcp.TaskSupportOptional || tool.Execution.TaskSupport == mcp.TaskSupportRequired)
}

// lookUp finds a tool where mcp-go does: those of the session come first.
func lookUp(ctx context.Context, name string) *mcp.Tool {
	if session, ok := server.ClientSessionFromContext(ctx).(server.SessionWithTools); ok {
		if tool, ok := session.GetSessionTools()[name]; ok {
			return &tool.Tool
		}
	}
	if s := server.ServerFromContext(ctx); s != nil {
		if tool := s.GetTool(name); tool != nil {
			return &tool.Tool
		}
	}
	return nil
}

func effectOf(t *mcp.Tool) resilience.Effect {
	if t == nil {
		return resilience.EffectUnknown
	}
	hint := func(b *bool) bool { return b != nil && *b } // MCP's default of both is false
	return resilience.HintedEffect(hint(t.Annotations.ReadOnlyHint), hint(t.Annotations.IdempotentHint))
}

// requestOf is what observers may want to know of the request.
func requestOf(ctx context.Context, meta map[string]any) resilience.Request {
	session := server.ClientSessionFromContext(ctx)
	r := resilience.Request{Method: string(mcp.MethodToolsCall), Protocol: protocolOf(session, meta), Meta: meta}
	if session != nil {
		r.Session = session.SessionID()
	}
	return r
}

// protocolOf returns the version of the protocol that a request names, as since 2026-07-28
// it does, or else that of its session, which mcp-go knows since v1.0.
func protocolOf(session any, meta map[string]any) string {
	if version, ok := meta["io.modelcontextprotocol/protocolVersion"].(string); ok {
		return version
	}
	if s, ok := session.(interface{ ProtocolVersion() string }); ok {
		return s.ProtocolVersion()
	}
	return ""
}

// arguments are those of the call as they were sent, for its error with debug.
func arguments(req mcp.CallToolRequest) resilience.Option {
	switch args := req.GetRawArguments().(type) {
	case json.RawMessage:
		return resilience.RawArgs(args)
	case map[string]any:
		return resilience.Args(args)
	}
	return nil
}

// copyOf copies what JSON decodes to, and leaves anything else as it is.
func copyOf(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = copyOf(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = copyOf(e)
		}
		return out
	}
	return v
}

// refusal is what mcp-go says of arguments that a tool can't use.
var refusal = regexp.MustCompile(`^(?:failed to bind arguments: |required argument "[\w.-]+" not found$|(?:item \d+ in )?argument "[\w.-]+" (?:is not an?|cannot be converted to) (?:string|int|integer|float|float64|number|bool|boolean|array|object|string slice|int slice|float64 slice|bool slice|slice)$)`)

// failureOf is the default for Failure.
func failureOf(res *mcp.CallToolResult) error {
	if len(res.Content) == 1 {
		if text, ok := mcp.AsTextContent(res.Content[0]); ok && refusal.MatchString(text.Text) {
			return resilience.MarkInvalid(errTool)
		}
	}
	return errTool
}

// errorOf tells a handler's errors that are no failure of the tool from all others.
func errorOf(err error) error {
	switch {
	case urlRequired(err) != nil:
		return resilience.MarkInvalid(errors.Join(resilience.ErrUnfinished, err))
	case errors.Unwrap(err) == nil && refusal.MatchString(err.Error()):
		// These words are safe to show, and an agent can correct itself by them.
		return &resilience.Error{Code: resilience.CodeValidation, Message: err.Error(), Err: err}
	}
	return err
}

// urlRequired finds the error that mcp-go makes a request to the user of, nil if there
// is none.
func urlRequired(err error) error {
	var value mcp.URLElicitationRequiredError
	if errors.As(err, &value) {
		return value
	}
	var pointer *mcp.URLElicitationRequiredError
	if errors.As(err, &pointer) && pointer != nil {
		return *pointer
	}
	return nil
}

// advise returns a copy of a tool's own result with our advice in its _meta.
func advise(res *mcp.CallToolResult, e *resilience.Error) *mcp.CallToolResult {
	out := *res
	meta := mcp.Meta{}
	if res.Meta != nil {
		meta = *res.Meta
	}
	meta.AdditionalFields = maps.Clone(meta.AdditionalFields)
	if meta.AdditionalFields == nil {
		meta.AdditionalFields = map[string]any{}
	}
	meta.AdditionalFields[resilience.MetaError] = e
	out.Meta = &meta
	return &out
}

// failed makes a result of an error for which there is none of the tool's.
func failed(ctx context.Context, name string, e *resilience.Error) *mcp.CallToolResult {
	text, _ := json.Marshal(e) // it never fails
	res := advise(mcp.NewToolResultError(string(text)), e)
	if tool := lookUp(ctx, name); tool != nil && tool.OutputSchema.Type == "" && tool.RawOutputSchema == nil {
		res.StructuredContent = e
	}
	return res
}
