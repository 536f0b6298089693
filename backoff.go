package resilience

import (
	"cmp"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Jitter spreads the delays of a [Backoff], so that callers that failed together don't come back
// together.
type Jitter uint8

const (
	// FullJitter draws a delay from [0, ceiling]. It is the "full jitter" of Marc Brooker,
	// "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
	FullJitter Jitter = iota

	// SmallJitter draws a delay within 15% of the ceiling, but not above Max.
	SmallJitter

	// NoJitter uses the ceiling itself.
	NoJitter
)

const (
	defaultBase = 500 * time.Millisecond
	defaultMax  = 60 * time.Second
)

// Backoff computes the delays between attempts. The ceiling of the delay after an attempt is
// min(Max, Base·2^attempt), and Jitter draws the delay below it.
//
// In a [Retry] or a [ConnectorConfig], its durations must not be negative, Max must not be under Base,
// and Jitter must be one of the constants. A Backoff is a plain value without hidden state, which may be
// copied and shared. Its methods are safe for concurrent use.
type Backoff struct {
	// Base is the first ceiling. Zero means 500ms. If it is negative, there are no delays.
	Base time.Duration

	// Max is the highest ceiling. Zero means 60s, or Base if that is longer. If it is
	// negative, there are no delays.
	Max time.Duration

	// Jitter draws the delays. The zero value is FullJitter, and Delay takes any unknown value for that.
	Jitter Jitter
}

// Delay returns how long to wait after the given attempt, counted from 0. A negative attempt
// counts as 0. However high the attempt is, the ceiling stays at Max.
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

// Policy returns the same delays as a policy for the loops of cenkalti/backoff. The first is
// Delay(0), Reset starts again there, and the policy never stops. Unlike other policies of
// that package it is safe for concurrent use, but loops that share one share its count of
// attempts, so each loop should have its own.
func (b Backoff) Policy() backoff.BackOff { return &policy{delays: b} }

type policy struct {
	delays   Backoff
	attempts atomic.Int64
}

func (p *policy) NextBackOff() time.Duration {
	return p.delays.Delay(int(p.attempts.Add(1) - 1))
}

func (p *policy) Reset() { p.attempts.Store(0) }
