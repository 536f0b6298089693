package resilience

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Jitter says how a [Backoff] spreads its delays, so that callers who failed
// together don't come back together.
type Jitter uint8

const (
	// FullJitter draws a delay from [0, ceiling], the "full jitter" of Marc
	// Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
	FullJitter Jitter = iota
	// SmallJitter draws a delay from within 15% of the ceiling, never above Max.
	SmallJitter
	// NoJitter takes the ceiling itself.
	NoJitter
)

const (
	defaultBase = 500 * time.Millisecond
	defaultMax  = 60 * time.Second
)

// Backoff computes the delays between attempts. The ceiling for an attempt is
// min(Max, Base·2^attempt); Jitter says how a delay is drawn below it.
//
// A Backoff is a value without hidden state: copy and share it as you like. Its
// methods are safe for concurrent use.
type Backoff struct {
	Base   time.Duration // the first ceiling; 0: 500ms; negative: no delays at all
	Max    time.Duration // the highest ceiling; 0: 60s, or Base if that is longer; negative: no delays at all
	Jitter Jitter        // FullJitter unless set; an unknown value is FullJitter too
}

// Delay returns how long to wait after the given attempt, counted from 0. It is
// pure but for chance. Any attempt is allowed: a negative one counts as 0, and
// however high it is the ceiling stays at Max.
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

// check names the fields as those of a Backoff field.
func (b Backoff) check() []error {
	errs := notNegative("Backoff.Base", b.Base, "Backoff.Max", b.Max)
	if b.Max > 0 && b.Base > b.Max {
		errs = append(errs, fmt.Errorf("Backoff.Max is %s: it must not be under Base, %s", b.Max, b.Base))
	}
	if b.Jitter > NoJitter {
		errs = append(errs, fmt.Errorf("Backoff.Jitter is %d: it must be FullJitter, SmallJitter or NoJitter", b.Jitter))
	}
	return errs
}

func (b Backoff) ceiling(attempt int) time.Duration {
	b = b.withDefaults(defaultBase, defaultMax)
	if b.Base < 0 || b.Max < 0 {
		return 0
	}
	attempt = max(attempt, 0)
	if attempt < 63 && b.Base <= b.Max>>attempt { // so that the shift can't overflow
		return b.Base << attempt
	}
	return b.Max
}

func (b Backoff) withDefaults(base, ceiling time.Duration) Backoff {
	if b.Base == 0 {
		b.Base = base
		if b.Max > 0 {
			b.Base = min(base, b.Max)
		}
	}
	if b.Max == 0 {
		b.Max = max(ceiling, b.Base)
	}
	return b
}

// between draws uniformly from [low, high].
func between(low, high time.Duration) time.Duration {
	return low + time.Duration(rand.Uint64N(uint64(high-low)+1))
}

// New returns the same delays as a policy for the loops of cenkalti/backoff: the
// first is Delay(0), Reset starts again there, and it never says Stop. Unlike
// other policies of that package it is safe for concurrent use; callers that share
// one share its count of attempts, so give each loop its own.
func (b Backoff) New() backoff.BackOff { return &policy{delays: b} }

type policy struct {
	delays   Backoff
	attempts atomic.Int64
}

func (p *policy) NextBackOff() time.Duration {
	return p.delays.Delay(int(p.attempts.Add(1) - 1))
}

func (p *policy) Reset() { p.attempts.Store(0) }
