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

func TestHealthShowsWhichToolsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{
			Tools:   map[string]resilience.Tool{"good": {}, "bad": {Breaker: "db"}},
			Breaker: resilience.BreakerConfig{Failures: 1},
		})
		s := newServer(g)
		s.AddTool(mcp.NewTool("bad"), fails)
		mcpgo.AddHealth(s, g)
		c := connect(t, s)
		require.True(t, callTool(t, c, "bad", nil, nil).IsError)

		tool := s.GetTool(mcpgo.HealthTool).Tool
		assert.True(t, *tool.Annotations.ReadOnlyHint)
		assert.NotEmpty(t, tool.Description)

		res := callTool(t, c, mcpgo.HealthTool, nil, nil)
		require.False(t, res.IsError)
		assert.Equal(t, string(g.AgentHealth(mcpgo.HealthTool)), text(t, res))
		assert.Contains(t, text(t, res), `"tool":"bad","available":false`)
		assert.NotContains(t, text(t, res), mcpgo.HealthTool)

		structured, err := json.Marshal(res.StructuredContent)
		require.NoError(t, err)
		assert.JSONEq(t, text(t, res), string(structured))

		var read mcp.ReadResourceRequest
		read.Params.URI = mcpgo.HealthResource
		resource, err := c.ReadResource(t.Context(), read)
		require.NoError(t, err)
		contents := resource.Contents[0].(mcp.TextResourceContents)
		assert.Equal(t, "application/json", contents.MIMEType)
		assert.Equal(t, text(t, res), contents.Text)
	})
}

func TestPanicOnNil(t *testing.T) {
	assert.PanicsWithValue(t, "resilience: mcpgo: nil *Guard", func() { mcpgo.Middleware(nil) })
	const want = "resilience: mcpgo: AddHealth: nil *MCPServer or *Guard"
	assert.PanicsWithValue(t, want, func() { mcpgo.AddHealth(nil, newGuard(t, resilience.Config{})) })
	assert.PanicsWithValue(t, want, func() { mcpgo.AddHealth(server.NewMCPServer("s", "1"), nil) })
}
