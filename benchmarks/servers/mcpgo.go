package servers

import (
	"context"
	"errors"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/mcpgo"
	"github.com/seed8d1e2389/resilience/benchmarks/peers"
)

var errTool = errors.New("the result is an error")

// connectMCPGo connects a client and a server that are built on mcp-go.
func connectMCPGo(guard *resilience.Guard, tool peers.Tool) (peers.Tool, error) {
	ctx := context.Background()
	var opts []server.ServerOption
	if guard != nil {
		opts = append(opts, server.WithToolHandlerMiddleware(mcpgo.Middleware(guard)))
	}
	s := server.NewMCPServer("server", "1", opts...)
	s.AddTool(mcp.NewTool("tool"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		v, err := tool(ctx)
		if err != nil {
			return nil, err
		}
		return mcp.NewToolResultText(v), nil
	})

	c := client.NewClient(transport.NewInProcessTransport(s))
	if err := c.Start(ctx); err != nil {
		return nil, err
	}
	if _, err := c.Initialize(ctx, mcp.InitializeRequest{}); err != nil {
		return nil, err
	}

	var req mcp.CallToolRequest
	req.Params.Name = "tool"
	req.Params.Arguments = map[string]any{"n": 1}
	return func(ctx context.Context) (string, error) {
		res, err := c.CallTool(ctx, req)
		switch {
		case err != nil:
			return "", err
		case res.IsError:
			return "", errTool
		}
		return res.Content[0].(mcp.TextContent).Text, nil
	}, nil
}
