package gosdk_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

// A server that has forgotten the session may refuse each request by any status, and so does one to which the token of
// the dial has expired: the next dial mends both, also if a Transport keeps what is refused from ending the session.
func TestSessionOfWhichEachRequestIsRefused(t *testing.T) {
	for name, refusal := range map[string]struct {
		status int
		body   string
	}{
		"an error of MCP": {400, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"No valid session ID provided"},"id":null}`},
		"with an ID":      {400, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"No valid session ID provided"},"id":"x"}`},
		"a text":          {400, "Bad Request: No valid session ID provided"},
		"a token":         {401, "invalid_token"},
		"a login page":    {200, "<html>log in</html>"},
		"a status alone":  {440, ""},
		"a method":        {501, "what?"},
	} {
		for with, base := range map[string]http.RoundTripper{"plain": http.DefaultTransport, "Transport": gosdk.Transport(nil)} {
			for _, protocol := range []string{legacy, latest} {
				for _, asked := range []string{"by a call", "by a probe"} {
					t.Run(fmt.Sprint(name, ", ", with, ", ", protocol, ", ", asked), func(t *testing.T) {
						h := serveHTTPWith(t, newPeer().server, &mcp.StreamableHTTPOptions{Stateless: protocol == latest})
						var dials, valid atomic.Int64
						valid.Store(1)
						refuses := func(w http.ResponseWriter, r *http.Request) bool {
							if r.Header.Get("Authorization") == fmt.Sprint(valid.Load()) {
								return false
							}
							w.Header().Set("Content-Type", "text/plain")
							w.WriteHeader(refusal.status)
							_, _ = io.WriteString(w, refusal.body)
							return true
						}
						h.intercept.Store(&refuses)
						s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
							token := fmt.Sprint(dials.Add(1))
							transport := roundTripper(func(r *http.Request) (*http.Response, error) {
								r = r.Clone(r.Context())
								r.Header.Set("Authorization", token)
								return base.RoundTrip(r)
							})
							return newClient(nil).Connect(ctx, &mcp.StreamableClientTransport{
								Endpoint: h.URL, HTTPClient: &http.Client{Transport: transport}, DisableStandaloneSSE: true,
							}, speaking(protocol))
						}, sessionConfig{})

						works := func() bool {
							if asked == "by a probe" {
								return s.Probe(t.Context()) == nil
							}
							_, err := echo(t.Context(), s)
							return err == nil
						}
						for again := range int64(2) {
							valid.Add(1)
							require.False(t, works())
							require.Eventually(t, works, testTimeout, 10*time.Millisecond)
							assert.EqualValues(t, 2+again, dials.Load())
						}
					})
				}
			}
		}
	}
}

// The token of one user, which the transport takes from the context of each call, is none of the session's.
func TestTokenOfOneUserThatIsRefused(t *testing.T) {
	type user struct{}
	h := serveHTTPWith(t, newPeer().server, &mcp.StreamableHTTPOptions{Stateless: true})
	refuses := func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") != "stranger" {
			return false
		}
		http.Error(w, "invalid_token", http.StatusUnauthorized)
		return true
	}
	h.intercept.Store(&refuses)
	base := gosdk.Transport(nil)
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		token, _ := r.Context().Value(user{}).(string)
		r.Header.Set("Authorization", token)
		return base.RoundTrip(r)
	})
	s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
		return newClient(nil).Connect(ctx, &mcp.StreamableClientTransport{
			Endpoint: h.URL, HTTPClient: &http.Client{Transport: transport}, DisableStandaloneSSE: true,
		}, speaking(latest))
	}, sessionConfig{})
	first := up(t, s)
	_, err := echo(context.WithValue(t.Context(), user{}, "stranger"), s)
	require.Error(t, err)
	assert.NotErrorIs(t, err, resilience.CodeConnectionLost)
	_, err = echo(context.WithValue(t.Context(), user{}, "friend"), s)
	require.NoError(t, err)
	assert.Same(t, first, up(t, s))
}

