package mcpgo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/mcpgo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNilGuard(t *testing.T) {
	assert.PanicsWithValue(t, "resilience: mcpgo: nil *Guard", func() { mcpgo.Middleware(nil) })
}

type input struct {
	N int `json:"n"`
}

// What the client gets, and what it means for the guard.
func TestResults(t *testing.T) {
	readOnly := mcp.WithReadOnlyHintAnnotation(true)
	schema := mcp.WithOutputSchema[input]()
	rawSchema := mcp.WithRawOutputSchema(json.RawMessage(`{"type":"object"}`))
	own := func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		res := mcp.NewToolResultError("the tool's own words")
		res.Meta = mcp.NewMetaFromMap(map[string]any{"example.com/own": "kept"})
		res.StructuredContent = map[string]any{"own": true}
		return res, nil
	}
	hangs := func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	typed := mcp.NewTypedToolHandler(func(context.Context, mcp.CallToolRequest, input) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText("fine"), nil
	})
	structured := mcp.NewStructuredToolHandler(func(_ context.Context, _ mcp.CallToolRequest, in input) (input, error) {
		return in, errBackend
	})
	failure := func(err error) mcpgo.Option {
		return mcpgo.Failure(func(*mcp.CallToolResult) error { return err })
	}
	type result struct {
		code       resilience.Code // "": no failure
		text       string          // "": the error's JSON
		message    string          // "": don't care
		structured bool            // the error's
		tries      int32
		counts     int
	}
	for name, tc := range map[string]struct {
		handler server.ToolHandlerFunc
		tool    []mcp.ToolOption
		plain   bool // the tool isn't made by NewTool, which sets hints
		opt     mcpgo.Option
		args    any
		want    result
	}{
		"a success":                     {handler: typed, want: result{text: "fine", tries: 1}},
		"an error, read-only":           {handler: fails, tool: []mcp.ToolOption{readOnly}, want: result{code: resilience.CodeRetryExhausted, structured: true, tries: 4, counts: 1}},
		"an error, idempotent":          {handler: fails, tool: []mcp.ToolOption{mcp.WithIdempotentHintAnnotation(true)}, want: result{code: resilience.CodeRetryExhausted, structured: true, tries: 4, counts: 1}},
		"an error, not idempotent":      {handler: fails, want: result{code: resilience.CodeToolFailed, structured: true, tries: 1, counts: 1}},
		"an error, no hints":            {handler: fails, plain: true, want: result{code: resilience.CodeToolFailed, structured: true, tries: 1, counts: 1}},
		"an error, output schema":       {handler: fails, tool: []mcp.ToolOption{schema}, want: result{code: resilience.CodeToolFailed, tries: 1, counts: 1}},
		"an error, raw output schema":   {handler: fails, tool: []mcp.ToolOption{rawSchema}, want: result{code: resilience.CodeToolFailed, tries: 1, counts: 1}},
		"a result with isError":         {handler: own, want: result{code: resilience.CodeToolFailed, text: "the tool's own words", tries: 1, counts: 1}},
		"one that is retried":           {handler: own, tool: []mcp.ToolOption{readOnly}, want: result{code: resilience.CodeRetryExhausted, text: "the tool's own words", tries: 4, counts: 1}},
		"one that is the caller's":      {handler: own, tool: []mcp.ToolOption{readOnly}, opt: failure(resilience.MarkInvalid(errBackend)), want: result{code: resilience.CodeValidation, text: "the tool's own words", tries: 1}},
		"one that is no failure":        {handler: own, tool: []mcp.ToolOption{readOnly}, opt: failure(nil), want: result{text: "the tool's own words", tries: 1}},
		"Failure(nil)":                  {handler: own, opt: mcpgo.Failure(nil), want: result{code: resilience.CodeToolFailed, text: "the tool's own words", tries: 1, counts: 1}},
		"a structured handler's error":  {handler: structured, tool: []mcp.ToolOption{readOnly}, want: result{code: resilience.CodeRetryExhausted, text: "tool execution failed: " + errBackend.Error(), tries: 4, counts: 1}},
		"a limit":                       {handler: hangs, tool: []mcp.ToolOption{readOnly}, want: result{code: resilience.CodeTimeout, message: "Tool 'x' exceeded timeout of 10s", structured: true, tries: 1, counts: 1}},
		"a nil handler":                 {tool: []mcp.ToolOption{readOnly}, want: result{code: resilience.CodeToolFailed, structured: true, counts: 1}},
		"arguments that don't bind":     {handler: typed, tool: []mcp.ToolOption{readOnly}, args: map[string]any{"n": "many"}, want: result{code: resilience.CodeValidation, text: "failed to bind arguments: json: cannot unmarshal string into Go struct field input.n of type int", tries: 1}},
		"structured, they don't bind":   {handler: structured, tool: []mcp.ToolOption{readOnly}, args: map[string]any{"n": "many"}, want: result{code: resilience.CodeValidation, text: "failed to bind arguments: json: cannot unmarshal string into Go struct field input.n of type int", tries: 1}},
		"neither a result nor an error": {handler: func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, nil }, tool: []mcp.ToolOption{readOnly}, want: result{code: resilience.CodeToolFailed, structured: true, tries: 1, counts: 1}},
		"a panic":                       {handler: func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) { panic("secret") }, tool: []mcp.ToolOption{readOnly}, want: result{code: resilience.CodeToolFailed, structured: true, tries: 1, counts: 1}},
		"an error with words": {handler: func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, &resilience.Error{Code: resilience.CodeValidation, Message: "no such branch"}
		}, want: result{code: resilience.CodeValidation, message: "no such branch", structured: true, tries: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGuard(t, resilience.Config{Timeouts: map[resilience.Tier]time.Duration{resilience.Quick: 10 * time.Second}})
				s := newServer(g, tc.opt)
				var tries atomic.Int32
				tool := mcp.NewTool("x", tc.tool...)
				if tc.plain {
					tool = mcp.Tool{Name: "x", InputSchema: tool.InputSchema}
				}
				handler := tc.handler
				if handler != nil {
					handler = counted(&tries, handler)
				}
				s.AddTool(tool, handler)
				c := connect(t, s, nil)
				defer c.Close()

				args := tc.args
				if args == nil {
					args = map[string]any{"n": 1}
				}
				res, err := c.CallTool(t.Context(), request("x", args, nil))
				require.NoError(t, err)
				got := result{code: advised(t, res).Code, text: text(t, res), tries: tries.Load(), counts: failures(t, g, "x")}
				if tc.want.text == "" {
					want := advised(t, res)
					assert.Equal(t, want, read(t, got.text))
					assert.Equal(t, "x", want.Tool)
					assert.NotContains(t, got.text, errBackend.Error())
					assert.NotContains(t, got.text, "secret")
					got.text, got.message = "", want.Message
					if got.structured = res.StructuredContent != nil; got.structured {
						assert.Equal(t, want, read(t, res.StructuredContent))
					}
				}
				if tc.want.message == "" {
					got.message = ""
				}
				assert.Equal(t, tc.want, got)
				if got.text == "the tool's own words" {
					assert.True(t, res.IsError)
					assert.Equal(t, "kept", res.Meta.AdditionalFields["example.com/own"])
					assert.Equal(t, map[string]any{"own": true}, res.StructuredContent)
				} else {
					assert.Equal(t, tc.want.code != "", res.IsError)
				}
			})
		})
	}
}

