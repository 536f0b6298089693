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

// A breakerModel is a model of a breaker that has no timer: tick makes the changes that time
// alone brings.
type breakerModel struct {
	maxFailures int
	cooldown    time.Duration

	failures   int
	state      resilience.State
	opened     time.Time
	generation int     // counts the changes of state
	probe      *permit // the call that has the slot

	// A call that told nothing while others were rejected costs the next ones the slot: each time twice as many.
	contended          bool
	contendedFailures  int
	leave, trial, left int
}

// A permit is a call that the breaker has admitted.
type permit struct {
	done       func(error)
	generation int // of the model at that time
	reported   bool
	slotless   bool // it has left the slot to another call
}

func (m *breakerModel) become(s resilience.State) {
	m.state, m.failures, m.probe, m.left = s, 0, nil, 0
	if s == resilience.StateClosed {
		m.leave, m.trial, m.contendedFailures = 0, 0, 0
	}
	m.generation++
	if s == resilience.StateOpen {
		m.opened = time.Now()
	}
}

func (m *breakerModel) tick() {
	if m.state == resilience.StateOpen && time.Since(m.opened) >= m.cooldown {
		m.become(resilience.StateHalfOpen)
	}
}

// allow returns the call if it is admitted, nil if it is rejected.
func (m *breakerModel) allow() *permit {
	m.tick()

	switch {
	case m.state == resilience.StateOpen:
		return nil
	case m.probe != nil:
		m.contended = true
		return nil
	}
	p := &permit{generation: m.generation}
	if m.state == resilience.StateHalfOpen {
		if m.contended = false; m.left < m.leave+m.trial {
			m.left++
			p.slotless = true
		} else {
			m.probe = p
		}
	}
	return p
}

func (m *breakerModel) report(p *permit, err error) {
	m.tick()

	if p.reported || p.generation != m.generation {
		p.reported = true
		return
	}
	p.reported = true

	neutral := errors.Is(err, context.Canceled)
	if m.state == resilience.StateHalfOpen && (m.probe == p || !neutral) {
		m.probeEnded(m.probe == p && m.contended, neutral, err != nil)
	}
	switch {
	case neutral:
	case err == nil && m.state == resilience.StateHalfOpen:
		m.become(resilience.StateClosed)
	case err == nil:
		m.failures = 0
	case m.state == resilience.StateHalfOpen:
		m.become(resilience.StateOpen)
	default:
		if m.failures++; m.failures == m.maxFailures {
			m.become(resilience.StateOpen)
		}
	}
}

// probeEnded notes that a call of a half-open breaker has ended. It was the one that has the slot, unless it has told
// something, and has stood in the way of others if that was contended.
func (m *breakerModel) probeEnded(contended, neutral, failed bool) {
	m.probe, m.trial, m.left = nil, 0, 0
	switch {
	case contended && neutral:
		m.leave = min(max(2*m.leave, 1), 256)
	case failed:
		m.leave -= m.leave / 2
		if contended {
			m.contendedFailures++
			m.trial = trials(m.contendedFailures)
		}
	}
}

// trials returns how many calls leave the slot once after so many failures.
func trials(failures int) int {
	n := 1
	for ; failures%20 == 0; failures /= 2 {
		n *= 2
	}
	if failures%10 != 0 {
		return 0
	}
	return min(n, 64)
}

// retryAfter returns the time until the next probe, zero if the breaker isn't open.
func (m *breakerModel) retryAfter() time.Duration {
	if m.state != resilience.StateOpen {
		return 0
	}

	return max(m.cooldown-time.Since(m.opened), 1)
}

// A breakerTest is a breaker, its model, and the calls that were admitted. Its methods are
// what rapid may do to both.
type breakerTest struct {
	model    *breakerModel
	breaker  *resilience.Breaker
	notified resilience.State // the last state of which OnChange was notified
	permits  []*permit
}

func newBreakerTest(r *rapid.T) *breakerTest {
	m := &breakerModel{
		maxFailures: rapid.IntRange(1, 6).Draw(r, "failures"),
		cooldown:    time.Duration(rapid.IntRange(1, 60).Draw(r, "cooldown")) * time.Second,
	}

	test := &breakerTest{model: m, notified: resilience.StateClosed}
	test.breaker = resilience.NewBreaker("x", resilience.BreakerConfig{
		Failures:     m.maxFailures,
		Cooldown:     m.cooldown,
		ProbeTimeout: 24 * time.Hour,
		OnChange: func(_ string, from, to resilience.State) {
			if from != test.notified {
				panic("changes out of order")
			}
			test.notified = to
		},
	})
	return test
}

func (test *breakerTest) allow(r *rapid.T) {
	done, err := test.breaker.Allow()
	p := test.model.allow()
	if (err == nil) != (p != nil) {
		r.Fatalf("allowed: %v, in state %v", err == nil, test.model.state)
	}
	if err == nil {
		p.done = done
		test.permits = append(test.permits, p)
		return
	}

	var e *resilience.Error
	if !errors.As(err, &e) || e.Code != resilience.CodeCircuitOpen || e.RetryAfter <= 0 {
		r.Fatalf("rejected with %v", err)
	}
}

// done reports the result of a call, which may have been reported before.
func (test *breakerTest) done(r *rapid.T) {
	if len(test.permits) == 0 {
		r.Skip()
	}

	p := rapid.SampledFrom(test.permits).Draw(r, "call")
	err := rapid.SampledFrom([]error{nil, errors.New("failed"), context.Canceled}).Draw(r, "result")
	p.done(err)
	test.model.report(p, err)
}

func (test *breakerTest) wait(r *rapid.T) {
	time.Sleep(time.Duration(rapid.IntRange(0, 40).Draw(r, "seconds"))*time.Second + 1)
}

// check compares the breaker with its model.
func (test *breakerTest) check(r *rapid.T) {
	m := test.model
	m.tick()
	if got := test.breaker.State(); got != m.state {
		r.Fatalf("state is %v, the model's is %v", got, m.state)
	}
	if got := test.breaker.RetryAfter(); got != m.retryAfter() {
		r.Fatalf("retry after %v, the model says %v, in state %v", got, m.retryAfter(), m.state)
	}

	synctest.Wait()
	unnoticed := m.state == resilience.StateHalfOpen && test.notified == resilience.StateOpen // until a call comes
	if test.notified != m.state && !unnoticed {
		r.Fatalf("OnChange was notified of %v, the state is %v", test.notified, m.state)
	}
}

func TestBreakerBehavesLikeItsModel(t *testing.T) {
	checkInBubble(t, func(r *rapid.T) {
		test := newBreakerTest(r)
		r.Repeat(map[string]func(*rapid.T){
			"allow": test.allow,
			"done":  test.done,
			"wait":  test.wait,
			"":      test.check,
		})
	})
}
