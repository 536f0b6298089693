//go:build !plan9 && !js

package resilience_test

import (
	"io/fs"
	"syscall"
	"testing"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

func TestProgramThatIsBeingWrittenIsAHiccup(t *testing.T) {
	g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
	busy := &fs.PathError{Op: "fork/exec", Path: "/x", Err: syscall.ETXTBSY}
	r := resilience.Run(t.Context(), g, "x", failing(1, busy))
	assert.Nil(t, r.Err)
	assert.Equal(t, 2, r.Attempts)
}
