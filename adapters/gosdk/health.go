package gosdk

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// These are the name of the tool and the URI of the resource that [AddHealth] adds to a server.
const (
	HealthTool     = "tool_health"
	HealthResource = "resilience://health"
)

const healthDescription = "Lists the state of every tool. Do not call a tool that is not available " +
	"before the seconds in retryAfter have passed."

// AddHealth adds the tool [HealthTool] and the resource [HealthResource] to server. Both return
// g.AgentHealth, by which an agent can choose a tool that works. It shows the tools that are listed in the
// Config and those that a call has come to, but no names that another client has made up. AddHealth panics
// if server or g is nil.
func AddHealth(server *mcp.Server, g *resilience.Guard) {
	if server == nil || g == nil {
		panic("resilience: gosdk: AddHealth: nil *mcp.Server or *Guard")
	}

	server.AddTool(&mcp.Tool{
		Name:        HealthTool,
		Description: healthDescription,
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
		Description: healthDescription,
		MIMEType:    "application/json",
	}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{
			URI: HealthResource, MIMEType: "application/json", Text: string(g.AgentHealth(HealthTool)),
		}}}, nil
	})
}
