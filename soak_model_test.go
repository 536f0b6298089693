package resilience_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// This file is the model of the load test: what tools and callers do, as tables, and the records of what happens.

// A dice decides what happens. Its durations are whole units, so that things often happen at the same moment.
type dice struct {
	*rand.Rand
	unit time.Duration
}

func (d dice) upTo(n int) time.Duration { return time.Duration(1+d.IntN(n)) * d.unit }

// A row of a table is drawn as often as its weight says.
type row[T any] struct {
	name   string
	weight int
	what   T
}

func draw[T any](d dice, table []row[T], allowed func(T) bool) row[T] {
	var rows []row[T]
	total := 0
	for _, r := range table {
		if allowed == nil || allowed(r.what) {
			rows = append(rows, r)
			total += r.weight
		}
	}

	n := d.IntN(total)
	for n >= rows[0].weight {
		n -= rows[0].weight
		rows = rows[1:]
	}
	return rows[0]
}

// Nothing that happens to the calls of blameless is its fault, so its breaker must stay closed.
const blameless = "blameless"

// soakTools are the tools that the guard lists.
func soakTools(unit time.Duration) map[string]resilience.Tool {
	return map[string]resilience.Tool{
		"read":        {Timeout: 20 * unit, Effect: resilience.ReadOnly},
		"put":         {Timeout: 20 * unit, Effect: resilience.Idempotent, Breaker: "backend"},
		"write":       {Timeout: 20 * unit, Effect: resilience.NonIdempotent, Breaker: "backend"},
		"unknown":     {Timeout: 20 * unit},
		"cooperative": {Timeout: 20 * unit, Effect: resilience.ReadOnly, Cooperative: true},
		"long":        {Timeout: 10 * unit, MaxTimeout: 60 * unit, Effect: resilience.ReadOnly, Breaker: "backend"},
		blameless:     {Timeout: 1_000_000 * unit, Effect: resilience.ReadOnly},
	}
}

// The names that are called. Two aren't listed.
var soakNames = []string{
	"read", "read", "put", "put", "write", "write", "unknown", "unknown", "cooperative",
	"cooperative", "long", "long", blameless, blameless, "made-up", "unlisted", "",
}

func (d dice) name() string { return soakNames[d.IntN(len(soakNames))] }

// What callers do.
var soakCallers = []row[func(dice) caller]{
	{"stays", 60, func(dice) caller { return context.WithCancel }},
	{"leaves", 20, func(d dice) caller { return leavingAfter(d.upTo(30)) }},
	{"brings a deadline", 16, func(d dice) caller { return withTimeout(d.upTo(30)) }},
	{"comes too late", 2, func(dice) caller { return withTimeout(-1) }},
	{"has left", 2, func(dice) caller { return leavingAfter(0) }},
}

// A behaviour is what the function of a tool does: step by step, until one returns an error. If it is a fault of the
// tool, blameless doesn't do it. Each behaviour comes to an end by itself.
type behaviour struct {
	fault bool
	steps []step
}

type step = func(*attempt) error

func harmless(s ...step) behaviour { return behaviour{steps: s} }
func fault(s ...step) behaviour    { return behaviour{true, s} }

var behaviours []row[behaviour]

func init() { // because functions call tools, whose functions have a behaviour
	behaviours = []row[behaviour]{
		{"succeeds", 30, harmless()},
		{"fails", 25, harmless(fail)}, // the tool blameless only in ways that are no fault
		{"panics", 3, fault(crash)},
		{"exits", 6, fault(leave)},
		{"works and succeeds", 25, harmless(work(15))},
		{"works and fails", 10, harmless(work(15), fail)},
		{"hangs and succeeds", 5, harmless(hangs(60))},
		{"hangs and fails", 5, harmless(hangs(60), fail)},
		{"works until its end", 5, harmless(work(100))},
		{"succeeds at its end", 3, harmless(outlast)},
		{"fails at its end", 5, harmless(outlast, fail)},
		{"hangs at its end", 2, harmless(outlast, hangs(30))},
		{"reports progress", 5, harmless(work(12), progress, work(12), progress, work(12), progress, work(12))},
		{"pauses", 5, harmless(work(12), pause, work(30), resume, work(12))},
		{"forgets to resume", 3, harmless(pause, work(30))},
		{"calls itself", 3, fault(callItself)},
		{"calls another tool", 5, fault(callAnother)},
		{"calls a tool and cancels that", 3, fault(callAndCancel)},
	}
}

// work takes up to n units, or until the context ends.
func work(n int) step {
	return func(a *attempt) error {
		select {
		case <-due(a.upTo(n)):
			return nil
		case <-a.ctx.Done():
			return a.ctx.Err()
		}
	}
}

