package gosdk_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A remote is somebody else's server over streamable HTTP, with a front that can fail.
type remote struct {
	*httptest.Server
	status  atomic.Int64 // what the front answers; 0: it lets requests through
	runs    atomic.Int64
	hanging chan struct{} // one for each call of "hangs"
	release chan struct{} // closed by a test that calls "hangs": a server may not hear that its client has left
}

func newRemote(t *testing.T) *remote {
	r := &remote{hanging: make(chan struct{}, 100), release: make(chan struct{})}
	server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
	add := func(name string, work func(context.Context) error) {
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(ctx context.Context, _ *mcp.CallToolRequest, _ in) (*mcp.CallToolResult, out, error) {
			r.runs.Add(1)
			return nil, out{"fine"}, work(ctx)
		})
	}
	add("works", func(context.Context) error { return nil })
	add("fails", func(context.Context) error { return errBoom })
	t.Cleanup(func() { r.CloseClientConnections(); r.Close() })
	add("hangs", func(context.Context) error { r.hanging <- struct{}{}; <-r.release; return nil })
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch status := r.status.Load(); status {
		case 0:
			handler.ServeHTTP(w, req)
		default:
			w.WriteHeader(int(status))
		}
	}))
	return r
}

func (r *remote) connect(t *testing.T, protocol string, g *resilience.Guard) *mcp.ClientSession {
	client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil)
	client.AddSendingMiddleware(gosdk.ClientMiddleware(g))
	// Without idle connections a server that is gone is always one that refuses.
	httpClient := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	transport := &mcp.StreamableClientTransport{Endpoint: r.URL, HTTPClient: httpClient, MaxRetries: -1, DisableStandaloneSSE: true}
	session, err := client.Connect(t.Context(), transport, speaking(protocol))
	require.NoError(t, err)
	t.Cleanup(func() { session.Close() })
	return session
}

func TestClient(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			r := newRemote(t)
			g := resilience.Must(resilience.New(resilience.Config{
				Tools:   map[string]resilience.Tool{"fails": {Effect: resilience.ReadOnly}},
				Breaker: resilience.BreakerConfig{Failures: 100}, Retry: fast,
			}))
			session := r.connect(t, protocol, g)
			call := func(tool string) (*mcp.CallToolResult, error) {
				return session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"n": 1}})
			}

			res, err := call("works")
			require.NoError(t, err)
			assert.False(t, res.IsError)
			assert.NotContains(t, res.Meta, resilience.MetaError)

			r.runs.Store(0)
			res, err = call("fails")
			require.NoError(t, err)
			assert.True(t, res.IsError)
			assert.Equal(t, errBoom.Error(), text(t, res))
			assert.Equal(t, resilience.CodeRetryExhausted, adviceOf(t, res).Code)
			assert.EqualValues(t, 4, r.runs.Load())

			_, err = call("unknown")
			var wire *jsonrpc.Error
			require.ErrorAs(t, err, &wire)
			assert.ErrorIs(t, err, resilience.CodeValidation)

			for _, status := range []int64{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
				r.status.Store(status)
				_, err = call("works")
				assert.ErrorIs(t, err, resilience.CodeToolFailed, "busy is not lost: %v", errors.Unwrap(err))
				var busy *resilience.Error
				require.ErrorAs(t, err, &busy)
				assert.True(t, busy.Retryable, "it may be asked again")
				_, err = call("fails")
				assert.ErrorIs(t, err, resilience.CodeRetryExhausted, "and is, where that can do no harm")
			}
			r.status.Store(0)
			_, err = call("works")
			require.NoError(t, err)

			r.CloseClientConnections()
			r.Close()
			_, err = call("works")
			assert.ErrorIs(t, err, resilience.CodeRetryExhausted, "%v", errors.Unwrap(err))
			assert.ErrorIs(t, err, resilience.CodeConnectionLost, "refused, and so repeated whatever the tool: it never got there")
		})
	}
}

func TestClientLostSession(t *testing.T) {
	r := newRemote(t)
	g := resilience.Must(resilience.New(resilience.Config{}))
	session := r.connect(t, "2025-11-25", g)
	r.status.Store(http.StatusNotFound) // the server has forgotten the session
	_, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "works"})
	assert.ErrorIs(t, err, resilience.CodeConnectionLost)
	assert.ErrorIs(t, err, mcp.ErrSessionMissing)
}

func TestClientLostConnection(t *testing.T) {
	f := &fixture{T: t, server: mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)}
	started := make(chan struct{})
	f.raw("hangs", nil, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		close(started)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	serverEnd, clientEnd := net.Pipe()
	_, err := f.server.Connect(t.Context(), &mcp.IOTransport{Reader: serverEnd, Writer: serverEnd}, nil)
	require.NoError(t, err)
	clientSide := &mcp.IOTransport{Reader: clientEnd, Writer: clientEnd}
	client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil)
	client.AddSendingMiddleware(gosdk.ClientMiddleware(resilience.Must(resilience.New(resilience.Config{}))))
	session, err := client.Connect(t.Context(), clientSide, nil)
	require.NoError(t, err)
	go func() { <-started; serverEnd.Close() }() // as a process that is killed
	_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "hangs"})
	assert.ErrorIs(t, err, resilience.CodeConnectionLost, "in flight: %v", errors.Unwrap(err))
	_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "hangs"})
	assert.ErrorIs(t, err, resilience.CodeConnectionLost, "afterwards: %v", errors.Unwrap(err))
}

func TestClientCancel(t *testing.T) {
	r := newRemote(t)
	defer close(r.release) // before the session is closed, which in v1.7 of the SDK waits for the server
	g := resilience.Must(resilience.New(resilience.Config{}))
	session := r.connect(t, "", g)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-r.hanging; cancel() }()
	_, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "hangs", Arguments: in{}})
	assert.ErrorIs(t, err, resilience.CodeCanceled)
	assert.Zero(t, g.Health()[0].ConsecutiveFailures)
}
