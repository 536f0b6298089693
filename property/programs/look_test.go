package programs

import (
	"context"
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// This file compares what the guard says of itself with what has happened: now and then during a run, and at its end.

// look compares Health with the records, and each breaker with its ledger. Nothing else may happen at this moment.
func (w *world) look() {
	synctest.Wait()
	all := w.guard.Health()
	for _, h := range all {
		w.mu.Lock()
		inFlight, abandoned := w.count(h.Tool)
		w.mu.Unlock()
		if h.InFlight != inFlight || h.Abandoned != abandoned {
			w.problem("promise 5: at %s, %s has %d calls in flight, %d abandoned; Health says %d, %d",
				time.Since(w.begin), h.Tool, inFlight, abandoned, h.InFlight, h.Abandoned)
		}
	}
	for i, x := range w.tools {
		w.audit(x.breaker, w.guard.Breaker(toolName(i)))
	}
}

// count returns how many calls of a tool are in flight, and how many of its attempts were abandoned and still run.
func (w *world) count(name string) (inFlight, abandoned int) {
	for _, r := range w.records {
		if toolName(r.tool) != name {
			continue
		}
		if r.returned.never() {
			inFlight++
		}
		for _, a := range r.attempts {
			left := !r.returned.never() || len(r.retries) >= a.number
			if a.running() && left {
				abandoned++
			}
		}
	}
	return inFlight, abandoned
}

// audit compares a breaker with its ledger.
func (w *world) audit(n int, b *resilience.Breaker) {
	state, failures, after := b.State(), b.Failures(), b.RetryAfter()
	w.mu.Lock()
	l := w.ledgerOf(n)
	now := time.Since(w.begin)
	var changes []string
	for _, c := range w.changes {
		if c.Breaker == b.Name() {
			changes = append(changes, fmt.Sprintf("%s to %s at %s by %s", c.From, c.To, c.Time.Sub(w.begin), c.Cause))
		}
	}
	w.mu.Unlock()
	seen["audit"]++
	if l.doubtful {
		seen["doubtful audit"]++
		return
	}

	want := l.state
	if l.state == resilience.StateOpen && now >= l.probeAt {
		want = resilience.StateHalfOpen
	}
	switch {
	case l.wrong != "":
		w.problem("promise 2 or 3: %s: %s", b.Name(), l.wrong)
	case !slices.Equal(changes, l.changes):
		w.problem("promise 3: %s has changed %q, and should have %q", b.Name(), changes, l.changes)
	case state != want:
		w.problem("promise 3: at %s, %s is %s and should be %s", now, b.Name(), state, want)
	case failures != l.failures:
		w.problem("promise 3: at %s, %s has %d failures and should have %d", now, b.Name(), failures, l.failures)
	case (after > 0) != (state == resilience.StateOpen), after > max(l.probeAt-now, 0):
		w.problem("promise 2: at %s, %s is %s and says to come back in %s", now, b.Name(), state, after)
	}
}

// settle waits until every tool has returned.
func (w *world) settle() {
	running := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.ContainsFunc(w.records, func(r *record) bool {
			return r.returned.never() || slices.ContainsFunc(r.attempts, (*attempt).running)
		})
	}
	for range 3600 {
		if !running() {
			break
		}
		time.Sleep(time.Second)
	}
	time.Sleep(turn / 2) // apart from everything else
}

// lookLast looks at what is left, when nothing happens any more: nothing may be, and each breaker must
// admit a healthy call after its cooldown.
func (w *world) lookLast() {
	w.look()
	for i := range w.tools {
		w.revive(i)
	}
	w.look()
	if n, err := w.guard.Close(context.Background()); n != 0 || err != nil {
		w.problem("promise 5: Close returned %d, %v", n, err)
	}
}

// revive makes a healthy call of a tool, which must succeed.
func (w *world) revive(n int) {
	b := w.guard.Breaker(toolName(n))
	time.Sleep(b.RetryAfter())
	r := w.newRecord(&call{tool: n, attempts: []script{{}}}, nil)
	w.make(context.Background(), r)
	if r.err != nil {
		w.problem("promise 2: %s: a healthy call, when nothing else happens: %s", b.Name(), r)
	}
	time.Sleep(turn / 10)
}
