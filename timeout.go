package resilience

import (
	"context"
	"strings"
	"time"
)

// Tier names a timeout that several tools share, see Config.Timeouts. By default tools named cypher, impact or
// explore are Heavy, and others Quick.
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

// defaultTier returns the tier of a tool that is given none: Heavy for cypher, impact and
// explore, Quick for all others. It ignores case and surrounding space.
func defaultTier(tool string) Tier {
	switch strings.ToLower(strings.TrimSpace(tool)) {
	case "cypher", "impact", "explore":
		return Heavy
	}
	return Quick
}

// WithTimeout calls fn on a goroutine of its own, and returns when fn does or when the timeout has passed. A function
// that ignores its context is abandoned, and must not write to variables that the caller reads.
//
// If fn returns in time, WithTimeout returns its value and its error unchanged. Otherwise the error is TIMEOUT, also at
// an earlier deadline of ctx, or CANCELED if ctx is canceled, around the error of fn, if any; but an [*Error] of fn
// with another code is returned unchanged. A panic or runtime.Goexit of fn is TOOL_FAILED around a [*PanicError] or
// [ErrGoexit]. A timeout that isn't positive is VALIDATION_ERROR.
func WithTimeout[T any](
	ctx context.Context, tool string, timeout time.Duration, fn func(context.Context) (T, error),
) (value T, err error) {
	if e := checkFunc(ctx, tool, fn == nil); e != nil {
		return value, e
	}
	switch {
	case tool == "":
		return value, validationError("", "The tool's name is empty")
	case timeout <= 0:
		return value, validationError(tool, "timeout is %s: it must be positive", timeout)
	case ctx.Err() != nil:
		return value, endOf(ctx, tool)
	}

	c := &callContext{tool: tool, start: time.Now()}
	c.begin(ctx, newLimits(timeout, timeout), true)
	defer c.finish(returned)
	r := &runner[T]{limit: c, ctx: c, fn: fn}
	if r.run() || !r.abandon(nil) {
		value, err = r.value, r.err
		if err == nil {
			return value, nil
		}
	}

	own, _ := err.(*Error)
	deliberate := own != nil && own.Code != CodeTimeout && own.Code != CodeCanceled
	if end := c.endIfDue(); end != nil && !deliberate {
		e := end.cause.clone() // fn may still read the original
		e.addCause(err)
		return value, e
	}
	return value, crashError(tool, err)
}

// checkFunc returns why a function can't be called, nil if it can. A nil context is a
// mistake in the program and panics, as it does in the context package.
func checkFunc(ctx context.Context, tool string, isNil bool) *Error {
	if ctx == nil {
		panic("resilience: nil context")
	}
	if isNil {
		return newError(CodeToolNotFound, tool, sentence(tool, "not found: its function is nil"), false)
	}
	return nil
}
