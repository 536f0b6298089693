package resilience

import (
	"context"
	"slices"
	"sync"
	"time"
)

// ReportProgress restarts the timeout of the call to which ctx belongs, and of the calls around it, if their tools have
// a MaxTimeout, which still bounds the whole call. It is cheap, and safe for concurrent use.
func ReportProgress(ctx context.Context) {
	for a := attemptOf(ctx); a != nil && !a.over.Load(); a = a.outer {
		if a.scope != nil {
			a.scope.progress()
		}
	}
}

// progress restarts the timeout if it may be restarted.
func (c *callContext) progress() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Since(c.start)
	if c.end.Load() == nil && c.limits.progress(now) {
		c.schedule(now)
	}
}

// Pause suspends the timeout of the call to which ctx belongs, and of the calls around it, until resume is called or
// the call ends. The timeout then restarts, and the pause doesn't count towards Tool.MaxTimeout. Meanwhile only the
// caller can end the call, so derive one with a timeout after Pause:
//
//	defer resilience.Pause(ctx)()
//	asking, cancel := context.WithTimeout(ctx, 5*time.Minute) // though the tool has 30 seconds
//
// A question to a person must not be repeated: a call that has been paused counts as [NonIdempotent], even if it fails
// without an effect. Pauses may overlap. Pause and resume are safe for concurrent use.
func Pause(ctx context.Context) (resume func()) {
	var paused []*callContext
	live := true
	for a := attemptOf(ctx); a != nil; a = a.outer {
		a.ticket.giveBack()
		if a.scope == nil {
			continue
		}
		a.scope.asked.Store(true) // even by an attempt that is over
		live = live && !a.over.Load()
		if live && a.scope.end.Load() == nil {
			paused = append(paused, &a.scope.callContext)
		}
	}
	if len(paused) == 0 {
		return func() {}
	}

	var resumes []func()
	for _, c := range slices.Backward(paused) { // from the outside in: a deadline depends on the calls around it
		resumes = append(resumes, c.pause())
	}
	resume = func() {
		for _, resume := range resumes {
			resume()
		}
	}
	paused[0].AfterFunc(resume)
	return resume
}

// pause suspends the timeout until resume is called or the call ends. The pause has ended when the call returns.
func (c *callContext) pause() (resume func()) {
	resume = sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		now := time.Since(c.start)
		c.limits.resume(now)
		if c.end.Load() != returned {
			c.schedule(now)
		}
	})

	c.mu.Lock()
	now := time.Since(c.start)
	c.limits.pause(now)
	c.schedule(now)
	c.mu.Unlock()
	c.AfterFunc(resume)
	return resume
}
