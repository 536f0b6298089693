package resilience

import "time"

// An Option configures a single call.
type Option func(*options)

type options struct {
	args       any
	timeout    time.Duration
	timeoutSet bool
	capped     bool // the timeout is a client's, so the tool's MaxTimeout bounds it
	waits      bool // for the tool, after the caller has left
	debug      bool
	key        string   // of the breaker; empty means Request.BreakerKey
	once       string   // see Once
	request    *Request // noRequest if there is none
	invalid    *Error   // why the options aren't valid; nil if they are
}

// These are shared by all calls without options, or without a request. They must not be changed.
var (
	noRequest = new(Request)
	noOptions = &options{request: noRequest}
)

func newOptions(opts []Option) *options {
	if len(opts) == 0 {
		return noOptions
	}

	o := &options{request: noRequest}
	for _, set := range opts {
		if set != nil {
			set(o)
		}
	}
	return o
}

// Args are the arguments of the call, for the details of its error with debug. They are
// redacted before the tool runs. Nil means none.
func Args(args map[string]any) Option { return func(o *options) { o.args = args } }

// Debug turns debug on for the call, even if Config.Debug is false.
func Debug() Option { return func(o *options) { o.debug = true } }

// Timeout replaces the tool's timeout for the call, and its MaxTimeout too if that is shorter. It must be
// positive; otherwise the call fails with VALIDATION_ERROR. (A client's timeout, see [MetaTimeout], is
// capped at the tool's MaxTimeout.) If it is shorter than the tool's own timeout, neither a TIMEOUT nor a
// deadline error of the tool is counted, unless progress has kept the call going for as long as that.
func Timeout(d time.Duration) Option {
	return func(o *options) { o.timeout, o.timeoutSet, o.capped = d, true, false }
}

// WaitForTool makes the call wait for its tool, until the tool's own timeout at the latest, when the
// caller leaves or the caller's deadline passes. The context of the tool ends then, as it does without
// the option. A success of the tool is the call's result. An [*Error] with another code than CANCELED
// and TIMEOUT stands, and after a deadline a marked error does too. Any other error becomes the cause of
// CANCELED or TIMEOUT. The call isn't retried, and counts on no breaker, even if the tool hangs. Even a
// call whose context has already ended reaches the tool.
//
// Without the option, a call returns as soon as its caller has left, and the result of a tool that
// finishes its work, or undoes it, is lost. The option is for servers that wait for their handlers, as
// MCP SDKs do; the adapters use it for every call.
func WaitForTool() Option { return func(o *options) { o.waits = true } }

// BreakerKey gives the calls with this key a breaker of their own, for a tool with several backends:
// data sources, clusters, tenants, or hosts that agents choose. A backend that fails then doesn't shut
// the tool for the others. The breaker is configured as the tool's Breaker; its name is the name of
// that, a slash and the key. Tools that share a Breaker share the breakers of its keys.
//
// A key of more than 256 bytes is cut and ends with "…", and invalid UTF-8 is replaced. Keys appear in
// errors, logs and metrics, so they must not be secrets. An empty key, the default, means the tool's own
// breaker, and so does any key for a tool without a state of its own (see [Guard.Health]).
//
// A guard keeps at most 1,024 such breakers. A further one replaces the oldest closed one. If none is
// closed, the call counts on the tool's own breaker.
func BreakerKey(key string) Option { return func(o *options) { o.key = key } }
