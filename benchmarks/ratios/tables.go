package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/seed8d1e2389/resilience/benchmarks/peers"
)

// table prints a row for each case and the guard, or each peer.
func (s *results) table(out io.Writer, all bool) {
	shown := []string{"guard", "guard-coop"}
	if all {
		shown = names(peers.List, nil)
	}
	fmt.Fprintln(out, "Times and allocations, and what they are as a share of others'. "+
		"`±` is half of the distance between the fastest and the slowest run.")
	fmt.Fprintln(out)
	fmt.Fprintln(out, "| case | peer | time | ± | B/op | allocs | time ÷ failsafe | allocs ÷ failsafe "+
		"| time ÷ failsafe-call | time ÷ hand | floor | time ÷ floor | allocs ÷ floor |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, where := range s.cases {
		others := s.figures[where]
		if strings.HasPrefix(where, "Observer/") {
			others = s.figures["Success/tool=done"] // the same work
		}
		for _, peer := range shown {
			f := s.figures[where][peer]
			if f == nil {
				continue
			}
			floor := floorOf(others, peer)
			fmt.Fprintf(out, "| %s | %s | %s | %.0f%% | %.0f | %.0f | %s | %s | %s | %s | %s | %s | %s |\n",
				where, peer, duration(median(f.time)), 100*spread(f.time), median(f.bytes), median(f.allocs),
				timeRatio(f, others[peers.Failsafe]), allocRatio(f, others[peers.Failsafe]),
				timeRatio(f, others["failsafe-call"]), timeRatio(f, others["hand"]),
				floor, timeRatio(f, others[floor]), allocRatio(f, others[floor]))
		}
	}
	fmt.Fprintln(out)
}

// floorOf names the least that does what a peer does: with a limit, and enforced or
// not. It is gobreaker for what only a breaker does, and "" if the case has none.
func floorOf(others map[string]*figures, peer string) string {
	i := slices.IndexFunc(peers.List, func(p peers.Peer) bool { return p.Name == peer })
	floor := peers.FloorBare
	switch {
	case i >= 0 && peers.List[i].Enforces:
		floor = peers.FloorGoroutine
	case i >= 0 && peers.List[i].Limits:
		floor = peers.FloorTimeout
	}
	for _, floor := range []string{floor, peers.FloorBare, "gobreaker"} {
		if others[floor] != nil {
			return floor
		}
	}
	return ""
}

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

// A demand is a row of the bar: a peer's time in one case as a share of another time,
// and its allocations.
type demand struct {
	what         string
	where, peer  string
	against      string // the case of the other time; "": the same
	other        string // its peer
	most, target float64
	allocs       float64 // 0: any number
}

func demands() []demand {
	list := []demand{
		{what: "cooperative tool, sequential", where: "Success/tool=done", peer: "guard-coop", other: peers.Failsafe, most: 0.55, allocs: 7},
		{what: "enforced limit, sequential", where: "Success/tool=done", peer: "guard", other: peers.Failsafe, most: 1.15, target: 0.9, allocs: 9},
	}
	for _, n := range []int{10, 100, 1000, 10000} {
		list = append(list, demand{what: fmt.Sprintf("enforced limit, parallel, %d goroutines", n),
			where: fmt.Sprintf("Parallel/procs=2/goroutines=%d", n), peer: "guard", other: peers.Failsafe, most: 1, allocs: 9})
	}
	return append(list,
		demand{what: "open breaker, rejected", where: "Open", peer: "guard", other: peers.Failsafe, most: 0.6, allocs: 2},
		demand{what: "the same, against the order with the breaker outermost", where: "Open", peer: "guard", other: "failsafe-call", most: 0.6, allocs: 2},
		demand{what: "enforced limit against the hand-written stack", where: "Success/tool=done", peer: "guard", other: "hand", most: 0.7},
		demand{what: "1,000 tools against 1, enforced", where: "Tools/tools=1000", peer: "guard", against: "Tools/tools=1", other: "guard", most: 1.1},
		demand{what: "1,000 tools against 1, cooperative", where: "Tools/tools=1000", peer: "guard-coop", against: "Tools/tools=1", other: "guard-coop", most: 1.1},
	)
}

// bar prints what the guard is held to, and whether it is there.
func (s *results) bar(out io.Writer) {
	fmt.Fprintln(out, "The bar: medians, with a tool that looks at ctx.Done().")
	fmt.Fprintln(out)
	fmt.Fprintln(out, "| case | time against | ratio | at most | allocs | at most | |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|")
	for _, d := range demands() {
		against := d.against
		if against == "" {
			against = d.where
		}
		f, other := s.figures[d.where][d.peer], s.figures[against][d.other]
		share, allocs := median(f.time)/median(other.time), median(f.allocs)
		most, mostAllocs, verdict := fmt.Sprint(d.most), "", "pass"
		if d.target > 0 {
			most += fmt.Sprintf(" (stretch: %v)", d.target)
		}
		if d.allocs > 0 {
			mostAllocs = fmt.Sprint(d.allocs)
		}
		if share > d.most || d.allocs > 0 && allocs > d.allocs {
			verdict = "FAIL"
		}
		fmt.Fprintf(out, "| %s | %s | %.2f | %s | %.0f | %s | %s |\n", d.what, d.other, share, most, allocs, mostAllocs, verdict)
	}
}
