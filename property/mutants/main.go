// Mutants shows that the models kill each of a list of mutants: small changes of the library that break a promise.
// It runs their tests against each mutant, and fails if all of them pass.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

var only = flag.String("only", "", "a regular expression for the mutants to try: for their names, or what they break")

// The tests that must notice, in this order. With a seed of their own, they find the same every time.
var tests = [][]string{
	{"./exhaustive", "-depth", "3"},
	{"./programs", "-rapid.seed", "1", "-rapid.checks", "10000", "-rapid.nofailfile", "-rapid.shrinktime", "10ms"},
	{"./exhaustive", "-depth", "5"},
}

func main() {
	flag.Parse()
	names, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}

	alive := 0
	for _, m := range mutants {
		if !names.MatchString(m.name) && !names.MatchString(m.breaks) {
			continue
		}
		start := time.Now()
		killer, err := m.try()
		switch {
		case err != nil:
			alive++
			fmt.Printf("FAIL  %s: %v\n", m.name, err)
		case killer == "":
			alive++
			fmt.Printf("FAIL  %s lives. %s\n", m.name, m.breaks)
		default:
			fmt.Printf("ok    %s (%s): %s\n", m.name, time.Since(start).Round(time.Second), killer)
		}
	}
	if alive > 0 {
		fmt.Printf("%d mutants live\n", alive)
		os.Exit(1)
	}
}

// try returns what killed the mutant, nothing if it lives.
func (m mutant) try() (killer string, err error) {
	text, err := m.text("../..")
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	overlay, err := m.overlay(dir, text)
	if err != nil {
		return "", err
	}

	if out, err := goTool("build", "-overlay", overlay, "github.com/seed8d1e2389/resilience"); err != nil {
		return "", fmt.Errorf("it doesn't compile: %s", out)
	}
	for _, args := range tests {
		test := []string{"test", "-count=1", "-failfast", "-timeout", "2m", "-overlay", overlay}
		out, err := goTool(append(test, args...)...)
		var exit *exec.ExitError
		switch {
		case errors.As(err, &exit):
			return args[0] + ": " + reason(out), nil
		case err != nil:
			return "", err
		}
	}
	return "", nil
}

// text returns the changed file. root is the directory of the library.
func (m mutant) text(root string) (string, error) {
	was, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(was), m.old); n != 1 {
		return "", fmt.Errorf("its old text is in %s %d times: it must be there once", m.file, n)
	}
	return strings.Replace(string(was), m.old, m.new, 1), nil
}

// overlay writes what go's option of this name wants, and returns the name of the file.
func (m mutant) overlay(dir, text string) (string, error) {
	original, err := filepath.Abs(filepath.Join("../..", m.file))
	if err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(dir, m.file), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", err
	}
	return overlay, errors.Join(os.WriteFile(changed, []byte(text), 0o600), os.WriteFile(overlay, replace, 0o600))
}

// goTool runs a go command in the module of the models.
func goTool(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = ".."
	out, err := cmd.CombinedOutput()
	return string(out), err
}

var reasons = regexp.MustCompile(
	`promise [^\n:]*: [^\n]*|exhaustive_test.go:\d+: [^\n]*|panic: [^\n]*|no [^\n]*in any program`)

// reason returns the beginning of what a test has complained about.
func reason(out string) string {
	found := reasons.FindString(out)
	if found == "" {
		found = strings.TrimSpace(out)
	}
	if len(found) > 160 {
		found = found[:160] + "…"
	}
	return found
}
