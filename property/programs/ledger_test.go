package programs

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// This file computes the state of a breaker from what has happened to its calls: one return is one count.

// A ledger is a breaker that is too simple to be wrong. It takes it as given which calls were admitted, and which were
// counted as failures, and says whether the former may be, and what follows from the latter.
type ledger struct {
	breaker
	state    resilience.State
	failures int // in a row; those that opened it, while it isn't closed
	phase    int // counts the changes of state
	probeAt  time.Duration
	admitted map[*record]int // the phase
	changes  []string
	wrong    string
	doubtful bool // something has happened in the same moment as something else
}

// An entry is what happens to a breaker.
type entry struct {
	moment
	do func(*ledger)
}

// ledgerOf returns the ledger of a breaker at present. w.mu must be held.
func (w *world) ledgerOf(n int) *ledger {
	var entries []entry
	l := &ledger{breaker: w.breakers[n], state: resilience.StateClosed, admitted: make(map[*record]int)}
	for _, r := range w.records {
		if r.config.breaker != n {
			continue
		}
		joins, sure := r.joins()
		if joins || !sure && !r.wasAdmitted() {
			continue
		}
		if !sure || slices.ContainsFunc(w.records, r.coincides) {
			l.doubtful = true
			return l
		}
		entries = append(entries, entry{r.began, func(l *ledger) { l.begin(r) }})
		if !r.returned.never() && r.wasAdmitted() {
			entries = append(entries, entry{r.returned, func(l *ledger) { l.settle(r) }})
		}
	}

	slices.SortFunc(entries, func(a, b entry) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) })
	for _, e := range entries {
		if e.do(l); l.wrong != "" || l.doubtful {
			break
		}
	}
	return l
}

// joins reports whether r is part of a call around it, which the same breaker has admitted, and whether that is sure: a
// call around it on that breaker may just have ended.
func (r *record) joins() (yes, sure bool) {
	sure = true
	for a := r.parent; a != nil; a = a.parent {
		if a.config.breaker == r.config.breaker {
			yes = yes || a.returned.never() || a.returned.at > r.began.at
			sure = sure && (a.returned.never() || a.returned.at > r.began.at)
		}
	}
	return yes, sure
}

// coincides reports whether another call on the same breaker, during which r begins, begins or returns in a moment in
// which r does.
func (r *record) coincides(other *record) bool {
	joins, _ := other.joins()
	if other == r || joins || other.breaker != r.breaker || other.returned.never() ||
		other.began.seq > r.began.seq || other.returned.seq < r.began.seq {
		return false
	}
	return other.began.at == r.began.at || other.returned.at == r.began.at ||
		other.returned.at == r.returned.at && !r.returned.never()
}

// wasAdmitted reports whether the breaker has admitted the call. An OVERLOADED gives the permission back.
func (r *record) wasAdmitted() bool {
	return len(r.attempts) > 0 || r.err != nil && r.err.Code == resilience.CodeOverloaded
}

func (l *ledger) become(s resilience.State, at time.Duration, cause resilience.Cause) {
	l.changes = append(l.changes, fmt.Sprintf("%s to %s at %s by %s", l.state, s, at, cause))
	l.state = s
	l.phase++
	if s == resilience.StateClosed {
		l.failures = 0
	}
}

func (l *ledger) open(at time.Duration) {
	l.probeAt = at + l.cooldown.time()
	l.become(resilience.StateOpen, at, resilience.CauseCalls)
}

func (l *ledger) begin(r *record) {
	at := r.began.at
	rejected := r.err != nil && r.err.Code == resilience.CodeCircuitOpen && len(r.attempts) == 0
	admitted := r.wasAdmitted()
	switch {
	case !rejected && !admitted: // there was nothing to decide, or the call has not come so far
		l.doubtful = l.state == resilience.StateOpen && at >= l.probeAt
		return
	case l.state == resilience.StateOpen && at < l.probeAt && admitted:
		l.wrong = fmt.Sprintf("it is %s and admits call %d", l.state, r.number)
	case l.state == resilience.StateClosed && rejected:
		l.wrong = fmt.Sprintf("it is closed and rejects call %d", r.number)
	case l.state == resilience.StateOpen && at >= l.probeAt && rejected:
		l.wrong = fmt.Sprintf("its cooldown is over and it rejects call %d", r.number)
	case l.state == resilience.StateHalfOpen && rejected && !l.probing(r):
		l.wrong = fmt.Sprintf("it rejects call %d, though none is the probe", r.number)
	case l.state == resilience.StateOpen && admitted:
		l.become(resilience.StateHalfOpen, at, resilience.CauseCooldown)
	}
	if admitted {
		l.admitted[r] = l.phase
	}
}

// probing reports whether a call that may be the probe is under way when r begins.
func (l *ledger) probing(r *record) bool {
	for other, phase := range l.admitted {
		underWay := other.returned.never() || r.began.seq < other.returned.seq
		if phase == l.phase && underWay && !other.asked(r.began) {
			return true
		}
	}
	return false
}

// settle counts a call as its end does.
func (l *ledger) settle(r *record) {
	if len(r.ends) == 0 {
		l.doubtful = true // its end isn't known yet
		return
	}
	e := r.ends[0]
	switch at := r.returned.at; {
	case l.admitted[r] != l.phase && e.Counted:
		l.wrong = fmt.Sprintf("it counts call %d, which is of an earlier phase", r.number)
	case l.admitted[r] != l.phase:
	case e.Counted:
		l.failures++
		if l.state == resilience.StateHalfOpen || l.failures >= l.breaker.failures {
			l.open(at)
		}
	case e.Err != nil || e.Unfinished:
	case l.state == resilience.StateHalfOpen:
		l.become(resilience.StateClosed, at, resilience.CauseCalls)
	default:
		l.failures = 0
	}
}

// stateAt returns the state of a breaker just before a time.
func (w *world) stateAt(name string, at time.Duration) resilience.State {
	s := resilience.StateClosed
	for _, c := range w.changes {
		if c.Breaker == name && c.Time.Sub(w.begin) < at {
			s = c.To
		}
	}
	return s
}

// isClosed reports whether the breaker is closed during the whole call.
func (r *record) isClosed() bool {
	return r.world.stateAt(r.breaker, r.began.at) == resilience.StateClosed &&
		!slices.ContainsFunc(r.world.changes, func(c resilience.BreakerChange) bool {
			at := c.Time.Sub(r.world.begin)
			return c.Breaker == r.breaker && r.began.at <= at && at < r.returned.at
		})
}
