package resilience

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"
)

// An observer wraps an [Observer] so that panics and slow functions can't affect calls: all events but Start pass
// through a queue.
type observer struct {
	Observer
	field  string // its place in the configuration
	warner *warner
	events queue
}

func newObservers(all []Observer, w *warner) []*observer {
	var out []*observer
	for i, o := range all {
		out = append(out, &observer{Observer: o, field: fmt.Sprintf("Observers[%d]", i), warner: w})
	}
	return out
}

// notify queues an event, if the observer has a function for it. If there is no room, the event is lost.
func (o *observer) notify(listens bool, event func()) {
	if listens && !o.events.add(func() { o.warner.call(o.field, event) }) {
		o.warner.warnOnce("an observer is too slow or blocks: events are lost", "observer", o.field)
	}
}

func (o *observer) breaker(e BreakerChange) { o.notify(o.Breaker != nil, func() { o.Breaker(e) }) }

// A warner writes warnings on a queue of its own, because the handler of the log may block.
type warner struct {
	log     *slog.Logger // nil means slog.Default()
	queue   queue
	written sync.Map // the keys of warnings
}

// warnOnce queues a warning, unless one with the same words and arguments was written before.
func (w *warner) warnOnce(msg string, args ...any) { w.once(fmt.Sprint(msg, args), msg, args...) }

// once queues a warning, unless one with this key was written before.
func (w *warner) once(key, msg string, args ...any) {
	if _, written := w.written.LoadOrStore(key, nil); !written {
		w.queue.add(func() { cmp.Or(w.log, slog.Default()).Warn("resilience: "+msg, args...) })
	}
}

// call calls a callback of the configuration. If that panics, call returns false and warns once for each callback. w
// may be nil.
func (w *warner) call(callback string, f func()) (ok bool) {
	err := recovered(func() error { f(); return nil })
	if p, panicked := err.(*PanicError); panicked && w != nil {
		msg := callback + " panicked: further panics are not reported"
		w.once(callback, msg, "panic", p.Error(), "stack", string(p.Stack))
	}
	return err == nil
}

// ask returns the answer of a callback of the configuration. If that panics, the answer is otherwise. g may be nil.
func ask[T any](g *Guard, callback string, otherwise T, f func() T) T {
	var w *warner
	if g != nil {
		w = g.warner
	}
	answer := otherwise
	w.call(callback, func() { answer = f() })
	return answer
}

// callObservers are the observers of one call.
type callObservers struct {
	started []*observer     // whose Start has seen the call
	ctx     context.Context // holds the values that they added, and never ends
}

// each calls f for each of the observers, of which there may be none.
func (c *callObservers) each(f func(o *observer, ctx context.Context)) {
	if c == nil {
		return
	}
	for _, o := range c.started {
		f(o, c.ctx)
	}
}

// notifyStart notifies all observers of the call's start and returns the context for the call.
func (e *entry) notifyStart(ctx context.Context) context.Context {
	start := CallStart{Tool: e.tool, Time: time.Now()}
	if r := e.opts.request; r != nil {
		start.Request = RequestInfo{clip(r.Method), r.Client, clip(r.Session), clip(r.Protocol), maps.Clone(r.Meta)}
	}

	seen := &callObservers{}
	for _, o := range e.guard.observers {
		ok := o.Start == nil || o.warner.call(o.field, func() {
			if started := o.Start(ctx, start); started != nil {
				ctx = started
			}
		})
		if ok {
			seen.started = append(seen.started, o)
		}
	}
	seen.ctx = context.WithoutCancel(ctx)
	e.observers = seen
	return ctx
}

// notifyRetry notifies the observers that the last attempt failed and will be repeated.
func (e *entry) notifyRetry(attempt int, delay time.Duration, err error) {
	retry := CallRetry{Tool: e.tool, Label: e.label(), Time: time.Now(), Attempt: attempt, Delay: delay, Err: err}
	e.observers.each(func(o *observer, ctx context.Context) {
		o.notify(o.Retry != nil, func() { o.Retry(ctx, retry) })
	})
}

// notifyEnd notifies the observers that the call has ended, and whether the breaker has counted a failure.
func (e *entry) notifyEnd(err *Error, attempts int, counted bool) {
	now := time.Now()
	end := CallEnd{
		Tool: e.tool, Label: e.label(), Time: now, Duration: now.Sub(e.start), Timeout: e.limits.timeout,
		Attempts: attempts, Counted: counted,
	}
	if e.breaker != nil {
		end.Breaker = e.breaker.name
	}
	if e.arguments != nil {
		end.Arguments = redactValue(e.arguments, new(budget), 1) // the caller may modify its own
	}
	switch {
	case err == nil:
	case errors.Is(err.Err, ErrUnfinished) && !isCrash(err.Err):
		end.Unfinished = true
	default:
		end.Err = err.clone()
		end.Err.Details = Redact(err.Details)
	}

	e.observers.each(func(o *observer, ctx context.Context) {
		o.notify(o.End != nil, func() { o.End(ctx, end) })
	})
}

// label returns the Label of the call's events.
func (e *entry) label() string { return cmp.Or(e.state, e.guard.state(e.tool)).name }

// late returns a function that is called once an abandoned attempt has returned. It outlives the call.
func (c *call) late(limit *callContext, release func()) func(error) {
	name, label, observers := c.tool, c.label(), c.observers
	return func(err error) {
		release()
		end, now := limit.end.Load(), time.Now()
		after := now.Sub(end.at)
		if errors.Is(err, end.err) && after < time.Second && !isCrash(err) {
			return // the tool has respected its context
		}

		late := LateResult{Tool: name, Label: label, Time: now, Late: after, Err: err}
		observers.each(func(o *observer, ctx context.Context) {
			o.notify(o.Late != nil, func() { o.Late(ctx, late) })
		})
	}
}

// Flush waits until the observers have received everything that happened before it was called. Call it before the
// program exits. If ctx ends first, for example because an observer blocks, Flush returns the error of ctx without
// waiting for the remaining observers. It may be called any number of times and concurrently, but not by an observer.
func (g *Guard) Flush(ctx context.Context) error { return flushAll(ctx, g.warner, g.observers) }

// flushAll waits for the observers and then for their warnings.
func flushAll(ctx context.Context, w *warner, all []*observer) error {
	for _, o := range all {
		if err := o.events.flush(ctx); err != nil {
			return err
		}
	}
	return w.queue.flush(ctx)
}
