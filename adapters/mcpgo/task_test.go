package mcpgo_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A task outlives its request, so the guard leaves it alone. Any other call is guarded, whatever the client asks for.
func TestTaskIsNotGuarded(t *testing.T) {
	for name, tc := range map[string]struct {
		support mcp.TaskSupport // "" means that the tool doesn't mention tasks
		task    bool            // the client asks for one
		want    string          // status of the task; "" if it is a guarded call
	}{
		"a task":                            {mcp.TaskSupportOptional, true, "completed"},
		"a required task":                   {mcp.TaskSupportRequired, true, "completed"},
		"the tool forbids tasks":            {mcp.TaskSupportForbidden, true, ""},
		"the tool doesn't mention tasks":    {"", true, ""},
		"the client doesn't ask for a task": {mcp.TaskSupportOptional, false, ""},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{})
			g.Breaker("x").Isolate("maintenance")
			s := newServer(g)
			var tries atomic.Int32
			var opts []mcp.ToolOption
			if tc.support != "" {
				opts = append(opts, mcp.WithTaskSupport(tc.support))
			}
			s.AddTool(mcp.NewTool("x", opts...), counted(&tries, returns(done, nil)))

			params := map[string]any{"name": "x"}
			if tc.task {
				params["task"] = map[string]any{}
			}
			result, code := handle(t.Context(), t, s, "tools/call", 1, params)
			require.Zero(t, code)
			synctest.Wait()
			assert.Equal(t, tc.want != "", tries.Load() == 1)
			if tc.want == "" {
				assert.Equal(t, resilience.CodeCircuitOpen, errorIn(t, parse[mcp.CallToolResult](t, result)).Code)
				return
			}

			type task struct {
				ID     string `json:"taskId"`
				Status string `json:"status"`
			}
			created := parse[struct{ Task task }](t, result)
			result, code = handle(t.Context(), t, s, "tasks/get", 2, map[string]any{"taskId": created.Task.ID})
			require.Zero(t, code)
			assert.Equal(t, tc.want, parse[task](t, result).Status)
		})
	}
}
