package mcpgo_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
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

func TestMiddlewarePanicsOnNilGuard(t *testing.T) {
	assert.PanicsWithValue(t, "resilience: mcpgo: nil *Guard", func() { mcpgo.Middleware(nil) })
}

func TestOpenBreakerRejectsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{Breaker: resilience.BreakerConfig{Failures: 2, Cooldown: time.Minute}})
		s := newServer(g)
		var tries atomic.Int32
		s.AddTool(mcp.NewTool("x"), counted(&tries, fails))
		c := connect(t, s, nil)

		codes := make([]resilience.Code, 3)
		for i := range codes {
			codes[i] = errorIn(t, callTool(t, c, "x", nil, nil)).Code
		}
		failed, rejected := resilience.CodeToolFailed, resilience.CodeCircuitOpen
		assert.Equal(t, []resilience.Code{failed, failed, rejected}, codes)
		assert.EqualValues(t, 2, tries.Load())
	})
}

// One broken data source shuts the tool for no other, and neither does a key function that panics.
func TestBreakerKeyGivesEachBackendItsOwnBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{})
		s := newServer(g, mcpgo.BreakerKey(nil), mcpgo.BreakerKey(func(_ context.Context, req mcp.CallToolRequest) string {
			return req.GetArguments()["source"].(string)
		}))
		s.AddTool(mcp.NewTool("query"), func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if req.GetString("source", "") == "broken" {
				return nil, resilience.MarkBackend(errors.New("down"))
			}
			return done, nil
		})
		c := connect(t, s, nil)
		for range 5 {
			_, err := c.CallTool(t.Context(), mcp.CallToolRequest{
				Params: mcp.CallToolParams{Name: "query", Arguments: map[string]any{"source": "broken"}},
			})
			require.ErrorContains(t, err, "down")
		}
		e := errorIn(t, callTool(t, c, "query", map[string]any{"source": "broken"}, nil))
		assert.Equal(t, resilience.CodeCircuitOpen, e.Code)
		assert.Contains(t, e.Message, "For 'broken'")
		assert.False(t, callTool(t, c, "query", map[string]any{"source": "fine"}, nil).IsError)
		assert.False(t, callTool(t, c, "query", nil, nil).IsError, "the function has panicked")
	})
}

func TestUnknownToolRemainsAProtocolError(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	s := newServer(g)
	s.AddTool(mcp.NewTool("x"), fails)

	_, code := handle(t.Context(), t, s, "tools/call", 1, map[string]any{"name": "nosuch"})
	assert.Equal(t, mcp.INVALID_PARAMS, code)
	assert.Empty(t, g.Health())
}

func TestOnlyLaterMiddlewareIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var before, after atomic.Int32
		count := func(n *atomic.Int32) server.ServerOption {
			return server.WithToolHandlerMiddleware(func(next server.ToolHandlerFunc) server.ToolHandlerFunc {
				return counted(n, next)
			})
		}
		guarded := server.WithToolHandlerMiddleware(mcpgo.Middleware(newGuard(t, resilience.Config{})))
		s := server.NewMCPServer("test", "1", count(&before), guarded, count(&after))
		s.AddTool(mcp.NewTool("x", readOnly), fails)

		_, code := handle(t.Context(), t, s, "tools/call", 1, map[string]any{"name": "x"})
		assert.Zero(t, code)
		assert.EqualValues(t, 1, before.Load())
		assert.EqualValues(t, 4, after.Load())
	})
}

// toolSession is a session with tools of its own.
type toolSession struct {
	*server.InProcessSession
	tools map[string]server.ServerTool
}

func (s *toolSession) GetSessionTools() map[string]server.ServerTool      { return s.tools }
func (s *toolSession) SetSessionTools(tools map[string]server.ServerTool) { s.tools = tools }

