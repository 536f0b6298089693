package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// slack is how much longer than its timeout a call may take in real time.
const slack = 500 * time.Millisecond

// made returns when the calls with one of these outcomes were made. Without an outcome it
// returns those of all calls.
func (r result) made(ended ...outcome) (at []time.Duration) {
	for _, rec := range r.records {
		if len(ended) == 0 || slices.Contains(ended, rec.outcome) {
			at = append(at, rec.at)
		}
	}
	return at
}

func (r result) count(o outcome) int { return len(r.made(o)) }

// latency returns the q-quantile of how long the calls took, including those for which the client
// stopped waiting. The median is 0.5, the longest 1.
func (r result) latency(q float64) time.Duration {
	if len(r.records) == 0 {
		return 0
	}
	took := make([]time.Duration, len(r.records))
	for i, rec := range r.records {
		took[i] = rec.took
	}
	slices.Sort(took)
	return took[int(q*float64(len(took)-1)+0.5)]
}

// sentIn returns how many requests were sent to the backend from one time to another.
func (r result) sentIn(from, to time.Duration) (n int) {
	for _, at := range r.sent {
		if from <= at && at < to {
			n++
		}
	}
	return n
}

// changesTo returns how often the breaker changed to a state.
func (r result) changesTo(s resilience.State) (n int) {
	for _, c := range r.changes {
		if c.to == s {
			n++
		}
	}
	return n
}

// down returns from when to when the backend answered no call.
func down(cfg config) (from, to time.Duration) {
	for _, p := range outage(cfg) {
		switch p.mode {
		case hangs:
			from = p.from
		case dead:
			to = p.to
		}
	}
	return from, to
}

// succeededIn returns how many of the calls that were made from one time to another succeeded, and how many there
// were.
func (r result) succeededIn(from, to time.Duration) (n, of int) {
	for _, rec := range r.records {
		if from <= rec.at && rec.at < to {
			of++
			if rec.outcome == succeeded {
				n++
			}
		}
	}
	return n, of
}

// recovery returns how long after the backend's return the first call was made that succeeded, and false if none
// succeeded.
func (r result) recovery(cfg config) (after time.Duration, ok bool) {
	_, back := down(cfg)
	for _, rec := range r.records { // ordered by when they were made
		if rec.at >= back && rec.outcome == succeeded {
			return rec.at - back, true
		}
	}
	return 0, false
}

// failedSince returns how many of the calls failed that were made from a time on.
func (r result) failedSince(from time.Duration) int {
	n, of := r.succeededIn(from, math.MaxInt64)
	return of - n
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

	fmt.Fprintf(t, "\t%s\t\n", strings.Join(kindNames[:], "\t"))
	row("calls", func(r result) any { return len(r.records) })
	for o := range outcomes {
		row(outcomeNames[o], func(r result) any { return r.count(o) })
	}
	for _, p := range outage(cfg) {
		row("succeeded while "+p.name, func(r result) any {
			n, of := r.succeededIn(p.from, p.to)
			return fmt.Sprintf("%d of %d", n, of)
		})
	}

	row("median latency", func(r result) any { return display(r.latency(0.5)) })
	row("95th percentile", func(r result) any { return display(r.latency(0.95)) })
	row("longest call", func(r result) any { return display(r.latency(1)) })

	from, to := down(cfg)
	row("failed after the backend was back", func(r result) any { return r.failedSince(to) })
	row("first success after it was back", func(r result) any {
		if after, ok := r.recovery(cfg); ok {
			return display(after)
		}
		return "never"
	})

	row("requests to the backend", func(r result) any { return len(r.sent) })
	row("requests while it hung or was dead", func(r result) any { return r.sentIn(from, to) })
	row("requests that reached it", func(r result) any { return r.reached.requests })
	row("most requests open at once", func(r result) any { return r.reached.mostOpen })
	row("Probes", func(r result) any { return len(r.probes) })

	row("breaker opened", func(r result) any { return r.changesTo(resilience.StateOpen) })
	row("breaker half-open", func(r result) any { return r.changesTo(resilience.StateHalfOpen) })
	row("breaker closed", func(r result) any { return r.changesTo(resilience.StateClosed) })
	return t.Flush()
}

// claims returns which of our claims about the guards the run has disproved.
func claims(cfg config, all results) (broken []string) {
	if all[unguarded].count(gaveUp) == 0 {
		broken = append(broken, "no client gave up on the unguarded server: there was no outage to speak of")
	}
	for _, k := range []kind{guarded, probing} {
		for _, text := range claimsOfGuard(cfg, all[unguarded], all[k]) {
			broken = append(broken, fmt.Sprintf("the server %s: %s", kindNames[k], text))
		}
	}

	// What a Probe is for: a call that is made an interval after the backend's return isn't rejected any more.
	_, back := down(cfg)
	from := back + cfg.probeInterval + slack
	if n := all[probing].failedSince(from); n > 0 {
		broken = append(broken, fmt.Sprintf(
			"the server with a Probe: %d calls failed that were made %s or more after the backend's return",
			n, display(from-back)))
	}
	return broken
}

// claimsOfGuard returns which claims about every guard the run has disproved.
func claimsOfGuard(cfg config, unguarded, guarded result) (broken []string) {
	expect := func(ok bool, format string, args ...any) {
		if !ok {
			broken = append(broken, fmt.Sprintf(format, args...))
		}
	}

	expect(guarded.count(gaveUp) == 0, "%d clients gave up", guarded.count(gaveUp))
	expect(guarded.count(failed) == 0, "%d failures came without guidance", guarded.count(failed))
	longest := guarded.latency(1)
	expect(longest <= cfg.timeout+slack, "a call took %s; the timeout is %s", display(longest), display(cfg.timeout))

	from, to := down(cfg)
	without, with := unguarded.sentIn(from, to), guarded.sentIn(from, to)
	expect(with < without, "it sent %d requests while the backend was down, the unguarded one %d", with, without)

	expect(guarded.changesTo(resilience.StateOpen) > 0, "the breaker never opened")
	closed := len(guarded.changes) > 0 && guarded.changes[len(guarded.changes)-1].to == resilience.StateClosed
	expect(closed, "the breaker isn't closed at the end")
	_, again := guarded.recovery(cfg)
	expect(again, "no call succeeded after the backend was back")
	return broken
}

// display returns a rounded duration, in seconds from one second on: 60s, not 1m0s.
func display(d time.Duration) string {
	if d >= time.Second {
		return strconv.FormatFloat(d.Round(10*time.Millisecond).Seconds(), 'f', -1, 64) + "s"
	}
	if d >= 10*time.Millisecond {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}
