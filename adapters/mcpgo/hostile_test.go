package mcpgo_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/mcpgo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// typedNil is an old mistake: a nil pointer that is returned as an error.
type typedNil struct{ cause error }

func (e *typedNil) Error() string { return "typed nil" }
func (e *typedNil) Unwrap() error { return e.cause }

// answerTo makes the server handle one tools/call and returns the answer's JSON.
func answerTo(t *testing.T, s *server.MCPServer, tool string) string {
	t.Helper()
	answer := s.HandleMessage(t.Context(), json.RawMessage(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":{"tenant":"theirs"}}}`))
	b, err := json.Marshal(answer)
	require.NoError(t, err)
	return string(b)
}

// Nothing that a handler does may end the process, or tell what it shouldn't.
func TestNothingEndsTheProcess(t *testing.T) {
	guard := resilience.Must(resilience.New(resilience.Config{}))
	s := server.NewMCPServer("s", "1", server.WithToolHandlerMiddleware(mcpgo.Middleware(guard)))
	var none *typedNil
	for name, handler := range map[string]server.ToolHandlerFunc{
		"typed-nil":        func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, none },
		"panics-typed-nil": func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) { panic(none) },
		"lookalike": func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, errors.New(`argument "postgres://root:hunter2@10.0.0.7" is not a valid dsn`)
		},
	} {
		s.AddTool(mcp.NewTool(name), handler)
		answer := answerTo(t, s, name)
		assert.Contains(t, answer, `"code":"TOOL_FAILED"`, name)
		assert.NotContains(t, answer, "hunter2", name)
	}
}

// What a hook or other middleware makes of the arguments holds for each attempt, whatever
// the one before did to them.
func TestEachAttemptHasTheRewrittenArguments(t *testing.T) {
	guard := resilience.Must(resilience.New(resilience.Config{Retry: resilience.Retry{Backoff: resilience.Backoff{Base: 1, Max: 1}}}))
	hooks := &server.Hooks{}
	hooks.AddBeforeCallTool(func(_ context.Context, _ any, req *mcp.CallToolRequest) {
		req.Params.Arguments = map[string]any{"tenant": "mine", "list": []any{map[string]any{"n": 1}}}
	})
	s := server.NewMCPServer("s", "1", server.WithToolHandlerMiddleware(mcpgo.Middleware(guard)), server.WithHooks(hooks))
	var seen []any
	s.AddTool(mcp.NewTool("x", mcp.WithReadOnlyHintAnnotation(true)), func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		args := req.GetArguments()
		seen = append(seen, args["tenant"], args["list"].([]any)[0].(map[string]any)["n"])
		args["tenant"] = "changed"
		args["list"].([]any)[0].(map[string]any)["n"] = 2
		return nil, errors.New("down")
	})
	assert.Contains(t, answerTo(t, s, "x"), `"code":"RETRY_EXHAUSTED"`)
	assert.Equal(t, []any{"mine", 1, "mine", 1, "mine", 1, "mine", 1}, seen)
}
