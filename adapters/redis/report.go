package redisfleet

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// Report implements [resilience.Fleet].
func (e *engine) Report(results []resilience.FleetResult) {
	for batch := range slices.Chunk(results, maxBatch) {
		e.report(batch)
	}
	if last := results[len(results)-1]; last.Lost {
		e.skipped(last.Time)
	}
}

// skipped notes that results since this time are lost: the next sync tells the store which breakers have changed, and
// when a call has succeeded last of those that have failures there.
func (e *engine) skipped(since time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.behind = true
	for id, x := range e.breakers {
		if b, _ := e.member.Breaker(id); x.Failures > 0 && !b.Succeeded.IsZero() {
			e.cleared[id] = b.Succeeded
		}
	}
	if since.Before(e.agreed) {
		e.agreed = since
	}
}

// report tells the store of as many results as it takes at once.
func (e *engine) report(batch []resilience.FleetResult) {
	for all := e.newsOf(batch); len(all) > 0; {
		asked, connected := e.reports()
		if !connected {
			e.missed(batch)
			return
		}

		again, err := e.tell(context.Background(), all, func(_ news, changed entry) { e.told(changed, asked) })
		if err != nil {
			e.missed(batch)
			e.lost(err)
			return
		}
		all = again
	}
}

// newsOf returns what the store has to know of results. Failures of a breaker without a success between them, or
// anything that the member has heard, are told together.
func (e *engine) newsOf(results []resilience.FleetResult) (all []news) {
	last := make(map[string]int) // which news of a breaker is the last one
	for _, r := range results {
		n := e.failed(r.Breaker, r.Time)
		n.heard, n.probe, n.cause, n.after = e.heardBefore(r), r.Probe, r.Cause, r.RetryAfter
		switch {
		case r.Success && r.Probe:
			n.op = "recovered"
		case r.Success:
			n.op = "success"
		}

		i, ok := last[r.Breaker.ID]
		if ok && n.isOfCall() && all[i].isOfCall() && n.heard == all[i].heard {
			n.n = max(min(all[i].n+1, r.Breaker.Failures), 1)
			all[i] = n
			continue
		}
		last[r.Breaker.ID] = len(all)
		all = append(all, n)
	}
	return all
}

// isOfCall reports whether the news is of calls of a closed breaker that have failed.
func (n news) isOfCall() bool { return n.op == "failure" && !n.probe }

// again returns what the store is told next of failures that it has not counted, as the member had not heard of those
// before: by now it has. It reports false if there is nothing more to tell, also because a call has succeeded since.
func (e *engine) again(n news, reply entry) (again news, ok bool) {
	if reply.Apart == 0 {
		return news{}, false
	}
	n.apart, n.heard = reply.Apart, reply.Version
	b, _ := e.member.Breaker(n.breaker.ID)
	return n, b.Failures >= n.breaker.Failures && b.Succeeded.Before(n.at)
}

// reports notes that the store is told of results now, unless it can't be reached.
func (e *engine) reports() (now time.Time, connected bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now = time.Now()
	if e.health.Connected {
		e.reported = now
	}
	return now, e.health.Connected
}

// heardBefore returns the version of the breaker's failures of which the member had heard before a result, or zero.
func (e *engine) heardBefore(r resilience.FleetResult) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.breakers[r.Breaker.ID]; !r.Time.Before(x.came) {
		return x.Version
	}
	return 0
}

// missed notes that the store may not have heard of results: the next sync tells it what has become of their breakers,
// if a result has changed that, or that a success has ended the failures before it. An older change it has heard
// of, and others may know better since.
func (e *engine) missed(results []resilience.FleetResult) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.behind = true
	for _, r := range results {
		if r.Success && len(e.cleared) < maxBreakers {
			e.cleared[r.Breaker.ID] = r.Time
		}
		if x, ok := e.breakers[r.Breaker.ID]; ok && x.State == "open" && r.Probe && !r.Success {
			x.failed = r.Time
			e.breakers[r.Breaker.ID] = x
		}
		if at := r.Breaker.Changed; r.Time.Sub(at) < heartbeat && at.Before(e.agreed) {
			e.agreed = at
		}
	}
}

// catchUp tells the store what the member's own calls and Probes have found out since they last agreed, if it has
// missed some of that: whose failures a success has ended, and which breakers have opened and closed.
func (e *engine) catchUp(ctx context.Context) error {
	e.mu.Lock()
	if !e.behind {
		e.mu.Unlock()
		return nil
	}
	u := e.untold
	e.behind, e.cleared = false, make(map[string]time.Time)
	e.mu.Unlock()

	var err error
	all := e.findings(u)
	if len(all) > 0 {
		_, _, err = e.ask(ctx) // what its clock is
	}
	for len(all) > 0 && err == nil {
		all, err = e.tellAll(ctx, all, func(news, entry) {})
	}
	if err != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.behind = true
		maps.Copy(u.cleared, e.cleared) // which are newer
		e.cleared = u.cleared
	}
	return err
}

// findings returns what the store hasn't heard. Of a breaker that waits for its probe, nothing is known any more.
func (e *engine) findings(u untold) (all []news) {
	for id, at := range u.cleared {
		all = append(all, news{op: "success", breaker: resilience.FleetBreaker{ID: id}, at: at})
	}

	for _, b := range e.member.Breakers() {
		if b.Changed.Before(u.agreed) || b.Changed.IsZero() || b.Cause == resilience.CauseManual {
			continue
		}
		n := e.failed(b, b.Changed)
		n.cause, n.n = b.Cause, max(b.Failures, 1)
		switch b.State {
		case resilience.StateClosed:
			n.op = "recovered"
		case resilience.StateOpen:
		default:
			continue
		}
		all = append(all, n)
	}
	return all
}
