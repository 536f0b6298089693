// A server of mark3labs/mcp-go with one guarded tool, and a client that calls it.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/mcpgo"
)

func main() {
	ctx := context.Background()
	guard := resilience.Must(resilience.New(resilience.Config{}))
	srv := server.NewMCPServer("server", "1.0.0", server.WithToolHandlerMiddleware(mcpgo.Middleware(guard)))
	srv.AddTool(mcp.NewTool("search"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		res := &mcp.CallToolResult{}
		mcpgo.SetError(res, resilience.MarkBackend(errors.New("the index is corrupt")))
		return res, nil
	})

	c, err := client.NewInProcessClient(srv)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if err := c.Start(ctx); err != nil {
		log.Fatal(err)
	}
	if _, err := c.Initialize(ctx, mcp.InitializeRequest{}); err != nil {
		log.Fatal(err)
	}

	var search mcp.CallToolRequest
	search.Params.Name = "search"
	res, err := c.CallTool(ctx, search)
	if err != nil {
		log.Fatal(err)
	}
	failure, ok := res.Meta.AdditionalFields[resilience.MetaError].(map[string]any)
	if !ok {
		log.Fatalf("there is no error in _meta: %v", res.Meta)
	}
	fmt.Printf("%s: %s\n", failure["code"], failure["message"])
}
