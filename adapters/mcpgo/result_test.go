package mcpgo_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
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
	noHints bool // the tool isn't made by NewTool, which sets hints
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
		"an Error, no hints":          {handler: broken, noHints: true, want: failedOnce},
		"an Error, output schema":     {handler: broken, tool: schema, want: unstructured},
		"an Error, raw output schema": {handler: broken, tool: rawSchema, want: unstructured},
		"an error with a message": {
			handler: returns(nil, invalid),
			want: outcome{
				code: resilience.CodeValidation, message: "no such branch", structured: true, tries: 1,
			},
		},
		"a timeout": {
			handler: untilCanceled, tool: readOnly,
			want: outcome{
				code: resilience.CodeTimeout, message: "Tool 'x' exceeded timeout of 10s",
				structured: true, tries: 1, failures: 1,
			},
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
	structured := mcp.NewStructuredToolHandler(
		func(_ context.Context, _ mcp.CallToolRequest, in input) (input, error) { return in, errBackend })
	means := func(err error) mcpgo.Option {
		return mcpgo.Failure(func(context.Context, mcp.CallToolRequest, *mcp.CallToolResult) error { return err })
	}

	errUnknown := errors.New("something went wrong")
	set := func(err error) server.ToolHandlerFunc {
		res := ownResult()
		mcpgo.SetError(res, err)
		return returns(res, nil)
	}

	wrongArgs := map[string]any{"n": "many"}
	all, none, errs := mcpgo.Failure(mcpgo.CountAll), mcpgo.Failure(mcpgo.CountNone), mcpgo.Failure(mcpgo.CountErrors)
	ownWords := outcome{text: ownText, tries: 1}
	notBound := outcome{
		tries: 1,
		text:  "failed to bind arguments: json: cannot unmarshal string into Go struct field input.n of type int",
	}

	for name, tc := range map[string]resultCase{
		"a success":                    {handler: typed, want: outcome{text: "fine", tries: 1}},
		"isError, which tells nothing": {handler: own, tool: readOnly, want: ownWords},
		"isError, Failure(nil)":        {handler: own, tool: readOnly, option: mcpgo.Failure(nil), want: ownWords},
		"isError, all count":           {handler: own, option: all, want: failedOnce.withText(ownText)},
		"isError, all count, retried":  {handler: own, tool: readOnly, option: all, want: exhausted.withText(ownText)},
		"isError, none count":          {handler: own, tool: readOnly, option: none, want: ownWords},
		"isError, only errors count":   {handler: own, tool: readOnly, option: errs, want: ownWords},
		"isError, not a failure":       {handler: own, tool: readOnly, option: means(nil), want: ownWords},
		"isError, the caller's mistake": {
			handler: own, tool: readOnly, option: means(resilience.MarkInvalid(errBackend)), want: ownWords,
		},
		"SetError, the backend's":       {handler: set(errBackend), want: failedOnce.withText(ownText)},
		"SetError, the caller's":        {handler: set(os.ErrNotExist), tool: readOnly, want: ownWords},
		"SetError, unknown":             {handler: set(errUnknown), tool: readOnly, want: ownWords},
		"SetError, unknown, all count":  {handler: set(errUnknown), option: all, want: failedOnce.withText(ownText)},
		"SetError, errors count":        {handler: set(errUnknown), option: errs, want: failedOnce.withText(ownText)},
		"SetError, the caller's, count": {handler: set(os.ErrNotExist), option: all, want: ownWords},
		"SetError, hidden":              {handler: set(errBackend), option: mcpgo.HideErrors(), want: failedOnce},
		"an error, hidden":              {handler: returns(nil, errBackend), option: mcpgo.HideErrors(), want: failedOnce},
		"isError, nothing to hide":      {handler: own, option: mcpgo.HideErrors(), want: ownWords},
		"isError, canceled by the tool": {
			handler: own, tool: readOnly,
			option: means(&resilience.Error{Code: resilience.CodeCanceled, Message: "The user has left"}),
			want:   outcome{code: resilience.CodeCanceled, message: "The user has left", text: ownText, tries: 1},
		},
		"a structured handler's error": {
			handler: structured, tool: readOnly,
			want:    outcome{text: "tool execution failed: " + errBackend.Error(), tries: 1},
			isError: true,
		},
		"arguments that don't bind":            {handler: typed, tool: readOnly, args: wrongArgs, want: notBound, isError: true},
		"structured arguments that don't bind": {handler: structured, tool: readOnly, args: wrongArgs, want: notBound, isError: true},
	} {
		runInBubble(t, name, tc.run)
	}
}

