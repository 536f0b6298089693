package main

import (
	"cmp"
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

// A demand is one row of the bar: the guard's time in one case must be at most a share of
// another time, and its allocations at most a number.
type demand struct {
	what        string
	in, peer    string  // the case and the peer whose figures are judged
	against     string  // the case of the other time; "" means the same case
	other       string  // the peer of the other time
	maxShare    float64 // of the other time
	stretchGoal float64 // a share that would be better still; zero means none
	maxAllocs   float64 // zero means any number
}

// demands returns the rows of the bar.
func demands() []demand {
	const guard, cooperative = "guard", "guard-coop"
	const success, oneTool, manyTools = "Success/tool=done", "Tools/tools=1", "Tools/tools=1000"

	list := []demand{
		{what: "cooperative tool, sequential", in: success, peer: cooperative,
			other: peers.Failsafe, maxShare: 0.55, maxAllocs: 7},
		{what: "enforced timeout, sequential", in: success, peer: guard,
			other: peers.Failsafe, maxShare: 1.15, stretchGoal: 0.9, maxAllocs: 9},
	}
	for _, n := range []int{10, 100, 1000, 10000} {
		list = append(list, demand{what: fmt.Sprintf("enforced timeout, parallel, %d goroutines", n),
			in: fmt.Sprintf("Parallel/procs=2/goroutines=%d", n), peer: guard,
			other: peers.Failsafe, maxShare: 1, maxAllocs: 9})
	}
	return append(list,
		demand{what: "open breaker, rejected", in: "Open", peer: guard,
			other: peers.Failsafe, maxShare: 0.6, maxAllocs: 2},
		demand{what: "the same, against the order with the breaker outermost", in: "Open", peer: guard,
			other: "failsafe-call", maxShare: 0.6, maxAllocs: 2},
		demand{what: "enforced timeout against the hand-written stack", in: success, peer: guard,
			other: "hand", maxShare: 0.7},
		demand{what: "1,000 tools against 1, enforced", in: manyTools, peer: guard,
			against: oneTool, other: guard, maxShare: 1.1},
		demand{what: "1,000 tools against 1, cooperative", in: manyTools, peer: cooperative,
			against: oneTool, other: cooperative, maxShare: 1.1},
	)
}

// printBar prints the demands on the guard and whether it meets them.
func (s *results) printBar(out io.Writer) {
	fmt.Fprintln(out, "The bar: medians, with a tool that looks at ctx.Done().")
	fmt.Fprintln(out)
	fmt.Fprintln(out, "| case | time against | ratio | at most | allocs | at most | |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|")

	for _, d := range demands() {
		f, other := s.figures[d.in][d.peer], s.figures[cmp.Or(d.against, d.in)][d.other]
		share, allocs := median(f.time)/median(other.time), median(f.allocs)

		maxShare, maxAllocs := fmt.Sprint(d.maxShare), ""
		if d.stretchGoal > 0 {
			maxShare += fmt.Sprintf(" (stretch: %v)", d.stretchGoal)
		}
		if d.maxAllocs > 0 {
			maxAllocs = fmt.Sprint(d.maxAllocs)
		}

		verdict := "pass"
		if share > d.maxShare || d.maxAllocs > 0 && allocs > d.maxAllocs {
			verdict = "FAIL"
		}
		fmt.Fprintf(out, "| %s | %s | %.2f | %s | %.0f | %s | %s |\n",
			d.what, d.other, share, maxShare, allocs, maxAllocs, verdict)
	}
}
