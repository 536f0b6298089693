package gosdk_test

import (
	"context"
	"fmt"
	"net"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
)

// A guard calls a tool of another server through a session that comes back, and retries when it has.
func ExampleSession() {
	greet := func(context.Context, *mcp.CallToolRequest, any) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Hello"}}}, nil, nil
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "other server", Version: "1.0.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "greet"}, greet)
	var serverEnd net.Conn // of the connection

	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1.0.0"}, nil)
	session := gosdk.NewSession(func(ctx context.Context) (*mcp.ClientSession, error) {
		// A real server would need mcp.CommandTransport{Command: exec.CommandContext(ctx, "server")}, say.
		var clientEnd net.Conn
		serverEnd, clientEnd = net.Pipe()
		if _, err := server.Connect(ctx, &mcp.IOTransport{Reader: serverEnd, Writer: serverEnd}, nil); err != nil {
			return nil, err
		}
		return client.Connect(ctx, &mcp.IOTransport{Reader: clientEnd, Writer: clientEnd}, nil)
	}, resilience.ConnectorConfig[*mcp.ClientSession]{Name: "greeter"})
	defer session.Close()

	ctx := context.Background()
	guard := resilience.Must(resilience.New(resilience.Config{}))
	call := func() {
		res, err := resilience.Do(ctx, guard, "greet", func(ctx context.Context) (*mcp.CallToolResult, error) {
			if _, err := session.Wait(ctx); err != nil { // the guard's timeout bounds it
				return nil, err
			}
			return session.CallTool(ctx, &mcp.CallToolParams{Name: "greet"})
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(res.Content[0].(*mcp.TextContent).Text)
	}

	call()
	first, _ := session.Get(ctx)
	serverEnd.Close() // the server goes away
	_ = first.Wait()
	for now := first; now == first; now, _ = session.Wait(ctx) { // the session comes back by itself
	}
	call()
	// Output:
	// Hello
	// Hello
}
