package main

import (
	"context"
	"net/http"

	"github.com/seed8d1e2389/resilience"
)

// probe returns the Probe of the server's breaker: resilience.ProbeURL of the backend's health, over the same
// network as the calls. The library draws the times between Probes, so two pictures differ a little.
func (t *trial) probe() func(context.Context) error {
	client := &http.Client{Transport: t.http.Transport, Timeout: t.cfg.probeInterval / 2}
	probe := resilience.ProbeURL("http://backend"+healthPath, client)
	return func(ctx context.Context) error {
		t.note(&t.probes)
		return probe(ctx)
	}
}
