package resilience

import (
	"math"
	"time"
)

// never is a time that doesn't come.
const never = time.Duration(math.MaxInt64)

// A clock computes when a call must end. It is pure arithmetic: it has no lock and no
// timer, and its methods take the time as an argument. All times are since the start of
// the call.
type clock struct {
	timeout  time.Duration // progress restarts it
	own      time.Duration // the tool's own timeout, which is longer if the caller has brought a shorter one
	before   time.Duration // how much of the timeout had passed before the call began
	maximum  time.Duration // for the whole call; progress doesn't extend it
	latest   time.Duration // maximum, plus the time spent in pauses that have ended
	due      time.Duration // when the timeout or the maximum ends the call; never during a pause
	deadline time.Duration // the caller's own; never if there is none
	pauses   int           // that have not ended
	pausedAt time.Duration // when the first of these began
}

func newClock(timeout, maximum time.Duration) clock {
	return clock{
		timeout: timeout, own: timeout, maximum: maximum,
		latest: maximum, due: min(timeout, maximum), deadline: never,
	}
}

// end returns when the call must end, and whether that is the caller's deadline.
func (c *clock) end() (at time.Duration, callers bool) {
	if c.deadline < c.due {
		return c.deadline, true
	}

	return c.due, false
}

// last returns when the call must end at the latest, as far as its own timeout is concerned.
func (c *clock) last() time.Duration {
	if c.pauses > 0 {
		return never
	}
	return c.latest
}

// shortened reports whether the call is due earlier than it would be by the tool's own timeout or maximum, or
// most of that had passed before the call. One that progress has kept going is due at the maximum.
func (c *clock) shortened() bool {
	if c.isAtMaximum() {
		return c.before > c.maximum/2
	}
	return c.isShort()
}

// isAtMaximum reports whether progress has kept the call going until it is due at its maximum.
func (c *clock) isAtMaximum() bool { return c.due == c.latest && c.maximum > c.timeout }

// impatient reports whether less time is left from the beginning than the tool's own timeout.
func (c *clock) impatient() bool { return c.isShort() || c.deadline < c.own }

func (c *clock) isShort() bool { return c.timeout < c.own || c.before > c.timeout/2 }

// hurried reports whether the caller ends the call before the tool's own timeout would, and most of that time has
// passed. A deadline that leaves nearly as much time, as that of a call around this one with the same timeout does, is
// no hurry.
func (c *clock) hurried(now time.Duration) bool {
	at, _ := c.end()
	return (c.due-at > c.own/10 || c.shortened()) && now > at/2
}

// exceeded returns the timeout that a call has exceeded when it reaches its end.
func (c *clock) exceeded() time.Duration {
	switch {
	case c.deadline < c.due:
		return c.deadline
	case c.due == c.latest:
		return c.maximum
	default:
		return c.timeout
	}
}

// progress restarts the timeout, and reports whether it did: only a call with a maximum
// above its timeout has one that restarts, and not during a pause.
func (c *clock) progress(now time.Duration) bool {
	if c.pauses > 0 || c.maximum <= c.timeout {
		return false
	}

	c.restart(now)
	return true
}

// pause suspends the timeout until resume has been called as often as pause.
func (c *clock) pause(now time.Duration) {
	c.pauses++
	if c.pauses == 1 {
		c.pausedAt = now
		c.due = never
	}
}

// resume ends a pause, and reports whether it was the last one. The timeout then restarts
// in any case, even if the maximum had almost been reached before the pause.
func (c *clock) resume(now time.Duration) bool {
	c.pauses--
	if c.pauses > 0 {
		return false
	}

	c.latest = max(add(c.latest, now-c.pausedAt), add(now, c.timeout))
	c.restart(now)
	return true
}

func (c *clock) restart(now time.Duration) { c.due = min(add(now, c.timeout), c.latest) }

// add returns a + b, or never if that overflows. Neither may be negative.
func add(a, b time.Duration) time.Duration {
	if b > never-a {
		return never
	}

	return a + b
}
