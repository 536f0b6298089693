// Package exhaustive compares the breaker with a model, in each way in which it can be used up to some depth.
package exhaustive

import (
	"fmt"
	"time"

	"github.com/seed8d1e2389/resilience"
)

const (
	maxFailures  = 2
	cooldown     = 10 * time.Second
	probeTimeout = 25 * time.Second
)

// A model is a breaker that is too simple to be wrong. Its times are those of the sequence. How many calls beside the
// probe a half-open breaker admits, it only bounds.
type model struct {
	now      time.Duration
	state    resilience.State
	failures int // in a row; those that opened it, until it is closed or isolated
	phase    int // counts the changes of state, and resets: a permit of an earlier one counts no more
	probeAt  time.Duration
	changes  []string

	probes    []*permit // of a half-open breaker, that haven't been reported
	contended bool      // a call was rejected because of them
	extra     int       // how many calls may be admitted beside a probe
	neutral   int       // how many of them were canceled
	unsure    bool      // whether the place of the last one is free again
}

// A permit is a call that was admitted.
type permit struct {
	phase    int
	began    time.Duration
	reported bool
	done     func(error)
}

func (m *model) become(s resilience.State) {
	m.changes = append(m.changes, fmt.Sprintf("%s to %s", m.state, s))
	m.state, m.probes, m.contended, m.neutral, m.unsure = s, nil, false, 0, false
	m.phase++
	if s == resilience.StateClosed {
		m.failures, m.extra = 0, 0
	}
}

func (m *model) open(d time.Duration) {
	m.probeAt = m.now + d
	m.become(resilience.StateOpen)
}

// shown returns the state as State shows it: the cooldown may be over.
func (m *model) shown() resilience.State {
	if m.state == resilience.StateOpen && m.now >= m.probeAt {
		return resilience.StateHalfOpen
	}
	return m.state
}

// allow compares the answer of the breaker with what it may be. A single probe that is overdue has failed.
func (m *model) allow(admitted bool) (p *permit, wrong string) {
	if m.state != m.shown() {
		m.become(resilience.StateHalfOpen)
	}

	must, may := m.state == resilience.StateClosed, m.state == resilience.StateClosed
	if m.state == resilience.StateHalfOpen {
		n := len(m.probes)
		must, may = n == 0 || n <= m.extra && !m.unsure, n <= m.extra*(1+m.neutral)
	}
	switch {
	case must && !admitted:
		return nil, fmt.Sprintf("it is %s and rejects a call", m.state)
	case admitted && !may:
		return nil, fmt.Sprintf("it is %s and admits a call beside %d probes", m.state, len(m.probes))
	case !admitted:
		m.contended = true
		if m.overdue() {
			m.failures++
			m.open(cooldown)
		}
		return nil, ""
	}

	p = &permit{phase: m.phase, began: m.now}
	if m.state == resilience.StateHalfOpen {
		m.probes = append(m.probes, p)
	}
	return p, ""
}

func (m *model) overdue() bool { return len(m.probes) == 1 && m.now > m.probes[0].began+probeTimeout }

// advice returns how long a rejected call may be asked to wait.
func (m *model) advice() (least, most time.Duration) {
	switch m.state {
	case resilience.StateOpen:
		return m.probeAt - m.now, m.probeAt - m.now
	case resilience.StateHalfOpen:
		return time.Second, cooldown
	}
	return 0, 0
}

func (m *model) report(p *permit, err error) {
	stale := p.reported || p.phase != m.phase
	p.reported = true
	if stale {
		return
	}

	switch halfOpen := m.state == resilience.StateHalfOpen; {
	case err == errNeutral && halfOpen:
		m.giveBack(p)
	case err == errNeutral:
	case err == nil && halfOpen:
		m.become(resilience.StateClosed)
	case err == nil:
		m.failures = 0
	default:
		if m.failures++; halfOpen || m.failures == maxFailures {
			m.open(cooldown)
		}
	}
}

// giveBack makes room for another probe, and for one more if this one stood in another call's way.
func (m *model) giveBack(p *permit) {
	for i, other := range m.probes {
		if other == p {
			m.probes = append(m.probes[:i:i], m.probes[i+1:]...)
		}
	}
	if m.contended {
		m.extra++
	}
	m.contended, m.unsure = false, !m.contended || len(m.probes) > 0
	m.neutral++
}

func (m *model) isolate() {
	m.failures = 0
	if m.state != resilience.StateIsolated {
		m.become(resilience.StateIsolated)
	}
}

func (m *model) trip(d time.Duration) {
	switch m.state {
	case resilience.StateIsolated:
	case resilience.StateOpen:
		m.probeAt = m.now + d
	case resilience.StateClosed:
		m.failures = maxFailures
		fallthrough
	default:
		m.open(d)
	}
}

func (m *model) reset() {
	if m.state == resilience.StateClosed {
		m.phase++
		m.failures = 0
		return
	}
	m.become(resilience.StateClosed)
}
