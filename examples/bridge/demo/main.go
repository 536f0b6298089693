// Demo shows what an agent sees while the browser that its tools work on is started, is killed,
// is started again, and hangs. It starts the bridge and a browser as child processes, and calls
// the bridge's tools as an MCP client. Its exit status is 0 only if each step was as expected.
//
//	go run -C examples ./bridge/demo
//	go run -C examples ./bridge/demo -chromium /usr/bin/chromium
//
// Without -chromium the browser is the small one of examples/bridge/page.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	module = "github.com/seed8d1e2389/resilience/examples"

	// patience is how long each thing may take that should succeed, on a slow machine too. It
	// starts once the programs are built.
	patience = 3 * time.Minute
)

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
	tmp, err := os.MkdirTemp("", "resilience-bridge")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)

	programs := []string{"bridge"}
	if chromium == "" {
		programs = append(programs, "bridge/page")
	}
	if err := build(ctx, out, tmp, programs); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, 2*patience) // for all steps
	defer cancel()

	shop, err := openShop()
	if err != nil {
		return err
	}
	defer shop.close()
	addr, err := freeAddr()
	if err != nil {
		return err
	}
	b := &browser{addr: addr, site: shop.url(), tmp: tmp, chromium: chromium, page: filepath.Join(tmp, "page")}
	defer b.kill()

	a := &agent{ctx: ctx, out: out}
	if err := a.showOutage(b, shop); err != nil {
		return err
	}
	if err := a.showHang(b); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nEach step was as expected.")
	return nil
}

// showOutage shows what the agent sees of a browser that is killed and started again.
func (a *agent) showOutage(b *browser, shop *shop) error {
	log, err := a.visit(b, patience, func() error { return outage(a, b, shop) })
	if err != nil {
		return err
	}

	a.step("The bridge's log, after its end")
	up, down := strings.Count(log, `msg="connection up"`), strings.Count(log, `msg="connection down"`)
	a.expect(up >= b.starts && down >= b.starts-1, // the browser still runs
		"the connection came up %d times, and was lost or could not be made %d times", up, down)
	return a.check(log)
}

// showHang shows what the agent sees of a browser that hangs. The bridge pings often, so it soon
// notices.
func (a *agent) showHang(b *browser) error {
	log, err := a.visit(b, time.Second, func() error { return hangBrowser(a, b) })
	if err != nil {
		return err
	}
	return a.check(log)
}

// check returns an error if there was a step that wasn't as expected.
func (a *agent) check(log string) error {
	if a.failed > 0 {
		return fmt.Errorf("%d steps were not as expected; the bridge's log:\n%s", a.failed, log)
	}
	return nil
}

// build builds the programs into dir. The go command prints what it downloads.
func build(ctx context.Context, out io.Writer, dir string, programs []string) error {
	args := []string{"build", "-o", dir}
	for _, program := range programs {
		args = append(args, module+"/"+program)
	}
	what := "building examples/" + strings.Join(programs, " and examples/")

	fmt.Fprintln(out, what, "(the first time, this takes a while) …")
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// visit starts a bridge, takes the steps with it, and returns its log once it has ended.
func (a *agent) visit(b *browser, ping time.Duration, steps func() error) (string, error) {
	log, err := os.CreateTemp(b.tmp, "log")
	if err != nil {
		return "", err
	}
	defer log.Close()
	logged := func() string {
		text, _ := os.ReadFile(log.Name())
		return string(text)
	}

	cmd := exec.Command(filepath.Join(b.tmp, "bridge"), "-browser", "http://"+b.addr, "-page", b.site,
		"-ping", ping.String(), "-backoff", "200ms", "-backoff-max", "1s",
		"-timeout", (2 * patience).String(), "-patience", patience.String())
	cmd.Stderr = log

	client := mcp.NewClient(&mcp.Implementation{Name: "demo", Version: "1.0.0"}, nil)
	a.session, err = client.Connect(a.ctx, &mcp.CommandTransport{Command: cmd, TerminateDuration: patience}, nil)
	if err != nil {
		return "", fmt.Errorf("starting the bridge: %w\n%s", err, logged())
	}

	err = steps()
	_ = a.session.Close() // the steps decide, not how the bridge ends
	if err != nil {
		return "", fmt.Errorf("%w; the bridge's log:\n%s", err, logged())
	}
	return logged(), nil
}