// An open breaker answers for the tool, and a closed one doesn't.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{Breaker: resilience.BreakerConfig{Failures: 2, Cooldown: time.Minute}})
		s := newServer(g)
		var tries atomic.Int32
		s.AddTool(mcp.NewTool("x"), counted(&tries, fails))
		c := connect(t, s, nil)
		defer c.Close()
		codes := make([]resilience.Code, 3)
		for i := range codes {
			res, err := c.CallTool(t.Context(), request("x", nil, nil))
			require.NoError(t, err)
			codes[i] = advised(t, res).Code
		}
		assert.Equal(t, []resilience.Code{resilience.CodeToolFailed, resilience.CodeToolFailed, resilience.CodeCircuitOpen}, codes)
		assert.EqualValues(t, 2, tries.Load())
	})
}

// What mcp-go itself says of arguments is the caller's mistake: as an error it reaches
// the agent, and as a result it is the tool's own. If mcp-go changes its words, this
// fails.
func TestRefusals(t *testing.T) {
	args := map[string]any{"s": "text", "o": map[string]any{}, "l": []any{"text", 1, map[string]any{}}}
	ask := func(r mcp.CallToolRequest) map[string]error {
		errs := map[string]error{}
		add := func(name string, _ any, err error) { errs[name] = err }
		for _, key := range []string{"missing", "s", "o", "l"} {
			v, err := any(nil), error(nil)
			v, err = r.RequireString(key)
			add("string "+key, v, err)
			v, err = r.RequireInt(key)
			add("int "+key, v, err)
			v, err = r.RequireFloat(key)
			add("float "+key, v, err)
			v, err = r.RequireBool(key)
			add("bool "+key, v, err)
			v, err = r.RequireStringSlice(key)
			add("strings "+key, v, err)
			v, err = r.RequireIntSlice(key)
			add("ints "+key, v, err)
			v, err = r.RequireFloatSlice(key)
			add("floats "+key, v, err)
			v, err = r.RequireBoolSlice(key)
			add("bools "+key, v, err)
		}
		delete(errs, "string s") // it is one
		return errs
	}
	errs := ask(request("x", args, nil))
	assert.Len(t, errs, 31)
	for name, refusal := range errs {
		t.Run(name, func(t *testing.T) {
			require.Error(t, refusal)
			for _, asResult := range []bool{false, true} {
				g := newGuard(t, resilience.Config{Effect: resilience.ReadOnly})
				var tries atomic.Int32
				h := mcpgo.Middleware(g)(counted(&tries, func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					if asResult {
						return mcp.NewToolResultError(refusal.Error()), nil
					}
					return nil, refusal
				}))
				res, err := h(t.Context(), request("x", args, nil))
				require.NoError(t, err)
				assert.True(t, res.IsError)
				assert.Equal(t, resilience.CodeValidation, advised(t, res).Code)
				assert.Contains(t, text(t, res), map[bool]string{true: refusal.Error(), false: `"code":"VALIDATION_ERROR"`}[asResult])
				if !asResult {
					assert.Equal(t, refusal.Error(), advised(t, res).Message)
				}
				assert.EqualValues(t, 1, tries.Load())
				assert.Zero(t, failures(t, g, "x"))
			}
		})
	}
	for name, err := range map[string]error{
		"other words": errors.New(`the backend says: required argument "x" not found`),
		"marked":      resilience.MarkPermanent(errors.New(`required argument "x" not found`)),
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{})
			h := mcpgo.Middleware(g)(func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, err })
			res, err := h(t.Context(), request("x", nil, nil))
			require.NoError(t, err)
			assert.Equal(t, resilience.CodeToolFailed, advised(t, res).Code)
			assert.Equal(t, 1, failures(t, g, "x"))
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
			h := mcpgo.Middleware(newGuard(t, resilience.Config{}))(func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return shared, nil
			})
			var calls sync.WaitGroup
			for range 4 {
				calls.Go(func() {
					res, err := h(t.Context(), request("x", nil, nil))
					assert.NoError(t, err)
					assert.NotSame(t, shared, res)
					assert.Equal(t, shared.Content, res.Content)
					assert.Equal(t, resilience.CodeToolFailed, advised(t, res).Code)
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

// A session that has tools of its own.
type session struct {
	*server.InProcessSession
	tools map[string]server.ServerTool
}

func (s *session) GetSessionTools() map[string]server.ServerTool      { return s.tools }
func (s *session) SetSessionTools(tools map[string]server.ServerTool) { s.tools = tools }

// The annotations of the tool are those at the time of the failure.
func TestEffects(t *testing.T) {
	readOnly := mcp.NewTool("x", mcp.WithReadOnlyHintAnnotation(true))
	writes := mcp.NewTool("x")
	for name, tc := range map[string]struct {
		cfg     resilience.Config
		global  *mcp.Tool
		session *mcp.Tool
		during  *mcp.Tool // what the server's becomes while it runs
		tries   int32
	}{
		"read-only":               {global: &readOnly, tries: 4},
		"writes":                  {global: &writes, tries: 1},
		"becomes read-only":       {global: &writes, during: &readOnly, tries: 4},
		"begins to write":         {global: &readOnly, during: &writes, tries: 1},
		"the session's":           {session: &readOnly, tries: 4},
		"the session's first":     {session: &writes, global: &readOnly, tries: 1},
		"the Config's first":      {cfg: resilience.Config{Tools: map[string]resilience.Tool{"x": {Effect: resilience.NonIdempotent}}}, global: &readOnly, tries: 1},
		"the Config's first, too": {cfg: resilience.Config{Tools: map[string]resilience.Tool{"x": {Effect: resilience.ReadOnly}}}, global: &writes, tries: 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(newGuard(t, tc.cfg))
				var tries atomic.Int32
				handler := counted(&tries, func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					if tc.during != nil {
						s.AddTool(*tc.during, fails)
					}
					return nil, errBackend
				})
				tools := map[string]server.ServerTool{}
				if tc.session != nil {
					tools["x"] = server.ServerTool{Tool: *tc.session, Handler: handler}
				}
				s.AddTool(mcp.NewTool("other"), fails)
				if tc.global != nil {
					s.AddTool(*tc.global, handler)
				}
				ctx := s.WithContext(t.Context(), &session{server.NewInProcessSession("s", nil), tools})
				_, code := handle(t, ctx, s, "tools/call", 1, map[string]any{"name": "x"})
				assert.Zero(t, code)
				assert.Equal(t, tc.tries, tries.Load())
			})
		})
	}
}

