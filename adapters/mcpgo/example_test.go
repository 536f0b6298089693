package mcpgo_test

import (
	"context"
	"encoding/json"
	"fmt"
	"syscall"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/mcpgo"
)

// The backend of this server is down. Its client receives what the tool says of it, beside the error
// metadata, and then the breaker rejects the call.
func Example() {
	guard := resilience.Must(resilience.New(resilience.Config{
		Breaker: resilience.BreakerConfig{Failures: 1},
	}))
	srv := server.NewMCPServer("books", "1.0.0", server.WithToolHandlerMiddleware(mcpgo.Middleware(guard)))
	srv.AddTool(mcp.NewTool("order"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		res := mcp.NewToolResultError("the shop can't be reached")
		mcpgo.SetError(res, syscall.ECONNREFUSED) // from the shop's client
		return res, nil
	})

	ctx := context.Background()
	c, err := client.NewInProcessClient(srv)
	if err != nil {
		panic(err)
	}
	defer c.Close()
	if err := c.Start(ctx); err != nil {
		panic(err)
	}
	if _, err := c.Initialize(ctx, mcp.InitializeRequest{}); err != nil {
		panic(err)
	}

	var order mcp.CallToolRequest
	order.Params.Name = "order"
	for range 2 {
		res, err := c.CallTool(ctx, order)
		if err != nil {
			panic(err)
		}
		e := res.Meta.AdditionalFields[resilience.MetaError].(map[string]any)
		fmt.Println(res.IsError, e["code"], e["retryable"])
	}
	// Output:
	// true RETRY_EXHAUSTED true
	// true CIRCUIT_OPEN true
}

// A handler reports how far it has come. Each report restarts the timeout of its call, if the
// tool has a MaxTimeout.
func ExampleNotifyProgress() {
	pages := []string{"one", "two", "three"}
	index := func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range pages {
			// Work on a page, then:
			if err := mcpgo.NotifyProgress(ctx, req, float64(i+1), float64(len(pages)), ""); err != nil {
				return nil, err
			}
		}
		return mcp.NewToolResultText("indexed"), nil
	}

	srv := server.NewMCPServer("books", "1.0.0")
	srv.AddTool(mcp.NewTool("index"), index)
	const request = `{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "index"}}`
	answer, err := json.Marshal(srv.HandleMessage(context.Background(), []byte(request)))
	fmt.Println(string(answer), err)
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"indexed"}]}} <nil>
}

// A handler asks the user, who has all the time it takes.
func ExampleAsk() {
	guard := resilience.Must(resilience.New(resilience.Config{}))
	srv := server.NewMCPServer("books", "1.0.0",
		server.WithElicitation(), server.WithToolHandlerMiddleware(mcpgo.Middleware(guard)))
	srv.AddTool(mcp.NewTool("order"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var question mcp.ElicitationRequest
		question.Params.Message = "Order it for 20 euros?"
		question.Params.RequestedSchema = map[string]any{"type": "object", "properties": map[string]any{}}
		answer, err := mcpgo.Ask(ctx, srv.RequestElicitation, question)
		if err != nil {
			return nil, fmt.Errorf("ask the user: %w", err)
		}
		return mcp.NewToolResultText(string(answer.Action)), nil
	})

	ctx := context.Background()
	inProcess := transport.NewInProcessTransportWithOptions(srv, transport.WithElicitationHandler(agreeing{}))
	c := client.NewClient(inProcess, client.WithElicitationHandler(agreeing{}))
	defer c.Close()
	if err := c.Start(ctx); err != nil {
		panic(err)
	}
	if _, err := c.Initialize(ctx, mcp.InitializeRequest{}); err != nil {
		panic(err)
	}

	var order mcp.CallToolRequest
	order.Params.Name = "order"
	res, err := c.CallTool(ctx, order)
	if err != nil {
		panic(err)
	}
	fmt.Println(res.Content[0].(mcp.TextContent).Text)
	// Output: accept
}

// The user of this client agrees to everything.
type agreeing struct{}

func (agreeing) Elicit(context.Context, mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	response := mcp.ElicitationResponse{Action: mcp.ElicitationResponseActionAccept}
	return &mcp.ElicitationResult{ElicitationResponse: response}, nil
}
