package resilience_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// This file records what happens in the load test: the guards and their observers, the calls and their attempts.

// A soakGuard is a guard with the states of its breakers, as the recorder has seen them.
type soakGuard struct {
	*soak
	*resilience.Guard
	attemptTimeout time.Duration
	room           chan struct{}
	states         map[string]resilience.State
}

// An observer loses events while 1,024 of them wait for it. So that the recorder can't lose any, however slow the
// machine, a call is made only if there is room for all of its events until it is complete. Besides, any call of
// Health may change each breaker that is open.
const (
	maxAttempts   = 3
	eventsOfACall = (maxAttempts - 1) + 1 + maxAttempts + 2 // CallRetry, CallEnd, LateResult, BreakerChange
	callsAtATime  = (1024 - madeUpNames - 10) / eventsOfACall
)

func (s *soak) newGuard(attemptTimeout time.Duration) *soakGuard {
	g := &soakGuard{
		soak:           s,
		attemptTimeout: attemptTimeout,
		room:           make(chan struct{}, callsAtATime),
		states:         make(map[string]resilience.State),
	}
	discarding := slog.New(slog.NewJSONHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelDebug}))
	g.Guard = newGuard(s.T, resilience.Config{
		Timeouts:       resilience.Timeouts{resilience.Quick: 20 * s.unit},
		Tools:          soakTools(s.unit),
		Breaker:        resilience.BreakerConfig{Cooldown: 15 * s.unit, ProbeTimeout: 20 * s.unit},
		AttemptTimeout: attemptTimeout,
		MaxAbandoned:   3,
		Retry: resilience.Retry{
			MaxRetries: maxAttempts - 1,
			Backoff:    resilience.Backoff{Base: s.unit, Max: 4 * s.unit, Jitter: resilience.NoJitter},
		},
		Observers: []resilience.Observer{
			g.recorder(), starter(), panickingObserver(), s.slowObserver(), resilience.LogObserver(discarding),
		},
		Log: slog.New(slog.NewTextHandler(recorderLog{s}, nil)),
	})
	return g
}

// recorder records all events but CallStart. It has no Start, because while a Start is slow, the guard goes on without
// that observer.
func (g *soakGuard) recorder() resilience.Observer {
	return resilience.Observer{
		Breaker: g.changed,
		End: func(ctx context.Context, e resilience.CallEnd) {
			update(ctx, e.Tool, func(r *record) { r.end = e; r.ends++ })
		},
		Retry: func(ctx context.Context, e resilience.CallRetry) {
			g.count("retry")
			update(ctx, e.Tool, func(r *record) { r.retries = append(r.retries, e) })
		},
		Late: func(ctx context.Context, e resilience.LateResult) {
			g.count("late result")
			update(ctx, e.Tool, func(r *record) { r.lates = append(r.lates, e) })
		},
	}
}

func (g *soakGuard) changed(e resilience.BreakerChange) {
	g.count("change of a breaker")
	was := g.states[e.Breaker]
	if e.From == resilience.StateClosed && was != resilience.StateIsolated && strings.HasPrefix(e.Breaker, madeUp) {
		was = resilience.StateClosed // a full guard may have forgotten it once its cooldown had passed
	}
	if e.From != was || !slices.Contains(transitions[e.From], e.To) {
		g.Errorf("the breaker %q was %s and changes from %s to %s", e.Breaker, was, e.From, e.To)
	}
	if e.Breaker == blameless && g.attemptTimeout == 0 {
		g.Errorf("the breaker %q opens", e.Breaker)
	}
	g.states[e.Breaker] = e.To
}

// recorderLog fails the test if the first observer, which is the recorder, loses an event.
type recorderLog struct{ *soak }

func (l recorderLog) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("Observers[0]")) {
		l.Errorf("%s", line)
	}
	return len(line), nil
}

// starter records CallStart, and adds the record to the context.
func starter() resilience.Observer {
	return resilience.Observer{Start: func(ctx context.Context, e resilience.CallStart) context.Context {
		r := update(ctx, e.Tool, func(r *record) { r.starts++ })
		return context.WithValue(ctx, recordKey{}, r)
	}}
}

func panickingObserver() resilience.Observer {
	var events atomic.Int64
	panics := func() {
		if events.Add(1)%10 == 0 {
			panic("observer")
		}
	}
	return resilience.Observer{
		Start:   func(context.Context, resilience.CallStart) context.Context { panics(); return nil },
		Retry:   func(context.Context, resilience.CallRetry) { panics() },
		End:     func(context.Context, resilience.CallEnd) { panics() },
		Late:    func(context.Context, resilience.LateResult) { panics() },
		Breaker: func(resilience.BreakerChange) { panics() },
	}
}

// slowObserver is too slow for its events, and now and then for the call that waits for Start.
func (s *soak) slowObserver() resilience.Observer {
	var starts atomic.Int64
	return resilience.Observer{
		Start: func(context.Context, resilience.CallStart) context.Context {
			if starts.Add(1)%100 == 0 {
				s.sleep(150 * time.Millisecond)
			}
			return nil
		},
		End: func(context.Context, resilience.CallEnd) { s.sleep(5 * s.unit) },
	}
}

