package mcpgo_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
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

// An observation is what the hooks and the client of a server see.
type observation []string

func (o *observation) add(format string, args ...any) { *o = append(*o, fmt.Sprintf(format, args...)) }

// callTool adds what the client receives, but for the guidance that a guard adds to a tool's failure.
func (o *observation) callTool(t *testing.T, c *client.Client, name string) {
	res, err := c.CallTool(t.Context(), request(name, map[string]any{}, withToken("p")))
	if res != nil && res.Meta != nil {
		if res.Meta.AdditionalFields[resilience.MetaError] != nil && len(res.Content) > 1 {
			res.Content = res.Content[:len(res.Content)-1]
		}
		delete(res.Meta.AdditionalFields, resilience.MetaError)
		if len(res.Meta.AdditionalFields) == 0 {
			res.Meta = nil
		}
	}
	o.add("%+v, %v", res, err)
}

// The client and the hooks of a guarded server see the same as those of a bare one.
func TestFailureKeepsItsKind(t *testing.T) {
	required := mcp.URLElicitationRequiredError{Elicitations: []mcp.ElicitationParams{{
		Mode: mcp.ElicitationModeURL, ElicitationID: "e", URL: "https://example.com", Message: "Log in",
	}}}
	bare, guarded := observation{}, observation{}
	for _, o := range []*observation{&bare, &guarded} {
		hooks := &server.Hooks{}
		hooks.AddOnError(func(_ context.Context, _ any, method mcp.MCPMethod, _ any, err error) {
			o.add("OnError %s: %v", method, err)
		})
		opts := []server.ServerOption{server.WithHooks(hooks)}
		if o == &guarded {
			opts = append(opts, server.WithToolHandlerMiddleware(mcpgo.Middleware(newGuard(t, resilience.Config{}))))
		}
		s := server.NewMCPServer("test", "1", opts...)
		s.AddTool(mcp.NewTool("error"), returns(nil, errBackend))
		s.AddTool(mcp.NewTool("wrapped"), returns(nil, fmt.Errorf("list pods: %w", errBackend)))
		s.AddTool(mcp.NewTool("canceled"), returns(nil, context.Canceled))
		s.AddTool(mcp.NewTool("asks"), returns(nil, fmt.Errorf("github: %w", required)))
		s.AddTool(mcp.NewTool("isError"), returns(mcp.NewToolResultError("read: connection reset by peer"), nil))
		s.AddTool(mcp.NewTool("done"), returns(done, nil))
		c := connect(t, s)
		for _, tool := range []string{"error", "wrapped", "canceled", "asks", "isError", "done", "no such tool", ""} {
			o.callTool(t, c, tool)
		}
	}
	assert.Equal(t, bare, guarded)
	assert.Contains(t, guarded, "OnError tools/call: request error: "+errBackend.Error())
}

// serveTransfer serves a tool that moves money in two steps or undoes the first one.
func serveTransfer(guarded bool) {
	var opts []server.ServerOption
	if guarded {
		g := resilience.Must(resilience.New(resilience.Config{}))
		opts = append(opts, server.WithToolHandlerMiddleware(mcpgo.Middleware(g)))
	}
	s := server.NewMCPServer("test", "1", opts...)
	s.AddTool(mcp.NewTool("transfer"), func(
		ctx context.Context, _ mcp.CallToolRequest,
	) (*mcp.CallToolResult, error) {
		fmt.Fprintln(os.Stderr, "debited A")
		result := "credited B"
		select {
		case <-ctx.Done():
			time.Sleep(50 * time.Millisecond) // the work that undoing takes
			result = "rolled back"
		case <-time.After(500 * time.Millisecond):
		}
		fmt.Fprintln(os.Stderr, result)
		return mcp.NewToolResultText(result), nil
	})
	fmt.Fprintln(os.Stderr, "ended:", server.ServeStdio(s))
}

// process calls the tool of a server with or without a guard, a process of its own, and leaves once A is debited. It
// returns what is in its stdout, and the lines of its stderr.
func process(t *testing.T, mode string, leave func(cmd *exec.Cmd, stdin io.Closer)) (out string, errs []string) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // only in case that the test hangs
	defer cancel()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), childEnv+"="+mode)
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())

	fmt.Fprintln(stdin, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",`+
		`"capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
	fmt.Fprintln(stdin, `{"jsonrpc":"2.0","method":"notifications/initialized","params":{}}`)
	fmt.Fprintln(stdin, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"transfer"}}`)

	for scanner := bufio.NewScanner(stderr); scanner.Scan(); {
		errs = append(errs, scanner.Text())
		if scanner.Text() == "debited A" {
			leave(cmd, stdin)
		}
	}
	_ = cmd.Wait()

	return stdout.String(), errs
}

// The SDK ends the contexts of its tools at the end of its input and at SIGTERM, and waits for them.
func TestServerThatEndsWaitsForItsTools(t *testing.T) {
	for name, leave := range map[string]func(cmd *exec.Cmd, stdin io.Closer){
		"EOF":     func(_ *exec.Cmd, stdin io.Closer) { stdin.Close() },
		"SIGTERM": func(cmd *exec.Cmd, _ io.Closer) { _ = cmd.Process.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			out, errs := process(t, "transfer, bare", leave)
			guardedOut, guardedErrs := process(t, "transfer, guarded", leave)
			assert.Len(t, errs, 3)
			assert.Equal(t, errs, guardedErrs)
			assert.Equal(t, out, guardedOut)
		})
	}
}