// run makes one call and checks its outcome.
func (tc resultCase) run(t *testing.T) {
	g := newGuard(t, resilience.Config{Timeouts: resilience.Timeouts{resilience.Quick: 10 * time.Second}})
	s := newServer(g, tc.option)
	var tries atomic.Int32
	s.AddTool(tc.newTool(&tries))
	c := connect(t, s, nil)

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
	if tc.noHints {
		tool = mcp.Tool{Name: "x", InputSchema: tool.InputSchema}
	}

	if tc.handler == nil {
		return tool, nil
	}
	return tool, counted(tries, tc.handler)
}

// checkErrorResult checks a result that the guard made of e.
func checkErrorResult(t *testing.T, res *mcp.CallToolResult, e errorMetadata) {
	t.Helper()
	assert.Equal(t, "x", e.Tool)
	assert.Equal(t, e, readError(t, text(t, res)))
	if res.StructuredContent != nil {
		assert.Equal(t, e, readError(t, res.StructuredContent))
	}
	assert.NotContains(t, text(t, res), errBackend.Error())
	assert.NotContains(t, text(t, res), "secret")
}

// An agent may have written the text of a result, which tools repeat: whatever it says, it is no evidence.
func TestTextOfAResultIsNoEvidence(t *testing.T) {
	for _, words := range []string{
		"database is locked", "connection refused", "context deadline exceeded", "context canceled",
		"rpc error: code = Unavailable desc = no", "503 Service Unavailable", "unexpected EOF", "i/o timeout",
	} {
		own := outcome{text: "no user named " + words, tries: 1}
		tc := resultCase{handler: returns(mcp.NewToolResultError(own.text), nil), tool: readOnly, want: own, isError: true}
		runInBubble(t, words, tc.run)
	}
}

// argumentErrors returns every complaint about arguments that mcp-go's requests make.
func argumentErrors(r mcp.CallToolRequest) map[string]error {
	errs := make(map[string]error)
	for _, key := range []string{"missing", "s", "o", "l"} {
		_, errs["string "+key] = r.RequireString(key)
		_, errs["int "+key] = r.RequireInt(key)
		_, errs["float "+key] = r.RequireFloat(key)
		_, errs["bool "+key] = r.RequireBool(key)
		_, errs["strings "+key] = r.RequireStringSlice(key)
		_, errs["ints "+key] = r.RequireIntSlice(key)
		_, errs["floats "+key] = r.RequireFloatSlice(key)
		_, errs["bools "+key] = r.RequireBoolSlice(key)
	}
	delete(errs, "string s") // which is a string
	for _, key := range []string{"$filter", "größe", "user id", "filter[name]", "名前", `a "b" \c`, "a\nb\u200b\x80", ""} {
		_, errs["of the name "+key] = r.RequireString(key)
	}
	return errs
}

