// Bridge is an MCP server over stdio whose tools work on a page in a browser, through the
// WebSocket of its DevTools. The browser may start after the bridge, end, and start again: a
// resilience.Connector keeps the connection up, and while it is down, a guard tells the agent
// what happened and what to do next.
//
//	chromium --remote-debugging-port=9222 --user-data-dir=$(mktemp -d) https://example.org
//	bridge -browser http://127.0.0.1:9222
//
// browser.go is about the browser, and tools.go about the tools.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/examples/bridge/devtools"
)

// The settings are what the flags set.
type settings struct {
	page     devtools.Config
	backoff  resilience.Backoff
	timeout  time.Duration // of a call
	patience time.Duration // how long text and click wait for the browser
}

func main() {
	var s settings
	flag.StringVar(&s.page.Browser, "browser", "http://127.0.0.1:9222", "where the browser's DevTools listen")
	flag.StringVar(&s.page.Prefix, "page", "", "the prefix of the page's address; empty means the first page")
	flag.DurationVar(&s.page.Ping, "ping", 10*time.Second,
		"how often the browser is pinged, and how long it has to answer")
	flag.DurationVar(&s.backoff.Base, "backoff", 500*time.Millisecond,
		"the longest delay before the first attempt to reconnect")
	flag.DurationVar(&s.backoff.Max, "backoff-max", time.Minute, "the longest delay before any attempt to reconnect")
	flag.DurationVar(&s.timeout, "timeout", time.Minute, "how long a call may take")
	flag.DurationVar(&s.patience, "patience", 10*time.Second,
		"how long text and click wait for a browser that isn't there")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, s); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "bridge:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) error {
	if s.page.Ping <= 0 || s.patience <= 0 || s.timeout <= 0 || s.backoff.Base <= 0 || s.backoff.Max < s.backoff.Base {
		return errors.New("all durations must be positive, and -backoff-max must not be below -backoff")
	}

	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	guard, err := newGuard(s.timeout, log)
	if err != nil {
		return err
	}

	b := connect(s, log)
	defer func() {
		_ = b.Close()

		// The log should be complete, but isn't worth waiting for long.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = b.connection.Flush(ctx)
		_ = guard.Flush(ctx)
	}()
	return newServer(guard, b).Run(ctx, &mcp.StdioTransport{})
}
