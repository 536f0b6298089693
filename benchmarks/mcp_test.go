package benchmarks

import (
	"context"
	"testing"

	mcpgoclient "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	mcpgosdk "github.com/mark3labs/mcp-go/mcp"
	mcpgoserver "github.com/mark3labs/mcp-go/server"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/seed8d1e2389/resilience/adapters/mcpgo"
	"github.com/seed8d1e2389/resilience/benchmarks/peers"
)

// servers are protected by a guard, or not.
var servers = []struct {
	name  string
	guard func() *resilience.Guard // nil: none
}{
	{"guard", func() *resilience.Guard { return peers.NewGuard(peers.Default(), false) }},
	{"guard-coop", func() *resilience.Guard { return peers.NewGuard(peers.Default(), true) }},
	{peers.FloorBare, nil},
}

// BenchmarkMCP is a whole call, from a client to a server in the same process and back.
func BenchmarkMCP(b *testing.B) {
	for _, sdk := range []struct {
		name    string
		connect func(testing.TB, *resilience.Guard) func(context.Context) (string, error)
	}{
		{"go-sdk", connectGoSDK},
		{"mcp-go", connectMCPGo},
	} {
		for _, server := range servers {
			b.Run("sdk="+sdk.name+"/peer="+server.name, func(b *testing.B) {
				var guard *resilience.Guard
				if server.guard != nil {
					guard = server.guard()
				}
				call := sdk.connect(b, guard)
				ctx := context.Background()
				b.ReportAllocs()
				for b.Loop() {
					if v, err := call(ctx); err != nil || v != value {
						b.Fatal(v, err)
					}
				}
			})
		}
	}
}

// connectGoSDK returns a call of a tool of a server that is built on the official SDK.
func connectGoSDK(tb testing.TB, guard *resilience.Guard) func(context.Context) (string, error) {
	server := mcp.NewServer(&mcp.Implementation{Name: "server", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "tool", InputSchema: map[string]any{"type": "object"}},
		func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			v, err := done(ctx)
			if err != nil {
				return nil, err
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: v}}}, nil
		})
	if guard != nil {
		gosdk.Protect(server, guard)
	}
	serverSide, clientSide := mcp.NewInMemoryTransports()
	if _, err := server.Connect(context.Background(), serverSide, nil); err != nil {
		tb.Fatal(err)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil)
	session, err := client.Connect(context.Background(), clientSide, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = session.Close() })
	params := &mcp.CallToolParams{Name: "tool", Arguments: map[string]any{"n": 1}}
	return func(ctx context.Context) (string, error) {
		res, err := session.CallTool(ctx, params)
		if err != nil {
			return "", err
		}
		return res.Content[0].(*mcp.TextContent).Text, nil
	}
}

// connectMCPGo returns a call of a tool of a server that is built on mcp-go.
func connectMCPGo(tb testing.TB, guard *resilience.Guard) func(context.Context) (string, error) {
	var opts []mcpgoserver.ServerOption
	if guard != nil {
		opts = append(opts, mcpgoserver.WithToolHandlerMiddleware(mcpgo.Middleware(guard)))
	}
	server := mcpgoserver.NewMCPServer("server", "1", opts...)
	server.AddTool(mcpgosdk.NewTool("tool"),
		func(ctx context.Context, _ mcpgosdk.CallToolRequest) (*mcpgosdk.CallToolResult, error) {
			v, err := done(ctx)
			if err != nil {
				return nil, err
			}
			return mcpgosdk.NewToolResultText(v), nil
		})
	client := mcpgoclient.NewClient(transport.NewInProcessTransport(server))
	if err := client.Start(context.Background()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = client.Close() })
	if _, err := client.Initialize(context.Background(), mcpgosdk.InitializeRequest{}); err != nil {
		tb.Fatal(err)
	}
	var req mcpgosdk.CallToolRequest
	req.Params.Name = "tool"
	req.Params.Arguments = map[string]any{"n": 1}
	return func(ctx context.Context) (string, error) {
		res, err := client.CallTool(ctx, req)
		if err != nil {
			return "", err
		}
		return res.Content[0].(mcpgosdk.TextContent).Text, nil
	}
}

// What is measured is a call that reaches the tool, and a guard that guards it.
func TestServers(t *testing.T) {
	for name, connect := range map[string]func(testing.TB, *resilience.Guard) func(context.Context) (string, error){
		"go-sdk": connectGoSDK, "mcp-go": connectMCPGo,
	} {
		for _, server := range servers {
			t.Run(name+"/"+server.name, func(t *testing.T) {
				if server.guard == nil {
					if v, err := connect(t, nil)(t.Context()); err != nil || v != value {
						t.Fatal(v, err)
					}
					return
				}
				guard := server.guard()
				call := connect(t, guard)
				if v, err := call(t.Context()); err != nil || v != value {
					t.Fatal(v, err)
				}
				for range 5 {
					_, _ = resilience.Do(t.Context(), guard, "tool", func(context.Context) (string, error) {
						return "", resilience.MarkPermanent(errTool)
					})
				}
				if v, err := call(t.Context()); err == nil && v == value {
					t.Fatal("the breaker is open, but the tool was called")
				}
			})
		}
	}
}