func TestUnknownToolStaysAProtocolError(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	s := newServer(g)
	s.AddTool(mcp.NewTool("x"), fails)
	_, code := handle(t, t.Context(), s, "tools/call", 1, map[string]any{"name": "nosuch"})
	assert.Equal(t, mcp.INVALID_PARAMS, code)
	assert.Empty(t, g.Health())
}

// A request's wishes need leave.
func TestWishes(t *testing.T) {
	allowed := []mcpgo.Option{mcpgo.AllowDebug(), mcpgo.AllowLimit(), nil}
	for name, tc := range map[string]struct {
		meta    map[string]any
		opts    []mcpgo.Option
		took    time.Duration
		code    resilience.Code
		details bool
		tries   int32
		counts  int
	}{
		"none":                {opts: allowed, took: 10 * time.Second, code: resilience.CodeTimeout, tries: 1, counts: 1},
		"debug":               {meta: map[string]any{resilience.MetaDebug: true}, opts: allowed, took: 10 * time.Second, code: resilience.CodeTimeout, details: true, tries: 1, counts: 1},
		"debug, not allowed":  {meta: map[string]any{resilience.MetaDebug: true}, took: 10 * time.Second, code: resilience.CodeTimeout, tries: 1, counts: 1},
		"limit":               {meta: map[string]any{resilience.MetaLimit: 3}, opts: allowed, took: 3 * time.Second, code: resilience.CodeTimeout, tries: 1},
		"limit, too long":     {meta: map[string]any{resilience.MetaLimit: 3600}, opts: allowed, took: 10 * time.Second, code: resilience.CodeTimeout, tries: 1, counts: 1},
		"limit, not allowed":  {meta: map[string]any{resilience.MetaLimit: 3}, took: 10 * time.Second, code: resilience.CodeTimeout, tries: 1, counts: 1},
		"debug, no sense":     {meta: map[string]any{resilience.MetaDebug: "yes"}, opts: allowed, code: resilience.CodeValidation},
		"limit, no sense":     {meta: map[string]any{resilience.MetaLimit: -1}, opts: allowed, code: resilience.CodeValidation},
		"no sense, no matter": {meta: map[string]any{resilience.MetaLimit: -1, resilience.MetaDebug: 7}, took: 10 * time.Second, code: resilience.CodeTimeout, tries: 1, counts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {Timeout: 10 * time.Second}}})
				s := newServer(g, tc.opts...)
				var tries atomic.Int32
				s.AddTool(mcp.NewTool("x"), counted(&tries, func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}))
				c := connect(t, s, nil)
				defer c.Close()
				begin := time.Now()
				res, err := c.CallTool(t.Context(), request("x", map[string]any{"city": "Oslo", "password": "hunter2"}, tc.meta))
				require.NoError(t, err)
				got := advised(t, res)
				assert.True(t, res.IsError)
				assert.Equal(t, tc.code, got.Code)
				assert.Equal(t, "x", got.Tool)
				assert.Equal(t, tc.took, time.Since(begin))
				assert.Equal(t, tc.tries, tries.Load())
				assert.Equal(t, tc.details, got.Details != nil)
				assert.NotContains(t, text(t, res), "hunter2")
				if tc.details {
					assert.Contains(t, text(t, res), "Oslo")
				}
				assert.Equal(t, tc.counts, failures(t, g, "x"))
			})
		})
	}
}

