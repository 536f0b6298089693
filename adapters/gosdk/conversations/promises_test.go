package conversations

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// What package gosdk promises of messages, as its documentation says.
var promises = []struct {
	name   string
	broken func(w *world) string // empty if it isn't
}{
	{"each call ends", (*world).hung},
	{"what is told without an error is read", (*world).lost},
	{"what is told has no error while its context lives", (*world).failed},
	{"a client that reads may be asked", (*world).notAsked},
	{"what a goroutine tells is read in order", (*world).disordered},
	{"what a tool tells its client is read before the answer", (*world).readTooLate},
	{"a tool waits for its clients for a tenth of its time", (*world).waited},
	{"what belongs to no call waits for 100ms, and a tenth of the time", (*world).othersWaited},
	{"no client makes a tool time out", (*world).timedOut},
	{"the answer waits for a second for each message", (*world).answeredLate},
	{"a timeout waits for nothing", (*world).timedOutLate},
}

// maxKept is how many messages are kept for a client.
const maxKept = 1000

// isSteady reports whether a client has always read each message within a second, also if others are written to it
// at the same time.
func (w *world) isSteady(client int) bool {
	for _, s := range w.clients[client].reads {
		if min(s.takes, s.lasts)*time.Duration(1+w.threads()) >= time.Second {
			return false
		}
	}
	return true
}

// threads returns how many goroutines may write at the same time: what is written for each call, for no call, and
// requests.
func (w *world) threads() (n int) {
	for _, c := range w.calls {
		n += 1 + len(c.threads)
	}
	return n
}

// last returns the last attempt of a call, nil if there was none.
func (w *world) last(call int) (last *attempt) {
	for _, a := range w.attempts {
		if a.call == call {
			last = a
		}
	}
	return last
}

// patience returns the time of an attempt of which a tenth is for clients.
func (w *world) patience() time.Duration { return min(w.timeout, cmp.Or(w.attemptTimeout, w.timeout)) }

func (m *message) isQuestion() bool { return m.kind == ask || m.kind == ping }

// vanishes reports whether a client does so before all is over.
func (w *world) vanishes(client int) bool { return w.clients[client].vanishes > 0 }

// isWithheld reports whether a message is progress that isn't that of its call.
func (w *world) isWithheld(m *message) bool { return m.kind == progress && m.attempt != w.last(m.call) }

func (w *world) hung() string {
	if w.ended >= day {
		return fmt.Sprintf("the last one ends after %s", w.ended)
	}
	return ""
}

func (w *world) lost() string {
	for _, m := range w.messages {
		if m.isQuestion() || m.err != nil || m.inVain || m.order > 0 || w.vanishes(m.to) {
			continue
		}
		left := w.calls[m.call].leaves > 0 && !w.outcomes[m.call].ok
		dropped := left || w.outcomes[m.call].timedOut || !w.isSteady(m.to) // with the end of the call
		if !(m.own(&w.conversation) && dropped) && !w.isWithheld(m) {
			return m.String()
		}
	}
	return ""
}

func (w *world) failed() string {
	for _, m := range w.messages {
		if !m.isQuestion() && m.err != nil && !m.inVain && !w.vanishes(m.to) && len(w.messages) <= maxKept {
			return m.String()
		}
	}
	return ""
}

func (w *world) notAsked() string {
	for _, m := range w.messages {
		if m.kind == ask && m.err != nil && !m.inVain && w.isSteady(m.to) && !w.vanishes(m.to) {
			return m.String()
		}
	}
	return ""
}

func (w *world) disordered() string {
	type sender struct {
		of         *attempt
		thread, to int
		own        bool
	}
	last := make(map[sender]*message)
	for _, m := range w.messages {
		late := m.returned > 0 && m.begun >= m.returned // or at the same moment
		if m.order == 0 || m.kind == ask && late {
			continue
		}
		s := sender{m.attempt, m.thread, m.to, m.own(&w.conversation)}
		if before := last[s]; before != nil && before.order > m.order {
			return fmt.Sprintf("%s is read after %s", before, m)
		}
		last[s] = m
	}
	return ""
}

