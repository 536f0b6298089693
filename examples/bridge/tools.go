package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/chromedp/chromedp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
)

// newGuard returns a guard for the tools, which share a breaker, because they work on one page.
func newGuard(cfg resilience.Config) (*resilience.Guard, error) {
	cfg.Tools = map[string]resilience.Tool{
		"title": {Effect: resilience.ReadOnly, Breaker: "page"},
		"text":  {Effect: resilience.ReadOnly, Breaker: "page"},
		// A click is retried only if it certainly never reached the page.
		"click": {Effect: resilience.NonIdempotent, Breaker: "page"},
	}
	cfg.Suggestions = map[resilience.Code]string{
		resilience.CodeConnectionLost: "Ensure that the browser is running, with its DevTools port open. " +
			"The connection comes back by itself.",
	}
	return resilience.New(cfg)
}

func newServer(guard *resilience.Guard, tabs *resilience.Connector[*tab]) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "bridge", Version: "1.0.0"}, nil)
	gosdk.Protect(server, guard)

	readOnly := &mcp.ToolAnnotations{ReadOnlyHint: true}
	mcp.AddTool(server, &mcp.Tool{Name: "title", Description: "Get the title of the page", Annotations: readOnly},
		func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, text, error) {
			title, err := evaluate[string](ctx, tabs, "document.title")
			return nil, text{title}, err
		})
	mcp.AddTool(server, &mcp.Tool{Name: "text", Description: "Read the text of an element", Annotations: readOnly},
		func(ctx context.Context, _ *mcp.CallToolRequest, in element) (*mcp.CallToolResult, text, error) {
			// More would be too much for an agent.
			content, err := onElement[string](ctx, tabs, in, "e => e && e.innerText.slice(0, 100000)")
			return nil, text{content}, err
		})
	mcp.AddTool(server, &mcp.Tool{Name: "click", Description: "Click on an element"},
		func(ctx context.Context, _ *mcp.CallToolRequest, in element) (*mcp.CallToolResult, clicked, error) {
			ok, err := onElement[bool](ctx, tabs, in, "e => e && (e.click(), true)")
			return nil, clicked{ok}, err
		})
	return server
}

type element struct {
	Selector string `json:"selector" jsonschema:"the CSS selector of the element"`
}

type text struct {
	Text string `json:"text"`
}

type clicked struct {
	Clicked bool `json:"clicked"`
}

// onElement returns what a JavaScript function returns for an element. The function must return its argument if that is
// null, because there is no such element.
func onElement[T any](ctx context.Context, tabs *resilience.Connector[*tab], in element, function string) (T, error) {
	expression := fmt.Sprintf("(%s)(document.querySelector(%s))", function, quote(in.Selector))
	value, err := evaluate[T](ctx, tabs, expression)
	if errors.Is(err, chromedp.ErrJSNull) {
		err = &resilience.Error{
			Code:    resilience.CodeValidation,
			Message: fmt.Sprintf("The page has no element that matches %q", in.Selector),
		}
	}
	return value, err
}
