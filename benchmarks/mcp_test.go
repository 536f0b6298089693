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

// servers are MCP servers with a guard or without one.
var servers = []struct {
	name  string
	guard func() *resilience.Guard // returns nil if there is none
}{
	{"guard", func() *resilience.Guard { return peers.NewGuard(peers.Default(), false) }},
	{"guard-coop", func() *resilience.Guard { return peers.NewGuard(peers.Default(), true) }},
	{peers.FloorBare, func() *resilience.Guard { return nil }},
}

// sdks are the SDKs on which the servers are built. Their connect starts a server with one tool
// under the guard, if that isn't nil, connects a client to it and returns a call of the tool.
var sdks = []struct {
	name    string
	connect func(testing.TB, *resilience.Guard) func(context.Context) (string, error)
}{
	{"go-sdk", connectGoSDK},
	{"mcp-go", connectMCPGo},
}

// BenchmarkMCP measures a whole call, from a client to a server in the same process and back.
func BenchmarkMCP(b *testing.B) {
	for _, sdk := range sdks {
		for _, server := range servers {
			b.Run("sdk="+sdk.name+"/peer="+server.name, func(b *testing.B) {
				call := sdk.connect(b, server.guard())
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

// connectGoSDK connects a client and a server that are built on the official SDK.
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

// connectMCPGo connects a client and a server that are built on mcp-go.
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

// A measured call must reach the tool, and the guard must really guard it.
func TestServersReachTheToolUnlessTheBreakerIsOpen(t *testing.T) {
	for _, sdk := range sdks {
		for _, server := range servers {
			t.Run(sdk.name+"/"+server.name, func(t *testing.T) {
				guard := server.guard()
				call := sdk.connect(t, guard)
				if v, err := call(t.Context()); err != nil || v != value {
					t.Fatal(v, err)
				}
				if guard == nil {
					return
				}

				for range peers.Default().Failures {
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
