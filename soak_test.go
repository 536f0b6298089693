package resilience_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The load test. Agents call the tools of a guard, which do all that tools may do to it. This file holds what must be
// so all the same. What happens, and how it is recorded, is in soak_model_test.go.

var (
	soakTime = flag.Duration("soak", 0, "how long TestSoak makes calls; it is skipped if zero")
	soakSeed = flag.Uint64("soak.seed", 0, "of the load tests; zero means 1 in fake time, and any in real time")
)

func TestSoak(t *testing.T) {
	if *soakTime == 0 {
		t.Skip("make soak runs it")
	}

	s := newSoak(t, cmp.Or(*soakSeed, rand.Uint64()), 10*time.Millisecond)
	for end := time.Now().Add(*soakTime); time.Now().Before(end) && !t.Failed(); {
		s.round(100, func(d dice) {
			for round := time.Now(); time.Since(round) < 300*s.unit; time.Sleep(d.upTo(5)) {
				s.act(d)
			}
		})
	}
}

// Each hour of the day begins with many calls at the same moment.
func TestSoakOfADayInFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSoak(t, cmp.Or(*soakSeed, 1), time.Second)
		for range 24 {
			s.round(40, func(d dice) {
				for range 3 {
					s.act(d)
					time.Sleep(d.upTo(5))
				}
			})
			time.Sleep(time.Hour)
		}

		for _, event := range []string{
			"success", "unfinished", "BUSY", "TIMEOUT", "CIRCUIT_OPEN", "CONNECTION_LOST", "RETRY_EXHAUSTED",
			"TOOL_FAILED", "TOOL_NOT_FOUND", "VALIDATION_ERROR", "CANCELED", "retry",
		} {
			assert.True(t, t.Failed() || *soakSeed != 0 || s.counts[event] > 0, "no %s", event)
		}
	})
}

// What must hold for each call. The first that doesn't hold is reported.
var invariants = []struct {
	name  string
	holds func(*record) bool
}{
	{"one CallStart and one CallEnd", func(r *record) bool { return r.starts == 1 && r.ends == 1 }},
	{"the CallEnd has what the caller got", (*record).endAgrees},
	{"Attempts is how often the function began", func(r *record) bool { return r.end.Attempts == r.begun() }},
	{"what may have taken effect isn't repeated", (*record).notRepeated},
	{"the last cause isn't lost", (*record).causeIsKept},
}

// How a breaker may change.
var transitions = map[resilience.State][]resilience.State{
	resilience.StateClosed:   {resilience.StateOpen},
	resilience.StateOpen:     {resilience.StateHalfOpen},
	resilience.StateHalfOpen: {resilience.StateClosed, resilience.StateOpen},
}

func (r *record) endAgrees() bool {
	if r.got == nil {
		return r.config.Cooperative && errors.Is(r.end.Err, resilience.ErrGoexit)
	}
	if r.end.Unfinished {
		return r.end.Err == nil && errors.Is(r.err(), resilience.ErrUnfinished)
	}
	return r.err() == nil && r.end.Err == nil || r.err() != nil && r.is(r.got.Err.Code)
}

func (r *record) repeatable() bool {
	return r.config.Effect == resilience.ReadOnly || r.config.Effect == resilience.Idempotent
}

func (r *record) notRepeated() bool {
	for _, a := range r.attempts[:max(r.begun()-1, 0)] {
		if !r.repeatable() && !a.noEffect {
			return false
		}
	}
	return true
}

// An error that is only that of an ended context need not be kept.
func (r *record) causeIsKept() bool {
	a := r.last()
	if a == nil || a.trace == nil || r.err() == nil {
		return true
	}
	return found(a.trace, r.err()) || found(context.Canceled, a.trace) || found(context.DeadlineExceeded, a.trace)
}

// A soak is one run of the load test.
type soak struct {
	*testing.T
	*resilience.Guard
	seed       uint64
	unit       time.Duration
	goroutines int // of ours, before the test
	rounds     int
	states     map[string]resilience.State
	counts     map[string]int // of events

	mu      sync.Mutex
	records []*record // of the calls of a round
}

func newSoak(t *testing.T, seed uint64, unit time.Duration) *soak {
	t.Logf("-soak.seed %d", seed)
	s := &soak{T: t, seed: seed, unit: unit, goroutines: goroutines(modulePath)}
	s.states, s.counts = make(map[string]resilience.State), make(map[string]int)
	s.newGuard()
	return s
}

// act makes a call on a goroutine of its own, which a Cooperative tool may end.
func (s *soak) act(d dice) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, leave := draw(d, soakCallers, nil).what(d)(context.Background())
		defer leave()
		s.newRecord(d, d.name(), nil).call(ctx)
	}()
	<-done
}

// round lets agents act, and checks all that they leave.
func (s *soak) round(agents int, agent func(dice)) {
	s.rounds++
	s.records = nil
	var acting sync.WaitGroup
	for n := range agents {
		acting.Go(func() {
			agent(dice{rand.New(rand.NewPCG(s.seed, uint64(s.rounds<<16+n))), s.unit})
		})
	}
	acting.Wait()
	s.eventually("no call is left", func() bool {
		left := func(h resilience.Health) bool { return h.InFlight+h.Abandoned > 0 }
		return !slices.ContainsFunc(s.Health(), left)
	})
	require.NoError(s, s.Flush(context.Background()))
	s.eventually("no goroutine of ours is left", func() bool { return goroutines(modulePath) <= s.goroutines })
	for _, r := range s.records {
		s.check(r)
	}
	s.checkBreakers()
}

func (s *soak) check(r *record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range invariants {
		if !i.holds(r) {
			s.Errorf("violated: %s: %s", i.name, r)
			break
		}
	}

	s.counts["retry"] += len(r.retries)
	switch {
	case r.end.Unfinished:
		s.counts["unfinished"]++
	case r.end.Err == nil:
		s.counts["success"]++
	default:
		s.counts[string(r.end.Err.Code)]++
	}
}

// checkBreakers checks that no breaker is wedged: each admits a healthy call after its cooldown.
func (s *soak) checkBreakers() {
	for _, h := range s.Health() {
		canceled := h.LastError != nil && h.LastError.Code == resilience.CodeCanceled
		assert.False(s, canceled, "%q counts a caller", h.Tool)
		name := h.Tool
		if name == "(others)" {
			name = "new"
		}
		time.Sleep(s.Breaker(name).RetryAfter())
		_, err := resilience.Do(context.Background(), s.Guard, name, succeed)
		assert.NoError(s, err, "a healthy call of %q after the cooldown", h.Tool)
	}
}

// eventually waits for what needs no more than that all goroutines run. It waits for minutes in case it never comes.
func (s *soak) eventually(what string, condition func() bool) {
	for range 600 {
		if condition() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	require.FailNow(s, "never: "+what)
}
