package gosdk_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// After an answer without a result only a ping tells whether the connection has ended with the call, or is stuck.

// slowToPing is the middleware of a client that encodes a ping and goes on with it when its context has ended, as the SDK
// does over a pipe whose process has closed its output, but doesn't end.
func slowToPing(d time.Duration) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "ping" {
				_, _ = json.Marshal(req.GetParams())
				time.Sleep(d)
			}
			return next(ctx, method, req)
		}
	}
}

// A connection that has ended with a call is lost although the caller has left before that is known.
func TestCallWhoseCallerLeavesWhileItAsksForTheConnection(t *testing.T) {
	for name, leavesAfter := range map[string]time.Duration{"before": 0, "while it asks": 500 * time.Millisecond} {
		inBubble(t, name, func(t *testing.T) {
			f := &scripted{mute: true, answer: func(string, string, string) fakeAnswer { return fakeAnswer{status: http.StatusOK} }}
			s, _ := f.session(t, slowToPing(time.Minute))
			defer s.Close()
			first := up(t, s)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			begin := time.Now()
			_, err := gosdk.Use(ctx, s, func(ctx context.Context, cs *mcp.ClientSession) (*mcp.CallToolResult, error) {
				res, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "read"})
				if time.AfterFunc(leavesAfter, cancel); leavesAfter == 0 {
					<-ctx.Done()
				}
				return res, err
			})
			assert.ErrorIs(t, err, io.EOF)
			assert.Equal(t, leavesAfter, time.Since(begin))
			time.Sleep(3 * time.Second)
			assert.NotSame(t, first, up(t, s))
			time.Sleep(time.Minute)
		})
	}
}

// A call whose Session is closed while it asks for the connection is lost, as others in flight are.
func TestSessionThatIsClosedWhileItAsksForTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &scripted{mute: true, answer: func(string, string, string) fakeAnswer { return fakeAnswer{status: http.StatusOK} }}
		s, _ := f.session(t, slowToPing(time.Minute))
		up(t, s)
		begin := time.Now()
		time.AfterFunc(500*time.Millisecond, func() { s.Close() })
		_, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "read"})
		requireLost(t, err)
		assert.ErrorContains(t, err, "closed for good")
		assert.Equal(t, 500*time.Millisecond, time.Since(begin))
		time.Sleep(time.Minute)
	})
}

// A connection that is busy isn't taken for one that is stuck, however little time the call has that asks.
func TestCallThatHasLittleTimeToAskForTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &scripted{mute: true, answer: func(_, method, _ string) fakeAnswer {
			if method == "ping" {
				return fakeAnswer{}
			}
			return fakeAnswer{status: http.StatusOK}
		}}
		s, _ := f.session(t, slowToPing(12*time.Millisecond))
		defer s.Close()
		first := up(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "read"})
		require.ErrorIs(t, err, io.EOF)
		time.Sleep(time.Second)
		assert.Same(t, first, up(t, s))
	})
}

// The SDK may give a ping up just as it has refused it, as it does when the process has ended that it was waiting for.
func TestConnectionThatEndsWhileAPingIsGivenUp(t *testing.T) {
	var pings atomic.Int64
	ends := func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method != "ping" {
				return next(ctx, method, req)
			}
			if pings.Add(1)%2 == 0 {
				return nil, errClosing
			}
			_, _ = json.Marshal(req.GetParams())
			<-ctx.Done()
			time.Sleep(100 * time.Millisecond)
			return nil, ctx.Err()
		}
	}
	f := &scripted{mute: true, answer: func(string, string, string) fakeAnswer { return fakeAnswer{status: http.StatusOK} }}

	inBubble(t, "of a Session", func(t *testing.T) {
		s, _ := f.session(t, ends)
		defer s.Close()
		first := up(t, s)
		_, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "read"})
		requireLost(t, err)
		assert.NotSame(t, first, up(t, s))
	})

	inBubble(t, "of ClientMiddleware", func(t *testing.T) {
		g := newGuard(t, resilience.Config{})
		cs, err := f.connect(t.Context(), false, gosdk.ClientMiddleware(g), ends)
		require.NoError(t, err)
		defer cs.Close()
		_, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "read"})
		requireLost(t, err)
	})
}

// A caller who leaves while ClientMiddleware asks has left, whatever the connection.
func TestCallerWhoLeavesWhileClientMiddlewareAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &scripted{mute: true, answer: func(string, string, string) fakeAnswer { return fakeAnswer{status: http.StatusOK} }}
		g := newGuard(t, resilience.Config{})
		cs, err := f.connect(t.Context(), false, gosdk.ClientMiddleware(g), slowToPing(time.Minute))
		require.NoError(t, err)
		defer cs.Close()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		_, err = cs.CallTool(ctx, &mcp.CallToolParams{Name: "read"})
		assert.NotErrorIs(t, err, resilience.CodeConnectionLost)
		time.Sleep(2 * time.Minute)
	})
}

// oneByOne is the middleware of a client that sends one request after the other. It ignores contexts, as a mutex does.
func oneByOne() mcp.Middleware {
	turn := make(chan struct{}, 1)
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			turn <- struct{}{}
			defer func() { <-turn }()
			return next(ctx, method, req)
		}
	}
}

// A ping that waits for the client's own middleware tells nothing of the connection.
func TestPingThatWaitsForTheClientsMiddleware(t *testing.T) {
	answers := &scripted{mute: true, answer: func(_, method, tool string) fakeAnswer {
		switch {
		case method == "ping":
			return fakeAnswer{}
		case tool == "slow":
			return fakeAnswer{after: 3 * time.Second}
		}
		return fakeAnswer{status: http.StatusOK}
	}}

	inBubble(t, "of a Session", func(t *testing.T) {
		s, call := answers.session(t, oneByOne())
		defer s.Close()
		first := up(t, s)
		results := make(map[string]chan error)
		for _, tool := range []string{"slow", "none", "slow"} { // in this order
			result := make(chan error, 1)
			results[tool] = result
			go func() { result <- call(tool) }()
			synctest.Wait()
		}
		assert.ErrorContains(t, <-results["none"], "without a result")
		assert.NoError(t, <-results["slow"])
		assert.Same(t, first, up(t, s))
	})

	inBubble(t, "of ClientMiddleware", func(t *testing.T) {
		g := newGuard(t, resilience.Config{Effect: resilience.ReadOnly})
		cs, err := answers.connect(t.Context(), false, oneByOne(), gosdk.ClientMiddleware(g))
		require.NoError(t, err)
		defer cs.Close()
		for range 5 {
			_, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "none"})
			assert.ErrorContains(t, err, "without a result")
		}
		assert.Zero(t, g.Breaker("none").Failures())
		_, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "slow"})
		assert.NoError(t, err)
	})
}

// Callers who leave one after the other leave no more than some of their questions behind.
func TestCallersWhoLeaveWhileTheyAskForTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pings, most atomic.Int64
		slow := func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				if method != "ping" {
					return next(ctx, method, req)
				}
				most.Store(max(most.Load(), pings.Add(1)))
				defer pings.Add(-1)
				<-ctx.Done()
				return nil, ctx.Err()
			}
		}
		f := &scripted{mute: true, answer: func(string, string, string) fakeAnswer { return fakeAnswer{status: http.StatusOK} }}
		s, _ := f.session(t, slow)
		defer s.Close()
		up(t, s)
		for range 500 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			_, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "none"})
			assert.ErrorIs(t, err, io.EOF)
		}
		assert.LessOrEqual(t, most.Load(), int64(64+2)) // one of a caller who is here, and one that is given up
	})
}
