package programs

import (
	"math"
	"slices"
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
		timeout = r.timeout.time()
	}
	if maximum == own {
		maximum = timeout
	}
	return timeout, max(maximum, timeout)
}

// clockBefore returns the clock of the call as it is just before a moment.
func (r *record) clockBefore(m moment) clock {
	timeout, maximum := r.timeouts()
	c := clock{
		timeout: timeout, due: r.began.at + timeout, latest: r.began.at + maximum, restarts: maximum > timeout,
	}
	for _, t := range r.ticks {
		if t.before(m) {
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

// hasLess reports whether the caller, or a call around it, may have less time than the tool's timeout.
func (r *record) hasLess() bool { return r.timeout > 0 || r.caller != "" || r.parent != nil }

// cautious reports whether something restarts or suspends the timeout of the call, or of one around it, in the moment
// that the call or one within it returns. What comes first isn't certain then.
func (r *record) cautious() bool {
	for _, in := range r.world.records {
		comesFirst := func(t tick) bool { return t.at == in.returned.at && (t.kind != stepResume || in.caller != "") }
		if in.isWithin(r) && slices.ContainsFunc(r.ticks, comesFirst) {
			return true
		}
	}
	for x := r; x != nil; x = x.outer() {
		if slices.ContainsFunc(x.ticks, func(t tick) bool { return t.at == r.returned.at }) {
			return true
		}
	}
	return false
}

func (r *record) isWithin(other *record) bool {
	for r = r.outer(); r != nil && r != other; r = r.outer() {
	}
	return r != nil
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
	case r.due() <= r.returned.at || !r.left.never() && r.left.at <= r.returned.at:
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
