package resilience

import (
	"sync/atomic"
	"time"
)

// An abandonedCount counts the attempts of a tool that were abandoned and still run. An attempt whose
// caller left early, or had a shorter timeout, says nothing about the tool until it is overdue, which is
// when no call of the tool would be waited for any longer.
type abandonedCount struct {
	all     atomic.Int64
	overdue atomic.Int64 // may be too small for a moment
}

// add counts an attempt that is overdue after grace. The caller must call release once it has returned.
func (a *abandonedCount) add(grace time.Duration) (release func()) {
	a.all.Add(1)
	if grace <= 0 {
		a.overdue.Add(1)
		return func() {
			a.overdue.Add(-1)
			a.all.Add(-1)
		}
	}

	timer := time.AfterFunc(grace, func() { a.overdue.Add(1) })
	return func() {
		if !timer.Stop() {
			a.overdue.Add(-1)
		}
		a.all.Add(-1)
	}
}

// overloaded reports whether so many abandoned attempts of the tool still run that another one must
// not be risked. All of them count for a call that may itself be abandoned early, and for the others
// only those that are overdue: no caller can shut the tool for callers that give it its time.
// Cooperative tools are never abandoned.
func (g *Guard) overloaded(s *toolState, impatient bool) bool {
	n := &s.abandoned.overdue
	if impatient {
		n = &s.abandoned.all
	}
	return n.Load() >= int64(g.cfg.MaxAbandoned)
}

// impatient reports whether an option, the caller's deadline or the time before the call leaves less time than
// the tool's own timeout.
func (c *call) impatient() bool {
	c.ctx.mu.Lock()
	defer c.ctx.mu.Unlock()
	return c.ctx.clock.impatient()
}

// abandon counts an attempt with the context ctx, which has ended.
func (c *call) abandon(ctx *callContext) (release func()) {
	_, maximum := c.toolTimeouts()
	grace := add(maximum, c.ctx.timePaused()) - c.sinceBegun()
	whole := c.ctx.ending.Load()
	if ctx.ending.Load().ownTimeout || whole != nil && whole.ownTimeout {
		grace = 0 // AttemptTimeout is the tool's, too
	}
	return c.state.abandoned.add(grace)
}
