package redisfleet

import (
	"context"
	"slices"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// Report implements [resilience.Fleet].
func (e *engine) Report(results []resilience.FleetResult) {
	for batch := range slices.Chunk(results, maxBatch) {
		e.report(batch)
	}
}

// report tells the store of as many results as it takes at once.
func (e *engine) report(batch []resilience.FleetResult) {
	asked, connected := e.reports()
	if !connected {
		e.missed(batch)
		return
	}

	var all []news
	for _, r := range batch {
		all = append(all, e.newsOf(r))
	}
	err := e.tell(context.Background(), all, func(_ news, changed entry) { e.told(changed, asked) })
	if err != nil {
		e.missed(batch)
		e.lost(err)
	}
}

// newsOf returns what the store has to know of a result.
func (e *engine) newsOf(r resilience.FleetResult) news {
	n := news{op: "failure", breaker: r.Breaker, age: time.Since(r.Time), n: 1, quorum: e.quorum}
	n.row, n.heard, n.probe, n.cause = r.Breaker.Failures, e.heardBefore(r), r.Probe, r.Cause
	switch {
	case r.Success && r.Probe:
		n.op = "recovered"
	case r.Success:
		n.op = "success"
	}
	return n
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
		if at := r.Breaker.Changed; r.Time.Sub(at) < heartbeat && at.Before(e.agreed) {
			e.agreed = at
		}
	}
}
