package programs

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// This file computes the state of a breaker from what has happened to its calls: one return is one count.

// A ledger is a breaker that is too simple to be wrong. It takes it as given which calls were admitted, and what Probes
// have changed, and says whether that may be, what else changes, and what is counted.
type ledger struct {
	breaker
	state    resilience.State
	failures int // in a row; those that opened it, while it isn't closed
	era      int // counts the changes of state, and resets
	probeAt  time.Duration
	admitted map[*record]int // the era
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
func (w *world) ledgerOf(name string) *ledger {
	var entries []entry
	l := &ledger{admitted: make(map[*record]int)}
	for i, b := range w.breakers {
		own, _, _ := cut(name)
		if own != breakerName(i) {
			continue
		}
		l.breaker = b
		for _, o := range w.orders {
			if o.breaker == i && name == own {
				entries = append(entries, entry{o.moment, func(l *ledger) { l.obey(o) }})
			}
		}
	}
	for _, r := range w.records {
		if r.breaker != name {
			continue
		}
		if r.tied || r.owner != r && r.parentsReturnWith() {
			l.doubt("owner")
		}
		if r.owner != r {
			if r.outlives(l) {
				if slices.ContainsFunc(w.records, r.returnsWith) {
					l.doubt("coincidence with a call that has outlived its owner")
				}
				entries = append(entries, entry{r.returned, func(l *ledger) { l.settle(r) }})
			}
			continue
		}
		if slices.ContainsFunc(w.records, r.coincides) {
			l.doubt("coincidence")
		}
		entries = append(entries, entry{r.began, func(l *ledger) { l.begin(r) }})
		if !r.returned.never() && r.wasAdmitted() {
			entries = append(entries, entry{r.returned, func(l *ledger) { l.settle(r) }})
		}
	}
	for _, c := range w.changes {
		if c.Breaker == name && c.Cause == resilience.CauseProbe {
			at := c.Time.Sub(w.begin)
			entries = append(entries, entry{moment{at: at}, func(l *ledger) { l.probed(w, c, at) }})
		}
	}

	slices.SortFunc(entries, func(a, b entry) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) })
	for _, e := range entries {
		e.do(l)
		if l.wrong != "" || l.doubtful {
			break
		}
	}
	return l
}

// coincides reports whether another call on the same breaker begins when r does, or returns when r begins or returns,
// and none knows which is first.
func (r *record) coincides(other *record) bool {
	if other == r || other.breaker != r.breaker || other.owner != other || other.returned.never() ||
		r.within(other) || other.within(r) || other.began.seq > r.began.seq {
		return false
	}
	return other.returned.seq > r.began.seq &&
		(other.began.at == r.began.at || other.returned.at == r.began.at ||
			other.returned.at == r.returned.at && !r.returned.never())
}

// outlives reports whether the call has outlived its owner, and all calls between that the same breaker counts, so
// that it is counted itself.
func (r *record) outlives(l *ledger) bool {
	if r.returned.never() || r.owner.returned.never() || r.owner.returned.at > r.returned.at {
		return false
	}

	detached := false
	for c := r; c != r.owner; c = c.parent.record {
		detached = detached || c.detached
		if c != r && c.owner == r.owner && (c.returned.never() || c.returned.at > r.returned.at) {
			return false
		}
	}
	leaves := !r.left.never() && r.left.at <= r.returned.at
	if detached && leaves && r.left.at == r.returned.at {
		l.doubt("end of the caller of a call that has outlived its owner")
	}
	return detached && !leaves
}

// parentsReturnWith reports whether its owner, or a call between, returns in the moment in which r begins.
func (r *record) parentsReturnWith() bool {
	for c := r; c != r.owner; {
		c = c.parent.record
		if c.owner == r.owner && c.returned.at == r.began.at {
			return true
		}
	}
	return false
}

// returnsWith reports whether another call on the same breaker begins or returns in the moment in which r returns.
func (r *record) returnsWith(other *record) bool {
	return other != r && other.breaker == r.breaker &&
		(other.began.at == r.returned.at || !other.returned.never() && other.returned.at == r.returned.at)
}

