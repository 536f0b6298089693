package resilience

import (
	"math"
	"time"
)

// never is a time that doesn't come.
const never = time.Duration(math.MaxInt64)

// limits compute when a call must end. They are pure arithmetic, and the time is an argument. All
// times are since the start of the call.
type limits struct {
	timeout  time.Duration // progress restarts it
	maximum  time.Duration // for the whole call, apart from pauses
	latest   time.Duration // the maximum, plus the time of pauses that have ended
	due      time.Duration // when the timeout or the maximum ends the call; never during a pause
	pausedAt time.Duration // when the first of the current pauses began
	pauses   int           // that haven't ended
}

func newLimits(timeout, maximum time.Duration) limits {
	return limits{timeout: timeout, maximum: maximum, latest: maximum, due: min(timeout, maximum)}
}

// paused returns by how much pauses that have ended have moved the maximum.
func (l *limits) paused() time.Duration { return l.latest - l.maximum }

// exceeded returns the timeout that a call exceeds when it is due.
func (l *limits) exceeded() time.Duration {
	if l.due == l.latest {
		return l.maximum
	}
	return l.timeout
}

// progress restarts the timeout, and reports whether it did: it doesn't during a pause, and only a
// maximum above the timeout leaves room for it.
func (l *limits) progress(now time.Duration) bool {
	if l.pauses > 0 || l.maximum <= l.timeout {
		return false
	}
	l.due = min(add(now, l.timeout), l.latest)
	return true
}

// pause suspends the timeout until resume has been called as often.
func (l *limits) pause(now time.Duration) {
	l.pauses++
	if l.pauses == 1 {
		l.pausedAt, l.due = now, never
	}
}

// resume ends a pause. The timeout restarts after the last one, even if the maximum had almost been
// reached before the pause.
func (l *limits) resume(now time.Duration) {
	l.pauses--
	if l.pauses == 0 {
		l.latest = max(add(l.latest, now-l.pausedAt), add(now, l.timeout))
		l.due = min(add(now, l.timeout), l.latest)
	}
}

// add returns a + b, or never if that overflows. Neither may be negative.
func add(a, b time.Duration) time.Duration {
	if b > never-a {
		return never
	}
	return a + b
}
