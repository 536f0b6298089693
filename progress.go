package resilience

import "context"

// Progress says that the tool whose context ctx is, or is derived from, isn't hung:
// its limit begins anew, and so does that of the attempt and those of any calls
// around it. Only tools with a Tool.MaxTimeout have limits that begin anew; MaxTimeout
// bounds the whole call regardless, and so do the caller's own deadline and its end.
// Anywhere else Progress does nothing. It may be called from any goroutine, as often as
// one likes.
//
// A call that waits for its next attempt isn't lengthened: nothing makes progress then.
func Progress(ctx context.Context) {
	for c := innermost(ctx); c != nil; c = innermost(c.parent) {
		c.progress()
	}
}
