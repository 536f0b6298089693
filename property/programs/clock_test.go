package programs

import (
	"math"
	"time"
)

// This file computes when a call must have returned.

const forever = time.Duration(math.MaxInt64)

// A clock is a timeout that progress restarts and that pauses suspend. Its times are those of the run.
type clock struct {
	timeout, due, latest time.Duration
	restarts             bool
	pauses               int
	pausedAt             time.Duration
}

func (c *clock) tick(t tick) {
	if t.at > c.due {
		return
	}
	switch t.kind {
	case stepProgress:
		if c.restarts && c.pauses == 0 {
			c.due = min(t.at+c.timeout, c.latest)
		}
	case stepPause:
		if c.pauses++; c.pauses == 1 {
			c.pausedAt, c.due = t.at, forever
		}
	case stepResume:
		if c.pauses--; c.pauses == 0 {
			c.latest = max(c.latest+t.at-c.pausedAt, t.at+c.timeout)
			c.due = min(t.at+c.timeout, c.latest)
		}
	}
}

// timeouts returns the timeout of the whole call and its maximum.
func (r *record) timeouts() (timeout, maximum time.Duration) {
	own := r.config.timeout.time()
	timeout, maximum = own, max(own, r.config.maxTimeout.time())
	if r.timeout > 0 {
		timeout = min(r.timeout.time(), maximum)
	}
	if maximum == own {
		maximum = timeout
	}
	return timeout, maximum
}

// clockBefore returns the clock of the call as it is just before a moment.
func (r *record) clockBefore(m moment) clock {
	timeout, maximum := r.timeouts()
	return r.clock(timeout, maximum, r.began.at, m, nil)
}

// clockOf returns the clock of an attempt that has a timeout of its own, when the attempt has ended.
func (a *attempt) clockOf() clock {
	timeout := a.config.attemptTimeout.time()
	maximum := timeout
	if _, most := a.timeouts(); a.config.maxTimeout > a.config.timeout {
		maximum = max(timeout, most)
	}
	return a.clock(timeout, maximum, a.began.at, moment{seq: math.MaxInt}, a)
}

func (r *record) clock(timeout, maximum, began time.Duration, until moment, of *attempt) clock {
	c := clock{timeout: timeout, due: began + timeout, latest: began + maximum, restarts: maximum > timeout}
	for _, t := range r.ticks {
		if t.before(until) && (of == nil || t.attempt == of) {
			c.tick(t)
		}
	}
	return c
}

// due returns when the call must have returned, as far as its timeout is concerned.
func (r *record) due() time.Duration { return r.clockBefore(moment{seq: math.MaxInt}).due }

// deadline returns the one that the caller has brought, forever if there is none.
func (r *record) deadline() time.Duration {
	if !r.hasDeadline {
		return forever
	}
	return r.began.at + r.patience.time()
}

// hurried reports whether an attempt is answered in the second half of the time of a caller who has brought less than
// nine tenths of the tool's timeout, and whether that is sure: calls around it may be paused.
func (a *attempt) hurried() (yes, sure bool) {
	timeout, maximum := a.timeouts()
	c := a.clockBefore(a.ended)
	less := timeout < a.config.timeout.time() && !(c.due == c.latest && maximum > timeout)
	due := c.due
	if deadline := a.deadline(); deadline < due {
		due, less = deadline, less || due-deadline > a.config.timeout.time()/10
	}
	yes = less && a.ended.at-a.record.began.at > (due-a.record.began.at)/2
	return yes, a.outer() == nil && len(a.ticks) == 0
}

// cautious reports whether something restarts or suspends the timeout in the moment that the call returns. What comes
// first isn't certain then.
func (r *record) cautious() bool {
	for _, t := range r.ticks {
		if t.at == r.returned.at {
			return true
		}
	}
	return false
}

// last returns the last attempt, nil if there is none.
func (r *record) last() *attempt {
	if len(r.attempts) == 0 {
		return nil
	}
	return r.attempts[len(r.attempts)-1]
}

// A verdict is how a call has ended.
type verdict int

const (
	notMade  verdict = iota // the tool was never called
	answered                // by the tool's last attempt
	inDelay                 // before the next attempt
	cutOff                  // during an attempt
	unsure                  // the attempt and the call have ended in the same moment
)

func (r *record) verdict() verdict {
	a := r.last()
	switch {
	case a == nil:
		return notMade
	case len(r.retries) == len(r.attempts):
		return inDelay
	case a.ended.never() || a.ended.at > r.returned.at:
		return cutOff
	case a.late:
		return cutOff
	case r.due() <= r.returned.at || !r.left.never() && r.left.at <= r.returned.at || r.attemptDue() <= r.returned.at:
		return unsure
	}
	return answered
}

// retryDue returns when the next attempt must have begun, if the call has ended before one.
func (r *record) retryDue() time.Duration {
	if r.verdict() != inDelay {
		return forever
	}
	e := r.retries[len(r.retries)-1]
	return e.Time.Add(e.Delay).Sub(r.world.begin)
}

// attemptDue returns when the last attempt must have returned, as far as its own timeout is concerned.
func (r *record) attemptDue() time.Duration {
	if r.config.attemptTimeout == 0 {
		return forever
	}
	return r.last().clockOf().due
}
