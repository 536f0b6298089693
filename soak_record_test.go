package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// This file records what happens in the load test: the calls, their attempts and what the observers receive.

// A record is all that is known of a call: from its caller, from its function and from the observers.
type record struct {
	soak   *soak
	tool   string
	config resilience.Tool
	parent *record // of the call whose function makes this one
	seed   uint64  // decides what the attempts do

	entry   string
	timeout time.Duration // the option; zero if there is none
	noFunc  bool

	mu       sync.Mutex // guards what follows
	attempts [maxAttempts]*attempt
	extended time.Duration                // how much longer pauses let the call take, at most
	got      *resilience.Result[*attempt] // nil if the goroutine of the caller has ended
	ended    error                        // how the caller's context had ended when the call returned
	tooLate  bool                         // its deadline had passed by then
	left     time.Time                    // when it ended

	starts, ends int
	end          resilience.CallEnd
	retries      []resilience.CallRetry
}

// An attempt is one run of the function of a call, and the value that it returns.
type attempt struct {
	*record
	dice
	ctx       context.Context
	n         int
	behaviour string
	resume    func()

	over     bool  // guarded by mu; what follows doesn't change any more then
	noEffect bool  // it certainly did nothing
	trace    error // what errors.Is finds in an error that contains its own; nil if it has none
}

const maxAttempts = 3

func (s *soak) newGuard() {
	s.Guard = newGuard(s.T, resilience.Config{
		Timeouts:     resilience.Timeouts{resilience.Quick: 20 * s.unit},
		Tools:        soakTools(s.unit),
		Breaker:      resilience.BreakerConfig{Cooldown: 15 * s.unit, ProbeTimeout: 20 * s.unit},
		MaxAbandoned: 3,
		Retry: resilience.Retry{
			MaxRetries: maxAttempts - 1,
			Backoff:    resilience.Backoff{Base: s.unit, Max: 4 * s.unit, Jitter: resilience.NoJitter},
		},
		Observers: []resilience.Observer{s.recorder()},
		Log:       slog.New(slog.DiscardHandler),
	})
}

type recordKey struct{}

// recorder adds what observers receive to the record of the call, which is in the caller's context.
func (s *soak) recorder() resilience.Observer {
	update := func(ctx context.Context, change func(*record)) {
		if r, ok := ctx.Value(recordKey{}).(*record); ok {
			r.update(func() { change(r) })
		}
	}
	return resilience.Observer{
		Breaker: s.changed,
		Start: func(ctx context.Context, _ resilience.CallStart) context.Context {
			update(ctx, func(r *record) { r.starts++ })
			return nil
		},
		End: func(ctx context.Context, e resilience.CallEnd) {
			update(ctx, func(r *record) { r.end = e; r.ends++ })
		},
		Retry: func(ctx context.Context, e resilience.CallRetry) {
			update(ctx, func(r *record) { r.retries = append(r.retries, e) })
		},
	}
}

// changed checks a change of a breaker. The changes of each form a chain, which begins at closed.
func (s *soak) changed(e resilience.BreakerChange) {
	if e.From != s.states[e.Breaker] || !slices.Contains(transitions[e.From], e.To) {
		s.Errorf("the breaker %q was %s and changes from %s to %s", e.Breaker, s.states[e.Breaker], e.From, e.To)
	}
	if e.Breaker == blameless {
		s.Errorf("the breaker %q opens", e.Breaker)
	}
	s.states[e.Breaker] = e.To
}

