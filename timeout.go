package resilience

import (
	"context"
	"strings"
	"sync/atomic"
	"time"
)

// Tier names a timeout that several tools share. Any name may be a tier; Config.Timeouts
// gives it its timeout.
type Tier string

const (
	Quick Tier = "quick" // 60s unless Config.Timeouts replaces it
	Heavy Tier = "heavy" // 120s unless Config.Timeouts replaces it
)

// Timeouts gives tiers their timeouts.
type Timeouts map[Tier]time.Duration

// Many MCP clients stop waiting after 60 seconds. They only see the error of a timeout
// below that, as README.md explains.
const (
	quickTimeout = 60 * time.Second
	heavyTimeout = 120 * time.Second
)

// DefaultTier returns the tier of a tool that is given none: Heavy for cypher, impact and
// explore, Quick for all others. It ignores case and surrounding space.
func DefaultTier(tool string) Tier {
	switch strings.ToLower(strings.TrimSpace(tool)) {
	case "cypher", "impact", "explore":
		return Heavy
	}
	return Quick
}

// WithTimeout calls fn on a goroutine of its own. It returns when fn does, or when the timeout
// has passed, whatever fn does then. The context of fn carries the deadline. If the timeout or ctx ends the
// call, the [context.Cause] of that context is an [*Error].
//
// If fn returns in time, WithTimeout returns its value and its error unchanged. If the
// timeout or an earlier deadline of ctx ends the call, the error is TIMEOUT. If ctx is
// canceled, it is CANCELED. Both wrap the error of fn, if fn returned one; but an *Error with another
// code than these two is returned unchanged, unless it is wrapped itself. A panic or a runtime.Goexit of
// fn is TOOL_FAILED around a [*PanicError] or [ErrGoexit].
//
// The timeout must be positive; otherwise the error is VALIDATION_ERROR. An empty tool name
// is VALIDATION_ERROR too, a nil fn is TOOL_NOT_FOUND, and a context that has already ended is
// TIMEOUT or CANCELED. In each of these cases fn isn't called. A nil ctx panics.
//
// A function that ignores its context is abandoned: it continues to run after WithTimeout
// has returned, so it must not write to variables that the caller reads.
func WithTimeout[T any](
	ctx context.Context, tool string, timeout time.Duration, fn func(context.Context) (T, error),
) (T, error) {
	var zero T
	if err := checkFunc(ctx, tool, fn == nil); err != nil {
		return zero, err
	}
	if err := checkName(tool); err != nil {
		return zero, err
	}
	if timeout <= 0 {
		return zero, validationError(tool, "timeout is %s: it must be positive", timeout)
	}
	if err := endOf(ctx, tool); err != nil {
		return zero, err
	}

	c := newCallContext(ctx, tool, timeout, timeout, true)
	defer c.stop()
	var r runner[T]
	value, err, answered := r.run(c, nil, nil, fn)
	if answered && err == nil {
		return value, nil
	}

	var cause error
	if answered {
		cause = r.failure.err
	} else if err != nil { // its methods take too long
		var examining atomic.Int32
		var read error
		if cause = unread(err); aside(&examining, func() { read = readable(err) }) {
			cause = read
		}
	}
	ended, _ := c.ended()
	own, _ := cause.(*Error)
	if e := endedWith(ended, cause, own); e != nil {
		return value, e.clone() // the function may still read the original, the cause of its context
	}
	return value, crashError(tool, err)
}
