package resilience

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// startTimeout is how long a call waits for Observer.Start.
const startTimeout = 100 * time.Millisecond

// An observer is an [Observer] that can't harm.
type observer struct {
	Observer
	field string // its place in the configuration
	lane  queue

	starting atomic.Int64 // Starts that were given up on and still run
	lost     atomic.Int64 // events, since it last kept up
	said     atomic.Bool  // that some were lost
	saidAt   atomic.Pointer[time.Time]
	crashed  atomic.Bool // which was said

	log     *slog.Logger // nil: slog.Default()
	notices queue        // of log, whose handler may block too
}

// quiet is how long nothing is said of further losses: an observer that is now too slow
// and now isn't would fill the log.
const quiet = time.Minute

func newObservers(all []Observer, log *slog.Logger) []*observer {
	var out []*observer
	for i, o := range all {
		out = append(out, &observer{Observer: o, field: fmt.Sprintf("Observers[%d]", i), log: log})
	}
	return out
}

// tell queues one event.
func (o *observer) tell(event func()) {
	if !o.lane.add(func() { o.told(event) }) {
		o.lose("an observer is too slow or blocks: events are lost until it has caught up")
	}
}

// told tells the observer of one event, on its lane.
func (o *observer) told(event func()) {
	defer func() {
		if p := recover(); p != nil {
			o.panicked(p, debug.Stack())
		}
		if o.lost.Load() > 0 && o.starting.Load() == 0 && o.lane.empty() {
			if n := o.lost.Swap(0); o.said.Swap(false) {
				o.notice("an observer has caught up", "lost", n)
			}
		}
	}()
	event()
}

func (o *observer) lose(why string) {
	if o.lost.Add(1) > 1 {
		return
	}
	if at := o.saidAt.Load(); at != nil && time.Since(*at) < quiet {
		return
	}
	now := time.Now()
	o.saidAt.Store(&now)
	o.said.Store(true)
	o.notice(why)
}

func (o *observer) panicked(p any, stack []byte) {
	if !o.crashed.Swap(true) {
		o.notice("an observer panicked: this is said once", "panic", p, "stack", string(stack))
	}
}

func (o *observer) notice(msg string, args ...any) {
	o.notices.add(func() {
		for i, v := range args {
			switch v.(type) {
			case string, int64:
			default:
				args[i] = fmt.Sprint(v) // here, as its String may block too
			}
		}
		log := o.log
		if log == nil {
			log = slog.Default()
		}
		log.Warn("resilience: "+msg, append(args, "observer", o.field)...)
	})
}

// start returns the context that the observer made of ctx, nil if none, and whether it
// knows of the call.
func (o *observer) start(ctx context.Context, e CallStart) (context.Context, bool) {
	const slow = "an observer's Start takes too long: events are lost until it returns"
	if o.Start == nil {
		return nil, true
	}
	if o.starting.Load() > 0 {
		o.lose(slow)
		return nil, false
	}
	limit := limitedContext(context.Background(), o.field, startTimeout, startTimeout, true)
	defer limit.stop()
	values, err, answered := enforce(limit, &o.starting, nil, func(context.Context) (context.Context, error) {
		return o.added(ctx, e), nil
	})
	if !answered {
		o.lose(slow)
		return nil, false
	}
	if p, ok := err.(*PanicError); ok {
		o.panicked(p.Value, p.Stack)
	}
	return values, err == nil
}

type startKey struct{} // of a pointer that tells one Start from another

// added makes a context for the call of what Start returns. It asks that whatever may be
// wrong with it here, where a panic is Start's.
func (o *observer) added(ctx context.Context, e CallStart) context.Context {
	token := new(int8)
	values := o.Start(context.WithValue(ctx, startKey{}, token), e)
	switch {
	case values == nil:
		return nil
	case values.Value(startKey{}) == token && values.Done() == ctx.Done():
		return values // the usual case: the same context, with more in it
	default:
		return withValues{ctx, context.WithoutCancel(values)}
	}
}

func (o *observer) breaker(e BreakerChange) {
	if o.Breaker != nil {
		o.tell(func() { o.Breaker(e) })
	}
}

// An observed is what a call keeps for its observers.
type observed struct {
	by  []*observer     // that know of it
	ctx context.Context // with their values, without an end
}

