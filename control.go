package resilience

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// BreakerConfig configures a [Breaker]. The zero value is all defaults.
type BreakerConfig struct {
	Failures     int           // how many consecutive failures open the breaker; 0 means 5
	Cooldown     time.Duration // how long the breaker stays open before it lets one probe pass; 0 means 30s
	ProbeTimeout time.Duration // for a call that is the probe, or the tool's MaxTimeout if that is longer; 0 means 2m

	// Probe asks the backend of an open breaker in the background whether it works again; [ProbeURL] returns one for
	// HTTP. If it returns nil, the breaker closes. An error that counts (see [Classify]) keeps calls from being the
	// probe for another Cooldown, up to ten in all. The context ends after ProbeInterval, and has the key of the
	// breaker (see [BreakerKeyOf]). If Probe itself is nil, a call is the probe after the Cooldown.
	Probe func(ctx context.Context) error

	ProbeInterval time.Duration // the longest time between two Probes; each is drawn from the upper half; 0 means 5s

	// Lease is asked, with the breaker's name, whether a call or a Probe may ask the backend of an open breaker now, so
	// that a fleet of servers sends a single probe. It must be quick and safe for concurrent use. Nil means true.
	Lease func(breaker string) bool

	// MaxHold is how long a call of an agent that was rejected before (see Request.Caller) is held, in case the breaker
	// admits it meanwhile; at most half the tool's timeout. Zero means 10s, and negative never.
	MaxHold time.Duration

	OnChange func(name string, from, to State) // called for each change, in order, on its own goroutine; nil in a guard
}

func (c BreakerConfig) check() []error {
	var errs fieldErrors
	notNegative(&errs, "Failures", c.Failures, "the default")
	notNegative(&errs, "Cooldown", c.Cooldown, "the default")
	notNegative(&errs, "ProbeTimeout", c.ProbeTimeout, "the default")
	notNegative(&errs, "ProbeInterval", c.ProbeInterval, "the default")
	return errs
}

// or returns c with its zero fields as in template.
func (c BreakerConfig) or(template BreakerConfig) BreakerConfig {
	c.Failures = cmp.Or(c.Failures, template.Failures)
	c.Cooldown = cmp.Or(c.Cooldown, template.Cooldown)
	c.ProbeTimeout = cmp.Or(c.ProbeTimeout, template.ProbeTimeout)
	c.ProbeInterval = cmp.Or(c.ProbeInterval, template.ProbeInterval)
	c.MaxHold = cmp.Or(c.MaxHold, template.MaxHold)
	if c.Probe == nil {
		c.Probe = template.Probe
	}
	if c.Lease == nil {
		c.Lease = template.Lease
	}
	return c
}

func (c BreakerConfig) withDefaults() BreakerConfig {
	return c.or(BreakerConfig{
		Failures: 5, Cooldown: 30 * time.Second, ProbeTimeout: 2 * time.Minute, ProbeInterval: 5 * time.Second,
		MaxHold: defaultMaxHold,
	})
}

// State is the state of a [Breaker].
type State string

const (
	StateClosed   State = "closed"    // calls pass
	StateHalfOpen State = "half-open" // one probe passes, all other calls are rejected
	StateOpen     State = "open"      // all calls are rejected
	StateIsolated State = "isolated"  // all calls are rejected until Reset is called
)

// Cause is why the state of a [Breaker] has changed.
type Cause string

const (
	CauseCalls    Cause = "calls"    // too many calls have failed, or the probe has ended
	CauseCooldown Cause = "cooldown" // the cooldown has passed, so that a call may be the probe
	CauseProbe    Cause = "probe"    // BreakerConfig.Probe has succeeded
	CauseManual   Cause = "manual"   // Isolate, Trip or Reset
)

// Isolate rejects all calls until Reset is called, also a tool's calls with a [BreakerKey]. Agents read the reason,
// which may be empty. Calls in flight go on, but don't count any more, and aren't retried.
func (b *Breaker) Isolate(reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.change(&phase{state: StateIsolated, reason: reason}, CauseManual)
}

// Isolated returns the reason given to Isolate, and whether b is isolated.
func (b *Breaker) Isolated() (reason string, ok bool) {
	if p := b.phase.Load(); p.state == StateIsolated {
		return p.reason, true
	}
	return "", false
}

func (b *Breaker) isolated() bool { return b.phase.Load().state == StateIsolated }

// Reset closes the breaker in any state. Calls in flight don't count any more.
func (b *Breaker) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.change(b.closedPhase(), CauseManual)
}

// Trip opens the breaker for d, or for the Cooldown if d is zero, as if calls had failed. An open breaker stays open
// for d from now on, and an isolated one stays isolated. Trip panics if d is negative.
func (b *Breaker) Trip(d time.Duration) {
	if d < 0 {
		panic(fmt.Sprintf("resilience: Trip: the time is %s: it must not be negative (0 is the Cooldown)", d))
	}
	d = cmp.Or(d, b.cfg.Cooldown)

	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.phase.Load(); p.state != StateIsolated {
		b.open(d, cmp.Or(p.failures, b.cfg.Failures), CauseManual, p.reason)
	}
}
