// Server is an MCP server over stdio whose tools search and read a directory and
// fetch documents by HTTP, all of them under a guard.
//
//	server -dir . -allow http://127.0.0.1:8080
//
// EXAMPLE_TIMEOUT_QUICK, EXAMPLE_TIMEOUT_HEAVY and EXAMPLE_DEBUG are read as
// resilience.ConfigFromEnv says.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/seed8d1e2389/resilience/examples/workspace"
)

func main() {
	dir := flag.String("dir", ".", "the directory that the tools work on")
	allow := flag.String("allow", "", "the origins that may be fetched from, separated by commas")
	cooldown := flag.Duration("cooldown", 0, "how long a breaker stays open (0: 30s)")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *dir, strings.Split(*allow, ","), *cooldown); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "server:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, path string, origins []string, cooldown time.Duration) error {
	cfg, err := resilience.ConfigFromEnv("EXAMPLE")
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	cfg.Breaker = resilience.BreakerConfig{
		Cooldown: cooldown,
		OnChange: func(name string, from, to resilience.State) {
			log.Warn("breaker changed", "breaker", name, "from", from, "to", to)
		},
	}
	cfg.Tools = tools // the others are known by their annotations
	guard, err := resilience.New(cfg)
	if err != nil {
		return err
	}
	dir, err := workspace.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return newServer(guard, dir, &workspace.Fetcher{Origins: origins}).Run(ctx, &mcp.StdioTransport{})
}

var tools = map[string]resilience.Tool{
	// The agent shall hear at once that the backend is gone.
	"fetch": {Effect: resilience.ReadOnly, Breaker: "backend", Retry: &resilience.Retry{MaxRetries: -1}},
}

func newServer(guard *resilience.Guard, dir *workspace.Dir, fetcher *workspace.Fetcher) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "workspace", Version: "1.0.0"}, nil)
	gosdk.Protect(server, guard, gosdk.AllowLimit())
	add(server, "search", "Find the lines that hold a text", dir.Search)
	add(server, "read", "Read a text file", dir.Read)
	add(server, "overview", "Count and measure the files", dir.Overview)
	add(server, "fetch", "Get a document by HTTP", fetcher.Fetch)
	return server
}

// add registers a tool. Nothing in it knows of the guard.
func add[In, Out any](server *mcp.Server, name, description string, work func(context.Context, In) (Out, error)) {
	tool := &mcp.Tool{Name: name, Description: description, Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}
	mcp.AddTool(server, tool, func(ctx context.Context, _ *mcp.CallToolRequest, in In) (*mcp.CallToolResult, Out, error) {
		out, err := work(ctx, in)
		return nil, out, err
	})
}
