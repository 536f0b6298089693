package resilience

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
)

// A Guard stands between a server and its tools: it gives each call a limit, turns
// calls of broken backends away, retries what may be retried, and answers with an
// [*Error] that an agent can act on. Make one with [New] and share it between all
// requests: its methods, and the functions that take one, are safe for concurrent
// use.
//
// One call goes through, from the outside in: the breaker, the limit for the whole
// call, the retries, the limit for each attempt, the tool. The breaker counts the
// call, not its attempts.
type Guard struct {
	cfg       Config
	timeouts  map[Tier]time.Duration
	listed    map[string]*tool
	breakers  map[string]*Breaker // those of listed tools, by name
	unlisted  sync.Map            // string → *tool
	growing   sync.Mutex          // held while unlisted grows
	grown     atomic.Int64        // its size
	others    *tool               // shared by all tools that found unlisted full
	observers []*observer
}

// New returns a guard configured by cfg, or an error that names every bad field.
func New(cfg Config) (*Guard, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.MaxAbandoned == 0 {
		cfg.MaxAbandoned = defaultMaxAbandoned
	}
	cfg.Retry = cfg.Retry.withDefaults()
	cfg.Suggestions = maps.Clone(cfg.Suggestions)
	g := &Guard{
		cfg:       cfg,
		timeouts:  cfg.timeouts(),
		listed:    make(map[string]*tool, len(cfg.Tools)),
		breakers:  make(map[string]*Breaker),
		observers: newObservers(cfg.Observers, cfg.Log),
	}
	for name, t := range cfg.Tools {
		g.listed[name] = g.newTool(name, t)
		g.listed[name].listed = true
		g.breakers[g.listed[name].breaker.name] = g.listed[name].breaker
	}
	g.others = g.newTool(othersName, Tool{Effect: cfg.Effect})
	g.cfg.Tools, g.cfg.Timeouts, g.cfg.Observers = nil, nil, nil // the caller's
	return g, nil
}

// Must returns g, or panics with err. It is for package variables:
//
//	var guard = resilience.Must(resilience.New(cfg))
func Must(g *Guard, err error) *Guard {
	if err != nil {
		panic(err)
	}
	return g
}

// Option is a wish for one call.
type Option func(*options)

type options struct {
	args     any
	limit    time.Duration
	effect   func() Effect
	request  *Request // nil: nothing is known
	limitSet bool
	debug    bool
	shared   bool
}

// Args are the call's arguments, for the details of its error with debug: redacted, as
// they were before the tool ran. nil: none.
func Args(args map[string]any) Option {
	return func(o *options) {
		if args != nil {
			o.args = args
		}
	}
}

// RawArgs is [Args] for arguments that are still JSON, which is read with debug only.
// Empty: none.
func RawArgs(args json.RawMessage) Option {
	return func(o *options) {
		if len(args) > 0 {
			o.args = args
		}
	}
}

// EffectFrom asks f what the effect of the tool is, if the tool isn't listed in the
// Config and the call fails: at most once for each call, on its goroutine. f is for what
// is known of a tool elsewhere, such as its MCP annotations; it must not block. If f is
// nil, panics or returns EffectUnknown, Config.Effect holds.
func EffectFrom(f func() Effect) Option { return func(o *options) { o.effect = f } }

// Shared denies a tool that isn't listed in the Config a breaker and counts of its own:
// it shares those that stand as "(others)" in Health. It is for names that an agent may
// have made up.
func Shared() Option { return func(o *options) { o.shared = true } }

// Debug turns debug on for this call, whatever Config.Debug says.
func Debug() Option { return func(o *options) { o.debug = true } }

// Limit gives this call d instead of the tool's timeout, but no more than the
// tool's MaxTimeout, or its timeout where that isn't set. A call that outruns a
// limit shorter than the tool's own is TIMEOUT, but the breaker doesn't count it. A d
// that isn't positive fails the call with VALIDATION_ERROR.
func Limit(d time.Duration) Option {
	return func(o *options) { o.limit, o.limitSet = d, true }
}

