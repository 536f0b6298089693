package main

import (
	"time"

	"github.com/seed8d1e2389/resilience"
)

// outage takes the backend through an outage, and checks what the agent sees.
func outage(a *agent, b *backend) error {
	fetch := map[string]any{"url": b.url() + "/news"}
	file := map[string]any{"path": "go.mod"}

	a.step("Everything works")
	a.call("search", map[string]any{"text": "gosdk.Protect("}, "")
	a.call("read", file, "")
	a.call("fetch", fetch, "")

	a.step("The agent makes a mistake")
	a.call("read", map[string]any{"path": "../../etc/passwd"}, resilience.CodeValidation)

	a.step("The backend hangs, and the agent's call has a timeout of %s", shortTimeout)
	b.hang()
	a.show("fetch", a.ask("fetch", fetch, shortTimeout), resilience.CodeTimeout)

	a.step("The backend is stopped")
	b.stop()
	a.call("fetch", fetch, resilience.CodeRetryExhausted)

	a.step("The agent calls again and again, until the breaker opens")
	failures, got := 1, a.ask("fetch", fetch, 0)
	for got.code == resilience.CodeConnectionLost || got.code == resilience.CodeRetryExhausted {
		failures++
		got = a.ask("fetch", fetch, 0)
	}
	a.show("fetch", got, resilience.CodeCircuitOpen)
	a.note("After %d failed calls, the server rejects calls of fetch. Other tools still work:", failures)
	a.call("read", file, "")

	a.step("The backend is started again")
	if err := b.start(); err != nil {
		return err
	}
	start := time.Now()
	if err := a.awaitClosed("fetch"); err != nil {
		return err
	}
	took := time.Since(start).Round(time.Millisecond)
	a.note("The breaker closed after %s, by the server's Probe, without a call.", took)
	a.call("fetch", fetch, "")
	return nil
}
