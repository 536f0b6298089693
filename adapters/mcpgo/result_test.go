package mcpgo_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/mcpgo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An outcome is what the client receives for a call, and what the guard counts.
type outcome struct {
	code       resilience.Code // empty unless the call failed
	text       string          // empty if it is the JSON of the error
	message    string          // of the error; empty means any
	structured bool            // structuredContent is the error; only where the text is, too
	tries      int32
	failures   int
}

var (
	failedOnce = outcome{code: resilience.CodeToolFailed, structured: true, tries: 1, failures: 1}
	exhausted  = outcome{code: resilience.CodeRetryExhausted, structured: true, tries: 4, failures: 1}
)

// withText returns o for a tool that has a result of its own.
func (o outcome) withText(text string) outcome {
	o.text, o.structured = text, false
	return o
}

type resultCase struct {
	handler server.ToolHandlerFunc
	tool    mcp.ToolOption
	option  mcpgo.Option
	args    any // nil means arguments that the tool can use
	want    outcome
	isError bool // although there is no guidance
}

type input struct {
	N int `json:"n"`
}

const ownText = "the tool's own words"

func ownResult() *mcp.CallToolResult {
	res := mcp.NewToolResultError(ownText)
	res.Meta = mcp.NewMetaFromMap(map[string]any{"example.com/own": "kept"})
	res.StructuredContent = map[string]any{"own": true}
	return res
}

func TestFailureWithoutResultBecomesErrorResult(t *testing.T) {
	idempotent := mcp.WithIdempotentHintAnnotation(true)
	schema := mcp.WithOutputSchema[input]()
	rawSchema := mcp.WithRawOutputSchema(json.RawMessage(`{"type":"object"}`))
	invalid := &resilience.Error{Code: resilience.CodeValidation, Message: "no such branch"}
	unstructured := failedOnce
	unstructured.structured = false
	broken := returns(nil, &resilience.Error{Message: "broken", Retryable: true})

	for name, tc := range map[string]resultCase{
		"an Error, read-only":         {handler: broken, tool: readOnly, want: exhausted},
		"an Error, idempotent":        {handler: broken, tool: idempotent, want: exhausted},
		"an Error, not idempotent":    {handler: broken, want: failedOnce},
		"an Error, output schema":     {handler: broken, tool: schema, want: unstructured},
		"an Error, raw output schema": {handler: broken, tool: rawSchema, want: unstructured},
		"an error with a message": {
			handler: returns(nil, invalid),
			want:    outcome{code: resilience.CodeValidation, message: "no such branch", structured: true, tries: 1},
		},
		"a timeout": {
			handler: untilCanceled, tool: readOnly,
			want: outcome{code: resilience.CodeTimeout, structured: true, tries: 1, failures: 1},
		},
		"a nil handler": {
			tool: readOnly,
			want: outcome{code: resilience.CodeToolFailed, structured: true, failures: 1},
		},
		"neither a result nor an error": {
			handler: returns(nil, nil), tool: readOnly,
			want: outcome{code: resilience.CodeToolFailed, structured: true, tries: 1},
		},
		"a panic": {handler: panics("secret"), tool: readOnly, want: failedOnce},
	} {
		runInBubble(t, name, tc.run)
	}
}

// mcp-go reports it to its hooks, and makes a protocol error of it.
func TestErrorOfAHandlerStaysWhatItIs(t *testing.T) {
	for name, tc := range map[string]struct {
		err      error
		tool     mcp.ToolOption
		tries    int32
		failures int
	}{
		"read-only":           {errBackend, readOnly, 4, 1},
		"no hints":            {errBackend, nil, 1, 1},
		"the caller's":        {resilience.MarkInvalid(errBackend), readOnly, 1, 0},
		"about the arguments": {errors.New(`required argument "x" not found`), readOnly, 1, 0},
		"by its type":         {fmt.Errorf("open /tmp/x: %w", os.ErrNotExist), readOnly, 1, 0},
		"unknown":             {errors.New("something went wrong"), readOnly, 1, 0},
	} {
		runInBubble(t, name, func(t *testing.T) {
			var reported []error
			hooks := &server.Hooks{}
			hooks.AddOnError(func(_ context.Context, _ any, _ mcp.MCPMethod, _ any, err error) {
				reported = append(reported, err)
			})
			g := newGuard(t, resilience.Config{})
			s := server.NewMCPServer("s", "1", server.WithHooks(hooks),
				server.WithToolHandlerMiddleware(mcpgo.Middleware(g)))
			var tries atomic.Int32
			s.AddTool(resultCase{handler: returns(nil, tc.err), tool: tc.tool}.newTool(&tries))

			_, code := handle(t.Context(), t, s, "tools/call", 1, map[string]any{"name": "x"})
			assert.Equal(t, mcp.INTERNAL_ERROR, code)
			assert.Equal(t, tc.tries, tries.Load())
			assert.Equal(t, tc.failures, failures(t, g, "x"))
			require.Len(t, reported, 1)
			assert.ErrorIs(t, reported[0], tc.err)
		})
	}
}

