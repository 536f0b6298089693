package gosdk_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// call calls a tool, with its name as the progress token.
func call(ctx context.Context, s *gosdk.Session, name string) (*mcp.CallToolResult, error) {
	return s.CallTool(ctx, &mcp.CallToolParams{Name: name, Meta: mcp.Meta{"progressToken": name}})
}

func TestSessionOutlivesItsServer(t *testing.T) {
	eachOutage(t, func(t *testing.T, o *outage) {
		s := newSession(t, o.dial, sessionConfig{Backoff: steady(100 * time.Millisecond)})
		before, err := call(t.Context(), s, "pid")
		require.NoError(t, err)
		failed := make(chan error, 20)
		for i := range cap(failed) {
			name := []string{"hang", "report"}[i%2]
			go func() {
				_, err := call(t.Context(), s, name)
				failed <- err
			}()
		}
		for range cap(failed) / 2 {
			o.waitFor("called hang")
		}

		first := up(t, s)
		o.kill()
		for range cap(failed) {
			err := receive(t, failed)
			assert.Equal(t, resilience.CodeConnectionLost, resilience.AsError("", err).Code, "%v", err)
		}
		isDown := func() bool { // a server without a stream looks alive until it is used
			_, err = call(t.Context(), s, "pid")
			return s.State() == resilience.ConnectionDown
		}
		require.Eventually(t, isDown, testTimeout, time.Millisecond)
		_, err = call(t.Context(), s, "pid")
		assert.Positive(t, requireLost(t, err).RetryAfter)

		o.restart()
		require.NotSame(t, first, up(t, s))
		after, err := call(t.Context(), s, "pid")
		require.NoError(t, err)
		assert.NotEqual(t, text(t, before), text(t, after))
	})
}

func TestGuardedReadOutlastsAnOutageAndAWriteIsNotRepeated(t *testing.T) {
	eachOutage(t, func(t *testing.T, o *outage) {
		s := newSession(t, o.dial, sessionConfig{})
		g := newGuard(t, resilience.Config{
			Tools: map[string]resilience.Tool{
				"read":   {Effect: resilience.ReadOnly},
				"create": {Effect: resilience.NonIdempotent},
			},
			Timeouts: resilience.Timeouts{resilience.Quick: testTimeout},
			Retry:    resilience.Retry{MaxRetries: 1000},
		})
		begin := func(tool string) <-chan resilience.Result[*mcp.CallToolResult] {
			result := make(chan resilience.Result[*mcp.CallToolResult], 1)
			go func() {
				result <- resilience.Run(t.Context(), g, tool, func(ctx context.Context) (*mcp.CallToolResult, error) {
					if resilience.Attempt(ctx) == 1 {
						return call(ctx, s, "hang")
					}
					return call(ctx, s, "pid")
				})
			}()
			return result
		}
		reading, creating := begin("read"), begin("create")
		for range 2 {
			o.waitFor("called hang")
		}

		o.kill()
		create := receive(t, creating)
		assert.False(t, requireLost(t, create.Err).Retryable)
		assert.Equal(t, 1, create.Attempts)

		o.restart()
		read := receive(t, reading)
		require.Nil(t, read.Err)
		assert.NotEmpty(t, text(t, read.Value))
		assert.Greater(t, read.Attempts, 1)

		_, err := resilience.Do(t.Context(), g, "create", func(ctx context.Context) (*mcp.CallToolResult, error) {
			return call(ctx, s, "pid")
		})
		assert.NoError(t, err)
	})
}

func TestProcessThatEndsIsNoticedAndReaped(t *testing.T) {
	leavesNothing(t)
	o := stdioOutage(t, "")
	s := newSession(t, o.dial, sessionConfig{})
	first, cmd := up(t, s), o.newest()
	o.kill()
	gone(t, s, first)
	require.Eventually(t, func() bool { return first.Wait() != nil }, testTimeout, time.Millisecond)
	assert.True(t, cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled())

	o.restart()
	up(t, s)
	cmd = o.newest()
	require.NoError(t, s.Close())
	assert.True(t, cmd.ProcessState.Success(), "Close asks it to end, and waits")
}

// The SDK gives up a process that closes its output, or writes something else than JSON to it, and waits for its end.
func TestProcessThatGoesOnDoesNotDelayTheNext(t *testing.T) {
	for _, tool := range []string{"mute", "half", "print", "flood"} {
		t.Run(tool, func(t *testing.T) {
			leavesNothing(t)
			c := newChildren(t)
			s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
				transport := &mcp.CommandTransport{Command: c.command(ctx, "stubborn"), TerminateDuration: time.Hour}
				return newClient(nil).Connect(ctx, transport, nil)
			}, sessionConfig{CheckTimeout: 100 * time.Millisecond})
			old := c.newest()
			t.Cleanup(func() {
				_ = old.Process.Kill()
				_ = c.newest().Process.Kill()
			})
			first := up(t, s)

			_, err := call(t.Context(), s, tool)
			require.Error(t, err)
			gone(t, s, first)
			up(t, s)
			assert.NoError(t, old.Process.Signal(syscall.Signal(0)), "the old process still runs")
			res, err := call(t.Context(), s, "pid")
			require.NoError(t, err)
			assert.NotEqual(t, strconv.Itoa(old.Process.Pid), text(t, res))
		})
	}
}

func TestSilentProcessIsKilledAtDialTimeout(t *testing.T) {
	leavesNothing(t)
	c := newChildren(t)
	ends := make(chan string, 100)
	var dials atomic.Int64
	s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
		mode := "stdio"
		if dials.Add(1) == 1 {
			mode = "silent"
		}
		cmd := c.command(ctx, mode)
		transport := &mcp.CommandTransport{Command: cmd, TerminateDuration: time.Hour}
		cs, err := newClient(nil).Connect(ctx, transport, nil)
		if err != nil {
			ends <- cmd.ProcessState.String()
		}
		return cs, err
	}, sessionConfig{DialTimeout: 5 * time.Second}) // a slow machine dials more than twice
	_, err := call(t.Context(), s, "pid")
	require.NoError(t, err)
	assert.Contains(t, receive(t, ends), "killed")
}
