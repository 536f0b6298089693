package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A mutant is one small change of a package. It is compiled into the test binary with all others, and
// runs only in a process whose environment names its id.
type mutant struct {
	id       int
	file     string
	line     int
	function string // the method or function, or the variable, that it changes
	old, new string
	nth      int // of the same changes in the same function; 1 for the first
	sites    []site
	reason   string // why it is equivalent; "" if that isn't known

	uses []int // ids of the functions that use what it changes, if that is no function's body
}

// A site is where the instrumented source differs: before and after what is between two offsets.
// "%d" in before is the mutant's id.
type site struct {
	file          *source
	start, end    int
	before, after string
}

// key names a mutant in the list of equivalents, whatever the number of its line.
func (m *mutant) key() string {
	if m.nth > 1 {
		return fmt.Sprintf("%s #%d", m.change(), m.nth)
	}
	return m.change()
}

// keyOfAll names it together with all that read the same in its function.
func (m *mutant) keyOfAll() string { return m.change() + " #*" }

func (m *mutant) change() string { return fmt.Sprintf("%s: %s -> %s", m.function, m.old, m.new) }

func (m *mutant) String() string {
	return fmt.Sprintf("%s:%d: %s", m.file, m.line, m.key())
}

// number gives the mutants their ids, from 1 on, and counts those that read the same.
func number(mutants []*mutant) {
	seen := map[string]int{}
	for i, m := range mutants {
		m.id = i + 1
		m.nth = 0
		key := m.key()
		seen[key]++
		m.nth = seen[key]
	}
}

// sortByLine sorts mutants as the files are read.
func sortByLine(mutants []*mutant) {
	slices.SortStableFunc(mutants, func(a, b *mutant) int {
		return cmp.Or(strings.Compare(a.file, b.file), cmp.Compare(a.line, b.line))
	})
}

// short returns source text as one line, of at most 100 characters.
func short(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > 100 {
		return string(r[:80]) + "…" + string(r[len(r)-16:])
	}
	return text
}
