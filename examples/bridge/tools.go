package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
)

// backend is the breaker that all tools share: they work on one page.
const backend = "page"

func newGuard(limit time.Duration, log *slog.Logger) (*resilience.Guard, error) {
	return resilience.New(resilience.Config{
		Tools: map[string]resilience.Tool{
			// The tool to find out with whether the browser is there: the agent hears at once.
			"title": {Effect: resilience.ReadOnly, Timeout: limit, Breaker: backend, Retry: &resilience.Retry{MaxRetries: -1}},
			// Asked again if the connection is lost meanwhile.
			"text": {Effect: resilience.ReadOnly, Timeout: limit, Breaker: backend},
			// Asked again only if it certainly never reached the page.
			"click": {Effect: resilience.NonIdempotent, Timeout: limit, Breaker: backend},
		},
		Breaker: resilience.BreakerConfig{Classify: count},
		Suggestions: map[resilience.Code]string{
			resilience.CodeConnectionLost: "Ensure that the browser is running, with its DevTools port open. It is connected to again by itself.",
		},
		Observers: []resilience.Observer{resilience.LogObserver(log)},
		Log:       log,
	})
}

// count says what the breaker counts. A lost connection is not for it: the connector turns
// calls away by itself while there is none, and knows when it will dial next, which the
// breaker's cooldown of 30s would hide from the agent; and it would still turn calls away
// when the browser is back. What remains for the breaker is a browser that is there but
// doesn't work: a page that hangs, or has crashed.
func count(err error) resilience.Class {
	if errors.Is(err, resilience.CodeConnectionLost) {
		return resilience.ClassInvalid // of the classes that are not counted, the nearest
	}
	return resilience.Classify(err)
}

func newServer(guard *resilience.Guard, b *browser) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "bridge", Version: "1.0.0"}, nil)
	gosdk.Protect(server, guard, gosdk.AllowTimeout())
	reads := &mcp.ToolAnnotations{ReadOnlyHint: true}
	add(server, &mcp.Tool{Name: "title", Description: "Get the title of the page", Annotations: reads}, b.title)
	add(server, &mcp.Tool{Name: "text", Description: "Read the text of an element", Annotations: reads}, b.text)
	add(server, &mcp.Tool{Name: "click", Description: "Click on an element"}, b.click)
	return server
}

func add[In, Out any](server *mcp.Server, tool *mcp.Tool, work func(context.Context, In) (Out, error)) {
	mcp.AddTool(server, tool, func(ctx context.Context, _ *mcp.CallToolRequest, in In) (*mcp.CallToolResult, Out, error) {
		out, err := work(ctx, in)
		return nil, out, err
	})
}

type none struct{}

type element struct {
	Selector string `json:"selector" jsonschema:"the CSS selector of the element"`
}

type text struct {
	Text string `json:"text"`
}

type clicked struct {
	Clicked bool `json:"clicked"`
}

func (b *browser) title(ctx context.Context, _ none) (text, error) {
	page, err := b.now(ctx)
	if err != nil {
		return text{}, err // CONNECTION_LOST, and when it will be dialled again
	}
	var out text
	err = b.evaluate(ctx, page, "document.title", &out.Text)
	return out, err
}

// text cuts off in the page what would be too much for a message, and for an agent.
func (b *browser) text(ctx context.Context, in element) (text, error) {
	page, err := b.soon(ctx)
	if err != nil {
		return text{}, err
	}
	var out *string
	err = b.evaluate(ctx, page, fmt.Sprintf(`(e => e && e.innerText.slice(0, 100000))(document.querySelector(%s))`, quote(in.Selector)), &out)
	switch {
	case err != nil:
		return text{}, err
	case out == nil:
		return text{}, noElement(in.Selector)
	}
	return text{*out}, nil
}

func (b *browser) click(ctx context.Context, in element) (clicked, error) {
	page, err := b.soon(ctx)
	if err != nil {
		return clicked{}, err
	}
	var out *bool
	err = b.evaluate(ctx, page, fmt.Sprintf(`(e => e && (e.click(), true))(document.querySelector(%s))`, quote(in.Selector)), &out)
	switch {
	case err != nil:
		return clicked{}, err
	case out == nil:
		return clicked{}, noElement(in.Selector)
	}
	return clicked{true}, nil
}

func noElement(selector string) error {
	return &resilience.Error{Code: resilience.CodeValidation, Message: fmt.Sprintf("The page has no element that matches %q", selector)}
}
