// Demo shows what an agent sees while a backend hangs, dies and comes back. It starts each of
// the example servers as a child process, with a small HTTP backend, and calls their tools as an
// MCP client. Its exit status is 0 only if each step was as expected.
//
//	go run -C examples ./demo
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	module = "github.com/seed8d1e2389/resilience/examples"

	shortTimeout = 500 * time.Millisecond // of the one call that hangs
	cooldown     = 2 * time.Second

	// patience is how long everything else may take, on a slow machine too. It starts once the
	// servers are built.
	patience = 5 * time.Minute
)

func main() {
	if err := demo(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// servers are the example servers, one on each SDK.
var servers = []string{"server", "server-mcpgo"}

func demo(ctx context.Context) error {
	tmp, err := os.MkdirTemp("", "resilience-demo")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)

	if err := build(ctx, tmp); err != nil {
		return err
	}
	dir, err := moduleDir(ctx)
	if err != nil {
		return err
	}

	fmt.Printf("\nAn agent calls the tools of examples/%s. Its breaker opens for %s, not 30s.\n", servers[0], cooldown)
	if err := run(ctx, filepath.Join(tmp, servers[0]), dir, os.Stdout); err != nil {
		return fmt.Errorf("examples/%s: %w", servers[0], err)
	}

	var out bytes.Buffer
	if err := run(ctx, filepath.Join(tmp, servers[1]), dir, &out); err != nil {
		return fmt.Errorf("examples/%s: %w\n%s", servers[1], err, &out)
	}
	fmt.Printf("\nThe same steps with examples/%s: as expected.\n", servers[1])
	return nil
}

// build builds the servers into dir. The go command prints what it downloads.
func build(ctx context.Context, dir string) error {
	args := []string{"build", "-o", dir}
	for _, name := range servers {
		args = append(args, module+"/"+name)
	}
	what := "building examples/" + strings.Join(servers, " and examples/")

	fmt.Println(what, "(the first time, this takes a while) …")
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// moduleDir returns the directory of the examples, on which the tools work.
func moduleDir(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	cmd.Stderr = os.Stderr
	dir, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go list -m %s: %w", module, err)
	}
	return strings.TrimSpace(string(dir)), nil
}

// run takes a server, whose tools work on dir, through the outage, and prints that to out.
func run(ctx context.Context, server, dir string, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	var b backend
	if err := b.start(); err != nil {
		return err
	}
	defer b.stop()

	log, err := os.Create(server + ".log")
	if err != nil {
		return err
	}
	defer log.Close()
	defer func() {
		if err != nil {
			text, _ := os.ReadFile(log.Name())
			err = fmt.Errorf("%w; its log:\n%s", err, text)
		}
	}()

	cmd := exec.Command(server, "-dir", dir, "-allow", b.url(), "-probe", b.url()+"/healthz",
		"-cooldown", cooldown.String())
	cmd.Env = append(os.Environ(), "EXAMPLE_TIMEOUT_QUICK="+patience.String(), "EXAMPLE_TIMEOUT_HEAVY="+patience.String())
	cmd.Stderr = log

	client := mcp.NewClient(&mcp.Implementation{Name: "demo", Version: "1.0.0"}, nil)
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd, TerminateDuration: patience}, nil)
	if err != nil {
		return fmt.Errorf("starting the server: %w", err)
	}
	defer session.Close()

	a := &agent{ctx: ctx, session: session, out: out}
	if err := outage(a, &b); err != nil {
		return err
	}
	if a.wrong > 0 {
		return fmt.Errorf("%d steps were not as expected", a.wrong)
	}
	return nil
}

// outage takes the backend through an outage, and checks what the agent sees.
func outage(a *agent, b *backend) error {
	fetch := map[string]any{"url": b.url() + "/news"}

	a.step("Everything works")
	a.call("search", map[string]any{"text": "gosdk.Protect("}, "")
	a.call("read", map[string]any{"path": "go.mod"}, "")
	a.call("overview", nil, "")
	a.call("fetch", fetch, "")

	a.step("The agent makes a mistake")
	a.call("read", map[string]any{"path": "../../etc/passwd"}, "VALIDATION_ERROR")

	a.step(fmt.Sprintf("The backend hangs, and the agent's call has a timeout of %s", shortTimeout))
	b.hang()
	a.show("fetch", a.ask("fetch", fetch, shortTimeout), "TIMEOUT")

	a.step("The backend is stopped")
	b.stop()
	a.call("fetch", fetch, "RETRY_EXHAUSTED") // the first call of an outage makes all its attempts, the others one
	for range 4 {                             // so many that the breaker opens
		a.call("fetch", fetch, "CONNECTION_LOST")
	}
	open := a.ask("fetch", fetch, 0)
	for open.Code == "CONNECTION_LOST" { // a probe, if the cooldown is already over on a slow machine
		open = a.ask("fetch", fetch, 0)
	}
	a.show("fetch", open, "CIRCUIT_OPEN")
	a.print(open.RetryAfter > 0, "", "A program finds the code in the _meta, and retryAfter: %d.", open.RetryAfter)
	a.call("read", map[string]any{"path": "go.mod"}, "") // other tools still work

	a.step("The backend is started again")
	if err := b.start(); err != nil {
		return err
	}
	a.awaitClosed("fetch")
	a.call("fetch", fetch, "")
	return nil
}
