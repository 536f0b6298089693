package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const library = "github.com/seed8d1e2389/resilience"

// An sdk is an MCP SDK and the way to put a guard into each of its servers.
type sdk struct {
	path    string // of its module
	adapter string // the directory of the adapter for it
	server  string // the package of its servers, relative to the module
	typ     string // the type of its servers
	before  string // the end of the constructor of servers, with what follows in server.go
	install string // Go code that puts the guard g into the server s, in a test outside of the package
}

var sdks = []sdk{
	{
		path:    "github.com/modelcontextprotocol/go-sdk",
		adapter: "adapters/gosdk",
		server:  "mcp",
		typ:     "Server",
		before:  "\treturn s\n}\n\n// AddPrompt adds a [Prompt]",
		install: "gosdk.Protect(s, g)",
	},
	{
		path:    "github.com/mark3labs/mcp-go",
		adapter: "adapters/mcpgo",
		server:  "server",
		typ:     "MCPServer",
		before:  "\treturn s\n}\n\n// GenerateInProcessSessionID generates",
		install: "server.WithToolHandlerMiddleware(mcpgo.Middleware(g))(s)",
	},
}

// exceptions are the tests whose verdict may differ, with the reason. The docs of the adapters name these differences
// under "What a client receives".
var exceptions = map[test]string{
	{mcpgo, "TestMCPServer_MiddlewarePanicRecovery/tool_handler_panic_with_recovery_middleware"}: noPanic,
	{mcpgo, "TestMCPServer_WithRecover"}:                                noPanic,
	{mcpgo, "TestSSEServer_DeliversResponseDespiteFullQueue/panic"}:     noPanic,
	{mcpgo, "TestSSEServer_MessageHandlerPanicRecovery"}:                noPanic,
	{mcpgo, "TestStdioServer_SynchronousToolCallPanicRecovery"}:         noPanic,
	{mcpgo, "TestStdioServer_ToolCallWorkerPanicRecovery"}:              noPanic,
	{mcpgo, "TestCallToolNilResultIsAnError"}:                           noResult,
	{mcpgo, "TestCallToolNilResultOnBridgedRetryIsAnError"}:             noResult,
	{mcpgo, "TestTaskNilResultFailsTheTask/regular_tool_run_as_a_task"}: noResult,
}

const (
	mcpgo = "github.com/mark3labs/mcp-go/server"

	noPanic  = "it compares what the SDK makes of a panic, which the guard has recovered already"
	noResult = "it compares what the SDK makes of a handler that returns neither a result nor an error"
)

// find returns the version of the SDK that the adapter requires, and its directory in the module cache.
func (s sdk) find(ctx context.Context, root, modfile string) (version, dir string, err error) {
	adapter := filepath.Join(root, s.adapter)
	if _, err := output(ctx, adapter, "go", "mod", "download", "-modfile="+modfile, s.path); err != nil {
		return "", "", err
	}
	out, err := output(ctx, adapter, "go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", "-modfile="+modfile, s.path)
	version, dir, _ = strings.Cut(strings.TrimSpace(out), " ")
	return version, dir, err
}

// copyTo copies the SDK to dir. The copy has a hook in the constructor of its servers and, in each tested package, a
// test file that sets the hook.
func (s sdk) copyTo(ctx context.Context, dir, root, source string) error {
	adapter := library + "/" + s.adapter
	for _, args := range [][]string{
		{"cp", "-r", source + "/.", "."},
		{"chmod", "-R", "u+w", "."}, // the module cache is only to be read
		{"go", "mod", "edit", "-require", library + "@v0.1.0", "-require", adapter + "@v0.1.0",
			"-replace", library + "=" + root, "-replace", adapter + "=" + filepath.Join(root, s.adapter)},
	} {
		if _, err := output(ctx, dir, args[0], args[1:]...); err != nil {
			return err
		}
	}

	if err := s.addHook(filepath.Join(dir, s.server, "server.go")); err != nil {
		return err
	}
	if err := s.addTests(ctx, dir); err != nil {
		return err
	}
	_, err := output(ctx, dir, "go", "mod", "tidy", "-e")
	return err
}

// addHook makes the constructor of servers call a hook.
func (s sdk) addHook(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if n := bytes.Count(text, []byte(s.before)); n != 1 {
		return fmt.Errorf("server.go has %d places for the hook instead of one", n)
	}

	call := "\tif NewServerHook != nil {\n\t\tNewServerHook(s)\n\t}\n"
	text = bytes.Replace(text, []byte(s.before), []byte(call+s.before), 1)
	text = fmt.Appendf(text, "\n// NewServerHook is called with each new server.\nvar NewServerHook func(*%s)\n", s.typ)
	return os.WriteFile(file, text, 0o644)
}

// testFile is added to each tested package. It belongs to the external test package, because that may import the
// adapter, which imports the SDK.
const testFile = `package %[1]s_test

import (
	"os"

	"` + library + `"
	"` + library + `/%[2]s"
	"%[3]s/%[4]s"
)

func init() {
	if os.Getenv("` + withGuard + `") == "" {
		return
	}
	%[4]s.NewServerHook = func(s *%[4]s.%[5]s) {
		g := resilience.Must(resilience.New(resilience.Config{}))
		%[6]s
	}
}
`

func (s sdk) addTests(ctx context.Context, dir string) error {
	out, err := output(ctx, dir, "go", "list", "-e", "-f",
		"{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}} {{.Name}}{{end}}", "./...")
	if err != nil {
		return err
	}

	for line := range strings.Lines(out) {
		pkgDir, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		text := fmt.Sprintf(testFile, strings.TrimSuffix(name, "_test"), s.adapter, s.path, s.server, s.typ, s.install)
		if err := os.WriteFile(filepath.Join(pkgDir, "guard_everything_test.go"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// output runs a command in dir and returns its standard output. The error contains the standard error.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, exit.Stderr)
	}
	return string(out), err
}
