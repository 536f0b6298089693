package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience/benchmarks/peers"
)

func TestReportHasARowForEachBarThatMatchesAndCountsFailures(t *testing.T) {
	var out strings.Builder
	failed, err := report(&out, "against failsafe$", 1, time.Microsecond)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "| FAIL |"); failed != n {
		t.Errorf("%d failed, and %d in the table", failed, n)
	}
	if rows := strings.Count(out.String(), "\n") - 2; rows != 8 {
		t.Errorf("%d rows, want 8", rows)
	}

	if _, err := report(&out, "(", 1, time.Microsecond); err == nil {
		t.Error("no error for an expression that can't be parsed")
	}
}

// Each bar measures what its name says.
func TestBarsMeasureTheirCases(t *testing.T) {
	for _, b := range bars() {
		for _, p := range []peers.Peer{b.guard, b.other} {
			do, fn, ran := p.New(b.settings), b.tool(), 0
			var errs []error
			for range 3 {
				_, err := do(t.Context(), b.settings.Tools[0], func(ctx context.Context) (string, error) {
					ran++
					return fn(ctx)
				})
				errs = append(errs, err)
			}

			want := map[string][2]int{"failure": {3, 3}, "two retries": {9, 0}, "open breaker": {1, 3}}
			name, _, _ := strings.Cut(b.what, ",")
			expected, special := want[name]
			if !special {
				expected = [2]int{3, 0}
			}
			failed := 0
			for _, err := range errs {
				if err != nil {
					failed++
				}
			}
			if got := [2]int{ran, failed}; got != expected {
				t.Errorf("%s, %s: ran and failed %v times, want %v", b.what, p.Name, got, expected)
			}
		}
	}
}

func TestABarHoldsForTimeAndAllocations(t *testing.T) {
	b := bar{maxRatio: 1.1, maxAllocs: 7}
	for m, want := range map[measurement]bool{
		{ratio: 1.1, allocs: 7}: true, {ratio: 1.11, allocs: 7}: false, {ratio: 1.1, allocs: 8}: false,
	} {
		if b.holds(m) != want {
			t.Errorf("%+v: %v", m, !want)
		}
	}
}
