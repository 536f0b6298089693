package mcpgo_test

import (
	"context"
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

// newTaskServer returns a server with a tool x, and its guard, which has a timeout of one second.
// An empty support means that the tool doesn't mention tasks.
func newTaskServer(
	t *testing.T, support mcp.TaskSupport, handler server.ToolHandlerFunc, opts ...mcpgo.Option,
) (*server.MCPServer, *resilience.Guard) {
	t.Helper()
	g := newGuard(t, resilience.Config{Timeouts: resilience.Timeouts{resilience.Quick: time.Second}})
	s := newServer(g, opts...)
	tool := mcp.NewTool("x", readOnly)
	if support != "" {
		tool = mcp.NewTool("x", readOnly, mcp.WithTaskSupport(support))
	}
	s.AddTool(tool, handler)
	return s, g
}

// taskState is what a client reads of a task's state.
type taskState struct {
	Status        string `json:"status"`
	StatusMessage string `json:"statusMessage"`
}

// startTask calls tool x as a task. It returns the parameters of requests about it.
func startTask(ctx context.Context, t *testing.T, s *server.MCPServer) map[string]any {
	t.Helper()
	params := map[string]any{"name": "x", "task": map[string]any{}}
	result, code := handle(ctx, t, s, "tools/call", 1, params)
	require.Zero(t, code)
	created := parse[struct {
		Task struct {
			TaskID string `json:"taskId"`
		} `json:"task"`
	}](t, result)
	return map[string]any{"taskId": created.Task.TaskID}
}

// A task outlives its request, so the guard leaves it alone.
func TestTaskIsNotGuarded(t *testing.T) {
	slow := func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		time.Sleep(time.Minute)
		return done, nil
	}
	for name, tc := range map[string]struct {
		support mcp.TaskSupport
		handler server.ToolHandlerFunc
		want    taskState
	}{
		"outlives the timeout": {mcp.TaskSupportOptional, slow, taskState{Status: "completed"}},
		"fails":                {mcp.TaskSupportRequired, returns(nil, errBackend), taskState{"failed", errBackend.Error()}},
	} {
		runInBubble(t, name, func(t *testing.T) {
			var tries atomic.Int32
			s, g := newTaskServer(t, tc.support, counted(&tries, tc.handler))
			g.Breaker("x").Isolate("maintenance")

			task := startTask(t.Context(), t, s)
			time.Sleep(2 * time.Minute)
			result, code := handle(t.Context(), t, s, "tasks/get", 2, task)
			require.Zero(t, code)
			assert.Equal(t, tc.want, *parse[taskState](t, result))
			assert.EqualValues(t, 1, tries.Load())
		})
	}
}

func TestCallThatIsNoTaskIsGuarded(t *testing.T) {
	asTask := map[string]any{"name": "x", "task": map[string]any{}}
	for name, tc := range map[string]struct {
		support mcp.TaskSupport
		params  map[string]any
	}{
		"the tool forbids tasks":            {mcp.TaskSupportForbidden, asTask},
		"the tool doesn't mention tasks":    {"", asTask},
		"the client doesn't ask for a task": {mcp.TaskSupportOptional, map[string]any{"name": "x"}},
	} {
		runInBubble(t, name, func(t *testing.T) {
			s, g := newTaskServer(t, tc.support, fails)
			result, code := handle(t.Context(), t, s, "tools/call", 1, tc.params)
			require.Zero(t, code)
			res := parse[mcp.CallToolResult](t, result)
			assert.Equal(t, resilience.CodeRetryExhausted, errorIn(t, res).Code)
			assert.Equal(t, 1, failures(t, g, "x"))
		})
	}
}
