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

// A Guard stands between a server and its tools. Create one with [New] and share it: it is safe for concurrent use.
//
// A call passes, from the outside in, the breaker, the timeout for the whole call, the retries, and the tool. The
// breaker counts the call, not its attempts. A call within another call of the same breaker passes, and
// isn't counted.
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

// New returns a guard, or an error that names every bad field of cfg.
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

// Must returns g, or panics if err isn't nil. It is for package variables.
func Must(g *Guard, err error) *Guard {
	if err != nil {
		panic(err)
	}
	return g
}

// Do calls fn as the named tool under g, which need not be in the Config. It returns by the tool's timeout, unless that
// is extended (see [ReportProgress], [Pause] and [Timeout]) or the tool is Cooperative. Every error is an [*Error],
// with the value of the last attempt, if any.
//
// fn runs on a goroutine of its own, once for each attempt. The goroutine may be abandoned, so fn must not write to
// variables that the caller reads. The context of fn ends with the call, so fn reads the body of an HTTP response
// before it returns. If the caller ends ctx, Do returns at once unless [WaitForTool] is set, and fn runs on.
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

// Message returns a sentence for a user: what happened and what to do next. On success it is "", unless the call has
// joined an earlier one.
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

// All makes all calls at once, each under its own timeout. It returns when the last one has ended, with the results in
// the order of the calls.
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

// Wrap returns a guarded handler: calling it is like calling [Do] with the named tool. The options apply to every call,
// so [ForRequest] has no place among them. With debug, an input that is a struct or a map is the call's [Args], unless
// an option gives them. An empty name and a nil handler panic.
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

// Timeout returns the timeout of a tool, listed or not, without any option.
func (g *Guard) Timeout(tool string) time.Duration {
	if s := g.listed[tool]; s != nil {
		return s.Timeout
	}
	return g.cfg.Timeouts[defaultTier(tool)]
}

// Breaker returns the breaker of a tool, listed or not. It is never nil.
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

// Close shuts the guard down. New calls are rejected with SHUTTING_DOWN, except those that calls in flight make. Close
// ends [BreakerConfig].Probe, waits for the calls in flight, but not for abandoned attempts, and then for the
// observers, as Flush does. If ctx ends first, Close returns its error and how many calls were still in flight. A tool
// or an observer must not call it.
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

// Closed reports whether [Guard.Close] was called.
func (g *Guard) Closed() bool { return g.closed.Load() }

func (g *Guard) isClosed() bool { return g != nil && g.Closed() }
