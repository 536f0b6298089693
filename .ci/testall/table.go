package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// printTable prints the result of each target, then the tests that failed, and then the tests
// that were skipped and why.
func printTable(out io.Writer, results []result) {
	fmt.Fprintln(out)
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "module\tresult\tseconds")
	for _, r := range results {
		fmt.Fprintf(table, "%s\t%s\t%7.1f\n", r.name, r.verdict, r.duration.Seconds())
	}
	_ = table.Flush()

	for _, r := range results {
		for _, name := range r.failures {
			fmt.Fprintln(out, "FAIL:", name)
		}
	}
	for _, line := range skipLines(results) {
		fmt.Fprintln(out, "skipped:", line)
	}
}

// skipLines returns one line for each reason, with the tests that were skipped for it.
func skipLines(results []result) []string {
	var reasons []string
	tests := make(map[string][]string)
	for _, r := range results {
		for _, s := range r.skips {
			if !slices.Contains(reasons, s.reason) {
				reasons = append(reasons, s.reason)
			}
			if !slices.Contains(tests[s.reason], s.test) {
				tests[s.reason] = append(tests[s.reason], s.test)
			}
		}
	}

	var lines []string
	for _, reason := range reasons {
		lines = append(lines, abbreviate(tests[reason])+": "+reason)
	}
	return lines
}

// abbreviate joins the names of a list. It replaces all but the first three by their number.
func abbreviate(names []string) string {
	const shown = 3
	if len(names) > shown {
		names = append(slices.Clone(names[:shown]), fmt.Sprintf("%d more", len(names)-shown))
	}
	return strings.Join(names, ", ")
}
