package resilience

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A Breaker rejects calls while what they call is broken. It opens after consecutive
// failures, lets one probe pass after a cooldown, and closes as soon as a probe succeeds.
// One breaker serves calls of any result type, and all its methods are safe for concurrent
// use. Create one with [NewBreaker].
//
// An open breaker recovers by itself: a call is the probe after the Cooldown, or BreakerConfig.Probe asks the
// backend in the background. Isolate, Trip and Reset change the state by hand.
//
// It is gobreaker's two-step breaker, plus what that leaves to its user: results that count
// once, a probe that can't be lost, the time until the next probe, and changes that are
// reported outside of its lock.
type Breaker struct {
	name  string
	of    keyName        // what the guard keeps it for; zero if no fleet may share it
	cfg   *BreakerConfig // which other breakers may have, too
	guard *Guard         // that made it; nil if none did

	// era is replaced by each change, with mu held. The results of calls that an earlier one has admitted are dropped.
	era atomic.Pointer[era]

	// probeAt is when a call may be the probe. It is set while the breaker is open.
	probeAt atomic.Pointer[moment]

	message atomic.Pointer[message] // of the last rejection
	reason  atomic.Pointer[string]  // of Isolate; nil unless the breaker is isolated
	prober  *prober                 // nil if there is no Probe
	changes *queue                  // of OnChange; nil if there is none

	mu      sync.Mutex // guards trouble; not held while gobreaker or user code is called
	trouble *trouble   // nil until the breaker changes, as most never do; inTrouble makes it

	isolations atomic.Uint32 // how often it was isolated
	watched    atomic.Bool   // the next success is reported to the fleet
	succeeded  atomic.Int64  // when a call of a member of a fleet has succeeded last, in nanoseconds since guard.made
	asking     atomic.Bool   // a call asks the fleet whether it may be the probe
	unlabeled  bool          // observers read othersName, not its name
}

// trouble is what a breaker has to remember once it has changed.
type trouble struct {
	failures int     // that opened it, plus the probes that have failed since
	probe    *ticket // under way; nil if there is none
	overdue  *moment // when that probe has failed
	slots    slotQueue
	shared   sharing
}

// inTrouble returns what a breaker that changes has to remember. b.mu must be held.
func (b *Breaker) inTrouble() *trouble {
	if b.trouble == nil {
		b.trouble = new(trouble)
	}
	return b.trouble
}

// NewBreaker returns a closed breaker. The name is used in errors and passed to OnChange. It
// panics if a field of cfg is negative.
func NewBreaker(name string, cfg BreakerConfig) *Breaker {
	if errs := cfg.check(); len(errs) > 0 {
		panic(fmt.Sprintf("resilience: NewBreaker: %v", errors.Join(errs...)))
	}

	cfg = cfg.withDefaults()
	return newBreaker(name, &cfg)
}

// newBreaker returns a closed breaker with a configuration that is complete.
func newBreaker(name string, cfg *BreakerConfig) *Breaker {
	b := &Breaker{name: name, cfg: cfg}
	if cfg.Probe != nil {
		b.prober = new(prober)
	}
	if cfg.OnChange != nil {
		b.changes = new(queue)
	}
	b.era.Store(newEra(StateClosed, b.newCounter(false)))
	return b
}

// label returns the name of the breaker for observers.
func (b *Breaker) label() string {
	if b.unlabeled {
		return othersName
	}
	return b.name
}

// Name returns the name that was given to [NewBreaker].
func (b *Breaker) Name() string { return b.name }

// Key returns the key of the calls that the breaker is for, "" if it is for all of them. See [BreakerKey].
func (b *Breaker) Key() string { return b.of.key }

// State returns the current state. An open breaker whose cooldown has passed is half-open.
func (b *Breaker) State() State {
	s := b.era.Load().state
	if s == StateOpen && b.untilProbe() <= 0 {
		return StateHalfOpen // for the next call; a look changes nothing
	}
	return s
}

// RetryAfter returns the time until the backend of an open breaker is asked again: by a call, or by
// BreakerConfig.Probe. It is positive while the breaker is open, and zero otherwise.
func (b *Breaker) RetryAfter() time.Duration {
	if b.State() != StateOpen {
		return 0
	}

	return max(b.untilAsked(), 1)
}

// untilProbe returns how long it is until a call may be the probe, zero or less if one may be now. It
// requires that the breaker has been open.
func (b *Breaker) untilProbe() time.Duration { return b.probeAt.Load().left() }

