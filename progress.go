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

	for c := first; c != nil; c = innermost(c.parent) {
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
// Several pauses of one call may overlap. Pause and resume are safe for concurrent use; only
// the first call of a resume counts.
func Pause(ctx context.Context) (resume func()) {
	first := innermost(ctx)
	if first == nil || first.over() {
		return func() {}
	}

	var calls []*callContext
	for c := first; c != nil; c = innermost(c.parent) {
		calls = append(calls, c)
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

	forget := first.AfterFunc(once) // an abandoned attempt takes its pause with it
	return func() {
		once()
		forget()
	}
}
