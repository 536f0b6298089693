package resilience

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// An outcome is what the end of a call means to its breaker.
type outcome uint8

const (
	outcomePending outcome = iota // the call has not ended
	outcomeSuccess
	outcomeFailure
	outcomeNeutral // counts neither way, and gives the slot of a probe back
)

// These errors stand for outcomes where gobreaker wants an error. It must not call a user's
// Classify under its lock.
var (
	errFailure = errors.New("failure")
	errNeutral = errors.New("neutral")
)

func (o outcome) err() error {
	switch o {
	case outcomeSuccess:
		return nil
	case outcomeNeutral:
		return errNeutral
	default:
		return errFailure
	}
}

// A ticket is the permission to make one call.
type ticket struct {
	b       *Breaker
	era     *era         // that has admitted the call
	report  func(error)  // gobreaker's, which isn't idempotent
	state   atomic.Int32 // one of those below
	lasting bool         // the call may take longer than it keeps the slot of a probe
	runs    atomic.Bool  // the call is one of WithBreaker, and goes on
	around  *ticket      // of the next probe of WithBreaker around this one
}

// The states of a ticket.
const (
	ticketValid    int32 = iota
	ticketReturned       // the slot of the probe was given back; its end counts, unless the breaker has changed
	ticketUsed           // the call has ended
)

// ticketKey is the key of the ticket of b in the context of a call that b has admitted.
type ticketKey struct{ b *Breaker }

// ticketOf returns the ticket of the call around ctx that b has admitted, nil if there is
// none. A call on the same breaker inside of that call belongs to it: it passes, and the
// outer one counts. Otherwise a probe would reject itself.
func ticketOf(ctx context.Context, b *Breaker) *ticket {
	t, _ := ctx.Value(ticketKey{b}).(*ticket)
	if t == nil || t.state.Load() == ticketUsed && !t.isHeldBy(innermost(ctx)) {
		return nil
	}
	return t
}

// isHeldBy reports whether the call of the ticket goes on, as a probe that is overdue does, or a call, or one around
// that, which belongs to it.
func (t *ticket) isHeldBy(c *callContext) bool {
	if t.runs.Load() {
		return true
	}
	for ; c != nil; c = c.outer() {
		if c.ticket == t && !c.stopped.Load() {
			return true
		}
	}
	return false
}

// isOutlived reports whether what has the context has outlived the call of the ticket, and all between that belong to
// it: a context derived from one of theirs would have ended.
func (t *ticket) isOutlived(ctx context.Context) bool {
	return t.state.Load() == ticketUsed && endedAbove(ctx) == nil &&
		!t.isHeldBy(ask(func() *callContext { return innermost(ctx) }))
}

// outlive fills in a new ticket for a call that belongs to the one around it but has outlived that, as a job does
// that goes on with context.WithoutCancel: its end counts by itself, unless the breaker has changed since it has
// admitted the other one.
func (t *ticket) outlive(around *ticket) bool {
	now := around.era
	if now.state != StateClosed || around.b.era.Load() != now {
		return false
	}
	report, err := now.Allow()
	if err != nil {
		return false
	}
	if around.b.era.Load() != now { // as in admit
		report(errNeutral)
		return false
	}
	t.b, t.era, t.report = around.b, now, report
	return true
}

// endWithin counts a call of WithBreaker that belongs to that of the ticket, and has ended with err, if it has outlived
// that.
func (t *ticket) endWithin(ctx context.Context, err error) {
	if !t.isOutlived(ctx) {
		return
	}
	if alone := new(ticket); alone.outlive(t) {
		alone.done(err)
	}
}

// admit implements Allow with a new ticket, which it fills in. A probe keeps the slot for as long as the tool's
// timeout, if that is longer than ProbeTimeout, and has failed then unless the tool's maximum is longer still. The call
// has so much time left, never if that isn't known.
func (b *Breaker) admit(t *ticket, timeout, maximum, left time.Duration) *Error {
	for {
		now := b.era.Load()
		switch now.state {
		case StateIsolated:
			return b.rejection()
		case StateOpen:
			if b.untilProbe() > 0 {
				return b.rejection() // the usual case of an open breaker, without any lock
			}
			if b.mayProbe(left) {
				b.thaw()
			} else if b.era.Load() == now {
				return b.rejection()
			}
			continue
		}

		report, err := now.Allow()
		if b.era.Load() != now {
			// The state has changed meanwhile, so it isn't known whether this is a probe.
			if err == nil {
				report(errNeutral)
			}
			continue
		}
		if err != nil {
			b.expireProbe()
			return b.rejection()
		}

		kept := max(b.cfg.ProbeTimeout, timeout)
		t.b, t.era, t.report, t.lasting = b, now, report, maximum > kept
		if t.isProbe() && !b.keepSlot(t, kept) {
			continue
		}
		return nil
	}
}

// keepSlot makes t the probe for so long, or lets it leave the slot to another call. It reports false if the
// breaker has changed since it has admitted t.
func (b *Breaker) keepSlot(t *ticket, timeout time.Duration) bool {
	b.mu.Lock()
	if b.era.Load() != t.era {
		b.mu.Unlock()
		t.report(errNeutral)
		return false
	}
	trouble := b.inTrouble()
	trouble.probe, trouble.overdue = t, in(timeout)
	leaves := trouble.slots.leaves()
	b.mu.Unlock()

	if leaves {
		t.giveBack()
	}
	return true
}