// mcp-go's complaints about arguments are the caller's mistake, as errors and in results. This test fails if mcp-go
// changes their words.
func TestArgumentErrorIsTheCallersMistake(t *testing.T) {
	args := map[string]any{"s": "text", "o": map[string]any{}, "l": []any{"text", 1, map[string]any{}}}
	errs := argumentErrors(request("x", args, nil))
	assert.Len(t, errs, 39)

	for name, complaint := range errs {
		t.Run(name, func(t *testing.T) {
			require.Error(t, complaint)
			check := func(h server.ToolHandlerFunc) (*mcp.CallToolResult, error) {
				var ended resilience.CallEnd
				g := newGuard(t, resilience.Config{Effect: resilience.ReadOnly, Observers: []resilience.Observer{{
					End: func(_ context.Context, e resilience.CallEnd) { ended = e },
				}}})
				var tries atomic.Int32
				res, err := mcpgo.Middleware(g)(counted(&tries, h))(t.Context(), request("x", args, nil))
				assert.EqualValues(t, 1, tries.Load())
				assert.Zero(t, failures(t, g, "x"))
				assert.NoError(t, g.Flush(t.Context()))
				assert.ErrorIs(t, ended.Err, resilience.CodeValidation)
				return res, err
			}

			_, err := check(returns(nil, complaint))
			assert.Equal(t, complaint, err)

			res, err := check(returns(mcp.NewToolResultError(complaint.Error()), nil))
			require.NoError(t, err)
			assert.True(t, res.IsError)
			assert.Empty(t, errorIn(t, res).Code)
			assert.Contains(t, text(t, res), complaint.Error())

			_, err = check(returns(mcp.NewToolResultErrorFromErr("bad arguments\n", complaint), nil))
			require.NoError(t, err)
		})
	}
}

func TestErrorLikeAnArgumentErrorIsAFailure(t *testing.T) {
	for name, err := range map[string]error{
		"wrapped":   fmt.Errorf("the backend: %w", resilience.MarkBackend(errors.New(`required argument "x" not found`))),
		"marked":    resilience.MarkPermanent(errors.New(`required argument "x" not found`)),
		"two names": resilience.MarkBackend(errors.New(`required argument "x" or "y" not found`)),
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{})
			_, got := mcpgo.Middleware(g)(returns(nil, err))(t.Context(), request("x", nil, nil))
			assert.Equal(t, err, got)
			assert.Equal(t, 1, failures(t, g, "x"))
		})
	}
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
	for name, meta := range map[string]*mcp.Meta{
		"no _meta":    nil,
		"empty _meta": {},
		"own _meta":   {ProgressToken: "p", AdditionalFields: map[string]any{"example.com/own": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			shared := mcp.NewToolResultError("own")
			shared.Meta = meta
			before, err := json.Marshal(shared)
			require.NoError(t, err)

			h := mcpgo.Middleware(newGuard(t, resilience.Config{}), mcpgo.Failure(mcpgo.CountAll))(returns(shared, nil))
			var calls sync.WaitGroup
			for range 4 {
				calls.Go(func() {
					res, err := h(t.Context(), request("x", nil, nil))
					assert.NoError(t, err)
					assert.NotSame(t, shared, res)
					assert.Equal(t, shared.Content, res.Content[:1])
					assert.Len(t, res.Content, 2, "guidance follows")
					assert.Equal(t, resilience.CodeToolFailed, errorIn(t, res).Code)
					if meta != nil {
						assert.Equal(t, meta.ProgressToken, res.Meta.ProgressToken)
					}
				})
			}
			calls.Wait()

			after, err := json.Marshal(shared)
			require.NoError(t, err)
			assert.JSONEq(t, string(before), string(after))
			assert.Same(t, meta, shared.Meta)
		})
	}
}