// Arguments that never were JSON are in the details too.
func TestArgumentsOfAMap(t *testing.T) {
	h := mcpgo.Middleware(newGuard(t, resilience.Config{Debug: true}))(fails)
	for name, tc := range map[string]struct {
		args any
		want string
	}{
		"a map":       {map[string]any{"n": "seven"}, `"seven"`},
		"raw JSON":    {json.RawMessage(`{"n":9007199254740993}`), `9007199254740993`}, // exact
		"a struct":    {input{7}, `"code"`},
		"none at all": {nil, `"code"`},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := h(t.Context(), request("x", tc.args, nil))
			require.NoError(t, err)
			assert.Contains(t, text(t, res), tc.want)
		})
	}
}

// A tool may change its arguments, also after it was given up on: the next attempt has
// its own. Run with -race.
func TestArgumentsOfARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(newGuard(t, resilience.Config{AttemptTimeout: time.Second, Effect: resilience.ReadOnly}))
		over := make(chan struct{})
		s.AddTool(mcp.NewTool("x", mcp.WithReadOnlyHintAnnotation(true)), func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			args := req.GetArguments()
			n := args["n"]
			if resilience.Attempt(ctx) == 1 {
				args["n"] = "changed"
				<-over
				args["n"] = "changed again"
				return nil, nil
			}
			return mcp.NewToolResultText(fmt.Sprint(n)), nil
		})
		c := connect(t, s, nil)
		defer c.Close()
		res, err := c.CallTool(t.Context(), request("x", map[string]any{"n": "one"}, nil))
		close(over)
		require.NoError(t, err)
		assert.Equal(t, "one", text(t, res))
	})
}

