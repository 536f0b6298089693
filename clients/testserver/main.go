// Testserver is an MCP server for the tests of this directory: two tools that fail in
// every way, and all that the conformance suite asks a server for.
//
//	testserver                        over stdio
//	testserver -http 127.0.0.1:0      over streamable HTTP; prints its address
//	testserver -guard=false           without the middleware under test
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
)

func main() {
	addr := flag.String("http", "", "serve streamable HTTP at this address instead of stdio")
	stateless := flag.Bool("stateless", false, "without sessions, as protocol 2026-07-28 wants it; with -http")
	guarded := flag.Bool("guard", true, "put the tools under a guard")
	flag.Parse()
	if err := run(*addr, *stateless, *guarded); err != nil {
		log.Fatal(err)
	}
}

func run(addr string, stateless, guarded bool) error {
	server := mcp.NewServer(&mcp.Implementation{Name: "testserver", Version: "1.0.0"}, options)
	addFailing(server)
	addSlow(server)
	addEverything(server)
	if guarded {
		gosdk.Protect(server, resilience.Must(resilience.New(resilience.Config{
			Breaker: resilience.BreakerConfig{Cooldown: time.Second},
			// Long enough for a report of each second to come in time on a slow machine.
			Tools: map[string]resilience.Tool{"slow": {Timeout: 5 * time.Second, MaxTimeout: 10 * time.Minute}},
		})), gosdk.AllowLimit())
	}
	if addr == "" {
		return server.Run(context.Background(), &mcp.StdioTransport{})
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Printf("http://%s/mcp\n", listener.Addr())
	return http.Serve(listener, mcp.NewStreamableHTTPHandler(
		func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: stateless}))
}

type failInput struct {
	Kind string `json:"kind" jsonschema:"panic, hang or error; anything else succeeds"`
}

type failOutput struct {
	Kind string `json:"kind"`
}

// addFailing adds the same tool twice, without and with an output schema.
func addFailing(server *mcp.Server) {
	mcp.AddTool(server, &mcp.Tool{Name: "fail", Description: "Fails as you wish"}, func(_ context.Context, _ *mcp.CallToolRequest, in failInput) (*mcp.CallToolResult, any, error) {
		return nil, failOutput(in), fail(in.Kind)
	})
	mcp.AddTool(server, &mcp.Tool{Name: "fail_structured", Description: "Fails as you wish, with an output schema"}, func(_ context.Context, _ *mcp.CallToolRequest, in failInput) (*mcp.CallToolResult, failOutput, error) {
		return nil, failOutput(in), fail(in.Kind)
	})
}

// addSlow adds a tool that reports progress every second until the client calls the other one,
// so that the client decides how many reports it receives before the result.
func addSlow(server *mcp.Server) {
	enough := make(chan struct{}, 1)
	mcp.AddTool(server, &mcp.Tool{Name: "enough", Description: "Ends a call of slow"}, func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, any, error) {
		enough <- struct{}{}
		return text("understood"), nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "slow", Description: "Takes its time"}, func(ctx context.Context, req *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, any, error) {
		for done := 0; ; done++ {
			err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: req.Params.GetProgressToken(), Progress: float64(done),
			})
			if err != nil {
				return nil, nil, err
			}
			select {
			case <-time.After(time.Second):
			case <-enough:
				return text("done"), nil, nil
			case <-ctx.Done():
				return nil, nil, context.Cause(ctx)
			}
		}
	})
}

func fail(kind string) error {
	switch kind {
	case "panic":
		panic("out of order")
	case "hang":
		select {} // not even the end of the context gets it back
	case "error":
		return errors.New("the disk is full")
	}
	return nil
}
