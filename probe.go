package resilience

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// maxProbes is how many Probes that ignore their context may still run before no further one is started.
	maxProbes = 4

	// maxCooldowns is how many Cooldowns calls can be kept from being the probe: see longest.
	maxCooldowns = 10

	// maxIntervals is for how many ProbeIntervals, at least, a fleet can put Probe off without any news of others.
	maxIntervals = 3

	// probePoll is how often it is looked whether a Probe is still wanted. Nothing of another synctest bubble
	// may end its context.
	probePoll = 100 * time.Millisecond
)

// A prober calls BreakerConfig.Probe while the breaker is open or half-open; a breaker without a Probe has none.
// Between two Probes it has no goroutine, but a timer, which is never stopped, because it belongs to the synctest
// bubble in which the breaker was opened. Its fields are guarded by the mutex of its breaker, but for the atomic ones.
type prober struct {
	at      atomic.Pointer[moment] // when Probe is called next; nil if it isn't
	period  int                    // counts the times that the breaker was opened, closed or isolated
	opened  *moment                // since when, and until when Probes that fail may keep calls out
	wish    *moment                // until when the backend has asked for no Probe; nil if it hasn't
	blind   *moment                // until when an opening means that Probe can't see what is wrong; nil: never
	first   *moment                // when a call may first be the probe of an opening that meant that; nil: of no such one
	denied  refusal                // of a Probe by the fleet
	hanging atomic.Int64           // Probes that run
	warned  atomic.Bool
}

// changed is called for each change of the breaker's state. b.mu must be held.
func (p *prober) changed(b *Breaker, e BreakerChange) {
	putOff := e.To == StateOpen && e.Cause == CauseProbe
	if p == nil || e.To == StateHalfOpen || putOff {
		return
	}

	p.denied = refusal{}
	if e.From == StateHalfOpen && e.To == StateOpen && p.at.Load() != nil {
		p.opened = in(b.cfg.longest())
		return // what is scheduled comes, however short the Cooldown is
	}

	p.period++
	p.at.Store(nil)
	p.first = nil
	if e.To == StateOpen {
		p.opened = in(b.cfg.longest())
	}
	switch {
	case e.Cause == CauseProbe: // it has closed the breaker
		p.blind = in(b.cfg.Cooldown)
	case e.To != StateOpen:
	case !p.isBlind():
		p.begin(b)
	default:
		first := max(min(b.probeAt.Load().left(), b.cfg.Cooldown), 0)
		p.first = in(first)
		b.beginLate(p.period, add(first, b.cfg.Cooldown))
	}
}

// beginLate begins to call Probe after an opening that it can't see if no call has been the probe in vain by then: there
// may be no calls. b.mu must be held.
func (b *Breaker) beginLate(period int, delay time.Duration) {
	time.AfterFunc(delay, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.prober.period == period {
			b.prober.begin(b)
		}
	})
}

// isBlind reports whether an opening now means that Probe can't see what is wrong. b.mu must be held.
func (p *prober) isBlind() bool { return p.blind != nil && p.blind.left() > 0 }

// openStill is called when the fleet says of an open breaker that it is open, as a call has been the probe in vain,
// unless it only tells of the opening again: Probe is called from then on, though it wasn't at first. b.mu must be
// held.
func (p *prober) openStill(b *Breaker) {
	if p != nil && p.at.Load() == nil && !p.isBlind() && (p.first == nil || p.first.left() <= 0) {
		p.beginAnew(b)
	}
}

// beginAnew begins a period of an open breaker, as if that had just opened. b.mu must be held.
func (p *prober) beginAnew(b *Breaker) {
	p.period++
	p.opened = in(b.cfg.longest())
	p.begin(b)
}

// begin schedules the first Probe of a period. b.mu must be held.
func (p *prober) begin(b *Breaker) {
	var wish time.Duration
	if p.wish != nil {
		wish = p.wish.left()
	}
	b.scheduleProbe(p.period, wish, 0)
}

// tripped is called when the breaker has been tripped: Probe is called soon, also if it wasn't since calls had opened the
// breaker soon after it had closed it, or if the fleet has put it off. b.mu must be held.
func (p *prober) tripped(b *Breaker) {
	if p == nil {
		return
	}
	if at := p.at.Load(); at == nil || at.left() > b.cfg.ProbeInterval {
		p.beginAnew(b)
	}
}

// scheduleProbe schedules the next Probe of a period: not before least has passed, and usually between half a
// ProbeInterval and a whole one after the beginning of the last one, which took some of that. b.mu must be held.
func (b *Breaker) scheduleProbe(period int, least, took time.Duration) {
	interval := b.cfg.ProbeInterval
	b.scheduleProbeIn(period, max(between(interval/2, interval)-took, least, 1))
}

// scheduleProbeIn schedules the next Probe of a period. b.mu must be held.
func (b *Breaker) scheduleProbeIn(period int, delay time.Duration) {
	b.prober.at.Store(in(delay))
	time.AfterFunc(delay, func() { b.callProbe(period) })
}

// nextProbe returns when Probe is called next, nil if it isn't.
func (b *Breaker) nextProbe() *moment {
	if b.prober == nil || b.guard.isClosed() {
		return nil
	}
	return b.prober.at.Load()
}