func (r *record) within(other *record) bool {
	for a := r.parent; a != nil; a = a.parent {
		if a.record == other {
			return true
		}
	}
	return false
}

// cut returns the name of the breaker of which name is that of a key.
func cut(name string) (own, key string, keyed bool) {
	for i, c := range name {
		if c == '/' {
			return name[:i], name[i+1:], true
		}
	}
	return name, "", false
}

// wasAdmitted reports whether the breaker has admitted the call. An OVERLOADED gives the permission back.
func (r *record) wasAdmitted() bool {
	return len(r.attempts) > 0 || r.err != nil && r.err.Code == resilience.CodeOverloaded
}

func (l *ledger) doubt(why string) { l.doubtful = true; seen["doubt: "+why]++ }

func (l *ledger) become(s resilience.State, at time.Duration, cause resilience.Cause) {
	l.changes = append(l.changes, fmt.Sprintf("%s to %s at %s by %s", l.state, s, at, cause))
	l.state = s
	l.era++
}

func (l *ledger) open(at, d time.Duration, cause resilience.Cause) {
	if l.state == resilience.StateClosed {
		l.failures = l.breaker.failures
	} else if cause == resilience.CauseCalls {
		l.failures++
	}
	l.probeAt = at + d
	l.become(resilience.StateOpen, at, cause)
}

func (l *ledger) close(at time.Duration, cause resilience.Cause) {
	l.failures = 0
	l.become(resilience.StateClosed, at, cause)
}

func (l *ledger) begin(r *record) {
	at := r.began.at
	rejected := r.err != nil && r.err.Code == resilience.CodeCircuitOpen && len(r.attempts) == 0
	admitted := r.wasAdmitted()
	switch {
	case !rejected && !admitted: // there was nothing to decide, or the call has not come so far
		ended := r.err != nil && (r.err.Code == resilience.CodeTimeout || r.err.Code == resilience.CodeCanceled)
		if ended && r.caller != "has left" && l.state == resilience.StateOpen && at >= l.probeAt {
			l.doubt("end in the moment of the admission")
		}
		return
	case l.state == resilience.StateIsolated && admitted, l.state == resilience.StateOpen && at < l.probeAt && admitted:
		l.wrong = fmt.Sprintf("it is %s and admits call %d", l.state, r.number)
	case l.state == resilience.StateClosed && rejected:
		l.wrong = fmt.Sprintf("it is closed and rejects call %d", r.number)
	case l.state == resilience.StateOpen && at >= l.probeAt && rejected && l.probe == "":
		l.wrong = fmt.Sprintf("its cooldown is over and it rejects call %d", r.number)
	case l.state == resilience.StateHalfOpen && rejected && !l.probing(r):
		l.wrong = fmt.Sprintf("it rejects call %d, though none is the probe", r.number)
	case l.state == resilience.StateOpen && admitted:
		l.become(resilience.StateHalfOpen, at, resilience.CauseCooldown)
	}
	if admitted {
		l.admitted[r] = l.era
	}
}

// probing reports whether a call that may be the probe is under way when r begins.
func (l *ledger) probing(r *record) bool {
	for other, era := range l.admitted {
		if era == l.era && (other.returned.never() || r.before(other)) && !other.asked(r.began) {
			return true
		}
	}
	return false
}

func (r *record) before(other *record) bool { return r.began.seq < other.returned.seq }

func (l *ledger) settle(r *record) {
	o := r.outcome()
	if r.isolatedMeanwhile() {
		o = neutral
	}
	switch at := r.returned.at; {
	case l.admitted[r.owner] != l.era || o == neutral:
	case r.owner != r && l.state != resilience.StateClosed:
	case o == perhaps:
		l.doubt(fmt.Sprint("verdict ", r.verdict()))
	case o == success && l.state == resilience.StateHalfOpen:
		l.close(at, resilience.CauseCalls)
	case o == success:
		l.failures = 0
	case l.state == resilience.StateHalfOpen:
		l.open(at, l.cooldown.time(), resilience.CauseCalls)
	default:
		if l.failures++; l.failures >= l.breaker.failures {
			l.open(at, l.cooldown.time(), resilience.CauseCalls)
		}
	}
}

