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

// Args are the arguments of the call: for debug, redacted before the tool runs, and to find the same call (see [Once]).
// Nil means none.
func Args(args map[string]any) Option { return func(o *options) { o.args = args } }

// Debug turns debug on for the call, even if Config.Debug is false.
func Debug() Option { return func(o *options) { o.debug = true } }

// Timeout replaces the tool's timeout for the call, and its MaxTimeout too if that is shorter. If it isn't positive,
// the call fails with VALIDATION_ERROR. If it is shorter than the tool's own timeout, no breaker counts that it was
// exceeded, unless progress has kept the call going for as long as that.
func Timeout(d time.Duration) Option {
	return func(o *options) { o.timeout, o.timeoutSet, o.capped = d, true, false }
}

// WaitForTool makes a call whose context ends wait for its tool, until the tool's own timeout at the latest, as MCP
// SDKs wait for their handlers. A success of the tool is the call's result; an error usually becomes the cause of
// CANCELED or TIMEOUT, and isn't counted or retried. A call whose context has already ended reaches the tool, too.
func WaitForTool() Option { return func(o *options) { o.waits = true } }

// BreakerKey gives the calls with this key a breaker of their own, for a tool with several backends, such as data
// sources, tenants, or hosts that agents choose. It is configured as the tool's Breaker, whose name, a slash and
// the key are its name. Tools that share a Breaker share these.
//
// Keys appear in errors, logs and metrics, so they must not be secrets. They are cut at 256 bytes. An empty key means
// the tool's own breaker. A guard keeps at most 1,024 such breakers: a further one replaces the oldest closed one, or
// is the tool's own.
func BreakerKey(key string) Option { return func(o *options) { o.key = key } }
