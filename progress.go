package resilience

import (
	"context"
	"slices"
	"sync"
)

// ReportProgress reports that the tool to which ctx belongs makes progress and doesn't
// hang. It restarts the timeout of the call, that of the attempt, and those of the calls
// around it.
//
// Only tools with a Tool.MaxTimeout have a timeout that restarts. MaxTimeout still bounds
// the whole call, and so do the caller's own deadline and cancellation. A call that waits
// for its next attempt isn't extended, since nothing makes progress then. Outside of such
// calls ReportProgress does nothing.
//
// It is safe for concurrent use and cheap enough to be called often.
func ReportProgress(ctx context.Context) {
	first := innermost(ctx)
	if first != nil && first.over() {
		return // an abandoned attempt, which the call no longer waits for
	}

	for c := first; c != nil; c = c.outer() {
		c.progress()
	}
}

// Pause suspends the timeout of the call to which ctx belongs, and those of the calls
// around it, until resume is called: a tool that waits for a person doesn't hang. The
// timeout then restarts, and the time that has passed doesn't count towards
// Tool.MaxTimeout. The end of the attempt resumes too. Outside of a guarded call Pause does
// nothing.
//
// While the timeout is paused, only the caller can end the call, by a deadline of its own or
// by cancellation. Pause only for operations that are sure to finish.
//
// What a person is asked is an effect that a retry would repeat. Whatever its [Effect], a call
// that has been paused therefore counts as [NonIdempotent], even if it fails in a way that has no
// effect: it isn't retried, and neither are the calls around it.
//
// Several pauses of one call may overlap. Pause and resume are safe for concurrent use; only
// the first call of a resume counts.
func Pause(ctx context.Context) (resume func()) {
	var calls []*callContext
	first := innermost(ctx)
	for c := first; c != nil; c = c.outer() {
		c.asked.Store(true) // even by an attempt that was abandoned
		calls = append(calls, c)
	}
	if first == nil || first.over() {
		return func() {}
	}

	// From the outside in, since each call looks at the deadline of the one around it.
	var resumes []func()
	for _, c := range slices.Backward(calls) {
		resumes = append(resumes, c.pause())
	}
	once := sync.OnceFunc(func() {
		for _, resume := range resumes {
			resume()
		}
	})

	return first.addPause(once)
}

// addPause adds a pause, which resume ends, to those that end with the attempt under way. It
// returns what ends the pause earlier.
func (c *callContext) addPause(resume func()) func() {
	c.mu.Lock()
	if c.pauses == nil {
		c.pauses = make(map[*func()]struct{})
	}
	c.pauses[&resume] = struct{}{}
	over := c.ending.Load() != nil
	c.mu.Unlock()

	end := func() {
		c.mu.Lock()
		delete(c.pauses, &resume)
		c.mu.Unlock()
		resume()
	}
	if over {
		end()
	}
	return end
}

// endPauses ends the pauses of an attempt that has ended.
func (c *callContext) endPauses() {
	c.mu.Lock()
	pauses := c.pauses
	c.pauses = nil
	c.mu.Unlock()

	for resume := range pauses {
		(*resume)()
	}
}

// paused reports whether the timeout is paused.
func (c *callContext) paused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clock.pauses > 0
}

// progress restarts the timeout if it may be restarted.
func (c *callContext) progress() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.elapsed()
	if c.ending.Load() == nil && c.clock.progress(now) {
		c.schedule(now)
	}
}

// pause suspends the timeout until resume is called, once.
func (c *callContext) pause() (resume func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.elapsed()
	c.clock.pause(now)
	if c.ending.Load() == nil {
		c.schedule(now)
	}
	return c.resume
}

func (c *callContext) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.elapsed()
	if c.clock.resume(now) && c.ending.Load() == nil {
		c.schedule(now)
	}
}
