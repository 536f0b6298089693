package gosdk_test

import (
	"context"
	"fmt"
	"net"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
)

// A tool of another server is called through a session that comes back, under a guard that
// tries again when it has.
func ExampleSession() {
	server := mcp.NewServer(&mcp.Implementation{Name: "somebody else's", Version: "1.0.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "greet"}, func(context.Context, *mcp.CallToolRequest, any) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Hello"}}}, nil, nil
	})
	var wire net.Conn // between it and us

	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1.0.0"}, nil)
	session := gosdk.NewSession(func(ctx context.Context) (*mcp.ClientSession, error) {
		// Usually mcp.CommandTransport{Command: exec.CommandContext(ctx, "server")}, say.
		theirs, ours := net.Pipe()
		if _, err := server.Connect(ctx, &mcp.IOTransport{Reader: theirs, Writer: theirs}, nil); err != nil {
			return nil, err
		}
		wire = theirs
		return client.Connect(ctx, &mcp.IOTransport{Reader: ours, Writer: ours}, nil)
	}, resilience.ConnectorConfig[*mcp.ClientSession]{Name: "greeter"})
	defer session.Close()

	ctx := context.Background()
	guard := resilience.Must(resilience.New(resilience.Config{}))
	greet := func() {
		res, err := resilience.Do(ctx, guard, "greet", func(ctx context.Context) (*mcp.CallToolResult, error) {
			if _, err := session.Wait(ctx); err != nil { // the guard's limit bounds it
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
	greet()
	first, _ := session.Get(ctx)
	wire.Close() // the server goes away
	_ = first.Wait()
	for now := first; now == first; now, _ = session.Wait(ctx) { // and comes back by itself
	}
	greet()
	// Output:
	// Hello
	// Hello
}
