package gosdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
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
	failed := hang(t.Context(), s)
	receive(t, p.started)
	p.cut()

	err := receive(t, failed)
	assert.ErrorIs(t, err, resilience.CodeRetryExhausted)
	assert.ErrorIs(t, err, resilience.CodeConnectionLost)
	assert.Equal(t, resilience.ConnectionDown, s.State())

	p.gate <- struct{}{}
	up(t, s)
	_, err = echo(t.Context(), s)
	require.NoError(t, err)
}

// The SDK doesn't send a call over a connection that is closed, but its error looks like a reply with
// the same text.
func TestLossThatACallNoticesIsAmbiguous(t *testing.T) {
	for effect, retried := range map[resilience.Effect]bool{
		resilience.ReadOnly:      true,
		resilience.NonIdempotent: false,
	} {
		t.Run(fmt.Sprint(effect), func(t *testing.T) {
			leavesNothing(t)
			p := newPeer()
			s := newSession(t, p.dial, sessionConfig{})
			cs := up(t, s)
			g := newGuard(t, resilience.Config{Effect: effect, Retry: resilience.Retry{MaxRetries: 100}})

			// A call in flight keeps the session from ending, which would be noticed without a call.
			ctx, leave := context.WithCancel(t.Context())
			failed := hang(ctx, s)
			receive(t, p.started)
			closed := make(chan struct{})
			go func() { defer close(closed); cs.Close() }()
			isClosing := func() bool { return errors.Is(cs.Ping(t.Context(), nil), mcp.ErrConnectionClosed) }
			require.Eventually(t, isClosing, testTimeout, time.Millisecond)

			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (*mcp.CallToolResult, error) {
				return echo(ctx, s)
			})
			if retried {
				require.Nil(t, r.Err)
			} else {
				assert.False(t, requireLost(t, r.Err).Retryable)
				assert.Equal(t, 1, r.Attempts)
			}
			assert.NotSame(t, cs, up(t, s), "it has been reported")
			leave()
			receive(t, failed)
			<-closed
		})
	}
}

func TestNoReplyOfAToolEndsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer()
		for name, reply := range forgeries {
			addRaw(p.server, &mcp.Tool{Name: name}, returns(nil, reply))
		}
		s := newSession(t, p.dial, sessionConfig{})
		g := newGuard(t, resilience.Config{Effect: resilience.NonIdempotent})
		for name := range forgeries {
			r := resilience.Run(t.Context(), g, name, func(ctx context.Context) (*mcp.CallToolResult, error) {
				return s.CallTool(ctx, &mcp.CallToolParams{Name: name})
			})
			require.NotNil(t, r.Err)
			assert.Equal(t, 1, r.Attempts, name)
			assert.Zero(t, r.Duration, "%s: a ping says at once that the session is up", name)
		}
		assert.Equal(t, 1, p.dials())
	})
}

// The call may have taken effect, and no session will come back.
func TestNoWordRecommendsToRepeatACallThatCloseHasEnded(t *testing.T) {
	for _, effect := range []resilience.Effect{
		resilience.EffectUnknown, resilience.ReadOnly, resilience.Idempotent, resilience.NonIdempotent,
	} {
		t.Run(effect.String(), func(t *testing.T) {
			leavesNothing(t)
			p := newPeer()
			s := newSession(t, p.dial, sessionConfig{})
			g := newGuard(t, resilience.Config{Effect: effect})
			up(t, s)
			failed := make(chan error, 1)
			go func() {
				_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (*mcp.CallToolResult, error) {
					return s.CallTool(ctx, &mcp.CallToolParams{Name: "hang"})
				})
				failed <- err
			}()
			receive(t, p.started)
			_ = s.Close()

			e := requireLost(t, receive(t, failed))
			assert.False(t, e.Retryable)
			assert.NotContains(t, e.Suggestion, "again")
			assert.Contains(t, e.Suggestion, "check whether")
		})
	}
}

// A server that answers works if it knows no ping, and not if it says anything else.
func TestProbeOfASessionBelievesAnAnswer(t *testing.T) {
	for code, works := range map[int64]bool{jsonrpc.CodeMethodNotFound: true, jsonrpc.CodeInternalError: false} {
		p := newPeer()
		p.server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				if method == "ping" {
					return nil, &jsonrpc.Error{Code: code, Message: "no"}
				}
				return next(ctx, method, req)
			}
		})
		err := newHTTPPeerOf(t, p.server, legacy, newClient(nil)).session.Probe(t.Context())
		assert.Equal(t, works, err == nil, "%d: %v", code, err)
		if !works {
			assert.Equal(t, resilience.ClassTransient, resilience.Classify(err), "it counts")
		}
	}
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

// A server in Python replies to a session that it doesn't know with a JSON-RPC error, by which go-sdk v1.8.0 doesn't
// notice that the session has ended.
func TestProbeOfASessionThatTheServerHasForgotten(t *testing.T) {
	p := newHTTPPeer(t)
	close(p.back)
	first := up(t, p.session)
	forgotten := func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Mcp-Session-Id") != first.ID() {
			return false
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}`)
		return true
	}
	p.intercept.Store(&forgotten)
	require.Error(t, p.session.Probe(t.Context()))
	require.Eventually(t, func() bool { return p.session.Probe(t.Context()) == nil }, testTimeout, time.Millisecond)
}
