package gosdk_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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

// A restart is how a server looks to its client while it restarts: the connections for some of the requests
// that call a tool are refused.
type restart struct {
	up, down http.Transport
	refuses  func(request int32) bool // counted from 1
	requests atomic.Int32
}

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

func newRestart(t *testing.T, refuses func(request int32) bool) *restart {
	r := &restart{refuses: refuses}
	r.down.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, errRefused }
	t.Cleanup(r.up.CloseIdleConnections)
	return r
}

func (r *restart) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body == nil {
		return r.up.RoundTrip(req)
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	if bytes.Contains(body, []byte(`"tools/call"`)) && r.refuses(r.requests.Add(1)) {
		return r.down.RoundTrip(req)
	}
	return r.up.RoundTrip(req)
}

// A store has the tool "order", which may ask something about an order that it has made.
type store struct {
	*httptest.Server
	asks   mcp.InputRequestMap // nil: nothing
	orders atomic.Int32
}

func newStore(t *testing.T, asks mcp.InputRequestMap) *store {
	s := &store{asks: asks}
	server := newServer(nil)
	order := func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if req.Params.RequestState == "" {
			s.orders.Add(1)
			if s.asks != nil {
				return &mcp.CallToolResult{InputRequests: s.asks, RequestState: "order 1"}, nil
			}
		}
		return textResult("ordered"), nil
	}
	addRaw(server, &mcp.Tool{Name: "order"}, order)
	s.Server = httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(s.Close)
	return s
}

// order calls the tool through the transport, and with a guard: that of NewClient, that of ClientMiddleware,
// or one around a Session.
func (s *store) order(t *testing.T, transport http.RoundTripper, guarded string) (res *mcp.CallToolResult, err error) {
	g := newGuard(t, resilience.Config{
		Effect: resilience.NonIdempotent, Retry: resilience.Retry{Backoff: resilience.Backoff{Base: time.Millisecond}},
	})
	connect := func(ctx context.Context, client *mcp.Client) (*mcp.ClientSession, error) {
		return client.Connect(ctx, &mcp.StreamableClientTransport{
			Endpoint: s.URL, HTTPClient: &http.Client{Transport: transport}, DisableStandaloneSSE: true,
		}, speaking(latest))
	}
	opts := &mcp.ClientOptions{}
	answerAfter(opts, 0)
	params := &mcp.CallToolParams{Name: "order"}

	var client *mcp.Client
	switch guarded {
	case "session":
		dial := func(ctx context.Context) (*mcp.ClientSession, error) { return connect(ctx, newClient(opts)) }
		session := newSession(t, dial, sessionConfig{})
		return resilience.Do(t.Context(), g, "order", func(ctx context.Context) (*mcp.CallToolResult, error) {
			return session.CallTool(ctx, params)
		})
	case "client":
		client = gosdk.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, opts, g)
	case "middleware":
		client = newClient(opts, gosdk.ClientMiddleware(g))
	}
	session, err := connect(t.Context(), client)
	require.NoError(t, err)
	t.Cleanup(func() { session.Close() })
	return session.CallTool(t.Context(), params)
}

// redirect makes the store pass on its orders to a server that is gone.
func (s *store) redirect() {
	handler := s.Config.Handler
	moved := httptest.NewServer(nil)
	moved.Close()
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Method") == "tools/call" {
			s.orders.Add(1)
			http.Redirect(w, r, moved.URL, http.StatusTemporaryRedirect)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// A transport that isn't net/http's may have sent the request and made it again.
type ownTransport struct{ *restart }

func (o ownTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := o.restart.RoundTrip(req.WithContext(context.Background()))
	if err != nil {
		return nil, errRefused
	}
	return res, nil
}

// A call whose connection is refused is made again for any tool, unless it may have reached the server: in an earlier
// round, at another address, or by a transport that doesn't tell.
func TestRefusedCallIsMadeAgainUnlessItMayHaveReachedTheServer(t *testing.T) {
	plain := func(r *restart) http.RoundTripper { return r }
	for name, tc := range map[string]struct {
		asks      mcp.InputRequestMap
		refused   int32 // the request
		redirects bool
		transport func(*restart) http.RoundTripper
		again     bool
		orders    int32
	}{
		"refused":           {nil, 1, false, plain, true, 1},
		"after elicitation": {mcp.InputRequestMap{"q": askedOf["elicitation"].params}, 2, false, plain, false, 1},
		"after sampling":    {mcp.InputRequestMap{"q": askedOf["sampling"].params}, 2, false, plain, false, 1},
		"after roots":       {mcp.InputRequestMap{"q": askedOf["roots"].params}, 2, false, plain, false, 1},
		"after being busy":  {mcp.InputRequestMap{}, 2, false, plain, false, 1},
		"redirected":        {nil, 0, true, plain, false, 1},
		"another transport's": {
			nil, 1, false, func(r *restart) http.RoundTripper { return ownTransport{r} }, false, 0,
		},
	} {
		for _, guarded := range []string{"client", "middleware", "session"} {
			t.Run(name+", "+guarded, func(t *testing.T) {
				s := newStore(t, tc.asks)
				if tc.redirects {
					s.redirect()
				}
				r := newRestart(t, func(request int32) bool { return request == tc.refused })
				res, err := s.order(t, tc.transport(r), guarded)
				assert.Equal(t, tc.orders, s.orders.Load())
				if tc.again {
					require.NoError(t, err)
					assert.Equal(t, "ordered", text(t, res))
					return
				}
				assert.False(t, requireLost(t, err).Retryable)
			})
		}
	}
}
