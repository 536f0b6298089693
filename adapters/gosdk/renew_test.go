package gosdk_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
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
		body, isIn := bodyOf(r), r.Header.Get("Authorization") != ""
		switch {
		case isIn && bytes.Contains(body, []byte(`"slow"`)):
			<-r.Context().Done()
		case isIn || !bytes.Contains(body, []byte(method)):
			return false
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
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
	for _, in := range []string{
		"a call", "a call that timed out", "a call by a deadline",
		"a dial that failed", "a dial that timed out", "a session that was closed", "a session that has ended",
	} {
		for _, guarded := range []string{"a Session", "a client"} {
			t.Run(in+", "+guarded, func(t *testing.T) {
				l := &renewal{renew: renewHTTP}
				method := "initialize"
				if strings.HasPrefix(in, "a call") {
					method = "tools/call"
				}
				h := serveLoggedIn(t, newPeer().server, method)
				g := newGuard(t, resilience.Config{
					Tools:   map[string]resilience.Tool{"slow": {Timeout: 50 * time.Millisecond}},
					Breaker: resilience.BreakerConfig{Failures: 1},
				})
				client := newClient(nil)
				if guarded == "a client" {
					client.AddSendingMiddleware(gosdk.ClientMiddleware(g))
				}
				cfg := sessionConfig{}
				if in == "a dial that timed out" {
					cfg.DialTimeout = time.Second / 2
				}
				var dials atomic.Int64
				s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
					cs, err := client.Connect(ctx, l.transport(h), speaking(legacy))
					if dials.Add(1) > 1 || err != nil || !strings.HasPrefix(in, "a dial") {
						return cs, err
					}
					if in == "a dial that timed out" {
						<-ctx.Done()
					}
					return nil, errors.Join(cs.Close(), io.ErrUnexpectedEOF)
				}, cfg)
				call := func(ctx context.Context, name string) error {
					call := func(ctx context.Context) (*mcp.CallToolResult, error) {
						return s.CallTool(ctx, &mcp.CallToolParams{Name: name})
					}
					var err error
					if guarded == "a client" {
						_, err = call(ctx)
					} else {
						_, err = resilience.Do(ctx, g, name, call)
					}
					return err
				}

				switch cs := up(t, s); in {
				case "a call that timed out":
					require.ErrorIs(t, call(t.Context(), "slow"), resilience.CodeTimeout)
				case "a call by a deadline":
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					defer cancel()
					_, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "slow"})
					require.ErrorIs(t, err, context.DeadlineExceeded)
				case "a session that was closed":
					s.ReportLost(cs, nil)
					gone(t, s, cs)
				case "a session that has ended":
					_ = cs.Close()
					gone(t, s, cs)
				}
				cs := up(t, s)
				require.NoError(t, call(t.Context(), "echo"))

				receive(t, (*l.ctx.Load()).Done())
				l.expired.Store(true)
				for range 3 {
					err := call(t.Context(), "echo")
					assert.ErrorIs(t, err, resilience.CodeToolFailed)
					assert.NotErrorIs(t, err, resilience.CodeTimeout)
					assert.ErrorIs(t, err, context.Canceled)
					var request *url.Error
					assert.ErrorAs(t, err, &request)
				}
				assert.Equal(t, resilience.StateClosed, g.Breaker("echo").State())
				l.expired.Store(false)
				assert.NoError(t, call(t.Context(), "echo"))
				assert.True(t, cs == up(t, s))
			})
		}
	}
}

// A client's http.RoundTripper may have a timeout of its own. If a request has begun by then, the server hangs.
func TestTimeoutOfARoundTripperCounts(t *testing.T) {
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
		res, err := http.DefaultTransport.RoundTrip(r.WithContext(ctx))
		if err != nil {
			err = resilience.TimeoutError("backend", time.Second)
		}
		return res, err
	})}
	s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
		return newClient(nil).Connect(ctx, &mcp.StreamableClientTransport{
			Endpoint: h.URL, HTTPClient: client, DisableStandaloneSSE: true,
		}, speaking(legacy))
	}, sessionConfig{})
	g := newGuard(t, resilience.Config{})
	_, err := resilience.Do(t.Context(), g, "echo", func(ctx context.Context) (*mcp.CallToolResult, error) { return echo(ctx, s) })
	assert.ErrorIs(t, err, resilience.CodeTimeout)
	assert.Equal(t, 1, g.Breaker("echo").Failures())
}
