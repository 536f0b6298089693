package programs

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const programsByDefault = 1000

// Each program is a small one, so there are more of them than of other properties.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", fmt.Sprint(programsByDefault)); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// seen counts what has happened in all runs.
var seen = make(map[string]int)

func TestGuardKeepsItsPromises(t *testing.T) {
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		p := programs.Draw(r, "program")
		w := run(t, p)
		w.tally()
		if broken := w.broken(); len(broken) > 0 {
			r.Fatalf("%s\nof this program: %+v", strings.Join(broken, "\n"), p)
		}
	})

	for _, what := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%6d %s", seen[what], what)
	}
	for _, what := range interesting() {
		if seen[what] == 0 && n >= programsByDefault {
			t.Errorf("no %s in any program", what)
		}
	}
	if seen["doubtful audit"] > seen["audit"]/4 {
		t.Errorf("%d of %d audits are doubtful", seen["doubtful audit"], seen["audit"])
	}
}

// interesting returns what must have happened. What comes less often than about 20 times in as many programs as there
// are by default isn't listed.
func interesting() []string {
	all := []string{
		"retry",
		"BUSY", "CANCELED", "CIRCUIT_OPEN", "CONNECTION_LOST", "OVERLOADED", "RETRY_EXHAUSTED",
		"TIMEOUT", "TOOL_FAILED", "VALIDATION_ERROR",
		"closed to open by calls", "open to half-open by cooldown",
		"half-open to closed by calls", "half-open to open by calls",
		"to pass on CANCELED", "to pass on CIRCUIT_OPEN", "to pass on OVERLOADED", "to pass on TIMEOUT",
		"to pass on TOOL_FAILED", "to " + echo.name,
	}
	for _, e := range endings {
		all = append(all, "to "+e.name)
	}
	for _, kind := range stepKinds {
		all = append(all, "does "+kind)
	}
	return all
}

// broken returns the promises that the run has broken.
func (w *world) broken() []string {
	broken := slices.Clone(w.problems)
	for _, r := range w.records {
		for _, p := range promises {
			if what := p.check(r); what != "" {
				broken = append(broken, fmt.Sprintf("promise %s: %s: %s", p.name, what, r))
			}
		}
	}
	return broken
}

// tally counts what has happened.
func (w *world) tally() {
	seen["program"]++
	for _, r := range w.records {
		seen["call"]++
		if r.err != nil {
			seen[string(r.err.Code)]++
		}
		seen["retry"] += len(r.retries)
		for _, a := range r.attempts {
			seen["attempt"]++
			for _, kind := range a.steps {
				seen["does "+kind]++
			}
			if a.ending != nil {
				seen["to "+a.ending.name]++
			}
		}
	}
	for _, c := range w.changes {
		seen[fmt.Sprintf("%s to %s by %s", c.From, c.To, c.Cause)]++
	}
}
