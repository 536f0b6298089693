package mcpgo_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
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

// One broken data source shuts the tool for no other, and neither does a key function that panics.
func TestBreakerKeyGivesEachBackendItsOwnBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{})
		source := func(_ context.Context, r mcp.CallToolRequest) string { return r.GetArguments()["source"].(string) }
		s := newServer(g, mcpgo.BreakerKey(nil), mcpgo.BreakerKey(source))
		s.AddTool(mcp.NewTool("query"), func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if req.GetString("source", "") == "broken" {
				return nil, resilience.MarkBackend(errors.New("down"))
			}
			return done, nil
		})
		c := connect(t, s)
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
	hint, schema := true, reads.InputSchema
	readsAlone := mcp.Tool{Name: "x", InputSchema: schema, Annotations: mcp.ToolAnnotation{ReadOnlyHint: &hint}}
	repeats := mcp.Tool{Name: "x", InputSchema: schema, Annotations: mcp.ToolAnnotation{IdempotentHint: &hint}}
	for name, tc := range map[string]struct {
		cfg     resilience.Config
		global  *mcp.Tool // the server's
		session *mcp.Tool
		tries   int32
	}{
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
	type want struct {
		took     time.Duration
		code     resilience.Code
		details  bool
		tries    int32
		failures int
	}
	const timeout, invalid = resilience.CodeTimeout, resilience.CodeValidation
	both := map[string]any{resilience.MetaDebug: true, resilience.MetaTimeout: 3}
	allow := func(opts ...mcpgo.Option) []mcpgo.Option { return opts }
	for name, tc := range map[string]struct {
		meta    map[string]any
		allowed []mcpgo.Option
		want    want
	}{
		"none":          {nil, allow(mcpgo.AllowDebug(), nil), want{10 * time.Second, timeout, false, 1, 1}},
		"not allowed":   {both, nil, want{10 * time.Second, timeout, false, 1, 1}},
		"debug alone":   {both, allow(mcpgo.AllowDebug()), want{10 * time.Second, timeout, true, 1, 1}},
		"timeout alone": {both, allow(mcpgo.AllowTimeout()), want{3 * time.Second, timeout, false, 1, 0}},
		"invalid":       {map[string]any{resilience.MetaDebug: "yes"}, allow(mcpgo.AllowDebug()), want{code: invalid}},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := newGuard(t, onlyX(resilience.Tool{Timeout: 10 * time.Second}))
			s := newServer(g, tc.allowed...)
			var tries atomic.Int32
			s.AddTool(mcp.NewTool("x"), counted(&tries, untilCanceled))

			begin := time.Now()
			res := callTool(t, connect(t, s), "x", map[string]any{"city": "Oslo", "password": "hunter2"}, tc.meta)
			e := errorIn(t, res)
			took := time.Since(begin)
			assert.Equal(t, tc.want, want{took, e.Code, e.Details != nil, tries.Load(), failures(t, g, "x")})
			assert.Equal(t, tc.want.details, strings.Contains(text(t, res), "Oslo"))
			assert.NotContains(t, text(t, res), "hunter2")
		})
	}
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

		res := callTool(t, connect(t, s), "x", map[string]any{"n": "one"}, nil)
		assert.True(t, res.IsError, "it exceeded its timeout")
	})
}

func TestCanceledCallIsNotCounted(t *testing.T) {
	ignores := func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		time.Sleep(time.Hour)
		return nil, nil
	}
	undoes := func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		<-ctx.Done()
		time.Sleep(time.Second)
		return mcp.NewToolResultError("rolled back"), nil
	}
	for name, tc := range map[string]struct {
		handler server.ToolHandlerFunc
		own     string        // the tool's own text; empty if the result is the guard's
		took    time.Duration // after the cancellation
	}{
		"the tool respects it": {handler: untilCanceled},
		"the tool ignores it":  {handler: ignores, took: time.Minute},
		"the tool undoes":      {handler: undoes, own: "rolled back", took: time.Second},
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
				assert.Equal(t, "CANCELED: The call was canceled. "+
					"Call again only if the result is still wanted.", text(t, res))
			}
			assert.Zero(t, failures(t, g, "x"))
			time.Sleep(2 * time.Hour) // until the tool has returned
		})
	}
}

func TestObserverReceivesTheRequest(t *testing.T) {
	var got resilience.RequestInfo
	var end resilience.CallEnd
	g := newGuard(t, resilience.Config{Observers: []resilience.Observer{{
		Start: func(_ context.Context, e resilience.CallStart) context.Context { got = e.Request; return nil },
		End:   func(_ context.Context, e resilience.CallEnd) { end = e },
	}}})
	s := newServer(g)
	s.AddTool(mcp.NewTool("asks"), returns(nil, mcp.URLElicitationRequiredError{}))
	c := connect(t, s)
	for _, meta := range []map[string]any{
		{"traceparent": "00-1-2-01"}, {"io.modelcontextprotocol/protocolVersion": "2025-06-18"},
	} {
		_, err := c.CallTool(t.Context(), request("asks", nil, meta))
		require.Error(t, err)
		require.NoError(t, g.Flush(t.Context()))
		assert.Equal(t, "tools/call", got.Method)
		assert.NotEmpty(t, got.Session)
		assert.Equal(t, meta, got.Meta)
		_, knowsProtocol := any(newWire(s)).(interface{ ProtocolVersion() string }) // since mcp-go v1.0
		if want, named := meta["io.modelcontextprotocol/protocolVersion"]; named || knowsProtocol {
			assert.Equal(t, cmp.Or(want, any(legacy)), got.Protocol)
		}
		assert.Nil(t, end.Err)
		assert.True(t, end.Unfinished, "a call that asks for elicitation has neither failed nor succeeded")
	}
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
