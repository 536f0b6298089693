// Command memory measures what a tool, a call in flight and a call that was given up on
// take: bytes of heap, bytes of stack, goroutines. It prints tables in Markdown.
//
// Each figure is taken in a process of its own, as the runtime reuses the goroutines
// and stacks of what was measured before.
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

// report runs all measurements and prints their tables.
func report() error {
	for _, table := range []struct {
		kind, title, note string
		columns           string
		names             []string
	}{
		{"tool", "A tool", "Bytes of heap for each of 10,000 tools, before the first call and after one call of each. " +
			"Of tools that aren't listed a guard keeps 1,024, so these are 1,024.",
			"heap | after a call",
			[]string{"guard", "guard, not listed", "failsafe", "hand", "gobreaker", "resiliency"}},
		{"flight", "A call in flight", "For each of 10,000 at once, whose tool waits. The caller's goroutine is among them: " +
			"that is all there is to floor-bare.",
			"heap | stack | goroutines",
			[]string{"guard", "guard-coop", "failsafe", "hand", "resiliency", "gobreaker", "floor-goroutine", "floor-timeout", "floor-bare"}},
		{"abandoned", "A call that was given up on", "For each of 10,000 that were over their limit, have returned, and whose tool " +
			"waits still. Peers that don't enforce a limit haven't returned; they are left out.",
			"heap | stack | goroutines",
			[]string{"guard", "hand", "resiliency", "floor-goroutine"}},
	} {
		fmt.Printf("### %s\n\n%s\n\n| | %s |\n|---|%s\n", table.title, table.note, table.columns,
			strings.Repeat("---|", strings.Count(table.columns, "|")+1))
		for _, name := range table.names {
			out, err := itself(table.kind, name)
			if err != nil {
				return fmt.Errorf("%s of %s: %w", table.kind, name, err)
			}
			fmt.Printf("| %s | %s |\n", name, strings.Join(strings.Fields(out), " | "))
		}
		fmt.Println()
	}
	return nil
}

// itself runs one measurement in another process.
func itself(kind, name string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	cmd := exec.Command(exe, kind, name)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return string(out), err
}
