package servers

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/seed8d1e2389/resilience/benchmarks/peers"
)

// connectGoSDK connects a client and a server that are built on the official SDK.
func connectGoSDK(guard *resilience.Guard, tool peers.Tool) (peers.Tool, error) {
	ctx := context.Background()
	server := mcp.NewServer(&mcp.Implementation{Name: "server", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "tool", InputSchema: map[string]any{"type": "object"}},
		func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			v, err := tool(ctx)
			if err != nil {
				return nil, err
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: v}}}, nil
		})
	if guard != nil {
		gosdk.Protect(server, guard)
	}

	serverSide, clientSide := mcp.NewInMemoryTransports()
	if _, err := server.Connect(ctx, serverSide, nil); err != nil {
		return nil, err
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil)
	session, err := client.Connect(ctx, clientSide, nil)
	if err != nil {
		return nil, err
	}

	params := &mcp.CallToolParams{Name: "tool", Arguments: map[string]any{"n": 1}}
	return func(ctx context.Context) (string, error) {
		res, err := session.CallTool(ctx, params)
		switch {
		case err != nil:
			return "", err
		case res.IsError:
			return "", errTool
		}
		return res.Content[0].(*mcp.TextContent).Text, nil
	}, nil
}
