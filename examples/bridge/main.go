// Bridge is an MCP server over stdio whose tools work on a page in a browser, through the
// WebSocket of its DevTools. The browser may come later than the bridge, go, and come back:
// a resilience.Connector keeps the connection up, and a guard tells the agent meanwhile
// what happened and what to do.
//
//	chromium --remote-debugging-port=9222 --user-data-dir=$(mktemp -d) https://example.org
//	bridge -browser http://127.0.0.1:9222
//
// What it does with the browser is in browser.go, what it offers to agents in tools.go.
package main

import (
	"context"
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

type settings struct {
	page     devtools.Config
	backoff  resilience.Backoff
	limit    time.Duration
	patience time.Duration
}

func main() {
	var s settings
	flag.StringVar(&s.page.Browser, "browser", "http://127.0.0.1:9222", "where the browser's DevTools listen")
	flag.StringVar(&s.page.Prefix, "page", "", "what the address of the page begins with (empty: the first page)")
	flag.DurationVar(&s.page.Ping, "ping", 10*time.Second, "how often the browser is pinged, and how long it has to answer")
	flag.DurationVar(&s.backoff.Base, "backoff", 500*time.Millisecond, "the longest wait before the first attempt to connect again")
	flag.DurationVar(&s.backoff.Max, "backoff-max", time.Minute, "the longest wait before any attempt to connect again")
	flag.DurationVar(&s.limit, "limit", time.Minute, "how long a call may take")
	flag.DurationVar(&s.patience, "patience", 10*time.Second, "how long text and click wait for a browser that isn't there")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, s); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "bridge:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) error {
	if s.page.Ping <= 0 || s.patience <= 0 || s.limit <= 0 || s.backoff.Base <= 0 || s.backoff.Max < s.backoff.Base {
		return fmt.Errorf("all durations must be above 0, and -backoff-max not below -backoff")
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	guard, err := newGuard(s.limit, log)
	if err != nil {
		return err
	}
	b := connect(s, log)
	defer func() {
		_ = b.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = b.connection.Flush(ctx) // the log shall be complete, but nobody waits for it for long
		_ = guard.Flush(ctx)
	}()
	return newServer(guard, b).Run(ctx, &mcp.StdioTransport{})
}
