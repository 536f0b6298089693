package gosdk_test

import (
	"context"
	"fmt"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
)

type query struct {
	Text string `json:"text"`
}

func search(context.Context, *mcp.CallToolRequest, query) (*mcp.CallToolResult, any, error) {
	return nil, nil, fmt.Errorf("the index: %w", syscall.ECONNREFUSED)
}

// callSearch connects a client in memory and calls the search tool once.
func callSearch(server *mcp.Server, sending ...mcp.Middleware) {
	ctx := context.Background()
	serverSide, clientSide := mcp.NewInMemoryTransports()
	if _, err := server.Connect(ctx, serverSide, nil); err != nil {
		fmt.Println(err)
		return
	}

	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1.0.0"}, nil)
	client.AddSendingMiddleware(sending...)
	session, err := client.Connect(ctx, clientSide, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close()

	res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "search", Arguments: query{"needle"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.IsError, res.Content[0].(*mcp.TextContent).Text)
	switch metadata := res.Meta[resilience.MetaError].(type) {
	case map[string]any: // it came over the wire
		fmt.Println(metadata["code"], metadata["retryable"])
	case *resilience.Error: // the client's own middleware added it
		fmt.Println(metadata.Code, metadata.Retryable)
	}
}

func Example() {
	guard := resilience.Must(resilience.New(resilience.Config{Retry: resilience.Retry{MaxRetries: -1}}))
	server := mcp.NewServer(&mcp.Implementation{Name: "server", Version: "1.0.0"}, nil)
	gosdk.Protect(server, guard) // the one line

	mcp.AddTool(server, &mcp.Tool{Name: "search", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, search)
	callSearch(server)
	// Output:
	// true the index: connection refused
	// CONNECTION_LOST true
}

func ExampleMiddleware() {
	guard := resilience.Must(resilience.New(resilience.Config{}))
	server := mcp.NewServer(&mcp.Implementation{Name: "server", Version: "1.0.0"}, nil)
	server.AddReceivingMiddleware(gosdk.Middleware(guard,
		gosdk.AllowTimeout(),
		gosdk.Failure(gosdk.CountNone), // a failure here is always the agent's mistake
	))
	mcp.AddTool(server, &mcp.Tool{Name: "search"}, search)
	callSearch(server)
	// Output:
	// true the index: connection refused
}

func ExampleClientMiddleware() {
	server := mcp.NewServer(&mcp.Implementation{Name: "other server", Version: "1.0.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "search"}, search)

	guard := resilience.Must(resilience.New(resilience.Config{
		Tools: map[string]resilience.Tool{"search": {Effect: resilience.ReadOnly}},
		Retry: resilience.Retry{MaxRetries: 1},
	}))
	callSearch(server, gosdk.ClientMiddleware(guard, gosdk.Failure(gosdk.CountAll)))
	// Output:
	// true the index: connection refused
	// RETRY_EXHAUSTED true
}
