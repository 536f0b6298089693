// Lockorder runs the tests of the published modules with mutexes that notice when two of them are locked in one order
// here and in the other there, which is a deadlock that waits for its moment. The race detector doesn't notice that.
//
//	go run -C .ci ./lockorder [-run regexp]
//
// The mutexes of these modules and of gobreaker, which calls back with its own held, are replaced by those of
// github.com/sasha-s/go-deadlock, by an overlay: nothing is written outside of a temporary folder. It takes about
// three minutes.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/seed8d1e2389/resilience/ci/modules"
)

const (
	detector = "github.com/sasha-s/go-deadlock"
	version  = "v0.3.9"
	breaker  = "github.com/sony/gobreaker/v2"

	// found is how the detector begins what it has found.
	found = "POTENTIAL DEADLOCK"

	// skipped are tests of how much memory is used, of which these mutexes need more.
	skipped = "^(TestCallMakesFewAllocations|TestMemoryIsBounded)$"
)

// setUp is added to each package. The detector would take what waits for long for a deadlock, too.
const setUp = `package %s

import deadlock "` + detector + `"

func init() {
	deadlock.Opts.DeadlockTimeout = 0
	deadlock.Opts.OnPotentialDeadlock = func() {}
}
`

func main() {
	only := flag.String("run", ".", "the modules to test, such as adapters/redis")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "lockorder:", err)
		os.Exit(1)
	}
}

// run tests the modules, and returns an error if there are wrong orders, or if a test fails.
func run(ctx context.Context, out io.Writer, only string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	root, err := modules.Root()
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "lockorder-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)

	o := overlay{tmp: tmp, replace: make(map[string]string)}
	dirs, err := filepath.Glob(filepath.Join(root, "adapters", "*", "go.mod"))
	if err != nil {
		return err
	}
	dirs = append([]string{filepath.Join(root, "go.mod")}, dirs...)
	for i := range dirs {
		dirs[i] = filepath.Dir(dirs[i])
		if err := o.addPackage(dirs[i]); err != nil {
			return err
		}
	}
	if err := o.copyBreaker(ctx, root); err != nil {
		return err
	}

	wrong := false
	for _, dir := range dirs {
		name, err := filepath.Rel(root, dir)
		if err != nil {
			return err
		}
		if !pattern.MatchString(name) {
			continue
		}
		fmt.Fprintln(out, "==", name)
		text, err := o.test(ctx, dir)
		if err != nil || strings.Contains(text, found) {
			fmt.Fprintln(out, text)
			wrong = true
		}
	}
	if wrong {
		return fmt.Errorf("locks are taken in different orders, or tests fail")
	}
	return nil
}

// An overlay is what takes the place of files.
type overlay struct {
	tmp     string
	replace map[string]string // by paths
}

// add lets a text take the place of a file, which need not exist.
func (o *overlay) add(path, text string) error {
	to := filepath.Join(o.tmp, fmt.Sprint(len(o.replace), ".go"))
	o.replace[path] = to
	return os.WriteFile(to, []byte(text), 0o600)
}

// addPackage adds the files of a package without its tests.
func (o *overlay) addPackage(dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}

	name := ""
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name = packageClause.FindStringSubmatch(string(text))[1]
		if instrumented := instrument(string(text)); instrumented != string(text) {
			if err := o.add(path, instrumented); err != nil {
				return err
			}
		}
	}
	return o.add(filepath.Join(dir, "zz_lockorder_test.go"), fmt.Sprintf(setUp, name))
}

var (
	packageClause = regexp.MustCompile(`(?m)^package (\w+)$`)
	mutex         = regexp.MustCompile(`\bsync\.((?:RW)?Mutex)\b`)
	use           = regexp.MustCompile(`\bsync\.[A-Z]`)
)

// instrument returns the text of a file with other mutexes.
func instrument(text string) string {
	if !mutex.MatchString(text) {
		return text
	}
	text = mutex.ReplaceAllString(text, "deadlock.$1")
	text = packageClause.ReplaceAllString(text, "package $1\n\nimport deadlock \""+detector+"\"")
	if !use.MatchString(text) {
		text = strings.Replace(text, "\t\"sync\"\n", "", 1)
	}
	return text
}

// copyBreaker copies gobreaker with other mutexes, as an overlay can't replace what the module cache holds.
func (o *overlay) copyBreaker(ctx context.Context, root string) error {
	from, err := command(ctx, root, "go", "list", "-m", "-f", "{{.Dir}}", breaker)
	if err != nil {
		return err
	}
	from = strings.TrimSpace(from)

	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}

		to := filepath.Join(o.tmp, "gobreaker", name)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		if strings.HasSuffix(name, ".go") {
			text = []byte(instrument(string(text)))
		}
		return os.WriteFile(to, text, 0o600)
	})
}

// test tests a module, and returns what that has printed.
func (o *overlay) test(ctx context.Context, dir string) (string, error) {
	replace, err := json.Marshal(map[string]any{"Replace": o.replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(o.tmp, "overlay.json")
	if err := os.WriteFile(file, replace, 0o600); err != nil {
		return "", err
	}

	modfile := filepath.Join(o.tmp, "module.mod")
	for name, to := range map[string]string{"go.mod": modfile, "go.sum": filepath.Join(o.tmp, "module.sum")} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			return "", err
		}
	}

	text, err := command(ctx, dir, "go", "mod", "edit", "-require", detector+"@"+version,
		"-replace", breaker+"="+filepath.Join(o.tmp, "gobreaker"), modfile)
	if err != nil {
		return text, err
	}
	return command(ctx, dir, "go", "test", "-count=1", "-short", "-modfile", modfile, "-mod=mod", "-overlay", file,
		"-skip", skipped, ".")
}

func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}
