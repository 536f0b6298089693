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
	generation int // counts the changes of state
	probing    bool
}

// A permit is a call that the breaker has admitted.
type permit struct {
	done       func(error)
	generation int // of the model at that time
	reported   bool
}

func (m *breakerModel) become(s resilience.State) {
	m.state, m.failures, m.probing = s, 0, false
	m.generation++
	if s == resilience.StateOpen {
		m.opened = time.Now()
	}
}

func (m *breakerModel) tick() {
	if m.state == resilience.StateOpen && time.Since(m.opened) > m.cooldown {
		m.become(resilience.StateHalfOpen)
	}
}

func (m *breakerModel) allow() bool {
	m.tick()

	switch {
	case m.state == resilience.StateOpen, m.state == resilience.StateHalfOpen && m.probing:
		return false
	case m.state == resilience.StateHalfOpen:
		m.probing = true
	}
	return true
}

func (m *breakerModel) report(p *permit, err error) {
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
		if m.failures++; m.failures == m.maxFailures {
			m.become(resilience.StateOpen)
		}
	}
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
	if (err == nil) != test.model.allow() {
		r.Fatalf("allowed: %v, in state %v", err == nil, test.model.state)
	}
	if err == nil {
		test.permits = append(test.permits, &permit{done: done, generation: test.model.generation})
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
	if test.notified != m.state {
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
