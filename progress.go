package resilience

import (
	"context"
	"slices"
	"time"
)

// ReportProgress reports that the tool to which ctx belongs makes progress and doesn't
// hang. It restarts the timeout of the call, that of the attempt, and those of the calls
// around it.
//
// A call around one that has ended is no longer waiting for it, so it isn't extended. Neither is one by what is left
// of an earlier attempt.
//
// Only tools with a Tool.MaxTimeout have a timeout that restarts. MaxTimeout still bounds
// the whole call, and so do the caller's own deadline and cancellation. A call that waits
// for its next attempt isn't extended, since nothing makes progress then. Outside of such
// calls ReportProgress does nothing.
//
// It is safe for concurrent use and cheap enough to be called often.
func ReportProgress(ctx context.Context) {
	for c, at := innermost(ctx), ctx; c != nil && !c.over() && c.isCurrent(at); c, at = c.outer(), c.parent {
		c.progress()
	}
}

// Pause suspends the timeout of the call to which ctx belongs, and those of the calls
// around it, until resume is called: a tool that waits for a person doesn't hang. The
// timeout then restarts, and the time that has passed doesn't count towards
// Tool.MaxTimeout. The end of the attempt resumes too, also in the calls around it. Those around a call that has ended
// aren't suspended, nor is a later attempt by what is left of an earlier one. Outside of a guarded call Pause does
// nothing.
//
// While the timeout is paused, only the caller can end the call, by a deadline of its own or
// by cancellation. Pause only for operations that are sure to finish. The context for one that has a time of its own is
// made after Pause: before that, context.WithTimeout sets no other deadline than the earlier one of the call, which is
// then paused.
//
//	defer resilience.Pause(ctx)()
//	asking, cancel := context.WithTimeout(ctx, 5*time.Minute) // though the tool has 30 seconds
//	defer cancel()
//
// What a person is asked is an effect that a retry would repeat. Whatever its [Effect], a call
// that has been paused therefore counts as [NonIdempotent], even if it fails in a way that has no
// effect: it isn't retried, and neither are the calls around it.
//
// A probe that has been paused, of a guard or of [WithBreaker], no longer keeps other calls from being the
// probe. Its result counts if the state of the breaker hasn't changed by then.
//
// Several pauses of one call may overlap. Pause and resume are safe for concurrent use; only
// the first call of a resume counts.
func Pause(ctx context.Context) (resume func()) {
	var p pause
	waited, guarded := true, false
	for c, at := innermost(ctx), ctx; c != nil; c, at = c.outer(), c.parent {
		c.asked.Store(true) // even by an attempt that was abandoned
		if c.ticket != nil {
			guarded = true
			c.ticket.giveBack()
		}
		if waited = waited && !c.over() && c.isCurrent(at); waited {
			p.calls = append(p.calls, c)
		}
	}
	giveBackAll(ctx)
	if !guarded || len(p.calls) == 0 {
		return func() {}
	}

	// From the outside in, since each call looks at the deadline of the one around it. Each watches its caller, who may
	// leave while no timer runs.
	for _, c := range slices.Backward(p.calls) {
		if c.pause(&p) {
			c.askAside((*callContext).watch)
		} else {
			p.endIn(c)
		}
	}
	return func() { p.endIn(p.calls[0]) }
}

// A pause suspends the timeouts of calls that are within each other.
type pause struct{ calls []*callContext } // the innermost first

// endIn ends the pause in c and in the calls around it, as far as it hasn't ended there.
func (p *pause) endIn(c *callContext) {
	for _, c := range slices.Backward(p.calls[slices.Index(p.calls, c):]) {
		c.resume(p)
	}
}

// pause suspends the timeout until p ends, or reports that the context has ended.
func (c *callContext) pause(p *pause) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending.Load() != nil {
		return false
	}

	if c.pauses == nil {
		c.pauses = make(map[*pause]struct{})
	}
	c.pauses[p] = struct{}{}
	now := c.elapsed()
	c.clock.pause(now)
	c.schedule(now)
	return true
}

// resume ends p, unless it has ended.
func (c *callContext) resume(p *pause) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, pauses := c.pauses[p]; !pauses {
		return
	}

	delete(c.pauses, p)
	now := c.elapsed()
	if c.clock.resume(now) {
		c.schedule(now)
	}
}

// endPauses ends the pauses of an attempt that has ended, including those of the calls that it has made.
func (c *callContext) endPauses() {
	c.mu.Lock()
	pauses := c.stopPauses()
	if len(pauses) > 0 && c.ending.Load() == nil {
		c.schedule(c.elapsed())
	}
	c.mu.Unlock()

	for p := range pauses {
		p.endIn(c)
	}
}

// stopPauses ends all pauses as far as c is concerned, and returns them. They must end in the calls around
// c, too. c.mu must be held.
func (c *callContext) stopPauses() map[*pause]struct{} {
	pauses := c.pauses
	if pauses == nil {
		return nil // the usual case
	}

	c.pauses = nil
	for range pauses {
		c.clock.resume(c.elapsed())
	}
	return pauses
}

// timePaused returns by how much pauses have put off the maximum.
func (c *callContext) timePaused() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clock.latest - c.clock.maximum
}

// progress restarts the timeout if it may be restarted.
func (c *callContext) progress() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.elapsed()
	if c.ending.Load() == nil && !c.waiting && c.clock.progress(now) {
		c.schedule(now)
	}
}

// wait waits for the next attempt, during which there is no progress.
func (c *callContext) wait(delay time.Duration) {
	set := func(waiting bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waiting = waiting
	}
	set(true)
	defer set(false)
	sleep(c, delay)
}
