package resilience

import (
	"fmt"
	"time"
)

// Isolate takes what the breaker protects out of service: until Reset is called, all calls are rejected, and agents
// read the reason, which must be safe for them; it may be empty. Calls in flight aren't ended, but don't count any
// more, and aren't retried before that. The breaker of a tool rejects the calls with a [BreakerKey], too. A breaker that is
// isolated already gets the new reason. Isolate may be called in any state, concurrently, and from any callback.
func (b *Breaker) Isolate(reason string) {
	c := b.newCounter(false)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inTrouble().shared.operate(true, nil)
	b.isolate(c, reason)
}

// isolate implements Isolate with a new counter. b.mu must be held.
func (b *Breaker) isolate(c *counter, reason string) {
	b.reason.Store(&reason)
	b.isolations.Add(1)
	if b.isolated() {
		return
	}

	b.change(c, BreakerChange{To: StateIsolated, Cause: CauseManual, Reason: reason})
}

// Isolated returns the reason that was given to Isolate, and whether the breaker is isolated.
func (b *Breaker) Isolated() (reason string, ok bool) {
	if r := b.reason.Load(); r != nil {
		return *r, true
	}
	return "", false
}

// Reset closes the breaker, whatever its state is, and forgets its failures. Calls in flight don't count any
// more. It may be called concurrently, and from any callback.
func (b *Breaker) Reset() {
	c, m := b.newCounter(false), b.member()
	away := m == nil || m.isAlone() != nil
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.inTrouble().shared
	s.operate(false, nil)
	if s.fleet == StateIsolated {
		s.free(away)
	}
	b.reset(c, CauseManual)
}

// reset implements Reset with a new counter. b.mu must be held.
func (b *Breaker) reset(c *counter, cause Cause) {
	b.reason.Store(nil)
	if b.era.Load().state == StateClosed {
		b.era.Store(newEra(StateClosed, c))
		return
	}
	b.change(c, BreakerChange{To: StateClosed, Cause: cause})
}

// Trip opens the breaker for d, as if calls had failed, which is what agents and [Health] read. (Isolate has words of
// its own.) After that, a call is the probe, and if there is a BreakerConfig.Probe, it closes the breaker as soon as it
// succeeds. An open breaker stays open for d from now on, and an isolated one stays isolated. Zero means the Cooldown.
// It panics if d is negative. Trip may be called concurrently, and from any callback.
func (b *Breaker) Trip(d time.Duration) {
	if d < 0 {
		panic(fmt.Sprintf("resilience: Trip: the time is %s: it must not be negative (0 is the Cooldown)", d))
	}
	if d == 0 {
		d = b.cfg.Cooldown
	}

	c := b.newCounter(true)
	b.mu.Lock()
	defer b.mu.Unlock()
	state := b.era.Load().state
	if state == StateIsolated {
		return
	}

	b.inTrouble().shared.operate(false, in(d))
	switch state {
	case StateOpen:
		b.probeAt.Store(in(d))
		b.message.Store(nil)
	default:
		b.open(c, CauseManual, d)
	}
	b.prober.tripped(b)
}