// The effect is that of the annotations at the time of the failure, unless the Config lists the
// tool.
func TestAnnotationsDecideAboutRetries(t *testing.T) {
	reads, writes := mcp.NewTool("x", readOnly), mcp.NewTool("x")
	hint := true
	readsAlone := mcp.Tool{Name: "x", InputSchema: reads.InputSchema, Annotations: mcp.ToolAnnotation{ReadOnlyHint: &hint}}
	repeats := mcp.Tool{Name: "x", InputSchema: reads.InputSchema, Annotations: mcp.ToolAnnotation{IdempotentHint: &hint}}
	for name, tc := range map[string]struct {
		cfg     resilience.Config
		global  *mcp.Tool // the server's
		session *mcp.Tool
		tries   int32
	}{
		"read-only":                         {global: &reads, tries: 4},
		"writes":                            {global: &writes, tries: 1},
		"read-only, no other hint":          {global: &readsAlone, tries: 4},
		"idempotent, no other hint":         {global: &repeats, tries: 4},
		"the session's":                     {session: &reads, tries: 4},
		"the session's before the server's": {session: &writes, global: &reads, tries: 1},
		"the Config's first, writes": {
			cfg: onlyX(resilience.Tool{Effect: resilience.NonIdempotent}), global: &reads, tries: 1,
		},
		"the Config's first, read-only": {
			cfg: onlyX(resilience.Tool{Effect: resilience.ReadOnly}), global: &writes, tries: 4,
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			s := newServer(newGuard(t, tc.cfg))
			var tries atomic.Int32
			handler := counted(&tries, func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return failedRes, nil
			})

			s.AddTool(mcp.NewTool("other"), fails)
			if tc.global != nil {
				s.AddTool(*tc.global, handler)
			}
			tools := make(map[string]server.ServerTool)
			if tc.session != nil {
				tools["x"] = server.ServerTool{Tool: *tc.session, Handler: handler}
			}

			ctx := s.WithContext(t.Context(), &toolSession{server.NewInProcessSession("s", nil), tools})
			_, code := handle(ctx, t, s, "tools/call", 1, map[string]any{"name": "x"})
			assert.Zero(t, code)
			assert.Equal(t, tc.tries, tries.Load())
		})
	}
}

func TestRequestOptionsMustBeAllowed(t *testing.T) {
	type meta = map[string]any
	type want struct {
		took     time.Duration
		code     resilience.Code
		details  bool
		tries    int32
		failures int
	}
	timedOut := want{took: 10 * time.Second, code: resilience.CodeTimeout, tries: 1, failures: 1}
	withDetails := timedOut
	withDetails.details = true
	shortened := want{took: 3 * time.Second, code: resilience.CodeTimeout, tries: 1}
	invalid := want{code: resilience.CodeValidation}

	debug, timeout := resilience.MetaDebug, resilience.MetaTimeout
	for name, tc := range map[string]struct {
		meta      meta
		forbidden bool
		want      want
	}{
		"none":                 {want: timedOut},
		"debug":                {meta: meta{debug: true}, want: withDetails},
		"debug, not allowed":   {meta: meta{debug: true}, forbidden: true, want: timedOut},
		"timeout":              {meta: meta{timeout: 3}, want: shortened},
		"timeout, too long":    {meta: meta{timeout: 3600}, want: timedOut},
		"timeout, not allowed": {meta: meta{timeout: 3}, forbidden: true, want: timedOut},
		"debug, invalid":       {meta: meta{debug: "yes"}, want: invalid},
		"timeout, invalid":     {meta: meta{timeout: -1}, want: invalid},
		"invalid, not allowed": {meta: meta{timeout: -1, debug: 7}, forbidden: true, want: timedOut},
	} {
		runInBubble(t, name, func(t *testing.T) {
			allowed := []mcpgo.Option{mcpgo.AllowDebug(), mcpgo.AllowTimeout(), nil}
			if tc.forbidden {
				allowed = nil
			}
			g := newGuard(t, onlyX(resilience.Tool{Timeout: 10 * time.Second}))
			s := newServer(g, allowed...)
			var tries atomic.Int32
			s.AddTool(mcp.NewTool("x"), counted(&tries, untilCanceled))
			c := connect(t, s, nil)

			begin := time.Now()
			res := callTool(t, c, "x", map[string]any{"city": "Oslo", "password": "hunter2"}, tc.meta)
			took := time.Since(begin)

			e := errorIn(t, res)
			assert.Equal(t, tc.want, want{took, e.Code, e.Details != nil, tries.Load(), failures(t, g, "x")})
			assert.True(t, res.IsError)
			assert.Equal(t, "x", e.Tool)
			assert.NotContains(t, text(t, res), "hunter2")
			if tc.want.details {
				assert.Contains(t, text(t, res), "Oslo")
			}
		})
	}
}

