// Server is an MCP server whose tools search and read a directory and fetch documents by
// HTTP, all of them under a guard. It serves MCP over stdio, or with -http over streamable
// HTTP.
//
//	server -dir . -allow http://127.0.0.1:8080
//	server -dir . -http 127.0.0.1:8081
//
// On SIGTERM and SIGINT it rejects new calls, and answers those in flight before it ends.
//
// With -http it also serves, beside /mcp, /metrics for Prometheus, /healthz for a load balancer, and
// /console/ for people. Those who have the token in EXAMPLE_CONSOLE_TOKEN may isolate and reset breakers
// there; without that variable, it can only be read. Serve it on a loopback address, as in the example,
// or behind a proxy that knows who may read it.
//
// It logs failed calls to standard error, and with -debug successful ones too.
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

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/seed8d1e2389/resilience/examples/workspace"
)

// The settings are what the flags set.
type settings struct {
	dir     string
	origins []string
	probe   string
	addr    string // empty for stdio
}

func main() {
	var s settings
	flag.StringVar(&s.dir, "dir", ".", "the directory that the tools work on")
	allow := flag.String("allow", "", "the origins that may be fetched from, separated by commas")
	flag.StringVar(&s.probe, "probe", "",
		"the URL to ask while the backend's breaker is open (empty means that a call is the probe)")
	flag.StringVar(&s.addr, "http", "",
		"the address to serve MCP, metrics and the console at, instead of MCP over stdio")
	debug := flag.Bool("debug", false, "log successful calls too")
	flag.Parse()

	s.origins = strings.Split(*allow, ",")
	level := slog.LevelInfo
	if *debug {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, log, s); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "server:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, log *slog.Logger, s settings) error {
	cfg, err := resilience.ConfigFromEnv("EXAMPLE")
	if err != nil {
		return err
	}
	cfg.Tools = tools
	if s.probe != "" {
		cfg.Breakers = map[string]resilience.BreakerConfig{"backend": {Probe: resilience.ProbeURL(s.probe, nil)}}
	}
	cfg.Observers = []resilience.Observer{resilience.LogObserver(log)}
	cfg.Log = log

	dir, err := workspace.Open(s.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	fetcher := &workspace.Fetcher{Origins: s.origins}
	if s.addr != "" {
		return serveHTTP(ctx, log, cfg, s.addr, func(guard *resilience.Guard) *mcp.Server {
			return newServer(guard, dir, fetcher)
		})
	}

	guard, err := resilience.New(cfg)
	if err != nil {
		return err
	}
	defer shutDown(log, guard) // also if the client has left
	serving, stop := context.WithCancel(context.Background())
	defer context.AfterFunc(ctx, func() { shutDown(log, guard); stop() })()
	return newServer(guard, dir, fetcher).Run(serving, &mcp.StdioTransport{})
}

// shutDownTimeout is for calls in flight. Most platforms kill a process after 30s.
const shutDownTimeout = 20 * time.Second

// shutDown rejects new calls, and waits for those in flight and for the last lines of the log.
func shutDown(log *slog.Logger, guard *resilience.Guard) {
	ctx, cancel := context.WithTimeout(context.Background(), shutDownTimeout)
	defer cancel()
	if n, err := guard.Close(ctx); err != nil {
		log.Warn("calls are cut off", "calls", n)
	}
}

// tools lists every tool, so that its health is known before its first call.
var tools = map[string]resilience.Tool{
	"search": {Effect: resilience.ReadOnly},
	"read":   {Effect: resilience.ReadOnly},
	"fetch":  {Effect: resilience.ReadOnly, Breaker: "backend"},
}

func newServer(guard *resilience.Guard, dir *workspace.Dir, fetcher *workspace.Fetcher) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "workspace", Version: "1.0.0"}, nil)
	gosdk.Protect(server, guard, gosdk.AllowTimeout())
	gosdk.AddHealth(server, guard)

	add(server, "search", "Find the lines that hold a text", dir.Search)
	add(server, "read", "Read a text file", dir.Read)
	add(server, "fetch", "Get a document by HTTP", fetcher.Fetch)
	return server
}

// add adds a read-only tool. Nothing in it depends on the guard.
func add[In, Out any](server *mcp.Server, name, description string, work func(context.Context, In) (Out, error)) {
	tool := &mcp.Tool{Name: name, Description: description, Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}
	mcp.AddTool(server, tool, func(ctx context.Context, _ *mcp.CallToolRequest, in In) (
		*mcp.CallToolResult, Out, error,
	) {
		out, err := work(ctx, in)
		return nil, out, err
	})
}