func (r *record) update(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// newRecord returns the record of a new call of the tool.
func (s *soak) newRecord(d dice, tool string, parent *record) *record {
	config, listed := soakTools(s.unit)[tool]
	if !listed {
		config.Timeout = s.Timeout(tool)
	}
	r := &record{soak: s, tool: tool, config: config, parent: parent, seed: d.Uint64()}
	r.entry, r.noFunc = []string{"Do", "Run", "All"}[d.IntN(3)], d.IntN(100) == 0
	if d.IntN(5) == 0 {
		r.timeout = d.upTo(40)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = append(s.records, r)
	return r
}

// call makes the call. A Cooperative tool may end its goroutine.
func (r *record) call(ctx context.Context) {
	context.AfterFunc(ctx, func() { r.update(func() { r.left = time.Now() }) })
	var got *resilience.Result[*attempt]
	defer r.update(func() {
		at, ok := ctx.Deadline()
		r.got, r.ended, r.tooLate = got, ctx.Err(), ok && !time.Now().Before(at)
	})
	a := r.enter(context.WithValue(ctx, recordKey{}, r))
	got = &a
}

// enter calls the guard by one of its functions. All takes no options.
func (r *record) enter(ctx context.Context) resilience.Result[*attempt] {
	g, fn := r.soak.Guard, r.attempt
	if r.noFunc {
		fn = nil
	}
	var options []resilience.Option
	if r.timeout != 0 {
		options = append(options, resilience.Timeout(r.timeout))
	}

	switch {
	case r.entry == "All" && r.timeout == 0:
		return resilience.All(ctx, g, resilience.Call[*attempt]{Tool: r.tool, Func: fn})[0]
	case r.entry == "Do":
		value, err := resilience.Do(ctx, g, r.tool, fn, options...)
		e, _ := err.(*resilience.Error)
		return resilience.Result[*attempt]{Value: value, Err: e}
	}
	return resilience.Run(ctx, g, r.tool, fn, options...)
}

// attempt is the function of the tool.
func (r *record) attempt(ctx context.Context) (*attempt, error) {
	n := resilience.Attempt(ctx)
	a := &attempt{record: r, ctx: ctx, n: n, trace: resilience.ErrGoexit}
	a.dice = dice{rand.New(rand.NewPCG(r.seed, uint64(n))), r.soak.unit}
	b := draw(a.dice, behaviours, func(b behaviour) bool { return r.tool != blameless || !b.fault })
	a.behaviour = b.name
	r.update(func() {
		if n > maxAttempts || r.attempts[n-1] != nil {
			r.soak.Errorf("attempt %d of: %s", n, r)
		}
		r.attempts[min(n, maxAttempts)-1] = a
	})

	defer r.update(func() { a.over = true })

	for _, step := range b.what.steps {
		if err := step(a); err != nil {
			a.trace = err
			return a, err
		}
	}
	a.trace = nil
	return a, nil
}

// call calls a tool inside of this call, unless it is two calls deep already.
func (a *attempt) call(ctx context.Context, tool string) error {
	if a.parent != nil && a.parent.parent != nil {
		return nil
	}

	r := a.soak.newRecord(a.dice, tool, a.record)
	r.call(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.begun()
	a.noEffect = n > 0 && r.attempts[n-1].over && r.attempts[n-1].noEffect
	return r.err()
}

// extend lets the call and those around it take longer, by a pause and the timeout that begins after it.
func (a *attempt) extend(pause time.Duration) {
	for r := a.record; r != nil; r = r.parent {
		r.update(func() { r.extended += pause + max(r.config.Timeout, r.config.MaxTimeout) })
	}
}

// The rest requires that r.mu is held.

func (r *record) begun() (n int) {
	for _, a := range r.attempts {
		if a != nil {
			n++
		}
	}
	return n
}

// err returns what the caller got, nil on success.
func (r *record) err() error {
	if r.got == nil || r.got.Err == nil {
		return nil
	}
	return r.got.Err
}

func (r *record) is(c resilience.Code) bool { return r.end.Err != nil && r.end.Err.Code == c }

func found(trace, in error) bool { return trace != nil && errors.Is(in, trace) }

// abandoned reports whether an attempt was abandoned: then there is no trace of what it returned.
func (r *record) abandoned(a *attempt) bool {
	switch {
	case r.config.Cooperative || r.got == nil:
		return false
	case len(r.retries) >= a.n:
		return !found(a.trace, r.retries[a.n-1].Err)
	default:
		return r.got.Value != a && !found(a.trace, r.err())
	}
}

// last returns the last attempt that wasn't abandoned, or nil.
func (r *record) last() *attempt {
	for _, a := range slices.Backward(r.attempts[:]) {
		if a != nil && !r.abandoned(a) {
			return a
		}
	}
	return nil
}

func (r *record) String() string {
	text := fmt.Sprintf("%s of %q, its caller %v: attempts", r.entry, r.tool, r.ended)
	for _, a := range r.attempts[:r.begun()] {
		text += fmt.Sprintf(" (%s: %v)", a.behaviour, a.trace)
	}
	return text + fmt.Sprintf(", got %v, end %+v, retries %v", r.err(), r.end, r.retries)
}
