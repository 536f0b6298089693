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

// With a guard around the session, a call that wasn't made is retried for any tool.
func TestGuardAroundASessionRetriesACallThatWasNotMade(t *testing.T) {
	leavesNothing(t)
	p := newGatedPeer()
	s := newSession(t, p.dial, sessionConfig{})
	first := up(t, s)
	p.cut()
	gone(t, s, first)

	g := newGuard(t, resilience.Config{Effect: resilience.NonIdempotent, Retry: resilience.Retry{MaxRetries: 100}})
	r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (*mcp.CallToolResult, error) {
		if resilience.Attempt(ctx) == 2 {
			p.gate <- struct{}{}
		}
		return echo(ctx, s)
	})
	require.Nil(t, r.Err)
	assert.Greater(t, r.Attempts, 1)
}

func TestErrorsOfAGuardWithinASessionAreKept(t *testing.T) {
	leavesNothing(t)
	p := newGatedPeer()
	g := newGuard(t, resilience.Config{Effect: resilience.ReadOnly, Retry: fast})
	p.sending = []mcp.Middleware{gosdk.ClientMiddleware(g)}
	s := newSession(t, p.dial, sessionConfig{})
	first, failed := up(t, s), hang(t.Context(), s)
	receive(t, p.started)
	p.cut()

	err := receive(t, failed)
	assert.ErrorIs(t, err, resilience.CodeRetryExhausted)
	assert.ErrorIs(t, err, resilience.CodeConnectionLost)
	gone(t, s, first)

	p.gate <- struct{}{}
	up(t, s)
	_, err = echo(t.Context(), s)
	require.NoError(t, err)
}

// A session's Probe fails while there is no server, and succeeds as soon as one answers.
func TestProbeOfASessionFollowsItsServer(t *testing.T) {
	leavesNothing(t)
	p := newGatedPeer()
	s := newSession(t, p.dial, sessionConfig{})
	first := up(t, s)
	require.NoError(t, s.Probe(t.Context()))

	p.cut()
	gone(t, s, first)
	require.Error(t, s.Probe(t.Context()))
	p.gate <- struct{}{}
	up(t, s)
	require.NoError(t, s.Probe(t.Context()))
	require.NoError(t, s.Close())
	err := s.Probe(t.Context())
	require.Error(t, err)
	b := resilience.NewBreaker("x", resilience.BreakerConfig{Failures: 1})
	done, err2 := b.Allow()
	require.NoError(t, err2)
	done(err)
	assert.Equal(t, resilience.StateOpen, b.State(), "it counts")
}

// A session that doesn't answer a Probe is replaced.
func TestProbeOfAForgottenSession(t *testing.T) {
	h := serveHTTP(t, newPeer().server)
	s := newSession(t, dialHTTP(h, nil, legacy, false), sessionConfig{})
	old := up(t, s).ID()
	h.forget(old, refusal{404, ofPython})
	require.Error(t, s.Probe(t.Context()))
	require.Eventually(t, func() bool { return s.Probe(t.Context()) == nil }, soon, time.Millisecond)
}
