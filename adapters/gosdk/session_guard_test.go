package gosdk_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// With a guard around the session, a call that wasn't made is retried for any tool, and a call that
// was in flight where it can do no harm.
func TestGuardAroundASessionRetriesWhatDoesNoHarm(t *testing.T) {
	for effect, retried := range map[resilience.Effect]bool{
		resilience.ReadOnly:      true,
		resilience.NonIdempotent: false,
	} {
		t.Run(fmt.Sprint(effect), func(t *testing.T) {
			leavesNothing(t)
			p := newGatedPeer()
			s := newSession(t, p.dial, sessionConfig{})
			g := newGuard(t, resilience.Config{Effect: effect, Retry: resilience.Retry{MaxRetries: 100}})
			calls := 0
			call := func(ctx context.Context) (*mcp.CallToolResult, error) {
				calls++
				if calls == 1 {
					return s.CallTool(ctx, &mcp.CallToolParams{Name: "hang"})
				}
				return echo(ctx, s)
			}

			go func() {
				<-p.started
				p.cut()
				if retried {
					p.gate <- struct{}{}
				}
			}()
			res, err := resilience.Do(t.Context(), g, "x", call)
			if retried {
				require.NoError(t, err)
				assert.Equal(t, `{"a":1}`, text(t, res))
				return
			}
			assert.False(t, requireLost(t, err).Retryable)
			assert.Equal(t, 1, calls)

			g.Breaker("x").Reset() // a tool that has just failed isn't retried
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (*mcp.CallToolResult, error) {
				if resilience.Attempt(ctx) == 2 {
					p.gate <- struct{}{}
				}
				return echo(ctx, s)
			})
			require.Nil(t, r.Err)
			assert.Greater(t, r.Attempts, 1, "the first attempt wasn't made")
		})
	}
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
	forgotten := func(w http.ResponseWriter, r *http.Request) bool {
		isOld := r.Header.Get("Mcp-Session-Id") == old
		if isOld {
			refusal{404, ofPython}.write(w, r)
		}
		return isOld
	}
	h.intercept.Store(&forgotten)
	require.Error(t, s.Probe(t.Context()))
	require.Eventually(t, func() bool { return s.Probe(t.Context()) == nil }, soon, time.Millisecond)
}
