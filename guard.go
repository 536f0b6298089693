package resilience

import (
	"cmp"
	"context"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Guard stands between a server and its tools. It gives each call a timeout, rejects calls
// to broken backends, retries failures that may be retried, and returns an [*Error] that an agent
// can act on. Create one with [New] and share it between all requests: its methods, and the
// functions that take one, are safe for concurrent use.
//
// A call passes, from the outside in, the breaker, the timeout for the whole call, the retries,
// and the tool. The breaker counts the call, not its attempts. A call
// on a breaker that has admitted a call around it belongs to that call: it passes, and only the
// outer one counts.
type Guard struct {
	cfg       Config                // only New reads its Tools, Breakers and Observers
	listed    map[string]*toolState // the tools in the Config
	unlisted  table[string, *toolState]
	others    *toolState // shared by all tools without a state of their own
	keyed     table[keyName, *Breaker]
	orphans   table[onceKey, *orphan]
	observers []*observer
	warner    *warner

	inFlight atomic.Int64 // calls
	shared   atomic.Bool  // others has been used
	closed   atomic.Bool
}

// New returns a guard with the given configuration, or an error that names every bad field.
func New(cfg Config) (*Guard, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}

	g := &Guard{cfg: cfg, listed: make(map[string]*toolState), warner: &warner{log: cfg.Log}}
	g.observers = newObservers(cfg.Observers, g.warner)
	breakers := make(map[string]*Breaker)
	for name, t := range cfg.Tools {
		b := cmp.Or(t.Breaker, name)
		if breakers[b] == nil {
			own := cfg.Breakers[b].or(cfg.Breaker)
			breakers[b] = g.newBreaker(b, "", &own)
		}
		g.listed[name] = g.newState(name, t, breakers[b])
		g.listed[name].listed = true
	}
	g.others = g.newUnlisted(othersName)
	return g, nil
}

// Must returns g, or panics if err isn't nil. It is for package variables:
//
//	var guard = resilience.Must(resilience.New(cfg))
func Must(g *Guard, err error) *Guard {
	if err != nil {
		panic(err)
	}
	return g
}

// Do calls fn as the named tool under g. It returns by the tool's timeout, unless that is extended
// (see [ReportProgress], [Pause] and [Timeout]) or the tool is Cooperative. Every error is an
// [*Error]; with an error, Do returns the value of the last attempt, if any.
//
// fn runs on a goroutine of its own, once for each attempt. The goroutine may be abandoned, so fn
// must not write to variables that the caller reads. The context of fn carries the deadline and the
// number of the attempt (see [Attempt]), and ends with the call, so fn reads the body of an HTTP
// response before it returns. Its [context.Cause] is an *Error. If the caller ends ctx, Do returns
// at once unless [WaitForTool] is set: fn runs on, and only the same call receives its result, see [Once].
//
// A tool that isn't in the Config may be called too. An empty name is VALIDATION_ERROR, a nil fn is
// TOOL_NOT_FOUND, and an ended context is CANCELED or TIMEOUT; no breaker counts these. A nil ctx or
// g panics.
func Do[T any](
	ctx context.Context, g *Guard, tool string, fn func(context.Context) (T, error), opts ...Option,
) (T, error) {
	var r Result[T]
	do(ctx, g, tool, fn, newOptions(opts), &r, false)
	if r.Err != nil {
		return r.Value, r.Err
	}
	return r.Value, nil // a nil *Error in an error isn't nil
}

// A Result is the result of a call made by [Run] or [All].
type Result[T any] struct {
	Tool     string
	Value    T
	Err      *Error        // nil means success
	Attempts int           // how often the tool was called, including abandoned attempts; 0 if it wasn't
	Duration time.Duration // since the observers' Start returned
	Joined   time.Duration // how long ago the same call was made whose Value this is, see Once; 0 if there is none
}

// Message returns a sentence for a user: what happened and what to do next. On success it is "", or tells that the call
// has joined an earlier one.
func (r Result[T]) Message() string {
	switch {
	case r.Err == nil && r.Joined > 0:
		return "This is the result of the same call made " + plural(wholeSeconds(r.Joined), "second") +
			" ago, whose answer you did not receive."
	case r.Err == nil:
		return ""
	}

	msg := cmp.Or(r.Err.Message, string(r.Err.Code), "The call failed")
	return strings.TrimSpace(stopped(msg) + " " + r.Err.Suggestion)
}

