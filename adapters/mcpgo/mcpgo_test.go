package mcpgo_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
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

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
		return
	}
	os.Exit(m.Run())
}

const legacy, modern = "2025-11-25", "2026-07-28"

// steady retries three times, after 100ms each.
var steady = resilience.Retry{Backoff: resilience.Backoff{Base: 100 * time.Millisecond, Max: 100 * time.Millisecond, Jitter: resilience.NoJitter}}

var errBackend = errors.New("dial tcp 10.0.0.7: the backend's own words")

func newGuard(t *testing.T, cfg resilience.Config) *resilience.Guard {
	t.Helper()
	cfg.Retry = steady
	g, err := resilience.New(cfg)
	require.NoError(t, err)
	return g
}

func newServer(g *resilience.Guard, opts ...mcpgo.Option) *server.MCPServer {
	return server.NewMCPServer("test", "1", server.WithTaskCapabilities(true, true, true), server.WithToolHandlerMiddleware(mcpgo.Middleware(g, opts...)))
}

func request(name string, args any, meta map[string]any) mcp.CallToolRequest {
	var req mcp.CallToolRequest
	req.Params.Name = name
	req.Params.Arguments = args
	if meta != nil {
		req.Params.Meta = mcp.NewMetaFromMap(meta)
	}
	return req
}

// advice is a *resilience.Error as a client reads it.
type advice struct {
	Code       resilience.Code `json:"code"`
	Tool       string          `json:"tool"`
	Message    string          `json:"message"`
	Suggestion string          `json:"suggestion"`
	Retryable  bool            `json:"retryable"`
	Details    map[string]any  `json:"details"`
}

// read reads what is the JSON of an error.
func read(t *testing.T, v any) (a advice) {
	t.Helper()
	text, ok := v.(string)
	if !ok {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		text = string(b)
	}
	require.NoError(t, json.Unmarshal([]byte(text), &a), "%s", text)
	return a
}

// advised reads the error in a result's _meta; its Code is empty if there is none.
func advised(t *testing.T, res *mcp.CallToolResult) advice {
	t.Helper()
	if res.Meta == nil || res.Meta.AdditionalFields[resilience.MetaError] == nil {
		return advice{}
	}
	return read(t, res.Meta.AdditionalFields[resilience.MetaError])
}

func text(t *testing.T, res *mcp.CallToolResult) string {
	t.Helper()
	require.Len(t, res.Content, 1)
	c, ok := mcp.AsTextContent(res.Content[0])
	require.True(t, ok, "%T", res.Content[0])
	return c.Text
}

// failures is what the breaker of a tool has counted.
func failures(t *testing.T, g *resilience.Guard, tool string) int {
	t.Helper()
	for _, h := range g.Health() {
		if h.Tool == tool {
			assert.Zero(t, h.InFlight)
			return h.ConsecutiveFailures
		}
	}
	t.Fatalf("the guard has not seen %s", tool)
	return 0
}

// counted returns a handler that counts its calls.
func counted(n *atomic.Int32, h server.ToolHandlerFunc) server.ToolHandlerFunc {
	return func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		n.Add(1)
		return h(ctx, req)
	}
}

func fails(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return nil, errBackend
}

// handle sends a message to s as a transport would, and returns the answer's result and
// the code of its error.
func handle(t *testing.T, ctx context.Context, s *server.MCPServer, method string, id any, params map[string]any) (result json.RawMessage, code int) {
	t.Helper()
	msg := map[string]any{"jsonrpc": "2.0", "method": method, "params": params}
	if id != nil {
		msg["id"] = id
	}
	b, err := json.Marshal(msg)
	assert.NoError(t, err)
	b, err = json.Marshal(s.HandleMessage(ctx, b))
	assert.NoError(t, err)
	var answer struct {
		Result json.RawMessage `json:"result"`
		Error  struct {
			Code int `json:"code"`
		} `json:"error"`
	}
	assert.NoError(t, json.Unmarshal(b, &answer))
	return answer.Result, answer.Error.Code
}
