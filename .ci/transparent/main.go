// Transparent runs the test suites of the MCP SDKs twice: as they are, and with a guard in every
// server that a test makes. A guard with defaults must change no verdict.
//
//	go run -C .ci ./transparent [-run regexp] [-keep]
//
// It copies each SDK from the module cache, at the lowest version that an adapter requires and at the
// newest, into a temporary folder, and patches a hook into the constructor of its servers. The
// verdicts that may differ are in exceptions.go, with their reasons. It takes about half an hour.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/seed8d1e2389/resilience/ci/modules"
)

func main() {
	only := flag.String("run", ".", "the SDKs to run, such as mcp-go@v1")
	keep := flag.Bool("keep", false, "keep the temporary folder")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *only, *keep)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "transparent:", err)
		os.Exit(1)
	}
}

// run compares the verdicts of each suite, and returns an error if some differ that may not.
func run(ctx context.Context, out io.Writer, only string, keep bool) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	root, err := modules.Root()
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "transparent-")
	if err != nil {
		return err
	}
	if keep {
		fmt.Fprintln(out, "the copies are in", tmp)
	} else {
		defer os.RemoveAll(tmp)
	}

	differ := 0
	for _, adapter := range adapters {
		for _, modfile := range []string{"go.mod", "newest.mod"} {
			s, err := find(ctx, root, adapter, modfile)
			if err != nil {
				return err
			}
			if !pattern.MatchString(s.name()) {
				continue
			}
			n, err := s.compare(ctx, out, filepath.Join(tmp, s.name()))
			if err != nil {
				return fmt.Errorf("%s: %w", s.name(), err)
			}
			differ += n
		}
	}
	if differ > 0 {
		return fmt.Errorf("%d verdicts differ without a reason", differ)
	}
	return nil
}

// compare runs the suite bare and guarded in a copy of the SDK, and returns how many verdicts differ
// that may not.
func (s suite) compare(ctx context.Context, out io.Writer, dir string) (unexpected int, err error) {
	fmt.Fprintln(out, "==", s.name())
	if err := s.copyTo(ctx, dir); err != nil {
		return 0, err
	}
	bare, err := goTest(ctx, dir, false, "./...")
	if err != nil {
		return 0, err
	}
	guarded, err := goTest(ctx, dir, true, "./...")
	if err != nil {
		return 0, err
	}

	fmt.Fprintf(out, "   %d tests, of which %d pass without a guard\n", len(bare), bare.passed())
	for _, t := range bare.differing(guarded) {
		reason := exceptions[t.String()]
		if reason == "" {
			if reason, err = byChance(ctx, dir, t); err != nil {
				return 0, err
			}
		}
		if reason == "" {
			reason = "WITHOUT A REASON"
			unexpected++
		}
		fmt.Fprintf(out, "   %s: %q instead of %q: %s\n", t, guarded[t], bare[t], reason)
	}
	return unexpected, nil
}

// byChance runs a test three times more in each way, and returns a reason if its verdict doesn't depend
// on the guard. Suites as large as these have tests that a busy machine fails.
func byChance(ctx context.Context, dir string, t test) (reason string, err error) {
	pattern := "."
	if top, _, _ := strings.Cut(t.name, "/"); top != "" {
		pattern = "^" + top + "$"
	}
	seen := make(map[bool][]string)
	for range 3 {
		for _, guarded := range []bool{false, true} {
			v, err := goTest(ctx, dir, guarded, "-run", pattern, t.pkg)
			if err != nil {
				return "", err
			}
			seen[guarded] = append(seen[guarded], v[t])
		}
	}
	for _, verdict := range seen[true] {
		if slices.Contains(seen[false], verdict) {
			return fmt.Sprintf("by chance; then %q instead of %q", seen[true], seen[false]), nil
		}
	}
	return "", nil
}
