package main

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// An event is a line that go test -json prints; see go doc test2json and go help buildjson.
type event struct {
	Action      string
	Package     string
	Test        string
	Output      string
	ImportPath  string // of the package that is compiled, in events of a build
	FailedBuild string
}

// A recorder reads the events of one go test. It prints the output of what fails, and keeps the
// names of the tests that fail or are skipped. It is safe for concurrent use.
type recorder struct {
	out io.Writer

	mu       sync.Mutex
	builds   map[string][]string // output of the compiler or go vet, by import path
	open     []*openTest         // in the order of their starts
	failed   map[string][]string // the failed tests, by package, while the package runs
	failures []string
	skips    []skip
}

// An openTest is a test that hasn't ended. If its test is empty, it is the package itself.
type openTest struct {
	pkg, test string
	paused    bool // waits for its turn among parallel tests
	output    []string
}

// A skip is a skipped test and the reason that it gave.
type skip struct{ test, reason string }

func newRecorder(out io.Writer) *recorder {
	return &recorder{out: out, builds: make(map[string][]string), failed: make(map[string][]string)}
}

// line receives each line that go test -json prints.
func (r *recorder) line(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	var e event
	if json.Unmarshal([]byte(line), &e) != nil {
		fmt.Fprintln(r.out, line)
		return
	}

	switch e.Action {
	case "build-output":
		r.builds[e.ImportPath] = append(r.builds[e.ImportPath], e.Output)
	case "build-fail":
		r.print(r.builds[e.ImportPath])
	case "start", "run", "pause", "cont":
		r.test(e).paused = e.Action == "pause"
	case "output":
		if !strings.HasPrefix(e.Output, "=== ") { // RUN, PAUSE, CONT, NAME
			t := r.test(e)
			t.output = append(t.output, e.Output)
		}
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(e)
		} else {
			r.endTest(e)
		}
	}
}

// test returns the open test of an event. It opens one if there is none.
func (r *recorder) test(e event) *openTest {
	for _, t := range r.open {
		if t.pkg == e.Package && t.test == e.Test {
			return t
		}
	}

	t := &openTest{pkg: e.Package, test: e.Test}
	r.open = append(r.open, t)
	return t
}

func (r *recorder) endTest(e event) {
	t := r.test(e)
	r.open = slices.DeleteFunc(r.open, func(o *openTest) bool { return o == t })

	switch e.Action {
	case "fail":
		r.print(t.output)
		r.failed[e.Package] = append(r.failed[e.Package], e.Test)
	case "skip":
		r.skips = append(r.skips, skip{e.Test, reason(t.output)})
	}
}

func (r *recorder) endPackage(e event) {
	open := r.closeAll(e.Package)
	failed := r.failed[e.Package]
	delete(r.failed, e.Package)
	if e.Action != "fail" {
		return
	}

	// A test that a panic or a timeout interrupts never ends. The output of such tests is
	// printed before that of the package, which says how it failed.
	var unfinished []string
	slices.SortStableFunc(open, func(a, b *openTest) int { return -strings.Compare(a.test, b.test) })
	for _, t := range open {
		r.print(t.output)
		if t.test != "" && !t.paused {
			unfinished = append(unfinished, t.test)
		}
	}

	pkg := strings.TrimPrefix(e.Package, owner)
	for _, test := range innermost(failed) {
		r.failures = append(r.failures, pkg+"."+test)
	}
	for _, test := range innermost(unfinished) {
		r.failures = append(r.failures, pkg+"."+test+" (didn't finish)")
	}

	switch {
	case e.FailedBuild != "":
		r.failures = append(r.failures, pkg+" (doesn't build)")
	case len(failed)+len(unfinished) == 0:
		r.failures = append(r.failures, pkg+" (failed outside of its tests)")
	}
}

// closeAll removes the open tests of a package, and the package itself, and returns them.
func (r *recorder) closeAll(pkg string) []*openTest {
	var open []*openTest
	r.open = slices.DeleteFunc(r.open, func(t *openTest) bool {
		if t.pkg == pkg {
			open = append(open, t)
		}
		return t.pkg == pkg
	})
	return open
}

// owner is the prefix that the table omits from import paths.
const owner = "github.com/seed8d1e2389/"

// innermost returns the tests without duplicates, and without those that have a subtest in the
// list.
func innermost(tests []string) []string {
	slices.Sort(tests)
	tests = slices.Compact(tests)
	return slices.DeleteFunc(slices.Clone(tests), func(test string) bool {
		return slices.ContainsFunc(tests, func(other string) bool { return strings.HasPrefix(other, test+"/") })
	})
}

var logLine = regexp.MustCompile(`^\s+\S+\.go:\d+: `)

// reason returns the last message that a skipped test has logged.
func reason(output []string) string {
	var last string
	for _, line := range output {
		if prefix := logLine.FindString(line); prefix != "" {
			last = line[len(prefix):]
		} else if !strings.HasPrefix(strings.TrimSpace(line), "--- SKIP") {
			last += line
		}
	}

	if last = strings.Join(strings.Fields(last), " "); last == "" {
		return "without a reason"
	}
	return last
}

func (r *recorder) print(output []string) {
	for _, line := range output {
		fmt.Fprint(r.out, line)
	}
}

// state returns what go test is doing.
func (r *recorder) state() string {
	r.mu.Lock()
	defer r.mu.Unlock()

	var tests, packages []string
	for _, t := range r.open {
		name := strings.TrimPrefix(t.pkg, owner)
		switch {
		case t.test == "":
			packages = append(packages, name)
		case !t.paused:
			tests = append(tests, name+"."+t.test)
		}
	}

	switch {
	case len(tests) > 0:
		return "running " + abbreviate(innermost(tests))
	case len(packages) > 0:
		return "running " + abbreviate(packages)
	}
	return "compiling"
}
