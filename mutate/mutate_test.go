package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	testModule = "module example.com/p\n\ngo 1.25.0\n"

	testSource = `package p

var words = []string{"a", "b"}

const limit = 3

func over(n int) bool { return n > limit }

func known(word string) (found bool) {
	for _, w := range words {
		if w == word {
			found = true
		}
	}
	return found
}
`
	// It doesn't notice the boundary of the limit, nor that b is missing.
	testTests = `package p

import "testing"

func TestOver(t *testing.T) {
	if over(1) || !over(9) {
		t.Error("over")
	}
}

func TestKnown(t *testing.T) {
	if !known("a") || known("c") {
		t.Error("known")
	}
}

func TestFails(t *testing.T) { t.Error("without a mutant, too") }
`
)

func newPackage(t *testing.T) *pkg {
	t.Helper()
	return newPackageOf(t, testSource)
}

func newPackageOf(t *testing.T, source string) *pkg {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": testModule, "p.go": source, "p_test.go": testTests} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	p, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWhatNoTestNoticesSurvives(t *testing.T) {
	p := newPackage(t)
	texts, mutants, err := instrument(p, find(p))
	if err != nil {
		t.Fatal(err)
	}
	s, err := build(p, texts, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s.workers = 2
	failing, err := s.measure(len(mutants) + 1 + len(functions(p)))
	if err != nil || len(failing) != 1 || failing[0] != "TestFails" {
		t.Fatalf("failing: %q, %v", failing, err)
	}

	r := report{target: target{name: "p", bar: 97}, all: len(mutants)}
	reasons := equivalents{"const limit: 3 -> 2": "r", `var words: "a" -> (removed)`: "wrong", "gone: x -> y": "r"}
	if err := reasons.mark(mutants); err == nil || !strings.Contains(err.Error(), "gone: x -> y") {
		t.Errorf("an equivalent that doesn't exist: %v", err)
	}
	r.run(s, mutants, true)
	var survivors []string
	for _, m := range r.survivors {
		survivors = append(survivors, m.String())
	}
	const want = `p.go:3: var words: "b" -> (removed)
p.go:5: const limit: 3 -> 4
p.go:7: over: n > limit -> n >= limit`
	if got := strings.Join(survivors, "\n"); got != want {
		t.Errorf("survivors:\n%s\nwant:\n%s", got, want)
	}
	if len(r.refuted) != 1 || r.refuted[0].old != `"a"` {
		t.Errorf("refuted: %v", r.refuted)
	}
	if r.verdict() == nil {
		t.Error("the bar isn't reached")
	}
}

func TestSampleDependsOnTheSeedAlone(t *testing.T) {
	p := newPackage(t)
	_, mutants, err := instrument(p, find(p))
	if err != nil {
		t.Fatal(err)
	}
	keys := func(seed uint64) (all string) {
		sampled, err := target{percent: 50}.sample(mutants, options{seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range sampled {
			all += m.key() + "\n"
		}
		return all
	}
	first, again, other := keys(1), keys(1), keys(2)
	if first != again || first == other {
		t.Error("the sample isn't that of the seed")
	}
	for _, wrong := range []string{"0", "101", "some"} {
		if _, err := (target{}).sample(mutants, options{sample: wrong}); err == nil {
			t.Errorf("-sample %s is accepted", wrong)
		}
	}
}

func TestEquivalentsNeedAReason(t *testing.T) {
	for text, wrong := range map[string]string{
		"f: a -> b\n\tr\n":                         "there is no package",
		"[root]\nf: a -> b\n":                      "has no reason",
		"[root]\n\tr\n":                            "there is no mutant",
		"[root]\nf: a -> b\nf: a -> b\n\tr\n":      "listed twice",
		"# c\n[root]\nf: a -> b\ng: a -> b\n\tr\n": "",
	} {
		name := filepath.Join(t.TempDir(), "e.txt")
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		all, err := readEquivalents(name)
		if wrong == "" {
			if err != nil || all["root"]["f: a -> b"] != "r" || all["root"]["g: a -> b"] != "r" {
				t.Errorf("%v, %v", all, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What is returned is the zero value anyway, if the variable has no other.
func TestZeroValuesAreNotReplacedByZero(t *testing.T) {
	for body, want := range map[string]int{
		`var v T; return v, errors.New("e")`:                            0,
		`var v T; if fail { return v, errors.New("e") }; return v, nil`: 0,
		`var v T; f := func() (T, error) { return v, nil }; return f()`: 0,
		`var v T; v = given; return v, nil`:                             1,
		`var v T; p := &v; *p = given; return v, nil`:                   1,
		`var v T; func() { v = given }(); return v, nil`:                1,
		`var v T; v.n = 1; return v, nil`:                               1,
		`var v T; v.set(); return v, nil`:                               1,
		`var v T; for _, v = range []T{given} { _ = 0 }; return v, nil`: 1,
		`var v = given; return v, nil`:                                  1,
		`v := given; return v, nil`:                                     1,
		`var v T; if fail { v := given; return v, nil }; return v, nil`: 1,
		`return v, nil`: 1,
	} {
		p := newPackageOf(t, `package p

import "errors"

type T struct{ n int }

func (t *T) set() { t.n = 1 }

var v, given T
var _ = errors.New

func get(fail bool) (T, error) { `+body+` }
`)
		_, mutants, err := instrument(p, find(p))
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, m := range mutants {
			if m.change() == "get: return v -> return zero" {
				found++
			}
		}
		if found != want {
			t.Errorf("%s: %d mutants", body, found)
		}
	}
}
