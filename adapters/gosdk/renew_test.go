package gosdk_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"
)

// A renewal is an *auth.OAuthHandler whose token is renewed for each request once it has expired.
type renewal struct {
	expired atomic.Bool
	renew   func(ctx context.Context) error
	ctx     atomic.Pointer[context.Context] // that of the login, as a handler of the SDK's keeps it
}

func (r *renewal) TokenSource(context.Context) (oauth2.TokenSource, error) {
	if r.ctx.Load() == nil {
		return nil, nil
	}
	return r, nil
}

func (r *renewal) Authorize(ctx context.Context, _ *http.Request, res *http.Response) error {
	res.Body.Close()
	r.ctx.Store(&ctx)
	return nil
}

func (r *renewal) Token() (*oauth2.Token, error) {
	if r.expired.Load() {
		if err := r.renew(*r.ctx.Load()); err != nil {
			return nil, err
		}
	}
	return &oauth2.Token{AccessToken: "t"}, nil
}

func (r *renewal) transport(h *httpServer) *mcp.StreamableClientTransport {
	return &mcp.StreamableClientTransport{Endpoint: h.URL, OAuthHandler: r, DisableStandaloneSSE: true}
}

// serveLoggedIn serves over HTTP, but the method only those who have logged in.
func serveLoggedIn(t *testing.T, server *mcp.Server, method string) *httpServer {
	h := serveHTTP(t, server)
	stranger := func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") != "" || !bytes.Contains(bodyOf(r), []byte(method)) {
			return false
		}
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	h.intercept.Store(&stranger)
	return h
}

// While a login renews a token, the SDK holds the lock of its connection.
func TestCallsWhileALoginHangs(t *testing.T) {
	for _, guarded := range []string{"a Session", "a client within a Session", "a client", "a client that is connected"} {
		t.Run(guarded, func(t *testing.T) {
			release := make(chan struct{})
			defer close(release)
			l := &renewal{renew: func(context.Context) error { <-release; return nil }}
			ctx := t.Context()
			l.ctx.Store(&ctx)
			h := serveHTTP(t, newPeer().server)
			g := newGuard(t, resilience.Config{
				Tools:   map[string]resilience.Tool{"echo": {Timeout: 50 * time.Millisecond}},
				Breaker: resilience.BreakerConfig{Failures: 2},
			})
			client := newClient(nil)
			if guarded == "a client" || guarded == "a client within a Session" {
				client.AddSendingMiddleware(gosdk.ClientMiddleware(g))
			}
			s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
				return client.Connect(ctx, l.transport(h), speaking(legacy))
			}, sessionConfig{})
			cs := up(t, s)
			if guarded == "a client that is connected" {
				client.AddSendingMiddleware(gosdk.ClientMiddleware(g))
			}

			call := func(ctx context.Context) (*mcp.CallToolResult, error) { return echo(ctx, s) }
			switch guarded {
			case "a Session":
				call = func(ctx context.Context) (*mcp.CallToolResult, error) {
					return resilience.Do(ctx, g, "echo", func(ctx context.Context) (*mcp.CallToolResult, error) { return echo(ctx, s) })
				}
			case "a client", "a client that is connected":
				call = func(ctx context.Context) (*mcp.CallToolResult, error) {
					return cs.CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
				}
			}
			l.expired.Store(true)
			for _, want := range []resilience.Code{resilience.CodeTimeout, resilience.CodeTimeout, resilience.CodeCircuitOpen} {
				failed := make(chan error, 1)
				go func() { _, err := call(t.Context()); failed <- err }()
				assert.ErrorIs(t, receive(t, failed), want)
			}
		})
	}
}

// renewHTTP renews a token as a handler does that uses its context for that.
func renewHTTP(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1/token", nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err == nil {
		_ = res.Body.Close()
	}
	return err
}

// A handler may renew its token with the context of the call, or of the dial, in which it logged in, as the SDK's own
// ClientCredentialsHandler does. Once that has ended, no call is sent, and that tells nothing of the server.
func TestLoginWithAContextThatHasEnded(t *testing.T) {
	for _, in := range []string{"a call", "a dial that failed", "a session that was closed", "a session that has ended"} {
		for _, guarded := range []string{"a Session", "a client"} {
			t.Run(in+", "+guarded, func(t *testing.T) {
				l := &renewal{renew: renewHTTP}
				method := "initialize"
				if in == "a call" {
					method = "tools/call"
				}
				h := serveLoggedIn(t, newPeer().server, method)
				g := newGuard(t, resilience.Config{Breaker: resilience.BreakerConfig{Failures: 1}})
				client := newClient(nil)
				if guarded == "a client" {
					client.AddSendingMiddleware(gosdk.ClientMiddleware(g))
				}
				var dials atomic.Int64
				s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
					cs, err := client.Connect(ctx, l.transport(h), speaking(legacy))
					if dials.Add(1) > 1 || err != nil || in != "a dial that failed" {
						return cs, err
					}
					return nil, errors.Join(cs.Close(), io.ErrUnexpectedEOF)
				}, sessionConfig{})
				call := func() error {
					call := func(ctx context.Context) (*mcp.CallToolResult, error) { return echo(ctx, s) }
					var err error
					if guarded == "a client" {
						_, err = call(t.Context())
					} else {
						_, err = resilience.Do(t.Context(), g, "echo", call)
					}
					return err
				}

				switch cs := up(t, s); in {
				case "a session that was closed":
					s.ReportLost(cs, nil)
					gone(t, s, cs)
				case "a session that has ended":
					_ = cs.Close()
					gone(t, s, cs)
				}
				cs := up(t, s)
				require.NoError(t, call())

				receive(t, (*l.ctx.Load()).Done())
				l.expired.Store(true)
				for range 3 {
					err := call()
					assert.ErrorIs(t, err, resilience.CodeToolFailed)
					assert.ErrorIs(t, err, context.Canceled)
					var request *url.Error
					assert.ErrorAs(t, err, &request)
				}
				assert.Equal(t, resilience.StateClosed, g.Breaker("echo").State())
				l.expired.Store(false)
				assert.NoError(t, call())
				assert.True(t, cs == up(t, s))
			})
		}
	}
}

// A client's http.RoundTripper may give a request up. If that has begun by then, the server hangs.
func TestRequestThatARoundTripperGivesUpCounts(t *testing.T) {
	h := serveHTTP(t, newPeer().server)
	begun := make(chan struct{}, 1)
	hanging := func(_ http.ResponseWriter, r *http.Request) bool {
		if !bytes.Contains(bodyOf(r), []byte("tools/call")) {
			return false
		}
		begun <- struct{}{}
		<-r.Context().Done()
		return true
	}
	h.intercept.Store(&hanging)
	client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if !bytes.Contains(bodyOf(r), []byte("tools/call")) {
			return http.DefaultTransport.RoundTrip(r)
		}
		ctx, cancel := context.WithCancel(r.Context())
		go func() { <-begun; cancel() }()
		return http.DefaultTransport.RoundTrip(r.WithContext(ctx))
	})}
	s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
		return newClient(nil).Connect(ctx, &mcp.StreamableClientTransport{
			Endpoint: h.URL, HTTPClient: client, DisableStandaloneSSE: true,
		}, speaking(legacy))
	}, sessionConfig{})
	g := newGuard(t, resilience.Config{})
	_, err := resilience.Do(t.Context(), g, "echo", func(ctx context.Context) (*mcp.CallToolResult, error) { return echo(ctx, s) })
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 1, g.Breaker("echo").Failures())
}
