package redisfleet

import "time"

// drift returns by how much a member's clock and the store's may have drifted apart after so long, at most.
func drift(passed time.Duration) time.Duration { return passed / 5000 }

// A serverClock is what a member knows of the store's clock, by which it tells the store when something was: what it
// was, at least and at most, at a moment of the member's own clock. However long a command takes to reach the store,
// what the member has seen keeps its order, and is no later than it would be if the store reckoned from the command's
// arrival. Of what different members have seen, only that is taken to be earlier which certainly is.
type serverClock struct{ own, low, high time.Time }

// heard returns the clock after a reply that gives the store's time, in whole milliseconds. It was that at some moment
// between the question and the answer, so the clock is as good as the fastest replies. If it can't be what it was taken
// to be, it has been set, or is that of another server.
func (c serverClock) heard(server, asked, answered time.Time) serverClock {
	took := answered.Sub(asked)
	now := serverClock{answered, server, server.Add(time.Millisecond + took + drift(took))}
	if c.own.IsZero() {
		return now
	}

	passed := answered.Sub(c.own)
	low, high := c.low.Add(passed-drift(passed)), c.high.Add(passed+drift(passed))
	if low.After(now.high) || high.Before(now.low) {
		return now
	}

	if low.After(now.low) {
		now.low = low
	}
	if high.Before(now.high) {
		now.high = high
	}
	return now
}

// earliest and latest return between which times of the store's clock a moment of the member's was: zero if it is zero,
// or the clock isn't known.
func (c serverClock) earliest(own time.Time) time.Time { return c.at(c.low, own) }
func (c serverClock) latest(own time.Time) time.Time   { return c.at(c.high, own) }

func (c serverClock) at(server, own time.Time) time.Time {
	if own.IsZero() || c.own.IsZero() {
		return time.Time{}
	}
	return server.Add(own.Sub(c.own))
}
