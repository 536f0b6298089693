// Gateway is an MCP server whose tools are those of another MCP server. It starts that server as a process, and again
// whenever the process has ended.
//
//	gateway other-server argument…
//
// All tools are under a guard. They share a breaker, since they share a backend, and while it is open, the gateway
// pings the other server in the background: as soon as that answers, calls pass again.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
)

const (
	other = "other server" // the name of the session, and of the breaker

	startTimeout    = 30 * time.Second // of the other server
	shutDownTimeout = 20 * time.Second // of calls in flight
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, command []string) error {
	if len(command) == 0 {
		return errors.New("name the command that starts the other server")
	}
	session := connect(command)
	defer session.Close()

	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	server, guard, err := newServer(ctx, session, resilience.Config{
		Observers: []resilience.Observer{resilience.LogObserver(log)},
		Log:       log,
	})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), shutDownTimeout)
		defer cancel()
		_, _ = guard.Close(ctx)
	}()
	return server.Run(ctx, &mcp.StdioTransport{})
}

// connect returns a session with a process of the command. Whenever the process ends, another is started.
func connect(command []string) *gosdk.Session {
	client := mcp.NewClient(&mcp.Implementation{Name: "gateway", Version: "1.0.0"}, nil)
	return gosdk.NewSession(func(ctx context.Context) (*mcp.ClientSession, error) {
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Stderr = os.Stderr
		return client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	}, resilience.ConnectorConfig[*mcp.ClientSession]{Name: other})
}

// newServer returns a server with the tools of the other one, and their guard.
func newServer(ctx context.Context, session *gosdk.Session, cfg resilience.Config) (
	*mcp.Server, *resilience.Guard, error,
) {
	tools, err := toolsOf(ctx, session)
	if err != nil {
		return nil, nil, err
	}
	cfg.Tools = map[string]resilience.Tool{}
	for _, tool := range tools {
		cfg.Tools[tool.Name] = resilience.Tool{Breaker: other} // the effect is in the tool's annotations
	}
	cfg.Breakers = map[string]resilience.BreakerConfig{
		other: {Probe: session.Probe, ProbeInterval: time.Second},
	}
	guard, err := resilience.New(cfg)
	if err != nil {
		return nil, nil, err
	}

	server := mcp.NewServer(&mcp.Implementation{Name: "gateway", Version: "1.0.0"}, nil)
	gosdk.Protect(server, guard)
	gosdk.AddHealth(server, guard)
	for _, tool := range tools {
		server.AddTool(tool, forward(session))
	}
	return server, guard, nil
}

// toolsOf returns the tools of the other server.
func toolsOf(ctx context.Context, session *gosdk.Session) (tools []*mcp.Tool, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cs, err := session.Wait(ctx)
	if err != nil {
		return nil, err
	}

	for tool, err := range cs.Tools(ctx, nil) {
		if err != nil {
			return nil, err
		}
		tools = append(tools, tool)
	}
	return tools, nil
}

// forward makes each call a call of the other server.
func forward(session *gosdk.Session) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: req.Params.Name, Arguments: req.Params.Arguments})
		if err != nil {
			res = &mcp.CallToolResult{}
			res.SetError(err) // an error for the agent, and not of the protocol
		}
		return res, nil
	}
}
