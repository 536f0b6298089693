package main

import "testing"

func TestInstrument(t *testing.T) {
	for text, want := range map[string]string{
		"package p\n\nvar x int\n": "package p\n\nvar x int\n",
		"// Package p has a lock.\npackage p\n\nimport (\n\t\"fmt\"\n\t\"sync\"\n)\n\nvar mu sync.Mutex\n": "" +
			"// Package p has a lock.\npackage p\n\nimport deadlock \"github.com/sasha-s/go-deadlock\"\n\n" +
			"import (\n\t\"fmt\"\n)\n\nvar mu deadlock.Mutex\n",
		"package p\n\nimport (\n\t\"sync\"\n)\n\nvar mu sync.RWMutex\nvar g sync.WaitGroup\n": "" +
			"package p\n\nimport deadlock \"github.com/sasha-s/go-deadlock\"\n\n" +
			"import (\n\t\"sync\"\n)\n\nvar mu deadlock.RWMutex\nvar g sync.WaitGroup\n",
	} {
		if got := instrument(text); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
