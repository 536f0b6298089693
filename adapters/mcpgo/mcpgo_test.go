package mcpgo_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/mcpgo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	switch mode := os.Getenv(childEnv); mode {
	case "":
		os.Exit(m.Run())
	case "transfer, bare", "transfer, guarded":
		serveTransfer(mode == "transfer, guarded")
	default:
		serveChild()
	}
}

// runInBubble runs a subtest whose clock is that of a synctest bubble.
func runInBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// legacy is the protocol version before elicitation by results.
const legacy = "2025-11-25"

// steady retries three times, after 100ms each.
var steady = resilience.Retry{
	Backoff: resilience.Backoff{Base: 100 * time.Millisecond, Max: 100 * time.Millisecond, Jitter: resilience.NoJitter},
}

func newGuard(t *testing.T, cfg resilience.Config) *resilience.Guard {
	t.Helper()
	cfg.Retry = steady
	g, err := resilience.New(cfg)
	require.NoError(t, err)
	return g
}

// onlyX returns a configuration that lists tool x.
func onlyX(x resilience.Tool) resilience.Config {
	return resilience.Config{Tools: map[string]resilience.Tool{"x": x}}
}

func newServer(g *resilience.Guard, opts ...mcpgo.Option) *server.MCPServer {
	return server.NewMCPServer("test", "1", server.WithTaskCapabilities(true, true, true),
		server.WithToolHandlerMiddleware(mcpgo.Middleware(g, opts...)))
}

// readOnly lets the guard retry a tool.
var readOnly = mcp.WithReadOnlyHintAnnotation(true)

// These handlers and results serve many tests.
var (
	errBackend = resilience.MarkBackend(errors.New("dial tcp 10.0.0.7: the backend's own words"))
	fails      = returns(failedRes, nil)
	failedRes  = failedResult(errBackend)
	done       = mcp.NewToolResultText("done")
)

// failedResult is the result of a tool that knows why it has failed.
func failedResult(err error) *mcp.CallToolResult {
	res := &mcp.CallToolResult{}
	mcpgo.SetError(res, err)
	return res
}

func returns(res *mcp.CallToolResult, err error) server.ToolHandlerFunc {
	return func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) { return res, err }
}

func panics(value any) server.ToolHandlerFunc {
	return func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) { panic(value) }
}

// untilCanceled is a handler that runs until its context ends.
func untilCanceled(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// counted returns a handler that counts its calls.
func counted(n *atomic.Int32, h server.ToolHandlerFunc) server.ToolHandlerFunc {
	return func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		n.Add(1)
		return h(ctx, req)
	}
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

// callTool calls a tool that returns a result, even if the call fails.
func callTool(t *testing.T, c *client.Client, name string, args any, meta map[string]any) *mcp.CallToolResult {
	t.Helper()
	res, err := c.CallTool(t.Context(), request(name, args, meta))
	require.NoError(t, err)
	return res
}

// callOnce calls a handler under a guard of its own.
func callOnce(t *testing.T, h server.ToolHandlerFunc, opts ...mcpgo.Option) (*mcp.CallToolResult, error) {
	t.Helper()
	return mcpgo.Middleware(newGuard(t, resilience.Config{}), opts...)(h)(t.Context(), request("x", nil, nil))
}

// handle sends a message to s as a transport would. It returns the answer's result and the code
// of its error.
func handle(
	ctx context.Context, t *testing.T, s *server.MCPServer, method string, id any, params map[string]any,
) (result json.RawMessage, code int) {
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

// parse returns the T whose JSON is b.
func parse[T any](t *testing.T, b []byte) *T {
	t.Helper()
	v := new(T)
	require.NoError(t, json.Unmarshal(b, v), "%s", b)
	return v
}

// errorMetadata is a *resilience.Error as a client reads it.
type errorMetadata struct {
	Code       resilience.Code `json:"code"`
	Tool       string          `json:"tool"`
	Message    string          `json:"message"`
	Suggestion string          `json:"suggestion"`
	Retryable  bool            `json:"retryable"`
	Details    map[string]any  `json:"details"`
}

// readError reads an error from its JSON, which may be text or already decoded.
func readError(t *testing.T, v any) errorMetadata {
	t.Helper()
	if s, ok := v.(string); ok {
		return *parse[errorMetadata](t, []byte(s))
	}
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return *parse[errorMetadata](t, b)
}

// errorIn returns the error in a result's _meta. Its Code is empty if there is none.
func errorIn(t *testing.T, res *mcp.CallToolResult) errorMetadata {
	t.Helper()
	if res.Meta == nil || res.Meta.AdditionalFields[resilience.MetaError] == nil {
		return errorMetadata{}
	}
	return readError(t, res.Meta.AdditionalFields[resilience.MetaError])
}

// text returns the first item of a result's content. Guidance of the guard's may follow.
func text(t *testing.T, res *mcp.CallToolResult) string {
	t.Helper()
	require.NotEmpty(t, res.Content)
	c, ok := mcp.AsTextContent(res.Content[0])
	require.True(t, ok, "%T", res.Content[0])
	return c.Text
}

// failures returns how many failures the breaker of a tool has counted.
func failures(t *testing.T, g *resilience.Guard, tool string) int {
	t.Helper()
	for _, h := range g.Health() {
		assert.Zero(t, h.InFlight)
	}
	return g.Breaker(tool).Failures()
}

// elicitation returns a result that asks for elicitation. It is read from JSON because older
// versions of mcp-go lack the fields.
func elicitation() *mcp.CallToolResult {
	const create = `{"method":"elicitation/create",` +
		`"params":{"message":"Sure?","requestedSchema":{"type":"object","properties":{}}}}`
	const result = `{"content":[],"resultType":"input_required","requestState":"asked",` +
		`"inputRequests":{"sure":` + create + `}}`

	var res mcp.CallToolResult
	if err := json.Unmarshal([]byte(result), &res); err != nil {
		panic(err)
	}
	return &res
}
