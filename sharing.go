package resilience

import (
	"context"
	"time"
)

const (
	// maxLeaseWait is how long a call waits for a lease, minLeaseWait how long it is until the fleet is asked for
	// another one, and maxLeases how many calls of Lease may run at once.
	maxLeaseWait = 100 * time.Millisecond
	minLeaseWait = 100 * time.Millisecond
	maxLeases    = 64

	// toldAgain is by how much later an isolation may seem to be when a fleet tells of it again.
	toldAgain = time.Second
)

// member returns the membership of the breaker's guard, nil if there is none, or this breaker isn't shared.
func (b *Breaker) member() *FleetMember {
	if !b.isShareable() {
		return nil
	}
	return b.guard.member.Load()
}

// isShareable reports whether a fleet may share the breaker: nobody but a guard makes such a one.
func (b *Breaker) isShareable() bool { return b.of.base.name != "" }

// sharing is what a breaker knows of its fleet, and of what is to be told there.
type sharing struct {
	fleet   State     // as the fleet has it, while the breaker may have another; closed also once this member has closed it
	reset   time.Time // of the fleet's last reset by hand
	changed time.Time // by the member's own calls, Probe or operator
	cause   Cause     // of that
	held    bool      // it was isolated by the operator, for this member alone
	imposed time.Time // when the fleet has isolated it last, as far as this member has heard
	freed   time.Time // up to when that is over: the operator has reset it, for this member alone
	tripped *moment   // until when it was tripped by the operator; nil if it wasn't
	denied  refusal   // of a call as the probe
	alone   *moment   // until when no call is it unless the fleet says so, which wants one sooner; nil is the past
}

// A refusal is what a fleet does that refuses a probe.
type refusal struct{ until *moment } // when it has to change something; nil if it doesn't refuse one

// holds notes that the fleet refuses, and reports whether it may: it has done so for less time than the longest
// without another change.
func (r *refusal) holds(longest time.Duration) bool {
	if r.until == nil {
		r.until = in(longest)
	}
	return r.until.left() > 0
}

// note is called for each change of the breaker's state. If the member's own probe has closed what the fleet has opened,
// it is no news that the fleet closes it, too: it may have opened again by then. b.mu must be held.
func (s *sharing) note(e BreakerChange) {
	s.denied, s.alone = refusal{}, nil
	if e.Cause != CauseCalls && e.Cause != CauseProbe {
		return
	}
	s.changed, s.cause, s.tripped = e.Time, e.Cause, nil
	if e.To == StateClosed && s.fleet == StateOpen {
		s.fleet = StateClosed
	}
}

// operate notes that the operator of this member has isolated the breaker, tripped it, or reset it. b.mu must be held.
func (s *sharing) operate(held bool, tripped *moment) {
	s.changed, s.cause, s.held, s.tripped = time.Now(), CauseManual, held, tripped
	s.denied, s.alone = refusal{}, nil
}

// free notes that the operator of this member has reset what the fleet had isolated. One who is away has heard of no
// isolation since. b.mu must be held.
func (s *sharing) free(away bool) {
	over := s.changed
	if heard := s.imposed.Add(toldAgain); away && heard.Before(over) {
		over = heard
	}
	if over.After(s.freed) {
		s.freed = over
	}
}

// isTripped reports whether the operator of this member has tripped the breaker, which is no matter of the fleet's until
// that ends. b.mu must be held.
func (s *sharing) isTripped() bool { return s.tripped != nil && s.tripped.left() > 0 }

// join forgets what was said in an earlier membership, but for an isolation, which this fleet ends unless it has one,
// too. If it is the same fleet again, what was done by hand stands, too.
func (b *Breaker) join(again bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watched.Store(false)
	if b.trouble == nil {
		return
	}
	s := &b.trouble.shared
	s.denied = refusal{}
	if !again {
		s.freed, s.reset = time.Time{}, time.Time{}
	}
	if b.era.Load().state != StateIsolated {
		s.fleet = StateClosed
	}
}

