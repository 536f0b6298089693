package resilience

import (
	"context"
	"time"
)

// Close shuts the guard down: from now on, calls are rejected with SHUTTING_DOWN, which no breaker counts, but for
// those that calls in flight make. Close waits for the calls in flight, stops [BreakerConfig.Probe], and then
// waits for the observers, as Flush does. It returns how many calls were still in flight when ctx ended, and the
// error of ctx then; it doesn't end them. Abandoned attempts aren't waited for. Close may be called any number of
// times and concurrently, but not by a tool or an observer. Connectors are closed by themselves.
func (g *Guard) Close(ctx context.Context) (inFlight int, err error) {
	g.closed.Store(true)
	for delay := time.Millisecond; ; delay = min(2*delay, probePoll) {
		inFlight = g.inFlight()
		if inFlight == 0 && g.probing.Load() == 0 {
			return 0, g.Flush(ctx)
		}
		if err := ctx.Err(); err != nil {
			return inFlight, err
		}
		sleep(ctx, delay) // being woken would take a channel, which belongs to a synctest bubble
	}
}

// Closed reports whether [Guard.Close] was called, so that the guard rejects new calls.
func (g *Guard) Closed() bool { return g.closed.Load() }

func (g *Guard) isClosed() bool { return g != nil && g.Closed() }

// inFlight returns how many calls haven't returned.
func (g *Guard) inFlight() (n int) {
	for _, s := range g.states() {
		n += s.inFlight()
	}
	return n
}

// serves reports whether ctx belongs to a call of g in flight, of the tool or, if that is empty, of any: it may be in
// the middle of its work.
func (g *Guard) serves(ctx context.Context, tool string) bool {
	for c := innermost(ctx); c != nil; c = c.outer() {
		t := c.ticket
		if t != nil && t.b.guard == g && !c.stopped.Load() && (tool == "" || tool == c.name) {
			return true
		}
	}
	return false
}
