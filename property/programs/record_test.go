package programs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// This file is what is recorded of a run: by the tools, by their callers and by an Observer.

// A moment is a time since the beginning of the run. Those of the same time are in order, too, as far as there is one.
type moment struct {
	at  time.Duration
	seq int // from 1; 0 means never
}

func (m moment) never() bool          { return m.seq == 0 }
func (m moment) before(o moment) bool { return m.seq < o.seq }

// A world is one run of a program.
type world struct {
	program
	guard *resilience.Guard
	begin time.Time

	mu       sync.Mutex // guards what follows
	seq      int
	records  []*record
	changes  []resilience.BreakerChange
	pauses   []*pause
	problems []string
}

// A record is all that is known of a call.
type record struct {
	*call
	world   *world
	number  int
	config  tool
	parent  *attempt // whose tool makes it; nil if a client does
	breaker string

	hasDeadline bool // that the caller has brought

	began    moment
	returned moment // not before what the caller got is there
	value    *attempt
	err      *resilience.Error
	left     moment // when the context of the caller has ended
	leftBy   error

	attempts []*attempt
	ticks    []tick
	ends     []resilience.CallEnd
	retries  []resilience.CallRetry
}

// A tick is what changes a timeout.
type tick struct {
	moment
	attempt *attempt // of the record; the tool that reports may be that of a call within it
	kind    string   // a step
}

// An attempt is one run of a tool.
type attempt struct {
	*record
	number  int
	ctx     context.Context
	began   moment
	ended   moment
	late    bool    // its context had ended by then
	ending  *ending // nil: it has succeeded, or runs
	cause   *cause
	steps   []string
	told    string // the last report about its backend
	changed moment // when the first report said that the backend may be another
	pauses  []*pause
	calls   []*record
}

// A pause suspends the timeouts of some attempts, the innermost first.
type pause struct {
	attempts []*attempt
	resume   func()
}

func (a *attempt) String() string {
	return fmt.Sprintf("attempt %d of call %d", a.number, a.record.number)
}

func (r *record) String() string {
	text := fmt.Sprintf("call %d (%+v): began %s, returned %s with %v",
		r.number, *r.call, r.began.at, r.returned.at, r.err)
	if r.err != nil {
		text += fmt.Sprintf(" [%s retryable %t, caused by %v]", r.err.Suggestion, r.err.Retryable, r.err.Err)
	}
	for _, a := range r.attempts {
		text += fmt.Sprintf("; attempt %d from %s to %s", a.number, a.began.at, a.ended.at)
		if a.ending != nil {
			text += " (" + a.ending.name + ")"
		}
	}
	if !r.left.never() {
		text += fmt.Sprintf("; the caller left at %s", r.left.at)
	}
	return text
}

// now returns the present moment. w.mu must be held.
func (w *world) now() moment {
	w.seq++
	return moment{time.Since(w.begin), w.seq}
}

// note changes the records.
func (w *world) note(change func(now moment)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w.now())
}

func (w *world) problem(format string, args ...any) {
	w.note(func(moment) { w.problems = append(w.problems, fmt.Sprintf(format, args...)) })
}

type recordKey struct{}

// observer records the events of calls and breakers.
func (w *world) observer() resilience.Observer {
	update := func(ctx context.Context, change func(*record)) {
		r := ctx.Value(recordKey{}).(*record)
		w.note(func(moment) { change(r) })
	}
	return resilience.Observer{
		End: func(ctx context.Context, e resilience.CallEnd) {
			update(ctx, func(r *record) { r.ends = append(r.ends, e) })
		},
		Retry: func(ctx context.Context, e resilience.CallRetry) {
			update(ctx, func(r *record) { r.retries = append(r.retries, e) })
		},
		Breaker: func(e resilience.BreakerChange) {
			w.note(func(moment) { w.changes = append(w.changes, e) })
		},
	}
}

// newRecord returns a call that begins now. parent is the attempt that makes it, nil if a client does.
func (w *world) newRecord(c *call, parent *attempt) *record {
	r := &record{call: c, world: w, config: w.tools[c.tool], parent: parent}
	r.breaker = breakerName(r.config.breaker)
	w.note(func(now moment) {
		r.began, r.number = now, len(w.records)
		w.records = append(w.records, r)
		if parent != nil {
			parent.calls = append(parent.calls, r)
		}
	})
	return r
}

// around returns the attempts that a step of a has an effect on: its own and those around it, if they haven't ended. An
// attempt that is over has no effect.
func (a *attempt) around() (all []*attempt) {
	for ; a != nil && !a.over(); a = a.parent {
		if a.ctx.Err() == nil {
			all = append(all, a)
		}
	}
	return all
}

// over reports whether the call has returned, or waits for the next attempt.
func (a *attempt) over() bool { return !a.returned.never() || len(a.retries) >= a.number }

// tick records what changes the timeouts of some attempts.
func (w *world) tick(now moment, kind string, attempts []*attempt) {
	for _, a := range attempts {
		a.ticks = append(a.ticks, tick{now, a, kind})
	}
}

// endPauses ends all pauses in a call or in an attempt that has ended, and in those around it. w.mu must be held.
func (w *world) endPauses(now moment, in func(*attempt) bool) {
	for _, p := range w.pauses {
		if i := slices.IndexFunc(p.attempts, in); i >= 0 {
			w.tick(now, stepResume, p.attempts[i:])
			p.attempts = p.attempts[:i]
		}
	}
}

// running reports whether the attempt has begun and not ended. w.mu must be held.
func (a *attempt) running() bool { return a.ended.never() }
