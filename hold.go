package resilience

import (
	"slices"
	"time"
)

// A hold is a pause or an excuse, in calls that are within each other.
type hold struct {
	calls   []*callContext // the innermost first
	excuses bool           // whether it is an excuse, which suspends no timeout
}

// endIn ends the hold in c and in the calls around it, as far as it hasn't ended there.
func (h *hold) endIn(c *callContext) {
	for _, c := range slices.Backward(h.calls[slices.Index(h.calls, c):]) {
		c.release(h)
	}
}

// hold begins h, or reports that the context has ended, or for an excuse that no attempt is under way.
func (c *callContext) hold(h *hold) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending.Load() != nil || h.excuses && c.waiting {
		return false
	}

	if c.holds == nil {
		c.holds = make(map[*hold]struct{})
	}
	c.holds[h] = struct{}{}
	now := c.elapsed()
	if h.excuses {
		c.excuses.begin(now)
		return true
	}
	c.clock.pause(now)
	c.schedule(now)
	return true
}

// release ends h, unless it has ended.
func (c *callContext) release(h *hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, holds := c.holds[h]; !holds {
		return
	}

	delete(c.holds, h)
	now := c.elapsed()
	if h.excuses {
		c.excuses.end(now)
	} else if c.clock.resume(now) {
		c.restarted(now)
	}
}

// endHolds ends the holds of an attempt that has ended, including those of the calls that it has made.
func (c *callContext) endHolds() {
	c.mu.Lock()
	holds := c.stopHolds()
	if len(holds) > 0 && c.ending.Load() == nil {
		c.schedule(c.elapsed())
	}
	c.mu.Unlock()

	for h := range holds {
		h.endIn(c)
	}
}

// stopHolds ends all holds as far as c is concerned, and returns them. They must end in the calls around
// c, too. c.mu must be held.
func (c *callContext) stopHolds() map[*hold]struct{} {
	holds := c.holds
	if holds == nil {
		return nil // the usual case
	}

	c.holds = nil
	now := c.elapsed()
	for h := range holds {
		if h.excuses {
			c.excuses.end(now)
		} else {
			c.clock.resume(now)
		}
	}
	return holds
}

// restarted is called when the timeout has been restarted. c.mu must be held.
func (c *callContext) restarted(now time.Duration) {
	c.excuses.restart(now)
	c.schedule(now)
}
