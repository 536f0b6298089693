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
)

// verdicts runs all tests in dir and returns what became of each: pass, fail or skip. A package that
// failed without a test of its own is a test, too.
func verdicts(ctx context.Context, dir string, env ...string) (map[string]string, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "./...")
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "GOWORK=off"), env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}

	got := make(map[string]string)
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		var e struct{ Action, Package, Test string }
		if json.Unmarshal(line, &e) == nil {
			switch e.Action {
			case "run":
				got[e.Package+" "+e.Test] = "fail" // unless it ends
			case "pass", "skip", "fail":
				got[e.Package+" "+e.Test] = e.Action
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
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

// report prints the verdicts that differ, and returns how many aren't as expected.
func report(out io.Writer, suite string, bare, guarded map[string]string) (unexpected int) {
	names := maps.Clone(bare)
	maps.Copy(names, guarded)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		reason, excepted := exceptions[name]
		b, g := bare[name], guarded[name]

		switch {
		case b == g && !excepted:
		case b == g:
			fmt.Fprintf(out, "   %s: %s as without a guard, although it is an exception\n", name, g)
		case excepted:
			fmt.Fprintf(out, "   %s: %s instead of %s: %s\n", name, g, b, reason)
		default:
			unexpected++
			fmt.Fprintf(out, "   %s: %s instead of %s\n", name, g, b)
		}
	}
	return unexpected
}