// What a tool says of its failure reaches the client, but for secrets.
func TestSecretsInTheTextOfAFailureAreReplaced(t *testing.T) {
	const secret = "postgres://app:hunter2@db.internal:5432/app: password authentication failed"
	const want = "postgres://[REDACTED]@db.internal:5432/app: password authentication failed"
	guarded := mcpgo.Middleware(newGuard(t, resilience.Config{}))
	cause := errors.New(secret)

	_, err := guarded(returns(nil, cause))(t.Context(), request("x", nil, nil))
	assert.EqualError(t, err, want)
	assert.ErrorIs(t, err, cause)

	shared := mcp.NewToolResultError(secret)
	res, err := guarded(returns(shared, nil))(t.Context(), request("x", nil, nil))
	require.NoError(t, err)
	assert.Equal(t, want, text(t, res))
	assert.Equal(t, secret, text(t, shared), "the tool's own result is never changed")

	pointer := &mcp.CallToolResult{IsError: true, Content: []mcp.Content{
		(*mcp.TextContent)(nil), &mcp.TextContent{Type: "text", Text: secret},
	}}
	res, err = guarded(returns(pointer, nil))(t.Context(), request("x", nil, nil))
	require.NoError(t, err)
	b, err := json.Marshal(res)
	require.NoError(t, err)
	assert.NotContains(t, string(b), "hunter2")

	res, err = guarded(returns(mcp.NewToolResultText(secret), nil))(t.Context(), request("x", nil, nil))
	require.NoError(t, err)
	assert.Equal(t, secret, text(t, res), "what isn't a failure is the tool's affair")
}

func TestScrubbedResultKeepsAllElse(t *testing.T) {
	image := mcp.NewImageContent("aGk=", "image/png")
	own := &mcp.CallToolResult{
		IsError: true, StructuredContent: map[string]any{"own": true},
		Content: []mcp.Content{
			mcp.NewTextContent("password=hunter2"), image, mcp.NewTextContent("fine"), mcp.NewTextContent("token=abc123"),
		},
	}
	own.Meta = mcp.NewMetaFromMap(map[string]any{"example.com/own": "kept"})
	mcpgo.SetError(own, resilience.MarkInvalid(errBackend))

	res, err := mcpgo.Middleware(newGuard(t, resilience.Config{}))(returns(own, nil))(t.Context(), request("x", nil, nil))
	require.NoError(t, err)
	assert.True(t, res.IsError)
	assert.Equal(t, own.StructuredContent, res.StructuredContent)
	assert.Equal(t, map[string]any{"example.com/own": "kept"}, res.Meta.AdditionalFields, "without what SetError has left")
	assert.Equal(t, []mcp.Content{
		mcp.NewTextContent("password=[REDACTED]"), image, mcp.NewTextContent("fine"), mcp.NewTextContent("token=[REDACTED]"),
	}, res.Content)
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
		"an echo":              {handler: late(nil)},
		"an echo, wrapped":     {handler: late(fmt.Errorf("query: %w", context.DeadlineExceeded))},
		"another error":        {handler: late(errBackend), want: errBackend},
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
			}
		})
	}
}

// What the tool's author says stands at the timeout too, wrapped or not.
func TestErrorOfTheToolsOwnStandsAtTheTimeout(t *testing.T) {
	own := &resilience.Error{Code: "PARTIAL", Message: "3 of 7 rows are written"}
	for name, err := range map[string]error{"bare": own, "wrapped": fmt.Errorf("import: %w", own)} {
		runInBubble(t, name, func(t *testing.T) {
			handler := func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				<-ctx.Done()
				return nil, err
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			res, err := mcpgo.Middleware(newGuard(t, resilience.Config{}))(handler)(ctx, request("x", nil, nil))
			require.NoError(t, err)
			assert.Equal(t, own.Message, errorIn(t, res).Message)
		})
	}
}

func TestToolThatReturnsNothingHasACause(t *testing.T) {
	var ended resilience.CallEnd
	g := newGuard(t, resilience.Config{Observers: []resilience.Observer{{
		End: func(_ context.Context, e resilience.CallEnd) { ended = e },
	}}})
	res, err := mcpgo.Middleware(g)(returns(nil, nil))(t.Context(), request("x", nil, nil))
	require.NoError(t, err)
	require.NoError(t, g.Flush(t.Context()))
	assert.ErrorContains(t, ended.Err.Err, "the tool returned neither a result nor an error")
	assert.Contains(t, errorIn(t, res).Suggestion, "took effect", "what it has done is unknown")
}

