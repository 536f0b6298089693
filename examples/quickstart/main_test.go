package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docs/guide.md shows this program and what it prints. Both must be true.
func TestGuideShowsThisProgramAndItsOutput(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guide.md")
	require.NoError(t, err)
	source, err := os.ReadFile("main.go")
	require.NoError(t, err)

	assert.Contains(t, string(guide), "```go\n"+string(source)+"```\n", "docs/guide.md shows another program")
	assert.Contains(t, string(guide), "```\n"+output(t)+"```\n", "docs/guide.md shows another output")
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
