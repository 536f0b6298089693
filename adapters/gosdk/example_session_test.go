package gosdk_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"

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

// An agent's request that is too long for a proxy is refused, and the session of all others stays.
func ExampleTransport() {
	greet := func(_ context.Context, _ *mcp.CallToolRequest, in struct {
		Name string `json:"name"`
	}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Hello, " + in.Name}}}, nil, nil
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "other server", Version: "1.0.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "greet"}, greet)
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > 10_000 {
			http.Error(w, "too long", http.StatusRequestEntityTooLarge)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	defer proxy.Close()

	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1.0.0"}, nil)
	session := gosdk.NewSession(func(ctx context.Context) (*mcp.ClientSession, error) {
		return client.Connect(ctx, &mcp.StreamableClientTransport{
			Endpoint: proxy.URL, HTTPClient: &http.Client{Transport: gosdk.Transport(nil)},
		}, nil)
	}, resilience.ConnectorConfig[*mcp.ClientSession]{Name: "greeter"})
	defer session.Close()

	ctx := context.Background()
	guard := resilience.Must(resilience.New(resilience.Config{}))
	first, _ := session.Wait(ctx)
	for _, name := range []string{strings.Repeat("x", 20_000), "Ada"} {
		res, err := resilience.Do(ctx, guard, "greet", func(ctx context.Context) (*mcp.CallToolResult, error) {
			return session.CallTool(ctx, &mcp.CallToolParams{Name: "greet", Arguments: map[string]any{"name": name}})
		})
		if err != nil {
			fmt.Println(err, "| counted:", guard.Breaker("greet").Failures())
			continue
		}
		fmt.Println(res.Content[0].(*mcp.TextContent).Text)
	}
	now, _ := session.Get(ctx)
	fmt.Println("the same session:", now == first)
	// Output:
	// TOOL_FAILED: The server refused the request: 413 Request Entity Too Large | counted: 0
	// Hello, Ada
	// the same session: true
}
