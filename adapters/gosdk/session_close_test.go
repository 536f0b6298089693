package gosdk_test

import (
	"context"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// eachDial runs a test with a session over a pipe, and with one over HTTP.
func eachDial(t *testing.T, test func(*testing.T, *peer, *gosdk.Session)) {
	t.Run("a pipe", func(t *testing.T) {
		t.Parallel()
		p := newPeer()
		test(t, p, newSession(t, p.dial, sessionConfig{}))
	})
	t.Run("HTTP", func(t *testing.T) {
		t.Parallel()
		p := newPeer()
		dial := dialHTTP(serveHTTP(t, p.server), nil, legacy, false)
		t.Cleanup(func() { close(p.release) })
		test(t, p, newSession(t, dial, sessionConfig{}))
	})
}

// The calls that Close ends return before the session is closed. They may have taken effect, and no session will come
// back; and the server hasn't failed.
func TestCloseEndsCallsInFlight(t *testing.T) {
	eachDial(t, func(t *testing.T, p *peer, s *gosdk.Session) {
		effects := []resilience.Effect{
			resilience.EffectUnknown, resilience.ReadOnly, resilience.Idempotent, resilience.NonIdempotent,
		}
		failed := make(chan error, len(effects))
		var guards []*resilience.Guard
		for _, effect := range effects {
			g := newGuard(t, resilience.Config{
				Effect: effect, Timeouts: resilience.Timeouts{resilience.Quick: 4 * time.Second}, // the SDK may take 5s
			})
			guards = append(guards, g)
			go func() {
				failed <- guarded(t, g, s, "hang")
			}()
			receive(t, p.started)
		}
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		receive(t, closed) // over HTTP, the server may refuse to end a session in which a call still runs

		for range effects {
			e := requireLost(t, receive(t, failed))
			assert.False(t, e.Retryable)
			assert.Contains(t, e.Suggestion, "will not come back")
			assert.Contains(t, e.Suggestion, "check whether")
			assert.NotContains(t, e.Suggestion, "again")
		}
		for _, g := range guards {
			assert.Zero(t, g.Breaker("hang").Failures())
		}
		assert.Equal(t, resilience.ConnectionClosed, s.State())
		_, err := echo(t.Context(), s)
		assert.False(t, requireLost(t, err).Retryable)
		require.NoError(t, s.Close())
	})
}

// A call that comes to the SDK just after Close counts no more than one that is in flight.
func TestCallAfterACloseCountsForNobody(t *testing.T) {
	eachDial(t, func(t *testing.T, _ *peer, s *gosdk.Session) {
		g := newGuard(t, resilience.Config{})
		_, err := resilience.Do(t.Context(), g, "echo", func(ctx context.Context) (*mcp.CallToolResult, error) {
			return gosdk.Use(ctx, s, func(ctx context.Context, cs *mcp.ClientSession) (*mcp.CallToolResult, error) {
				_ = s.Close()
				return cs.CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
			})
		})
		assert.False(t, requireLost(t, err).Retryable)
		assert.Zero(t, g.Breaker("echo").Failures())
	})
}