func (w *world) readTooLate() string {
	for _, m := range w.messages {
		c := w.outcomes[m.call]
		before := m.thread == 0 || m.ended < m.returned // the tool's return
		if m.isQuestion() || m.err != nil || !m.own(&w.conversation) || !c.ok || !w.isSteady(m.to) || !before ||
			w.isWithheld(m) {
			continue
		}
		if m.order == 0 || m.read > c.answered {
			return fmt.Sprintf("%s of the call %+v", m, *c)
		}
	}
	return ""
}

func (w *world) waited() string {
	for _, a := range w.attempts {
		end := cmp.Or(a.returned, time.Hour)
		var waits []interval
		for _, m := range w.messages {
			if m.attempt == a && m.kind != ask && m.kind != tellApart && m.begun < end {
				waits = append(waits, interval{m.begun, min(m.ended, end)})
			}
		}
		if len(waits) == 0 {
			continue
		}
		limit := min(time.Second, w.patience()/10) + (last(waits)-a.started)/10 + ms
		if w.calls[a.call].leaves > 0 {
			limit += 100 * ms // of grace, for a ping
		}
		if took := sum(waits); took > limit {
			return fmt.Sprintf("the attempt %+v waits for %s, instead of %s", *a, took, limit)
		}
	}
	return ""
}

func (w *world) othersWaited() string {
	var waits []interval
	for _, m := range w.messages {
		if !m.isQuestion() && !m.own(&w.conversation) {
			waits = append(waits, interval{m.begun, m.ended})
		}
	}
	if len(waits) == 0 {
		return ""
	}
	if took, limit := sum(waits), 100*ms+(last(waits)-waits[0].begun)/10+ms; took > limit {
		return fmt.Sprintf("they wait for %s, instead of %s", took, limit)
	}
	return ""
}

// An interval is one of time.
type interval struct{ begun, ended time.Duration }

// sum returns how long some of the intervals last.
func sum(all []interval) (d time.Duration) {
	slices.SortFunc(all, func(a, b interval) int { return int(a.begun - b.begun) })
	var end time.Duration
	for _, i := range all {
		d += max(i.ended-max(i.begun, end), 0)
		end = max(end, i.ended)
	}
	return d
}

// last returns when the last of the intervals ends.
func last(all []interval) (end time.Duration) {
	for _, i := range all {
		end = max(end, i.ended)
	}
	return end
}

func (w *world) timedOut() string {
	for i, c := range w.outcomes {
		var works time.Duration
		for _, s := range w.calls[i].threads[0] {
			if s.kind == work {
				works += s.lasts
			}
		}
		works *= time.Duration(1 + w.calls[i].fails) // which are all of them, at most
		if c.timedOut && works <= w.patience()/2 {
			return fmt.Sprintf("the call %d %+v, which works for %s", i, *c, works)
		}
	}
	return ""
}

func (w *world) answeredLate() string {
	for i, c := range w.outcomes {
		a := w.last(i)
		if a == nil || a.returned == 0 || c.answered < a.returned {
			continue
		}
		limit := a.returned + time.Second
		for _, m := range w.messages {
			if m.call == i && !m.isQuestion() && m.own(&w.conversation) && m.begun <= c.answered &&
				(m.order == 0 || m.read > a.returned) {
				limit += time.Second
			}
		}
		if c.answered > limit {
			return fmt.Sprintf("the attempt %+v is answered at %s", *a, c.answered)
		}
	}
	return ""
}

func (w *world) timedOutLate() string {
	for i, c := range w.outcomes {
		a := w.last(i)
		if a == nil || !c.timedOut {
			continue
		}
		if c.answered > a.cut+11*ms { // or the delay before the next attempt
			return fmt.Sprintf("the attempt %+v is answered at %s", *a, c.answered)
		}
	}
	return ""
}