// Run is like [Do], and returns everything that is known of the call.
func Run[T any](
	ctx context.Context, g *Guard, tool string, fn func(context.Context) (T, error), opts ...Option,
) Result[T] {
	var r Result[T]
	do(ctx, g, tool, fn, newOptions(opts), &r, true)
	return r
}

// A Call is one of the calls that [All] makes.
type Call[T any] struct {
	Tool string
	Args map[string]any // as for [Args]; may be nil
	Func func(context.Context) (T, error)
}

// All makes all calls at once, each under its own timeout, as [Run] does. It returns when the
// last one has ended, with the results in the order of the calls. A nil Func is TOOL_NOT_FOUND
// and doesn't affect the other calls. A nil ctx or g panics.
func All[T any](ctx context.Context, g *Guard, calls ...Call[T]) []Result[T] {
	mustHave(ctx, g) // the caller could not recover a panic in a goroutine

	results := make([]Result[T], len(calls))
	var wg sync.WaitGroup
	for i, call := range calls {
		opts := newOptions([]Option{Args(call.Args)})
		wg.Go(func() { do(ctx, g, call.Tool, call.Func, opts, &results[i], true) }) // also if the tool calls Goexit
	}
	wg.Wait()
	return results
}

// Wrap returns a guarded handler: calling it is like calling [Do] with the named tool. With
// debug, an input that is a struct or a map takes the place of the call's [Args], unless an
// option gives them. The options apply to every call, so [ForRequest] has no place among them.
// An empty name and a nil g or handler panic.
func Wrap[In, Out any](
	g *Guard, tool string, handler func(context.Context, In) (Out, error), opts ...Option,
) func(context.Context, In) (Out, error) {
	switch {
	case g == nil:
		panic("resilience: Wrap: nil *Guard")
	case tool == "":
		panic("resilience: Wrap: the tool's name is empty")
	case handler == nil:
		panic("resilience: Wrap: nil handler for tool '" + tool + "'")
	}

	kind := reflect.TypeFor[In]().Kind() // a pointer may lead to a session that is in use
	printable := (kind == reflect.Struct || kind == reflect.Map) && (g.cfg.Debug || newOptions(opts).debug)

	return func(ctx context.Context, in In) (Out, error) {
		all := opts
		if printable {
			all = append([]Option{func(o *options) { o.args = in }}, opts...)
		}
		return Do(ctx, g, tool, func(ctx context.Context) (Out, error) { return handler(ctx, in) }, all...)
	}
}

// Timeout returns the timeout of a tool, listed or not, without any option of a call.
func (g *Guard) Timeout(tool string) time.Duration {
	if s := g.listed[tool]; s != nil {
		return s.Timeout
	}
	return g.cfg.Timeouts[defaultTier(tool)]
}

// Breaker returns the breaker of a tool, listed or not. It is never nil. A tool that isn't listed gets a
// state of its own now, as by a call (see [Guard.Health]).
func (g *Guard) Breaker(tool string) *Breaker { return g.state(tool, true).breaker }

// mustHave panics if the program has made a mistake.
func mustHave(ctx context.Context, g *Guard) {
	if g == nil {
		panic("resilience: nil *Guard")
	}
	if ctx == nil {
		panic("resilience: nil context")
	}
}

// Close shuts the guard down. New calls are rejected with SHUTTING_DOWN, which no breaker counts, except
// those that calls in flight make. Close waits for the calls in flight, ends [BreakerConfig].Probe, and then
// waits for the observers, as Flush does. It doesn't wait for abandoned attempts.
//
// If ctx ends first, Close returns its error and how many calls were still in flight; it doesn't end them.
// Close may be called any number of times and concurrently, but not by a tool or an observer. Connectors
// have their own Close.
func (g *Guard) Close(ctx context.Context) (inFlight int, err error) {
	g.closed.Store(true)
	for _, b := range g.Breakers() {
		b.stopProbe()
	}

	if err := poll(ctx, func() bool { return g.inFlight.Load() <= 0 }); err != nil {
		return int(g.inFlight.Load()), err
	}
	return 0, g.Flush(ctx)
}

// Closed reports whether [Guard.Close] was called, so that the guard rejects new calls.
func (g *Guard) Closed() bool { return g.closed.Load() }

func (g *Guard) isClosed() bool { return g != nil && g.Closed() }
