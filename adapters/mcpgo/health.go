package mcpgo

import (
	"context"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
)

// These are the names of what [AddHealth] adds to a server.
const (
	HealthTool     = "tool_health"
	HealthResource = "resilience://health"
)

// AddHealth lets the clients of s ask how its tools are: by the tool [HealthTool],
// which an agent may call before it chooses another, and by the resource
// [HealthResource]. Both answer with g.AgentHealth. It panics if s or g is nil.
func AddHealth(s *server.MCPServer, g *resilience.Guard) {
	if s == nil || g == nil {
		panic("resilience: mcpgo: AddHealth: nil *MCPServer or *Guard")
	}
	const description = "Tells which tools work at present and which are worth no call before the time in retryAfter (seconds) has passed"
	s.AddTool(mcp.NewTool(HealthTool, mcp.WithDescription(description), mcp.WithReadOnlyHintAnnotation(true)),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			text := g.AgentHealth(HealthTool)
			return mcp.NewToolResultStructured(text, string(text)), nil
		})
	s.AddResource(mcp.NewResource(HealthResource, "health", mcp.WithResourceDescription(description), mcp.WithMIMEType("application/json")),
		func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{mcp.TextResourceContents{
				URI: HealthResource, MIMEType: "application/json", Text: string(g.AgentHealth(HealthTool)),
			}}, nil
		})
}
