package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/seed8d1e2389/resilience/benchmarks/peers"
)

// printTable prints a row for each case and the guard, or for each case and peer if all is
// true.
func (s *results) printTable(out io.Writer, all bool) {
	shown := []string{"guard", "guard-coop"}
	if all {
		shown = names(peers.List, nil)
	}

	fmt.Fprintln(out, "Times and allocations, also as ratios to those of peers. "+
		"`±` is half of the distance between the fastest and the slowest run.")
	fmt.Fprintln(out)
	fmt.Fprintln(out, "| case | peer | time | ± | B/op | allocs | time ÷ failsafe | allocs ÷ failsafe "+
		"| time ÷ failsafe-call | time ÷ hand | floor | time ÷ floor | allocs ÷ floor |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|---|---|---|")

	for _, benchmarkCase := range s.cases {
		for _, peer := range shown {
			if s.figures[benchmarkCase][peer] != nil {
				s.printRow(out, benchmarkCase, peer)
			}
		}
	}
	fmt.Fprintln(out)
}

func (s *results) printRow(out io.Writer, benchmarkCase, peer string) {
	f, others := s.figures[benchmarkCase][peer], s.figures[benchmarkCase]
	if strings.HasPrefix(benchmarkCase, "Observer/") {
		others = s.figures["Success/tool=done"] // the same work, which only the guard can have observed
	}
	floor := floorOf(others, peer)

	fmt.Fprintf(out, "| %s | %s | %s | %.0f%% | %.0f | %.0f | %s | %s | %s | %s | %s | %s | %s |\n",
		benchmarkCase, peer, duration(median(f.time)), 100*spread(f.time), median(f.bytes), median(f.allocs),
		timeRatio(f, others[peers.Failsafe]), allocRatio(f, others[peers.Failsafe]),
		timeRatio(f, others["failsafe-call"]), timeRatio(f, others["hand"]),
		floor, timeRatio(f, others[floor]), allocRatio(f, others[floor]))
}

// floorOf returns the name of the simplest peer that does what the given one does: it has a
// timeout or not, and enforces it or not. For what only a breaker does, that is gobreaker. If
// the case has no floor, floorOf returns "".
func floorOf(others map[string]*figures, peer string) string {
	i := slices.IndexFunc(peers.List, func(p peers.Peer) bool { return p.Name == peer })
	floor := peers.FloorBare
	switch {
	case i >= 0 && peers.List[i].Enforces:
		floor = peers.FloorGoroutine
	case i >= 0 && peers.List[i].TimesOut:
		floor = peers.FloorTimeout
	}

	for _, floor := range []string{floor, peers.FloorBare, "gobreaker"} {
		if others[floor] != nil {
			return floor
		}
	}
	return ""
}

// timeRatio returns the ratio of the median times, or "" if there is no other peer.
func timeRatio(f, other *figures) string {
	if other == nil {
		return ""
	}
	return ratio(median(f.time), median(other.time))
}

func allocRatio(f, other *figures) string {
	if other == nil {
		return ""
	}
	return ratio(median(f.allocs), median(other.allocs))
}

func ratio(a, b float64) string {
	if b == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", a/b)
}

func duration(ns float64) string {
	switch {
	case ns < 1e3:
		return fmt.Sprintf("%.0fns", ns)
	case ns < 1e6:
		return fmt.Sprintf("%.2fµs", ns/1e3)
	default:
		return fmt.Sprintf("%.2fms", ns/1e6)
	}
}
