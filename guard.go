package resilience

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
)

// A Guard stands between a server and its tools. It gives each call a timeout, rejects calls
// to broken backends, retries what may be retried, and returns an [*Error] that an agent can
// act on. Create one with [New] and share it between all requests: its methods, and the
// functions that take one, are safe for concurrent use.
//
// A call on a breaker that has admitted a call around it belongs to that call: it passes, and
// only the outer one counts. One that outlives that, as with context.WithoutCancel, counts by itself.
//
// A call passes, from the outside in, the breaker, the timeout for the whole call, the retries,
// the timeout of each attempt, and the tool. The breaker counts the call, not its attempts.
type Guard struct {
	cfg       Config
	timeouts  Timeouts
	retry     *Retry              // of tools that nothing sets apart
	breakers  map[string]*Breaker // of listed tools, by name
	observers []*observer
	warner    warner
	made      time.Time
	missing   sync.Map // the names of listed tools that CheckTools has warned of

	listed   map[string]*toolState
	unlisted table      // of toolStates
	keyed    table      // of keyedBreakers
	others   *toolState // shared by all tools without a state of their own

	// These count functions that a call has gone on without, and that still run.
	examining atomic.Int32 // errors
	printing  atomic.Int32 // values, with debug

	closed  atomic.Bool
	probing atomic.Int64 // Probes that run

	member    atomic.Pointer[FleetMember] // nil unless the guard is a member of a fleet
	lastFleet atomic.Pointer[FleetMember] // of the last one that it has joined; nil if there is none
}

// New returns a guard with the given configuration, or an error that names every bad field.
func New(cfg Config) (*Guard, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}

	if cfg.MaxAbandoned == 0 {
		cfg.MaxAbandoned = defaultMaxAbandoned
	}
	cfg.Suggestions = maps.Clone(cfg.Suggestions)
	g := &Guard{
		cfg:       cfg,
		timeouts:  cfg.timeouts(),
		listed:    make(map[string]*toolState, len(cfg.Tools)),
		breakers:  make(map[string]*Breaker),
		observers: newObservers(cfg.Observers, cfg.Log),
		warner:    warner{log: cfg.Log},
		made:      time.Now(),
	}
	g.cfg.Breaker = cfg.Breaker.withDefaults()
	g.retry = g.retryOf(Tool{})

	for name, t := range cfg.Tools {
		s := g.newState(name, t, true)
		g.listed[name] = s
		g.breakers[s.breaker.name] = s.breaker
	}
	g.cfg.Tools, g.cfg.Timeouts, g.cfg.Observers, g.cfg.Breakers = nil, nil, nil, nil // they belong to the caller

	g.others = g.newState(othersName, Tool{Effect: cfg.Effect}, false)
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

// Do calls fn as the named tool under g. It returns when the tool's timeout has passed, at
// the latest, unless that is extended (see [ReportProgress], [Pause] and [Timeout]), or the
// tool is Cooperative and breaks its promise.
//
// A call that is made with the context of another one, under whichever guard, belongs to the same agent: behind an
// adapter, a failure of which nothing is known counts for neither (see Request.Unexplained).
//
// Every error is an [*Error]. With an error, Do returns the value that the last attempt
// returned, if any.
//
// If the caller ends ctx, Do returns at once, unless [WaitForTool] says otherwise: the context of fn
// ends too, but fn runs on until it returns, and its result is lost.
//
// All attempts of a call run fn. It runs on a goroutine of its own that may be abandoned, so
// it must not write to variables that the caller reads. Its context ends with the call, and with it what reads by that,
// such as the body of an answer of HTTP: fn returns what it has read. It carries the deadline, and
// [Attempt] returns the number of the attempt. If the timeout or the caller ends the call, the
// [context.Cause] of that context is an *Error.
//
// Methods of errors that fn returns, and the callbacks Classify of the Config, run on the same
// goroutine as fn, within the timeout. A Classify that blocks when it is asked about the timeout
// itself holds up the call for about 100ms. OnRetry runs on the caller's goroutine and must not block.
// With debug, arguments whose methods block hold up the call for about 100ms, and so do details and the
// cause, however many there are. Those for which there is no time are "[unprintable]".
//
// A tool that isn't listed in the Config may be called too. An empty name is VALIDATION_ERROR,
// a nil fn is TOOL_NOT_FOUND, and a context that has already ended is CANCELED or TIMEOUT. If a
// method of ctx panics before fn is called, that is TOOL_FAILED around a [*PanicError]; later it is
// ignored, and one that blocks then holds up the call for about 100ms. Before fn is called, the methods of ctx must
// not block: Do waits for them. None of these counts on a breaker or appears in Health; observers receive them. A nil
// ctx or g panics.
func Do[T any](
	ctx context.Context, g *Guard, tool string, fn func(context.Context) (T, error), opts ...Option,
) (T, error) {
	j := newJob[T](g, tool, newOptions(opts))
	value := j.do(ctx, fn)
	if j.err != nil {
		return value, j.err
	}

	return value, nil
}

