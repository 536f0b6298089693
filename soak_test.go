package resilience_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The load test. Agents call the tools of two guards, which do all that tools may do to a guard. This file holds what
// must be so all the same. What happens is in soak_model_test.go, and how it is recorded in soak_record_test.go.

var (
	soakTime = flag.Duration("soak", 0, "how long TestSoak makes calls; it is skipped if zero")
	soakSeed = flag.Uint64("soak.seed", 0, "of the load tests; zero means 1 in fake time, and any in real time")
)

func TestSoak(t *testing.T) {
	if *soakTime == 0 {
		t.Skip("make soak runs it")
	}

	s := newSoak(t, cmp.Or(*soakSeed, rand.Uint64()), 10*time.Millisecond)
	s.run(200, *soakTime, func(d dice, deadline time.Time) {
		for time.Now().Before(deadline) && !t.Failed() {
			s.act(d)
			time.Sleep(d.upTo(5))
		}
	})
}

// Each hour of the day begins with many calls at the same moment.
func TestSoakOfADayInFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSoak(t, cmp.Or(*soakSeed, 1), time.Second)
		s.fake = true
		s.run(40, 24*time.Hour, func(d dice, deadline time.Time) {
			for hour := time.Now(); hour.Before(deadline) && !t.Failed(); hour = hour.Add(time.Hour) {
				time.Sleep(time.Until(hour))
				for range 3 {
					s.act(d)
					time.Sleep(d.upTo(5))
				}
			}
		})

		for _, event := range []string{
			"success", "unfinished", "BUSY", "TIMEOUT", "CIRCUIT_OPEN", "CONNECTION_LOST", "RETRY_EXHAUSTED",
			"TOOL_FAILED", "TOOL_NOT_FOUND", "VALIDATION_ERROR", "CANCELED", "exit of the caller",
			"retry", "late result", "change of a breaker",
		} {
			assert.True(t, t.Failed() || *soakSeed != 0 || s.counts[event] > 0, "no %s", event)
		}
	})
}

// What must hold for each call once it is complete. The first that doesn't hold is reported.
var invariants = []struct {
	name  string
	holds func(*record) bool
}{
	{"one CallEnd", func(r *record) bool { return r.ends == 1 }},
	{"one CallStart, or none if the guard didn't wait for it", (*record).startIsOne},
	{"the CallEnd says what the caller got", (*record).endAgrees},
	{"Attempts is how often the function began", func(r *record) bool { return r.end.Attempts == r.begun() }},
	{"one CallRetry for each attempt but the last", (*record).retriesAgree},
	{"one LateResult for each abandoned attempt that didn't respect its context", (*record).latesAgree},
	{"what may have taken effect isn't repeated", (*record).notRepeated},
	{"the last cause isn't lost", (*record).causeIsKept},
	{"TIMEOUT only after a timeout, or the caller's deadline", (*record).timeoutIsTrue},
	{"CANCELED only if the caller has left", (*record).canceledIsTrue},
	{"no call returns after its limit, in fake time", (*record).inTime},
}

// How a breaker may change. Its changes form a chain, which begins at closed.
var transitions = map[resilience.State][]resilience.State{
	resilience.StateClosed:   {resilience.StateOpen},
	resilience.StateOpen:     {resilience.StateHalfOpen},
	resilience.StateHalfOpen: {resilience.StateClosed, resilience.StateOpen},
}

// checkEnd checks what must hold once no function hangs any more.
func (s *soak) checkEnd() {
	s.eventually("every call is complete", func() bool { return s.incomplete() == nil })
	s.eventually("no goroutine of ours is left", func() bool { return goroutines(modulePath) <= s.goroutines })
	assert.Zero(s, s.opened.Load(), "connections that were not closed")
	for _, g := range s.guards {
		for _, h := range g.Health() {
			assert.Zero(s, h.InFlight, "calls of %q in flight", h.Tool)
			assert.Zero(s, h.Abandoned, "abandoned attempts of %q", h.Tool)
			canceled := h.LastError != nil && h.LastError.Code == resilience.CodeCanceled
			assert.False(s, canceled, "%q counts a caller", h.Tool)
		}
	}
}

// checkBreakers checks that no breaker is wedged: each admits a healthy call after its cooldown.
func (s *soak) checkBreakers() {
	for _, g := range s.guards {
		for _, h := range g.Health() {
			name := h.Tool
			if name == "(others)" {
				name = longName
			}
			time.Sleep(g.Breaker(name).RetryAfter())
			_, err := resilience.Do(context.Background(), g.Guard, name, succeed)
			assert.NoError(s, err, "a healthy call of %q after the cooldown", name)
		}
	}
}

// A Start may be slow on a busy machine, and isn't called while another one is.
func (r *record) startIsOne() bool { return r.starts == 1 || r.starts == 0 && !r.guard.fake }

func (r *record) endAgrees() bool {
	switch e := r.end; {
	case r.got == nil:
		return r.config.Cooperative && errors.Is(e.Err, resilience.ErrGoexit)
	case e.Label != r.tool && e.Label != "(others)", e.Arguments != nil && !r.debug:
		return false
	case r.entry == "Run" || r.entry == "All":
		if r.got.Attempts != e.Attempts || r.got.Duration != e.Duration {
			return false
		}
	}

	if r.end.Unfinished {
		return r.end.Err == nil && errors.Is(r.err(), resilience.ErrUnfinished)
	}
	return r.err() == nil && r.end.Err == nil || r.err() != nil && r.is(r.got.Err.Code)
}

