// Package property holds the library against models that are too simple to be wrong.
package property

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"pgregory.net/rapid"
)

// bubble runs a property in a synctest bubble. The property's own goroutine is
// outside of it, so a failure is carried out by panic.
func bubble(t *testing.T, property func(*rapid.T)) {
	rapid.Check(t, func(r *rapid.T) {
		var failure any
		synctest.Test(t, func(*testing.T) {
			defer func() { failure = recover() }()
			property(r)
		})
		if failure != nil {
			panic(failure)
		}
	})
}

// A model of a breaker, with the clock in its own hands.
type model struct {
	failures, limit int
	cooldown        time.Duration
	state           resilience.State
	opened          time.Time
	generation      int
	probing         bool
}

type permit struct {
	done       func(error)
	generation int
	reported   bool
}

func (m *model) become(s resilience.State) {
	m.state, m.failures, m.probing = s, 0, false
	m.generation++
	if s == resilience.StateOpen {
		m.opened = time.Now()
	}
}

func (m *model) tick() {
	if m.state == resilience.StateOpen && time.Since(m.opened) > m.cooldown {
		m.become(resilience.StateHalfOpen)
	}
}

func (m *model) allow() bool {
	m.tick()
	switch {
	case m.state == resilience.StateOpen, m.state == resilience.StateHalfOpen && m.probing:
		return false
	case m.state == resilience.StateHalfOpen:
		m.probing = true
	}
	return true
}

func (m *model) report(p *permit, err error) {
	m.tick()
	if p.reported || p.generation != m.generation {
		p.reported = true
		return
	}
	p.reported = true
	switch {
	case errors.Is(err, context.Canceled):
		m.probing = false
	case err == nil && m.state == resilience.StateHalfOpen:
		m.become(resilience.StateClosed)
	case err == nil:
		m.failures = 0
	case m.state == resilience.StateHalfOpen:
		m.become(resilience.StateOpen)
	default:
		if m.failures++; m.failures == m.limit {
			m.become(resilience.StateOpen)
		}
	}
}

func TestBreakerModel(t *testing.T) {
	bubble(t, func(r *rapid.T) {
		m := &model{limit: rapid.IntRange(1, 6).Draw(r, "failures"), cooldown: time.Duration(rapid.IntRange(1, 60).Draw(r, "cooldown")) * time.Second}
		last := resilience.StateClosed
		b := resilience.NewBreaker("x", resilience.BreakerConfig{
			Failures: m.limit, Cooldown: m.cooldown, ProbeTimeout: 24 * time.Hour,
			OnChange: func(_ string, from, to resilience.State) {
				if from != last {
					panic("changes out of order")
				}
				last = to
			},
		})
		var open []*permit
		r.Repeat(map[string]func(*rapid.T){
			"allow": func(r *rapid.T) {
				done, err := b.Allow()
				if (err == nil) != m.allow() {
					r.Fatalf("allowed: %v, in state %v", err == nil, m.state)
				}
				if err == nil {
					open = append(open, &permit{done: done, generation: m.generation})
					return
				}
				var e *resilience.Error
				if !errors.As(err, &e) || e.Code != resilience.CodeCircuitOpen || e.RetryAfter <= 0 {
					r.Fatalf("rejected with %v", err)
				}
			},
			"done": func(r *rapid.T) {
				if len(open) == 0 {
					r.Skip()
				}
				p := rapid.SampledFrom(open).Draw(r, "call")
				err := rapid.SampledFrom([]error{nil, errors.New("failed"), context.Canceled}).Draw(r, "result")
				p.done(err)
				m.report(p, err)
			},
			"wait": func(r *rapid.T) {
				time.Sleep(time.Duration(rapid.IntRange(0, 40).Draw(r, "seconds"))*time.Second + 1)
			},
			"": func(r *rapid.T) {
				m.tick()
				if got := b.State(); got != m.state {
					r.Fatalf("state is %v, the model's is %v", got, m.state)
				}
				if left := b.RetryAfter(); m.state != resilience.StateOpen && left != 0 || m.state == resilience.StateOpen && left != max(m.cooldown-time.Since(m.opened), 1) {
					r.Fatalf("retry after %v in state %v", left, m.state)
				}
				synctest.Wait()
				if last != m.state {
					r.Fatalf("told of %v, the state is %v", last, m.state)
				}
			},
		})
	})
}
