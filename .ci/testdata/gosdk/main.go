// A server of the official SDK with one guarded tool, and a client that calls it.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
)

func main() {
	ctx := context.Background()
	server := mcp.NewServer(&mcp.Implementation{Name: "server", Version: "1.0.0"}, nil)
	gosdk.Protect(server, resilience.Must(resilience.New(resilience.Config{})))
	mcp.AddTool(server, &mcp.Tool{Name: "search"},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return nil, nil, resilience.MarkBackend(errors.New("the index is corrupt"))
		})

	serverSide, clientSide := mcp.NewInMemoryTransports()
	if _, err := server.Connect(ctx, serverSide, nil); err != nil {
		log.Fatal(err)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1.0.0"}, nil)
	session, err := client.Connect(ctx, clientSide, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()

	res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "search"})
	if err != nil {
		log.Fatal(err)
	}
	failure, ok := res.Meta[resilience.MetaError].(map[string]any)
	if !ok {
		log.Fatalf("there is no error in _meta: %v", res.Meta)
	}
	fmt.Printf("%s: %s\n", failure["code"], failure["message"])
}
