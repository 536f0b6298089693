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

func newHTTPPeer(t *testing.T, sending ...mcp.Middleware) *httpPeer {
	leavesNothing(t)
	p := &httpPeer{httpServer: serveHTTP(t, newPeer().server), back: make(chan struct{})}
	httpClient := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(httpClient.CloseIdleConnections)
	p.session = newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
		if p.dials.Add(1) > 1 {
			if err := await(ctx, p.back); err != nil {
				return nil, err
			}
		}
		transport := &mcp.StreamableClientTransport{Endpoint: p.URL, HTTPClient: httpClient, DisableStandaloneSSE: true}
		return newClient(nil, sending...).Connect(ctx, transport, speaking(legacy))
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