// A record is all that is known of a call: from its caller, from its function and from the observers.
type record struct {
	guard  *soakGuard
	tool   string
	config resilience.Tool
	parent *record // of the call whose function makes this one
	seed   uint64  // decides what the attempts do

	caller  context.Context
	entry   string
	timeout time.Duration // the option; zero if there is none
	debug   bool
	noFunc  bool

	mu       sync.Mutex // guards what follows
	attempts [maxAttempts]*attempt
	extended time.Duration // how much longer pauses let the call take, at most
	complete bool

	back    bool                         // the caller is: it has an answer, or its goroutine has ended
	got     *resilience.Result[*attempt] // the answer
	ended   error                        // how the caller's context had ended by then
	tooLate bool                         // its deadline had passed by then
	left    time.Time                    // when it ended, in fake time

	starts, ends int
	end          resilience.CallEnd
	retries      []resilience.CallRetry
	lates        []resilience.LateResult
}

type (
	callsKey  struct{} // of the []*record that are being called
	recordKey struct{} // of the *record, which an observer has added
)

// update updates the record of a call that an observer is notified of, if there is one.
func update(ctx context.Context, tool string, change func(*record)) *record {
	rs, _ := ctx.Value(callsKey{}).([]*record)
	for _, r := range rs {
		if r.tool == tool || len(r.tool) > 256 && len(tool) > 256 {
			r.update(func() { change(r) })
			return r
		}
	}
	return nil
}

// update changes the record, and checks it once it is complete.
func (r *record) update(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	if r.missing() != "" {
		return
	}

	for _, i := range invariants {
		if !i.holds(r) {
			r.guard.Errorf("violated: %s: %s", i.name, r)
			break
		}
	}
	if r.complete { // already, but one event was too many
		return
	}
	r.complete = true
	switch {
	case r.end.Unfinished:
		r.guard.count("unfinished")
	case r.end.Err == nil:
		r.guard.count("success")
	default:
		r.guard.count(string(r.end.Err.Code))
	}
	r.guard.leave(r)
}

// missing returns what the call waits for. Like what follows, it requires that r.mu is held.
func (r *record) missing() string {
	switch {
	case !r.back:
		return "its caller"
	case r.ends == 0:
		return "its CallEnd"
	case r.begun() < r.end.Attempts:
		return "the begin of an attempt"
	}
	for _, a := range r.attempts {
		if a != nil && !a.over {
			return "the end of an attempt"
		}
	}
	if missing, _ := r.compareLates(); missing {
		return "a LateResult"
	}
	return ""
}

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

// compareLates reports whether a LateResult is missing, and otherwise which ones are too many.
func (r *record) compareLates() (missing bool, extra []resilience.LateResult) {
	extra = slices.Clone(r.lates)
	for _, a := range r.attempts {
		if a == nil || !r.abandoned(a) || found(a.ctx.Err(), a.trace) || found(context.Cause(a.ctx), a.trace) {
			continue
		}

		i := slices.IndexFunc(extra, func(e resilience.LateResult) bool {
			return found(a.trace, e.Err) || a.trace == nil && e.Err == nil
		})
		if i < 0 {
			return true, nil
		}
		extra = slices.Delete(extra, i, i+1)
	}

	// An attempt that returns the error of its context has respected that, but only within a second.
	return false, slices.DeleteFunc(extra, func(e resilience.LateResult) bool {
		return e.Late >= time.Second && (found(context.Canceled, e.Err) || found(context.DeadlineExceeded, e.Err))
	})
}

func (r *record) String() string {
	text := fmt.Sprintf("%s of %q, its caller %v: attempts", r.entry, r.tool, r.ended)
	for _, a := range r.attempts {
		switch {
		case a == nil:
		case a.over && r.back:
			text += fmt.Sprintf(" (%s: %v, abandoned %t)", a.behaviour.name, a.trace, r.abandoned(a))
		default:
			text += fmt.Sprintf(" (%s: under way)", a.behaviour.name)
		}
	}
	return text + fmt.Sprintf(", got %v, end %+v, retries %v, lates %v", r.err(), r.end, r.retries, r.lates)
}

// An attempt is one run of the function of a call, and the value that it returns.
type attempt struct {
	*record
	dice
	ctx       context.Context
	n         int
	behaviour row[behaviour]
	resume    func()

	over     bool  // guarded by mu; what follows doesn't change any more then
	noEffect bool  // it certainly did nothing
	trace    error // what errors.Is finds in an error that contains its own; nil if it has none
}

// attempt is the function of the tool.
func (r *record) attempt(ctx context.Context) (*attempt, error) {
	n := resilience.Attempt(ctx)
	a := &attempt{record: r, ctx: ctx, n: n, trace: resilience.ErrGoexit}
	a.dice = dice{rand.New(rand.NewPCG(r.seed, uint64(n))), r.guard.unit}
	a.behaviour = drawBehaviour(a)
	r.update(func() {
		switch {
		case n > maxAttempts || r.attempts[n-1] != nil:
			r.guard.Errorf("attempt %d of: %s", n, r)
		case r.guard.fake && ctx.Value(recordKey{}) != r:
			r.guard.Errorf("what an observer has added doesn't reach: %s", r)
		}
		r.attempts[min(n, maxAttempts)-1] = a
	})
	defer r.update(func() { a.over = true })

	for _, step := range a.behaviour.what.steps {
		if err := step(a); err != nil {
			return a, a.returns(err)
		}
	}
	return a, a.returns(nil)
}

func (a *attempt) returns(err error) error {
	if a.trace == resilience.ErrGoexit { // the step has not set another one
		a.trace = err
	}
	return err
}