// What comes after the guard is repeated with the tool, and what comes before isn't.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var before, after atomic.Int32
		count := func(n *atomic.Int32) server.ToolHandlerMiddleware {
			return func(next server.ToolHandlerFunc) server.ToolHandlerFunc { return counted(n, next) }
		}
		s := server.NewMCPServer("test", "1",
			server.WithToolHandlerMiddleware(count(&before)),
			server.WithToolHandlerMiddleware(mcpgo.Middleware(newGuard(t, resilience.Config{}))),
			server.WithToolHandlerMiddleware(count(&after)))
		s.AddTool(mcp.NewTool("x", mcp.WithReadOnlyHintAnnotation(true)), fails)
		_, code := handle(t, t.Context(), s, "tools/call", 1, map[string]any{"name": "x"})
		assert.Zero(t, code)
		assert.EqualValues(t, 1, before.Load())
		assert.EqualValues(t, 4, after.Load())
	})
}

// A result that asks the user something is passed on, neither retried nor counted.
func TestAsksAClient(t *testing.T) {
	needsQuestions(t)
	g := newGuard(t, resilience.Config{Effect: resilience.ReadOnly, Breaker: resilience.BreakerConfig{Failures: 2}})
	s := newServer(g)
	var tries atomic.Int32
	s.AddTool(mcp.NewTool("x", mcp.WithReadOnlyHintAnnotation(true)), counted(&tries, func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		switch req.GetString("do", "") {
		case "fail":
			return nil, resilience.MarkPermanent(errBackend)
		case "ask in vain":
			res := question()
			res.IsError = true // it still asks
			return res, nil
		}
		return question(), nil
	}))
	call := func(do string) string {
		result, code := handle(t, t.Context(), s, "tools/call", 1, map[string]any{
			"name": "x", "arguments": map[string]any{"do": do},
			"_meta": map[string]any{"io.modelcontextprotocol/protocolVersion": modern, "io.modelcontextprotocol/clientInfo": map[string]any{"name": "c", "version": "1"}, "io.modelcontextprotocol/clientCapabilities": map[string]any{}},
		})
		assert.Zero(t, code)
		return string(result)
	}
	assert.Contains(t, call("fail"), string(resilience.CodeToolFailed))
	for _, do := range []string{"ask", "ask in vain"} {
		got := call(do)
		assert.Contains(t, got, `"resultType":"input_required"`)
		assert.Contains(t, got, `"requestState":"asked"`)
		assert.NotContains(t, got, resilience.MetaError)
	}
	assert.EqualValues(t, 3, tries.Load())
	assert.Equal(t, 1, failures(t, g, "x"), "neither a failure nor a success")
}

