package resilience

import (
	"context"
	"time"
)

// An Observer receives events about the calls of a [Guard] and the connections of a [Connector], for
// logs, traces and metrics. [LogObserver] returns one, and the nested module adapters/otel provides
// another. Every field may be nil: the observer then doesn't receive that event.
//
// Start is called on the goroutine of the call. All other functions are called on a goroutine of the
// observer's own, in order and one at a time, so they can't delay a call and need no lock for data that
// only they use. Events carry their time, because they may be delivered late. If a function blocks, up to
// 1,024 events wait for it, and further ones are lost. If a function panics, that event is lost.
// Config.Log receives one warning in either case. [Guard.Flush] waits for the observers.
//
// The contexts that the functions receive hold the values that observers added at the start of the
// call. Except for the one of Start, they never end.
type Observer struct {
	// Start is called for every call, before anything is decided about it, even if it will be rejected.
	// The call waits for it, so it must be quick. It must be safe for concurrent use. It may return a
	// context derived from ctx with values of its own, such as a span, which the tool then receives. Nil
	// adds nothing, and neither does a panic.
	Start func(ctx context.Context, e CallStart) context.Context

	// Retry is called for each attempt that failed and will be repeated, before the delay.
	Retry func(ctx context.Context, e CallRetry)

	// End is called exactly once for every call that Start saw, including calls that were rejected.
	End func(ctx context.Context, e CallEnd)

	// Late is called when an abandoned attempt returns, possibly before the End of its call. It isn't
	// called for a tool that respected its context, which means that the tool returned the error of
	// the context within a second after the context had ended.
	Late func(ctx context.Context, e LateResult)

	// Breaker is called for each change of a breaker's state.
	Breaker func(e BreakerChange)

	// Connection is called for each change of a [Connector] that lists the observer in its
	// ConnectorConfig.
	Connection func(e ConnectionChange)
}

// CallStart describes a call that begins.
type CallStart struct {
	Tool    string // cut to 256 bytes and "…" if it is longer and not listed in the Config
	Time    time.Time
	Request RequestInfo // zero if the call belongs to no known MCP request
}

// RequestInfo describes the MCP request that a call belongs to. A zero field isn't known. Observers
// receive each of its strings cut to 256 bytes and "…" if it is longer.
type RequestInfo struct {
	Method   string         // such as "tools/call"; empty if the call belongs to no MCP request
	Client   bool           // whether this process made the request, as a client, instead of serving it
	Session  string         // the ID of the session
	Protocol string         // the version of the protocol, such as "2025-11-25"
	Meta     map[string]any // the request's _meta; observers share it and must not modify it
}

// CallRetry describes an attempt that failed and will be repeated, unless the call ends during the
// delay.
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
	Tool string

	// Label is Tool, or "(others)" for a tool that has no state of its own (see Guard.Health). Agents make up
	// names of tools, so use Label as the key of metrics: it has at most 1,024 values besides the tools in
	// the Config.
	Label string

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

// LateResult describes the result of an attempt that returned after it was abandoned.
type LateResult struct {
	Tool  string
	Label string // as in [CallEnd]
	Time  time.Time
	Late  time.Duration // since the attempt's context ended

	// Err is nil if the attempt succeeded, and a [*PanicError] or [ErrGoexit] if it crashed.
	Err error
}

// BreakerChange describes a change of a breaker's state. The change from open to half-open is noticed when a
// call arrives after the cooldown.
type BreakerChange struct {
	Breaker  string // the breaker's name
	Label    string // for metrics, which need few names: the name of the tool's breaker, without a key
	From, To State
	Cause    Cause
	Reason   string // that was given to Isolate; or why the last call failed, such as "connection refused", if known
	Time     time.Time
}

// ConnectionChange describes a change of a [Connector]: its connection came up, was lost, could not be
// dialed or was closed, or its attempts are exhausted. If [Connector.Reconnect] starts a dial, that is
// a change, too.
type ConnectionChange struct {
	Connection string          // the name of the connection
	State      ConnectionState // the new state; if another dial failed, it is the same as before
	Time       time.Time
	Attempts   int           // failed dials in a row; if the connection came up, those before it
	Err        error         // why there is no connection; nil if it came up
	NextDial   time.Duration // until the next dial; 0 if it starts now or none will
}
