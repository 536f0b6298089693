// Server-mcpgo is the server of ../server on github.com/mark3labs/mcp-go: one line puts all
// of its tools under a guard. It serves MCP over stdio only, and logs failed calls to standard
// error.
//
//	server-mcpgo -dir . -allow http://127.0.0.1:8080
//
// It reads EXAMPLE_TIMEOUT_QUICK, EXAMPLE_TIMEOUT_HEAVY and EXAMPLE_DEBUG from the
// environment, as resilience.ConfigFromEnv does.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/mcpgo"
	"github.com/seed8d1e2389/resilience/examples/workspace"
)

func main() {
	dir := flag.String("dir", ".", "the directory that the tools work on")
	allow := flag.String("allow", "", "the origins that may be fetched from, separated by commas")
	probe := flag.String("probe", "",
		"the URL to ask while the backend's breaker is open (empty means that a call is the probe)")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *dir, strings.Split(*allow, ","), *probe); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "server-mcpgo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, path string, origins []string, probe string) error {
	cfg, err := resilience.ConfigFromEnv("EXAMPLE")
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	cfg.Tools = tools
	if probe != "" {
		cfg.Breakers = map[string]resilience.BreakerConfig{"backend": {Probe: resilience.ProbeURL(probe, nil)}}
	}
	cfg.Observers = []resilience.Observer{resilience.LogObserver(log)}
	cfg.Log = log
	guard, err := resilience.New(cfg)
	if err != nil {
		return err
	}

	dir, err := workspace.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()

	defer shutDown(log, guard) // also if the client has left
	serving, stop := context.WithCancel(context.Background())
	defer context.AfterFunc(ctx, func() { shutDown(log, guard); stop() })()
	s := newServer(guard, dir, &workspace.Fetcher{Origins: origins})
	return server.NewStdioServer(s).Listen(serving, os.Stdin, os.Stdout)
}

// shutDown rejects new calls, and waits for those in flight and for the last lines of the log.
func shutDown(log *slog.Logger, guard *resilience.Guard) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if n, err := guard.Close(ctx); err != nil {
		log.Warn("calls are cut off", "calls", n)
	}
}

// tools lists only what the tools' annotations don't declare: all tools are read-only.
var tools = map[string]resilience.Tool{
	"fetch": {Effect: resilience.ReadOnly, Breaker: "backend"},
}

func newServer(guard *resilience.Guard, dir *workspace.Dir, fetcher *workspace.Fetcher) *server.MCPServer {
	s := server.NewMCPServer("workspace", "1.0.0",
		server.WithToolHandlerMiddleware(mcpgo.Middleware(guard, mcpgo.AllowTimeout())),
		server.WithInputSchemaValidation())
	mcpgo.AddHealth(s, guard)

	add(s, "search", "Find the lines that hold a text", dir.Search)
	add(s, "read", "Read a text file", dir.Read)
	add(s, "fetch", "Get a document by HTTP", fetcher.Fetch)
	return s
}

// add adds a read-only tool. Of a plain error mcp-go makes a protocol error; a *resilience.Error becomes
// a result of the guard's. mcp.NewStructuredToolHandler turns an error into text before the guard sees it.
func add[In, Out any](s *server.MCPServer, name, description string, work func(context.Context, In) (Out, error)) {
	handler := func(ctx context.Context, _ mcp.CallToolRequest, in In) (*mcp.CallToolResult, error) {
		out, err := work(ctx, in)
		if err != nil {
			return nil, resilience.AsError(name, err)
		}
		return mcp.NewToolResultStructuredOnly(out), nil
	}

	tool := mcp.NewTool(name, mcp.WithDescription(description), mcp.WithReadOnlyHintAnnotation(true),
		mcp.WithInputSchema[In](), mcp.WithOutputSchema[Out]())
	s.AddTool(tool, mcp.NewTypedToolHandler(handler))
}
