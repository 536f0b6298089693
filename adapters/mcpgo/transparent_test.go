package mcpgo_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/mcpgo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An observation is what the tools, the hooks and the client of a server see.
type observation struct {
	mu   sync.Mutex
	seen []string
}

func (o *observation) add(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen = append(o.seen, fmt.Sprintf(format, args...))
}

// sameAsBare runs a scenario with a server without a guard and with one that has a default guard. The same
// must be observed.
func sameAsBare(t *testing.T, scenario func(t *testing.T, s *server.MCPServer, o *observation)) []string {
	t.Helper()
	var both [2]observation
	for i, o := range []*observation{&both[0], &both[1]} {
		synctest.Test(t, func(t *testing.T) {
			hooks := &server.Hooks{}
			hooks.AddOnError(func(_ context.Context, _ any, method mcp.MCPMethod, _ any, err error) {
				o.add("OnError %s: %v", method, err)
			})
			opts := []server.ServerOption{server.WithHooks(hooks)}
			if i == 1 {
				opts = append(opts, server.WithToolHandlerMiddleware(mcpgo.Middleware(newGuard(t, resilience.Config{}))))
			}
			scenario(t, server.NewMCPServer("test", "1", opts...), o)
			synctest.Wait()
		})
	}
	assert.Equal(t, both[0].seen, both[1].seen)
	return both[0].seen
}

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

func TestFailureKeepsItsKind(t *testing.T) {
	seen := sameAsBare(t, func(t *testing.T, s *server.MCPServer, o *observation) {
		required := mcp.URLElicitationRequiredError{Elicitations: []mcp.ElicitationParams{{
			Mode: mcp.ElicitationModeURL, ElicitationID: "e", URL: "https://example.com", Message: "Log in",
		}}}
		s.AddTool(mcp.NewTool("error"), returns(nil, errBackend))
		s.AddTool(mcp.NewTool("wrapped"), returns(nil, fmt.Errorf("list pods: %w", errBackend)))
		s.AddTool(mcp.NewTool("canceled"), returns(nil, context.Canceled))
		s.AddTool(mcp.NewTool("asks"), returns(nil, fmt.Errorf("github: %w", required)))
		s.AddTool(mcp.NewTool("isError"), fails)
		s.AddTool(mcp.NewTool("done"), returns(done, nil))
		c := connect(t, s, nil)
		for _, tool := range []string{"error", "wrapped", "canceled", "asks", "isError", "done", "no such tool", ""} {
			o.callTool(t, c, tool)
		}
	})
	assert.Contains(t, seen, "OnError tools/call: request error: "+errBackend.Error())
}

func TestProgressIsTheToolsAffair(t *testing.T) {
	notify := func(ctx context.Context, req mcp.CallToolRequest, progress float64) error {
		return mcpgo.NotifyProgress(ctx, req, progress, 0, "")
	}
	for name, tool := range map[string]func(context.Context, *observation, mcp.CallToolRequest){
		"it doesn't increase": func(ctx context.Context, o *observation, req mcp.CallToolRequest) {
			for _, progress := range []float64{0, 0, 50, 50, 30, -1, 100} {
				o.add("%v", notify(ctx, req, progress))
			}
		},
		"from ten goroutines": func(ctx context.Context, _ *observation, req mcp.CallToolRequest) {
			var all sync.WaitGroup
			for i := range 10 {
				all.Go(func() {
					for j := range 9 {
						_ = notify(ctx, req, float64(10*i+j))
					}
				})
			}
			all.Wait()
		},
		"after the tool has returned": func(ctx context.Context, o *observation, req mcp.CallToolRequest) {
			go func() {
				time.Sleep(time.Second)
				o.add("late: %v", notify(ctx, req, 1))
			}()
		},
	} {
		t.Run(name, func(t *testing.T) {
			seen := sameAsBare(t, func(t *testing.T, s *server.MCPServer, o *observation) {
				s.AddTool(mcp.NewTool("x"), func(
					ctx context.Context, req mcp.CallToolRequest,
				) (*mcp.CallToolResult, error) {
					tool(ctx, o, req)
					return done, nil
				})
				c := connect(t, s, nil)
				received := collectProgress(c)
				o.callTool(t, c, "x")
				time.Sleep(time.Minute)
				for _, v := range values(received()) {
					o.add("progress %v", v)
				}
				slices.Sort(o.seen) // goroutines have no order
			})
			assert.Greater(t, len(seen), 2)
		})
	}
}

