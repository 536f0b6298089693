// Transparent runs the test suites of the MCP SDKs twice: as they are, and with a guard in every server that a test
// makes. A guard with defaults must change no verdict.
//
//	go run -C .ci ./transparent [-run regexp]
//
// It tests each SDK at the lowest version that an adapter requires and at the newest one. The verdicts that may differ
// are in sdks.go, with their reasons. It takes about half an hour.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path"
	"regexp"
	"slices"
	"strings"
)

func main() {
	only := flag.String("run", ".", "test only the SDKs that match this `regexp`, such as mcp-go@v1")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "transparent:", err)
		os.Exit(1)
	}
}

// run compares the verdicts of each suite. It returns an error if some differ without a reason.
func run(ctx context.Context, only string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	root, err := output(ctx, ".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	root = strings.TrimSpace(root)

	differ := 0
	done := make(map[string]bool)
	for _, s := range sdks {
		for _, modfile := range []string{"go.mod", "newest.mod"} {
			version, source, err := s.find(ctx, root, modfile)
			if err != nil {
				return err
			}
			name := path.Base(s.path) + "@" + version
			if done[name] || !pattern.MatchString(name) {
				continue
			}
			done[name] = true

			fmt.Println("==", name)
			n, err := s.compare(ctx, root, source)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			differ += n
		}
	}
	if differ > 0 {
		return fmt.Errorf("%d verdicts differ without a reason", differ)
	}
	return nil
}

// compare runs the suite of an SDK without and with the guard, and returns how many verdicts differ without a reason.
func (s sdk) compare(ctx context.Context, root, source string) (unexplained int, err error) {
	dir, err := os.MkdirTemp("", "transparent-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := s.copyTo(ctx, dir, root, source); err != nil {
		return 0, err
	}

	bare, err := goTest(ctx, dir, false, "./...")
	if err != nil {
		return 0, err
	}
	fmt.Printf("   %d tests without a guard, of which %d pass\n", len(bare), bare.passed())
	guarded, err := goTest(ctx, dir, true, "./...")
	if err != nil {
		return 0, err
	}
	fmt.Printf("   %d tests with a guard, of which %d pass\n", len(guarded), guarded.passed())

	for _, t := range bare.differing(guarded) {
		reason := exceptions[t]
		if reason == "" {
			if reason, err = byChance(ctx, dir, t); err != nil {
				return 0, err
			}
		}
		if reason == "" {
			reason = "WITHOUT A REASON"
			unexplained++
		}
		fmt.Printf("   %s %s: %q instead of %q: %s\n", t.pkg, t.name, guarded[t], bare[t], reason)
	}
	return unexplained, nil
}

// byChance runs a test three times more in each way. It returns a reason if the verdict doesn't depend on the guard.
// Suites as large as these have tests that fail on a busy machine.
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
