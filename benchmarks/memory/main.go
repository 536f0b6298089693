// Command memory measures the heap, the stack and the goroutines that a tool, a call in
// flight and an abandoned call take. It prints tables in Markdown.
//
// Each figure is measured in a process of its own, because the runtime reuses the goroutines
// and stacks of earlier measurements.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

func main() {
	var err error
	if len(os.Args) == 3 {
		err = measure(os.Args[1], os.Args[2])
	} else {
		err = report()
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, "memory:", err)
		os.Exit(1)
	}
}

// A table holds the figures of one kind of item, in a row for each peer.
type table struct {
	kind    string // of measurement, as measure takes it
	title   string
	note    string
	columns string
	names   []string // of the rows, as measure takes them
}

var tables = []table{
	{
		kind:  "tool",
		title: "A tool",
		note: "Bytes of heap for each of 10,000 tools, before the first call and after one call of each. " +
			"A guard keeps 1,024 tools that aren't listed, so that row is measured with 1,024.",
		columns: "heap | after a call",
		names:   []string{"guard", "guard, not listed", "failsafe", "hand", "gobreaker", "resiliency"},
	},
	{
		kind:    "opened",
		title:   "A tool whose breaker is open",
		note:    "Bytes of heap for each of 10,000 tools after five failures.",
		columns: "heap",
		names:   []string{"guard", "failsafe", "hand", "gobreaker", "resiliency"},
	},
	{
		kind:  "flight",
		title: "A call in flight",
		note: "For each of 10,000 concurrent calls whose tool waits. The figures include the caller's goroutine, " +
			"and for floor-bare nothing else.",
		columns: "heap | stack | goroutines",
		names: []string{"guard", "guard-coop", "failsafe", "hand", "resiliency", "gobreaker",
			"floor-goroutine", "floor-timeout", "floor-bare"},
	},
	{
		kind:  "abandoned",
		title: "An abandoned call",
		note: "For each of 10,000 calls that have returned at their timeout while their tool still waits. " +
			"Peers that don't enforce a timeout abandon no calls and are left out.",
		columns: "heap | stack | goroutines",
		names:   []string{"guard", "hand", "resiliency", "floor-goroutine"},
	},
}

// report runs all measurements and prints their tables.
func report() error {
	for _, t := range tables {
		fmt.Printf("### %s\n\n%s\n\n| | %s |\n|---|%s\n", t.title, t.note, t.columns,
			strings.Repeat("---|", strings.Count(t.columns, "|")+1))

		for _, name := range t.names {
			out, err := measureElsewhere(t.kind, name)
			if err != nil {
				return fmt.Errorf("%s of %s: %w", t.kind, name, err)
			}
			fmt.Printf("| %s | %s |\n", name, strings.Join(strings.Fields(out), " | "))
		}
		fmt.Println()
	}
	return nil
}

// measureElsewhere runs one measurement in another process of this program and returns what
// it prints.
func measureElsewhere(kind, name string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}

	cmd := exec.Command(exe, kind, name)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return string(out), err
}
