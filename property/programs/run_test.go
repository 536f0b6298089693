package programs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// This file runs a program.

func toolName(n int) string    { return fmt.Sprint("tool", n) }
func breakerName(n int) string { return fmt.Sprint("breaker", n) }

// Delays are whole seconds without jitter, so that what clients do stays at their turn.
var delays = resilience.Backoff{Base: time.Second, Max: 4 * time.Second, Jitter: resilience.NoJitter}

// run runs a program in a bubble, and returns what has happened.
func run(t *testing.T, p program) *world {
	w := &world{program: p}
	var crash any
	synctest.Test(t, func(*testing.T) {
		defer func() { crash = recover() }()
		w.begin = time.Now()
		w.guard = resilience.Must(resilience.New(w.config()))
		w.play()
	})
	if crash != nil {
		panic(crash)
	}
	return w
}

func (w *world) config() resilience.Config {
	cfg := resilience.Config{
		Tools:        make(map[string]resilience.Tool),
		Breakers:     make(map[string]resilience.BreakerConfig),
		MaxAbandoned: w.maxAbandoned,
		Observers:    []resilience.Observer{w.observer()},
		Log:          slog.New(slog.DiscardHandler),
	}
	for i, x := range w.tools {
		cfg.Tools[toolName(i)] = resilience.Tool{
			Timeout: x.timeout.time(), MaxTimeout: x.maxTimeout.time(),
			Effect: x.effect, Breaker: breakerName(x.breaker),
			Retry: &resilience.Retry{MaxRetries: x.retries, MaxElapsed: x.elapsed.time(), Backoff: delays},
		}
		b := w.breakers[x.breaker]
		cfg.Breakers[breakerName(x.breaker)] = resilience.BreakerConfig{
			Failures: b.failures, Cooldown: b.cooldown.time(), ProbeTimeout: time.Hour,
		}
	}
	return cfg
}

// play lets everyone act, waits until everything has ended, and looks at what is left.
func (w *world) play() {
	var acting sync.WaitGroup
	for i, calls := range w.clients {
		acting.Go(func() {
			time.Sleep(time.Duration(i+1) * turn)
			for _, c := range calls {
				time.Sleep(c.after.time())
				w.make(context.Background(), w.newRecord(&c, nil))
			}
		})
	}
	acting.Go(func() {
		time.Sleep(time.Duration(len(w.clients)+1) * turn)
		for _, after := range w.looks {
			time.Sleep(after.time())
			w.look()
		}
	})
	acting.Wait()
	w.settle()
	w.lookLast()
}

// make makes a call.
func (w *world) make(ctx context.Context, r *record) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	switch r.caller {
	case "cancels":
		timer := time.AfterFunc(r.patience.time(), cancel)
		defer timer.Stop()
	case "brings a deadline":
		around, ok := ctx.Deadline()
		// A later one isn't kept if the earlier one is put off.
		r.hasDeadline = !ok || time.Until(around) > r.patience.time()
		ctx, cancel = context.WithTimeout(ctx, r.patience.time())
		defer cancel()
	case "has left":
		cancel()
	}

	ctx = context.WithValue(ctx, recordKey{}, r)
	leave := func(now moment) {
		err := r.endAbove(ctx)
		if d, ok := ctx.Deadline(); err == nil && ok && !time.Now().Before(d) {
			err = context.DeadlineExceeded // it is about to say so
		}
		if r.left.never() && err != nil {
			r.left, r.leftBy = now, err
			w.endPauses(now, r.has)
		}
	}
	unwatch := context.AfterFunc(ctx, func() { w.note(leave) })
	r.do(ctx, leave)
	unwatch()
}

// endAbove returns the error of the caller's context, or of one above it that is about to end this one too.
func (r *record) endAbove(ctx context.Context) error {
	err := ctx.Err()
	for ; err == nil && r.parent != nil; r = r.parent.record {
		err = r.parent.ctx.Err()
	}
	return err
}

