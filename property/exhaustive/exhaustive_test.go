package exhaustive

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
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

func always(*sequence) bool     { return true }
func pending(s *sequence) bool  { return len(s.pending()) > 0 }
func severals(s *sequence) bool { return len(s.pending()) > 1 }
func reported(s *sequence) bool { return s.reported != nil }

// single leaves open which of several probes is overdue.
func single(s *sequence) bool { return len(s.model.probes) < 2 }

var (
	errFailed  = errors.New("failed")
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
	{"4s", single, waits(4*time.Second + 1)},
	{"a cooldown", single, waits(cooldown)},
	{"a probe's timeout", single, waits(probeTimeout + 1)},
	{"isolate", always, func(s *sequence) { s.breaker.Isolate(""); s.model.isolate() }},
	{"trip", always, func(s *sequence) { s.breaker.Trip(3 * time.Second); s.model.trip(3 * time.Second) }},
	{"reset", always, func(s *sequence) { s.breaker.Reset(); s.model.reset() }},
}

// situations are where sequences begin.
var situations = map[string][]string{
	"closed":    nil,
	"open":      {"allow", "the oldest fails", "allow", "the oldest fails"},
	"half-open": {"trip", "4s", "allow", "allow"},
	"half-open after a contended probe that was canceled": {"trip", "4s", "allow", "allow", "the oldest is canceled"},
	"isolated": {"allow", "isolate"},
}

func TestExhaustive(t *testing.T) {
	for name, begin := range situations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { exhaust(t, begin) })
		})
	}
}

// exhaust takes all sequences of operations, in the order of their choices.
func exhaust(t *testing.T, begin []string) {
	n, choices := 0, []int(nil)
	for more := true; more; n++ {
		q := newSequence()
		for _, name := range begin {
			q.do(operations[slices.IndexFunc(operations, func(o operation) bool { return o.name == name })])
		}
		choices, more = q.follow(*depth, choices)
		if q.finish(); q.wrong != "" {
			t.Fatalf("%s; then %s", strings.Join(q.taken, ", "), q.wrong)
		}
	}
	t.Logf("%d sequences of %d operations", n, *depth)
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
}

func newSequence() *sequence {
	s := &sequence{began: time.Now(), model: model{state: resilience.StateClosed}}
	s.breaker = resilience.NewBreaker("x", resilience.BreakerConfig{
		Failures: maxFailures, Cooldown: cooldown, ProbeTimeout: probeTimeout,
		OnChange: func(_ string, from, to resilience.State) {
			s.changes = append(s.changes, fmt.Sprintf("%s to %s", from, to))
		},
	})
	return s
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
	if s.wrong != "" {
		return
	}
	s.taken = append(s.taken, o.name)
	o.do(s)
	s.check()
}

func (s *sequence) pending() []*permit {
	return slices.DeleteFunc(slices.Clone(s.permits), func(p *permit) bool { return p.reported })
}

func (s *sequence) allow() {
	done, err := s.breaker.Allow()
	p, wrong := s.model.allow(err == nil)
	switch {
	case wrong != "":
		s.fail("%s", wrong)
		return
	case p != nil:
		p.done = done
		s.permits = append(s.permits, p)
		return
	}

	var e *resilience.Error
	least, most := s.model.advice()
	if !errors.As(err, &e) || e.Code != resilience.CodeCircuitOpen || e.RetryAfter < least || e.RetryAfter > most ||
		e.Retryable != (most > 0) {
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
	s.model.report(p, err)
}

func waits(d time.Duration) func(*sequence) {
	return func(s *sequence) {
		time.Sleep(d)
		s.model.now = time.Since(s.began)
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

	after := time.Duration(0)
	if m.shown() == resilience.StateOpen {
		after = m.probeAt - m.now
	}
	if b.RetryAfter() != after {
		s.fail("its RetryAfter is %s and should be %s", b.RetryAfter(), after)
	}
}

// finish compares the changes.
func (s *sequence) finish() {
	synctest.Wait()
	if !slices.Equal(s.changes, s.model.changes) {
		s.fail("its changes are %q and should be %q", s.changes, s.model.changes)
	}
}
