package exhaustive

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
)

var depth = flag.Int("depth", 4, "how many operations follow each other, beyond those that lead to a situation")

// An operation is what may be done to a breaker. It is left out where it has no meaning.
type operation struct {
	name    string
	enabled func(*sequence) bool
	do      func(*sequence)
}

func always(*sequence) bool      { return true }
func pending(s *sequence) bool   { return len(s.pending()) > 0 }
func severals(s *sequence) bool  { return len(s.pending()) > 1 }
func reported(s *sequence) bool  { return s.reported != nil }
func mayAsk(s *sequence) bool    { return s.probes }
func mayNotAsk(s *sequence) bool { return !s.probes }

var (
	errFailed  = errors.New("failed")
	errPanic   = errors.New("panics")
	errNeutral = fmt.Errorf("%w", context.Canceled)
)

var operations = []operation{
	{"allow", always, (*sequence).allow},
	{"the oldest succeeds", pending, reports(false, nil)},
	{"the oldest fails", pending, reports(false, errFailed)},
	{"the oldest is canceled", pending, reports(false, errNeutral)},
	{"the newest succeeds", severals, reports(true, nil)},
	{"the newest fails", severals, reports(true, errFailed)},
	{"the newest is canceled", severals, reports(true, errNeutral)},
	{"the last reports again", reported, func(s *sequence) { s.report(s.reported, errFailed) }},
	{"4s", always, waits(4*time.Second + 1)},
	{"a cooldown", always, waits(cooldown)},
	{"a probe's timeout", mayNotAsk, waits(probeTimeout + 1)},
	{"ten cooldowns", mayAsk, waits(maxCooldowns * cooldown)},
	{"isolate", always, func(s *sequence) { s.breaker.Isolate(""); s.model.isolate() }},
	{"trip", always, func(s *sequence) { s.breaker.Trip(3 * time.Second); s.model.trip(3 * time.Second) }},
	{"reset", always, func(s *sequence) { s.breaker.Reset(); s.model.reset() }},
	{"Probe succeeds", mayAsk, probe(nil)},
	{"Probe fails", mayAsk, probe(errFailed)},
	{"Probe says nothing", mayAsk, probe(resilience.MarkInvalid(errFailed))},
	{"Probe panics", mayAsk, probe(errPanic)},
}

// A situation is where sequences begin.
type situation struct {
	name   string
	probes bool
	begin  []string
}

var situations = []situation{
	{"closed", false, nil},
	{"open", false, []string{"allow", "the oldest fails", "allow", "the oldest fails"}},
	{"half-open", false, []string{"trip", "4s", "allow", "allow"}},
	{"half-open after a probe that said nothing", false,
		[]string{"trip", "4s", "allow", "allow", "the oldest is canceled"}},
	{"isolated", false, []string{"allow", "isolate"}},
	{"closed, with a Probe", true, nil},
	{"open, with a Probe", true, []string{"allow", "the oldest fails", "allow", "the oldest fails"}},
	{"closed by a Probe", true, []string{"trip", "Probe succeeds", "4s", "Probe fails", "allow", "allow"}},
	{"half-open, with a Probe that says nothing", true, []string{"Probe says nothing", "trip", "4s", "allow"}},
}

func TestExhaustive(t *testing.T) {
	for _, s := range situations {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { s.exhaust(t) })
		})
	}
}

// exhaust takes all sequences of operations, in the order of their choices.
func (s situation) exhaust(t *testing.T) {
	n, choices, depth := 0, []int(nil), *depth
	if s.probes {
		depth-- // they take longer
	}
	begin, last := time.Now(), (*sequence)(nil)
	for more := true; more; n++ {
		q := newSequence(s.probes)
		for _, name := range s.begin {
			if q.wrong == "" {
				q.do(operations[slices.IndexFunc(operations, func(o operation) bool { return o.name == name })])
			}
		}
		choices, more = q.follow(depth, choices)
		if q.finish(); q.wrong != "" {
			t.Fatalf("%s; then %s", strings.Join(q.taken, ", "), q.wrong)
		}
		if last != nil && last.isAsked() {
			t.Fatalf("%s; then Probe is called, although it is isolated", strings.Join(last.taken, ", "))
		}
		last = q
	}
	t.Logf("%d sequences of %d operations, in %s of their own time", n, depth, time.Since(begin))
}

// A sequence is a breaker, its model and what was done to both.
type sequence struct {
	began    time.Time
	breaker  *resilience.Breaker
	model    model
	permits  []*permit
	reported *permit
	changes  []string // as OnChange has them
	taken    []string
	wrong    string

	probes bool
	mu     sync.Mutex // guards what follows, since nothing but time orders an operation and a Probe
	result error
	asked  []ask // in the last wait
}

// An ask is a call of Probe.
type ask struct {
	at            time.Duration
	works, silent bool
}