func (l *ledger) obey(o given) {
	switch at := o.at; o.what {
	case "isolate":
		if l.state != resilience.StateIsolated {
			l.become(resilience.StateIsolated, at, resilience.CauseManual)
		}
	case "trip":
		d := o.time.time()
		if d == 0 {
			d = l.cooldown.time()
		}
		switch l.state {
		case resilience.StateIsolated:
		case resilience.StateOpen:
			l.probeAt = at + d
		default:
			l.open(at, d, resilience.CauseManual)
		}
	case "reset":
		if l.state == resilience.StateClosed {
			l.era++
			l.failures = 0
			return
		}
		l.close(at, resilience.CauseManual)
	}
}

// probed believes a change that a Probe has brought about, if there was a Probe that has come to that result.
func (l *ledger) probed(w *world, c resilience.BreakerChange, at time.Duration) {
	var by *probing
	for _, p := range w.probes {
		ended := !p.ended.never() && p.ended.at == at
		if p.breaker == c.Breaker && (ended || p.began.at+maxProbeInterval == at) {
			by = p
		}
	}
	switch {
	case by == nil, by.works != (c.To == resilience.StateClosed):
		l.wrong = fmt.Sprintf("no Probe has made it %s at %s", c.To, at)
	case l.state != c.From, c.From == resilience.StateIsolated:
		l.wrong = fmt.Sprintf("a Probe makes it %s at %s, though it is %s", c.To, at, l.state)
	case c.To == resilience.StateClosed:
		l.close(at, resilience.CauseProbe)
	case c.From == resilience.StateHalfOpen:
		l.open(at, 0, resilience.CauseProbe)
	default:
		l.wrong = fmt.Sprintf("a Probe makes it %s", c.To)
	}
}

// An outcome is what a call means to its breaker.
type outcome int

const (
	neutral outcome = iota
	success
	failure
	perhaps // either, since two things have happened in the same moment
)

func (r *record) outcome() outcome {
	switch {
	case r.exited && r.err == nil: // its end isn't known yet
		return perhaps
	case r.err == nil:
		return success
	case len(r.attempts) == 0:
		return neutral
	case !r.left.never() && r.left.at < min(r.returned.at, r.due()):
		return neutral
	}

	switch v := r.verdict(); v {
	case answered:
		return r.answerCounts()
	case inDelay: // its caller has left, its breaker has changed, or an abandoned attempt has done something
		if !r.left.never() || r.err.Code == resilience.CodeCircuitOpen {
			return neutral
		}
	case cutOff:
		return r.cutOffCounts()
	}
	return perhaps
}

// cutOffCounts returns the outcome of a call that has ended during an attempt: only the tool's own timeout is a
// failure.
func (r *record) cutOffCounts() outcome {
	c, a, left, attempt := r.clockBefore(moment{seq: math.MaxInt}), r.last(), forever, r.attemptDue()
	if !r.left.never() {
		left = r.left.at
	}
	if whole := min(left, c.due); r.config.cooperative && whole <= a.ended.at && whole != attempt {
		attempt = forever // the end of the whole call comes first
	}

	timeout, maximum := r.timeouts()
	shortened := timeout < r.config.timeout.time() && !(c.due == c.latest && maximum > timeout)
	ofEnd := r.err.Code == resilience.CodeTimeout || r.err.Code == resilience.CodeCanceled
	answer := a.ended.at == r.returned.at && (!ofEnd || errors.Is(r.err, resilience.ErrUnfinished))
	switch {
	case r.cautious(), answer, left == min(c.due, attempt), attempt == c.due && shortened && c.due < left:
		return perhaps
	case left < min(c.due, attempt), c.due < attempt && shortened:
		return neutral
	}
	return failure
}