// The call may end during the delay after a CallRetry, also because what is left of the attempt does something
// that must not be repeated.
func (r *record) retriesAgree() bool {
	for i, e := range r.retries {
		if e.Attempt != i+1 {
			return false
		}
	}
	n, endsInDelay := len(r.retries), []resilience.Code{"CANCELED", "TIMEOUT", "CIRCUIT_OPEN"}
	ends := slices.ContainsFunc(endsInDelay, r.is) || !r.repeatable()
	return n == max(r.end.Attempts-1, 0) || n == r.end.Attempts && ends
}

func (r *record) latesAgree() bool {
	missing, extra := r.compareLates()
	return !missing && len(extra) == 0
}

func (r *record) repeatable() bool {
	return r.config.Effect == resilience.ReadOnly || r.config.Effect == resilience.Idempotent
}

func (r *record) notRepeated() bool {
	if r.repeatable() {
		return true
	}

	for i, a := range r.attempts[1:] {
		if before := r.attempts[i]; a != nil && (before == nil || !before.noEffect) {
			return false
		}
	}
	return true
}

// An error that says no more than that a context has ended need not be kept.
func (r *record) causeIsKept() bool {
	a := r.last()
	if a == nil || a.trace == nil || r.err() == nil {
		return true
	}
	return found(a.trace, r.err()) || found(context.Canceled, a.trace) || found(context.DeadlineExceeded, a.trace)
}

func (r *record) timeoutIsTrue() bool {
	shortest := r.config.Timeout
	for _, d := range []time.Duration{r.timeout, r.guard.attemptTimeout} {
		if d > 0 {
			shortest = min(shortest, d)
		}
	}

	itsOwn := r.last() != nil && found(context.DeadlineExceeded, r.last().trace)
	callers := r.tooLate || r.ended == context.DeadlineExceeded
	return !r.is(resilience.CodeTimeout) || r.end.Duration >= shortest || callers || itsOwn
}

func (r *record) canceledIsTrue() bool {
	itsOwn := r.last() != nil && found(context.Canceled, r.last().trace)
	return !r.is(resilience.CodeCanceled) || r.ended == context.Canceled || itsOwn
}

// A Cooperative tool answers for itself.
func (r *record) inTime() bool {
	limit := r.config.MaxTimeout
	if limit == 0 {
		limit = r.config.Timeout
		if r.timeout > 0 {
			limit = min(limit, r.timeout)
		}
	}

	callerWaits := !r.left.IsZero() && r.end.Time.After(r.left) && r.end.Duration > 0
	return !r.guard.fake || r.config.Cooperative || r.end.Duration <= limit+r.extended && !callerWaits
}

// A soak is one run of the load test.
type soak struct {
	*testing.T
	seed       uint64
	unit       time.Duration
	fake       bool
	guards     []*soakGuard
	connector  *resilience.Connector[*soakConn]
	goroutines int           // of ours, before the test
	released   chan struct{} // closed in the end, for all that hangs
	newNames   atomic.Int64
	dialed     atomic.Int64
	opened     atomic.Int64 // connections that have not been closed

	mu     sync.Mutex
	open   map[*record]bool // calls that are not complete
	counts map[string]int   // of events
}

func newSoak(t *testing.T, seed uint64, unit time.Duration) *soak {
	t.Logf("-soak.seed %d", seed)
	s := &soak{
		T:          t,
		seed:       seed,
		unit:       unit,
		goroutines: goroutines(modulePath),
		released:   make(chan struct{}),
		open:       make(map[*record]bool),
		counts:     make(map[string]int),
	}

	s.guards = []*soakGuard{s.newGuard(0), s.newGuard(8 * unit)}
	s.connector = resilience.NewConnector(s.dial, resilience.ConnectorConfig[*soakConn]{
		Backoff:     resilience.Backoff{Base: unit, Max: 20 * unit},
		DialTimeout: 10 * unit,
		Close:       s.closeConn,
		Watch:       watchConn,
	})
	return s
}

// run lets agents act until the deadline, then checks what they leave.
func (s *soak) run(agents int, duration time.Duration, agent func(dice, time.Time)) {
	deadline := time.Now().Add(duration)
	var acting atomic.Int64
	for n := range agents {
		acting.Add(1)
		go func() {
			defer acting.Add(-1)
			agent(s.dice(uint64(n)), deadline)
		}()
	}
	for time.Now().Before(deadline) && !s.Failed() {
		time.Sleep(min(time.Until(deadline), 100*s.unit))
	}

	s.eventually("every call returns", func() bool { return acting.Load() == 0 })
	close(s.released)
	assert.NoError(s, s.connector.Close())
	s.checkEnd()
	s.checkBreakers()
	s.checkEnd()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Logf("%v", s.counts)
}

// act makes calls on a goroutine of its own, which a Cooperative tool may end.
func (s *soak) act(d dice) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		g := s.guards[d.IntN(len(s.guards))]
		ctx, leave := draw(d, callers, anyRow).what(d)(context.Background())
		defer leave()
		g.call(ctx, d, g.records(d))
		if d.IntN(500) == 0 {
			g.Health()
		}
	}()
	<-done
}

func (s *soak) dice(n uint64) dice { return dice{rand.New(rand.NewPCG(s.seed, n)), s.unit} }

// sleep hangs, until the end of the test at the latest.
func (s *soak) sleep(d time.Duration) {
	select {
	case <-due(d):
	case <-s.released:
	}
}

func (s *soak) count(event string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[event]++
}

func (s *soak) incomplete() *record {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.open {
		return r
	}
	return nil
}

// eventually waits for what needs no more than that all goroutines run. It waits for minutes in case it never comes.
func (s *soak) eventually(what string, condition func() bool) {
	for range 15 {
		if condition() {
			return
		}
		time.Sleep(time.Second)
	}
	if r := s.incomplete(); r != nil {
		r.update(func() { s.Errorf("waits for %s: %s", r.missing(), r) })
	}
	require.FailNow(s, "never: "+what)
}
