package resilience

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// maxProbes is how many Probes that ignore their context may still run before no further one is started.
	maxProbes = 4

	// maxCooldowns is for how many Cooldowns Probes that fail can keep calls from being the probe, since
	// Probe may be what is broken.
	maxCooldowns = 10
)

// A prober calls BreakerConfig.Probe while its breaker isn't closed. Between two Probes it has no
// goroutine but a timer. A generation ends when the breaker closes, is isolated or tripped: timers
// and Probes of an earlier one do nothing any more. The fields are guarded by the breaker's mutex,
// apart from the atomic ones.
type prober struct {
	generation int
	cancel     context.CancelFunc        // ends the Probe that runs; nil if none does
	opened     time.Time                 // when the breaker was opened
	closed     time.Time                 // when Probe last closed it
	at         atomic.Pointer[time.Time] // of the next Probe; nil if none is scheduled
	running    atomic.Int32              // Probes, including those that ignore their context
}

// next returns the time until the next Probe, zero or less while one runs, and whether there is one.
func (p *prober) next() (left time.Duration, ok bool) {
	at := p.at.Load()
	if at == nil {
		return 0, false
	}
	return time.Until(*at), true
}

// changed is called for each change of the breaker's state. b.mu must be held.
func (p *prober) changed(b *Breaker, to State, cause Cause) {
	if b.cfg.Probe == nil || to == StateHalfOpen {
		return
	}
	if cause == CauseProbe {
		p.closed = time.Now()
	}

	p.end()
	relapse := time.Since(p.closed) < b.cfg.Cooldown
	if to == StateOpen && !relapse { // after a relapse the next probe is a call, since Probe can't see the trouble
		p.opened = time.Now()
		p.schedule(b, 0)
	}
}

// end ends the calls of Probe. b.mu must be held.
func (p *prober) end() {
	p.generation++
	p.at.Store(nil)
	if p.cancel != nil {
		p.cancel()
	}
}

// stopProbe ends the calls of Probe for good.
func (b *Breaker) stopProbe() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.prober.end()
}

// schedule schedules the next Probe: between half a ProbeInterval and a whole one after the beginning of the last one,
// which took some of that. b.mu must be held.
func (p *prober) schedule(b *Breaker, took time.Duration) {
	interval := b.cfg.ProbeInterval
	delay := max(between(interval/2, interval)-took, 1)
	at, generation := time.Now().Add(delay), p.generation
	p.at.Store(&at)
	time.AfterFunc(delay, func() { b.callProbe(generation) })
}

// callProbe calls Probe, and does what follows from its result.
func (b *Breaker) callProbe(generation int) {
	p, start := &b.prober, time.Now()
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), keyKey{}, b.key))
	defer cancel()
	b.mu.Lock()
	if p.generation != generation || b.guard.isClosed() {
		b.mu.Unlock()
		return
	}
	p.cancel = cancel
	b.mu.Unlock()

	result := outcomeNeutral
	if p.running.Load() < maxProbes && b.mayProbe() {
		result = b.runProbe(ctx)
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if p.generation != generation || b.guard.isClosed() {
		return
	}
	p.cancel = nil
	switch result {
	case outcomeSuccess:
		b.change(b.closedPhase(), CauseProbe)
		return
	case outcomeFailure:
		b.putOff()
	}
	p.schedule(b, time.Since(start))
}

// mayProbe asks BreakerConfig.Lease.
func (b *Breaker) mayProbe() bool {
	if b.cfg.Lease == nil {
		return true
	}
	return ask(b.guard, "BreakerConfig.Lease", true, func() bool { return b.cfg.Lease(b.name) })
}

// putOff keeps calls from being the probe of an open breaker for another Cooldown. b.mu must be held.
func (b *Breaker) putOff() {
	p := b.phase.Load()
	if p.state != StateOpen {
		return // a call is the probe
	}

	d := min(b.cfg.Cooldown, time.Until(b.prober.opened.Add(maxCooldowns*min(b.cfg.Cooldown, never/maxCooldowns))))
	if d > p.left() {
		b.phase.Store(&phase{
			state: p.state, failures: p.failures, since: p.since, reason: p.reason, until: time.Now().Add(d),
		})
	}
}

// runProbe calls Probe within its time.
func (b *Breaker) runProbe(ctx context.Context) outcome {
	result, err := WithTimeout(ctx, "probe", b.cfg.ProbeInterval, func(ctx context.Context) (outcome, error) {
		b.prober.running.Add(1)
		defer b.prober.running.Add(-1)
		err := b.cfg.Probe(ctx)
		if err == nil {
			return outcomeSuccess, nil
		}
		m := meaningOf(err)
		return m.outcome(), nil
	})
	if err == nil {
		return result
	}

	e := err.(*Error) // of WithTimeout
	switch e.Code {
	case CodeTimeout:
		return outcomeFailure
	case CodeToolFailed:
		if b.guard != nil {
			b.guard.warner.warnOnce("a Probe crashed", "breaker", b.name, "error", e.Err.Error())
		}
	}
	return outcomeNeutral
}

// keyKey is the key of a breaker's key in the context of its Probe.
type keyKey struct{}

// BreakerKeyOf returns the key of the breaker whose Probe received ctx, or "".
func BreakerKeyOf(ctx context.Context) string {
	key, _ := ctx.Value(keyKey{}).(string)
	return key
}
