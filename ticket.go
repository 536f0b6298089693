package resilience

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/sony/gobreaker/v2"
)

// maxExtra bounds how many probes are admitted beside the first one.
const maxExtra = 256

// These errors stand for outcomes where gobreaker wants an error. It must not call user code under its lock.
var (
	errFailure = errors.New("failure")
	errNeutral = errors.New("neutral")
)

// An admission is a breaker's permission to make one call.
type admission struct {
	b      *Breaker
	phase  *phase
	report func(error) // gobreaker's, if the breaker was closed
}

// A ticket is an admission whose outcome counts once.
type ticket struct {
	admission
	used  atomic.Bool // the call has ended
	freed atomic.Bool // the slot of a probe was given back
}

func (a *admission) isProbe() bool { return a.phase.state == StateHalfOpen }

// settle counts the outcome of the call if it is the first one and the breaker hasn't changed since the
// admission, and returns whether it did. If the breaker opens, rejections say why the call failed.
//
// A probe that ends as neutral gives its slot back. If it stood in another call's way, then from now on one
// call more is admitted beside each probe. Otherwise a client whose calls are always neutral, or a nested
// call that lost its context, could block recovery forever.
func (t *ticket) settle(o outcome, why string) (recorded bool) {
	if t.used.Swap(true) {
		return false
	}
	if t.phase.state == StateClosed {
		return t.settleClosed(o, why)
	}

	b := t.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.phase.Load() != t.phase {
		return false
	}

	switch o {
	case outcomeSuccess:
		b.change(b.closedPhase(), CauseCalls)
	case outcomeFailure:
		b.open(b.cfg.Cooldown, t.phase.failures+1, CauseCalls, why)
	case outcomeNeutral:
		t.free()
		if t.phase.contended {
			b.extra = min(b.extra+1, maxExtra)
			t.phase.slots++
			t.phase.contended = false
		}
	}
	return true
}

// settleClosed lets gobreaker count the outcome.
func (t *ticket) settleClosed(o outcome, why string) (recorded bool) {
	recorded = t.b.phase.Load() == t.phase
	switch o {
	case outcomeSuccess:
		t.report(nil)
	case outcomeNeutral:
		t.report(errNeutral)
	default:
		t.report(errFailure)
		if t.phase.counter.State() != gobreaker.StateClosed {
			t.b.trip(t.phase, why)
		}
	}
	return recorded
}

// giveBack lets another call be the probe, if this one is: it waits for a person, which may take any time.
func (t *ticket) giveBack() {
	if !t.isProbe() || t.used.Load() {
		return
	}
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	t.free()
}

// free gives the slot of a probe back, once. b.mu must be held.
func (t *ticket) free() {
	if !t.freed.Swap(true) {
		t.phase.slots++
	}
}

// Allow asks for the permission to make one call. If the call may be made, its error must be reported to done, nil for
// a success. Otherwise err is a CIRCUIT_OPEN [*Error]. Only the first call of done counts. Allow has no context, so
// inside of another call on b use [WithBreaker] or a [Guard].
func (b *Breaker) Allow() (done func(error), err error) {
	a, rejected := b.admit(0)
	if rejected != nil {
		return nil, rejected
	}
	return (&ticket{admission: a}).done, nil
}

// done reports the result of the call.
func (t *ticket) done(err error) {
	if err == nil {
		t.settle(outcomeSuccess, "")
		return
	}
	m := meaningOf(err)
	t.settle(m.outcome(), m.reason)
}

// WithBreaker calls fn on this goroutine if b admits the call, and reports the result to b. It returns the value and
// the error of fn unchanged, or CIRCUIT_OPEN if b rejects the call. Put [WithTimeout] inside to bound fn.
//
// An error of fn counts as [Classify] returns, unless ctx has been canceled by then. A deadline of ctx that ends fn, a
// panic and a runtime.Goexit are failures; a panic is returned as TOOL_FAILED around a [*PanicError]. A call on b
// inside of a call that b has admitted passes, and doesn't count by itself.
func WithBreaker[T any](ctx context.Context, b *Breaker, fn func(context.Context) (T, error)) (value T, err error) {
	if b == nil {
		panic("resilience: nil *Breaker")
	}
	if e := checkFunc(ctx, b.name, fn == nil); e != nil {
		return value, e
	}
	if e := endOf(ctx, b.name); e != nil {
		return value, e
	}

	outer := attemptOf(ctx)
	if outer.ticketOf(b) != nil {
		value, err = protect(ctx, fn)
		return value, crashError(b.name, err)
	}

	a, rejected := b.admit(0)
	if rejected != nil {
		return value, rejected
	}
	t := &ticket{admission: a}
	defer t.settle(outcomeFailure, "") // counts only if fn calls runtime.Goexit

	value, err = protect(&attempt{Context: ctx, outer: outer, ticket: t}, fn)
	if err != nil && !isCrash(err) && ctx.Err() == context.Canceled {
		t.settle(outcomeNeutral, "")
	} else {
		t.done(err)
	}
	return value, crashError(b.name, err)
}
