// Demo shows what an agent sees while a backend hangs, dies and comes back. It starts each of the example servers as a
// child process, with a small HTTP backend, and calls their tools as an MCP client. Its exit status is 0 only if each
// call ended as expected.
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

	// patience is how long everything else may take, on a slow machine too. It starts once the servers are built.
	patience = 5 * time.Minute
)

func main() {
	if err := demo(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// demo shows the server on the official SDK, and of the one on mcp-go only whether it does the same.
func demo(ctx context.Context, out io.Writer) error {
	tmp, err := os.MkdirTemp("", "resilience-demo")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)

	fmt.Fprintln(out, "Building examples/server and examples/server-mcpgo (the first time, this takes a while) …")
	if _, err := command(ctx, "build", "-o", tmp, module+"/server", module+"/server-mcpgo"); err != nil {
		return err
	}
	dir, err := command(ctx, "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return err
	}

	if _, err := run(ctx, out, filepath.Join(tmp, "server"), dir); err != nil {
		return err
	}
	var printed bytes.Buffer
	calls, err := run(ctx, &printed, filepath.Join(tmp, "server-mcpgo"), dir)
	if err != nil {
		return fmt.Errorf("examples/server-mcpgo: %w\n%s", err, &printed)
	}
	fmt.Fprintf(out, "\nThat was examples/server. "+
		"The same %d calls of examples/server-mcpgo, on the other SDK, ended alike.\n", calls)
	return nil
}

// command runs the go command, which prints what it downloads, and returns its output.
func command(ctx context.Context, args ...string) (output string, err error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(text)), nil
}

// run takes a server, whose tools work on dir, through the outage. It returns how many calls it has shown.
func run(ctx context.Context, out io.Writer, server, dir string) (calls int, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var b backend
	if err := b.start(); err != nil {
		return 0, err
	}
	defer b.stop()

	var log bytes.Buffer // complete once the session is closed
	cmd := exec.Command(server, "-dir", dir, "-allow", b.url(), "-probe", b.url()+"/healthz")
	cmd.Stderr = &log
	client := mcp.NewClient(&mcp.Implementation{Name: "demo", Version: "1.0.0"}, nil)
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd, TerminateDuration: patience}, nil)
	if err != nil {
		return 0, fmt.Errorf("starting the server: %w", err)
	}

	a := &agent{ctx: ctx, session: session, out: out}
	err = outage(a, &b)
	_ = session.Close() // the calls decide, not how the server ends
	if err == nil && a.unexpected > 0 {
		err = fmt.Errorf("%d calls did not end as expected", a.unexpected)
	}
	if err != nil {
		return 0, fmt.Errorf("%w; the server's log:\n%s", err, &log)
	}
	return a.calls, nil
}
