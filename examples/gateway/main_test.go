package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// downEnv makes the test binary the other server. Its value is the name of a file: while there is one, the server
// ends as soon as it is started.
const downEnv = "GATEWAY_TEST_DOWN"

func TestMain(m *testing.M) {
	if down := os.Getenv(downEnv); down != "" {
		otherServer(down)
		return
	}
	os.Exit(m.Run())
}

func otherServer(down string) {
	if _, err := os.Stat(down); !errors.Is(err, fs.ErrNotExist) {
		os.Exit(1)
	}

	server := mcp.NewServer(&mcp.Implementation{Name: "other", Version: "1.0.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "pid"}, func(context.Context, *mcp.CallToolRequest, any) (
		*mcp.CallToolResult, any, error,
	) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strconv.Itoa(os.Getpid())}}}, nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "crash"}, func(context.Context, *mcp.CallToolRequest, any) (
		*mcp.CallToolResult, any, error,
	) {
		os.Exit(1)
		return nil, nil, nil
	})
	_ = server.Run(context.Background(), &mcp.StdioTransport{})
}

// The other server dies under a call, stays away for a while, and comes back. No call is needed to find that out.
func TestTheProbeOfTheSessionClosesTheBreaker(t *testing.T) {
	down := filepath.Join(t.TempDir(), "down")
	t.Setenv(downEnv, down)
	exe, err := os.Executable()
	require.NoError(t, err)
	session := connect([]string{exe})
	t.Cleanup(func() { assert.NoError(t, session.Close()) })

	server, guard, err := newServer(t.Context(), session, resilience.Config{
		Breaker: resilience.BreakerConfig{
			Failures: 1,
			Cooldown: time.Hour, // so that only the Probe can close it
		},
	})
	require.NoError(t, err)
	call := connectAgent(t, server)

	first, code := call("pid")
	require.Empty(t, code)

	require.NoError(t, os.WriteFile(down, nil, 0o600))
	_, code = call("crash")
	assert.Equal(t, resilience.CodeConnectionLost, code)
	require.Equal(t, resilience.StateOpen, guard.Breaker("pid").State())
	_, code = call("pid")
	assert.Equal(t, resilience.CodeCircuitOpen, code)

	require.NoError(t, os.Remove(down))
	require.Eventually(t, func() bool { return guard.Breaker("pid").State() == resilience.StateClosed },
		time.Minute, 10*time.Millisecond) // far more than a process takes to start
	second, code := call("pid")
	assert.Empty(t, code)
	assert.NotEqual(t, first, second, "another process")
}

// connectAgent returns a function that calls a tool of the gateway, and returns the text or the code of the failure.
func connectAgent(t *testing.T, server *mcp.Server) func(tool string) (string, resilience.Code) {
	serverSide, clientSide := mcp.NewInMemoryTransports()
	_, err := server.Connect(t.Context(), serverSide, nil)
	require.NoError(t, err)
	agent, err := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1.0.0"}, nil).
		Connect(t.Context(), clientSide, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, agent.Close()) })

	return func(tool string) (string, resilience.Code) {
		res, err := agent.CallTool(t.Context(), &mcp.CallToolParams{Name: tool})
		require.NoError(t, err)
		if !res.IsError {
			return res.Content[0].(*mcp.TextContent).Text, ""
		}
		var guidance struct{ Code resilience.Code }
		b, err := json.Marshal(res.Meta[resilience.MetaError])
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(b, &guidance))
		return "", guidance.Code
	}
}
