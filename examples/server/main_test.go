package main

import (
	"encoding/json"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/examples/workspace"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A failure reaches the client as a result with isError, and the guard's advice with it.
func TestFailuresAreResults(t *testing.T) {
	dir, err := workspace.Open(t.TempDir())
	require.NoError(t, err)
	defer dir.Close()
	guard := resilience.Must(resilience.New(resilience.Config{Tools: tools}))
	server := newServer(guard, dir, &workspace.Fetcher{Origins: []string{"http://127.0.0.1:1"}})
	serverSide, clientSide := mcp.NewInMemoryTransports()
	_, err = server.Connect(t.Context(), serverSide, nil)
	require.NoError(t, err)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), clientSide, nil)
	require.NoError(t, err)
	defer session.Close()

	for _, tc := range []struct {
		tool string
		args map[string]any
		code resilience.Code
	}{
		{"overview", nil, ""},
		{"read", map[string]any{"path": "../x"}, resilience.CodeValidation},
		{"fetch", map[string]any{"url": "http://127.0.0.1:1/"}, resilience.CodeConnectionLost},
	} {
		res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tc.tool, Arguments: tc.args})
		require.NoError(t, err, tc.tool)
		assert.Equal(t, tc.code != "", res.IsError, tc.tool)
		if tc.code == "" {
			continue
		}
		var got struct {
			Code resilience.Code `json:"code"`
			Tool string          `json:"tool"`
		}
		b, err := json.Marshal(res.Meta[resilience.MetaError])
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(b, &got), tc.tool)
		assert.Equal(t, tc.code, got.Code)
		assert.Equal(t, tc.tool, got.Tool)
		assert.Nil(t, res.StructuredContent)
	}
}
