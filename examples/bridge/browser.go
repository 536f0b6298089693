package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/examples/bridge/devtools"
)

// A browser is a page in a browser, which survives the connections to it.
type browser struct {
	connection *resilience.Connector[*devtools.Page]
	patience   time.Duration // how long soon waits for a connection
}

var errLoading = errors.New("the page is still loading")

// connect starts to connect. The browser is connected and reconnected until Close.
func connect(s settings, log *slog.Logger) *browser {
	dialPage := func(ctx context.Context) (*devtools.Page, error) { return dial(ctx, s.page) }
	connection := resilience.NewConnector(dialPage, resilience.ConnectorConfig[*devtools.Page]{
		Name:      "browser",
		Backoff:   s.backoff,
		Watch:     func(page *devtools.Page) error { <-page.Done(); return page.Err() },
		Observers: []resilience.Observer{resilience.LogObserver(log)},
		Log:       log,
	})
	return &browser{connection, s.patience}
}

// Close closes the connection for good.
func (b *browser) Close() error { return b.connection.Close() }

// dial connects to the page and fails unless the page has loaded: right after its start, a
// browser shows an empty page.
func dial(ctx context.Context, cfg devtools.Config) (*devtools.Page, error) {
	page, err := devtools.Dial(ctx, cfg)
	if err != nil {
		return nil, err
	}

	var loaded bool
	ready := fmt.Sprintf(`document.readyState === "complete" && location.href.startsWith(%s)`, quote(cfg.Prefix))
	if err = page.Evaluate(ctx, ready, &loaded); err == nil && !loaded {
		err = errLoading
	}
	if err != nil {
		_ = page.Close()
		return nil, err
	}
	return page, nil
}

// A pageConn is one of the connections to the page.
type pageConn = resilience.Conn[*devtools.Page]

// now returns the connection to the page, or CONNECTION_LOST, without waiting.
func (b *browser) now(ctx context.Context) (*pageConn, error) { return b.connection.Get(ctx) }

// soon returns the connection to the page. If the connection is down, it waits for at most b.patience, unless the
// next dial would come too late anyway. The guard makes another attempt after the next dial, if that comes
// within its longest delay, since no page has seen anything of the call yet.
func (b *browser) soon(ctx context.Context) (*pageConn, error) {
	waiting, cancel := context.WithTimeout(ctx, b.patience)
	defer cancel()
	conn, err := b.connection.Wait(waiting)
	if err == nil || ctx.Err() != nil {
		return conn, err
	}

	// The agent should read when to call again, not that this call has waited in vain.
	return b.connection.Get(ctx)
}

// evaluate evaluates an expression in the page, by a connection that now or soon returned. Its errors have
// messages for an agent.
func (b *browser) evaluate(ctx context.Context, conn *pageConn, expression string, value any) error {
	err := conn.Value().Evaluate(ctx, expression, value)

	var lost *devtools.LostError
	var exception *devtools.Exception
	var refused *devtools.RefusedError
	switch {
	case errors.As(err, &lost):
		return b.lost(ctx, conn, lost)
	case errors.As(err, &exception):
		// Only the agent's selector can make the expressions of the tools throw.
		return &resilience.Error{Code: resilience.CodeValidation, Message: "The page threw " + exception.Text, Err: err}
	case errors.As(err, &refused):
		return &resilience.Error{Message: "The browser refused: " + refused.Text, Retryable: true, Err: err}
	}
	return resilience.MarkBackend(err) // the browser has answered something else
}

// lost returns the error of a call during which the connection was lost.
func (b *browser) lost(ctx context.Context, conn *pageConn, lost *devtools.LostError) error {
	conn.Lost(lost.Err) // schedules the next dial, whose time Get returns

	e := resilience.ConnectionLostError("the browser was gone before it answered")
	e.Err = lost
	var down *resilience.Error
	if _, err := b.connection.Get(ctx); errors.As(err, &down) {
		e.RetryAfter = down.RetryAfter
	}
	if !lost.Sent {
		return resilience.MarkTransient(e) // it had no effect, so any tool may be called again
	}
	return e
}

// quote returns s as a string literal of JavaScript.
func quote(s string) string {
	b, _ := json.Marshal(s) // it never fails
	return string(b)
}
