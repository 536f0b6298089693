package main

import (
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience/examples/servertest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestServer(t *testing.T) {
	servertest.Run(t, servertest.Server[*server.MCPServer]{
		Tools:   tools,
		New:     newServer,
		Add:     add[struct{}, struct{}],
		Connect: connect,
	})
}

func connect(t *testing.T, s *server.MCPServer) servertest.Call {
	c, err := client.NewInProcessClient(s)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	require.NoError(t, c.Start(t.Context()))
	_, err = c.Initialize(t.Context(), mcp.InitializeRequest{})
	require.NoError(t, err)

	return func(tool string, args, meta map[string]any) (any, error) {
		var req mcp.CallToolRequest
		req.Params.Name = tool
		req.Params.Arguments = args
		req.Params.Meta = mcp.NewMetaFromMap(meta)
		return c.CallTool(t.Context(), req)
	}
}