// answerCounts returns the outcome of a call whose last attempt has answered. A rejection elsewhere leaves the word to
// an earlier attempt.
func (r *record) answerCounts() outcome {
	for i, a := range slices.Backward(r.attempts) {
		late := a.ended.never() || a.ended.at > r.returned.at
		if a.ending == nil || late || i < len(r.attempts)-1 && a.lateForItself() {
			return perhaps
		}
		if a.ending.rejected() && !a.ending.counts {
			continue
		}
		if hurried, sure := a.hurried(); a.ending.code == resilience.CodeTimeout && !sure {
			return perhaps
		} else if a.ending.code == resilience.CodeTimeout && hurried {
			return neutral
		}
		return a.counts()
	}
	return neutral
}

// says returns what a call that has failed in words of the guard's own says about the backend.
func (r *record) says() outcome {
	if !r.left.never() && r.leftBy.Error() == "context canceled" && r.err.Code != resilience.CodeCanceled {
		switch first := min(r.returned.at, r.due()); { // what the tool says after that nobody counts
		case r.left.at < first:
			return neutral
		case r.left.at == first:
			return perhaps
		}
	}

	switch r.err.Code {
	case resilience.CodeCircuitOpen, resilience.CodeOverloaded, resilience.CodeShuttingDown:
		// Unless the tool has got it, it is the guard's own rejection.
		a := r.last()
		switch {
		case a == nil || a.ending == nil || !a.ending.rejected():
			return neutral
		case r.verdict() == answered:
			return r.answerCounts()
		case a.ended.at == r.returned.at:
			return perhaps
		}
		return neutral
	case resilience.CodeToolFailed:
	default:
		return failure
	}
	if len(r.attempts) == 0 {
		return failure
	}
	a := r.attempts[len(r.attempts)-1]
	if a.ending == nil {
		return failure
	}
	return a.counts()
}

func (a *attempt) counts() outcome {
	e := a.ending
	switch {
	case e == &echo, len(a.calls) > 0 && e.silent && e.own:
		return perhaps
	case e.crash:
		return failure
	case e.silent && (a.told == stepGood || a.told == stepRejected || a.told == "" && a.isBehind()):
		return neutral
	case e.counts:
		return failure
	}
	return neutral
}

// isolatedMeanwhile reports whether the breaker of the tool was isolated during a call that has one of its key, or
// still is when a call ends that has passed within another one.
func (r *record) isolatedMeanwhile() (isolated bool) {
	if r.breaker == breakerName(r.config.breaker) {
		return false
	}
	for _, o := range r.world.orders {
		switch {
		case o.breaker != r.config.breaker || o.seq > r.returned.seq:
		case o.what == "isolate":
			isolated = true
		case o.what == "reset" && o.seq < r.began.seq:
			isolated = false
		}
	}
	return isolated
}

// stateAt returns the state of a breaker just before a time.
func (w *world) stateAt(name string, at time.Duration) (s resilience.State) {
	for _, c := range w.changes {
		if c.Breaker == name && c.Time.Sub(w.begin) < at {
			s = c.To
		}
	}
	return s
}

// changesDuring reports whether a breaker, or that of which it is a key, isn't closed all the time.
func (w *world) changesDuring(name string, from, to time.Duration) bool {
	own, _, _ := cut(name)
	return slices.ContainsFunc(w.changes, func(c resilience.BreakerChange) bool {
		at := c.Time.Sub(w.begin)
		return (c.Breaker == name || c.Breaker == own) && from <= at && at <= to
	}) || w.stateAt(name, from) != resilience.StateClosed || w.stateAt(own, from) != resilience.StateClosed
}

// lateOf returns the attempts of a tool that go on after their call has returned.
func (w *world) lateOf(tool int) (late []*attempt) {
	for _, r := range w.records {
		for _, a := range r.attempts {
			if r.tool == tool && a.ended.at > r.returned.at {
				late = append(late, a)
			}
		}
	}
	return late
}
