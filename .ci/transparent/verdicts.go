package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// A test is one of a package, or the package itself if its name is empty.
type test struct{ pkg, name string }

func (t test) String() string { return strings.TrimSpace(t.pkg + " " + t.name) }

// parent returns the test that t is a subtest of, or the package.
func (t test) parent() test {
	return test{t.pkg, t.name[:max(strings.LastIndexByte(t.name, '/'), 0)]}
}

// verdicts says what became of each test: pass, fail or skip.
type verdicts map[test]string

// goTest runs tests in dir, with or without the guard.
func goTest(ctx context.Context, dir string, guarded bool, args ...string) (verdicts, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json", "-count=1", "-timeout=60m"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if !guarded {
		cmd.Env = append(cmd.Env, bareEnv+"=1")
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}

	got, err := readVerdicts(out)
	if err != nil {
		return nil, err
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	if len(got) == 0 {
		return nil, fmt.Errorf("go test ran nothing: %w", err)
	}
	return got, nil
}

// readVerdicts reads the events of go test -json, among which are lines of other kinds.
func readVerdicts(r io.Reader) (verdicts, error) {
	got := make(verdicts)
	for lines := bufio.NewReader(r); ; {
		line, err := lines.ReadBytes('\n')
		var e struct{ Action, Package, Test string }
		if json.Unmarshal(line, &e) == nil {
			switch e.Action {
			case "run":
				got[test{e.Package, e.Test}] = "fail" // unless it ends
			case "pass", "skip", "fail":
				got[test{e.Package, e.Test}] = e.Action
			}
		}
		if err == io.EOF {
			return got, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// passed returns how many tests have passed.
func (v verdicts) passed() (n int) {
	for _, verdict := range v {
		if verdict == "pass" {
			n++
		}
	}
	return n
}

// differing returns the tests whose verdicts differ between v and w. It leaves out those that differ
// only because tests within them do.
func (v verdicts) differing(w verdicts) []test {
	all := maps.Clone(v)
	maps.Copy(all, w)

	differ := make(map[test]bool)
	for t := range all {
		if v[t] != w[t] {
			differ[t] = true
		}
	}
	for t := range maps.Clone(differ) {
		for t.name != "" {
			t = t.parent()
			delete(differ, t)
		}
	}
	return slices.SortedFunc(maps.Keys(differ), func(a, b test) int {
		return strings.Compare(a.String(), b.String())
	})
}
