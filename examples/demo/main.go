// Demo shows what an agent sees while a backend hangs, dies and comes back. It
// starts each of the example servers as a child process and a small HTTP backend, and
// drives them as an MCP client. It ends with status 0 only if each step was as expected.
//
//	go run -C examples ./demo
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

const (
	limit    = 500 * time.Millisecond
	cooldown = 2 * time.Second
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, server := range servers {
		if err := run(ctx, server); err != nil {
			fmt.Fprintln(os.Stderr, "demo:", err)
			os.Exit(1)
		}
	}
	fmt.Println("\nEach step was as expected.")
}

// servers are the same server on both SDKs.
var servers = []string{"server", "server-mcpgo"}

func run(ctx context.Context, name string) error {
	fmt.Printf("\n== examples/%s\n", name)
	tmp, err := os.MkdirTemp("", "resilience-demo")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	server := filepath.Join(tmp, "server.exe")
	build := exec.CommandContext(ctx, "go", "build", "-o", server, "github.com/seed8d1e2389/resilience/examples/"+name)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building the server: %w", err)
	}

	mod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return err
	}
	dir := filepath.Dir(strings.TrimSpace(string(mod))) // this module's, wherever it is run

	var b backend
	if err := b.start(); err != nil {
		return err
	}
	defer b.stop()

	cmd := exec.Command(server, "-dir", dir, "-allow", b.url(), "-cooldown", cooldown.String())
	cmd.Env = append(os.Environ(), "EXAMPLE_DEBUG=true", "EXAMPLE_TIMEOUT_QUICK="+limit.String(), "EXAMPLE_TIMEOUT_HEAVY=")
	client := mcp.NewClient(&mcp.Implementation{Name: "demo", Version: "1.0.0"}, nil)
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		return err
	}
	defer session.Close()

	a := &agent{ctx: ctx, session: session}
	fetch := map[string]any{"url": b.url() + "/news"}

	a.step("Everything works")
	a.call("search", map[string]any{"text": "gosdk.Protect("}, "")
	a.call("read", map[string]any{"path": "go.mod"}, "")
	a.call("overview", nil, "")
	a.call("fetch", fetch, "")

	a.step("The agent makes a mistake")
	a.call("read", map[string]any{"path": "../../etc/passwd"}, "VALIDATION_ERROR")

	a.step("The backend hangs")
	b.hang()
	a.call("fetch", fetch, "TIMEOUT")

	a.step("The backend is stopped")
	b.stop()
	for range 4 {
		a.call("fetch", fetch, "CONNECTION_LOST")
	}
	open := a.call("fetch", fetch, "CIRCUIT_OPEN")
	a.expect(open.RetryAfter > 0, "retryAfter is known")
	elapsed, err := time.ParseDuration(fmt.Sprint(open.Details["elapsed"]))
	a.expect(err == nil && elapsed < limit/10, "the server rejected it in %v", elapsed)
	a.call("read", map[string]any{"path": "go.mod"}, "") // other tools go on

	a.step("The backend is started again")
	if err := b.start(); err != nil {
		return err
	}
	a.call("fetch", fetch, "CIRCUIT_OPEN")
	fmt.Printf("  (the agent waits %ds, as it was told)\n", open.RetryAfter)
	time.Sleep(time.Duration(open.RetryAfter) * time.Second)
	a.call("fetch", fetch, "") // the probe
	a.call("fetch", fetch, "")

	if a.failed > 0 {
		return fmt.Errorf("%d steps were not as expected", a.failed)
	}
	return nil
}

// An agent calls tools and shows what it reads.
type agent struct {
	ctx     context.Context
	session *mcp.ClientSession
	failed  int
}

// An answer is what our errors look like to an agent.
type answer struct {
	Code       string         `json:"code"`
	Message    string         `json:"message"`
	Retryable  bool           `json:"retryable"`
	RetryAfter int            `json:"retryAfter"`
	Details    map[string]any `json:"details"`
}

func (a *agent) step(title string) { fmt.Printf("\n%s\n", title) }

// call makes a call that shall end with the given code, "" for success.
func (a *agent) call(tool string, args map[string]any, code string) (got answer) {
	start := time.Now()
	res, err := a.session.CallTool(a.ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	took := time.Since(start)
	if err != nil {
		a.expect(false, "%s: a protocol error: %v", tool, err)
		return got
	}
	if !res.IsError {
		text := ""
		if len(res.Content) > 0 {
			if t, ok := res.Content[0].(*mcp.TextContent); ok {
				text = t.Text
			}
		}
		a.expect(code == "", "%-8s %6s  %s", tool, round(took), short(text))
		return got
	}
	advice, err := json.Marshal(res.Meta[resilience.MetaError])
	if err == nil {
		err = json.Unmarshal(advice, &got)
	}
	if err != nil || got.Code == "" {
		a.expect(false, "%s: there is no advice with the failure", tool)
		return got
	}
	line := fmt.Sprintf("%s: %s (retryable: %v", got.Code, got.Message, got.Retryable)
	if got.RetryAfter > 0 {
		line += fmt.Sprintf(", retryAfter: %d", got.RetryAfter)
	}
	a.expect(got.Code == code, "%-8s %6s  %s)", tool, round(took), line)
	return got
}

func (a *agent) expect(ok bool, format string, args ...any) {
	mark := "ok  "
	if !ok {
		mark = "FAIL"
		a.failed++
	}
	fmt.Printf("  %s %s\n", mark, fmt.Sprintf(format, args...))
}

func round(d time.Duration) time.Duration {
	if d > time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Microsecond)
}

func short(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 90 {
		text = strings.ToValidUTF8(text[:90], "") + "…"
	}
	return text
}

// A backend is an HTTP server that can hang and be stopped, and comes back at the
// same address.
type backend struct {
	addr    string
	server  *http.Server
	hanging atomic.Bool
}

func (b *backend) url() string { return "http://" + b.addr }

func (b *backend) start() error {
	addr := b.addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	b.addr = listener.Addr().String()
	b.hanging.Store(false)
	server := &http.Server{Handler: b, ReadHeaderTimeout: time.Second}
	b.server = server
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintln(os.Stderr, "demo: backend:", err)
		}
	}()
	return nil
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if b.hanging.Load() {
		<-r.Context().Done() // until the client has left
		return
	}
	fmt.Fprintln(w, `{"headline":"All is well"}`)
}

func (b *backend) hang() { b.hanging.Store(true) }

func (b *backend) stop() { _ = b.server.Close() }
