package resilience

import (
	"context"
	"slices"
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
// The times of several excuses that overlap are one. A timeout that progress or the end of a [Pause] has restarted is
// excused by what comes after that; that of a call which progress has kept going until its MaxTimeout, by a tenth of all
// its time. The end of the attempt ends its excuses, also in the calls around it. Those around a call that has ended
// aren't excused, nor is a later attempt by what is left of an earlier one. Outside of a guarded call Excuse does nothing.
//
// Excuse and done are safe for concurrent use; only the first call of a done counts.
func Excuse(ctx context.Context) (done func()) {
	h := hold{excuses: true}
	for c, at := innermost(ctx), ctx; c != nil && !c.over() && c.isCurrent(at); c, at = c.outer(), c.parent {
		h.calls = append(h.calls, c)
	}
	if len(h.calls) == 0 {
		return func() {}
	}

	for _, c := range slices.Backward(h.calls) {
		if !c.hold(&h) {
			h.endIn(c)
		}
	}
	return func() { h.endIn(h.calls[0]) }
}

// excuses are for how long a tool has waited for something else than its backend. All times are since the start of the
// call.
type excuses struct {
	open   int           // that have not ended
	since  time.Duration // when the sum was computed
	sum    time.Duration // since the timeout was restarted
	before time.Duration // that
}

// add adds the time that has passed, if it is excused.
func (x *excuses) add(now time.Duration) {
	if x.open > 0 {
		x.sum += now - x.since
	}
	x.since = now
}

func (x *excuses) begin(now time.Duration) {
	x.add(now)
	x.open++
}

func (x *excuses) end(now time.Duration) {
	x.add(now)
	x.open--
}

// restart notes that the timeout is restarted.
func (x *excuses) restart(now time.Duration) {
	x.add(now)
	x.before, x.sum = x.before+x.sum, 0
}

// isExcused reports whether the tool might have returned before the end of c.
func (c *callContext) isExcused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.excuses.add(c.elapsed())
	sum, timeout := c.excuses.sum, c.clock.timeout
	if c.clock.isAtMaximum() {
		sum, timeout = sum+c.excuses.before, c.clock.maximum
	}
	return sum > 0 && sum >= timeout/10
}
