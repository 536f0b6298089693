package gosdk_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An httpPeer is another server over streamable HTTP, with a session that is up.
type httpPeer struct {
	*httpServer
	session *gosdk.Session
	dials   atomic.Int64
	back    chan struct{} // must be closed before the session is dialed again
}

// newHTTPPeer returns a peer that has sessions.
func newHTTPPeer(t *testing.T, sending ...mcp.Middleware) *httpPeer {
	return newHTTPPeerOf(t, newPeer().server, legacy, newClient(nil, sending...))
}

// newHTTPPeerOf returns a peer that speaks the given protocol, with a session of the given client.
func newHTTPPeerOf(t *testing.T, server *mcp.Server, protocol string, client *mcp.Client) *httpPeer {
	leavesNothing(t)
	opts := &mcp.StreamableHTTPOptions{Stateless: protocol == latest}
	p := &httpPeer{httpServer: serveHTTPWith(t, server, opts), back: make(chan struct{})}
	httpClient := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(httpClient.CloseIdleConnections)
	p.session = newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
		if p.dials.Add(1) > 1 {
			if err := await(ctx, p.back); err != nil {
				return nil, err
			}
		}
		transport := &mcp.StreamableClientTransport{Endpoint: p.URL, HTTPClient: httpClient, DisableStandaloneSSE: true}
		return client.Connect(ctx, transport, speaking(protocol))
	}, sessionConfig{})
	return p
}

// Servers reply in several ways that they don't know a session any more.
func TestForgottenSessionIsDialedAgain(t *testing.T) {
	guard := gosdk.ClientMiddleware(newGuard(t, resilience.Config{}))
	for name, body := range map[string]string{
		"go":         "session not found",
		"typescript": `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`,
		"python":     `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}`,
	} {
		for _, sending := range [][]mcp.Middleware{nil, {guard}} {
			t.Run(fmt.Sprintf("%s, %d guards", name, len(sending)), func(t *testing.T) {
				p := newHTTPPeer(t, sending...)
				first := up(t, p.session)
				require.NotEmpty(t, first.ID())
				_, err := echo(t.Context(), p.session)
				require.NoError(t, err)

				notFound := func(w http.ResponseWriter, r *http.Request) bool {
					if r.Header.Get("Mcp-Session-Id") != first.ID() {
						return false
					}
					w.WriteHeader(http.StatusNotFound)
					_, _ = io.WriteString(w, body)
					return true
				}
				p.intercept.Store(&notFound)
				_, err = echo(t.Context(), p.session)
				e := requireLost(t, err)
				assert.Equal(t, len(sending) == 0, e.RetryAfter > 0)

				close(p.back)
				require.NotSame(t, first, up(t, p.session))
				_, err = echo(t.Context(), p.session)
				require.NoError(t, err)
				assert.EqualValues(t, 2, p.dials.Load())
			})
		}
	}
}

// What a proxy does to one call must not cost the others their session.
func TestRequestThatIsCutOffKeepsTheSession(t *testing.T) {
	for name, cut := range map[string]func(http.ResponseWriter){
		"before the reply": func(http.ResponseWriter) {},
		"within the reply": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newHTTPPeer(t)
			cutOnce := func(w http.ResponseWriter, _ *http.Request) bool {
				p.intercept.Store(nil)
				cut(w)
				panic(http.ErrAbortHandler)
			}
			p.intercept.Store(&cutOnce)
			_, err := echo(t.Context(), p.session)
			requireLost(t, err)
			_, err = echo(t.Context(), p.session)
			require.NoError(t, err)
			assert.EqualValues(t, 1, p.dials.Load())
		})
	}
}

// A server without sessions knows no ping, and its answer to one is that of a server that works. Nothing that a Session
// asks costs other calls theirs.
func TestServerWithoutSessionsIsAsked(t *testing.T) {
	for name, ask := range map[string]func(*gosdk.Session) error{
		"by a probe": func(s *gosdk.Session) error { return s.Probe(t.Context()) },
		"after an error that may be the connection's": func(s *gosdk.Session) error {
			_, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "closing"})
			assert.Error(t, err)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			peer := newPeer()
			finish := make(chan struct{})
			addRaw(peer.server, &mcp.Tool{Name: "slow"}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				peer.started <- struct{}{}
				return textResult("done"), await(ctx, finish)
			})
			p := newHTTPPeerOf(t, peer.server, latest, newClient(nil))
			first := up(t, p.session)
			require.Equal(t, latest, first.InitializeResult().ProtocolVersion)

			slow := make(chan error, 1)
			go func() {
				_, err := p.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "slow"})
				slow <- err
			}()
			receive(t, peer.started)
			assert.NoError(t, ask(p.session))
			close(finish)
			assert.NoError(t, receive(t, slow))
			assert.Same(t, first, up(t, p.session))
		})
	}
}
