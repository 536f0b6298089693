package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed8d1e2389/resilience/benchmarks/peers"
)

// results holds the figures of all cases. A case is the name of a benchmark without the peer.
type results struct {
	cases   []string                       // in the order in which they were first read
	figures map[string]map[string]*figures // by case and peer
}

// figures holds what was measured of one peer in one case, a value for each run.
type figures struct {
	time, bytes, allocs []float64
}

// procs matches the number of processors that the testing package appends to a name.
var procs = regexp.MustCompile(`-\d+$`)

// parse reads what go test -bench prints. It ignores lines that aren't results of a peer.
func parse(r io.Reader) (*results, error) {
	s := &results{figures: make(map[string]map[string]*figures)}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}

		name := strings.TrimPrefix(procs.ReplaceAllString(fields[0], ""), "Benchmark")
		benchmarkCase, peer, ok := strings.Cut(name, "/peer=")
		if !ok {
			continue
		}
		if err := s.of(benchmarkCase, peer).add(fields); err != nil {
			return nil, err
		}
	}
	return s, lines.Err()
}

// add adds the values of one line, whose fields are a name, a number of iterations, and pairs
// of a value and its unit.
func (f *figures) add(fields []string) error {
	for i := 2; i+1 < len(fields); i += 2 {
		v, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return fmt.Errorf("%s: %q is not a number", fields[0], fields[i])
		}

		switch fields[i+1] {
		case "ns/op":
			f.time = append(f.time, v)
		case "B/op":
			f.bytes = append(f.bytes, v)
		case "allocs/op":
			f.allocs = append(f.allocs, v)
		}
	}
	return nil
}

// runs returns how many times everything was measured.
func (f *figures) runs() int { return min(len(f.time), len(f.bytes), len(f.allocs)) }

// of returns the figures of a peer in a case. It adds them if there are none yet.
func (s *results) of(benchmarkCase, peer string) *figures {
	if s.figures[benchmarkCase] == nil {
		s.figures[benchmarkCase] = make(map[string]*figures)
		s.cases = append(s.cases, benchmarkCase)
	}
	if s.figures[benchmarkCase][peer] == nil {
		s.figures[benchmarkCase][peer] = new(figures)
	}
	return s.figures[benchmarkCase][peer]
}

// maxErrors bounds how many missing cases check names.
const maxErrors = 10

// check returns an error that names the cases that are missing or that were run fewer times
// than runs.
func (s *results) check(runs int) error {
	var errs []error
	for _, want := range required() {
		for _, peer := range want.peers {
			name := "Benchmark" + want.name + "/peer=" + peer
			f := s.figures[want.name][peer]
			switch {
			case f == nil:
				errs = append(errs, fmt.Errorf("%s is missing", name))
			case f.runs() < runs:
				errs = append(errs, fmt.Errorf("%s was run %d times, want %d", name, f.runs(), runs))
			}
		}
	}

	if n := len(errs); n > maxErrors {
		errs = append(errs[:maxErrors], fmt.Errorf("and %d more", n-maxErrors))
	}
	if len(errs) > 0 {
		return fmt.Errorf("run all benchmarks, %d times each:\n%w", runs, errors.Join(errs...))
	}
	return nil
}

// A requiredCase is a case that a complete run has, with the peers that take part in it.
type requiredCase struct {
	name  string
	peers []string
}

// required returns the cases of a complete run.
func required() []requiredCase {
	all, few := names(peers.List, nil), names(peers.Few, nil)
	guards := []string{"guard", "guard-coop"}
	servers := []string{"guard", "guard-coop", peers.FloorBare}

	list := []requiredCase{
		{"Success/tool=done", all},
		{"Success/tool=blind", all},
		{"Request/tool=done", all},
		{"Open", names(peers.List, func(p peers.Peer) bool { return p.Breaks })},
		{"Retry", names(peers.List, func(p peers.Peer) bool { return p.Retries })},
		{"Failure", all},
		{"All/calls=10", all},
		{"Tools/tools=1", few},
		{"Tools/tools=1000", few},
		{"Contention/goroutines=10000/tools=1", few},
		{"Contention/goroutines=10000/tools=1000", few},
		{"MCP/sdk=go-sdk", servers},
		{"MCP/sdk=mcp-go", servers},
		{"Observer/observer=none", guards},
		{"Observer/observer=slog", guards},
		{"Observer/observer=otel", guards},
	}

	for _, procs := range []int{1, 2} {
		for _, goroutines := range []int{1, 10, 100, 1000, 10000} {
			list = append(list, requiredCase{fmt.Sprintf("Parallel/procs=%d/goroutines=%d", procs, goroutines), few})
		}
	}
	return list
}

// names returns the names of the peers for which does returns true. If does is nil, it returns
// all names.
func names(list []peers.Peer, does func(peers.Peer) bool) (some []string) {
	for _, p := range list {
		if does == nil || does(p) {
			some = append(some, p.Name)
		}
	}
	return some
}

// median returns the median of values, or zero if there are none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}

	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// spread returns half of the distance between the extremes, as a share of the median.
func spread(values []float64) float64 {
	m := median(values)
	if m == 0 {
		return 0
	}
	return (slices.Max(values) - slices.Min(values)) / 2 / m
}