func newSequence(probes bool) *sequence {
	s := &sequence{began: time.Now(), model: model{probes: probes}, probes: probes, result: errFailed}
	cfg := resilience.BreakerConfig{
		Failures: maxFailures, Cooldown: cooldown, ProbeTimeout: probeTimeout, ProbeInterval: probeInterval,
		OnChange: func(_ string, from, to resilience.State) {
			s.changes = append(s.changes, fmt.Sprintf("%s to %s", from, to))
		},
	}
	if probes {
		cfg.Probe = s.probe
	}
	s.breaker = resilience.NewBreaker("x", cfg)
	return s
}

func (s *sequence) probe(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	silent := s.result != nil && s.result != errFailed
	s.asked = append(s.asked, ask{time.Since(s.began), s.result == nil, silent})
	if s.result == errPanic {
		panic(errPanic)
	}
	return s.result
}

// isAsked reports whether Probe was called since the last look.
func (s *sequence) isAsked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := len(s.asked) > 0
	s.asked = nil
	return asked
}

// probe says what Probe returns from now on.
func probe(result error) func(*sequence) {
	return func(s *sequence) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.result = result
	}
}

// follow makes the choices, then the first one wherever there is one, and returns the next choices, if there are more.
func (s *sequence) follow(depth int, choices []int) (next []int, more bool) {
	for i := 0; i < depth && s.wrong == ""; i++ {
		var enabled []operation
		for _, o := range operations {
			if o.enabled(s) {
				enabled = append(enabled, o)
			}
		}
		if i == len(choices) {
			choices = append(choices, 0)
		}
		s.do(enabled[choices[i]])
		if choices[i]+1 < len(enabled) {
			next, more = append(slices.Clone(choices[:i]), choices[i]+1), true
		}
	}
	return next, more
}

func (s *sequence) do(o operation) {
	s.taken = append(s.taken, o.name)
	o.do(s)
	s.check()
}

func (s *sequence) pending() []*permit {
	var all []*permit
	for _, p := range s.permits {
		if !p.reported {
			all = append(all, p)
		}
	}
	return all
}

func (s *sequence) allow() {
	done, err := s.breaker.Allow()
	p := s.model.allow()
	if (err == nil) != (p != nil) {
		s.fail("admitted: %t, should be: %t", err == nil, p != nil)
		return
	}
	if p != nil {
		p.done = done
		s.permits = append(s.permits, p)
		return
	}

	var e *resilience.Error
	after := s.model.advice(s.breaker.RetryAfter())
	if !errors.As(err, &e) || e.Code != resilience.CodeCircuitOpen || e.RetryAfter != after ||
		e.Retryable != (after > 0) {
		s.fail("rejected with %#v", err)
	}
}

func reports(newest bool, err error) func(*sequence) {
	return func(s *sequence) {
		all := s.pending()
		p := all[0]
		if newest {
			p = all[len(all)-1]
		}
		s.report(p, err)
	}
}

func (s *sequence) report(p *permit, err error) {
	s.reported = p
	p.done(err)
	class := resilience.ClassTransient
	if err == errNeutral {
		class = resilience.ClassCanceled
	}
	s.model.report(p, class, err != nil)
}

func waits(d time.Duration) func(*sequence) {
	return func(s *sequence) {
		time.Sleep(d)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if wrong := s.model.advance(time.Since(s.began), s.asked); wrong != "" {
			s.fail("%s", wrong)
		}
		s.asked = nil
	}
}

func (s *sequence) fail(format string, args ...any) {
	if s.wrong == "" {
		s.wrong = fmt.Sprintf(format, args...)
	}
}

// check compares the breaker with its model.
func (s *sequence) check() {
	b, m := s.breaker, &s.model
	if b.State() != m.shown() {
		s.fail("it is %s and should be %s", b.State(), m.shown())
	}
	if b.Failures() != m.failures {
		s.fail("it has %d failures and should have %d", b.Failures(), m.failures)
	}

	least, most := time.Duration(0), time.Duration(0)
	if m.shown() == resilience.StateOpen {
		least, most = m.probeAt-m.now, m.probeAt-m.now
	}
	if most > 0 && m.asks {
		least = max(min(least, m.asked+probeInterval/2-m.now), 1)
		most = min(most, m.asked+probeInterval-m.now)
	}
	if after := b.RetryAfter(); after < least || after > most {
		s.fail("its RetryAfter is %s and should be from %s to %s", after, least, most)
	}
}

// finish ends the Probes, and compares the changes.
func (s *sequence) finish() {
	s.breaker.Isolate("")
	s.model.isolate()
	synctest.Wait()
	s.isAsked() // at the last moment, perhaps
	if !slices.Equal(s.changes, s.model.changes) {
		s.fail("its changes are %q and should be %q", s.changes, s.model.changes)
	}
}
