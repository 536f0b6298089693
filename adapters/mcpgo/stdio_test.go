package mcpgo_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/mcpgo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// childEnv makes the test binary a server.
const childEnv = "MCPGO_TEST_CHILD"

const workers = 5 // mcp-go's default over stdio

// child serves a tool that never returns and one that does, over stdio.
func child() {
	guard := resilience.Must(resilience.New(resilience.Config{
		Tools: map[string]resilience.Tool{"hang": {Timeout: 500 * time.Millisecond, Breaker: "hang"}},
		// All of them are to hang.
		Breaker: resilience.BreakerConfig{Failures: 100},
	}))
	s := newServer(guard)
	s.AddTool(mcp.NewTool("hang"), func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		_ = mcpgo.NotifyProgress(ctx, req, 1, 0, "hangs")
		select {}
	})
	s.AddTool(mcp.NewTool("echo"), func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText(req.GetString("text", "")), nil
	})
	if err := server.ServeStdio(s); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// mcp-go has five workers for tools over stdio. With the guard, a tool that hangs gives
// its worker back at its limit: without, "echo" would never be answered.
func TestStdioHungCallsDontBlockOthers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // for a test that hangs itself
	defer cancel()
	exe, err := os.Executable()
	require.NoError(t, err)
	c, err := client.NewStdioMCPClient(exe, []string{childEnv + "=1"})
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Start(ctx)) // it has begun already, but without notifications
	hanging := make(chan struct{}, workers+1)
	c.OnNotification(func(n mcp.JSONRPCNotification) {
		if n.Method == "notifications/progress" {
			hanging <- struct{}{}
		}
	})
	var init mcp.InitializeRequest
	init.Params.ProtocolVersion = legacy
	_, err = c.Initialize(ctx, init)
	require.NoError(t, err)

	var calls sync.WaitGroup
	codes := make([]resilience.Code, workers+1)
	for i := range codes {
		calls.Go(func() {
			res, err := c.CallTool(ctx, request("hang", nil, map[string]any{"progressToken": i}))
			if assert.NoError(t, err) {
				codes[i] = advised(t, res).Code
			}
		})
	}
	for range workers { // all of them are busy now
		select {
		case <-hanging:
		case <-ctx.Done():
			require.Fail(t, "the tool was never called")
		}
	}
	res, err := c.CallTool(ctx, request("echo", map[string]any{"text": "still here"}, nil))
	require.NoError(t, err)
	assert.Equal(t, "still here", text(t, res))
	calls.Wait()
	for _, code := range codes {
		assert.Equal(t, resilience.CodeTimeout, code)
	}
}
