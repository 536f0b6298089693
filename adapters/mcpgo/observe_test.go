package mcpgo_test

import (
	"context"
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

// An agent learns which tools are worth calling, and no more.
func TestAddHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{
			Tools:   map[string]resilience.Tool{"good": {}, "bad": {Breaker: "db"}},
			Breaker: resilience.BreakerConfig{Failures: 1},
		})
		s := newServer(g)
		s.AddTool(mcp.NewTool("bad"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, resilience.MarkPermanent(errBackend)
		})
		mcpgo.AddHealth(s, g)
		c := connect(t, s, nil)
		res, err := c.CallTool(t.Context(), request("bad", nil, nil))
		require.NoError(t, err)
		require.True(t, res.IsError)

		res, err = c.CallTool(t.Context(), request(resilience.HealthTool, nil, nil))
		require.NoError(t, err)
		require.False(t, res.IsError)
		text := res.Content[0].(mcp.TextContent).Text
		var got struct {
			Tools []struct {
				Tool       string `json:"tool"`
				Available  bool   `json:"available"`
				State      string `json:"state"`
				RetryAfter int    `json:"retryAfter"`
				LastError  any    `json:"lastError"`
			} `json:"tools"`
		}
		require.NoError(t, json.Unmarshal([]byte(text), &got))
		require.Len(t, got.Tools, 2)
		assert.Equal(t, "bad", got.Tools[0].Tool)
		assert.False(t, got.Tools[0].Available)
		assert.Equal(t, "open", got.Tools[0].State)
		assert.Equal(t, 30, got.Tools[0].RetryAfter)
		assert.Nil(t, got.Tools[0].LastError)
		assert.True(t, got.Tools[1].Available)

		structured, err := json.Marshal(res.StructuredContent)
		require.NoError(t, err)
		assert.JSONEq(t, text, string(structured))

		var read mcp.ReadResourceRequest
		read.Params.URI = resilience.HealthResource
		resource, err := c.ReadResource(t.Context(), read)
		require.NoError(t, err)
		contents := resource.Contents[0].(mcp.TextResourceContents)
		assert.Equal(t, "application/json", contents.MIMEType)
		assert.NoError(t, json.Unmarshal([]byte(contents.Text), &got))

		assert.Panics(t, func() { mcpgo.AddHealth(nil, g) })
		assert.Panics(t, func() { mcpgo.AddHealth(server.NewMCPServer("s", "1"), nil) })
	})
}

// Observers learn of the request, and that a call which asks the user something is neither
// a success nor a failure.
func TestObserverLearnsOfTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var request0 resilience.Request
		var ends []resilience.CallEnd
		g := newGuard(t, resilience.Config{Observers: []resilience.Observer{{
			Start: func(_ context.Context, e resilience.CallStart) context.Context { request0 = e.Request; return nil },
			End:   func(_ context.Context, e resilience.CallEnd) { ends = append(ends, e) },
		}}})
		s := newServer(g)
		s.AddTool(mcp.NewTool("x"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText("fine"), nil
		})
		s.AddTool(mcp.NewTool("asks"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, mcp.URLElicitationRequiredError{}
		})
		c := connect(t, s, nil)
		_, err := c.CallTool(t.Context(), request("x", nil, map[string]any{"traceparent": "00-1-2-01"}))
		require.NoError(t, err)
		require.NoError(t, g.Flush(t.Context()))
		assert.Equal(t, "tools/call", request0.Method)
		if _, knows := any(newWire(s, nil)).(interface{ ProtocolVersion() string }); knows { // since mcp-go v1.0
			assert.Equal(t, legacy, request0.Protocol)
		}
		assert.NotEmpty(t, request0.Session)
		assert.Equal(t, "00-1-2-01", request0.Meta["traceparent"])
		_, err = c.CallTool(t.Context(), request("asks", nil, map[string]any{
			"io.modelcontextprotocol/protocolVersion": "2025-06-18",
		}))
		require.Error(t, err)
		require.NoError(t, g.Flush(t.Context()))
		assert.Equal(t, "2025-06-18", request0.Protocol)
		require.Len(t, ends, 2)
		assert.Nil(t, ends[0].Err)
		assert.False(t, ends[0].Unfinished)
		assert.Nil(t, ends[1].Err)
		assert.True(t, ends[1].Unfinished)
	})
}
