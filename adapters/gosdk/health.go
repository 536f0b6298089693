package gosdk

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// These are the names of what [AddHealth] adds to a server.
const (
	HealthTool     = "tool_health"
	HealthResource = "resilience://health"
)

// AddHealth lets the clients of server ask how its tools are: by the tool [HealthTool],
// which an agent may call before it chooses another, and by the resource
// [HealthResource]. Both answer with g.AgentHealth. It panics if server or g is nil.
func AddHealth(server *mcp.Server, g *resilience.Guard) {
	if server == nil || g == nil {
		panic("resilience: gosdk: AddHealth: nil *mcp.Server or *Guard")
	}
	const description = "Tells which tools work at present and which are worth no call before the time in retryAfter (seconds) has passed"
	server.AddTool(&mcp.Tool{
		Name:        HealthTool,
		Description: description,
		InputSchema: map[string]any{"type": "object"},
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true},
	}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		text := g.AgentHealth(HealthTool)
		return &mcp.CallToolResult{
			Content:           []mcp.Content{&mcp.TextContent{Text: string(text)}},
			StructuredContent: text,
		}, nil
	})
	server.AddResource(&mcp.Resource{
		URI:         HealthResource,
		Name:        "health",
		Description: description,
		MIMEType:    "application/json",
	}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{
			URI: HealthResource, MIMEType: "application/json", Text: string(g.AgentHealth(HealthTool)),
		}}}, nil
	})
}
