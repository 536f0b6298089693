// Gitleaks serves a tool whose failures may print anything, over stdio. The library scrubs the text of a failure, and
// then the default rules of Gitleaks do, which know more kinds of secrets.
//
//	go run -C examples/gitleaks .
package main

import (
	"context"
	"fmt"
	"log"
	"os/exec"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/zricethezav/gitleaks/v8/detect"
)

func main() {
	server, err := newServer(makeTarget)
	if err == nil {
		err = server.Run(context.Background(), &mcp.StdioTransport{})
	}
	if err != nil {
		log.Fatal(err)
	}
}

type input struct {
	Target string `json:"target" jsonschema:"the target to make"`
}

func makeTarget(ctx context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
	out, err := exec.CommandContext(ctx, "make", "--", in.Target).CombinedOutput()
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %s", err, out)
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(out)}}}, nil, nil
}

func newServer(tool mcp.ToolHandlerFor[input, any]) (*mcp.Server, error) {
	scrub, err := gitleaks()
	if err != nil {
		return nil, err
	}
	guard, err := resilience.New(resilience.Config{Scrub: scrub})
	if err != nil {
		return nil, err
	}

	server := mcp.NewServer(&mcp.Implementation{Name: "make", Version: "v1.0.0"}, nil)
	gosdk.Protect(server, guard)
	mcp.AddTool(server, &mcp.Tool{Name: "make", Description: "Makes a target of the Makefile."}, tool)
	return server, nil
}

// gitleaks returns a function that replaces the secrets which the default rules find. Of several calls, one scans at a
// time, since a detector doesn't promise to be safe for concurrent use.
func gitleaks() (func(text string) string, error) {
	detector, err := detect.NewDetectorDefaultConfig()
	if err != nil {
		return nil, err
	}

	var mu sync.Mutex
	return func(text string) string {
		mu.Lock()
		defer mu.Unlock()
		for _, finding := range detector.DetectString(text) {
			text = strings.ReplaceAll(text, finding.Secret, "[REDACTED]")
		}
		return text
	}, nil
}
