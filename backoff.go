package resilience

import (
	"cmp"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Jitter spreads the delays of a [Backoff], so that callers don't collide.
type Jitter uint8

const (
	FullJitter  Jitter = iota // from [0, ceiling]: Brooker, "Exponential Backoff And Jitter", AWS Blog, 2015
	SmallJitter               // within 15% of the ceiling, but not above Max
	NoJitter                  // the ceiling itself
)

const (
	defaultBase = 500 * time.Millisecond
	defaultMax  = 60 * time.Second
)

// Backoff computes the delays between attempts. The ceiling after an attempt is min(Max, Base·2^attempt).
// [Retry] and [ConnectorConfig] allow no negative times.
type Backoff struct {
	Base   time.Duration // the first ceiling; 0 means 500ms, and negative no delays
	Max    time.Duration // the highest ceiling, not under Base; 0 means 60s, or a longer Base; negative no delays
	Jitter Jitter        // draws the delay from the ceiling; the zero value is FullJitter
}

// Delay returns how long to wait after the given attempt, counted from 0.
func (b Backoff) Delay(attempt int) time.Duration {
	b = b.withDefaults(defaultBase, defaultMax)
	if b.Base < 0 || b.Max < 0 {
		return 0
	}

	ceiling := b.Max
	if attempt = max(attempt, 0); b.Base <= b.Max>>attempt { // so that the shift to the left can't overflow
		ceiling = b.Base << attempt
	}
	switch b.Jitter {
	case NoJitter:
		return ceiling
	case SmallJitter:
		spread := ceiling / 20 * 3
		return between(ceiling-spread, min(add(ceiling, spread), b.Max))
	default:
		return between(0, ceiling)
	}
}

// check returns an error for each bad field.
func (b Backoff) check() []error {
	var errs fieldErrors
	notNegative(&errs, "Backoff.Base", b.Base, "the default")
	notNegative(&errs, "Backoff.Max", b.Max, "the default")
	errs.require(b.Jitter <= NoJitter, "Backoff.Jitter",
		"is %d: it must be FullJitter, SmallJitter or NoJitter", b.Jitter)
	errs.require(b.Max <= 0 || b.Base <= b.Max, "Backoff.Max", "is %s: it must not be under Base, %s", b.Max, b.Base)
	return errs
}

func (b Backoff) withDefaults(base, ceiling time.Duration) Backoff {
	b.Base = cmp.Or(b.Base, base)
	b.Max = cmp.Or(b.Max, max(ceiling, b.Base))
	return b
}

// between draws from [low, high], uniformly.
func between(low, high time.Duration) time.Duration {
	return low + time.Duration(rand.Uint64N(uint64(high-low)+1))
}

// Policy returns the delays for one loop of cenkalti/backoff. It never stops.
func (b Backoff) Policy() backoff.BackOff { return &policy{delays: b} }

type policy struct {
	delays   Backoff
	attempts atomic.Int64
}

func (p *policy) NextBackOff() time.Duration {
	return p.delays.Delay(int(p.attempts.Add(1) - 1))
}

func (p *policy) Reset() { p.attempts.Store(0) }
