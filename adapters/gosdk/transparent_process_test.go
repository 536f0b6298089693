package gosdk_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// serveTransfer serves a tool that moves money in two steps, or undoes the first one.
func serveTransfer(guarded bool) {
	server := newServer(nil)
	if guarded {
		gosdk.Protect(server, resilience.Must(resilience.New(resilience.Config{})))
	}
	addRaw(server, &mcp.Tool{Name: "transfer"}, func(
		ctx context.Context, _ *mcp.CallToolRequest,
	) (*mcp.CallToolResult, error) {
		fmt.Fprintln(os.Stderr, "debited A")
		done := "credited B"
		select {
		case <-ctx.Done():
			done = "rolled back"
		case <-time.After(500 * time.Millisecond):
		}
		fmt.Fprintln(os.Stderr, done)
		return textResult(done), nil
	})
	fmt.Fprintln(os.Stderr, "ended:", server.Run(context.Background(), &mcp.StdioTransport{}))
}

// transferred makes a call of a server in a process of its own, leaves as the given function does once
// A was debited, and returns what the process wrote.
func transferred(t *testing.T, mode string, leave func(cmd *exec.Cmd, stdin io.Closer)) (stdout, stderr string) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), childEnv+"="+mode)
	var out bytes.Buffer
	cmd.Stdout = &out
	errs, err := cmd.StderrPipe()
	require.NoError(t, err)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())

	const requests = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
		`"capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized","params":{}}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"transfer","arguments":{}}}
`
	_, err = io.WriteString(stdin, requests)
	require.NoError(t, err)

	var lines strings.Builder
	for scanner := bufio.NewScanner(errs); scanner.Scan(); {
		fmt.Fprintln(&lines, scanner.Text())
		if scanner.Text() == "debited A" {
			leave(cmd, stdin)
		}
	}
	_ = cmd.Wait()
	return out.String(), lines.String()
}

// A client that closes the server's input, as the TypeScript SDK's close does first, ends the process. A
// tool that has begun something comes to an end, as without a guard.
func TestServerThatEndsWaitsForItsTools(t *testing.T) {
	closeInput := func(_ *exec.Cmd, stdin io.Closer) { stdin.Close() }
	stdout, stderr := transferred(t, "transfer, bare", closeInput)
	assert.Regexp(t, "^debited A\n(credited B|rolled back)\nended: ", stderr)

	guardedStdout, guardedStderr := transferred(t, "transfer, guarded", closeInput)
	assert.Equal(t, stderr, guardedStderr)
	assert.Equal(t, stdout, guardedStdout)
}
