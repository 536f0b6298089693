package redisfleet

import "time"

// A serverClock is what a member knows of the store's clock, by which it tells the store when something was: its own
// clock at a moment, and the store's at the same. However long a command takes to reach the store, what the member has
// seen keeps its order and its time, and what others have seen differs by less than a round trip of theirs and one of its own.
type serverClock struct{ own, server time.Time }

// heard returns the clock after a reply that gives the store's time, in whole milliseconds. It was that at some moment
// between the question and the answer: the first reply is taken to be of the middle, and each later one moves the clock
// no more than it has to, so that it is as good as the fastest of them.
func (c serverClock) heard(server, asked, answered time.Time) serverClock {
	latest := server.Add(time.Millisecond)
	switch {
	case c.own.IsZero():
		return serverClock{asked.Add(answered.Sub(asked) / 2), server}
	case c.at(answered).Before(server):
		return serverClock{answered, server}
	case c.at(asked).After(latest):
		return serverClock{asked, latest}
	}
	return c
}

// at returns what the store's clock was at a moment of the member's: zero if that is zero, or the clock isn't known.
func (c serverClock) at(own time.Time) time.Time {
	if own.IsZero() || c.own.IsZero() {
		return time.Time{}
	}
	return c.server.Add(own.Sub(c.own))
}