func (r *record) do(ctx context.Context, leave func(moment)) {
	w := r.world
	value, err := resilience.Do(ctx, w.guard, toolName(r.tool), r.perform, r.options()...)
	w.note(func(now moment) {
		leave(now)
		r.returned, r.value = now, value
		r.err, _ = err.(*resilience.Error)
		w.endPauses(now, r.has)
	})
}

func (r *record) options() (opts []resilience.Option) {
	if r.timeout > 0 {
		opts = append(opts, resilience.Timeout(r.timeout.time()))
	}
	if r.waits {
		opts = append(opts, resilience.WaitForTool())
	}
	if r.behind {
		opts = append(opts, resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral}))
	}
	return opts
}

// perform is the function of every tool.
func (r *record) perform(ctx context.Context) (*attempt, error) {
	a := &attempt{record: r, ctx: ctx}
	w := r.world
	w.note(func(now moment) {
		a.began = now
		r.attempts = append(r.attempts, a)
		a.number = len(r.attempts)
	})
	if n := resilience.Attempt(ctx); n != a.number {
		w.problem("promise 3: %s has the number %d", a, n)
	}
	defer w.note(func(now moment) {
		a.ended, a.late = now, ctx.Err() != nil
		w.endPauses(now, func(other *attempt) bool { return other == a })
	})

	script := r.call.attempts[min(a.number, len(r.call.attempts))-1]
	for _, s := range script.steps {
		if err := a.do(s); err != nil {
			return a, err
		}
	}
	if script.ending == "" {
		return a, nil
	}
	return a, a.fail(endingOf(script.ending), nil)
}

func (r *record) has(a *attempt) bool { return a.record == r }

func (a *attempt) fail(e ending, inner error) error {
	c := &cause{attempt: a, inner: inner}
	a.world.note(func(moment) { a.ending, a.cause = &e, c })
	if e.fail == nil {
		return c
	}
	return e.fail(c)
}

func (a *attempt) do(s step) error {
	a.world.note(func(moment) { a.steps = append(a.steps, s.kind) })
	switch s.kind {
	case stepWork, stepOutlast:
		select {
		case <-time.After(max(s.time, 1).time()):
		case <-a.ctx.Done():
			if s.kind == stepWork {
				a.world.note(func(moment) { a.ending = &echo })
				return a.ctx.Err()
			}
		}
	case stepHang:
		time.Sleep(s.time.time())
	case stepProgress:
		a.world.note(func(now moment) { a.world.tick(now, s.kind, a.around()) })
		resilience.ReportProgress(a.ctx)
	case stepPause:
		p := new(pause)
		a.world.note(func(now moment) {
			p.attempts = a.around()
			a.pauses = append(a.pauses, p)
			a.world.pauses = append(a.world.pauses, p)
			a.world.tick(now, s.kind, p.attempts)
		})
		p.resume = resilience.Pause(a.ctx)
	case stepResume:
		for _, p := range a.pauses {
			p.resume()
		}
		a.world.note(func(now moment) { a.world.endPauses(now, func(other *attempt) bool { return other == a }) })
	case stepGood, stepTrouble, stepRejected:
		a.report(s.kind)
	case stepTry, stepCall:
		r := a.world.newRecord(&s.calls[0], a)
		a.world.make(a.ctx, r)
		if s.kind == stepCall && r.err != nil {
			return a.fail(passedOn(r), r.err)
		}
	}
	return nil
}

func (a *attempt) report(kind string) {
	a.world.note(func(now moment) {
		a.told = kind
		if a.changed.never() && kind != stepRejected {
			a.changed = now
		}
	})
	var err error
	switch kind {
	case stepTrouble:
		err = errors.New("503")
	case stepRejected:
		err = resilience.MarkInvalid(errors.New("404"))
	}
	resilience.ReportBackend(a.ctx, err)
}