// stopProbe ends the calls of Probe, for a breaker that is forgotten.
func (b *Breaker) stopProbe() {
	if b.prober == nil {
		return
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	b.prober.period++
	b.prober.at.Store(nil)
}

// probing reports whether Probe is still wanted.
func (b *Breaker) probing(period int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.prober.period == period && !b.guard.isClosed()
}

// callProbe calls Probe, and does what its result says.
func (b *Breaker) callProbe(period int) {
	if b.guard != nil { // before the look at whether it is closed
		b.guard.probing.Add(1)
		defer b.guard.probing.Add(-1)
	}
	if !b.probing(period) {
		return
	}

	if wait, _ := b.lease(CauseProbe, maxLeaseWait); !b.mayAsk(period, wait) {
		return
	}

	start := time.Now()
	result := probeResult{outcome: outcomeNeutral}
	if b.prober.hanging.Load() < maxProbes {
		result = b.askProbe(period)
	}

	fresh := b.newCounter(result.outcome != outcomeSuccess)
	if b.probed(period, fresh, result, time.Since(start)) {
		b.tellProbe(result)
	}
}

// mayAsk reports whether Probe is to be called now, which the fleet doesn't want for the time to wait: another member
// asks the backend. As long as nothing is heard of the others, they may put it off for no longer than they may keep calls
// from being the probe, or for some ProbeIntervals: there is news of each Probe that they call.
func (b *Breaker) mayAsk(period int, wait time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.prober
	longest := max(b.cfg.longest(), maxIntervals*min(b.cfg.ProbeInterval, never/maxIntervals))
	switch {
	case p.period != period || b.guard.isClosed(): // by now
		return false
	case wait > 0 && p.denied.holds(longest):
		b.scheduleProbeIn(period, min(wait, p.denied.until.left())+between(0, b.cfg.ProbeInterval/2))
		return false
	}
	p.denied = refusal{}
	return true
}

// probed does what the result of a Probe that took so long says, unless it isn't wanted any more. fresh is a new
// counter, which is closed if Probe has succeeded.
func (b *Breaker) probed(period int, fresh *counter, result probeResult, took time.Duration) (wanted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wish := b.putsOff(result)
	switch {
	case b.prober.period != period || b.guard.isClosed():
		return false
	case result.outcome == outcomeSuccess:
		b.change(fresh, BreakerChange{To: StateClosed, Cause: CauseProbe})
		return true
	case result.outcome == outcomeFailure:
		b.putOff(fresh, wish)
	}
	b.prober.wish = in(wish)
	b.scheduleProbe(period, wish, took)
	return true
}

// putsOff returns for how long the result of a Probe puts the next one off.
func (b *Breaker) putsOff(r probeResult) time.Duration { return min(r.retryAfter, b.cfg.Cooldown) }

// putOff keeps calls from being the probe for another Cooldown, and until the next Probe has had its time, if the backend
// wishes for that. fresh is a new counter that is open. b.mu must be held.
func (b *Breaker) putOff(fresh *counter, wish time.Duration) {
	d := b.cfg.Cooldown
	if wish > 0 {
		d = max(d, wish+b.cfg.ProbeInterval)
	}
	d = min(d, b.prober.opened.left())
	switch state := b.era.Load().state; {
	case state == StateOpen && d > b.untilProbe():
		b.probeAt.Store(in(d))
	case state == StateHalfOpen && !b.hasProbe() && d > 0:
		b.open(fresh, CauseProbe, d)
	}
}

// A probeResult is what a Probe has found out.
type probeResult struct {
	outcome    outcome
	retryAfter time.Duration
}

// askProbe calls Probe, which may do anything.
func (b *Breaker) askProbe(period int) probeResult {
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), keyKey{}, b.of.key))
	defer cancel()
	go func() {
		ticker := time.NewTicker(max(min(probePoll, b.cfg.ProbeInterval/4), time.Millisecond))
		defer ticker.Stop()
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-ticker.C:
				if !b.probing(period) {
					cancel()
				}
			}
		}
	}()

	result, err := WithTimeout(ctx, "probe", b.cfg.ProbeInterval, func(ctx context.Context) (probeResult, error) {
		b.prober.hanging.Add(1)
		defer b.prober.hanging.Add(-1)
		if ctx.Err() != nil {
			return probeResult{outcome: outcomeNeutral}, nil // this goroutine has come late
		}
		return b.readProbe(b.cfg.Probe(ctx)), nil
	})
	if err == nil {
		return result
	}

	e := err.(*Error) // of WithTimeout; what Probe itself has panicked with is asked nothing here
	if e.Code == CodeTimeout {
		return probeResult{outcome: outcomeFailure}
	}
	if e.Code == CodeToolFailed && b.guard != nil && !b.prober.warned.Swap(true) {
		b.guard.warner.warn("a Probe crashed: it says nothing", "breaker", b.name, "error", e.Err)
	}
	return probeResult{outcome: outcomeNeutral}
}

// readProbe examines what Probe has returned, on its goroutine.
func (b *Breaker) readProbe(err error) probeResult {
	if err == nil {
		return probeResult{outcome: outcomeSuccess}
	}

	f := factsOf(err)
	if f.bareCancel() {
		f.addBlamed(&blamed{error: f.err}) // Probe itself has canceled something
	}
	result := probeResult{outcome: f.outcomeBy(b.cfg.Classify)}
	if !isCrash(err) {
		result.retryAfter = f.wait()
	}
	return result
}