func TestDebugDetailsContainArguments(t *testing.T) {
	h := mcpgo.Middleware(newGuard(t, resilience.Config{Debug: true}))(panics(errBackend))
	for name, tc := range map[string]struct {
		args any
		want string // empty if they aren't in the details
	}{
		"a map":       {map[string]any{"n": "seven"}, `"seven"`},
		"raw JSON":    {json.RawMessage(`{"n":9007199254740993}`), `9007199254740993`}, // exact
		"a struct":    {input{7}, ""},
		"none at all": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := h(t.Context(), request("x", tc.args, nil))
			require.NoError(t, err)
			assert.Contains(t, text(t, res), tc.want)
			assert.Equal(t, tc.want != "", strings.Contains(text(t, res), `"arguments"`))
		})
	}
}

// An abandoned attempt may still change its arguments. The race detector would notice if it
// shared them with the next attempt.
func TestRetryHasArgumentsOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(newGuard(t, resilience.Config{AttemptTimeout: time.Second, Effect: resilience.ReadOnly}))
		over := make(chan struct{})
		handler := func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			args := req.GetArguments()
			n := args["n"]
			if resilience.Attempt(ctx) == 1 {
				args["n"] = "changed"
				<-over
				args["n"] = "changed again"
				return nil, nil
			}
			return mcp.NewToolResultText(fmt.Sprint(n)), nil
		}
		s.AddTool(mcp.NewTool("x", readOnly), handler)
		c := connect(t, s, nil)

		res := callTool(t, c, "x", map[string]any{"n": "one"}, nil)
		close(over)
		assert.Equal(t, "one", text(t, res))
	})
}

// newerFields returns those fields of a request that mcp-go has since v1.0.
func newerFields(req mcp.CallToolRequest) (fields []reflect.Value) {
	for _, name := range []string{"RawArguments", "InputResponses"} {
		if field := reflect.ValueOf(req.Params).FieldByName(name); field.IsValid() {
			fields = append(fields, field)
		}
	}
	return fields
}

// A handler may change all that its request refers to, and an abandoned one at any time.
func TestEachAttemptHasARequestOfItsOwn(t *testing.T) {
	var req mcp.CallToolRequest
	require.NoError(t, json.Unmarshal([]byte(`{"params":{"name":"x","arguments":{"n":1,"list":[{"m":2}]},`+
		`"_meta":{"a":{"b":"c"}},"task":{"ttl":3},"inputResponses":{"sure":{"action":"accept"}}}}`), &req))
	req.Params.Arguments.(map[string]any)["tags"] = []string{"as other middleware", "sets them"}
	own := &input{N: 7} // such a pointer stays what it is
	req.Params.Arguments.(map[string]any)["own"] = []any{own, []*input{own}}
	req.Header = http.Header{"A": {"b"}}

	state := func(req mcp.CallToolRequest) string {
		text := fmt.Sprint(req.Header, req.Params.Arguments, req.Params.Meta.AdditionalFields, *req.Params.Task.TTL)
		for _, field := range newerFields(req) {
			b, err := json.Marshal(field.Interface())
			assert.NoError(t, err)
			text += string(b)
		}
		return text
	}
	want := state(req)

	synctest.Test(t, func(t *testing.T) {
		var seen []string
		var observed resilience.RequestInfo
		observer := resilience.Observer{Start: func(_ context.Context, e resilience.CallStart) context.Context {
			observed = e.Request
			return nil
		}}
		g := newGuard(t, resilience.Config{Effect: resilience.ReadOnly, Observers: []resilience.Observer{observer}})
		h := mcpgo.Middleware(g)(func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			seen = append(seen, state(req))
			args := req.Params.Arguments.(map[string]any)
			assert.Same(t, own, args["own"].([]any)[0])
			assert.Same(t, own, args["own"].([]any)[1].([]*input)[0])
			args["list"].([]any)[0].(map[string]any)["m"] = "changed"
			args["tags"].([]string)[0] = "changed"
			req.Params.Meta.AdditionalFields["a"].(map[string]any)["b"] = "changed"
			*req.Params.Task.TTL = 4
			req.Header["A"][0] = "changed"
			for _, field := range newerFields(req) {
				field.Clear()
			}
			return failedRes, nil
		})

		_, err := h(t.Context(), req)
		require.NoError(t, err)
		assert.Equal(t, []string{want, want, want, want}, seen)
		assert.Equal(t, want, state(req))
		assert.Equal(t, map[string]any{"a": map[string]any{"b": "c"}}, observed.Meta)
	})
}

