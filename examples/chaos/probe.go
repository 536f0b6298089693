package main

import (
	"context"
	"net/http"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// probe returns the Probe of the server's breaker: resilience.ProbeURL of the backend's health, over the same
// network as the calls.
func (t *trial) probe() func(context.Context) error {
	client := &http.Client{Transport: t.http.Transport, Timeout: t.cfg.probeInterval / 2}
	return t.pace(resilience.ProbeURL("http://backend"+healthPath, client))
}

// pace returns a Probe that asks at whole intervals after the breaker has opened. The library draws the times
// between Probes, and the picture must be repeatable. These are the longest that it draws.
func (t *trial) pace(probe func(context.Context) error) func(context.Context) error {
	interval := t.cfg.probeInterval
	return func(ctx context.Context) error {
		called, opened := time.Since(t.start), t.opened()
		at := opened + (called - opened).Round(interval) // only the first Probe of an opening is early
		if !sleepUntil(ctx, t.start.Add(at)) {
			return ctx.Err()
		}

		t.note(&t.probes)
		if err := probe(ctx); err != nil {
			return later{err, at + interval - time.Since(t.start)}
		}
		return nil
	}
}

// opened returns when the breaker opened last.
func (t *trial) opened() (at time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.changes {
		if c.to == resilience.StateOpen {
			at = c.at
		}
	}
	return at
}

// A later is a failed Probe that says when to ask again.
type later struct {
	error
	after time.Duration
}

func (l later) Unwrap() error             { return l.error }
func (l later) RetryAfter() time.Duration { return l.after }
