package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// bareEnv is set in the environment of the tests that run without a guard.
const bareEnv = "RESILIENCE_BARE"

const library = "github.com/seed8d1e2389/resilience"

// An adapter says how to put a guard into every server of its SDK.
type adapter struct {
	dir     string // in the repository
	sdk     string // the module path
	file    string // of the constructor of servers, in the SDK
	before  string // text in the file before which the hook is called
	hook    string // its declaration
	call    string // its call
	install string // the body of the function that sets it, in a test of package X_test
	imports []string
}

var adapters = []adapter{
	{
		dir:    "adapters/gosdk",
		sdk:    "github.com/modelcontextprotocol/go-sdk",
		file:   "mcp/server.go",
		before: "\treturn s\n}\n\n// AddPrompt adds a [Prompt]",
		hook:   "\n// NewServerHook is called with each new server.\nvar NewServerHook func(*Server)\n",
		call:   "\tif NewServerHook != nil {\n\t\tNewServerHook(s)\n\t}\n",
		install: "\tmcp.NewServerHook = func(s *mcp.Server) {\n" +
			"\t\tgosdk.Protect(s, resilience.Must(resilience.New(resilience.Config{})))\n\t}\n",
		imports: []string{library, library + "/adapters/gosdk", "github.com/modelcontextprotocol/go-sdk/mcp"},
	},
	{
		dir:    "adapters/mcpgo",
		sdk:    "github.com/mark3labs/mcp-go",
		file:   "server/server.go",
		before: "\treturn s\n}\n\n// GenerateInProcessSessionID generates",
		hook:   "\n// NewServerHook is called with each new server.\nvar NewServerHook func(*MCPServer)\n",
		call:   "\tif NewServerHook != nil {\n\t\tNewServerHook(s)\n\t}\n",
		install: "\tserver.NewServerHook = func(s *server.MCPServer) {\n" +
			"\t\tg := resilience.Must(resilience.New(resilience.Config{}))\n" +
			"\t\tserver.WithToolHandlerMiddleware(mcpgo.Middleware(g))(s)\n\t}\n",
		imports: []string{library, library + "/adapters/mcpgo", "github.com/mark3labs/mcp-go/server"},
	},
}

// A suite is one version of an SDK.
type suite struct {
	adapter
	root    string // of this repository
	modfile string // of the adapter, which requires the version
	version string
	source  string // in the module cache
}

func (s suite) name() string { return path.Base(s.sdk) + "@" + s.version }

// find returns the suite of the version that a go.mod of the adapter requires.
func find(ctx context.Context, root string, a adapter, modfile string) (suite, error) {
	dir := filepath.Join(root, a.dir)
	if _, err := output(ctx, dir, "go", "mod", "download", "-modfile="+modfile, a.sdk); err != nil {
		return suite{}, err
	}
	out, err := output(ctx, dir, "go", "list", "-m", "-json", "-modfile="+modfile, a.sdk)
	if err != nil {
		return suite{}, err
	}

	var module struct{ Version, Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return suite{}, err
	}
	return suite{adapter: a, root: root, modfile: modfile, version: module.Version, source: module.Dir}, nil
}

// copyTo copies the SDK to dir, with the hook in it and a test in each tested package that sets it.
func (s suite) copyTo(ctx context.Context, dir string) error {
	if err := copyFiles(dir, os.DirFS(s.source)); err != nil {
		return err
	}
	if err := s.patch(filepath.Join(dir, filepath.FromSlash(s.file))); err != nil {
		return err
	}

	for _, args := range [][]string{
		{"mod", "edit", "-replace", library + "=" + s.root,
			"-replace", library + "/" + s.dir + "=" + filepath.Join(s.root, filepath.FromSlash(s.dir)),
			"-require", library + "@v0.1.0", "-require", library + "/" + s.dir + "@v0.1.0"},
		{"mod", "tidy", "-e"},
	} {
		if args[1] == "tidy" {
			if err := s.addTests(ctx, dir); err != nil {
				return err
			}
		}
		if _, err := output(ctx, dir, "go", args...); err != nil {
			return err
		}
	}
	return nil
}

// patch makes the constructor of servers call the hook.
func (s suite) patch(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if n := bytes.Count(text, []byte(s.before)); n != 1 {
		return fmt.Errorf("%s has %d places for the hook instead of one", s.file, n)
	}

	text = bytes.Replace(text, []byte(s.before), []byte(s.call+s.before), 1)
	return os.WriteFile(file, append(text, s.hook...), 0o644)
}

// addTests adds a file to each package that has tests. The package is the external one, which may
// import what imports the package itself.
func (s suite) addTests(ctx context.Context, dir string) error {
	const tested = `{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}} {{.Name}}{{end}}`
	out, err := output(ctx, dir, "go", "list", "-e", "-f", tested, "./...")
	if err != nil {
		return err
	}

	for line := range strings.Lines(string(out)) {
		pkgDir, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		name = strings.TrimSuffix(name, "_test")
		var file strings.Builder
		fmt.Fprintf(&file, "package %s_test\n\nimport (\n\t\"os\"\n", name)
		for _, i := range s.imports {
			fmt.Fprintf(&file, "\t%q\n", i)
		}
		fmt.Fprintf(&file, ")\n\nfunc init() {\n\tif os.Getenv(%q) != \"\" {\n\t\treturn\n\t}\n", bareEnv)
		file.WriteString(s.install + "}\n")

		target := filepath.Join(pkgDir, "guard_everything_test.go")
		if err := os.WriteFile(target, []byte(file.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// copyFiles is os.CopyFS for files that are only to be read, as those of the module cache.
func copyFiles(dir string, source fs.FS) error {
	return fs.WalkDir(source, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(dir, filepath.FromSlash(name))
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		data, err := fs.ReadFile(source, name)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o644)
	})
}

// output runs a command in dir and returns what it prints. Its error has what it says.
func output(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, exit.Stderr)
	}
	return out, err
}
