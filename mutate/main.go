// Mutate changes one thing at a time in the library and its adapters, and runs the tests that reach it: each change
// that no test notices is behaviour that no test holds.
//
//	make mutate                       # a sample of the mutants
//	make mutate SEED=2 ONLY=root      # another sample, of the root alone
//	make mutate SAMPLE=all ONLY=adapters/otel
//	go run -C mutate . -only root -file clock.go -sample all -v
//
// The maintained tools compile the package and run its whole test suite once for each mutant, and can't take a sample
// by a seed: for the root, that is 10 seconds for each of 9,000 mutants. Here, all mutants of a package are compiled
// into one test binary, and the environment says which of them runs. A mutant then costs the time of the tests that
// reach it, until one fails.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// The lowest scores, in percent of the mutants that aren't equivalent.
const (
	rootBar    = 97
	adapterBar = 95
)

// targets are the packages, and how much of each a sample takes by default, in percent: on two cores that do nothing
// else, less than 20 minutes in total. A mutant of the root takes about half a second of one core, and one of
// adapters/gosdk about two.
var targets = []target{
	{"root", ".", rootBar, 15},
	{"adapters/console", "adapters/console", adapterBar, 40},
	{"adapters/gosdk", "adapters/gosdk", adapterBar, 15},
	{"adapters/grpc", "adapters/grpc", adapterBar, 100},
	{"adapters/mcpgo", "adapters/mcpgo", adapterBar, 30},
	{"adapters/otel", "adapters/otel", adapterBar, 40},
	{"adapters/redis", "adapters/redis", adapterBar, 5},
}

type target struct {
	name    string
	dir     string // relative to the repository
	bar     float64
	percent int
}

type options struct {
	seed    uint64
	sample  string
	only    string
	file    string
	match   string
	workers int
	list    bool
	listed  bool
	verbose bool
}

func main() {
	var o options
	flag.Uint64Var(&o.seed, "seed", 1, "which `sample` to take")
	flag.StringVar(&o.sample, "sample", "", "the `part` of the mutants in percent, or all; by default, a part of each package")
	flag.StringVar(&o.only, "only", "", "only these `packages`, separated by commas")
	flag.StringVar(&o.file, "file", "", "only the mutants of this `file`")
	flag.StringVar(&o.match, "match", "", "only mutants with this `text`")
	flag.IntVar(&o.workers, "workers", runtime.NumCPU()+1, "how many tests run at the same time: one may only wait")
	flag.BoolVar(&o.list, "list", false, "only list the mutants")
	flag.BoolVar(&o.listed, "equivalents", false, "run the listed equivalents, too: one that is killed is none")
	flag.BoolVar(&o.verbose, "v", false, "print what killed each mutant")
	flag.Parse()

	if err := mutate(o); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// mutate runs the mutants of all packages that are asked for.
func mutate(o options) error {
	out, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return fmt.Errorf("git rev-parse: %w", err)
	}
	root := strings.TrimSpace(string(out))
	reasons, err := readEquivalents(filepath.Join(root, "mutate", "equivalents.txt"))
	if err != nil {
		return err
	}
	fmt.Printf("SEED=%d\n", o.seed)

	var failed []error
	ran := false
	for _, t := range targets {
		if o.only == "" || strings.Contains(","+o.only+",", ","+t.name+",") {
			ran = true
			if err := t.mutate(root, o, reasons[t.name]); err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", t.name, err))
			}
		}
	}
	if !ran {
		return fmt.Errorf("there is no package %q: there are root and adapters/NAME", o.only)
	}
	return errors.Join(failed...)
}

// mutate runs the mutants of a package, and prints what has become of them.
func (t target) mutate(root string, o options, reasons equivalents) error {
	p, err := load(filepath.Join(root, t.dir))
	if err != nil {
		return err
	}
	texts, mutants, err := instrument(p, find(p))
	if err != nil {
		return err
	}
	unknown := reasons.mark(mutants)
	sampled, err := t.sample(mutants, o)
	if err != nil {
		return err
	}
	if o.list {
		for _, m := range sampled {
			fmt.Println(m)
		}
		return unknown
	}

	work, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	s, err := build(p, texts, work)
	if err != nil {
		return err
	}
	s.workers = o.workers
	failing, err := s.measure(len(mutants) + 1 + len(functions(p)))
	if err != nil {
		return err
	}

	r := report{target: t, all: len(mutants), left: failing, verbose: o.verbose}
	r.run(s, sampled, o.listed)
	r.print(os.Stdout)
	return errors.Join(unknown, r.verdict())
}
