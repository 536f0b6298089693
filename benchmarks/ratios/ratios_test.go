package main

import (
	"fmt"
	"strings"
	"testing"
)

// fixture is output of go test.
const fixture = `goos: linux
goarch: amd64
pkg: github.com/seed8d1e2389/resilience/benchmarks
cpu: a processor
BenchmarkSuccess/tool=done/peer=guard-2      	  100	      1500 ns/op	    1108 B/op	      12 allocs/op
BenchmarkSuccess/tool=done/peer=guard-2      	  100	       900 ns/op	    1108 B/op	      12 allocs/op
BenchmarkSuccess/tool=done/peer=guard-2      	  100	      1000 ns/op	    1108 B/op	      12 allocs/op
BenchmarkSuccess/tool=done/peer=guard-coop   	  100	       500.5 ns/op	     896 B/op	       8 allocs/op
BenchmarkSomethingElse-2                     	  100	       500 ns/op
PASS
ok  	github.com/seed8d1e2389/resilience/benchmarks	1.5s
`

func TestParseReadsTheFiguresOfEachRun(t *testing.T) {
	s, err := parse(strings.NewReader(fixture))
	if err != nil {
		t.Fatal(err)
	}

	if got := fmt.Sprint(s.cases); got != "[Success/tool=done]" {
		t.Errorf("cases: %s", got)
	}
	done := s.figures["Success/tool=done"]
	guard, coop := done["guard"], done["guard-coop"]
	if guard == nil || coop == nil {
		t.Fatalf("peers: %v", s.figures)
	}
	if median(guard.time) != 1000 || spread(guard.time) != 0.3 ||
		median(guard.bytes) != 1108 || median(guard.allocs) != 12 {
		t.Errorf("guard: %+v", guard)
	}
	if median(coop.time) != 500.5 {
		t.Errorf("without a number of processors: %+v", coop)
	}
}

func TestMedianAndSpread(t *testing.T) {
	if median([]float64{4, 1, 2, 3}) != 2.5 || median(nil) != 0 || spread(nil) != 0 {
		t.Errorf("median %v, of nothing %v; spread of nothing %v",
			median([]float64{4, 1, 2, 3}), median(nil), spread(nil))
	}
}

func TestParseRejectsWhatIsNotANumber(t *testing.T) {
	_, err := parse(strings.NewReader("BenchmarkA/peer=b 1 fast ns/op"))
	if err == nil || !strings.Contains(err.Error(), `"fast" is not a number`) {
		t.Error(err)
	}
}

// completeOutput returns the output of two runs of all cases, in which the guard takes 600ns
// and 7 allocations, and every other peer 1µs and 10.
func completeOutput() string {
	var out strings.Builder
	for range 2 {
		for _, c := range required() {
			for _, peer := range c.peers {
				time, allocs := 1000, 10
				if strings.HasPrefix(peer, "guard") {
					time, allocs = 600, 7
				}
				fmt.Fprintf(&out, "Benchmark%s/peer=%s-2 100 %d ns/op 64 B/op %d allocs/op\n",
					c.name, peer, time, allocs)
			}
		}
	}
	return out.String()
}

func TestTablesHaveARowForEachCase(t *testing.T) {
	var out strings.Builder
	if err := run(&out, strings.NewReader(completeOutput()), nil, 2, false); err != nil {
		t.Fatal(err)
	}

	const figures = "600ns | 0% | 64 | 7 | 0.60 | 0.70 | 0.60 | 0.60"
	for _, row := range []string{
		"| Success/tool=done | guard | " + figures + " | floor-goroutine | 0.60 | 0.70 |",
		"| Success/tool=done | guard-coop | " + figures + " | floor-timeout | 0.60 | 0.70 |",
		"| Open | guard | " + figures + " | gobreaker | 0.60 | 0.70 |",
		"| MCP/sdk=go-sdk | guard | 600ns | 0% | 64 | 7 |  |  |  |  | floor-bare | 0.60 | 0.70 |",
		"| Observer/observer=none | guard | " + figures + " | floor-goroutine | 0.60 | 0.70 |",
	} {
		if !strings.Contains(out.String(), row+"\n") {
			t.Errorf("there is no row %s", row)
		}
	}
	if strings.Contains(out.String(), "| hand | 1.00µs") {
		t.Error("a row of a peer, without -all")
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

func TestTablesHaveARowForEachPeerWithAll(t *testing.T) {
	var out strings.Builder
	err := run(&out, strings.NewReader(completeOutput()), nil, 2, true)
	if err != nil || !strings.Contains(out.String(), "| Success/tool=done | hand | 1.00µs |") {
		t.Errorf("error %v, output:\n%s", err, &out)
	}
}

func TestMissingCasesAreNamed(t *testing.T) {
	const name = "BenchmarkRetry/peer=hand"
	for _, test := range []struct{ input, want string }{
		{"", "BenchmarkSuccess/tool=done/peer=guard is missing"},
		{"", "and 1"}, // and more than a hundred others
		{strings.ReplaceAll(completeOutput(), name+"-2", "Benchmark-2"), name + " is missing"},
		{strings.Replace(completeOutput(), name+"-2", "Benchmark-2", 1), name + " was run 1 times, want 2"},
		{strings.ReplaceAll(completeOutput(), " B/op", " bytes"), "peer=guard was run 0 times, want 2"},
	} {
		err := run(new(strings.Builder), strings.NewReader(test.input), nil, 2, false)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want %q in it", err, test.want)
		}
	}
}

func TestMissingFileIsAnError(t *testing.T) {
	if err := run(new(strings.Builder), nil, []string{"no such file"}, 2, false); err == nil {
		t.Error("no error for a file that isn't there")
	}
}