// announce tells all observers of the call's start and returns the context for it.
func (c *call) announce(ctx context.Context) context.Context {
	all := c.guard.observers
	c.observed = &observed{by: make([]*observer, 0, len(all))}
	e := CallStart{Tool: c.ctx.tool, Time: time.Now()}
	if c.options.request != nil {
		e.Request = *c.options.request
		e.Request.Meta = maps.Clone(e.Request.Meta) // observers may keep it
	}
	for _, o := range all {
		values, knows := o.start(ctx, e)
		if knows {
			c.observed.by = append(c.observed.by, o)
		}
		if values != nil {
			ctx = values
		}
	}
	c.observed.ctx = context.WithoutCancel(ctx)
	return ctx
}

// withValues is a caller's context with values of another: an observer may add to it, but
// not end it.
type withValues struct {
	context.Context
	values context.Context
}

func (c withValues) Value(key any) any {
	if v := c.values.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

// retrying tells the observers that the call's last attempt will be repeated.
func (c *call) retrying(delay time.Duration, err error) {
	if c.observed == nil {
		return
	}
	e := CallRetry{Tool: c.ctx.tool, Label: c.tool.name, Time: time.Now(), Attempt: c.attempts, Delay: delay, Err: err}
	for _, o := range c.observed.by {
		if o.Retry != nil {
			o.tell(func() { o.Retry(c.observed.ctx, e) })
		}
	}
}

// tellEnd tells the observers of the call's end.
func (c *call) tellEnd() {
	if c.observed == nil {
		return
	}
	e := CallEnd{
		Tool: c.ctx.tool, Label: c.label(), Time: c.ctx.start.Add(c.duration), Duration: c.duration,
		Limit: c.ctx.limit, Attempts: c.attempts, Unfinished: c.unfinished,
	}
	if c.err != nil && !c.unfinished {
		copied := *c.err // the caller's may be changed by him
		copied.origin = c.err
		e.Err = &copied
	}
	if c.redacted {
		e.Arguments = c.options.args
	}
	for _, o := range c.observed.by {
		if o.End != nil {
			o.tell(func() { o.End(c.observed.ctx, e) })
		}
	}
}

// label leaves no trace of a call that was refused before it came to a tool.
func (c *call) label() string {
	if c.tool != nil {
		return c.tool.name
	}
	if c.guard.listed[c.ctx.tool] != nil {
		return c.ctx.tool
	}
	if t, ok := c.guard.unlisted.Load(c.ctx.tool); ok && t.(*tool).used.Load() {
		return c.ctx.tool
	}
	return othersName
}

// late returns what tells the observers of a result that nobody waits for any more; nil
// if nobody wants to know.
func (c *call) late(ctx *limited) func(error) {
	if c.observed == nil {
		return nil
	}
	name, label, observed := c.ctx.tool, c.tool.name, c.observed
	return func(err error) {
		now := time.Now()
		e := LateResult{Tool: name, Label: label, Time: now, Late: now.Sub(ctx.endedAt()), Err: err}
		if e.Late < heeded && isEcho(err, ctx) {
			return
		}
		for _, o := range observed.by {
			if o.Late != nil {
				o.tell(func() { o.Late(observed.ctx, e) })
			}
		}
	}
}

// heeded is how soon a tool that heeds its context has returned.
const heeded = time.Second

// isEcho reports whether err says no more than that ctx has ended.
func isEcho(err error, ctx *limited) (echo bool) {
	if err == nil || crash(err) {
		return false
	}
	defer func() { _ = recover() }() // err is a tool's
	return errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))
}

// Flush waits until every observer has been told of all that had happened when it was
// called, for a program that is about to end. It returns ctx's error if that comes first,
// as it does if an observer blocks: those after it in Config.Observers were then not waited
// for. It may be called any number of times, concurrently too, but not by an observer.
func (g *Guard) Flush(ctx context.Context) error { return flushAll(ctx, g.observers) }

func flushAll(ctx context.Context, all []*observer) error {
	for _, o := range all {
		if err := o.lane.flush(ctx); err != nil {
			return err
		}
		if err := o.notices.flush(ctx); err != nil {
			return err
		}
	}
	return nil
}