// An absent value stays absent, and an empty one empty.
func TestCopyOfARequestIsEqual(t *testing.T) {
	for name, args := range map[string]any{
		"none":          nil,
		"a nil map":     map[string]any(nil),
		"an empty map":  map[string]any{},
		"a raw message": json.RawMessage(`{"n":1}`),
		"of all kinds": map[string]any{
			"nil": nil, "text": "s", "number": 1.5, "whole": 7, "true": true, "nil list": []any(nil), "list": []any{1, "a", nil},
			"nil object": map[string]any(nil), "strings": []string{"a"}, "numbers": []complex128{1}, "nil strings": []string(nil),
			"lists": [][]string{{"a"}, nil}, "map": map[string][]string{"a": {"b"}, "nil": nil}, "nil map": map[string]int(nil),
			"keys": map[int]map[string]any{1: {"a": []any{"b"}}, 2: nil}, "array": [2][]string{{"a"}, {"b"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			req := request("x", args, nil)
			guarded := mcpgo.Middleware(newGuard(t, resilience.Config{}))
			h := guarded(func(_ context.Context, got mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				assert.Equal(t, req, got)
				return done, nil
			})
			res, err := h(t.Context(), req)
			assert.NoError(t, err)
			assert.Same(t, done, res, "it was called")
		})
	}
}

func TestToolSharesNothingOfItsArguments(t *testing.T) {
	args := map[string]any{
		"map": map[string]string{"a": "b"}, "lists": [][]string{{"a"}}, "maps": map[string][]string{"a": {"b"}},
		"deep": map[int]map[string]any{1: {"a": []any{"b"}}}, "any": []map[string]any{{"a": 1}},
	}
	want := fmt.Sprint(args)
	h := mcpgo.Middleware(newGuard(t, resilience.Config{}))(
		func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			got := req.GetArguments()
			got["map"].(map[string]string)["a"] = "changed"
			got["lists"].([][]string)[0][0] = "changed"
			got["maps"].(map[string][]string)["a"][0] = "changed"
			got["deep"].(map[int]map[string]any)[1]["a"].([]any)[0] = "changed"
			got["any"].([]map[string]any)[0]["a"] = "changed"
			return done, nil
		})
	res, err := h(t.Context(), request("x", args, nil))
	require.NoError(t, err)
	assert.Same(t, done, res, "it has changed all")
	assert.Equal(t, want, fmt.Sprint(args))
}

// Other middleware and hooks may change a request once it is answered, and observers read it whenever they like.
func TestObserverSharesNothingWithTheServer(t *testing.T) {
	var got map[string]any
	g := newGuard(t, resilience.Config{Observers: []resilience.Observer{{
		Start: func(_ context.Context, e resilience.CallStart) context.Context { got = e.Request.Meta; return nil },
	}}})
	req := request("x", nil, map[string]any{"a": map[string]any{"b": "c"}})
	_, err := mcpgo.Middleware(g)(returns(done, nil))(t.Context(), req)
	require.NoError(t, err)
	req.Params.Meta.AdditionalFields["a"].(map[string]any)["b"] = "changed"
	assert.Equal(t, map[string]any{"a": map[string]any{"b": "c"}}, got)
}

