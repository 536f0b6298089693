package resilience

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// BreakerConfig configures a [Breaker]. The zero value is all defaults.
//
// While the breaker is open, Probe is called every ProbeInterval. If it returns nil, the breaker closes
// at once: no call is sacrificed, and a breaker without calls recovers too. An error that counts (see
// [Classify]) keeps calls from being the probe for another Cooldown, up to ten Cooldowns in all. An error
// that doesn't count has no effect, and neither has a panic. If the breaker opens again within a Cooldown
// after Probe has closed it, Probe can't see the trouble, so the next probe is a call.
type BreakerConfig struct {
	// Failures is how many consecutive failures open the breaker. Zero means 5. It must
	// not be negative.
	Failures int

	// Cooldown is how long the breaker stays open before it lets one probe pass. Zero means
	// 30s. It must not be negative.
	Cooldown time.Duration

	// ProbeTimeout is how long a call that is the probe may take. After that it has failed, so that a
	// probe that hangs can't keep the breaker half-open forever. A Guard allows it the timeout or
	// MaxTimeout of the tool, if that is longer. Zero means 2m. It must not be negative.
	ProbeTimeout time.Duration

	// Probe asks the backend in the background whether it works again. [ProbeURL] returns one for HTTP.
	// It must respect its context, which ends after ProbeInterval, or when the breaker changes, and has
	// the key of the breaker (see [BreakerKeyOf]). Nil means that a call is the probe after the Cooldown.
	Probe func(ctx context.Context) error

	// ProbeInterval is the longest time between the beginnings of two Probes, and from the opening of
	// the breaker to the first. Each time is drawn from its upper half, so that servers that share a
	// backend don't ask it together. Zero means 5s. It must not be negative.
	ProbeInterval time.Duration

	// Lease is asked, with the breaker's name, whether a call or a Probe may ask the backend of an open
	// breaker now, so that a fleet of servers sends a single probe. Calls that could be the probe wait
	// for it: it must be quick, safe for concurrent use, and should remember a refusal for a while. A
	// panic counts as true. Nil means true.
	Lease func(breaker string) bool

	// MaxHold is how long an agent's call (see Request.Caller) is held before it is rejected, if the breaker has
	// rejected the agent before. The breaker may admit the call meanwhile. Half the tool's timeout is the
	// most, and counts as the call's. Zero means 10s, and negative never.
	MaxHold time.Duration

	// OnChange is called for each change of state, in order and one at a time, on a goroutine of its
	// own. While it blocks, up to 1,024 changes wait and further ones are dropped. A panic in it is
	// recovered. Nil means none. A guard has observers instead, and doesn't allow it.
	OnChange func(name string, from, to State)
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
type State uint8

const (
	StateClosed   State = iota // calls pass
	StateHalfOpen              // one probe passes, all other calls are rejected
	StateOpen                  // all calls are rejected
	StateIsolated              // all calls are rejected until Reset is called
)

// String returns "closed", "half-open", "open" or "isolated".
func (s State) String() string { return nameOf(s, "closed", "half-open", "open", "isolated") }

// MarshalText returns the text of String. It never fails.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Cause is why the state of a [Breaker] has changed.
type Cause uint8

const (
	CauseCalls    Cause = iota // too many calls have failed, or the probe has ended
	CauseCooldown              // the cooldown has passed, so that a call may be the probe
	CauseProbe                 // BreakerConfig.Probe has succeeded
	CauseManual                // Isolate, Trip or Reset
)

// String returns "calls", "cooldown", "probe" or "manual".
func (c Cause) String() string { return nameOf(c, "calls", "cooldown", "probe", "manual") }

// MarshalText returns the text of String. It never fails.
func (c Cause) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Isolate takes the backend out of service. All calls are rejected until Reset is called, including a
// tool's calls with a [BreakerKey]. Agents read the reason, which may be empty and must be safe for them.
// Calls in flight go on, but don't count any more, and aren't retried. A breaker that is already isolated
// gets the new reason. Isolate may be called concurrently, and from any callback.
func (b *Breaker) Isolate(reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.change(&phase{state: StateIsolated, reason: reason}, CauseManual)
}

// Isolated returns the reason that was given to Isolate, and whether the breaker is isolated.
func (b *Breaker) Isolated() (reason string, ok bool) {
	if p := b.phase.Load(); p.state == StateIsolated {
		return p.reason, true
	}
	return "", false
}

func (b *Breaker) isolated() bool { return b.phase.Load().state == StateIsolated }

// Reset closes the breaker and forgets its failures. Calls in flight don't count any more. It may be called
// in any state, concurrently, and from any callback.
func (b *Breaker) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.change(b.closedPhase(), CauseManual)
}

// Trip opens the breaker for d, as if calls had failed. After that, a call is the probe. A
// BreakerConfig.Probe that succeeds closes the breaker earlier. An open breaker stays open for d from
// now on, and an isolated one stays isolated. Zero means the Cooldown. Trip panics if d is negative. It
// may be called concurrently, and from any callback.
func (b *Breaker) Trip(d time.Duration) {
	if d < 0 {
		panic(fmt.Sprintf("resilience: Trip: the time is %s: it must not be negative (0 is the Cooldown)", d))
	}
	d = cmp.Or(d, b.cfg.Cooldown)

	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.phase.Load(); p.state != StateIsolated {
		b.open(d, cmp.Or(p.failures, b.cfg.Failures), CauseManual, "")
	}
}
