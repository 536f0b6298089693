// Package exhaustive compares the breaker with a model, in each way in which it can be used up to some depth.
package exhaustive

import (
	"fmt"
	"time"

	"github.com/seed8d1e2389/resilience"
)

const (
	maxFailures   = 2
	cooldown      = 10 * time.Second
	probeTimeout  = 25 * time.Second
	probeInterval = 4 * time.Second
	maxCooldowns  = 10 // how long a Probe that fails keeps calls out
)

// A model is a breaker that is too simple to be wrong. It has no timer: advance makes the changes that time brings.
// Its times are those of the sequence.
type model struct {
	probes   bool // it has a Probe
	now      time.Duration
	state    resilience.State
	failures int           // in a row; those that opened it, until it is closed; none if it is isolated while closed
	era      int           // counts the changes of state, and resets: a permit of an earlier one counts no more
	began    time.Duration // the era
	probeAt  time.Duration
	changes  []string

	probe *permit // has the slot, for as long as overdue says
	overdue,
	opened, // when Probes that fail keep no more calls out
	blind, // until when an opening means that Probe can't see what is wrong
	asked time.Duration // when Probe was asked last, or the breaker has opened
	begins time.Duration // when Probe is asked again, if no call has opened the breaker again by then; zero if it is
	asks   bool          // Probe is asked again within a probeInterval

	contended                       bool // a call was rejected because of the probe
	leave, trial, left, hasFailedBy int  // how many calls leave the slot to another one; contended probes that failed
}

// A permit is a call that was admitted.
type permit struct {
	era      int
	reported bool
	slotless bool // it has left the slot to another call, or never had one
	done     func(error)
}

func (m *model) become(s resilience.State, cause resilience.Cause) {
	m.changes = append(m.changes, fmt.Sprintf("%s to %s", m.state, s))
	again := m.state == resilience.StateHalfOpen && s == resilience.StateOpen
	m.state, m.left = s, 0
	m.nextEra()
	switch {
	case s == resilience.StateClosed:
		m.failures, m.leave, m.trial, m.hasFailedBy, m.contended = 0, 0, 0, 0, false
	case s == resilience.StateHalfOpen || cause == resilience.CauseProbe:
		return // Probe is asked as before
	}
	m.opened = m.now + maxCooldowns*cooldown
	if again && m.asks {
		return // here, too
	}
	asks := m.probes && s == resilience.StateOpen
	m.asks = asks && (cause == resilience.CauseManual || m.now >= m.blind)
	m.asked, m.begins = m.now, 0
	if asks && !m.asks {
		m.begins = min(m.probeAt, m.now+cooldown) + cooldown
	}
}

// begin lets time pass until Probe is asked again, if it is by then.
func (m *model) begin(by time.Duration) {
	if m.begins > 0 && m.begins < by {
		m.asks, m.asked, m.begins = true, m.begins, 0
	}
}

func (m *model) nextEra() { m.era, m.began = m.era+1, m.now }

func (m *model) open(d time.Duration, cause resilience.Cause) {
	switch {
	case m.state == resilience.StateClosed:
		m.failures = maxFailures
	case cause == resilience.CauseCalls:
		m.failures++
	}
	m.probeAt = m.now + d
	m.become(resilience.StateOpen, cause)
}

// shown returns the state as State shows it: the cooldown may be over.
func (m *model) shown() resilience.State {
	if m.state == resilience.StateOpen && m.now >= m.probeAt {
		return resilience.StateHalfOpen
	}
	return m.state
}

// probing reports whether a call has the slot.
func (m *model) probing() bool { return m.probe != nil && m.probe.era == m.era }

// allow returns nil if the call is rejected.
func (m *model) allow() *permit {
	if m.state != m.shown() {
		m.become(resilience.StateHalfOpen, resilience.CauseCooldown)
	}
	switch {
	case m.state == resilience.StateOpen || m.state == resilience.StateIsolated:
		return nil
	case m.probing():
		if m.contended = true; m.now > m.overdue {
			m.report(m.probe, resilience.ClassTransient, true)
		}
		return nil
	}

	p := &permit{era: m.era, slotless: true}
	if m.state == resilience.StateHalfOpen {
		if m.contended = false; m.left < m.leave+m.trial {
			m.left++
		} else {
			p.slotless, m.probe, m.overdue = false, p, m.now+probeTimeout
		}
	}
	return p
}

