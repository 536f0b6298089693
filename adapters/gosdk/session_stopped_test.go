//go:build unix

package gosdk_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// A process that is stopped neither ends nor answers. It is replaced as soon as a use and a ping have timed out. A use
// that writes more than the pipe holds hangs even then.
func TestStoppedProcessIsReplaced(t *testing.T) {
	for _, protocol := range []string{legacy, latest} {
		for name, size := range map[string]int{"reads": 1, "is full": 1 << 20} {
			t.Run(protocol+", a pipe that "+name, func(t *testing.T) {
				leavesNothing(t)
				c := newChildren(t)
				s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
					cmd := c.command(ctx, "stdio")
					transport := &mcp.CommandTransport{Command: cmd, TerminateDuration: 10 * time.Millisecond}
					return newClient(nil).Connect(ctx, transport, speaking(protocol))
				}, sessionConfig{CheckTimeout: 100 * time.Millisecond})
				stopped := c.newest()
				require.NoError(t, stopped.Process.Signal(syscall.SIGSTOP))
				t.Cleanup(func() { _ = stopped.Process.Kill() })

				g := newGuard(t, resilience.Config{})
				use := func(ctx context.Context) (*mcp.CallToolResult, error) {
					return s.CallTool(ctx, &mcp.CallToolParams{Name: "pid", Arguments: strings.Repeat("x", size)})
				}
				_, err := resilience.Do(t.Context(), g, "pid", use, resilience.Timeout(100*time.Millisecond))
				require.ErrorIs(t, err, resilience.CodeTimeout)
				works := func() bool { _, err := call(t.Context(), s, "pid"); return err == nil }
				isReplaced := func() bool { return c.newest() != stopped && s.State() == resilience.ConnectionUp }
				require.Eventually(t, isReplaced, soon, 10*time.Millisecond)
				require.Eventually(t, works, soon, 10*time.Millisecond)
			})
		}
	}
}
