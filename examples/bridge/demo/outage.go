package main

import (
	"errors"
	"strings"
	"time"
)

// outage is what the browser goes through, and what the agent must see of it.
func outage(a *agent, b *browser, shop *shop) error {
	orders, stock, buy := selector("#orders"), selector("#stock"), selector("#buy")

	a.step("The browser isn't there yet")
	a.down(a.call("title", nil, "CONNECTION_LOST"))

	a.step("The browser is started")
	if err := b.start(); err != nil {
		return err
	}
	a.says(a.call("text", orders, ""), "0") // it waits until there is a connection
	a.says(a.call("title", nil, ""), "Shop")
	a.call("click", buy, "")
	a.says(a.call("text", orders, ""), "1")
	a.call("click", selector("#sell"), "VALIDATION_ERROR")
	a.call("click", selector("##"), "VALIDATION_ERROR")

	a.step("The browser is killed")
	b.kill()
	a.down(a.call("title", nil, "CONNECTION_LOST"))
	a.down(a.call("title", nil, "CONNECTION_LOST"))
	a.step("A click comes while it is away; the browser is started again")
	click := a.begin("click", buy, 0)
	if err := b.start(); err != nil {
		return err
	}
	a.end(click, "") // it never reached the page before, so it was safe to make
	a.says(a.call("text", orders, ""), "2")

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
	a.says(a.end(text, ""), "7 left") // reading twice does no harm

	a.step("The browser is killed after it has taken a click, before it has said so")
	hold = shop.hold("POST /click/buy")
	click = a.begin("click", buy, 0)
	if err := a.wait(hold, click); err != nil {
		return err
	}
	b.kill()
	lost := a.end(click, "CONNECTION_LOST")
	a.expect(!lost.Retryable && strings.Contains(lost.Suggestion, "check whether it took effect"), "the agent is told: %s", lost.Suggestion)
	if err := b.start(); err != nil {
		return err
	}
	a.says(a.call("text", orders, ""), "3") // so it checks: the click did take effect
	a.expect(shop.orderCount() == 3, "the shop has %d orders: nothing was bought twice", shop.orderCount())

	a.step("The page hangs, the browser doesn't")
	hold = shop.hold("GET /text/stock")
	for !hold.isReached() && a.failed == 0 { // a slow machine may take longer than the agent is ready to wait
		a.end(a.begin("text", stock, time.Second), "TIMEOUT")
	}
	hold.release()
	a.says(a.call("title", nil, ""), "Shop") // over the same connection

	return nil
}

// hang is what the agent must see of a browser that is there but does nothing.
func hang(a *agent, b *browser) error {
	orders := selector("#orders")

	a.step("The browser hangs")
	a.says(a.call("text", orders, ""), "3") // so there is a connection
	switch err := b.pause(a.ctx); {
	case errors.Is(err, errors.ErrUnsupported):
		a.expect(true, "left out: not on this system")
		return nil
	case err != nil:
		return err
	}
	a.down(a.call("title", nil, "CONNECTION_LOST")) // a ping wasn't answered
	a.down(a.call("title", nil, "CONNECTION_LOST"))

	a.step("The browser goes on")
	if err := b.resume(); err != nil {
		return err
	}
	a.says(a.call("text", orders, ""), "3")
	return nil
}

func selector(s string) map[string]any { return map[string]any{"selector": s} }
