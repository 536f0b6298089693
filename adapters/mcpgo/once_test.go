package mcpgo_test

import (
	"context"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A write whose connection is cut is sent again. Another client's call with equal arguments is another one.
func TestAWriteThatIsSentAgainActsOnce(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	s := newServer(g)
	var writes atomic.Int64
	began, finish := make(chan struct{}), make(chan struct{})
	s.AddTool(mcp.NewTool("write"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if writes.Add(1) > 1 {
			return mcp.NewToolResultText("another write"), nil
		}
		close(began)
		<-ctx.Done()
		<-finish
		return mcp.NewToolResultText("the write"), nil
	})
	h := httptest.NewServer(server.NewStreamableHTTPServer(s))
	defer h.Close()
	connect := func() *client.Client {
		c, err := client.NewStreamableHttpClient(h.URL)
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		require.NoError(t, c.Start(t.Context()))
		var init mcp.InitializeRequest
		init.Params.ProtocolVersion = legacy
		_, err = c.Initialize(t.Context(), init)
		require.NoError(t, err)
		return c
	}
	alice, bob := connect(), connect()
	write := request("write", map[string]any{"to": "b", "n": 1}, nil)

	leaving, cut := context.WithCancel(t.Context())
	go func() { _, _ = alice.CallTool(leaving, write) }()
	<-began
	cut()
	res, err := bob.CallTool(t.Context(), write)
	require.NoError(t, err)
	assert.Equal(t, "another write", text(t, res))
	close(finish)
	isOver := func() bool { return g.Health()[0].InFlight == 0 }
	require.Eventually(t, isOver, time.Minute, time.Millisecond)

	res, err = alice.CallTool(t.Context(), write)
	require.NoError(t, err)
	require.Len(t, res.Content, 2)
	assert.Equal(t, "the write", res.Content[0].(mcp.TextContent).Text)
	assert.Contains(t, res.Content[1].(mcp.TextContent).Text, "This is the result of the same call made ")
	assert.Equal(t, true, res.Meta.AdditionalFields[resilience.MetaJoined])
	assert.EqualValues(t, 2, writes.Load())
}

// A write that ends with its context may have acted: the agent is to check that.
func TestAWriteThatIsCutOffAsksToCheck(t *testing.T) {
	for name, fail := range map[string]func(error) (*mcp.CallToolResult, error){
		"by an error": func(err error) (*mcp.CallToolResult, error) { return nil, err },
		"by a result": func(err error) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultErrorFromErr("request failed", err), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(newGuard(t, resilience.Config{}))
			ctx, leave := context.WithCancel(t.Context())
			s.AddTool(mcp.NewTool("act"), func(c context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				leave()
				<-c.Done()
				return fail(context.Cause(c))
			})
			c, write := connect(t, s), request("act", map[string]any{}, nil)
			_, _ = c.CallTool(ctx, write)
			res, err := c.CallTool(t.Context(), write)
			require.NoError(t, err)
			assert.Contains(t, text(t, res), "The same call was made 1 second ago, and its outcome is unknown.")
		})
	}
}