// question returns a result that asks the user something. It is read from JSON because older
// versions of mcp-go lack the fields.
func question() *mcp.CallToolResult {
	const elicit = `{"method":"elicitation/create","params":{"message":"Sure?","requestedSchema":{"type":"object","properties":{}}}}`
	var res mcp.CallToolResult
	if err := json.Unmarshal([]byte(`{"content":[],"resultType":"input_required","requestState":"asked","inputRequests":{"sure":`+elicit+`}}`), &res); err != nil {
		panic(err)
	}
	return &res
}

// answered reports whether a request brings the user's answer.
func answered(req mcp.CallToolRequest) bool {
	b, err := json.Marshal(req.Params)
	return err == nil && bytes.Contains(b, []byte(`"inputResponses":{"sure":{"action":"accept"`))
}

func needsQuestions(t *testing.T) {
	t.Helper()
	if _, ok := any(question()).(interface{ NeedsInput() bool }); !ok {
		t.Skip("this version of mcp-go has no results that ask the user something")
	}
}

type user struct{ asked atomic.Int32 }

func (u *user) Elicit(context.Context, mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	u.asked.Add(1)
	time.Sleep(time.Hour) // thinks; the clock is that of a bubble
	return &mcp.ElicitationResult{ElicitationResponse: mcp.ElicitationResponse{Action: mcp.ElicitationResponseActionAccept}}, nil
}

// For clients of older protocols mcp-go asks by itself, and calls the tool again: that
// is a call of its own, and the user's time counts for neither.
func TestAsksAnOlderClient(t *testing.T) {
	needsQuestions(t)
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{})
		s := newServer(g)
		var tries atomic.Int32
		s.AddTool(mcp.NewTool("x"), counted(&tries, func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if answered(req) {
				return done, nil
			}
			return question(), nil
		}))
		u := &user{}
		c := connect(t, s, u)
		defer c.Close()
		res, err := c.CallTool(t.Context(), request("x", nil, nil))
		require.NoError(t, err)
		assert.Equal(t, "done", text(t, res))
		assert.EqualValues(t, 1, u.asked.Load())
		assert.EqualValues(t, 2, tries.Load())
		assert.Zero(t, failures(t, g, "x"))
	})
}

// Newer versions of mcp-go make a request to the user of a handler's URLElicitationRequiredError.
// Whatever it makes of one, it makes of it under a guard, too.
func TestAsksByURL(t *testing.T) {
	required := mcp.URLElicitationRequiredError{Elicitations: []mcp.ElicitationParams{{Mode: mcp.ElicitationModeURL, ElicitationID: "e", URL: "https://example.com", Message: "Log in"}}}
	for name, err := range map[string]error{
		"a value": required, "a pointer": &required, "wrapped": fmt.Errorf("github: %w", required),
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{})
			s, bare := newServer(g), server.NewMCPServer("bare", "1")
			var tries atomic.Int32
			bare.AddTool(mcp.NewTool("x"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return nil, required
			})
			s.AddTool(mcp.NewTool("x", mcp.WithReadOnlyHintAnnotation(true)), counted(&tries, func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return nil, err
			}))
			_, want := handle(t, t.Context(), bare, "tools/call", 1, map[string]any{"name": "x"})
			_, code := handle(t, t.Context(), s, "tools/call", 1, map[string]any{"name": "x"})
			assert.Equal(t, want, code)
			assert.EqualValues(t, 1, tries.Load())
			assert.Zero(t, failures(t, g, "x"))
		})
	}
}

