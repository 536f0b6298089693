package main

import (
	"encoding/json"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/examples/workspace"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A failure reaches the client as a result with isError, the error's JSON in a text
// item.
func TestFailuresAreResults(t *testing.T) {
	dir, err := workspace.Open(t.TempDir())
	require.NoError(t, err)
	defer dir.Close()
	guard := resilience.Must(resilience.New(resilience.Config{Tools: tools}))
	c, err := client.NewInProcessClient(newServer(guard, dir, &workspace.Fetcher{Origins: []string{"http://127.0.0.1:1"}}))
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Start(t.Context()))
	_, err = c.Initialize(t.Context(), mcp.InitializeRequest{})
	require.NoError(t, err)

	for _, tc := range []struct {
		tool string
		args map[string]any
		code resilience.Code
	}{
		{"overview", map[string]any{}, ""},
		{"read", map[string]any{"path": "../x"}, resilience.CodeValidation},
		{"fetch", map[string]any{"url": "http://127.0.0.1:1/"}, resilience.CodeConnectionLost},
	} {
		var req mcp.CallToolRequest
		req.Params.Name = tc.tool
		req.Params.Arguments = tc.args
		res, err := c.CallTool(t.Context(), req)
		require.NoError(t, err, tc.tool)
		assert.Equal(t, tc.code != "", res.IsError, tc.tool)
		if tc.code == "" {
			assert.NotNil(t, res.StructuredContent)
			continue
		}
		var got struct {
			Code resilience.Code `json:"code"`
			Tool string          `json:"tool"`
		}
		require.Len(t, res.Content, 1)
		content, ok := mcp.AsTextContent(res.Content[0])
		require.True(t, ok)
		require.NoError(t, json.Unmarshal([]byte(content.Text), &got), tc.tool)
		assert.Equal(t, tc.code, got.Code)
		assert.Equal(t, tc.tool, got.Tool)
		assert.Nil(t, res.StructuredContent)
	}
}
