package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience/ci/modules"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTableListsResultsFailuresAndSkips(t *testing.T) {
	var out bytes.Buffer
	printTable(&out, []result{
		{name: "lib", verdict: ok, duration: 12340 * time.Millisecond, skips: []skip{{"TestA", "no Redis"}}},
		{name: "adapters/x", verdict: fail, duration: time.Second, failures: []string{"lib/adapters/x.TestB/sub"},
			skips: []skip{{"TestC", "no Redis"}, {"TestD", "-short"}, {"TestA", "no Redis"}}},
		{name: "clients", verdict: skipped, skips: []skip{{"clients", "there is no npm"}}},
	})
	assert.Equal(t, `
module       result    seconds
lib          ok           12.3
adapters/x   FAIL          1.0
clients      skipped       0.0
FAIL: lib/adapters/x.TestB/sub
skipped: TestA, TestC: no Redis
skipped: TestD: -short
skipped: clients: there is no npm
`, out.String())
}

func TestReasonIsWhatTheTestLoggedLast(t *testing.T) {
	assert.Equal(t, "two lines", reason([]string{
		"    a_test.go:4: something else\n",
		"    a_test.go:5: two\n",
		"        lines\n",
		"    --- SKIP: TestA/sub (0.00s)\n",
	}))
	assert.Equal(t, "without a reason", reason([]string{"--- SKIP: TestA (0.00s)\n"}))
}

func TestStateNamesWhatIsRunning(t *testing.T) {
	r := newRecorder(io.Discard)
	for _, step := range []struct{ line, state string }{
		{`{"Action":"build-output","ImportPath":"example.test/m","Output":"# example.test/m\n"}`, "compiling"},
		{`{"Action":"start","Package":"example.test/m"}`, "running example.test/m"},
		{`{"Action":"run","Package":"example.test/m","Test":"TestA"}`, "running example.test/m.TestA"},
		{`{"Action":"run","Package":"example.test/m","Test":"TestA/sub"}`, "running example.test/m.TestA/sub"},
		{`{"Action":"pass","Package":"example.test/m","Test":"TestA/sub"}`, "running example.test/m.TestA"},
		{`{"Action":"pass","Package":"example.test/m","Test":"TestA"}`, "running example.test/m"},
		{`{"Action":"pass","Package":"example.test/m"}`, "compiling"},
	} {
		r.line(step.line)
		assert.Equal(t, step.state, r.state(), step.line)
	}
}

// newTargets returns the targets of a library with an adapter, which has a newest.mod, and with
// clients.
func newTargets(t *testing.T) []target {
	root := t.TempDir()
	for _, name := range []string{"adapters/x/newest.mod", "clients/package.json"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), nil, 0o644))
	}

	return allTargets(root, []modules.Module{
		{Dir: ".", Path: "example.test/lib"},
		{Dir: "adapters/x", Path: "example.test/lib/adapters/x"},
	})
}

func TestTargetsIncludeNewestModAndClients(t *testing.T) {
	targets := newTargets(t)
	assert.Equal(t, "lib, adapters/x, adapters/x (newest.mod), clients", targetNames(targets))
	assert.Equal(t, []string{"-modfile=newest.mod"}, targets[2].args)
}

func TestChooseFindsTargetsByName(t *testing.T) {
	targets := newTargets(t)
	for names, want := range map[string]string{
		"":                        "lib, adapters/x, adapters/x (newest.mod), clients",
		".":                       "lib",
		"lib, clients/":           "lib, clients",
		"adapters/x":              "adapters/x, adapters/x (newest.mod)",
		"adapters/x (newest.mod)": "adapters/x (newest.mod)",
	} {
		chosen, err := choose(targets, names)
		require.NoError(t, err)
		assert.Equal(t, want, targetNames(chosen), names)
	}

	_, err := choose(targets, "adapters/y")
	assert.ErrorContains(t, err, `no module "adapters/y"; there are lib, adapters/x,`)
}

func TestNotesAreAboutModulesThatExist(t *testing.T) {
	root, err := modules.Root()
	require.NoError(t, err)
	list, err := modules.List(root)
	require.NoError(t, err)
	for dir := range notes {
		assert.Contains(t, targetNames(allTargets(root, list)), dir)
	}
}
