// Command bars measures the guard beside its peers and beside the floor, and fails if it takes a larger share of
// their time, or makes more allocations, than it may.
//
// The two sides of a ratio are measured in turn, in rounds of a few milliseconds, and the median of the ratios
// of neighboring rounds counts. Time is that of the processor, and there is only one, so that other work on the
// machine disturbs little.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"time"
)

func main() {
	rounds := flag.Int("rounds", 100, "how many pairs of rounds each ratio is measured in")
	round := flag.Duration("round", 5*time.Millisecond, "how long a round takes")
	only := flag.String("only", "", "measure only the bars whose description matches this regular expression")
	flag.Parse()

	runtime.GOMAXPROCS(1) // a handoff between two processors measures the machine
	failed, err := report(os.Stdout, *only, *rounds, *round)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bars:", err)
		os.Exit(2)
	}
	if failed > 0 {
		fmt.Fprintf(os.Stderr, "bars: %d of them failed\n", failed)
		os.Exit(1)
	}
}

// report prints a table of the bars, and returns how many failed.
func report(out io.Writer, only string, rounds int, round time.Duration) (failed int, err error) {
	matches, err := regexp.Compile(only)
	if err != nil {
		return 0, err
	}

	fmt.Fprintln(out, "| case | time against | ratio | at most | allocations | at most | of the other | |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|")
	for _, b := range bars() {
		if !matches.MatchString(b.what + " against " + b.other.Name) {
			continue
		}

		m := b.measure(rounds, round)
		if !b.holds(m) {
			m = b.measure(rounds, round) // other work on the machine may have disturbed the first time
		}
		verdict := "pass"
		if !b.holds(m) {
			verdict = "FAIL"
			failed++
		}
		fmt.Fprintf(out, "| %s | %s | %.2f | %.2f | %.0f | %.0f | %.0f | %s |\n",
			b.what, b.other.Name, m.ratio, b.maxRatio, m.allocs, b.maxAllocs, m.otherAllocs, verdict)
	}
	return failed, nil
}