// A tool whose caller leaves may finish its work or undo it, and the server waits for that.
func TestToolOfACallerWhoLeftIsWaitedFor(t *testing.T) {
	seen := sameAsBare(t, func(t *testing.T, s *server.MCPServer, o *observation) {
		s.AddTool(mcp.NewTool("transfer"), func(
			ctx context.Context, _ mcp.CallToolRequest,
		) (*mcp.CallToolResult, error) {
			o.add("debited A")
			<-ctx.Done()
			time.Sleep(time.Second)
			o.add("rolled back: %v", errors.Is(ctx.Err(), context.Canceled))
			return done, nil
		})

		answered := make(chan struct{})
		go func() {
			defer close(answered)
			result, code := handle(t.Context(), t, s, "tools/call", 7, map[string]any{"name": "transfer"})
			o.add("%s %d", result, code)
		}()
		synctest.Wait()
		handle(t.Context(), t, s, "notifications/cancelled", nil, map[string]any{"requestId": 7})
		<-answered
	})
	assert.Len(t, seen, 3)
}

// serveTransfer serves a tool that is quick, and one that moves money in two steps or undoes the first one.
func serveTransfer(guarded bool) {
	var opts []server.ServerOption
	if guarded {
		g := resilience.Must(resilience.New(resilience.Config{}))
		opts = append(opts, server.WithToolHandlerMiddleware(mcpgo.Middleware(g)))
	}
	s := server.NewMCPServer("test", "1", opts...)
	s.AddTool(mcp.NewTool("quick"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		time.Sleep(5 * time.Millisecond)
		fmt.Fprintln(os.Stderr, "called")
		return done, nil
	})
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

// process sends calls of a tool to a server with or without a guard, a process of its own, and leaves once A is
// debited. It returns the lines of its stdout, in order, and those of its stderr.
func process(t *testing.T, mode, tool string, calls int, leave func(cmd *exec.Cmd, stdin io.Closer)) (out, errs []string) {
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
	for id := range calls {
		fmt.Fprintf(stdin, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q}}`+"\n", id+1, tool)
	}
	if tool == "quick" {
		stdin.Close() // as "server < requests.jsonl" does
	}

	for scanner := bufio.NewScanner(stderr); scanner.Scan(); {
		errs = append(errs, scanner.Text())
		if scanner.Text() == "debited A" {
			leave(cmd, stdin)
		}
	}
	_ = cmd.Wait()

	out = strings.Split(strings.TrimSpace(stdout.String()), "\n")
	slices.Sort(out) // the calls run side by side
	return out, errs
}

// The SDK ends the contexts of its tools when its input ends or it is told to end, and waits for them.
func TestServerThatEndsWaitsForItsTools(t *testing.T) {
	for name, leave := range map[string]func(cmd *exec.Cmd, stdin io.Closer){
		"EOF":     func(_ *exec.Cmd, stdin io.Closer) { stdin.Close() },
		"SIGTERM": func(cmd *exec.Cmd, _ io.Closer) { _ = cmd.Process.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			out, errs := process(t, "transfer, bare", "transfer", 1, leave)
			guardedOut, guardedErrs := process(t, "transfer, guarded", "transfer", 1, leave)
			assert.Len(t, errs, 3)
			assert.Equal(t, errs, guardedErrs)
			assert.Equal(t, out, guardedOut)
		})
	}
}

// At the end of its input the SDK ends the contexts of the calls that it still makes. How many of them it
// makes depends on its version, and in newer ones on chance.
func TestCallsFromAFileAreAnswered(t *testing.T) {
	out, called := process(t, "transfer, guarded", "quick", 30, nil)
	answers := out[1:] // without that to initialize
	for _, answer := range answers {
		assert.Contains(t, answer, `"text":"done"`)
	}
	assert.Len(t, answers, len(called)-1, "the last line says that the server has ended")
}
