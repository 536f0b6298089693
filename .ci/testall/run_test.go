package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newRunner returns a runner for a new module of these files, and the output of the runner. If
// there is no go.mod among them, it adds one.
func newRunner(t *testing.T, files map[string]string) (*runner, *bytes.Buffer) {
	root := t.TempDir()
	if files["go.mod"] == "" {
		goMod := "module example.test/m\n\ngo 1.25.0\n"
		require.NoError(t, os.WriteFile(filepath.Join(root, "go.mod"), []byte(goMod), 0o644))
	}
	for name, text := range files {
		file := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	var out bytes.Buffer
	return &runner{root: root, out: &out}, &out
}

func TestPassingModuleIsOkAndItsSkipsAreListed(t *testing.T) {
	r, out := newRunner(t, map[string]string{"a_test.go": `package m
import "testing"
func TestOK(t *testing.T) { t.Log("nothing to see") }
func TestSkipped(t *testing.T) { t.Skip("no chromium in PATH") }
`})
	res := r.run(t.Context(), target{name: "m", dir: "."})
	assert.Equal(t, ok, res.verdict)
	assert.Empty(t, res.failures)
	assert.Equal(t, []skip{{"TestSkipped", "no chromium in PATH"}}, res.skips)
	assert.Equal(t, "== m\n", out.String())
}

// Each of these packages fails in a different way, and none keeps the others from running.
func TestFailingModuleListsWhatFailed(t *testing.T) {
	r, out := newRunner(t, map[string]string{
		"fails/a_test.go": `package fails
import "testing"
func TestA(t *testing.T) {
	t.Run("good", func(t *testing.T) { t.Log("quiet") })
	t.Run("bad", func(t *testing.T) { t.Log("before"); t.Error("wrong answer") })
}
`,
		"compiles/a_test.go": `package compiles
import "testing"
func TestA(t *testing.T) { undefined() }
`,
		"vets/a_test.go": `package vets
import ("fmt"; "testing")
func TestA(t *testing.T) { fmt.Printf("%d", "x") }
`,
		"imports/a_test.go": `package imports
import _ "example.test/none"
`,
		"panics/a_test.go": `package panics
import "testing"
func TestFine(t *testing.T) {}
func TestPanics(t *testing.T) { t.Run("sub", func(*testing.T) { panic("ouch") }) }
func TestNeverStarted(t *testing.T) { t.Parallel() }
`,
		"goroutine/a_test.go": `package goroutine
import "testing"
func TestWaits(t *testing.T) { t.Parallel() }
func TestBefore(t *testing.T) { t.Fail() }
func TestOther(*testing.T) { go func() { panic("elsewhere") }(); select {} }
`,
		"exits/a_test.go": `package exits
import ("fmt"; "os"; "testing")
func TestMain(m *testing.M) { m.Run(); fmt.Println("not yet"); os.Exit(3) }
func TestFine(*testing.T) {}
`,
		"races/a_test.go": `package races
import "testing"
func TestRace(*testing.T) { n, c := 0, make(chan int); go func() { n++; close(c) }(); n++; <-c }
`,
	})
	res := r.run(t.Context(), target{name: "m", dir: "."})
	assert.Equal(t, fail, res.verdict)
	assert.ElementsMatch(t, []string{
		"example.test/m/fails.TestA/bad",
		"example.test/m/compiles (doesn't build)",
		"example.test/m/vets (doesn't build)",
		"example.test/m/imports (doesn't build)",
		"example.test/m/panics.TestPanics/sub",
		"example.test/m/goroutine.TestBefore",
		"example.test/m/goroutine.TestOther (didn't finish)",
		"example.test/m/exits (failed outside of its tests)",
		"example.test/m/races.TestRace",
	}, res.failures)
	for _, text := range []string{"before", "wrong answer", "undefined: undefined", "wrong type string",
		"no required module", "panic: ouch", "panic: elsewhere", "not yet", "WARNING: DATA RACE"} {
		assert.Contains(t, out.String(), text)
	}
	assert.NotContains(t, out.String(), "quiet")
	assert.NotContains(t, out.String(), "TestFine")
}

func TestModuleThatTimesOutListsTheTestThatHung(t *testing.T) {
	r, out := newRunner(t, map[string]string{"a_test.go": `package m
import "testing"
func TestFine(t *testing.T) { t.Log("quiet") }
func TestHangs(t *testing.T) { t.Run("sub", func(*testing.T) { select {} }) }
`})
	res := r.run(t.Context(), target{name: "m", dir: ".", args: []string{"-timeout=1s"}})
	assert.Equal(t, fail, res.verdict)
	assert.Equal(t, []string{"example.test/m.TestHangs/sub (didn't finish)"}, res.failures)
	assert.Contains(t, out.String(), "test timed out after 1s")
	assert.NotContains(t, out.String(), "quiet")
}

// If go test can't start, it prints no events.
func TestBrokenModuleFailsWithTheErrorOfGoTest(t *testing.T) {
	r, out := newRunner(t, map[string]string{
		"go.mod": "module example.test/m\n\nrequire nonsense\n",
		"a.go":   "package m\n",
	})
	res := r.run(t.Context(), target{name: "m", dir: "."})
	assert.Equal(t, fail, res.verdict)
	assert.Equal(t, []string{"m (go test: exit status 1)"}, res.failures)
	assert.Contains(t, out.String(), "errors parsing go.mod")
}

func TestArgumentsSelectNewestMod(t *testing.T) {
	r, _ := newRunner(t, map[string]string{
		"newest.mod": "module example.test/m\n\nrequire nonsense\n",
		"a_test.go": `package m
import "testing"
func TestOK(t *testing.T) {}
`})
	plain := target{name: "m", dir: "."}
	newest := target{name: "m", dir: ".", args: []string{"-modfile=newest.mod"}}
	assert.Equal(t, ok, r.run(t.Context(), plain).verdict)
	assert.Equal(t, fail, r.run(t.Context(), newest).verdict)
}
