package mcpgo

import (
	"context"

	"github.com/mark3labs/mcp-go/mcp"
)

// runsAsTask reports whether mcp-go runs a call as a task, which outlives its request and isn't guarded. That the
// client asks for a task isn't enough: otherwise any client could bypass the guard.
func runsAsTask(ctx context.Context, req mcp.CallToolRequest) bool {
	if req.Params.Task == nil {
		return false
	}

	tool := lookUp(ctx, req.Params.Name)
	if tool == nil || tool.Execution == nil {
		return false
	}
	support := tool.Execution.TaskSupport
	return support == mcp.TaskSupportOptional || support == mcp.TaskSupportRequired
}
