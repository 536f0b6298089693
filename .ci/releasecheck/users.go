package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/seed8d1e2389/resilience/ci/modules"
	"golang.org/x/mod/modfile"
)

// users runs programs that use a published module, each in a module of its own.
type users struct {
	dir string   // holds their modules
	env []string // of go commands
}

// newUsers returns users whose go commands find the modules below path in the proxy. They take
// other modules from the machine's cache or, if they aren't there, from its usual proxies. Their
// own cache is new, so it holds no earlier state of the release.
func newUsers(dir, proxy, path string) (*users, error) {
	out, err := exec.Command("go", "env", "-json").Output()
	if err != nil {
		return nil, err
	}
	var env map[string]string
	if err := json.Unmarshal(out, &env); err != nil {
		return nil, err
	}

	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		return nil, err
	}

	proxies := []string{fileURL(proxy), fileURL(filepath.Join(env["GOMODCACHE"], "cache", "download"))}
	for _, p := range strings.FieldsFunc(env["GOPROXY"], func(r rune) bool { return r == ',' || r == '|' }) {
		// The go command also asks for modules like …/adapters, which don't exist. A proxy
		// says so, but "direct" would look for a repository with git and fail.
		if p != "direct" {
			proxies = append(proxies, p)
		}
	}

	u := &users{dir: dir, env: append(os.Environ(),
		"GOPROXY="+strings.Join(proxies, ","),
		"GONOSUMDB="+strings.Trim(path+","+env["GONOSUMDB"], ","), // which can't know the release yet
		"GOMODCACHE="+filepath.Join(dir, "modcache"),
		"GOFLAGS=-modcacherw",
		"GOTMPDIR="+work,
		"GOWORK=off",
	)}

	// A maintainer's GOPRIVATE may keep these modules away from proxies. If go env -w has set
	// it, only GOENV=off hides it. That hides other variables too, which are set here.
	u.env = append(u.env, "GOENV=off", "GOPRIVATE=", "GONOPROXY=")
	for _, name := range []string{"GOCACHE", "GOSUMDB", "GOTOOLCHAIN"} {
		u.env = append(u.env, name+"="+env[name])
	}
	return u, nil
}

func fileURL(dir string) string {
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(dir)}).String()
}

// A row of the table says how a module's user fared.
type row struct {
	module, version string
	requires        []string // the direct requirements in the user's go.mod
	others          []string // further modules of interest that it has
	output          string   // of the user's program
	ok              bool
}

// program returns the file of the program that uses a module.
func program(root string, m modules.Module) string {
	return filepath.Join(root, ".ci/releasecheck/testdata", path.Base(m.Path), "main.go")
}

// try builds and runs a program that requires nothing but the module m.
func (u *users) try(ctx context.Context, m modules.Module, version, program string) (row, error) {
	r := row{module: m.Name(), version: version}
	source, err := os.ReadFile(program)
	if err != nil {
		return r, fmt.Errorf("each published module needs a program that uses it: %w", err)
	}

	dir := filepath.Join(u.dir, "user", path.Base(m.Path))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return r, err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), source, 0o644); err != nil {
		return r, err
	}

	for _, args := range [][]string{
		{"go", "mod", "init", "example.test/user"},
		{"go", "get", m.Path + "@" + version},
		{"go", "mod", "tidy"},
		{"go", "build", "-o", "program", "."},
	} {
		if _, err := u.run(ctx, dir, args...); err != nil {
			return r, err
		}
	}
	if err := u.versions(ctx, dir, &r); err != nil {
		return r, err
	}

	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r.output, err = u.run(ctx, dir, "./program")
	r.output = strings.TrimSpace(r.output)
	r.ok = err == nil
	return r, err
}

// run runs a command and returns its standard output.
func (u *users) run(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = u.env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr

	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(args, " "), err, &stdout, &stderr)
	}
	return stdout.String(), nil
}

// ofInterest lists the modules that users of ours are likely to require themselves.
var ofInterest = []string{
	"github.com/stretchr/testify",
	"github.com/modelcontextprotocol/go-sdk",
	"github.com/mark3labs/mcp-go",
	"go.opentelemetry.io/otel",
	"google.golang.org/grpc",
	"github.com/redis/go-redis/v9",
	"google.golang.org/protobuf",
}

// versions fills in the requirements of the user in dir, and further modules that it has.
func (u *users) versions(ctx context.Context, dir string, r *row) error {
	data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	file, err := modfile.Parse("go.mod", data, nil)
	if err != nil {
		return err
	}

	for _, req := range file.Require {
		if !req.Indirect {
			r.requires = append(r.requires, req.Mod.Path+" "+req.Mod.Version)
		}
	}

	all, err := u.run(ctx, dir, "go", "list", "-m", "all")
	if err != nil {
		return err
	}
	for line := range strings.Lines(all) {
		line = strings.TrimSpace(line)
		modulePath, _, _ := strings.Cut(line, " ")
		if slices.Contains(ofInterest, modulePath) && !slices.Contains(r.requires, line) {
			r.others = append(r.others, line)
		}
	}
	return nil
}

// printTable prints the rows. What doesn't fit into the last column of a row follows below it.
func printTable(out io.Writer, rows []row) {
	fmt.Fprintln(out)
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "module\tversion\tresult\tits user's go.mod requires directly")

	for _, r := range rows {
		result := "FAIL"
		if r.ok {
			result = "ok"
		}

		cells := slices.Clone(r.requires)
		if len(r.others) > 0 {
			cells = append(cells, "(and has "+strings.Join(r.others, ", ")+")")
		}
		if r.output != "" {
			cells = append(cells, "prints: "+r.output)
		}
		if len(cells) == 0 {
			cells = []string{""}
		}

		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", r.module, r.version, result, cells[0])
		for _, cell := range cells[1:] {
			fmt.Fprintf(table, "\t\t\t%s\n", cell)
		}
	}
	_ = table.Flush()
}