// The middleware alone knows no server that could lack a tool.
func TestMiddlewareAloneMissesNoTool(t *testing.T) {
	var out strings.Builder
	cfg := onlyX(resilience.Tool{})
	cfg.Log = slog.New(slog.NewTextHandler(&out, nil))
	g := newGuard(t, cfg)
	_, err := mcpgo.Middleware(g)(returns(done, nil))(t.Context(), request("x", nil, nil))
	require.NoError(t, err)
	require.NoError(t, g.Flush(t.Context()))
	assert.Empty(t, out.String())
}

func TestCallWithoutANameIsPassedOn(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	res, err := mcpgo.Middleware(g)(returns(done, errBackend))(t.Context(), request("", nil, nil))
	assert.Same(t, done, res)
	assert.Equal(t, errBackend, err)
	assert.Empty(t, g.Health())
}

// A hook of the server reads the request after the call, while an abandoned tool may still run.
func TestAbandonedToolSharesNoArgumentsWithTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		hooks := &server.Hooks{}
		hooks.AddAfterCallTool(func(_ context.Context, _ any, req *mcp.CallToolRequest, _ any) {
			close(over)
			for range 1000 {
				_, err := json.Marshal(req.Params.Arguments)
				assert.NoError(t, err)
			}
		})
		guarded := mcpgo.Middleware(newGuard(t, resilience.Config{}))
		s := server.NewMCPServer("s", "1", server.WithToolHandlerMiddleware(guarded), server.WithHooks(hooks))
		s.AddTool(mcp.NewTool("x"), func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			<-over
			for n := range 1000 {
				req.GetArguments()["n"] = n
			}
			return nil, nil
		})

		res := callTool(t, connect(t, s, nil), "x", map[string]any{"n": "one"}, nil)
		assert.True(t, res.IsError, "it exceeded its timeout")
	})
}

// Each attempt receives the arguments as a hook or other middleware has rewritten them,
// whatever the earlier attempt did to them.
func TestEachAttemptHasTheRewrittenArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hooks := &server.Hooks{}
		hooks.AddBeforeCallTool(func(_ context.Context, _ any, req *mcp.CallToolRequest) {
			req.Params.Arguments = map[string]any{"tenant": "mine", "list": []any{map[string]any{"n": 1}}}
		})
		guarded := mcpgo.Middleware(newGuard(t, resilience.Config{}))
		s := server.NewMCPServer("s", "1", server.WithToolHandlerMiddleware(guarded), server.WithHooks(hooks))

		var seen []any
		handler := func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			args := req.GetArguments()
			first := args["list"].([]any)[0].(map[string]any)
			seen = append(seen, args["tenant"], first["n"])
			args["tenant"] = "changed"
			first["n"] = 2
			return failedRes, nil
		}
		s.AddTool(mcp.NewTool("x", readOnly), handler)

		params := map[string]any{"name": "x", "arguments": map[string]any{"tenant": "theirs"}}
		result, code := handle(t.Context(), t, s, "tools/call", 1, params)
		assert.Zero(t, code)
		res := parse[mcp.CallToolResult](t, result)
		assert.Equal(t, resilience.CodeRetryExhausted, errorIn(t, res).Code)
		assert.Equal(t, []any{"mine", 1, "mine", 1, "mine", 1, "mine", 1}, seen)
	})
}

