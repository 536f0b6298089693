package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// A suite is the test binary of a package with all its mutants.
type suite struct {
	dir     string // of the package
	work    string // for temporary files
	binary  string
	size    int // of a file that notes what is reached
	workers int
	tests   []*test

	mu    sync.Mutex
	kills map[killing]int
}

// A test is a top-level test, example or fuzz test.
type test struct {
	name    string
	took    time.Duration
	reaches []byte // by id of a mutant or a function: whether the test reaches it
	breadth int    // how much it reaches
}

// A killing is what is remembered of killed mutants: which test did it, and where.
type killing struct {
	test  string
	where string // a function or a file
}

// build compiles the test binary with these texts in place of the package's files.
func build(p *pkg, texts map[string]string, work string) (*suite, error) {
	replace := map[string]string{}
	for name, text := range texts {
		path := filepath.Join(work, name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			return nil, err
		}
		replace[filepath.Join(p.dir, name)] = path
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	overlayFile := filepath.Join(work, "overlay.json")
	if err := os.WriteFile(overlayFile, overlay, 0o666); err != nil {
		return nil, err
	}

	s := &suite{dir: p.dir, work: work, binary: filepath.Join(work, "mutants.test"), kills: map[killing]int{}}
	cmd := goCommand(p.dir, "test", "-c", "-overlay", overlayFile, "-o", s.binary, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go test -c in %s: %w\n%s", p.dir, err, out)
	}
	return s, nil
}

// measure runs each test alone, without a mutant. It notes what the test reaches and how long it takes, and returns the
// names of the tests that fail, which are left out.
func (s *suite) measure(ids int) (failing []string, err error) {
	cmd := exec.Command(s.binary, "-test.list", ".")
	cmd.Dir = s.dir
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}

	s.size = ids
	names := strings.Fields(string(out))
	tests := make([]*test, len(names))
	each(s.workers, names, func(i int, name string) {
		t, measured := s.measureOne(name)
		if measured != nil {
			t = nil
		}
		tests[i] = t
	})
	for i, t := range tests {
		if t == nil {
			failing = append(failing, names[i])
		} else {
			s.tests = append(s.tests, t)
		}
	}
	return failing, nil
}

func (s *suite) measureOne(name string) (*test, error) {
	hits := filepath.Join(s.work, "hits-"+name)
	if err := os.WriteFile(hits, make([]byte, s.size), 0o666); err != nil {
		return nil, err
	}
	defer os.Remove(hits)

	t := &test{name: name}
	start := time.Now()
	if failed := s.run(0, []*test{t}, 5*time.Minute, "MUTATE_HITS="+hits); failed != "" {
		return nil, fmt.Errorf("%s failed: %s", name, failed)
	}
	t.took = time.Since(start)
	reached, err := os.ReadFile(hits)
	t.reaches = reached
	t.breadth = bytes.Count(reached, []byte{1})
	return t, err
}

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// run runs tests with a mutant, 0 for none. It returns which of them fails, "" if none does: or that they take longer
// than the timeout, or crash.
func (s *suite) run(id int, tests []*test, timeout time.Duration, env ...string) string {
	var names []string
	for _, t := range tests {
		names = append(names, t.name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout+10*time.Second)
	defer cancel()

	cmd := exec.CommandContext(ctx, "sh", "-c", `ulimit -v 8000000; exec "$@"`, "sh", // a mutant may want endless memory
		s.binary, "-test.run=^("+strings.Join(names, "|")+")$", "-test.failfast", "-test.short",
		"-test.timeout="+timeout.String())
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), fmt.Sprintf("MUTATE_ID=%d", id))
	cmd.Env = append(cmd.Env, env...)
	var out tail
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	ownGroup(cmd)
	if cmd.Run() == nil {
		return ""
	}

	if found := failure.FindSubmatch(out.head); found != nil {
		return string(found[1])
	}
	if ctx.Err() != nil || bytes.Contains(out.head, []byte("panic: test timed out")) {
		return "timeout"
	}
	return "crash"
}

// A tail keeps the first 64 KB that are written to it.
type tail struct{ head []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.head = append(t.head, p[:min(len(p), 64<<10-len(t.head))]...)
	return len(p), nil
}

// kill returns what killed the mutant, "" if it survives all tests that reach it.
func (s *suite) kill(m *mutant) string {
	tests := s.reaching(m)
	for len(tests) > 0 {
		n := chunk(tests)
		var took time.Duration
		for _, t := range tests[:n] {
			took += t.took
		}
		if by := s.run(m.id, tests[:n], 6*time.Second+10*took); by != "" {
			name, _, _ := strings.Cut(by, "/")
			s.mu.Lock()
			s.kills[killing{name, m.function}]++
			s.kills[killing{name, m.file}]++
			s.mu.Unlock()
			return by
		}
		tests = tests[n:]
	}
	return ""
}

// chunk returns how many of the tests to run next: few at first, because those are likely to kill.
func chunk(tests []*test) int {
	var took time.Duration
	for i, t := range tests {
		if took += t.took; took > 250*time.Millisecond && i > 0 || i == 25 {
			if len(tests) > 60 || took > time.Second {
				return i
			}
			break
		}
	}
	return len(tests)
}

// reaching returns the tests that reach a mutant. Those that are likely to kill it are first.
func (s *suite) reaching(m *mutant) []*test {
	var found []*test
	for _, t := range s.tests {
		if len(m.uses) == 0 && t.reaches[m.id] == 1 ||
			slices.ContainsFunc(m.uses, func(id int) bool { return t.reaches[id] == 1 }) {
			found = append(found, t)
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortStableFunc(found, func(a, b *test) int {
		return cmp.Or(
			cmp.Compare(s.kills[killing{b.name, m.function}], s.kills[killing{a.name, m.function}]),
			cmp.Compare(s.kills[killing{b.name, m.file}], s.kills[killing{a.name, m.file}]),
			cmp.Compare(a.breadth, b.breadth),
		)
	})
	return found
}

// each calls f for all values, on several goroutines.
func each[T any](workers int, values []T, f func(int, T)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range workers {
		wg.Go(func() {
			for i := range next {
				f(i, values[i])
			}
		})
	}
	for i := range values {
		next <- i
	}
	close(next)
	wg.Wait()
}
