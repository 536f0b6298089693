package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// An outcome is how a call ended for the agent that made it.
type outcome int

const (
	succeeded outcome = iota
	guided            // failed, and the agent received guidance: what happened and what to do next
	failed            // failed with no more than the tool's own error
	gaveUp            // wasn't answered in time: the client stopped waiting
	outcomes
)

var outcomeNames = [outcomes]string{"succeeded", "failed, with guidance", "failed, without guidance", "client gave up"}

// A record says when a call was made, how long it took, and how it ended.
type record struct {
	at, took time.Duration // at is the time since the start
	outcome  outcome
}

// A change is a change of the breaker's state.
type change struct {
	at time.Duration
	to resilience.State
}

// A result is what happened to one server in the outage.
type result struct {
	records []record        // one for each call of the schedule, in its order
	sent    []time.Duration // when the tool called the backend, whether or not it listened
	probes  []time.Duration // when a Probe asked it
	changes []change        // empty without a guard
}

// Results holds what happened to each server.
type results [kinds]result

// made returns when the calls with an outcome were made.
func (r result) made(o outcome) (at []time.Duration) {
	for _, rec := range r.records {
		if rec.outcome == o {
			at = append(at, rec.at)
		}
	}
	return at
}

// latency returns the q-quantile of how long the calls took, including those for which the client stopped waiting. The
// median is 0.5, the longest 1.
func (r result) latency(q float64) time.Duration {
	if len(r.records) == 0 {
		return 0
	}
	var took []time.Duration
	for _, rec := range r.records {
		took = append(took, rec.took)
	}
	slices.Sort(took)
	return took[int(q*float64(len(took)-1)+0.5)]
}

// sentWhileDown returns how many requests were sent to the backend while it answered none.
func (r result) sentWhileDown(cfg config) (n int) {
	from, to := cfg.down()
	for _, at := range r.sent {
		if from <= at && at < to {
			n++
		}
	}
	return n
}

// failedSince returns how many of the calls failed that were made from a time on.
func (r result) failedSince(from time.Duration) (n int) {
	for _, rec := range r.records {
		if rec.at >= from && rec.outcome != succeeded {
			n++
		}
	}
	return n
}

// recovery returns how long after the backend's return the first call was made that succeeded, and false if none did.
func (r result) recovery(cfg config) (after time.Duration, ok bool) {
	_, back := cfg.down()
	for _, rec := range r.records {
		if rec.at >= back && rec.outcome == succeeded {
			return rec.at - back, true
		}
	}
	return 0, false
}

// table prints the figures of all servers.
func table(w io.Writer, cfg config, all results) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(name string, value func(result) any) {
		fmt.Fprint(t, name)
		for _, r := range all {
			fmt.Fprintf(t, "\t%v", value(r))
		}
		fmt.Fprint(t, "\t\n")
	}
	_, back := cfg.down()

	fmt.Fprintf(t, "\t%s\t\n", strings.Join(kindNames[:], "\t"))
	row("calls", func(r result) any { return len(r.records) })
	for o := range outcomes {
		row(outcomeNames[o], func(r result) any { return len(r.made(o)) })
	}
	row("median latency", func(r result) any { return display(r.latency(0.5)) })
	row("95th percentile", func(r result) any { return display(r.latency(0.95)) })
	row("longest call", func(r result) any { return display(r.latency(1)) })
	row("failed after the backend was back", func(r result) any { return r.failedSince(back) })
	row("first success after it was back", func(r result) any {
		if after, ok := r.recovery(cfg); ok {
			return display(after)
		}
		return "never"
	})
	row("requests while it hung or was dead", func(r result) any { return r.sentWhileDown(cfg) })
	row("Probes", func(r result) any { return len(r.probes) })
	return t.Flush()
}

// display returns a rounded duration, in seconds from one second on: 60s, not 1m0s.
func display(d time.Duration) string {
	if d >= time.Second {
		return strconv.FormatFloat(d.Round(10*time.Millisecond).Seconds(), 'f', -1, 64) + "s"
	}
	return d.Round(time.Millisecond).String()
}
