// Demo shows what an agent sees while the browser that its tools work on is started,
// killed, started again, hangs and is stopped. It starts the bridge as a process, which it
// drives as an MCP client, and a browser as another, and ends with status 0 only if each
// step was as expected.
//
//	go run -C examples ./bridge/demo
//	go run -C examples ./bridge/demo -chromium /usr/bin/chromium
//
// Without -chromium the browser is the small one of examples/bridge/page.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const module = "github.com/seed8d1e2389/resilience/examples"

func main() {
	chromium := flag.String("chromium", "", "the Chromium to use as the browser")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *chromium); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, chromium string) error {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	tmp, err := os.MkdirTemp("", "resilience-bridge")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	bridge, err := build(ctx, tmp, "bridge")
	if err != nil {
		return err
	}
	page := ""
	if chromium == "" {
		if page, err = build(ctx, tmp, "bridge/page"); err != nil {
			return err
		}
	}

	shop, err := openShop()
	if err != nil {
		return err
	}
	defer shop.close()
	addr, err := freeAddr()
	if err != nil {
		return err
	}
	b := &browser{addr: addr, site: shop.url(), tmp: tmp, chromium: chromium, page: page}
	defer b.kill()

	var log buffer
	cmd := exec.Command(bridge, "-browser", "http://"+addr, "-page", shop.url(), "-ping", "2s",
		"-backoff", "200ms", "-backoff-max", "1s", "-limit", "40s", "-patience", "30s")
	cmd.Stderr = &log
	client := mcp.NewClient(&mcp.Implementation{Name: "demo", Version: "1.0.0"}, nil)
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		return fmt.Errorf("starting the bridge: %w\n%s", err, log.String())
	}
	defer session.Close()

	a := &agent{ctx: ctx, out: out, session: session}
	if err := outage(a, b, shop); err != nil {
		return fmt.Errorf("%w; the bridge's log:\n%s", err, log.String())
	}
	a.step("The bridge's log, after its end")
	_ = session.Close() // how it ends is its own business
	up, down := strings.Count(log.String(), `msg="connection up"`), strings.Count(log.String(), `msg="connection down"`)
	a.expect(up >= b.starts && down >= b.starts, "the connection came up %d times, and was lost or could not be made %d times", up, down)
	if a.failed > 0 {
		return fmt.Errorf("%d steps were not as expected; the bridge's log:\n%s", a.failed, log.String())
	}
	fmt.Fprintln(out, "\nEach step was as expected.")
	return nil
}

func build(ctx context.Context, dir, program string) (string, error) {
	path := filepath.Join(dir, filepath.Base(program)+".exe")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, module+"/"+program)
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", program, err, text)
	}
	return path, nil
}

// A buffer may be read while a process writes to it.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
