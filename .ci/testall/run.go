package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A result says how the tests of a target ended.
type result struct {
	name     string
	verdict  verdict
	duration time.Duration
	failures []string
	skips    []skip
}

type verdict string

const (
	ok      verdict = "ok"
	fail    verdict = "FAIL"
	skipped verdict = "skipped"
)

func (r result) failed() bool { return r.verdict == fail }

// notes explain why some modules, by directory, take minutes.
var notes = map[string]string{
	"examples/backends": " (clients of common backends, which the first run downloads and compiles)",
}

// A runner runs the tests of targets.
type runner struct {
	root string
	out  io.Writer
}

// run tests one target. It prints the target's name and then the output of what fails.
func (r *runner) run(ctx context.Context, t target) result {
	fmt.Fprintf(r.out, "== %s%s\n", t.name, notes[t.dir])
	start := time.Now()

	var res result
	if t.npm {
		res = r.testClients(ctx, t)
	} else {
		res = r.testModule(ctx, t)
	}

	res.name, res.duration = t.name, time.Since(start)
	return res
}

// testModule runs the tests of a Go module with the race detector.
func (r *runner) testModule(ctx context.Context, t target) result {
	r.download(ctx, t)
	rec := newRecorder(r.out)
	defer r.report(rec.state)()

	args := slices.Concat([]string{"test", "-json", "-race", "-count=1", "-timeout=30m"}, t.args, []string{"./..."})
	err := r.command(ctx, t.dir, rec.line, "go", args...)

	res := result{verdict: ok, failures: rec.failures, skips: rec.skips}
	if err != nil {
		res.verdict = fail
	}
	if err != nil && len(res.failures) == 0 {
		res.failures = []string{fmt.Sprintf("%s (go test: %v)", t.name, err)}
	}
	return res
}

// download fetches the modules that the tests of t need. It ignores errors, because go test
// will fail for the same reason and report it.
func (r *runner) download(ctx context.Context, t target) {
	downloading := false
	args := slices.Concat([]string{"list", "-deps", "-test"}, t.args, []string{"./..."})
	_ = r.command(ctx, t.dir, func(line string) {
		if !downloading && strings.HasPrefix(line, "go: downloading ") {
			downloading = true
			fmt.Fprintln(r.out, "   downloading its modules")
		}
	}, "go", args...)
}

// report prints what state returns twice a minute, until stop is called.
func (r *runner) report(state func() string) (stop func()) {
	start := time.Now()
	ticker := time.NewTicker(30 * time.Second)
	done := make(chan struct{})

	go func() {
		for {
			select {
			case <-ticker.C:
				fmt.Fprintf(r.out, "   %s: %s\n", time.Since(start).Round(time.Second), state())
			case <-done:
				return
			}
		}
	}()

	return func() {
		ticker.Stop()
		close(done)
	}
}

// command runs a program in a directory of the repository and calls line for each line that
// it prints. When ctx ends, the program and all of its children are ended.
func (r *runner) command(ctx context.Context, dir string, line func(string), name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = filepath.Join(r.root, dir)

	out := &lineWriter{line: line}
	cmd.Stdout, cmd.Stderr = out, out

	startGroup(cmd)
	cmd.Cancel = func() error { return interruptGroup(cmd) }
	cmd.WaitDelay = 5 * time.Second

	err := cmd.Run()
	if ctx.Err() != nil {
		killGroup(cmd)
	}
	out.flush()
	return err
}

// A lineWriter calls line for each line that is written to it, without the newline.
type lineWriter struct {
	line func(string)
	rest []byte // of a line that has not ended yet
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		line, rest, found := bytes.Cut(w.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		w.rest = rest
		w.line(string(line))
	}
}

// flush calls line for a last line without a newline.
func (w *lineWriter) flush() {
	if len(w.rest) > 0 {
		w.line(string(w.rest))
		w.rest = nil
	}
}