// untilAsked returns how long it is until a call may be the probe or Probe is called, whichever is first.
func (b *Breaker) untilAsked() time.Duration {
	left := b.untilProbe()
	if at := b.nextProbe(); at != nil {
		asked := at.left()
		if asked <= 0 {
			asked = time.Second // Probe runs, and nothing says when it will end
		}
		left = min(left, asked)
	}
	return left
}

// isolated reports whether the breaker is out of service.
func (b *Breaker) isolated() bool { return b.era.Load().state == StateIsolated }

// rejects reports whether the breaker rejects all calls for the time being. Unlike State it changes nothing.
func (b *Breaker) rejects() bool {
	s := b.era.Load().state
	return s == StateIsolated || s == StateOpen && b.untilProbe() > 0
}

// resting reports whether a new breaker would be no different.
func (b *Breaker) resting() bool {
	now := b.era.Load()
	return now.state == StateClosed && now.failures() == 0
}

// forgettable reports whether a breaker that nothing uses may be forgotten: one that has seen failures only if
// failing is true, and never while it rejects calls, or while a new one would because the fleet has isolated it.
func (b *Breaker) forgettable(failing bool) bool {
	return (b.resting() || failing && !b.rejects()) && !b.isFreed()
}

// Failures returns how many calls in a row have failed. While the breaker is open or half-open, it counts those
// that opened it and the probes that failed since. If it is isolated, it counts those of before, or none if it was
// closed.
func (b *Breaker) Failures() int {
	if b.State() == StateClosed {
		return b.era.Load().failures()
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inTrouble().failures
}

// Allow asks for the permission to make one call. If the call may be made, Allow returns
// done, to which the call's error must be reported, nil for a success. Otherwise the error
// is a CIRCUIT_OPEN [*Error] with a RetryAfter: the time until a call may be the probe. While the
// backend is being asked, by a call or by BreakerConfig.Probe, it is as long as that has been in vain,
// from a second to a Cooldown. An isolated breaker has no time to tell.
//
// Only the first call of done counts; it is safe for concurrent use. A result that belongs
// to an earlier state of the breaker is dropped. A probe that never reports has failed after
// ProbeTimeout, which the next call of Allow notices.
//
// Allow has no context, so it can't know that it is used inside of a call that b has admitted: that is
// another call, and counts by itself. Rather use [WithBreaker] or a [Guard] there.
func (b *Breaker) Allow() (done func(error), err error) {
	t := new(ticket)
	if rejected := b.admit(t, 0, 0, never); rejected != nil {
		return nil, rejected
	}

	return t.done, nil
}

// WithBreaker calls fn on this goroutine if b admits the call, and reports the result to b.
// It returns the value and the error of fn unchanged, or CIRCUIT_OPEN if b rejects the call.
//
// An error of fn counts as b's Classify says, but not if ctx has been canceled by then. A
// panic or a runtime.Goexit counts as a failure; a panic is returned as TOOL_FAILED around a
// [*PanicError]. A context that has already ended is CANCELED or TIMEOUT and a nil fn is
// TOOL_NOT_FOUND; neither counts. A nil ctx or b panics.
//
// Inside of a call that b has admitted, a call on b belongs to that call: it passes, and doesn't
// count by itself, unless it outlives that call, as with context.WithoutCancel.
//
// If a deadline of ctx ends fn, that counts as a failure: only a [Guard] knows whose
// deadline it was. WithBreaker can't return before fn does; put [WithTimeout] inside it.
func WithBreaker[T any](ctx context.Context, b *Breaker, fn func(context.Context) (T, error)) (T, error) {
	var zero T
	if b == nil {
		panic("resilience: nil *Breaker")
	}
	if err := checkFunc(ctx, b.name, fn == nil); err != nil {
		return zero, err
	}
	if err := endOf(ctx, b.name); err != nil {
		return zero, err
	}

	if around := ticketOf(ctx, b); around != nil {
		var value T
		err := ErrGoexit // until fn returns
		defer func() { around.endWithin(ctx, err) }()
		value, err = protect(ctx, fn)
		return value, crashError(b.name, err)
	}

	t, left := new(ticket), never
	if at, ok := ctx.Deadline(); ok {
		left = time.Until(at)
	}
	if rejected := b.admit(t, 0, 0, left); rejected != nil {
		return zero, rejected
	}
	defer t.settle(outcomeFailure, false) // counts only if fn calls runtime.Goexit
	t.runs.Store(true)
	defer t.runs.Store(false)

	value, err := protect(t.within(ctx), fn)
	if err != nil && !isCrash(err) && canceledAbove(ctx) {
		t.settle(outcomeNeutral, false)
	} else {
		t.done(err)
	}
	return value, crashError(b.name, err)
}
