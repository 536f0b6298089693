package resilience

import (
	"context"
	"slices"
	"sync"
)

// Progress says that the tool whose context ctx is, or is derived from, isn't hung:
// its limit begins anew, and so does that of the attempt and those of any calls
// around it. Only tools with a Tool.MaxTimeout have limits that begin anew; MaxTimeout
// bounds the whole call regardless, and so do the caller's own deadline and its end.
// Anywhere else Progress does nothing. It may be called from any goroutine, as often as
// one likes.
//
// A call that waits for its next attempt isn't lengthened: nothing makes progress then.
func Progress(ctx context.Context) {
	first := innermost(ctx)
	if first != nil && first.over() {
		return // an attempt that was given up on: it isn't what the call waits for
	}
	for c := first; c != nil; c = innermost(c.parent) {
		c.progress()
	}
}

// Pause stops the clock of the call that ctx belongs to, and of those around it, until
// resume is called: a tool that waits for its user isn't hung. Then the limit begins anew,
// and the time that has passed doesn't count against Tool.MaxTimeout. The caller's own
// deadline and its end bound the call regardless. Several pauses of one call may overlap;
// resume may be called any number of times, from any goroutine, and the first counts; the
// end of the attempt resumes too. Outside of a guarded call Pause does nothing.
//
// While the clock stands, only the caller can end the call: pause for nothing but what ends
// by itself.
func Pause(ctx context.Context) (resume func()) {
	first := innermost(ctx)
	if first == nil || first.over() {
		return func() {}
	}
	var calls []*limited
	for c := first; c != nil; c = innermost(c.parent) {
		calls = append(calls, c)
	}
	// From the outside in: each looks at the deadline of the one around it.
	var resumes []func()
	for _, c := range slices.Backward(calls) {
		resumes = append(resumes, c.pause())
	}
	once := sync.OnceFunc(func() {
		for _, resume := range resumes {
			resume()
		}
	})
	forget := first.AfterFunc(once) // an attempt that is given up on takes its pause with it
	return func() {
		once()
		forget()
	}
}