func TestOwnResultIsPassedOn(t *testing.T) {
	own := returns(ownResult(), nil)
	typed := mcp.NewTypedToolHandler(
		func(context.Context, mcp.CallToolRequest, input) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText("fine"), nil
		})
	decides := func(err error) mcpgo.Option {
		return mcpgo.Failure(func(context.Context, mcp.CallToolRequest, *mcp.CallToolResult) error { return err })
	}
	set := func(err error) server.ToolHandlerFunc {
		res := ownResult()
		mcpgo.SetError(res, err)
		return returns(res, nil)
	}
	invalid := resilience.MarkInvalid(errBackend)
	all, ownWords := mcpgo.Failure(mcpgo.CountAll), outcome{text: ownText, tries: 1}
	notBound := "failed to bind arguments: json: cannot unmarshal string into Go struct field input.n of type int"

	for name, tc := range map[string]resultCase{
		"a success":                    {handler: typed, want: outcome{text: "fine", tries: 1}},
		"isError, which tells nothing": {handler: own, tool: readOnly, want: ownWords},
		"isError, Failure(nil)":        {handler: own, tool: readOnly, option: mcpgo.Failure(nil), want: ownWords},
		"isError, all count":           {handler: own, option: all, want: failedOnce.withText(ownText)},
		"isError, all count, retried":  {handler: own, tool: readOnly, option: all, want: exhausted.withText(ownText)},
		"isError, not a failure":       {handler: own, tool: readOnly, option: decides(nil), want: ownWords},
		"isError, a mistake":           {handler: own, option: decides(invalid), want: ownWords},
		"isError, nothing to hide":     {handler: own, option: mcpgo.HideErrors(), want: ownWords},
		"SetError, the backend's":      {handler: set(errBackend), want: failedOnce.withText(ownText)},
		"SetError, the caller's":       {handler: set(os.ErrNotExist), tool: readOnly, want: ownWords},
		"SetError, hidden":             {handler: set(errBackend), option: mcpgo.HideErrors(), want: failedOnce},
		"isError, canceled by the tool": {
			handler: own, tool: readOnly,
			option: decides(&resilience.Error{Code: resilience.CodeCanceled, Message: "The user has left"}),
			want:   outcome{code: resilience.CodeCanceled, message: "The user has left", text: ownText, tries: 1},
		},
		"arguments that don't bind": {
			handler: typed, tool: readOnly, args: map[string]any{"n": "many"},
			want: outcome{tries: 1, text: notBound}, isError: true,
		},
	} {
		runInBubble(t, name, tc.run)
	}
}

// mcp-go would leave a call without an answer if its result can't be encoded.
func TestResultThatIsNoJSONIsAnswered(t *testing.T) {
	noJSON := &mcp.Meta{AdditionalFields: map[string]any{"score": math.NaN()}}
	inMeta := mcp.NewToolResultText("a")
	inMeta.Meta = noJSON
	result := func(c mcp.Content) *mcp.CallToolResult { return &mcp.CallToolResult{Content: []mcp.Content{c}} }
	for name, res := range map[string]*mcp.CallToolResult{
		"the mean of nothing": mcp.NewToolResultStructured(map[string]any{"mean": math.NaN()}, "no rows"),
		"in the _meta":        inMeta,
		"in a text":           result(mcp.TextContent{Text: "a", Meta: noJSON}),
		"in an image":         result(mcp.ImageContent{Meta: noJSON}),
		"half of an object":   mcp.NewToolResultStructured(json.RawMessage(`{"rows":[1,2`), "rows"),
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{})
			res, err := mcpgo.Middleware(g)(returns(res, nil))(t.Context(), request("x", nil, nil))
			require.NoError(t, err)
			require.True(t, res.IsError)
			assert.Equal(t, resilience.CodeToolFailed, errorIn(t, res).Code)
			assert.Zero(t, failures(t, g, "x"))
		})
	}

	whole := &mcp.CallToolResult{Content: []mcp.Content{mcp.ResourceLink{URI: "file:///c", Name: "c"}}}
	res, err := callOnce(t, returns(whole, nil))
	require.NoError(t, err)
	assert.Same(t, whole, res)
}

// run makes one call and checks its outcome.
func (tc resultCase) run(t *testing.T) {
	g := newGuard(t, resilience.Config{Timeouts: resilience.Timeouts{resilience.Quick: 10 * time.Second}})
	s := newServer(g, tc.option)
	var tries atomic.Int32
	s.AddTool(tc.newTool(&tries))
	c := connect(t, s)

	args := tc.args
	if args == nil {
		args = map[string]any{"n": 1}
	}
	res := callTool(t, c, "x", args, nil)

	e := errorIn(t, res)
	got := outcome{code: e.Code, text: text(t, res), tries: tries.Load(), failures: failures(t, g, "x")}
	if tc.want.text == "" {
		checkErrorResult(t, res, e)
		got.text, got.structured = "", res.StructuredContent != nil
	}
	if tc.want.message != "" {
		got.message = e.Message
	}
	assert.Equal(t, tc.want, got)

	if tc.want.text == ownText {
		assert.True(t, res.IsError)
		assert.Equal(t, "kept", res.Meta.AdditionalFields["example.com/own"])
		assert.Equal(t, map[string]any{"own": true}, res.StructuredContent)
	} else {
		assert.Equal(t, tc.want.code != "" || tc.isError, res.IsError)
	}
}

