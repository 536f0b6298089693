package resilience

import (
	"context"
	"time"
)

// An Observer receives events of a [Guard] or a [Connector]. Any field may be nil.
//
// All functions except Start are called on a goroutine of the observer's own, in order and one at a time. If one
// blocks, up to 1,024 events wait for it, and further ones are lost. If one panics, that event is lost. Config.Log
// receives one warning in either case. Their contexts hold the values that observers added at the start of the call,
// and never end.
type Observer struct {
	// Start is called for every call, on its goroutine. It must be quick and safe for concurrent use. It may return a
	// context derived from ctx with values of its own, such as a span, which the tool then receives.
	Start func(ctx context.Context, e CallStart) context.Context

	Retry      func(ctx context.Context, e CallRetry)  // called before the delay
	End        func(ctx context.Context, e CallEnd)    // called exactly once for every call, also if it was rejected
	Late       func(ctx context.Context, e LateResult) // may be called before the End of the call
	Breaker    func(e BreakerChange)
	Connection func(e ConnectionChange) // of a [Connector] that lists the observer in its ConnectorConfig
}

// CallStart describes a call that begins.
type CallStart struct {
	Tool    string // cut to 256 bytes and "…" if it is longer and not listed in the Config
	Time    time.Time
	Request RequestInfo // zero if the call belongs to no known MCP request
}

// RequestInfo describes an MCP request. Zero fields are unknown. Observers receive its strings cut to 256 bytes.
type RequestInfo struct {
	Method   string         // such as "tools/call"; empty if the call belongs to no MCP request
	Client   bool           // whether this process made the request, as a client, instead of serving it
	Session  string         // the ID of the session
	Protocol string         // the version of the protocol, such as "2025-11-25"
	Meta     map[string]any // the request's _meta; observers share it and must not modify it
}

// CallRetry describes an attempt that failed and will be repeated.
type CallRetry struct {
	Tool    string
	Label   string        // as in [CallEnd]
	Time    time.Time     // when the attempt failed
	Attempt int           // the number of the failed attempt, from 1
	Delay   time.Duration // until the next attempt
	Err     error         // the tool's error, which must not be modified
}

// CallEnd describes how a call ended.
type CallEnd struct {
	Tool     string
	Label    string // Tool, or "(others)" if that has no state of its own (see [Guard.Health]); for metrics
	Breaker  string // the name of the call's breaker; "" if the call was rejected before it came to one
	Time     time.Time
	Duration time.Duration // since the observers' Start returned

	Timeout    time.Duration // of the whole call, unless progress restarts it; 0 if the call never had one
	Attempts   int           // how often the tool was called; 0 if it was not, also if the call joined one, see Once
	Err        *Error        // a copy of the caller's, shared by all observers; nil on success or if Unfinished
	Unfinished bool          // whether the tool returned [ErrUnfinished], which is neither success nor failure
	Counted    bool          // whether the breaker has counted it as a failure
	Arguments  any           // with debug, the redacted arguments as they were before the tool ran; nil without
}

// LateResult describes the result of an abandoned attempt, unless that returned the error of its context within a
// second.
type LateResult struct {
	Tool  string
	Label string // as in [CallEnd]
	Time  time.Time
	Late  time.Duration // since the attempt's context ended
	Err   error         // nil if the attempt succeeded, and a [*PanicError] or [ErrGoexit] if it crashed
}

// BreakerChange describes a change of a breaker's state.
type BreakerChange struct {
	Breaker  string // the breaker's name
	Label    string // for metrics, which need few names: the name of the tool's breaker, without a key
	From, To State  // equal if only the reason of Isolate is new; half-open comes with a call after the cooldown
	Cause    Cause
	Reason   string // that was given to Isolate; or why the last call failed, such as "connection refused", if known
	Time     time.Time
}

// ConnectionChange describes a change of a [Connector]'s state or of its dials.
type ConnectionChange struct {
	Connection string          // the name of the connection
	State      ConnectionState // the new state; if another dial failed, it is the same as before
	Time       time.Time
	Attempts   int           // failed dials in a row; if the connection came up, those before it
	Err        error         // why there is no connection; nil if it came up
	NextDial   time.Duration // until the next dial; 0 if it starts now or none will
}
