package mcpgo_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/mcpgo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// agentHealth is what a client reads from the health tool and the health resource.
type agentHealth struct {
	Tools []struct {
		Tool       string `json:"tool"`
		Available  bool   `json:"available"`
		State      string `json:"state"`
		RetryAfter int    `json:"retryAfter"`
		LastError  any    `json:"lastError"`
	} `json:"tools"`
}

func TestHealthShowsWhichToolsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{
			Tools:   map[string]resilience.Tool{"good": {}, "bad": {Breaker: "db"}},
			Breaker: resilience.BreakerConfig{Failures: 1},
		})
		s := newServer(g)
		s.AddTool(mcp.NewTool("bad"), fails)
		mcpgo.AddHealth(s, g)
		c := connect(t, s, nil)
		require.True(t, callTool(t, c, "bad", nil, nil).IsError)

		tool := s.GetTool(mcpgo.HealthTool).Tool
		assert.True(t, *tool.Annotations.ReadOnlyHint)
		assert.NotEmpty(t, tool.Description)

		res := callTool(t, c, mcpgo.HealthTool, nil, nil)
		require.False(t, res.IsError)
		got := parse[agentHealth](t, []byte(text(t, res)))
		require.Len(t, got.Tools, 2)
		assert.Equal(t, "bad", got.Tools[0].Tool)
		assert.False(t, got.Tools[0].Available)
		assert.Equal(t, "open", got.Tools[0].State)
		assert.Equal(t, 30, got.Tools[0].RetryAfter)
		assert.Nil(t, got.Tools[0].LastError)
		assert.True(t, got.Tools[1].Available)

		structured, err := json.Marshal(res.StructuredContent)
		require.NoError(t, err)
		assert.JSONEq(t, text(t, res), string(structured))

		var read mcp.ReadResourceRequest
		read.Params.URI = mcpgo.HealthResource
		resource, err := c.ReadResource(t.Context(), read)
		require.NoError(t, err)
		contents := resource.Contents[0].(mcp.TextResourceContents)
		assert.Equal(t, "application/json", contents.MIMEType)
		assert.Len(t, parse[agentHealth](t, []byte(contents.Text)).Tools, 2)
	})
}

func TestAddHealthPanicsOnNil(t *testing.T) {
	const want = "resilience: mcpgo: AddHealth: nil *MCPServer or *Guard"
	assert.PanicsWithValue(t, want, func() { mcpgo.AddHealth(nil, newGuard(t, resilience.Config{})) })
	assert.PanicsWithValue(t, want, func() { mcpgo.AddHealth(server.NewMCPServer("s", "1"), nil) })
}
