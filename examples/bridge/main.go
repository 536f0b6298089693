// Bridge is an MCP server over stdio whose tools work on a page in a browser. The browser may start after the bridge,
// end, and start again: a resilience.Connector keeps the connection up, and while it is down, a guard tells the agent
// what happened and when to call again.
//
//	chromium --remote-debugging-port=9222 --user-data-dir=$(mktemp -d)
//	bridge -browser http://127.0.0.1:9222 -page https://example.org
//
// tab.go is about the connection, and tools.go about the tools.
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
)

func main() {
	browser := flag.String("browser", "http://127.0.0.1:9222", "where the browser's DevTools listen")
	page := flag.String("page", "https://example.org", "the address of the page")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *browser, *page); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "bridge:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, browser, page string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	observers := []resilience.Observer{resilience.LogObserver(log)}
	guard, err := newGuard(resilience.Config{
		Timeouts:  resilience.Timeouts{resilience.Quick: 30 * time.Second},
		Observers: observers,
		Log:       log,
	})
	if err != nil {
		return err
	}

	tabs := connect(browser, page, resilience.ConnectorConfig[*tab]{Observers: observers, Log: log})
	defer tabs.Close()
	return newServer(guard, tabs).Run(ctx, &mcp.StdioTransport{})
}
