//go:build unix

package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Even a process that ignores SIGINT ends with the context, if a test has started it.
func TestEndOfContextEndsTheProcessesThatATestStarted(t *testing.T) {
	r, _ := newRunner(t, map[string]string{"a_test.go": `package m
import ("os/exec"; "testing")
func TestHangs(t *testing.T) {
	t.Error(exec.Command("sh", "-c", "trap '' INT; exec > pipe; echo started; sleep 1000").Run())
}
`})
	pipe := filepath.Join(r.root, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))

	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan result)
	go func() { results <- r.run(ctx, target{name: "m", dir: "."}) }()

	file, err := os.Open(pipe) // returns once the shell of the test has opened it too
	require.NoError(t, err)
	defer file.Close()
	_, err = io.ReadFull(file, make([]byte, len("started\n")))
	require.NoError(t, err)

	cancel()
	assert.True(t, (<-results).failed())
	_, err = file.Read(make([]byte, 1))
	assert.ErrorIs(t, err, io.EOF, "a process still holds the pipe")
}
