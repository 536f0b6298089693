package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
)

// testClients runs the tests in JavaScript. Without npm, they are skipped.
func (r *runner) testClients(ctx context.Context, t target) result {
	if _, err := exec.LookPath("npm"); err != nil {
		return result{verdict: skipped, skips: []skip{{t.name, "there is no npm"}}}
	}

	fmt.Fprintln(r.out, "   npm ci, which downloads the clients")
	stop := r.report(func() string { return "npm ci" })
	var output strings.Builder
	err := r.command(ctx, t.dir, func(line string) { fmt.Fprintln(&output, line) }, "npm", "ci")
	stop()
	if err != nil {
		fmt.Fprint(r.out, output.String())
		return result{verdict: fail, failures: []string{fmt.Sprintf("%s (npm ci: %v)", t.name, err)}}
	}

	fmt.Fprintln(r.out, "   npm test, which compiles the servers first")
	defer r.report(func() string { return "npm test" })()

	tap := tapReader{name: t.name, out: r.out}
	err = r.command(ctx, t.dir, tap.line, "npm", "test", "--silent")

	res := result{verdict: ok, failures: tap.failures, skips: tap.skips}
	if err != nil {
		res.verdict = fail
		tap.printFailed()
	}
	if err != nil && len(res.failures) == 0 {
		res.failures = []string{fmt.Sprintf("%s (npm test: %v)", t.name, err)}
	}
	return res
}

// A tapReader reads what Node's test runner prints in the Test Anything Protocol, where the
// lines of a subtest are indented and come before the result of its parent.
type tapReader struct {
	name string
	out  io.Writer

	path     []string // the names of the tests that the current line is in
	passed   bool     // the current line is in the details of a test that passed
	kept     []string // the lines that printFailed prints
	failures []string
	skips    []skip
}

var (
	tapSubtest    = regexp.MustCompile(`^((?: {4})*)# Subtest: (.*)$`)
	tapResult     = regexp.MustCompile(`^((?: {4})*)(not ok|ok) \d+ - (.*?)(?: # (SKIP|TODO) ?(.*))?$`)
	tapDiagnostic = regexp.MustCompile(`^(?: {4})+# (.*)$`)
	tapNoise      = regexp.MustCompile(`^ *(TAP version \d+|\d+\.\.\d+)$`)
	tapUnescape   = strings.NewReplacer(`\#`, `#`, `\\`, `\`)
)

// line receives each line that the test runner prints.
func (r *tapReader) line(line string) {
	if m := tapSubtest.FindStringSubmatch(line); m != nil {
		r.passed = false
		r.path = append(r.path[:min(len(r.path), len(m[1])/4)], tapUnescape.Replace(m[2]))
		return
	}

	if m := tapResult.FindStringSubmatch(line); m != nil {
		r.result(m[2] == "ok", tapUnescape.Replace(m[3]), m[4], tapUnescape.Replace(m[5]), len(m[1])/4)
	} else if m := tapDiagnostic.FindStringSubmatch(line); m != nil {
		r.passed = false
		fmt.Fprintln(r.out, "  ", tapUnescape.Replace(m[1]))
		return
	}

	if !r.passed && !tapNoise.MatchString(line) {
		r.kept = append(r.kept, line)
	}
	if r.passed && strings.TrimSpace(line) == "..." {
		r.passed = false
	}
}

// result receives the result of a test and how deep it is nested.
func (r *tapReader) result(passed bool, test, directive, reason string, depth int) {
	full := strings.Join(append(r.path[:min(len(r.path), depth):depth], test), " > ")
	r.passed = passed || directive != ""

	switch {
	case directive == "SKIP":
		r.skips = append(r.skips, skip{test, reason})
	case !r.passed && !r.hasFailedIn(full):
		r.failures = append(r.failures, r.name+": "+full)
	}
}

// hasFailedIn reports whether a subtest of the test has failed.
func (r *tapReader) hasFailedIn(test string) bool {
	for _, f := range r.failures {
		if strings.HasPrefix(f, r.name+": "+test+" > ") {
			return true
		}
	}
	return false
}

// printFailed prints all lines except those that belong to tests that passed.
func (r *tapReader) printFailed() {
	for _, line := range r.kept {
		fmt.Fprintln(r.out, line)
	}
}
