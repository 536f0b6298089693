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
	var h hold
	waited, guarded := true, false
	for c, at := innermost(ctx), ctx; c != nil; c, at = c.outer(), c.parent {
		c.asked.Store(true) // even by an attempt that was abandoned
		if c.ticket != nil {
			guarded = true
			c.ticket.giveBack()
		}
		if waited = waited && !c.over() && c.isCurrent(at); waited {
			h.calls = append(h.calls, c)
		}
	}
	giveBackAll(ctx)
	if !guarded || len(h.calls) == 0 {
		return func() {}
	}

	// From the outside in, since each call looks at the deadline of the one around it. Each watches its caller, who may
	// leave while no timer runs.
	for _, c := range slices.Backward(h.calls) {
		if c.hold(&h) {
			c.askAside((*callContext).watch)
		} else {
			h.endIn(c)
		}
	}
	return func() { h.endIn(h.calls[0]) }
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
		c.restarted(now)
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
