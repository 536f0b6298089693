package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
)

// pageBreaker is the breaker that all tools share, because they work on one page.
const pageBreaker = "page"

const suggestBrowser = "Ensure that the browser is running, with its DevTools port open. " +
	"The connection comes back by itself."

func newGuard(timeout time.Duration, log *slog.Logger) (*resilience.Guard, error) {
	return resilience.New(resilience.Config{
		Tools: map[string]resilience.Tool{
			// title fails at once if the browser isn't there, so an agent can ask with it.
			"title": {
				Effect: resilience.ReadOnly, Timeout: timeout, Breaker: pageBreaker,
				Retry: &resilience.Retry{MaxRetries: -1},
			},
			// text is retried if the connection is lost during the call.
			"text": {Effect: resilience.ReadOnly, Timeout: timeout, Breaker: pageBreaker},
			// click is retried only if the request certainly never reached the page.
			"click": {Effect: resilience.NonIdempotent, Timeout: timeout, Breaker: pageBreaker},
		},

		Suggestions: map[resilience.Code]string{resilience.CodeConnectionLost: suggestBrowser},
		Observers:   []resilience.Observer{resilience.LogObserver(log)},
		Log:         log,
	})
}

func newServer(guard *resilience.Guard, b *browser) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "bridge", Version: "1.0.0"}, nil)
	gosdk.Protect(server, guard, gosdk.AllowTimeout())

	readOnly := &mcp.ToolAnnotations{ReadOnlyHint: true}
	add(server, &mcp.Tool{Name: "title", Description: "Get the title of the page", Annotations: readOnly}, b.title)
	add(server, &mcp.Tool{Name: "text", Description: "Read the text of an element", Annotations: readOnly}, b.text)
	add(server, &mcp.Tool{Name: "click", Description: "Click on an element"}, b.click)
	return server
}

// add adds a tool. Nothing in it depends on the guard.
func add[In, Out any](server *mcp.Server, tool *mcp.Tool, work func(context.Context, In) (Out, error)) {
	mcp.AddTool(server, tool, func(ctx context.Context, _ *mcp.CallToolRequest, in In) (
		*mcp.CallToolResult, Out, error,
	) {
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
	conn, err := b.now(ctx)
	if err != nil {
		return text{}, err // CONNECTION_LOST, with the time of the next dial
	}

	var out text
	err = b.evaluate(ctx, conn, "document.title", &out.Text)
	return out, err
}

// text returns the text of an element. The page cuts it off: more would be too much for a message,
// and for an agent.
func (b *browser) text(ctx context.Context, in element) (text, error) {
	out, err := onElement[string](ctx, b, in.Selector, `e => e && e.innerText.slice(0, 100000)`)
	return text{out}, err
}

func (b *browser) click(ctx context.Context, in element) (clicked, error) {
	out, err := onElement[bool](ctx, b, in.Selector, `e => e && (e.click(), true)`)
	return clicked{out}, err
}

// onElement returns what a JavaScript function returns for an element. The function must return
// its argument if that is null, because there is no such element.
func onElement[Out any](ctx context.Context, b *browser, selector, function string) (out Out, err error) {
	conn, err := b.soon(ctx)
	if err != nil {
		return out, err
	}

	var value *Out
	expression := fmt.Sprintf("(%s)(document.querySelector(%s))", function, quote(selector))
	if err := b.evaluate(ctx, conn, expression, &value); err != nil {
		return out, err
	}
	if value == nil {
		return out, &resilience.Error{
			Code:    resilience.CodeValidation,
			Message: fmt.Sprintf("The page has no element that matches %q", selector),
		}
	}
	return *value, nil
}