func TestCanceledCallIsNotCounted(t *testing.T) {
	ignores := func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		time.Sleep(time.Hour)
		return nil, nil
	}
	for name, tc := range map[string]struct {
		handler server.ToolHandlerFunc
		own     string        // the tool's own text; empty if the result is the guard's
		took    time.Duration // after the cancellation
	}{
		"the tool respects it": {handler: untilCanceled},
		"the tool ignores it":  {handler: ignores, took: time.Minute},
		"between two attempts": {handler: fails, own: errBackend.Error()},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := newGuard(t, onlyX(resilience.Tool{Timeout: time.Minute, Effect: resilience.ReadOnly}))
			s := newServer(g)
			s.AddTool(mcp.NewTool("x"), tc.handler)

			var result json.RawMessage
			var code int
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				result, code = handle(t.Context(), t, s, "tools/call", 7, map[string]any{"name": "x"})
			}()
			synctest.Wait()
			require.Empty(t, result)
			handle(t.Context(), t, s, "notifications/cancelled", nil, map[string]any{"requestId": 7})
			canceled := time.Now()
			<-answered

			assert.Zero(t, code)
			assert.Equal(t, tc.took, time.Since(canceled))
			res := parse[mcp.CallToolResult](t, result)
			assert.True(t, res.IsError)
			if tc.own != "" {
				assert.Equal(t, tc.own, text(t, res))
				assert.Empty(t, errorIn(t, res).Code, "there is nothing to say to a client that has left")
			} else {
				assert.Equal(t, resilience.CodeCanceled, errorIn(t, res).Code)
				assert.Equal(t, resilience.CodeCanceled, readError(t, text(t, res)).Code)
			}
			assert.Zero(t, failures(t, g, "x"))
			time.Sleep(2 * time.Hour) // until the tool has returned
		})
	}
}

func TestObserverReceivesTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got resilience.RequestInfo
		var ends []resilience.CallEnd
		g := newGuard(t, resilience.Config{Observers: []resilience.Observer{{
			Start: func(_ context.Context, e resilience.CallStart) context.Context {
				got = e.Request
				return nil
			},
			End: func(_ context.Context, e resilience.CallEnd) { ends = append(ends, e) },
		}}})
		s := newServer(g)
		s.AddTool(mcp.NewTool("x"), returns(done, nil))
		s.AddTool(mcp.NewTool("asks"), returns(nil, mcp.URLElicitationRequiredError{}))
		c := connect(t, s, nil)

		callTool(t, c, "x", nil, map[string]any{"traceparent": "00-1-2-01"})
		require.NoError(t, g.Flush(t.Context()))
		assert.Equal(t, "tools/call", got.Method)
		if _, ok := any(newWire(s, nil)).(interface{ ProtocolVersion() string }); ok { // since mcp-go v1.0
			assert.Equal(t, legacy, got.Protocol)
		}
		assert.NotEmpty(t, got.Session)
		assert.Equal(t, "00-1-2-01", got.Meta["traceparent"])

		meta := map[string]any{"io.modelcontextprotocol/protocolVersion": "2025-06-18"}
		_, err := c.CallTool(t.Context(), request("asks", nil, meta))
		require.Error(t, err)
		require.NoError(t, g.Flush(t.Context()))
		assert.Equal(t, "2025-06-18", got.Protocol)

		require.Len(t, ends, 2)
		assert.Nil(t, ends[0].Err)
		assert.False(t, ends[0].Unfinished)
		assert.Nil(t, ends[1].Err)
		assert.True(t, ends[1].Unfinished, "a call that asks for elicitation has neither failed nor succeeded")
	})
}

func TestNameInTheConfigThatTheServerLacksIsSaidOnce(t *testing.T) {
	var out strings.Builder
	g := newGuard(t, resilience.Config{
		Tools: map[string]resilience.Tool{"x": {}, "session's": {}, "y": {}},
		Log:   slog.New(slog.NewTextHandler(&out, nil)),
	})
	s := newServer(g)
	s.AddTool(mcp.NewTool("x"), returns(done, nil))
	tools := map[string]server.ServerTool{"session's": {Tool: mcp.NewTool("session's")}}
	ctx := s.WithContext(t.Context(), &toolSession{server.NewInProcessSession("s", nil), tools})
	for range 2 {
		_, code := handle(ctx, t, s, "tools/call", 1, map[string]any{"name": "x"})
		assert.Zero(t, code)
	}
	require.NoError(t, g.Flush(t.Context()))
	assert.Equal(t, 1, strings.Count(out.String(), "level=WARN"), out.String())
	assert.Contains(t, out.String(), "tool=y")
}