// The client goes away.
func TestCancellation(t *testing.T) {
	for name, heeds := range map[string]bool{"the tool heeds it": true, "the tool ignores it": false, "between two attempts": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGuard(t, resilience.Config{})
				s := newServer(g)
				over := make(chan struct{})
				defer close(over)
				s.AddTool(mcp.NewTool("x", mcp.WithReadOnlyHintAnnotation(true)), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					switch {
					case heeds:
						<-ctx.Done()
						return nil, ctx.Err()
					case name == "between two attempts":
						return mcp.NewToolResultError("try again"), nil
					}
					<-over
					return nil, nil
				})
				var result json.RawMessage
				var code int
				go func() { result, code = handle(t, t.Context(), s, "tools/call", 7, map[string]any{"name": "x"}) }()
				synctest.Wait()
				require.Empty(t, result)
				handle(t, t.Context(), s, "notifications/cancelled", nil, map[string]any{"requestId": 7})
				synctest.Wait()
				assert.Zero(t, code)
				res := &mcp.CallToolResult{}
				require.NoError(t, json.Unmarshal(result, res))
				assert.True(t, res.IsError)
				assert.Equal(t, resilience.CodeCanceled, advised(t, res).Code)
				assert.Equal(t, resilience.CodeCanceled, read(t, text(t, res)).Code)
				assert.Zero(t, failures(t, g, "x"))
			})
		})
	}
}

// A call that runs as a task has no limit and no retries, and isn't counted. One that
// only says so is guarded.
func TestTasks(t *testing.T) {
	type state struct {
		status  string
		message string
	}
	for name, tc := range map[string]struct {
		support mcp.TaskSupport
		handler server.ToolHandlerFunc
		plain   bool            // the client doesn't ask for a task
		want    state           // of the task
		code    resilience.Code // of the answer, if it isn't one
	}{
		"outlives the limit": {support: mcp.TaskSupportOptional, handler: func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			time.Sleep(time.Minute)
			return mcp.NewToolResultText("done"), nil
		}, want: state{status: "completed"}},
		"fails":    {support: mcp.TaskSupportRequired, handler: fails, want: state{"failed", errBackend.Error()}},
		"panics":   {support: mcp.TaskSupportRequired, handler: func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) { panic("secret") }, want: state{"failed", "TOOL_FAILED: Tool 'x' failed"}},
		"no tasks": {support: mcp.TaskSupportForbidden, handler: fails, code: resilience.CodeRetryExhausted},
		"no task":  {support: mcp.TaskSupportOptional, handler: fails, plain: true, code: resilience.CodeRetryExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGuard(t, resilience.Config{Timeouts: map[resilience.Tier]time.Duration{resilience.Quick: time.Second}})
				s := newServer(g)
				var tries atomic.Int32
				s.AddTool(mcp.NewTool("x", mcp.WithReadOnlyHintAnnotation(true), mcp.WithTaskSupport(tc.support)), counted(&tries, tc.handler))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				params := map[string]any{"name": "x", "task": map[string]any{}}
				if tc.plain {
					delete(params, "task")
				}
				result, code := handle(t, ctx, s, "tools/call", 1, params)
				require.Zero(t, code)
				if tc.code != "" {
					res := &mcp.CallToolResult{}
					require.NoError(t, json.Unmarshal(result, res))
					assert.Equal(t, tc.code, advised(t, res).Code)
					assert.Equal(t, 1, failures(t, g, "x"))
					return
				}
				var created struct {
					Task struct {
						TaskID string `json:"taskId"`
					} `json:"task"`
				}
				require.NoError(t, json.Unmarshal(result, &created))
				time.Sleep(2 * time.Minute) // the bubble's
				result, code = handle(t, ctx, s, "tasks/get", 2, map[string]any{"taskId": created.Task.TaskID})
				require.Zero(t, code)
				var got struct {
					Status        string `json:"status"`
					StatusMessage string `json:"statusMessage"`
				}
				require.NoError(t, json.Unmarshal(result, &got))
				assert.Equal(t, tc.want, state{got.Status, got.StatusMessage})
				assert.EqualValues(t, 1, tries.Load())
				assert.Empty(t, g.Health())
			})
		})
	}
}