// hasProbe reports whether a call is the probe now. The result of one that was the probe before the breaker was
// tripped doesn't count any more. b.mu must be held.
func (b *Breaker) hasProbe() bool {
	probe := b.inTrouble().probe
	return probe != nil && probe.era == b.era.Load()
}

// expireProbe ends a probe that has been under way for too long, when gobreaker has rejected a call because of it. It
// has failed, unless progress or its client lets it take longer.
func (b *Breaker) expireProbe() {
	b.mu.Lock()
	trouble := b.inTrouble()
	t := trouble.probe
	overdue := t != nil && trouble.overdue.left() < 0
	trouble.slots.contended = true
	b.mu.Unlock()
	switch {
	case !overdue:
	case t.lasting:
		t.giveBack()
	default:
		t.settle(outcomeFailure, false)
	}
}

// A message is kept because an open breaker is asked often.
type message struct {
	seconds int64
	text    string
}

// rejection returns the error of a rejected call.
func (b *Breaker) rejection() *Error {
	if reason, ok := b.Isolated(); ok {
		return b.isolatedError(reason)
	}
	after := b.advice()

	m := b.message.Load()
	if s := wholeSeconds(after); m == nil || m.seconds != s {
		m = &message{s, b.openMessage(s)}
		b.message.Store(m)
	}

	e := newError(CodeCircuitOpen, b.name, m.text, true)
	e.RetryAfter = after
	if b.of.key != "" {
		e.suggest(suggestOtherKey)
	}
	return e
}

// advice returns how long a rejected call should wait. While the backend is being asked, by a call or by Probe,
// nothing tells when it will answer. What has been in vain for some time may well be so for as long again: an
// agent that comes back each second has used up its tries by the time that the backend works.
func (b *Breaker) advice() time.Duration {
	now := b.era.Load()
	inVain := -now.began.left()
	if now.state != StateOpen {
		return max(time.Second, min(inVain, b.cfg.Cooldown))
	}

	left := b.untilProbe()
	if left <= 0 {
		return time.Second
	}
	return min(left, max(b.untilAsked(), inVain))
}

// openMessage says which calls are rejected, and for how long.
func (b *Breaker) openMessage(seconds int64) string {
	text := circuitOpenMessage(seconds)
	if b.nextProbe() != nil || b.era.Load().state == StateHalfOpen {
		text = circuitOpenMessage(0) + " Its backend is being asked; call again in " + plural(seconds, "second") + "."
	}
	if b.of.key != "" {
		text = "For '" + b.of.key + "': " + text
	}
	return text
}

// isolatedError has no time to wait, as nobody knows it.
func (b *Breaker) isolatedError(reason string) *Error {
	text := "'" + b.name + "' is taken out of service"
	if reason != "" {
		text += ": " + reason
	}
	e := newError(CodeCircuitOpen, b.name, text, false)
	e.suggest(suggestElsewhere)
	return e
}

func (t *ticket) isProbe() bool { return t.era.state == StateHalfOpen }

// done reports the result of the call. Only the first report counts.
func (t *ticket) done(err error) {
	if err == nil {
		t.settle(outcomeSuccess, false)
		return
	}

	f := factsOf(err)
	t.settle(f.outcomeBy(t.b.cfg.Classify), f.nested)
}

// settle reports the outcome of the call, and whether its error holds the rejection of another call. Only the
// first report counts, and only if the breaker hasn't changed since it has admitted the call.
func (t *ticket) settle(o outcome, rejected bool) (counted bool) {
	kept := false
	switch t.state.Swap(ticketUsed) {
	case ticketUsed:
		return false
	case ticketReturned:
		if o == outcomeNeutral {
			return false // gobreaker has counted that already
		}
	case ticketValid:
		kept = true
	}

	if t.isProbe() {
		t.b.mu.Lock()
		if t.b.era.Load() == t.era {
			t.b.inTrouble().slots.ended(o, rejected, kept)
		}
		t.b.mu.Unlock()
	}
	counted = t.b.era.Load() == t.era
	t.report(o.err())
	t.endProbe()
	if counted {
		t.b.tell(t.isProbe(), o)
	}
	return counted
}

// probeKey is the key of the ticket of the innermost probe of WithBreaker. Those of a guard are in a callContext.
type probeKey struct{}

// within returns the context of a call of WithBreaker that has the ticket.
func (t *ticket) within(ctx context.Context) context.Context {
	if t.isProbe() {
		t.around, _ = ctx.Value(probeKey{}).(*ticket)
		ctx = context.WithValue(ctx, probeKey{}, t)
	}
	return context.WithValue(ctx, ticketKey{t.b}, t)
}

// giveBackAll gives back the slots of all probes of WithBreaker around ctx.
func giveBackAll(ctx context.Context) {
	for t, _ := ctx.Value(probeKey{}).(*ticket); t != nil; t = t.around {
		t.giveBack()
	}
}

// giveBack lets another call be the probe, if this one is. It is for a probe that may wait for that call,
// or for a person: that says nothing about the backend, and may take for ever.
func (t *ticket) giveBack() {
	if t.isProbe() && t.state.CompareAndSwap(ticketValid, ticketReturned) {
		t.report(errNeutral)
		t.endProbe()
	}
}

// endProbe forgets the ticket, since it is part of its call, which must not be kept.
func (t *ticket) endProbe() {
	if !t.isProbe() {
		return
	}

	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	if trouble := t.b.inTrouble(); trouble.probe == t {
		trouble.probe = nil
	}
}

// current reports whether the breaker would still admit the call for another attempt. A probe makes no other.
func (t *ticket) current() bool { return t.b.era.Load().state == StateClosed }