// advice returns how long a rejected call is to wait, if Probe or a call is to ask the backend after the given time.
// What has been in vain for some time may be so for as long again.
func (m *model) advice(asked time.Duration) time.Duration {
	inVain := m.now - m.began
	switch {
	case m.state == resilience.StateIsolated:
		return 0
	case m.state == resilience.StateHalfOpen:
		return max(time.Second, min(inVain, cooldown))
	case m.asks:
		return min(m.probeAt-m.now, max(asked, inVain))
	}
	return m.probeAt - m.now
}

// report reports a failure of a class, or a success.
func (m *model) report(p *permit, class resilience.Class, failed bool) {
	neutral := failed && class == resilience.ClassCanceled
	stale := p.reported || p.era != m.era
	if p == m.probe && !p.reported {
		m.probeEnded(neutral && !stale, failed && !stale)
	}
	p.reported = true
	if stale {
		return
	}

	switch {
	case neutral:
	case !failed && m.state == resilience.StateHalfOpen:
		m.become(resilience.StateClosed, resilience.CauseCalls)
	case !failed:
		m.failures = 0
	case m.state == resilience.StateHalfOpen:
		m.open(cooldown, resilience.CauseCalls)
	default:
		if m.failures++; m.failures == maxFailures {
			m.open(cooldown, resilience.CauseCalls)
		}
	}
}

// probeEnded decides how many calls leave the slot from now on: one that told nothing may have stood in the way of
// another, which was within it.
func (m *model) probeEnded(neutral, failed bool) {
	m.trial = 0
	switch {
	case !m.contended:
	case neutral:
		m.leave = min(m.leave+1, 8)
	case failed:
		if m.hasFailedBy++; m.hasFailedBy%10 == 0 {
			m.trial = min(m.hasFailedBy/10, 3)
		}
	}
	m.probe, m.left, m.contended = nil, 0, false
}

func (m *model) isolate() {
	if m.state != resilience.StateIsolated {
		if m.state == resilience.StateClosed {
			m.failures = 0
		}
		m.become(resilience.StateIsolated, resilience.CauseManual)
	}
}

func (m *model) trip(d time.Duration) {
	switch m.state {
	case resilience.StateIsolated:
	case resilience.StateOpen:
		m.probeAt = m.now + d
		if m.probes && !m.asks {
			m.asks, m.asked, m.opened, m.begins = true, m.now, m.now+maxCooldowns*cooldown, 0
		}
	default:
		m.open(d, resilience.CauseManual)
	}
}

func (m *model) reset() {
	if m.state == resilience.StateClosed {
		m.nextEra()
		m.failures = 0
		return
	}
	m.become(resilience.StateClosed, resilience.CauseManual)
}

// probed is what the result of a Probe means.
func (m *model) probed(a ask) (wrong string) {
	if since := a.at - m.asked; !m.asks || since < probeInterval/2 || since > probeInterval {
		return fmt.Sprintf("Probe is called %s after the last time, in state %s", since, m.state)
	}
	m.now, m.asked = a.at, a.at
	d := min(cooldown, m.opened-m.now)
	switch {
	case a.works:
		m.become(resilience.StateClosed, resilience.CauseProbe)
		m.asks, m.blind = false, m.now+cooldown
	case a.silent:
	case m.state == resilience.StateOpen:
		m.probeAt = max(m.probeAt, m.now+d)
	case !m.probing() && d > 0:
		m.open(d, resilience.CauseProbe)
	}
	return ""
}

// advance lets time pass, during which Probe was called so.
func (m *model) advance(to time.Duration, asked []ask) (wrong string) {
	for _, a := range asked {
		m.begin(a.at)
		if wrong := m.probed(a); wrong != "" {
			return wrong
		}
	}
	m.begin(to)
	if m.now = to; m.asks && to > m.asked+probeInterval {
		return "Probe isn't called in time"
	}
	return ""
}
