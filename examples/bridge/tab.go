package main

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"
	"github.com/seed8d1e2389/resilience"
)

// A tab is a tab of the browser, and the connection to it.
type tab struct {
	ctx   context.Context // chromedp's, which ends with the connection
	close func()
}

// connect keeps a tab with the page open in the browser, until the connector is closed.
func connect(browserURL, page string, cfg resilience.ConnectorConfig[*tab]) *resilience.Connector[*tab] {
	cfg.Name = "browser"
	cfg.Watch = watch
	cfg.Check = check
	cfg.Close = func(t *tab) error { t.close(); return nil }
	return resilience.NewConnector(func(ctx context.Context) (*tab, error) {
		return open(ctx, browserURL, page)
	}, cfg)
}

// open opens a tab and loads the page. The tab outlives ctx, which bounds only the opening.
func open(ctx context.Context, browserURL, page string) (*tab, error) {
	allocator, disconnect := remote.NewAllocator(context.Background(), browserURL)
	own, _ := chromedp.NewContext(allocator) // disconnect closes the tab, too
	stop := context.AfterFunc(ctx, disconnect)
	defer stop()

	if err := chromedp.Do(own, chromedp.Navigate(page)); err != nil {
		disconnect()
		return nil, err
	}
	return &tab{own, disconnect}, nil
}

var (
	errDisconnected = errors.New("the browser has ended the connection")
	errTabClosed    = errors.New("the tab was closed")
)

// watch waits until the connection is lost.
func watch(t *tab) error {
	detached, err := chromedp.Detached(t.ctx)
	if err != nil {
		return err
	}
	select {
	case <-t.ctx.Done():
		return errDisconnected
	case <-detached:
		return errTabClosed
	}
}

// check asks the browser for its version. A browser whose page is merely busy answers that.
func check(ctx context.Context, t *tab) error {
	_, err := cdp.Call(ctx, chromedp.FromContext(t.ctx).Browser, browser.GetVersion, cdp.Empty{})
	return err
}

// evaluate evaluates an expression in the page. Its errors have messages for an agent.
func evaluate[T any](ctx context.Context, tabs *resilience.Connector[*tab], expression string) (value T, err error) {
	conn, err := tabs.Get(ctx)
	if err != nil {
		return value, err // CONNECTION_LOST, and when to call again
	}
	session := chromedp.FromContext(conn.Value().ctx)
	value, err = chromedp.Evaluate[T](expression)(ctx, session.Target)

	var thrown *chromedp.ExceptionError
	switch {
	case errors.As(err, &thrown):
		// Only the agent's selector can make the expressions of the tools throw.
		err = &resilience.Error{Code: resilience.CodeValidation, Message: "The page threw an " + err.Error(), Err: err}
	case ctx.Err() != nil:
		conn.Suspect(err) // check finds out whether the browser hangs, or only the page
	case errors.Is(err, context.Canceled), errors.Is(err, chromedp.ErrTargetDetached):
		// The connection was lost during the call, which may have had an effect.
		conn.Lost(err)
		lost := resilience.ConnectionLostError("the browser was gone before it answered")
		lost.Err = err
		err = lost
	}
	return value, err
}

// quote returns s as a string literal of JavaScript.
func quote(s string) string {
	b, _ := json.Marshal(s) // it never fails
	return string(b)
}
