package main

import (
	"errors"
	"strings"
	"time"
)

// The arguments of the calls.
var (
	orders = selector("#orders")
	stock  = selector("#stock")
	buy    = selector("#buy")
)

func selector(s string) map[string]any { return map[string]any{"selector": s} }

// outage takes the browser through outages, and checks what the agent sees.
func outage(a *agent, b *browser, shop *shop) error {
	if err := killBetweenCalls(a, b); err != nil {
		return err
	}
	if err := killDuringCalls(a, b, shop); err != nil {
		return err
	}
	hangPage(a, shop)
	return nil
}

// killBetweenCalls starts, kills and restarts the browser between calls.
func killBetweenCalls(a *agent, b *browser) error {
	a.step("The browser isn't there yet")
	a.expectRetryAfter(a.call("title", nil, "CONNECTION_LOST"))

	a.step("The browser is started")
	if err := b.start(); err != nil {
		return err
	}
	a.expectText(a.call("text", orders, ""), "0") // it waits until there is a connection
	a.expectText(a.call("title", nil, ""), "Shop")
	a.call("click", buy, "")
	a.expectText(a.call("text", orders, ""), "1")
	a.call("click", selector("#sell"), "VALIDATION_ERROR")
	a.call("click", selector("##"), "VALIDATION_ERROR")

	a.step("The browser is killed")
	b.kill()
	a.expectRetryAfter(a.call("title", nil, "CONNECTION_LOST"))
	a.expectRetryAfter(a.call("title", nil, "CONNECTION_LOST"))

	a.step("A click waits for the browser, which is started again")
	click := a.begin("click", buy, 0)
	if err := b.start(); err != nil {
		return err
	}
	a.end(click, "") // it couldn't reach the page before, so it was safe to make
	a.expectText(a.call("text", orders, ""), "2")
	return nil
}

// killDuringCalls kills and restarts the browser while it reads and while it clicks.
func killDuringCalls(a *agent, b *browser, shop *shop) error {
	a.step("The browser is killed while it reads a text, and started again")
	hold := shop.hold("GET /text/stock")
	text := a.begin("text", stock, 0)
	if err := a.wait(hold, text); err != nil {
		return err
	}
	b.kill()
	if err := b.start(); err != nil {
		return err
	}
	a.expectText(a.end(text, ""), "7 left") // reading twice does no harm

	a.step("The browser is killed after a click has taken effect, before it answers")
	hold = shop.hold("POST /click/buy")
	click := a.begin("click", buy, 0)
	if err := a.wait(hold, click); err != nil {
		return err
	}
	b.kill()
	lost := a.end(click, "CONNECTION_LOST")
	a.expect(!lost.Retryable && strings.Contains(lost.Suggestion, "It may have taken effect: check"),
		"the agent reads: %s", lost.Suggestion)
	if err := b.start(); err != nil {
		return err
	}
	a.expectText(a.call("text", orders, ""), "3") // the agent checks, and the click did take effect
	a.expect(shop.orderCount() == 3, "the shop has %d orders: nothing was bought twice", shop.orderCount())
	return nil
}

// hangPage makes the page wait for its server, while the browser still works.
func hangPage(a *agent, shop *shop) {
	a.step("The page hangs, the browser doesn't")
	hold := shop.hold("GET /text/stock")
	for !hold.isReached() && a.failed == 0 { // on a slow machine, the timeout may end a call before that
		a.end(a.begin("text", stock, time.Second), "TIMEOUT")
	}
	hold.release()
	a.expectText(a.call("title", nil, ""), "Shop") // over the same connection
}

// hangBrowser stops the browser's process for a while, if the system can do that.
func hangBrowser(a *agent, b *browser) error {
	a.step("The browser hangs")
	a.expectText(a.call("text", orders, ""), "3") // the connection is up
	switch err := b.pause(a.ctx); {
	case errors.Is(err, errors.ErrUnsupported):
		a.expect(true, "skipped: not supported on this system")
		return nil
	case err != nil:
		return err
	}
	a.expectRetryAfter(a.call("title", nil, "CONNECTION_LOST")) // a ping wasn't answered
	a.expectRetryAfter(a.call("title", nil, "CONNECTION_LOST"))

	a.step("The browser continues")
	if err := b.resume(); err != nil {
		return err
	}
	a.expectText(a.call("text", orders, ""), "3")
	return nil
}