// How long it takes to scrub a text, an agent decides by what it has a tool repeat.
func TestScrubbingTakesNoTimeOfTheTool(t *testing.T) {
	repeated := "no user named " + strings.Repeat(":key", 200_000)
	for name, handler := range map[string]server.ToolHandlerFunc{
		"a result": returns(mcp.NewToolResultError(repeated), nil),
		"an error": returns(nil, errors.New(repeated)),
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, onlyX(resilience.Tool{Timeout: 200 * time.Millisecond}))
			res, err := mcpgo.Middleware(g)(handler)(t.Context(), request("x", nil, nil))
			if err == nil {
				err = errors.New(text(t, res))
			}
			assert.ErrorContains(t, err, "no user named ")
			assert.Zero(t, failures(t, g, "x"))
		})
	}
}

// A result may be hidden although it isn't a failure: the guard answers all the same.
func TestHiddenResultThatIsNoFailureHasAnAnswer(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	noFailure := func(context.Context, mcp.CallToolRequest, *mcp.CallToolResult) error { return nil }
	h := mcpgo.Middleware(g, mcpgo.HideErrors(), mcpgo.Failure(noFailure))(fails)

	res, err := h(t.Context(), request("x", nil, nil))
	require.NoError(t, err)
	require.NotNil(t, res)
	assert.True(t, res.IsError)
	checkErrorResult(t, res, errorIn(t, res))
	assert.False(t, errorIn(t, res).Retryable)
	assert.Zero(t, failures(t, g, "x"))
}

// Without a guard, a client reads what SetError has left, which has no text of the error.
func TestSetErrorWithoutAGuard(t *testing.T) {
	res := &mcp.CallToolResult{}
	mcpgo.SetError(res, errBackend)
	assert.True(t, res.IsError)
	assert.Equal(t, errBackend.Error(), text(t, res))
	assert.Equal(t, resilience.CodeToolFailed, errorIn(t, res).Code)
	own := &resilience.Error{Message: "no such branch", Details: map[string]any{"at": "10.0.0.7"}}
	for _, res := range []*mcp.CallToolResult{res, failedResult(own)} {
		b, err := json.Marshal(res.Meta)
		require.NoError(t, err)
		assert.NotContains(t, string(b), "10.0.0.7")
	}

	mcpgo.SetError(nil, errBackend)
	untouched := mcp.NewToolResultText("fine")
	mcpgo.SetError(untouched, nil)
	assert.False(t, untouched.IsError)
}

// Nothing is known of what a tool has done that no guard has called.
func TestSetErrorWithoutAGuardRecommendsNoBlindRepetition(t *testing.T) {
	const caution = "If this tool changes anything, check first whether this call took effect."
	for name, tc := range map[string]struct {
		err       error
		suggested string // "" means that caution follows other words
	}{
		"nothing is known": {err: errors.New("insert: no reply")},
		"the backend's":    {err: resilience.MarkBackend(errors.New("insert: 502"))},
		"a timeout":        {err: fmt.Errorf("insert: %w", context.DeadlineExceeded)},
		"lost":             {err: resilience.ConnectionLostError("reset")},
		"canceled":         {err: context.Canceled},
		"the author's":     {err: &resilience.Error{Code: resilience.CodeTimeout, Message: "m"}},
		"a mistake": {
			err: resilience.MarkInvalid(errors.New("no such row")), suggested: "Correct the arguments, then call again.",
		},
		"for good": {
			err:       resilience.MarkPermanent(errors.New("no such row")),
			suggested: "Do not repeat the same call: change the request or use another tool.",
		},
		"the author's words": {
			err:       &resilience.Error{Code: resilience.CodeToolFailed, Retryable: true, Suggestion: "Try in an hour."},
			suggested: "Try in an hour.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := errorIn(t, failedResult(tc.err)).Suggestion
			if tc.suggested != "" {
				assert.Equal(t, tc.suggested, got)
				return
			}
			assert.Regexp(t, `^[A-Z].*\. `+regexp.QuoteMeta(caution)+`$`, got)
			assert.Equal(t, 1, strings.Count(got, caution))
		})
	}
}
