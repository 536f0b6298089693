package gosdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The server's session and the client's are the same, as observers on both sides see, also if the server has first been
// asked for a protocol that it doesn't speak.
func TestObserversReceiveTheSession(t *testing.T) {
	for _, protocol := range []string{legacy, latest} {
		t.Run(protocol, func(t *testing.T) {
			var mu sync.Mutex
			sessions := map[bool]string{}
			g := newGuard(t, resilience.Config{Observers: []resilience.Observer{{
				Start: func(_ context.Context, e resilience.CallStart) context.Context {
					mu.Lock()
					defer mu.Unlock()
					sessions[e.Request.Client] = e.Request.Session
					return nil
				},
			}}})
			r := newRemote(t)
			r.server.AddReceivingMiddleware(gosdk.Middleware(g))
			session := r.connect(t, protocol, g)
			require.NotEmpty(t, session.ID())
			_, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "works", Arguments: in{}})
			require.NoError(t, err)
			require.NoError(t, g.Flush(t.Context()))

			mu.Lock()
			defer mu.Unlock()
			assert.Equal(t, map[bool]string{true: session.ID(), false: session.ID()}, sessions)
		})
	}
}

// A guard may know the session, as its Probe does. Once nobody needs them any more, all of them are gone.
func TestSessionOfAClientIsFreed(t *testing.T) {
	freed := make(chan struct{})
	func() {
		var cs *mcp.ClientSession
		g := newGuard(t, resilience.Config{Breaker: resilience.BreakerConfig{
			Probe: func(ctx context.Context) error { return cs.Ping(ctx, nil) },
		}})
		p := newPeer()
		p.sending = []mcp.Middleware{gosdk.ClientMiddleware(g)}
		var err error
		cs, err = p.dial(t.Context())
		require.NoError(t, err)
		_, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo"})
		require.NoError(t, err)
		require.NoError(t, cs.Close())
		runtime.AddCleanup(cs, func(freed chan struct{}) { close(freed) }, freed)
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		select {
		case <-freed:
			return true
		default:
			return false
		}
	}, testTimeout, time.Millisecond)
}

func TestDebugShowsTheArgumentsOfAClient(t *testing.T) {
	var ended resilience.CallEnd
	g := newGuard(t, resilience.Config{Debug: true, Observers: []resilience.Observer{{
		End: func(_ context.Context, e resilience.CallEnd) { ended = e },
	}}})
	f := newFixture(t, resilience.Config{}, nil)
	f.raw("x", nil, returns(textResult("done"), nil))
	f.connect("", gosdk.ClientMiddleware(g))
	f.call("x")
	require.NoError(t, g.Flush(t.Context()))
	assert.Equal(t, map[string]any{"n": 1}, ended.Arguments)
}

// A client's calls of one broken backend don't shut the tool for the others.
func TestBreakerKeyOfAClient(t *testing.T) {
	f := newFixture(t, resilience.Config{}, nil)
	f.raw("query", nil, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if strings.Contains(string(req.Params.Arguments), "broken") {
			return errorTextResult("down"), nil
		}
		return textResult("rows"), nil
	})
	key := gosdk.BreakerKey(func(_ context.Context, req mcp.Request) string {
		return req.GetParams().(*mcp.CallToolParams).Arguments.(map[string]any)["source"].(string)
	})
	f.connect("", gosdk.ClientMiddleware(newGuard(t, resilience.Config{}), key, gosdk.Failure(gosdk.CountAll)))
	call := func(source string) (*mcp.CallToolResult, error) {
		arguments := map[string]any{"source": source}
		return f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "query", Arguments: arguments})
	}
	for range 5 {
		_, err := call("broken")
		require.NoError(t, err)
	}
	_, err := call("broken")
	assert.ErrorIs(t, err, resilience.CodeCircuitOpen)
	res, err := call("fine")
	require.NoError(t, err)
	assert.Equal(t, "rows", text(t, res))
}

// Other middleware of a client may say what a result stands for.
func TestErrorThatAClientHasSetCounts(t *testing.T) {
	mismatch := resilience.MarkBackend(&json.UnmarshalTypeError{Value: "string", Type: reflect.TypeFor[int](), Field: "n"})
	for _, set := range []error{errBoom, errors.Unwrap(mismatch), mismatch} {
		var ended resilience.CallEnd
		g := newGuard(t, resilience.Config{Observers: []resilience.Observer{{
			End: func(_ context.Context, e resilience.CallEnd) { ended = e },
		}}})
		call := gosdk.ClientMiddleware(g, gosdk.Failure(gosdk.CountKnown))(
			func(context.Context, string, mcp.Request) (mcp.Result, error) {
				res := errorTextResult("no")
				res.SetError(set)
				return res, nil
			})
		_, err := call(t.Context(), "tools/call", &mcp.ClientRequest[*mcp.CallToolParams]{
			Params: &mcp.CallToolParams{Name: "x", Arguments: map[string]any{"n": "1"}},
		})
		require.NoError(t, err)
		require.NoError(t, g.Flush(t.Context()))
		assert.ErrorIs(t, ended.Err, set)
	}
}
