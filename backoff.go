package resilience

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Jitter is how a [Backoff] spreads its delays, so that callers that failed together don't
// come back together.
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
// In a [Retry] or a [ConnectorConfig], its durations must not be negative, Max must not be under Base, and Jitter must
// be one of the constants.
//
// A Backoff is a plain value without hidden state, which may be copied and shared. Its
// methods are safe for concurrent use.
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
	ceiling := b.ceiling(attempt)
	if ceiling <= 0 {
		return 0
	}

	switch b.Jitter {
	case NoJitter:
		return ceiling
	case SmallJitter:
		spread := ceiling / 20 * 3
		high := b.withDefaults(defaultBase, defaultMax).Max
		if ceiling <= high-spread {
			high = ceiling + spread
		}
		return between(ceiling-spread, high)
	default:
		return between(0, ceiling)
	}
}

// check returns errors that name the fields as those of a field Backoff.
func (b Backoff) check() []error {
	var errs fieldErrors
	errs.notNegative("Backoff.Base", b.Base)
	errs.notNegative("Backoff.Max", b.Max)
	if b.Max > 0 && b.Base > b.Max {
		errs = append(errs, fmt.Errorf("Backoff.Max is %s: it must not be under Base, %s", b.Max, b.Base))
	}
	if b.Jitter > NoJitter {
		errs = append(errs,
			fmt.Errorf("Backoff.Jitter is %d: it must be FullJitter, SmallJitter or NoJitter", b.Jitter))
	}
	return errs
}

func (b Backoff) ceiling(attempt int) time.Duration {
	b = b.withDefaults(defaultBase, defaultMax)
	if b.Base < 0 {
		return 0
	}

	attempt = max(attempt, 0)
	if b.Base <= b.Max>>attempt { // so that the shift to the left can't overflow
		return b.Base << attempt
	}
	return b.Max
}

func (b Backoff) withDefaults(base, ceiling time.Duration) Backoff {
	if b.Base == 0 {
		b.Base = base
	}
	if b.Max == 0 {
		b.Max = max(ceiling, b.Base)
	}
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
