package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The README shows this program and what it prints. Both must be true.
func TestREADMEShowsThisProgramAndItsOutput(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	source, err := os.ReadFile("main.go")
	require.NoError(t, err)

	assert.Contains(t, string(readme), "```go\n"+string(source)+"```\n", "README.md shows another program")
	assert.Contains(t, string(readme), "```\n"+output(t)+"```\n", "README.md shows another output")
}

// output returns what main prints.
func output(t *testing.T) string {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	stdout := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = stdout }()

	main()
	require.NoError(t, w.Close())
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}
