package resilience

import (
	"cmp"
	"context"
	"time"
)

const (
	defaultFailures      = 5
	defaultCooldown      = 30 * time.Second
	defaultProbeTimeout  = 2 * time.Minute
	defaultProbeInterval = 5 * time.Second
)

// BreakerConfig configures a [Breaker]. The zero value is all defaults.
type BreakerConfig struct {
	// Failures is how many consecutive failures open the breaker. Zero means 5. It must
	// not be negative.
	Failures int

	// Cooldown is how long the breaker stays open before it lets one probe pass. Zero means
	// 30s. It must not be negative.
	Cooldown time.Duration

	// ProbeTimeout is how long a call that is the probe may take to report its result. A probe
	// that takes longer has failed, whatever it reports later, so that a probe that hangs can't keep
	// the breaker half-open forever. While it is paused (see Pause), another call may be the
	// probe, and ProbeTimeout doesn't end it. A Guard allows a probe the tool's timeout where
	// that is longer; if the tool has a MaxTimeout that is longer still, another call may be the probe then, and the
	// result of the first one counts unless the breaker's state has changed. Zero means 2m. It must not be negative.
	ProbeTimeout time.Duration

	// Probe asks the backend in the background whether it works again: while the breaker is open, and
	// until Probe returns nil, which closes the breaker at once. Then no call is sacrificed, and a
	// breaker without calls closes, too. [ProbeURL] returns one for a server of HTTP. Nil means that
	// after the cooldown a call is the probe.
	//
	// Probe must respect its context, which ends after ProbeInterval, and when the breaker changes in
	// another way. BreakerKeyOf returns which backend to ask, below a breaker with keys. An error means:
	//
	//   - The backend still fails, or doesn't answer within ProbeInterval. For a Cooldown from then on,
	//     no call is the probe; nor, if it has asked for longer, until the next Probe has had its time.
	//     Once the breaker has been open for ten Cooldowns, a call is one all the same, because Probe
	//     may be what is broken.
	//   - An error that isn't counted says nothing, by Classify, and neither does a panic. If Probe says
	//     nothing for a Cooldown, a call is the probe.
	//
	// Probe closes the breaker at most once in a Cooldown. If calls open it again sooner, Probe can't see
	// what is wrong: it isn't called then, and after the Cooldown a call is the probe. It is called again
	// when that has failed, or if none has within another Cooldown.
	//
	// Below a breaker with keys, each open one asks by itself, whether or not there are calls: up to 1,024, where
	// agents choose the keys. One Probe of a breaker runs at a time, on a goroutine that exists only while it runs.
	// If four that ignore their context still run, no further one is started. [Guard.Close] and [Breaker.Reset] end
	// it.
	Probe func(ctx context.Context) error

	// ProbeInterval is the longest time between the beginnings of two Probes, and from the opening of
	// the breaker to the first. Each time is drawn from its upper half, so that servers that share a backend
	// don't ask it together. A RetryAfter of the error puts the next Probe off until that
	// has passed since the end of this one, and by a Cooldown at most. A Fleet that refuses one puts it
	// off too: then it may take half a ProbeInterval longer, or more after a relapse that Probe can't see.
	// Zero means 5s. It must not be negative.
	ProbeInterval time.Duration

	// Classify returns what an error means. It is called concurrently and never with nil. The error may
	// be wrapped together with what the tool's backend has said: ask it by errors.Is and errors.As. If
	// it panics, the error is ClassTransient. Nil means the package's Classify.
	Classify func(error) Class

	// OnChange is called for each change of state, in order and one at a time, on a
	// goroutine of its own: it never delays a call, and it may use the breaker. A panic in
	// it is recovered. While it blocks, up to 1,024 changes wait and further ones are
	// dropped. Nil means that nothing is called.
	OnChange func(name string, from, to State)
}

func (c BreakerConfig) check() []error {
	var errs fieldErrors
	if c.Failures < 0 {
		errs.add("Failures", "is %d: it must not be negative (0 is the default)", c.Failures)
	}

	errs.notNegative("Cooldown", c.Cooldown)
	errs.notNegative("ProbeTimeout", c.ProbeTimeout)
	errs.notNegative("ProbeInterval", c.ProbeInterval)
	return errs
}

// or returns c with what it leaves zero as in template.
func (c BreakerConfig) or(template BreakerConfig) BreakerConfig {
	c.Failures = cmp.Or(c.Failures, template.Failures)
	c.Cooldown = cmp.Or(c.Cooldown, template.Cooldown)
	c.ProbeTimeout = cmp.Or(c.ProbeTimeout, template.ProbeTimeout)
	c.ProbeInterval = cmp.Or(c.ProbeInterval, template.ProbeInterval)
	if c.Probe == nil {
		c.Probe = template.Probe
	}
	if c.Classify == nil {
		c.Classify = template.Classify
	}
	if c.OnChange == nil {
		c.OnChange = template.OnChange
	}
	return c
}

// longest is how long a Probe that fails, or a fleet, can keep calls from being the probe.
func (c BreakerConfig) longest() time.Duration {
	return maxCooldowns * min(c.Cooldown, never/maxCooldowns)
}

func (c BreakerConfig) withDefaults() BreakerConfig {
	return c.or(BreakerConfig{
		Failures: defaultFailures, Cooldown: defaultCooldown,
		ProbeTimeout: defaultProbeTimeout, ProbeInterval: defaultProbeInterval,
	})
}
