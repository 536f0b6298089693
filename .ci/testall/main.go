// Testall runs the tests of all modules, also after one has failed, and ends with a table.
//
//	go run -C .ci ./testall
//	go run -C .ci ./testall -only adapters/gosdk,clients
//
// It prints the output of the tests that fail and why tests were skipped. A module with a
// newest.mod is tested a second time, with that file in place of its go.mod.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/seed8d1e2389/resilience/ci/modules"
)

func main() {
	only := flag.String("only", "", "test only the modules with these `names`, as in the table, separated by commas")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	passed, err := testAll(ctx, *only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testall:", err)
	}
	if err != nil || !passed {
		os.Exit(1)
	}
}

// testAll runs the tests and prints the table. It reports whether nothing has failed.
func testAll(ctx context.Context, only string) (bool, error) {
	if out, err := exec.CommandContext(ctx, "go", "env", "CGO_ENABLED").Output(); err != nil {
		return false, err
	} else if strings.TrimSpace(string(out)) == "0" {
		return false, errors.New("the race detector needs cgo and a C compiler, but `go env CGO_ENABLED` says 0")
	}

	root, err := modules.Root()
	if err != nil {
		return false, err
	}
	list, err := modules.List(root)
	if err != nil {
		return false, err
	}
	targets, err := choose(allTargets(root, list), only)
	if err != nil {
		return false, err
	}

	r := runner{root: root, out: os.Stdout}
	var results []result
	for _, t := range targets {
		results = append(results, r.run(ctx, t))
		if ctx.Err() != nil {
			break
		}
	}

	printTable(os.Stdout, results)
	if ctx.Err() != nil {
		return false, errors.New("interrupted")
	}
	return !slices.ContainsFunc(results, result.failed), nil
}

// A target is what one line of the table is about: a module, or the clients in JavaScript.
type target struct {
	name string
	dir  string   // relative to the repository
	args []string // further arguments of go test
	npm  bool     // the tests are run with npm instead of go test
}

const newestMod = "newest.mod"

// allTargets returns the targets of these modules, and the clients if there are any.
func allTargets(root string, list []modules.Module) []target {
	var targets []target
	for _, m := range list {
		targets = append(targets, target{name: m.Name(), dir: m.Dir})
		if exists(filepath.Join(root, m.Dir, newestMod)) {
			targets = append(targets, target{
				name: fmt.Sprintf("%s (%s)", m.Name(), newestMod),
				dir:  m.Dir,
				args: []string{"-modfile=" + newestMod},
			})
		}
	}

	if exists(filepath.Join(root, "clients/package.json")) {
		targets = append(targets, target{name: "clients", dir: "clients", npm: true})
	}
	return targets
}

// choose returns the targets with these names, or all targets if names is empty. The name of a
// module also chooses its tests with newest.mod.
func choose(targets []target, names string) ([]target, error) {
	if names == "" {
		return targets, nil
	}

	var chosen []target
	for name := range strings.SplitSeq(names, ",") {
		name = strings.TrimSuffix(strings.TrimSpace(name), "/")
		before := len(chosen)
		for _, t := range targets {
			if name == t.name || name == t.dir {
				chosen = append(chosen, t)
			}
		}
		if len(chosen) == before {
			return nil, fmt.Errorf("there is no module %q; there are %s", name, targetNames(targets))
		}
	}
	return chosen, nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func targetNames(targets []target) string {
	var names []string
	for _, t := range targets {
		names = append(names, t.name)
	}
	return strings.Join(names, ", ")
}
