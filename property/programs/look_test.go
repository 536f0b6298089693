package programs

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
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
	for _, b := range w.guard.Breakers() {
		w.audit(b)
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
func (w *world) audit(b *resilience.Breaker) {
	state, failures, after := b.State(), b.Failures(), b.RetryAfter()
	w.mu.Lock()
	l := w.ledgerOf(b.Name())
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

	want, rested := l.state, l.state == resilience.StateOpen && now >= l.probeAt
	if rested && (l.probe == "" || state == resilience.StateHalfOpen) {
		want = resilience.StateHalfOpen
	}
	switch {
	case l.wrong != "":
		w.problem("promise 2 or 3: %s: %s%s", b.Name(), l.wrong, w.callsOf(b))
	case !slices.Equal(changes, l.changes):
		w.problem("promise 3: %s has changed %q, and should have %q%s", b.Name(), changes, l.changes, w.callsOf(b))
	case state != want:
		w.problem("promise 3: at %s, %s is %s and should be %s", now, b.Name(), state, want)
	case state != resilience.StateIsolated && failures != l.failures:
		w.problem("promise 3: at %s, %s has %d failures and should have %d%s", now, b.Name(), failures, l.failures,
			w.callsOf(b))
	case (after > 0) != (state == resilience.StateOpen), l.probe == "" && after > max(l.probeAt-now, 0):
		w.problem("promise 2: at %s, %s is %s and says to come back in %s", now, b.Name(), state, after)
	}
}

// callsOf describes the calls that a breaker counts.
func (w *world) callsOf(b *resilience.Breaker) (text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.records {
		if r.breaker == b.Name() && r.owner == r && !r.returned.never() {
			text += fmt.Sprintf("\n\t%s: %s", []string{"neutral", "success", "failure", "perhaps"}[r.outcome()], r)
		}
	}
	return text
}

// settle waits until every tool and every Probe has returned.
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

// lookLast looks at what is left, when nothing happens any more: nothing may be, and each breaker that isn't isolated
// must admit a healthy call after its cooldowns.
func (w *world) lookLast(goroutines int) {
	w.look()
	w.nothingInFlight("at the end")
	for _, b := range w.guard.Breakers() {
		w.revive(b)
	}
	if !w.guard.Closed() { // otherwise no calls have shown it
		w.look()
	}

	if _, err := w.guard.Close(context.Background()); err != nil {
		w.problem("promise 5: Close: %v", err)
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	if runtime.NumGoroutine() > goroutines {
		if left := leaked(); left != "" {
			panic("promise 5: goroutines are left:\n" + left)
		}
	}
}

// leaked returns the stacks of all goroutines of this bubble but its first one.
func leaked() string {
	buf := make([]byte, 1<<20)
	all := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	_, bubble, _ := strings.Cut(all[0], "synctest bubble ") // this goroutine comes first
	bubble, _, _ = strings.Cut(bubble, "]")
	left := slices.DeleteFunc(all[1:], func(stack string) bool {
		head, _, _ := strings.Cut(stack, "\n")
		return !strings.Contains(head, "synctest bubble "+bubble+"]") ||
			strings.Contains(head, "synctest.Run") || strings.Contains(stack, "testingSynctestTest(")
	})
	return strings.Join(left, "\n\n")
}

func (w *world) nothingInFlight(when string) {
	for _, h := range w.guard.Health() {
		if h.InFlight != 0 {
			w.problem("promise 5: %d calls of %s are in flight %s", h.InFlight, h.Tool, when)
		}
	}
}

// revive makes healthy calls of each tool that has the breaker. The first one must do.
func (w *world) revive(b *resilience.Breaker) {
	own, key, _ := cut(b.Name())
	if _, isolated := w.find(own).Isolated(); isolated {
		return
	}
	time.Sleep(b.RetryAfter())
	for i, t := range w.tools {
		if breakerName(t.breaker) != own {
			continue
		}
		if w.breakers[t.breaker].probe != "" {
			time.Sleep(time.Until(w.begin.Add(w.breakers[t.breaker].back.time())))
			time.Sleep(11 * w.breakers[t.breaker].cooldown.time())
		}
		if w.guard.Closed() {
			if done, err := b.Allow(); err == nil {
				done(resilience.ErrUnfinished) // is neutral
			} else {
				w.problem("promise 2: %s rejects for ever: %v", b.Name(), err)
			}
			continue
		}
		r := w.newRecord(&call{tool: i, key: key, attempts: []script{{}}}, nil)
		w.make(context.Background(), r)
		if r.err != nil {
			w.problem("promise 2: %s: a healthy call, when nothing else happens: %s", b.Name(), r)
		}
		time.Sleep(turn / 10)
	}
}

// stuck describes what has not returned.
func (w *world) stuck() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, r := range w.records {
		if r.returned.never() {
			all = append(all, r.String())
		}
	}
	return strings.Join(all, "\n")
}
