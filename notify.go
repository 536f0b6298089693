package resilience

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"sync/atomic"
	"time"
)

const (
	// warningInterval is the minimum time between two warnings that an observer loses events. An
	// observer that is slow by turns would otherwise fill the log.
	warningInterval = time.Minute

	// respectTime is how long after the end of its context a tool that respects it may still return.
	respectTime = time.Second
)

// An observer wraps an [Observer] so that panics and slow functions can't affect calls: a call goes on
// without a Start that hangs, and all other events pass through a queue.
type observer struct {
	Observer
	events   queue
	starting atomic.Int64 // calls of Start that are running
	hanging  atomic.Int64 // those of them that a call has gone on without
	lost     atomic.Int64 // events lost since the observer last kept up
	warnings warnings
}

func newObservers(all []Observer, log *slog.Logger) []*observer {
	var out []*observer
	for i, o := range all {
		field := fmt.Sprintf("Observers[%d]", i)
		out = append(out, &observer{Observer: o, warnings: warnings{warner: warner{log: log}, field: field}})
	}
	return out
}

// breaker notifies the observer of a breaker's change.
func (o *observer) breaker(e BreakerChange) {
	if o.Breaker != nil {
		o.notify(func() { o.Breaker(e) })
	}
}

// connection notifies the observer of a connection's change.
func (o *observer) connection(e ConnectionChange) {
	if o.Connection != nil {
		o.notify(func() { o.Connection(e) })
	}
}

// notify queues an event. If there is no room, the event is lost.
func (o *observer) notify(event func()) {
	if !o.events.add(func() { o.deliver(event) }) {
		o.lose("an observer is too slow or blocks: events are lost until it has caught up")
	}
}

// deliver runs on the goroutine of the queue.
func (o *observer) deliver(event func()) {
	defer func() {
		if p := recover(); p != nil {
			o.warnings.panicked(p, debug.Stack())
		}
		o.look()
	}()
	event()
}

// look looks whether the observer keeps up again.
func (o *observer) look() {
	if o.hanging.Load() > 0 || !o.events.empty() {
		return
	}
	if lost := o.lost.Swap(0); lost > 0 {
		o.warnings.caughtUp(lost)
	}
}

// lose counts a lost event, and warns of the first one since the observer last kept up.
func (o *observer) lose(why string) {
	if o.lost.Add(1) == 1 {
		o.warnings.losing(why)
	}
}

// A warner writes to the log on a queue of its own, because the handler of the log may block.
type warner struct {
	log      *slog.Logger // nil means slog.Default()
	queue    queue
	printing atomic.Int32 // values that it has gone on without, and that are still being printed
}

// warnings are those about one observer.
type warnings struct {
	warner
	field string // the observer's place in the configuration

	panicReported atomic.Bool               // whether a panic was ever reported
	lossReported  atomic.Bool               // whether the current loss of events was reported
	lossTime      atomic.Pointer[time.Time] // when a loss of events was last reported
}

// panicked reports the first panic of the observer.
func (w *warnings) panicked(p any, stack []byte) {
	if !w.panicReported.Swap(true) {
		w.write("an observer panicked: further panics are not reported", "panic", p, "stack", string(stack))
	}
}

// losing reports that events are lost from now on, unless that was reported a short time ago.
func (w *warnings) losing(why string) {
	if t := w.lossTime.Load(); t != nil && time.Since(*t) < warningInterval {
		return
	}
	now := time.Now()
	w.lossTime.Store(&now)
	w.lossReported.Store(true)
	w.write(why)
}

// caughtUp reports how many events were lost, if the loss itself was reported.
func (w *warnings) caughtUp(lost int64) {
	if w.lossReported.Swap(false) {
		w.write("an observer has caught up", "lost", lost)
	}
}

func (w *warnings) write(msg string, args ...any) { w.warn(msg, append(args, "observer", w.field)...) }

// warn queues a record for the log. Values that aren't ours are formatted aside, because their methods may block,
// which must not hold up further warnings.
func (w *warner) warn(msg string, args ...any) {
	w.queue.add(func() {
		for i, v := range args {
			switch v.(type) {
			case string, int64:
			default:
				args[i], _ = printAside(w.aside, func() string { return panicText(v) })
			}
		}

		log := w.log
		if log == nil {
			log = slog.Default()
		}
		log.Warn("resilience: "+msg, args...)
	})
}

