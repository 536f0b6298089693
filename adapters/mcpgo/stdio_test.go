package mcpgo_test

import (
	"bufio"
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
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// childEnv is the environment variable that turns the test binary into a server.
const childEnv = "MCPGO_TEST_CHILD"

const (
	workers = 5 // mcp-go's default over stdio
	hangs   = "the tool hangs"
)

// serveChild serves two tools over stdio: "hang" reports on stderr that it was called and never
// returns, and "echo" returns its argument.
func serveChild() {
	guard := resilience.Must(resilience.New(resilience.Config{
		Tools: map[string]resilience.Tool{"hang": {Timeout: 500 * time.Millisecond, Breaker: "hang"}},
		// The breaker must not reject any of the calls that are to hang.
		Breaker: resilience.BreakerConfig{Failures: 100},
	}))
	s := newServer(guard)
	s.AddTool(mcp.NewTool("hang"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		fmt.Fprintln(os.Stderr, hangs)
		select {}
	})
	s.AddTool(mcp.NewTool("echo"), func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText(req.GetString("text", "")), nil
	})

	if err := server.ServeStdio(s); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// mcp-go has five workers for tools over stdio. A guarded tool that hangs releases its worker at
// its timeout; without the guard, "echo" would never be answered.
func TestStdioHungCallsDontBlockOthers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // only in case that the test hangs
	defer cancel()
	exe, err := os.Executable()
	require.NoError(t, err)
	c, err := client.NewStdioMCPClient(exe, []string{childEnv + "=1"})
	require.NoError(t, err)
	defer c.Close()
	stderr, ok := client.GetStderr(c)
	require.True(t, ok)
	var init mcp.InitializeRequest
	init.Params.ProtocolVersion = legacy
	_, err = c.Initialize(ctx, init)
	require.NoError(t, err)

	var calls sync.WaitGroup
	codes := make([]resilience.Code, workers+1)
	for i := range codes {
		calls.Go(func() {
			res, err := c.CallTool(ctx, request("hang", nil, nil))
			if assert.NoError(t, err) {
				codes[i] = errorIn(t, res).Code
			}
		})
	}
	for busy, lines := 0, bufio.NewScanner(stderr); busy < workers; {
		require.True(t, lines.Scan())
		if lines.Text() == hangs {
			busy++
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