func (tc resultCase) newTool(tries *atomic.Int32) (mcp.Tool, server.ToolHandlerFunc) {
	var opts []mcp.ToolOption
	if tc.tool != nil {
		opts = append(opts, tc.tool)
	}
	tool := mcp.NewTool("x", opts...)

	if tc.handler == nil {
		return tool, nil
	}
	return tool, counted(tries, tc.handler)
}

// checkErrorResult checks a result that the guard made of e.
func checkErrorResult(t *testing.T, res *mcp.CallToolResult, e errorMetadata) {
	t.Helper()
	assert.Equal(t, "x", e.Tool)
	assert.True(t, strings.HasPrefix(text(t, res), string(e.Code)+": "), text(t, res))
	assert.True(t, strings.HasSuffix(text(t, res), " "+e.Suggestion), text(t, res))
	if res.StructuredContent != nil {
		assert.Equal(t, e, readError(t, res.StructuredContent))
	}
	assert.NotContains(t, text(t, res), errBackend.Error())
	assert.NotContains(t, text(t, res), "secret")
}

// typedNil is an old mistake: a nil pointer that is returned as an error.
type typedNil struct{ cause error }

func (e *typedNil) Error() string { return "typed nil" }
func (e *typedNil) Unwrap() error { return e.cause }

func TestTypedNilDoesNotEndTheProcess(t *testing.T) {
	var none *typedNil
	for name, handler := range map[string]server.ToolHandlerFunc{
		"returned": returns(nil, none),
		"panicked": panics(none),
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(newGuard(t, resilience.Config{}))
			s.AddTool(mcp.NewTool("x"), handler)
			result, code := handle(t.Context(), t, s, "tools/call", 1, map[string]any{"name": "x"})
			assert.Zero(t, code)
			assert.Equal(t, resilience.CodeToolFailed, errorIn(t, parse[mcp.CallToolResult](t, result)).Code)
		})
	}
}

// A tool may return the same result again and again.
func TestOwnResultIsNotChanged(t *testing.T) {
	shared := mcp.NewToolResultError("own")
	shared.Meta = &mcp.Meta{ProgressToken: "p", AdditionalFields: map[string]any{"example.com/own": 1}}
	before, err := json.Marshal(shared)
	require.NoError(t, err)

	h := mcpgo.Middleware(newGuard(t, resilience.Config{}), mcpgo.Failure(mcpgo.CountAll))(returns(shared, nil))
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			res, err := h(t.Context(), request("x", nil, nil))
			assert.NoError(t, err)
			assert.Equal(t, shared.Content, res.Content[:1])
			assert.Len(t, res.Content, 2, "guidance follows")
			assert.Equal(t, resilience.CodeToolFailed, errorIn(t, res).Code)
			assert.Equal(t, "p", res.Meta.ProgressToken)
		})
	}
	calls.Wait()

	after, err := json.Marshal(shared)
	require.NoError(t, err)
	assert.JSONEq(t, string(before), string(after))
}

// At its timeout, a tool's echo of that isn't its own answer, but all else is.
func TestAnswerAtTheTimeoutStandsUnlessItIsAnEcho(t *testing.T) {
	late := func(err error) server.ToolHandlerFunc {
		return func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			<-ctx.Done()
			return nil, cmp.Or(err, ctx.Err())
		}
	}
	for name, tc := range map[string]struct {
		handler server.ToolHandlerFunc
		leaves  bool // the caller, before the timeout
		want    error
	}{
		"an echo":          {handler: late(nil)},
		"an echo, wrapped": {handler: late(fmt.Errorf("query: %w", context.DeadlineExceeded))},
		"another error":    {handler: late(errBackend), want: errBackend},
		"a result, an echo": {handler: func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			<-ctx.Done()
			return mcp.NewToolResultErrorFromErr("query", ctx.Err()), nil
		}},
		"a result, its cause": {handler: func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			<-ctx.Done()
			return mcp.NewToolResultErrorFromErr("query", context.Cause(ctx)), nil
		}},
		"a deadline before":    {handler: returns(nil, context.DeadlineExceeded), want: context.DeadlineExceeded},
		"the caller has left":  {handler: late(nil), leaves: true, want: context.Canceled},
		"and another deadline": {handler: late(context.DeadlineExceeded), leaves: true, want: context.DeadlineExceeded},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := newGuard(t, onlyX(resilience.Tool{Timeout: time.Second, Cooperative: true}))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tc.leaves {
				time.AfterFunc(time.Second/2, cancel)
			}
			res, err := mcpgo.Middleware(g)(tc.handler)(ctx, request("x", nil, nil))
			assert.Equal(t, tc.want, err)
			if tc.want == nil {
				assert.Equal(t, resilience.CodeTimeout, errorIn(t, res).Code)
				assert.Regexp(t, "^TIMEOUT: ", text(t, res), "it is the guard's answer")
			}
		})
	}
}