// A server that dies within each answer is in trouble, whatever it says when the answer is asked for again.
func TestAnswersThatBreakOff(t *testing.T) {
	for resumed, body := range map[int]string{
		200: "<html>", 400: "no", 401: "no", 404: "no", 503: "wait",
		405: `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"no"}}`,
	} {
		for with, base := range map[string]http.RoundTripper{"plain": nil, "Transport": gosdk.Transport(nil)} {
			t.Run(fmt.Sprint(resumed, ", ", with), func(t *testing.T) {
				h := serveHTTPWith(t, newPeer().server, &mcp.StreamableHTTPOptions{Stateless: true})
				breaks := func(w http.ResponseWriter, r *http.Request) bool {
					switch {
					case r.Method == http.MethodGet:
						w.Header().Set("Content-Type", "text/html")
						w.WriteHeader(resumed)
						_, _ = io.WriteString(w, body)
						return true
					case r.Header.Get("Mcp-Method") != "tools/call":
						return false
					}
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, "id: 1\nretry: 1\ndata:\n\n")
					_ = http.NewResponseController(w).Flush()
					panic(http.ErrAbortHandler)
				}
				h.intercept.Store(&breaks)
				s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
					return newClient(nil).Connect(ctx, &mcp.StreamableClientTransport{
						Endpoint: h.URL, HTTPClient: &http.Client{Transport: base}, DisableStandaloneSSE: true, MaxRetries: 1,
					}, speaking(latest))
				}, sessionConfig{})
				g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
				_, err := resilience.Do(t.Context(), g, "echo", func(ctx context.Context) (*mcp.CallToolResult, error) {
					return s.CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
				}, behindAdapter)
				require.Error(t, err)
				assert.Equal(t, 1, g.Breaker("echo").Failures(), "%v", err)
			})
		}
	}
}

// What ends a session although its server is in no trouble costs others their calls, and shuts no tool for them: an
// agent that reads what is longer than the client's own limit, and one that leaves within its answer.
func TestAgentThatEndsTheSessionOfOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		media, answer string
		timeout       time.Duration
	}{
		"a long answer":   {"text/event-stream", "data: " + strings.Repeat("x", 100_000), time.Minute},
		"a slow answer":   {"application/json", `{"jsonrpc":"2.0",`, 100 * time.Millisecond},
		"what isn't JSON": {"application/json", "<html>", time.Minute},
	} {
		for with, base := range map[string]http.RoundTripper{"plain": nil, "Transport": gosdk.Transport(nil)} {
			t.Run(fmt.Sprint(name, ", ", with), func(t *testing.T) {
				p := newPeer()
				finish := make(chan struct{})
				addRaw(p.server, &mcp.Tool{Name: "slow"}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					p.started <- struct{}{}
					return textResult("done"), await(ctx, finish)
				})
				h := serveHTTPWith(t, p.server, &mcp.StreamableHTTPOptions{Stateless: true})
				t.Cleanup(func() { close(finish) }) // the tool doesn't hear that its client has left
				answers := func(w http.ResponseWriter, r *http.Request) bool {
					if r.Header.Get("Mcp-Name") != "echo" {
						return false
					}
					w.Header().Set("Content-Type", tc.media)
					_, _ = io.WriteString(w, tc.answer)
					_ = http.NewResponseController(w).Flush()
					if tc.timeout < time.Minute {
						<-r.Context().Done()
					}
					return true
				}
				h.intercept.Store(&answers)
				s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
					return newClient(nil).Connect(ctx, &mcp.StreamableClientTransport{
						Endpoint: h.URL, HTTPClient: &http.Client{Transport: base}, DisableStandaloneSSE: true, MaxEventSize: 10_000,
					}, speaking(latest))
				}, sessionConfig{})
				g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
				call := func(tool string, timeout time.Duration) error {
					_, err := resilience.Do(t.Context(), g, tool, func(ctx context.Context) (*mcp.CallToolResult, error) {
						return s.CallTool(ctx, &mcp.CallToolParams{Name: tool})
					}, behindAdapter, resilience.Timeout(timeout))
					return err
				}

				others := make(chan error, 5)
				for range 5 {
					go func() { others <- call("slow", time.Second) }()
				}
				for range 5 {
					receive(t, p.started)
				}
				require.Error(t, call("echo", tc.timeout))
				for range 5 {
					err := receive(t, others)
					require.Error(t, err)
					assert.NotErrorIs(t, err, resilience.CodeConnectionLost)
				}
			})
		}
	}
}
