package main

import (
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience/examples/servertest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestServer(t *testing.T) {
	servertest.Run(t, servertest.Server[*mcp.Server]{
		Tools:   tools,
		New:     newServer,
		Add:     add[struct{}, struct{}],
		Connect: connectInMemory,
	})
}

func connectInMemory(t *testing.T, server *mcp.Server) servertest.Call {
	serverSide, clientSide := mcp.NewInMemoryTransports()
	_, err := server.Connect(t.Context(), serverSide, nil)
	require.NoError(t, err)
	return connect(t, clientSide)
}

// connect connects a client until the test ends.
func connect(t *testing.T, transport mcp.Transport) servertest.Call {
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), transport, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, session.Close()) })

	return func(tool string, args, meta map[string]any) (any, error) {
		return session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args, Meta: meta})
	}
}
