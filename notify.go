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

// call calls a callback of the configuration. If that panics, call warns once for each callback. w may be nil.
func (w *warner) call(callback string, f func()) {
	err := recovered(func() error { f(); return nil })
	if p, panicked := err.(*PanicError); panicked && w != nil {
		msg := callback + " panicked: further panics are not reported"
		w.once(callback, msg, "panic", p.Error(), "stack", string(p.Stack))
	}
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

// maxUnexplained is how many failures of a tool nothing may explain before Config.Log receives a warning.
const maxUnexplained = 10

// noteUnexplained warns, once for each tool, if nothing tells whose fault its failures are: their types don't, and the
// backend has never been reported. The breaker will not see an outage then.
func (c *call) noteUnexplained(e *Error) {
	unknown := e.Code == CodeToolFailed && e.class == ClassNeutral && c.scope.unexplained == ClassNeutral
	if !unknown || c.last == nil || c.guard.cfg.Classify != nil {
		return
	}
	if m := read(c.last); m.weight == weightUnknown && !m.neutral && c.state.unexplained.Add(1) == maxUnexplained {
		c.guard.warner.warnOnce("ten calls failed and nothing tells whose fault it was, so the breaker hasn't "+
			"counted them: see resilience.Transport", "tool", c.state.name)
	}
}

// notifyStart notifies all observers of the call's start and returns the context for the call.
func (e *entry) notifyStart(ctx context.Context) context.Context {
	r := e.opts.request
	info := RequestInfo{clip(r.Method), r.Client, clip(r.Session), clip(r.Protocol), maps.Clone(r.Meta)}
	start := CallStart{Tool: e.tool, Time: time.Now(), Request: info}

	for _, o := range e.guard.observers {
		if o.Start == nil {
			continue
		}
		o.warner.call(o.field, func() {
			if started := o.Start(ctx, start); started != nil {
				ctx = started
			}
		})
	}
	e.observed = context.WithoutCancel(ctx)
	return ctx
}

// notifyRetry notifies the observers that the last attempt failed and will be repeated.
func (e *entry) notifyRetry(attempt int, delay time.Duration, err error) {
	retry := CallRetry{Tool: e.tool, Label: e.label(), Time: time.Now(), Attempt: attempt, Delay: delay, Err: err}
	ctx := e.observed
	for _, o := range e.guard.observers {
		o.notify(o.Retry != nil, func() { o.Retry(ctx, retry) })
	}
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
		end.Arguments = redactValue(e.arguments, 1) // the caller may modify its own
	}
	switch {
	case err == nil:
	case errors.Is(err.Err, ErrUnfinished) && !isCrash(err.Err):
		end.Unfinished = true
	default:
		end.Err = err.clone()
		end.Err.Details = Redact(err.Details)
	}

	ctx := e.observed
	for _, o := range e.guard.observers {
		o.notify(o.End != nil, func() { o.End(ctx, end) })
	}
}

// label returns the Label of the call's events.
func (e *entry) label() string { return cmp.Or(e.state, e.guard.known(e.tool), e.guard.others).name }

// late returns a function that is called once an abandoned attempt has returned. It outlives the call.
func (c *call) late(release func()) func(error) {
	g, s, ctx, name, label := c.guard, c.scope, c.observed, c.tool, c.label()
	return func(err error) {
		release()
		end, now := s.end.Load(), time.Now()
		after := now.Sub(end.at)
		if errors.Is(err, end.err) && after < time.Second && !isCrash(err) {
			return // the tool has respected its context
		}

		late := LateResult{Tool: name, Label: label, Time: now, Late: after, Err: err}
		for _, o := range g.observers {
			o.notify(o.Late != nil, func() { o.Late(ctx, late) })
		}
	}
}

// Flush waits until the observers have received everything that happened before it was called, or until ctx ends, whose
// error it returns then. Call it before the program exits, but not in an observer.
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
