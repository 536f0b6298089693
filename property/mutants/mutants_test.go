package main

import (
	"go/parser"
	"go/token"
	"testing"
)

// The list keeps up with the library. The command itself takes minutes.
func TestEachMutantIsAChangeOfTheLibrary(t *testing.T) {
	names := make(map[string]bool)
	for _, m := range mutants {
		text, err := m.text("../..")
		if err == nil {
			_, err = parser.ParseFile(token.NewFileSet(), m.file, text, 0)
		}
		if err != nil || names[m.name] || m.old == m.new || m.breaks == "" {
			t.Errorf("%s: %v", m.name, err)
		}
		names[m.name] = true
	}
}
