package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
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

// table prints the figures of both servers.
func table(w io.Writer, cfg config, unguarded, guarded result) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(name string, value func(result) any) {
		fmt.Fprintf(t, "%s\t%v\t%v\t\n", name, value(unguarded), value(guarded))
	}

	fmt.Fprintf(t, "\twithout the guard\twith the guard\t\n")
	row("calls", func(r result) any { return len(r.records) })
	for o := range outcomes {
		row(outcomeNames[o], func(r result) any { return r.count(o) })
	}

	row("median latency", func(r result) any { return display(r.latency(0.5)) })
	row("95th percentile", func(r result) any { return display(r.latency(0.95)) })
	row("longest call", func(r result) any { return display(r.latency(1)) })

	from, to := down(cfg)
	row("requests to the backend", func(r result) any { return len(r.sent) })
	row("requests while it hung or was dead", func(r result) any { return r.sentIn(from, to) })
	row("requests that reached it", func(r result) any { return r.reached.requests })
	row("most requests open at once", func(r result) any { return r.reached.mostOpen })

	row("breaker opened", func(r result) any { return r.changesTo(resilience.StateOpen) })
	row("breaker half-open", func(r result) any { return r.changesTo(resilience.StateHalfOpen) })
	row("breaker closed", func(r result) any { return r.changesTo(resilience.StateClosed) })
	return t.Flush()
}

// claims returns which of our claims about the guard the run has disproved.
func claims(cfg config, unguarded, guarded result) (broken []string) {
	expect := func(ok bool, format string, args ...any) {
		if !ok {
			broken = append(broken, fmt.Sprintf(format, args...))
		}
	}

	expect(unguarded.count(gaveUp) > 0, "no client gave up on the unguarded server: there was no outage to speak of")
	expect(guarded.count(gaveUp) == 0, "%d clients gave up on the guarded server", guarded.count(gaveUp))
	expect(guarded.count(failed) == 0, "%d failures of the guarded server came without guidance", guarded.count(failed))
	longest := guarded.latency(1)
	expect(longest <= cfg.timeout+slack,
		"a guarded call took %s; its timeout is %s", display(longest), display(cfg.timeout))

	from, to := down(cfg)
	without, with := unguarded.sentIn(from, to), guarded.sentIn(from, to)
	expect(with < without,
		"the guarded server sent %d requests while the backend was down, the unguarded one %d", with, without)

	expect(guarded.changesTo(resilience.StateOpen) > 0, "the breaker never opened")
	closed := len(guarded.changes) > 0 && guarded.changes[len(guarded.changes)-1].to == resilience.StateClosed
	expect(closed, "the breaker isn't closed at the end")
	again := slices.ContainsFunc(guarded.records, func(r record) bool { return r.outcome == succeeded && r.at >= to })
	expect(again, "no guarded call succeeded after the backend was back")
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
