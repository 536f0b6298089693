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

// results are the figures of all cases. A case is a benchmark's name without the peer.
type results struct {
	cases   []string // as they came first
	figures map[string]map[string]*figures
}

// figures are what was measured of one peer in one case, a value for each run.
type figures struct {
	time, bytes, allocs []float64
}

// procs is what the testing package puts behind a name.
var procs = regexp.MustCompile(`-\d+$`)

// parse reads what go test -bench prints. Lines that aren't results don't matter.
func parse(r io.Reader) (*results, error) {
	s := &results{figures: make(map[string]map[string]*figures)}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(procs.ReplaceAllString(fields[0], ""), "Benchmark")
		where, peer, ok := strings.Cut(name, "/peer=")
		if !ok {
			continue
		}
		f := s.of(where, peer)
		for i := 2; i+1 < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %q is not a number", fields[0], fields[i])
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
	}
	return s, lines.Err()
}

func (s *results) of(where, peer string) *figures {
	if s.figures[where] == nil {
		s.figures[where] = make(map[string]*figures)
		s.cases = append(s.cases, where)
	}
	if s.figures[where][peer] == nil {
		s.figures[where][peer] = new(figures)
	}
	return s.figures[where][peer]
}

const shownErrors = 10

// check returns an error that names the cases that are missing, or that were run less
// often than runs times.
func (s *results) check(runs int) error {
	var errs []error
	for _, want := range required() {
		for _, peer := range want.peers {
			name := "Benchmark" + want.name + "/peer=" + peer
			f := s.figures[want.name][peer]
			switch {
			case f == nil:
				errs = append(errs, fmt.Errorf("%s is missing", name))
			case min(len(f.time), len(f.bytes), len(f.allocs)) < runs:
				errs = append(errs, fmt.Errorf("%s was run %d times, want %d", name,
					min(len(f.time), len(f.bytes), len(f.allocs)), runs))
			}
		}
	}
	if n := len(errs); n > shownErrors {
		errs = append(errs[:shownErrors], fmt.Errorf("and %d more", n-shownErrors))
	}
	if len(errs) > 0 {
		return fmt.Errorf("run all benchmarks, %d times each:\n%w", runs, errors.Join(errs...))
	}
	return nil
}

type wanted struct {
	name  string
	peers []string
}

// required are the cases that a complete run has.
func required() []wanted {
	all, some := names(peers.List, nil), names(peers.Few, nil)
	list := []wanted{
		{"Success/tool=done", all},
		{"Success/tool=blind", all},
		{"Request/tool=done", all},
		{"Open", names(peers.List, func(p peers.Peer) bool { return p.Breaks })},
		{"Retry", names(peers.List, func(p peers.Peer) bool { return p.Retries })},
		{"Failure", all},
		{"All/calls=10", all},
		{"Tools/tools=1", some},
		{"Tools/tools=1000", some},
		{"Contention/goroutines=10000/tools=1", some},
		{"Contention/goroutines=10000/tools=1000", some},
		{"MCP/sdk=go-sdk", []string{"guard", "guard-coop", peers.FloorBare}},
		{"MCP/sdk=mcp-go", []string{"guard", "guard-coop", peers.FloorBare}},
		{"Observer/observer=none", []string{"guard", "guard-coop"}},
		{"Observer/observer=slog", []string{"guard", "guard-coop"}},
		{"Observer/observer=otel", []string{"guard", "guard-coop"}},
	}
	for _, procs := range []int{1, 2} {
		for _, goroutines := range []int{1, 10, 100, 1000, 10000} {
			list = append(list, wanted{fmt.Sprintf("Parallel/procs=%d/goroutines=%d", procs, goroutines), some})
		}
	}
	return list
}

// names are those of the peers that do what a case is about; nil: all do.
func names(list []peers.Peer, does func(peers.Peer) bool) (some []string) {
	for _, p := range list {
		if does == nil || does(p) {
			some = append(some, p.Name)
		}
	}
	return some
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// spread is half of the distance between the extremes, as a share of the median.
func spread(values []float64) float64 {
	m := median(values)
	if m == 0 {
		return 0
	}
	return (slices.Max(values) - slices.Min(values)) / 2 / m
}