// A Result is the result of a call made by [Run] or [All].
type Result[T any] struct {
	Tool     string
	Value    T
	Err      *Error        // nil means success
	Attempts int           // how often the tool was called, including abandoned attempts; 0 if it wasn't
	Duration time.Duration // of the whole call
}

// Message returns a sentence for a user: what happened and what to do next. It returns "" on
// success.
func (r Result[T]) Message() string {
	if r.Err == nil {
		return ""
	}

	msg := cmp.Or(r.Err.Message, string(r.Err.Code), "The call failed")
	switch msg[len(msg)-1] {
	case '.', '!', '?':
	default:
		msg += "."
	}
	if r.Err.Suggestion != "" {
		msg += " " + r.Err.Suggestion
	}
	return msg
}

// Run is like [Do], and returns all that is known of the call.
func Run[T any](
	ctx context.Context, g *Guard, tool string, fn func(context.Context) (T, error), opts ...Option,
) Result[T] {
	j := newJob[T](g, tool, newOptions(opts))
	return j.result(tool, j.do(ctx, fn))
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
		wg.Go(func() {
			j := newJob[T](g, call.Tool, newOptions([]Option{Args(call.Args)}))
			var value T
			defer func() { results[i] = j.result(call.Tool, value) }() // also if a Cooperative tool ends the goroutine
			value = j.do(ctx, call.Func)
		})
	}
	wg.Wait()

	return results
}

// Wrap returns a guarded handler: calling it is like calling [Do] with the named tool. With
// debug, an input that is a struct or a map takes the place of the call's [Args], unless an
// option gives them. The options apply to every call, so ForRequest, which describes a single one, has no
// place among them. An empty name and a nil g or handler panic.
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

	o := newOptions(opts)
	// A pointer may lead to a session that is in use, which must not be printed.
	kind := reflect.TypeFor[In]().Kind()
	printable := kind == reflect.Struct || kind == reflect.Map

	return func(ctx context.Context, in In) (Out, error) {
		o := o
		if printable && o.args == nil && (o.debug || g.cfg.Debug) {
			o.args = in
		}

		fn := func(ctx context.Context) (Out, error) { return handler(ctx, in) }
		j := newJob[Out](g, tool, o)
		value := j.do(ctx, fn)
		if j.err != nil {
			return value, j.err
		}
		return value, nil
	}
}

// Timeout returns the timeout of a tool, listed or not, without any option of a call.
func (g *Guard) Timeout(tool string) time.Duration {
	if s := g.listed[tool]; s != nil {
		return s.timeout
	}

	return g.timeouts[DefaultTier(tool)]
}

// AttemptTimeout returns the timeout of each attempt of a tool, listed or not, or zero if attempts have none of their
// own.
func (g *Guard) AttemptTimeout(tool string) time.Duration {
	if s := g.listed[tool]; s != nil {
		return s.attemptTimeout
	}

	return g.attemptTimeout(Tool{})
}

// Breaker returns the breaker of a tool, listed or not. It is never nil. A tool that isn't
// listed gets its breaker now, if it has none yet, as by a call, even if tools that are listed
// share a breaker of its name. It then keeps that breaker for as long as the guard exists. Tools for
// which there is no room share one.
func (g *Guard) Breaker(tool string) *Breaker {
	s := g.enter(tool, false)
	defer s.leave()
	s.kept.Store(true)
	return s.breaker
}
