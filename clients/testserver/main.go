// Testserver is an MCP server for the clients of the directory above. It has two tools that fail in
// every way, slow ones, and everything that the conformance suite needs.
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
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
)

func main() {
	addr := flag.String("http", "", "serve streamable HTTP at this address instead of stdio")
	stateless := flag.Bool("stateless", false, "serve HTTP without sessions, as protocol 2026-07-28 requires")
	guarded := flag.Bool("guard", true, "put the tools under a guard")
	flag.Parse()
	if err := run(*addr, *stateless, *guarded); err != nil {
		log.Fatal(err)
	}
}

func run(addr string, stateless, guarded bool) error {
	server := mcp.NewServer(&mcp.Implementation{Name: "testserver", Version: "1.0.0"}, serverOptions)
	addFailing(server)
	addSlow(server)
	addOrder(server)
	addEverything(server)
	if guarded {
		guard := resilience.Must(resilience.New(resilience.Config{
			Breaker: resilience.BreakerConfig{Cooldown: time.Second},
			// On a slow machine too, a report every second should come within the timeout.
			Tools: map[string]resilience.Tool{"slow": {Timeout: 5 * time.Second, MaxTimeout: 10 * time.Minute}},
		}))
		gosdk.Protect(server, guard, gosdk.AllowTimeout(), gosdk.Heartbeat(time.Second))
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
		&mcp.StreamableHTTPOptions{Stateless: stateless, PropagateRequestCancellation: true}))
}

type failInput struct {
	Kind string `json:"kind" jsonschema:"panic, hang, error or mistake; anything else succeeds"`
}

type failOutput struct {
	Kind string `json:"kind"`
}

// addFailing adds a tool that fails on demand, and the same tool with an output schema.
func addFailing(server *mcp.Server) {
	fails := &mcp.Tool{Name: "fail", Description: "Fails on demand"}
	mcp.AddTool(server, fails, func(_ context.Context, _ *mcp.CallToolRequest, in failInput) (
		*mcp.CallToolResult, any, error,
	) {
		return nil, failOutput(in), fail(in.Kind)
	})

	structured := &mcp.Tool{Name: "fail_structured", Description: "Fails on demand, and has an output schema"}
	mcp.AddTool(server, structured, func(_ context.Context, _ *mcp.CallToolRequest, in failInput) (
		*mcp.CallToolResult, failOutput, error,
	) {
		return nil, failOutput(in), fail(in.Kind)
	})
}

// fail fails in the given way.
func fail(kind string) error {
	switch kind {
	case "panic":
		panic("out of order")
	case "hang":
		select {} // it ignores its context
	case "error":
		return resilience.MarkBackend(errors.New("the disk is full"))
	case "mistake":
		return errors.New("there is no such disk")
	}
	return nil
}

// addOrder adds a tool that writes, which takes three seconds, also after its caller has left, and one that waits until
// that has happened.
func addOrder(server *mcp.Server) {
	var orders atomic.Int64
	left := make(chan struct{}, 100)
	order := &mcp.Tool{Name: "order", Description: "Orders something"}
	mcp.AddTool(server, order, func(ctx context.Context, _ *mcp.CallToolRequest, _ args) (
		*mcp.CallToolResult, any, error,
	) {
		context.AfterFunc(ctx, func() { left <- struct{}{} })
		n := orders.Add(1)
		time.Sleep(3 * time.Second)
		return text("order %d", n), nil, nil
	})

	waits := &mcp.Tool{Name: "order_left", Description: "Waits until the caller of order has left"}
	mcp.AddTool(server, waits, func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, any, error) {
		<-left
		return text("it has"), nil, nil
	})
}

// addSlow adds a tool that reports progress every second, and a silent one, until the client calls the third tool:
// so the client decides how many reports it receives before the result.
func addSlow(server *mcp.Server) {
	enough := make(chan struct{}, 1)
	ends := &mcp.Tool{Name: "enough", Description: "Ends a call of slow"}
	mcp.AddTool(server, ends, func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, any, error) {
		enough <- struct{}{}
		return text("understood"), nil, nil
	})

	silent := &mcp.Tool{Name: "silent", Description: "Takes its time, and reports nothing",
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}
	mcp.AddTool(server, silent, func(ctx context.Context, _ *mcp.CallToolRequest, _ args) (
		*mcp.CallToolResult, any, error,
	) {
		select {
		case <-enough:
			return text("done"), nil, nil
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	})

	slow := &mcp.Tool{Name: "slow", Description: "Takes its time"}
	mcp.AddTool(server, slow, func(ctx context.Context, req *mcp.CallToolRequest, _ args) (
		*mcp.CallToolResult, any, error,
	) {
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