// hangs ignores the context for up to n units.
func hangs(n int) step {
	return func(a *attempt) error { time.Sleep(a.upTo(n)); return nil }
}

// outlast waits for the end of the context, but not for long.
func outlast(a *attempt) error { _ = work(100)(a); return nil }

func crash(a *attempt) error { a.trace = errors.New("panic"); panic(a.trace) }

// leave ends the goroutine, but only that of a first attempt, because later ones look the same.
func leave(a *attempt) error {
	if a.n > 1 {
		return crash(a)
	}
	runtime.Goexit()
	return nil
}

func progress(a *attempt) error { resilience.ReportProgress(a.ctx); return nil }
func resume(a *attempt) error   { a.resume(); a.resume(); return nil }
func pause(a *attempt) error    { a.resume = resilience.Pause(a.ctx); return nil }

func callItself(a *attempt) error  { return a.call(a.ctx, a.tool) }
func callAnother(a *attempt) error { return a.call(a.ctx, a.name()) }

func callAndCancel(a *attempt) error {
	ctx, cancel := leavingAfter(a.upTo(10))(a.ctx)
	defer cancel()
	return a.call(ctx, a.name())
}

// A soakFailure is an error that a function returns. Each error is a new one, by which it is found again.
type soakFailure struct {
	kind kind
	err  func() error
}

type kind uint8

const (
	ambiguous kind = iota // the function may have done something
	noEffect              // the function certainly did nothing
	noFault               // of the tool
)

var soakFailures = []row[soakFailure]{
	{"an error", 20, soakFailure{ambiguous, func() error { return errors.New("failed") }}},
	{"transient", 5, soakFailure{noEffect, func() error { return resilience.MarkNoEffect(errBoom) }}},
	{"permanent", 5, soakFailure{ambiguous, func() error { return resilience.MarkPermanent(errBoom) }}},
	{"invalid", 5, soakFailure{noFault, func() error { return resilience.MarkInvalid(errBoom) }}},
	{"unfinished", 5, soakFailure{noFault, func() error { return fmt.Errorf("%w", resilience.ErrUnfinished) }}},
	{"busy", 5, soakFailure{ambiguous, func() error {
		return &resilience.Error{Code: "BUSY", Message: "Busy.", Retryable: true, RetryAfter: 5 * time.Millisecond}
	}}},
	{"a TIMEOUT", 3, soakFailure{ambiguous, func() error { return resilience.TimeoutError("other", 1) }}},
	{"a CANCELED", 3, soakFailure{noFault, func() error { return &resilience.Error{Code: resilience.CodeCanceled} }}},
	{"a rejection", 3, soakFailure{noFault, func() error { return resilience.CircuitOpenError("other", time.Hour) }}},
	{"a canceled part", 3, soakFailure{ambiguous, func() error { return fmt.Errorf("%w", context.Canceled) }}},
	{"a deadline", 3, soakFailure{ambiguous, func() error { return fmt.Errorf("%w", context.DeadlineExceeded) }}},
	{"refused", 5, soakFailure{noEffect, func() error { return fmt.Errorf("dial: %w", syscall.ECONNREFUSED) }}},
	{"reset", 5, soakFailure{ambiguous, func() error { return fmt.Errorf("read: %w", syscall.ECONNRESET) }}},
	{"one refused", 5, soakFailure{ambiguous, func() error { return errors.Join(syscall.ECONNREFUSED, io.EOF) }}},
}

// fail returns an error, of blameless one that is no fault.
func fail(a *attempt) error {
	f := draw(a.dice, soakFailures, func(f soakFailure) bool { return f.kind == noFault || a.tool != blameless }).what
	a.noEffect = f.kind == noEffect
	return f.err()
}

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
	got      *resilience.Result[*attempt] // nil if the goroutine of the caller has ended

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

// changed checks a change of a breaker. The changes of each form a chain, which begins at closed. It has no lock,
// because observers receive one event at a time; the race detector checks that.
func (s *soak) changed(e resilience.BreakerChange) {
	if e.From != cmp.Or(s.states[e.Breaker], resilience.StateClosed) || !slices.Contains(transitions[e.From], e.To) {
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
	got := r.enter(context.WithValue(ctx, recordKey{}, r))
	r.update(func() { r.got = &got })
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
	text := fmt.Sprintf("%s of %q: attempts", r.entry, r.tool)
	for _, a := range r.attempts[:r.begun()] {
		text += fmt.Sprintf(" (%s: %v)", a.behaviour, a.trace)
	}
	return text + fmt.Sprintf(", got %v, end %+v, retries %v", r.err(), r.end, r.retries)
}
