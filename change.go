package resilience

import (
	"math"
	"time"

	"github.com/sony/gobreaker/v2"
)

// An era of a breaker is the time between two of its changes. A call belongs to the era that has admitted it.
type era struct {
	state State
	*counter
	began *moment
}

func newEra(s State, c *counter) *era { return &era{s, c, in(0)} }

// A counter is gobreaker's part of a breaker: it counts results, and gives out the slot of the probe. The
// breaker decides when a call may be the probe, so that a Probe can put that off, and Trip sets it.
type counter struct {
	*gobreaker.TwoStepCircuitBreaker[struct{}]
	trips bool // at the next failure
}

// newCounter returns a closed counter, or one that is open and has a slot to give. b.mu must not be held, as
// gobreaker calls counted with its own mutex held.
func (b *Breaker) newCounter(open bool) *counter {
	c := &counter{trips: open}
	c.TwoStepCircuitBreaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1,
		Interval:    0, // otherwise the clock would reset the count of consecutive failures
		Timeout:     1,
		ReadyToTrip: func(n gobreaker.Counts) bool {
			return c.trips || uint64(n.ConsecutiveFailures) >= uint64(b.cfg.Failures)
		},
		IsExcluded:    func(err error) bool { return err == errNeutral },
		OnStateChange: func(_ string, _, to gobreaker.State) { b.counted(c, to) },
	})

	if open {
		report, _ := c.Allow()
		report(errFailure)
		c.trips = false
	}
	return c
}

func (c *counter) failures() int { return int(c.Counts().ConsecutiveFailures) }

// counted is called by gobreaker under its lock. That the counter is half-open only means that its slot is
// free: thaw decides when a call may have it.
func (b *Breaker) counted(c *counter, to gobreaker.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.era.Load().counter != c {
		return
	}

	switch to {
	case gobreaker.StateOpen:
		b.open(c, CauseCalls, b.cfg.Cooldown)
	case gobreaker.StateClosed:
		b.change(c, BreakerChange{To: StateClosed, Cause: CauseCalls})
	}
}

// thaw makes an open breaker half-open whose cooldown has passed.
func (b *Breaker) thaw() {
	old := b.era.Load()
	if old.state != StateOpen || b.untilProbe() > 0 {
		return
	}

	c := old.counter
	c.State() // makes it half-open now: a later look may be by another clock
	if b.probeAt.Load().isForeign() {
		c = b.newCounter(true)
		time.Sleep(2 * time.Nanosecond) // past its Timeout, which gobreaker has read from the same clock now
		c.State()
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if b.era.Load() == old && b.untilProbe() <= 0 {
		b.change(c, BreakerChange{To: StateHalfOpen, Cause: CauseCooldown})
	}
}

// open opens the breaker for d. b.mu must be held.
func (b *Breaker) open(c *counter, cause Cause, d time.Duration) {
	failures := &b.inTrouble().failures
	if state := b.era.Load().state; state == StateClosed || state == StateIsolated {
		*failures = b.cfg.Failures
	} else if cause == CauseCalls && *failures < math.MaxInt {
		*failures++
	}
	b.probeAt.Store(in(d))
	b.change(c, BreakerChange{To: StateOpen, Cause: cause})
}

// change begins an era with the state e.To, in which c counts, and notifies everyone. b.mu must be held.
func (b *Breaker) change(c *counter, e BreakerChange) {
	e.Breaker, e.Label, e.Time = b.name, b.label(), time.Now()
	e.From = b.era.Load().state
	b.era.Store(newEra(e.To, c))
	trouble := b.inTrouble()
	if e.To == StateClosed {
		trouble.failures = 0
	}
	trouble.slots.changed(e.To)
	trouble.shared.note(e)
	b.message.Store(nil)
	b.prober.changed(b, e)

	if b.changes != nil {
		b.changes.add(func() { b.cfg.OnChange(e.Breaker, e.From, e.To) })
	}
	if b.guard != nil {
		for _, o := range b.guard.observers {
			o.breaker(e)
		}
	}
}

// A moment is a time to come, or one that has passed.
type moment struct {
	time.Time
	after time.Duration // the time that it was set
}

// in returns the moment after d.
func in(d time.Duration) *moment { return &moment{time.Now().Add(d), d} }

// isForeign reports whether m was set by another clock: outside of the synctest bubble that asks now, whose
// clock is years behind.
func (m *moment) isForeign() bool { return time.Until(m.Time) > m.after }

// left returns how long it is until m, zero or less if m has passed, as one of another clock has.
func (m *moment) left() time.Duration {
	if left := time.Until(m.Time); left <= m.after {
		return left
	}
	return -1
}
