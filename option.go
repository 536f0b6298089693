package resilience

import "time"

// An Option configures a single call.
type Option func(*options)

type options struct {
	args       any
	timeout    time.Duration
	elapsed    time.Duration // of the timeout, before the call
	effect     func() Effect // nil: nothing is known
	request    *RequestInfo  // nil: nothing is known
	invalid    *Error        // what is wrong with the options; nil: nothing
	timeoutSet bool
	waits      bool // for the tool, after the caller has left
	debug      bool
	shared     bool

	unexplained Class         // of a failure of which nothing is known
	key         string        // of the breaker
	keyOf       func() string // returns the key if there is none; may be nil
}

// Args are the arguments of the call, for the details of its error with debug. They are
// redacted as they were before the tool ran. Nil means none.
func Args(args map[string]any) Option {
	return func(o *options) { o.args = args }
}

// Debug turns debug on for the call, whatever Config.Debug is.
func Debug() Option { return func(o *options) { o.debug = true } }

// Timeout replaces the tool's timeout for the call. It is capped at the tool's MaxTimeout, or
// at the tool's timeout if that isn't set. It must be positive; otherwise the call fails with
// VALIDATION_ERROR. A call that exceeds a timeout shorter than the tool's own is TIMEOUT, but
// the breaker doesn't count it, unless progress has kept it going up to the tool's MaxTimeout. Neither does it
// count what a tool or its backend says of a deadline in the second half of that time: see [Classify].
func Timeout(d time.Duration) Option {
	return func(o *options) { o.timeout, o.timeoutSet = d, true }
}

// WaitForTool makes the call wait for its tool when the caller leaves or the caller's deadline passes.
// The context of the tool ends then, as it does without the option, and what the tool makes of that is
// the call's answer: a result that the tool returns all the same is a success, an [*Error] of its own stands, wrapped
// or not, unless it is CANCELED or TIMEOUT itself, and any other error becomes the cause of CANCELED or TIMEOUT. The
// call waits until the tool's own timeout, at the latest. It isn't retried any more. A call whose context has already
// ended reaches the tool, too.
//
// Without the option, a call returns as soon as its caller has left, and the result of a tool that
// finishes its work, or undoes it, is lost. The option is for a caller that waits for its handlers
// before it ends, as the servers of MCP SDKs do; their adapters use it for every call.
func WaitForTool() Option { return func(o *options) { o.waits = true } }

func newOptions(opts []Option) options {
	if len(opts) == 0 {
		return options{} // without a variable whose address is taken
	}

	var o options
	for _, set := range opts {
		if set != nil {
			set(&o)
		}
	}
	return o
}
