package resilience

import (
	"context"
	"strings"
	"time"
)

// Tier names a time limit that several tools share. Any name may be a tier:
// Config.Timeouts gives it its limit.
type Tier string

const (
	Quick Tier = "quick" // 60s unless Config.Timeouts says otherwise
	Heavy Tier = "heavy" // 120s unless Config.Timeouts says otherwise
)

// Many MCP clients give up after 60 seconds. A limit that shall be seen by them
// must be shorter; README.md says more.
const (
	quickTimeout = 60 * time.Second
	heavyTimeout = 120 * time.Second
)

// DefaultTier is the tier of a tool that is given none: Heavy for cypher, impact
// and explore, Quick for all others. Case and surrounding space don't matter.
func DefaultTier(tool string) Tier {
	switch strings.ToLower(strings.TrimSpace(tool)) {
	case "cypher", "impact", "explore":
		return Heavy
	}
	return Quick
}

// WithTimeout calls fn on a goroutine of its own and returns by limit, whatever
// fn does. fn's context carries the deadline; if that or ctx ends the call, its
// [context.Cause] is an [*Error].
//
// If fn returns by then, its value and its own error are returned unchanged. If
// the limit, or a sooner deadline of ctx, ends the call, the error is TIMEOUT; if
// ctx is canceled, it is CANCELED; in both cases it wraps fn's error where fn
// returned one. A limit that isn't positive, a nil fn and a context that has ended
// already are errors too, and fn isn't called. A panic or a runtime.Goexit of fn is
// TOOL_FAILED around a [*PanicError] or [ErrGoexit]. A nil ctx panics.
//
// A fn that ignores its context goes on running after WithTimeout has returned. It
// must not write to variables that the caller reads.
func WithTimeout[T any](ctx context.Context, tool string, limit time.Duration, fn func(context.Context) (T, error)) (T, error) {
	var none T
	if err := checkFunc(ctx, tool, fn == nil); err != nil {
		return none, err
	}
	if err := checkName(tool); err != nil {
		return none, err
	}
	if limit <= 0 {
		return none, validationError(tool, "limit is %s: it must be positive", limit)
	}
	if err := endOf(ctx, tool); err != nil {
		return none, err
	}
	c := limitedContext(ctx, tool, limit, limit, true)
	defer c.stop()
	value, err, answered := enforce(c, nil, nil, fn)
	if answered && err == nil {
		return value, nil
	}
	ended, _ := c.ended()
	if e := settle(ended, err); e != nil {
		return value, e
	}
	return value, crashed(tool, err)
}

// settle decides between an end of the call and the error that fn returned, nil if
// it hasn't. Once the call has ended, what fn returns is most likely the echo of
// that end: so it becomes the end's cause. Only an *Error that says something else
// on purpose is left to stand, and settle returns nil for it.
func settle(ended *Error, err error) *Error {
	if ended == nil {
		return nil
	}
	if own, ok := err.(*Error); ok && own != nil && own.Code != CodeTimeout && own.Code != CodeCanceled {
		return nil
	}
	return ended.withCause(err)
}

// crashed gives a panic or a Goexit a code; any other error is left as it is.
func crashed(tool string, err error) error {
	if !crash(err) {
		return err
	}
	e := newError(CodeToolFailed, tool, subject(tool)+" failed", false)
	e.Suggestion = suggestChange
	e.Err = err
	return e
}

// checkFunc refuses what can't be called. A nil context is a mistake in the
// program, as it is for the context package.
func checkFunc(ctx context.Context, tool string, isNil bool) *Error {
	if ctx == nil {
		panic("resilience: nil context")
	}
	if isNil {
		return newError(CodeToolNotFound, tool, subject(tool)+" not found: its function is nil", false)
	}
	return nil
}

func checkName(tool string) *Error {
	if tool == "" {
		return validationError("", "The tool's name is empty")
	}
	return nil
}
