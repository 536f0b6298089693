//go:build unix

package resilience_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stalledCalls is set in the process that TestStalledProcessLosesNoEvents starts.
const stalledCalls = "RESILIENCE_STALLED_CALLS"

// A container's CPU quota stops a process again and again. Nothing blocks, so nothing may be lost.
func TestStalledProcessLosesNoEvents(t *testing.T) {
	if os.Getenv(stalledCalls) != "" {
		makeStalledCalls(t)
		return
	}

	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestStalledProcessLosesNoEvents$", "-test.count=1")
	cmd.Env = append(os.Environ(), stalledCalls+"=1")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	for {
		select {
		case err := <-ended:
			assert.NoError(t, err, out.String())
			return
		default:
		}
		_ = cmd.Process.Signal(syscall.SIGSTOP)
		time.Sleep(150 * time.Millisecond)
		_ = cmd.Process.Signal(syscall.SIGCONT)
		time.Sleep(5 * time.Millisecond)
	}
}

func makeStalledCalls(t *testing.T) {
	const calls = 200
	var work, ends atomic.Int64
	g := newGuard(t, resilience.Config{Observers: []resilience.Observer{{
		Start: func(context.Context, resilience.CallStart) context.Context {
			for range 20_000 { // so that stalls meet it
				work.Add(1)
			}
			return nil
		},
		End: func(context.Context, resilience.CallEnd) { ends.Add(1) },
	}}})
	for range calls {
		mustSucceed(t, g)
	}
	flush(t, g)
	assert.EqualValues(t, calls, ends.Load())
}
