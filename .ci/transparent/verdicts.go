package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
)

// withGuard is the environment variable that turns the guard on in the tests of an SDK.
const withGuard = "RESILIENCE_GUARD_EVERYTHING"

// A test is one of a package, or the package itself if its name is empty.
type test struct{ pkg, name string }

// verdicts are the results of tests: pass, fail or skip.
type verdicts map[test]string

// goTest runs tests in dir, with or without the guard.
func goTest(ctx context.Context, dir string, guarded bool, args ...string) (verdicts, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json", "-count=1", "-timeout=60m"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if guarded {
		cmd.Env = append(cmd.Env, withGuard+"=1")
	}

	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	v := parse(out)
	if len(v) == 0 {
		return nil, fmt.Errorf("go test ran nothing: %w", err)
	}
	return v, ctx.Err()
}

// parse reads the output of go test -json. It ignores lines that aren't JSON.
func parse(out []byte) verdicts {
	v := make(verdicts)
	for line := range bytes.Lines(out) {
		var e struct{ Action, Package, Test string }
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		switch e.Action {
		case "run":
			v[test{e.Package, e.Test}] = "fail" // unless it ends
		case "pass", "skip", "fail":
			v[test{e.Package, e.Test}] = e.Action
		}
	}
	return v
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

// differing returns the tests whose verdicts differ between v and w. It omits each test, or package, that contains
// another one whose verdict differs.
func (v verdicts) differing(w verdicts) []test {
	all := maps.Clone(v)
	maps.Copy(all, w)

	differ := make(map[test]bool)
	outer := make(map[test]bool)
	for t := range all {
		if v[t] == w[t] {
			continue
		}
		differ[t] = true
		for t.name != "" {
			t.name = strings.TrimPrefix(path.Dir(t.name), ".")
			outer[t] = true
		}
	}
	maps.DeleteFunc(differ, func(t test, _ bool) bool { return outer[t] })

	return slices.SortedFunc(maps.Keys(differ), func(a, b test) int {
		return strings.Compare(a.pkg+" "+a.name, b.pkg+" "+b.name)
	})
}
