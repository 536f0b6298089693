package mcpgo

import (
	"context"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
)

const (
	// HealthTool is the name of the tool that [AddHealth] adds to a server.
	HealthTool = "tool_health"

	// HealthResource is the URI of the resource that [AddHealth] adds to a server.
	HealthResource = "resilience://health"
)

// AddHealth lets the clients of s query the state of its tools: by the tool [HealthTool], which
// an agent may call before it chooses another one, and by the resource [HealthResource]. Both
// return g.AgentHealth without HealthTool itself. AddHealth panics if s or g is nil.
func AddHealth(s *server.MCPServer, g *resilience.Guard) {
	if s == nil || g == nil {
		panic("resilience: mcpgo: AddHealth: nil *MCPServer or *Guard")
	}

	const description = "Lists the state of every tool. Do not call a tool that is not available " +
		"before the seconds in retryAfter have passed."
	const mimeType = "application/json"

	tool := mcp.NewTool(HealthTool, mcp.WithDescription(description), mcp.WithReadOnlyHintAnnotation(true))
	s.AddTool(tool, func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		health := g.AgentHealth(HealthTool)
		return mcp.NewToolResultStructured(health, string(health)), nil
	})

	resource := mcp.NewResource(HealthResource, "health",
		mcp.WithResourceDescription(description), mcp.WithMIMEType(mimeType))
	s.AddResource(resource, func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
		health := g.AgentHealth(HealthTool)
		return []mcp.ResourceContents{
			mcp.TextResourceContents{URI: HealthResource, MIMEType: mimeType, Text: string(health)},
		}, nil
	})
}
