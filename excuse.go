package resilience

import (
	"context"
	"sync"
	"time"
)

// Excuse tells the call to which ctx belongs, and the calls around it, that its tool waits for something else than its
// backend until done is called: a client that doesn't read what it is told, or a lock of the server's own. Unlike
// [Pause] it suspends no timeout. But of an attempt, or a call, for which a tool has been excused for a tenth of its
// timeout or more, a [Guard] neither counts nor retries a failure that says no more than TIMEOUT, as [Classify] says of
// the end that a caller brings: the tool might have returned in time.
//
//	done := resilience.Excuse(ctx)
//	mu.Lock()
//	done()
//
// The times of several excuses that overlap are one. Calls around one that has ended aren't excused, nor is a later
// attempt by what is left of an earlier one. Outside of a guarded call Excuse does nothing.
//
// Excuse and done are safe for concurrent use; only the first call of a done counts.
func Excuse(ctx context.Context) (done func()) {
	var calls []*callContext
	for c, at := innermost(ctx), ctx; c != nil && !c.over() && c.isCurrent(at); c, at = c.outer(), c.parent {
		calls = append(calls, c)
		c.excuse(1)
	}
	return sync.OnceFunc(func() {
		for _, c := range calls {
			c.excuse(-1)
		}
	})
}

// excuses are for how long a tool has waited for something else than its backend, since the start of a call.
type excuses struct {
	open  int           // that have not ended
	since time.Duration // when the sum was computed
	sum   time.Duration
}

// excuse begins an excuse, or ends one.
func (c *callContext) excuse(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addExcuses()
	c.excuses.open += n
}

// addExcuses adds the time that has passed, if it is excused. c.mu must be held.
func (c *callContext) addExcuses() {
	x, now := &c.excuses, c.elapsed()
	if x.open > 0 {
		x.sum += now - x.since
	}
	x.since = now
}

// isExcused reports whether the tool might have returned before the end of c.
func (c *callContext) isExcused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addExcuses()
	return c.excuses.sum > 0 && c.excuses.sum >= c.clock.timeout/10
}
