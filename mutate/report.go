package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// sample returns the mutants to run, chosen by the seed.
func (t target) sample(mutants []*mutant, o options) ([]*mutant, error) {
	percent := t.percent
	switch o.sample {
	case "":
	case "all":
		percent = 100
	default:
		n, err := strconv.Atoi(o.sample)
		if err != nil || n < 1 || n > 100 {
			return nil, fmt.Errorf("-sample is %q: it must be all, or 1 to 100 percent", o.sample)
		}
		percent = n
	}

	chosen := slices.Clone(mutants)
	rng := rand.New(rand.NewPCG(o.seed, 0))
	rng.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	chosen = chosen[:(len(chosen)*percent+99)/100]
	chosen = slices.DeleteFunc(chosen, func(m *mutant) bool {
		return o.file != "" && m.file != o.file || !strings.Contains(m.String(), o.match)
	})
	return chosen, nil
}

// A report says what has become of the mutants of a package.
type report struct {
	target  target
	all     int      // mutants, with those that aren't in the sample
	left    []string // tests that fail without a mutant
	verbose bool
	took    time.Duration

	mu        sync.Mutex
	survivors []*mutant
	refuted   []*mutant // listed as equivalent, but killed
	lines     map[string]*score
}

// A score counts the mutants of a file.
type score struct{ mutants, killed, survived, equivalent int }

func (s score) percent() float64 {
	if s.killed+s.survived == 0 {
		return 100
	}
	return 100 * float64(s.killed) / float64(s.killed+s.survived)
}

// run runs the mutants. The listed equivalents only run if they are to be checked.
func (r *report) run(s *suite, mutants []*mutant, equivalents bool) {
	start := time.Now()
	r.lines = map[string]*score{}
	done := 0
	each(s.workers, mutants, func(_ int, m *mutant) {
		by := ""
		if m.reason == "" || equivalents {
			by = s.kill(m)
		}

		r.mu.Lock()
		defer r.mu.Unlock()
		r.count(m, by)
		if done++; r.verbose {
			fmt.Printf("%s by %q\n", m, by)
		} else if done%200 == 0 {
			fmt.Fprintf(os.Stderr, "%s: %d of %d after %s\n", r.target.name, done, len(mutants),
				time.Since(start).Round(time.Second))
		}
	})
	r.took = time.Since(start)
	sortByLine(r.survivors)
}

func (r *report) count(m *mutant, by string) {
	if r.lines[m.file] == nil {
		r.lines[m.file] = &score{}
	}
	s := r.lines[m.file]
	s.mutants++
	switch {
	case m.reason != "":
		s.equivalent++
		if by != "" {
			r.refuted = append(r.refuted, m)
		}
	case by != "":
		s.killed++
	default:
		s.survived++
		r.survivors = append(r.survivors, m)
	}
}

func (r *report) total() score {
	var sum score
	for _, s := range r.lines {
		sum.mutants += s.mutants
		sum.killed += s.killed
		sum.survived += s.survived
		sum.equivalent += s.equivalent
	}
	return sum
}

// print prints a table, and the survivors.
func (r *report) print(out io.Writer) {
	var files []string
	for name := range r.lines {
		files = append(files, name)
	}
	slices.Sort(files)

	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\n%s\tmutants\tkilled\tsurvived\tequivalent\tscore\t\n", r.target.name)
	row := func(name string, s score) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%.1f%%\t\n", name, s.mutants, s.killed, s.survived, s.equivalent, s.percent())
	}
	for _, name := range files {
		row(name, *r.lines[name])
	}
	row("all", r.total())
	w.Flush()

	fmt.Fprintf(out, "%d of %d mutants in %s\n", r.total().mutants, r.all, r.took.Round(time.Second))
	for _, name := range r.left {
		fmt.Fprintln(out, "left out, because it fails without a mutant:", name)
	}
	for _, m := range r.survivors {
		fmt.Fprintln(out, "survived:", m)
	}
	for _, m := range r.refuted {
		fmt.Fprintln(out, "listed as equivalent, but killed:", m)
	}
}

// verdict returns why the run fails, if it does.
func (r *report) verdict() error {
	var failed []error
	if p := r.total().percent(); p < r.target.bar {
		failed = append(failed, fmt.Errorf("%.1f%% of the mutants are killed: it must be %.0f%%", p, r.target.bar))
	}
	if n := len(r.refuted); n > 0 {
		failed = append(failed, fmt.Errorf("%d mutants are listed as equivalent, but killed", n))
	}
	return errors.Join(failed...)
}