// adopt gives a new breaker the state that the fleet says it has.
func (b *Breaker) adopt() {
	m := b.member()
	if m == nil {
		return
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := m.known[b.fleetID()]; ok {
		b.apply(c)
	}
}

// apply does what a change of the fleet says, and reports false if the breaker knows more.
func (b *Breaker) apply(c FleetChange) bool {
	applied := b.follow(c, b.newCounter(c.State == StateOpen))
	if applied && b.isFailing() {
		b.watched.Store(true) // the fleet may not have heard of that yet
	}
	return applied
}

// isFailing reports whether calls of the closed breaker have failed, since the last success. It asks gobreaker, so b.mu
// must not be held.
func (b *Breaker) isFailing() bool {
	now := b.era.Load()
	return now.state == StateClosed && now.failures() > 0
}

// follow implements apply with a new counter. What the operator of this member has done stands, until the operator of
// the whole fleet does something later.
func (b *Breaker) follow(c FleetChange, fresh *counter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.inTrouble().shared
	byHand := c.Cause == CauseManual && c.State == StateClosed || c.State == StateIsolated
	imposed := b.era.Load().state == StateIsolated && !s.held
	later := s.changed.After(c.Time) && !imposed // of what the fleet has isolated, only it knows more
	before := s.fleet
	if c.State == StateIsolated {
		s.imposed = c.Time
	}
	s.fleet = c.State // also if the breaker knows more: what the fleet has closed by then, it doesn't close again later
	if later && !byHand {
		return false
	}

	b.watched.Store(c.State == StateClosed && c.Failures > 0)
	switch {
	case c.State == StateClosed && byHand && !later && c.Time.After(s.reset):
		s.reset, s.held, s.tripped = c.Time, false, nil
		b.reset(fresh, CauseManual)
	case s.held:
	case c.State == StateIsolated:
		if c.Time.After(s.freed) {
			s.tripped = nil
			b.isolate(fresh, c.Reason)
		}
	case s.isTripped():
	case c.State == StateOpen:
		b.openByFleet(fresh, max(c.RetryAfter, 0)-time.Since(c.Time))
	case before != StateClosed && !later:
		b.reset(fresh, CauseFleet)
		if c.Cause == CauseProbe && b.prober != nil {
			b.prober.blind = in(b.cfg.Cooldown)
		}
	}
	return true
}

// openByFleet opens the breaker for d, and for ten Cooldowns at most, unless its own probe is under way, or one may be
// anyway. b.mu must be held.
func (b *Breaker) openByFleet(fresh *counter, d time.Duration) {
	d = min(max(d, 0), b.cfg.longest())
	if b.prober != nil {
		b.prober.denied = refusal{} // somebody asks the backend
	}
	switch state := b.era.Load().state; {
	case b.hasProbe(), state == StateHalfOpen && d == 0: // a call is the probe, or may be
	case state == StateOpen:
		s := &b.inTrouble().shared
		if left := b.untilProbe(); d < left && (s.alone == nil || s.alone.left() < left) {
			s.alone = b.probeAt.Load()
		}
		b.probeAt.Store(in(d))
		b.prober.openStill(b)
		if d > 0 {
			s.denied = refusal{}
		}
	default:
		b.reason.Store(nil)
		b.open(fresh, CauseFleet, d)
	}
}

// tell reports what a call has told of the backend, if the fleet has to know.
func (b *Breaker) tell(probe bool, o outcome) {
	if b.member() == nil {
		return
	}

	switch {
	case o == outcomeFailure:
		b.watched.Store(true)
		b.report(FleetResult{Probe: probe, Cause: CauseCalls})
	case o == outcomeSuccess:
		b.succeeded.Store(int64(time.Since(b.guard.made)))
		if b.watched.Load() && b.watched.Swap(false) || probe {
			told := b.report(FleetResult{Success: true, Probe: probe, Cause: CauseCalls})
			if !told {
				b.watched.Store(true)
			}
		}
	}
}

// tellProbe reports what Probe has told of the backend.
func (b *Breaker) tellProbe(r probeResult) {
	switch r.outcome {
	case outcomeSuccess:
		b.report(FleetResult{Success: true, Probe: true, Cause: CauseProbe})
	case outcomeFailure:
		b.report(FleetResult{Probe: true, Cause: CauseProbe, RetryAfter: b.putsOff(r)})
	}
}

// report tells the fleet of a result, and reports false if that is lost.
func (b *Breaker) report(r FleetResult) bool {
	m := b.member()
	if m == nil {
		return true
	}
	r.Breaker, r.Time = b.fleetView(), time.Now()
	return m.report(r)
}

// isFreed reports whether the fleet has isolated the breaker, which isn't: the operator of this member has reset it,
// and it recovers by itself.
func (b *Breaker) isFreed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.trouble != nil && b.trouble.shared.fleet == StateIsolated
}

// isTripped is isTripped of what the breaker shares.
func (b *Breaker) isTripped() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.trouble != nil && b.trouble.shared.isTripped()
}

// mayProbe reports whether the fleet lets a call that has so much time left be the probe of an open breaker. If not,
// the breaker stays open for some time more.
func (b *Breaker) mayProbe(left time.Duration) bool {
	if b.member() == nil {
		return true
	}
	if b.asking.Swap(true) {
		return false
	}
	defer b.asking.Store(false)

	wait, answered := b.lease(CauseCalls, min(maxLeaseWait, left/10))
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.inTrouble().shared
	if !answered && s.alone != nil {
		wait = s.alone.left()
	}
	switch {
	case wait <= 0:
		return true
	case b.era.Load().state != StateOpen:
		return false
	case !s.denied.holds(b.cfg.longest()):
		return true
	}
	if wait = min(wait, s.denied.until.left()); b.untilProbe() < wait {
		b.probeAt.Store(in(wait))
	}
	return false
}

// lease asks the fleet whether the breaker may be probed, and returns zero if it may, otherwise how long it
// is until it may be asked again. If it doesn't answer, which takes no longer than patience, the breaker decides.
func (b *Breaker) lease(cause Cause, patience time.Duration) (wait time.Duration, answered bool) {
	m := b.member()
	switch {
	case m == nil || b.isFreed() || b.isTripped():
		return 0, true
	case m.hanging.Load() >= maxLeases:
		return 0, false
	}

	view := b.fleetView()
	wait, err := WithTimeout(context.Background(), "lease", patience, func(ctx context.Context) (time.Duration, error) {
		m.hanging.Add(1)
		defer m.hanging.Add(-1)
		granted, wait := m.fleet.Lease(ctx, view, cause)
		if granted {
			return 0, ctx.Err() // a fleet whose context has ended hasn't answered
		}
		return max(wait, minLeaseWait), nil
	})
	return wait, err == nil // zero after an error, too
}