func gather(opts []Option) options {
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

// Do calls fn as the named tool, under g. It returns by the tool's limit at the
// latest, unless the tool is Cooperative and breaks its promise.
//
// Every error is an [*Error], and with it comes the value that the last attempt
// returned, if any. fn runs on a goroutine of its own that may be given up on, so it
// must not write to variables that the caller reads; all attempts of one call share
// fn. Its context carries the deadline; if the limit or the caller ends the call, its
// [context.Cause] is an *Error; and [Attempt] tells it how often it was tried.
//
// Methods of errors that fn returns, and the callbacks Classify and OnRetry of the Config,
// run on the caller's goroutine: they must not block.
//
// A tool that isn't listed in the Config may be called too. An empty name is
// VALIDATION_ERROR, a nil fn TOOL_NOT_FOUND, a context that has ended already
// CANCELED or TIMEOUT; none of these leaves a trace. A nil ctx or g panics.
func Do[T any](ctx context.Context, g *Guard, tool string, fn func(context.Context) (T, error), opts ...Option) (T, error) {
	value, c := do(ctx, g, tool, fn, gather(opts))
	if c.err != nil {
		return value, c.err
	}
	return value, nil
}

// Result is what came of a call made by [Run] or [All].
type Result[T any] struct {
	Tool     string
	Value    T
	Err      *Error        // nil: success
	Attempts int           // how often the tool was called, attempts that were given up on among them; 0: it was turned away
	Duration time.Duration // from the call to the answer
}

// Message returns a sentence for a user: what happened and what to do next. It is
// "" on success.
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

// Run is [Do] with all that is known of the call in one Result.
func Run[T any](ctx context.Context, g *Guard, tool string, fn func(context.Context) (T, error), opts ...Option) Result[T] {
	value, c := do(ctx, g, tool, fn, gather(opts))
	return Result[T]{Tool: tool, Value: value, Err: c.err, Attempts: c.attempts, Duration: c.took()}
}

// Call is one of the calls that [All] makes.
type Call[T any] struct {
	Tool string
	Args map[string]any // as for [Args]; may be nil
	Func func(context.Context) (T, error)
}

// All makes all calls at once, each under its own limit and as [Run] does, and
// returns when the last has ended: by the longest of their limits. The results are in
// the order of the calls. A nil Func is TOOL_NOT_FOUND and stops nothing else. A nil
// ctx or g panics.
func All[T any](ctx context.Context, g *Guard, calls ...Call[T]) []Result[T] {
	mustHave(ctx, g) // a panic in a goroutine could not be recovered by the caller
	results := make([]Result[T], len(calls))
	var wg sync.WaitGroup
	for i, call := range calls {
		// What stands if a Cooperative tool ends the goroutine.
		results[i] = Result[T]{Tool: call.Tool, Err: crashed(call.Tool, ErrGoexit).(*Error)}
		wg.Go(func() {
			results[i] = Run(ctx, g, call.Tool, call.Func, Args(call.Args))
		})
	}
	wg.Wait()
	return results
}

// Wrap returns handler under g: a call of it is [Do] with the named tool. With debug,
// an input that is a struct or a map stands for the call's [Args]. Options apply to
// every call. An empty name and a nil g or handler panic.
func Wrap[In, Out any](g *Guard, tool string, handler func(context.Context, In) (Out, error), opts ...Option) func(context.Context, In) (Out, error) {
	switch {
	case g == nil:
		panic("resilience: Wrap: nil *Guard")
	case tool == "":
		panic("resilience: Wrap: the tool's name is empty")
	case handler == nil:
		panic("resilience: Wrap: nil handler for tool '" + tool + "'")
	}
	o := gather(opts)
	// A pointer may lead to a session that is in use: not for printing.
	kind := reflect.TypeFor[In]().Kind()
	printable := kind == reflect.Struct || kind == reflect.Map
	return func(ctx context.Context, in In) (Out, error) {
		o := o
		if printable && o.args == nil && (o.debug || g.cfg.Debug) {
			o.args = in
		}
		value, c := do(ctx, g, tool, func(ctx context.Context) (Out, error) { return handler(ctx, in) }, o)
		if c.err != nil {
			return value, c.err
		}
		return value, nil
	}
}

// Timeout returns the limit of a tool, listed or not, before any [Limit].
func (g *Guard) Timeout(tool string) time.Duration {
	if t := g.listed[tool]; t != nil {
		return t.timeout
	}
	return g.timeouts[DefaultTier(tool)]
}

// Breaker returns the breaker of a tool, listed or not; never nil. That of a tool that
// isn't listed is made now if there is none yet, as a call would; tools for which there
// is no room share one.
func (g *Guard) Breaker(tool string) *Breaker { return g.tool(tool, false).breaker }

// mustHave panics at what only a mistake in the program can bring.
func mustHave(ctx context.Context, g *Guard) {
	if g == nil {
		panic("resilience: nil *Guard")
	}
	if ctx == nil {
		panic("resilience: nil context")
	}
}
