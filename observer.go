package resilience

import (
	"context"
	"time"
)

// An Observer is told what becomes of the calls that a [Guard] makes, for logs, traces and
// metrics, and of connections that a [Connector] keeps. List any number of them in
// Config.Observers. [LogObserver] is one, the nested module adapters/otel has another.
// Every field may be nil: the observer isn't told of that.
//
// An observer can't harm a call. But for Start, it is told on a goroutine of its own, in
// order and one thing at a time, so that what it does needs no lock against itself; events
// therefore have their own times. If it blocks, calls go on, and after 1,024 events that
// wait for it, with all that they hold, further ones are lost. If it panics, that event is
// lost. Either is said through Config.Log, but not each time. [Guard.Flush] waits until all
// have been told of everything.
//
// The contexts that it gets hold the values that observers added at the call's start; but
// for Start's, they never end.
type Observer struct {
	// Start is told of every call before anything is decided about it. It may return a
	// context with values of its own, such as a span, which is then the tool's; one
	// that ends sooner doesn't end the call, and nil adds nothing.
	//
	// The call waits for Start before its limit begins, for 100ms at most, also if its
	// caller leaves. An observer that takes longer, or panics, isn't told of that call at
	// all; nor, until a Start that takes longer has returned, of any that begins.
	Start func(ctx context.Context, e CallStart) context.Context

	// Retry is told of each attempt that failed and is to be repeated, before the delay.
	Retry func(ctx context.Context, e CallRetry)

	// End is told of the end of every call that Start was told of, exactly once for each,
	// also of those that were turned away.
	End func(ctx context.Context, e CallEnd)

	// Late is told when a tool returns that was given up on, unless it has only heeded its
	// context: that is, returned the context's own error within a second. It may come before
	// the End of its call.
	Late func(ctx context.Context, e LateResult)

	// Breaker is told of each change of state of a breaker, in order.
	Breaker func(e BreakerChange)

	// Connection is told of each change of a [Connector] that lists the observer in its
	// configuration, in order.
	Connection func(e ConnectionChange)
}

// CallStart is the beginning of a call.
type CallStart struct {
	Tool    string
	Time    time.Time
	Request RequestInfo // what an adapter said by [ForRequest]; zero: nothing
}

// CallRetry is an attempt that failed and will be repeated.
type CallRetry struct {
	Tool    string
	Label   string        // see CallEnd
	Time    time.Time     // of the failure
	Attempt int           // that failed, from 1
	Delay   time.Duration // until the next; the call may end before it is made
	Err     error         // what the tool returned, and must not change any more; its methods may panic
}

// CallEnd is the one outcome of a call.
type CallEnd struct {
	Tool string

	// Label is Tool, or "(others)" for a tool that has no state of its own: there are
	// never more Labels than tools in [Guard.Health] and one. Metrics need that, as agents
	// make names up.
	Label string

	Time       time.Time
	Duration   time.Duration // since the observers were told of its start
	Timeout    time.Duration // of the whole call, before any progress; 0: it didn't come to that
	Attempts   int           // 0: the tool wasn't called
	Err        *Error        // a copy of what the caller gets, for all observers; nil: success, or Unfinished
	Unfinished bool          // the tool said [ErrUnfinished]: neither a success nor a failure
	Arguments  any           // only with debug: redacted, as they were before the tool ran; nil: none
}

// LateResult is what came of an attempt after it was given up on.
type LateResult struct {
	Tool  string
	Label string // see CallEnd
	Time  time.Time
	Late  time.Duration // since it was given up on
	Err   error         // nil: it succeeded; a [*PanicError] or [ErrGoexit] if it crashed; methods of others may panic
}

// BreakerChange is a change of state of a breaker. From Open to HalfOpen it is noticed
// when the next call comes, or somebody asks for the state.
type BreakerChange struct {
	Breaker  string
	From, To State
	Time     time.Time
}
type RequestInfo struct {
	Method   string
	Client   bool
	Session  string
	Protocol string
	Meta     map[string]any
}
