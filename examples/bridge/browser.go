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

// A browser is one page of a browser, over whatever connection to it is up.
type browser struct {
	connection *resilience.Connector[*devtools.Page]
	patience   time.Duration
}

var errLoading = errors.New("the page is still being loaded")

// connect begins to connect, and goes on until Close.
func connect(s settings, log *slog.Logger) *browser {
	connection := resilience.NewConnector(func(ctx context.Context) (*devtools.Page, error) {
		return dial(ctx, s.page)
	}, resilience.ConnectorConfig[*devtools.Page]{
		Name:      "browser",
		Backoff:   s.backoff,
		Watch:     func(page *devtools.Page) error { <-page.Done(); return page.Err() },
		Observers: []resilience.Observer{resilience.LogObserver(log)},
		Log:       log,
	})
	return &browser{connection, s.patience}
}

// Close ends the connection, and all attempts to get one.
func (b *browser) Close() error { return b.connection.Close() }

// dial counts as done only when there is something to work with: right after its start a
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

// now returns the page, at once.
func (b *browser) now(ctx context.Context) (*devtools.Page, error) { return b.connection.Get(ctx) }

// soon returns the page, for which it waits if there is hope.
func (b *browser) soon(ctx context.Context) (*devtools.Page, error) {
	waiting, cancel := context.WithTimeout(ctx, b.patience)
	defer cancel()
	page, err := b.connection.Wait(waiting)
	if err == nil || ctx.Err() != nil {
		return page, err
	}
	// What the agent should read is not that we have waited but when to come back; and
	// the guard is not to begin anew.
	page, err = b.connection.Get(ctx)
	return page, resilience.MarkPermanent(err)
}

// evaluate evaluates an expression in a page that now or soon returned, and puts what
// went wrong into words for an agent.
func (b *browser) evaluate(ctx context.Context, page *devtools.Page, expression string, value any) error {
	err := page.Evaluate(ctx, expression, value)
	var lost *devtools.LostError
	var exception *devtools.Exception
	var refused *devtools.RefusedError
	switch {
	case errors.As(err, &lost):
		return b.lost(ctx, page, lost)
	case errors.As(err, &exception):
		// Only what the agent sent can make our expressions throw.
		return &resilience.Error{Code: resilience.CodeValidation, Message: "The page threw " + exception.Text, Err: err}
	case errors.As(err, &refused):
		return &resilience.Error{Message: "The browser refused: " + refused.Text, Retryable: true, Err: err}
	}
	return err
}

// lost makes the error of a call whose connection was lost under it.
func (b *browser) lost(ctx context.Context, page *devtools.Page, lost *devtools.LostError) error {
	b.connection.Lost(page, lost.Err) // so that the connector knows when it will dial
	e := resilience.ConnectionLostError("the browser was gone before it answered")
	e.Err = lost
	var down *resilience.Error
	if _, err := b.connection.Get(ctx); errors.As(err, &down) {
		e.RetryAfter = down.RetryAfter
	}
	if lost.Sent {
		return e
	}
	return resilience.MarkTransient(e) // any tool may be called again
}

// quote writes a string as JavaScript does.
func quote(s string) string {
	b, _ := json.Marshal(s) // it never fails
	return string(b)
}
