package programs

import (
	"fmt"
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
