package programs

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// This file holds what must be so for retries: the ninth promise, and their bounds.

// delaysFit looks at each delay, which must end before the call, those around it and their callers do. If one of them
// ends in the moment in which the delay begins, what comes first isn't certain.
func delaysFit(r *record) string {
	for i, e := range r.retries {
		begins := e.Time.Sub(r.world.begin)
		for x := r; x != nil; x = x.outer() {
			due := min(x.clockBefore(r.afterAttempt(i)).due, x.deadline())
			if begins != due && begins+e.Delay >= due {
				return fmt.Sprintf("a delay of %s begins at %s, and the time of call %d is up at %s", e.Delay, begins,
					x.number, due)
			}
		}
	}
	return ""
}

// outer returns the call around r with which it ends, nil if there is none.
func (r *record) outer() *record {
	if r.parent == nil {
		return nil
	}
	return r.parent.record
}

// afterAttempt returns the moment after an attempt has been answered.
func (r *record) afterAttempt(i int) moment {
	if a := r.attempts[i]; !a.ended.never() && a.ended.at == r.retries[i].Time.Sub(r.world.begin) {
		return moment{a.ended.at, a.ended.seq + 1}
	}
	if i+1 < len(r.attempts) {
		return r.attempts[i+1].began
	}
	return r.returned
}

func retriesKeepBounds(r *record) string {
	elapsed := r.config.elapsed.time()
	switch {
	case elapsed == 0:
		elapsed = 5 * time.Second
	case elapsed < 0:
		elapsed = forever
	}
	if n := len(r.attempts); n > 1+max(r.config.retries, 0) {
		return fmt.Sprintf("%d attempts", n)
	}
	for i, e := range r.retries {
		failed := e.Time.Sub(r.world.begin) - r.began.at
		late := i == 0 && e.Delay == 0 && failed+delays.Delay(0) > elapsed // a connection that has broken late
		if e.Delay > delays.Max || e.Delay < delays.Delay(i) && !late {
			return fmt.Sprintf("a delay of %s", e.Delay)
		}
		busy := r.attempts[i].ending != nil && r.attempts[i].ending.name == "be busy"
		if busy && r.afterAttempt(i).at == r.attempts[i].ended.at && !r.attempts[i].late && e.Delay < 2*time.Second {
			return fmt.Sprintf("a delay of %s, though attempt %d has asked for 2s", e.Delay, i+1)
		}
		if i+1 == len(r.attempts) {
			continue
		}
		next := r.attempts[i+1].began.at
		if next-r.began.at > elapsed && !late {
			return fmt.Sprintf("attempt %d begins too late", i+2)
		}
		if next != e.Time.Sub(r.world.begin)+e.Delay {
			return fmt.Sprintf("attempt %d doesn't begin after its delay of %s", i+2, e.Delay)
		}
		if s := r.world.stateAt(r.breaker, next); s != resilience.StateClosed {
			return fmt.Sprintf("attempt %d begins, though its breaker is %s", i+2, s)
		}
	}
	return ""
}

// retriesWhereItMay looks at failures that are simple enough: nothing speaks against another attempt.
func retriesWhereItMay(r *record) string {
	if r.verdict() != answered || r.parent != nil || r.config.elapsed >= 0 || r.caller != "" {
		return ""
	}
	a := r.last()
	if r.hasLess() && a.ending != nil && a.ending.code == resilience.CodeTimeout {
		return "" // it may be that of its caller
	}
	n := len(r.attempts)
	delay := delays.Delay(n - 1)
	simple := len(a.calls) == 0 && len(r.ticks) == 0 && a.changed.never() && a.told == "" && r.world.maxAbandoned == 64
	if a.ending == nil || !a.ending.again || a.ending.silent || !simple || n > 1 || n > r.config.retries ||
		r.returned.at+max(delay, 2*time.Second) >= r.due() || !r.config.repeatable() && !a.hadNoEffect(r.returned) {
		return ""
	}
	if r.world.changesDuring(r.breaker, r.began.at, r.returned.at) || r.world.hasFailed(r.breaker, r.returned.at) {
		return ""
	}
	return "it isn't retried"
}

// hasFailed reports whether a call of the breaker has failed by then: retries may have stopped helping.
func (w *world) hasFailed(name string, by time.Duration) bool {
	return slices.ContainsFunc(w.records, func(r *record) bool {
		return r.breaker == name && len(r.ends) > 0 && r.ends[0].Counted && r.ends[0].Time.Sub(w.begin) <= by
	})
}
