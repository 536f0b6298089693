package programs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
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

const maxProbeInterval = 2 * time.Second

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
			Timeout: x.timeout.time(), MaxTimeout: x.maxTimeout.time(), AttemptTimeout: x.attemptTimeout.time(),
			MaxInFlight: x.maxInFlight, Effect: x.effect, Breaker: breakerName(x.breaker), Cooperative: x.cooperative,
			Retry: &resilience.Retry{MaxRetries: x.retries, MaxElapsed: x.elapsed.time(), Backoff: delays},
		}
		b := w.breakers[x.breaker]
		cfg.Breakers[breakerName(x.breaker)] = resilience.BreakerConfig{
			Failures: b.failures, Cooldown: b.cooldown.time(), ProbeTimeout: time.Hour,
			Probe: w.probe(x.breaker), ProbeInterval: maxProbeInterval,
		}
	}
	return cfg
}

// play lets everyone act, waits until everything has ended, and looks at what is left.
func (w *world) play() {
	goroutines := runtime.NumGoroutine()
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
		for _, o := range w.operator {
			time.Sleep(o.after.time())
			w.obey(o)
		}
	})
	if w.closes > 0 {
		acting.Go(w.close)
	}

	ended := make(chan struct{})
	go func() { acting.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Hour):
		panic(fmt.Sprintf("promise 1 or 5: the run doesn't end: %s", w.stuck()))
	}
	w.settle()
	w.lookLast(goroutines)
}

func (w *world) close() {
	time.Sleep(w.closes.time() + time.Duration(len(w.clients)+2)*turn)
	w.note(func(now moment) { w.shut = now })
	if n, err := w.guard.Close(context.Background()); n != 0 || err != nil {
		w.problem("promise 5: Close returned %d, %v", n, err)
	}
	w.nothingInFlight("after Close")
}

// make makes a call. A Cooperative tool may end its goroutine.
func (w *world) make(ctx context.Context, r *record) {
	if r.detached {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	switch r.caller {
	case "cancels":
		timer := time.AfterFunc(r.patience.time(), cancel)
		defer timer.Stop()
	case "brings a deadline":
		around, ok := ctx.Deadline()
		r.hasDeadline = !ok || time.Until(around) > r.patience.time() // a later one isn't kept if the earlier is put off
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
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.do(ctx, leave)
	}()
	<-done
	unwatch()
}

// endAbove returns the error of the caller's context, or of one above it that is about to end this one too.
func (r *record) endAbove(ctx context.Context) error {
	err := ctx.Err()
	for ; err == nil && r.parent != nil && !r.detached; r = r.parent.record {
		err = r.parent.ctx.Err()
	}
	return err
}

func (r *record) do(ctx context.Context, leave func(moment)) {
	w, value, err := r.world, (*attempt)(nil), errExited
	defer w.note(func(now moment) {
		leave(now)
		r.returned, r.value, r.exited = now, value, err == errExited
		r.err, _ = err.(*resilience.Error)
		r.learnExit()
		w.endPauses(now, r.has)
	})
	value, err = resilience.Do(ctx, w.guard, toolName(r.tool), r.perform, r.options()...)
}

// learnExit learns from observers what a caller would have got whose goroutine has ended.
func (r *record) learnExit() {
	if r.exited && len(r.ends) > 0 {
		r.err = r.ends[0].Err
	}
}

var errExited = errors.New("the goroutine has ended")

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
	return append(opts, resilience.BreakerKey(r.key))
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
		r := a.world.newRecord(s.call, a)
		a.world.make(a.ctx, r)
		if s.kind == stepCall && !r.exited && r.err != nil {
			var end ending
			a.world.note(func(moment) { end = passedOn(r) }) // its caller may leave just now
			return a.fail(end, r.err)
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

func (w *world) obey(o order) {
	b := w.find(breakerName(o.breaker))
	if b == nil && o.what != "look" { // no tool has it
		return
	}
	w.note(func(now moment) { w.orders = append(w.orders, given{o, now}) })
	switch o.what {
	case "look":
		w.look()
	case "isolate":
		b.Isolate("")
	case "trip":
		b.Trip(o.time.time())
	case "reset":
		b.Reset()
	}
}

// find returns the breaker with a name, nil if there is none.
func (w *world) find(name string) *resilience.Breaker {
	for _, b := range w.guard.Breakers() {
		if b.Name() == name {
			return b
		}
	}
	return nil
}

// probe returns the Probe of a breaker and of those of its keys.
func (w *world) probe(n int) func(context.Context) error {
	cfg := w.breakers[n]
	if cfg.probe == "" {
		return nil
	}
	return func(ctx context.Context) error {
		p := &probing{breaker: breakerName(n)}
		if key := resilience.BreakerKeyOf(ctx); key != "" {
			p.breaker += "/" + key
		}
		if b := w.find(p.breaker); b != nil {
			p.state = b.State()
		}
		w.note(func(now moment) { p.began = now; w.probes = append(w.probes, p) })
		defer w.note(func(now moment) { p.ended = now })

		if time.Since(w.begin) >= cfg.back.time() {
			w.note(func(moment) { p.works = true })
			return nil
		}
		switch cfg.probe {
		case "says nothing":
			return resilience.MarkInvalid(errors.New("401"))
		case "panics":
			panic("probe")
		case "hangs":
			<-ctx.Done()
			return ctx.Err()
		case "hangs, ignoring its context":
			time.Sleep(7 * time.Second)
		}
		return errors.New("down")
	}
}