func (w *warner) aside(f func()) bool { return aside(&w.printing, f) }

// callObservers are the observers that are notified of one call.
type callObservers struct {
	started []*observer     // those whose Start has seen the call
	ctx     context.Context // holds the values that they added, and never ends
}

// notifyStart notifies all observers of the call's start and returns the context for the call.
func (c *call) notifyStart(ctx context.Context) context.Context {
	e := CallStart{Tool: c.ctx.name, Time: time.Now()}
	if c.options.request != nil {
		r := *c.options.request
		e.Request = RequestInfo{clip(r.Method), r.Client, clip(r.Session), clip(r.Protocol), maps.Clone(r.Meta)}
	}

	seen := startAll(ctx, e, c.guard.observers)
	ctx = seen.ctx
	seen.ctx = context.WithoutCancel(ctx)
	c.observers = &seen
	return ctx
}

// notifyRetry notifies the observers that the last attempt failed and will be repeated.
func (c *call) notifyRetry(delay time.Duration, err error) {
	observers := c.observers
	if observers == nil {
		return
	}

	e := CallRetry{
		Tool:    c.ctx.name,
		Label:   c.state.label(),
		Time:    time.Now(),
		Attempt: c.attempts,
		Delay:   delay,
		Err:     err,
	}
	for _, o := range observers.started {
		if o.Retry != nil {
			o.notify(func() { o.Retry(observers.ctx, e) })
		}
	}
}

// notifyEnd notifies the observers that the call has ended, and whether the breaker has counted a failure.
func (c *call) notifyEnd(counted bool) {
	observers := c.observers
	if observers == nil {
		return
	}

	e := CallEnd{
		Tool:       c.ctx.name,
		Label:      c.label(),
		Time:       c.ctx.start.Add(c.duration),
		Duration:   c.duration,
		Timeout:    c.ctx.clock.timeout,
		Attempts:   c.attempts,
		Unfinished: c.unfinished,
		Counted:    counted,
	}
	// The caller may modify what it gets, so observers get copies.
	if c.arguments != nil {
		e.Arguments = redactValue(c.arguments, &budget{}, 1)
	}
	if c.err != nil && !c.unfinished {
		e.Err = c.err.clone()
		e.Err.Details = Redact(c.err.Details)
	}

	for _, o := range observers.started {
		if o.End != nil {
			o.notify(func() { o.End(observers.ctx, e) })
		}
	}
}

// label returns the Label of the call's events. It creates no state for a tool that was never called.
func (c *call) label() string {
	if c.state != nil {
		return c.state.label()
	}
	if c.guard.listed[c.ctx.name] != nil {
		return c.ctx.name
	}
	if s, ok := c.guard.unlisted.get(c.ctx.name).(*toolState); ok && s.used.Load() {
		return s.label()
	}
	return othersName
}

// late returns the function that notifies the observers when an abandoned attempt with the context ctx
// returns. It returns nil if there are no observers.
func (c *call) late(ctx *callContext) func(error) {
	if c.observers == nil {
		return nil
	}

	// The function outlives the call and must not refer to it.
	name, label, observers := c.ctx.name, c.state.label(), c.observers
	return func(err error) {
		now := time.Now()
		late := now.Sub(ctx.ending.Load().at)
		read, echoes := ctx.echo(err)
		if late < respectTime && echoes {
			return
		}
		e := LateResult{Tool: name, Label: label, Time: now, Late: late, Err: read}
		for _, o := range observers.started {
			if o.Late != nil {
				o.notify(func() { o.Late(observers.ctx, e) })
			}
		}
	}
}

// Flush waits until the observers have received everything that happened before it was called. Call
// it before the program exits. If ctx ends first, for example because an observer blocks, Flush
// returns the error of ctx without waiting for the remaining observers. It may be called any number
// of times and concurrently, but not by an observer.
func (g *Guard) Flush(ctx context.Context) error {
	if err := g.warner.queue.flush(ctx); err != nil {
		return err
	}
	return flushAll(ctx, g.observers)
}

func flushAll(ctx context.Context, all []*observer) error {
	for _, o := range all {
		if err := o.events.flush(ctx); err != nil {
			return err
		}
		if err := o.warnings.queue.flush(ctx); err != nil {
			return err
		}
	}
	return nil
}
