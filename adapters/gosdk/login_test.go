package gosdk_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
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

// A login is an *auth.OAuthHandler of which the user wants nothing.
type login struct {
	refusal error
	waits   bool // until the caller has left
	asked   atomic.Int32
}

func (*login) TokenSource(context.Context) (oauth2.TokenSource, error) { return nil, nil }

func (l *login) Authorize(ctx context.Context, _ *http.Request, res *http.Response) error {
	res.Body.Close()
	l.asked.Add(1)
	if l.waits {
		<-ctx.Done()
	}
	return l.refusal
}

// A user who doesn't log in is asked once by each call, and shuts the tool for no other.
func TestLoginThatTheUserRefuses(t *testing.T) {
	refused := errors.New("the user has refused")
	for name, refusal := range map[string]error{
		"plain":                   refused,
		"a mistake":               resilience.MarkInvalid(refused),
		"in words":                &resilience.Error{Code: resilience.CodeValidation, Message: "Log in first.", Err: refused},
		"neutral, though it ends": resilience.MarkNeutral(io.EOF),
		"in words, around a mark": &resilience.Error{Code: resilience.CodeValidation, Message: "Log in.", Err: resilience.MarkNeutral(io.EOF)},
	} {
		t.Run(name, func(t *testing.T) {
			server := newPeer().server
			h := serveHTTPWith(t, server, &mcp.StreamableHTTPOptions{Stateless: true})
			stranger := func(w http.ResponseWriter, r *http.Request) bool {
				if r.Header.Get("Mcp-Method") != "tools/call" {
					return false
				}
				w.WriteHeader(http.StatusUnauthorized)
				return true
			}
			h.intercept.Store(&stranger)
			l := &login{refusal: refusal}
			g := newGuard(t, resilience.Config{Effect: resilience.ReadOnly, Retry: fast})
			client := gosdk.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil, g)
			cs, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
				Endpoint: h.URL, OAuthHandler: l, DisableStandaloneSSE: true,
			}, speaking(latest))
			require.NoError(t, err)
			defer cs.Close()

			for n := range 6 {
				_, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo"})
				require.ErrorIs(t, err, refusal)
				assert.EqualValues(t, n+1, l.asked.Load())
			}
			h.intercept.Store(nil)
			_, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo"})
			assert.NoError(t, err)
		})
	}
}

// The SDK ends the session of all if one caller leaves within his login. What the login says then is about his call.
func TestLoginThatItsCallerLeavesCountsForNobody(t *testing.T) {
	for name, refusal := range map[string]error{
		"canceled":      context.Canceled,
		"a deadline":    context.DeadlineExceeded,
		"a guard's end": &resilience.Error{Code: resilience.CodeTimeout, Message: "Tool 'echo' exceeded timeout of 1s", Retryable: true},
		"a mark":        resilience.MarkBackend(errors.New("said")),
		"a dial":        errRefused,
		"an end":        io.EOF,
	} {
		for _, guard := range []string{"plain", "behind an adapter", "of the client"} {
			t.Run(name+", "+guard, func(t *testing.T) {
				const calls = 3
				begun := make(chan struct{}, calls)
				h := serveHTTP(t, newPeer().server)
				stranger := func(w http.ResponseWriter, r *http.Request) bool {
					switch body := bodyOf(r); {
					case bytes.Contains(body, []byte(`"echo"`)):
						w.WriteHeader(http.StatusUnauthorized)
						return true
					case bytes.Contains(body, []byte(`"slow"`)):
						w.Header().Set("Content-Type", "text/event-stream")
						_ = http.NewResponseController(w).Flush()
						<-r.Context().Done()
						return true
					}
					return false
				}
				h.intercept.Store(&stranger)
				httpClient := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					res, err := http.DefaultTransport.RoundTrip(r)
					if err == nil && res.Header.Get("Content-Type") == "text/event-stream" && r.Method == http.MethodPost {
						begun <- struct{}{}
					}
					return res, err
				})}

				l := &login{refusal: refusal, waits: true}
				g := newGuard(t, resilience.Config{Effect: resilience.NonIdempotent})
				var sending []mcp.Middleware
				var opts []resilience.Option
				switch guard {
				case "behind an adapter":
					opts = append(opts, behindAdapter)
				case "of the client":
					sending = append(sending, gosdk.ClientMiddleware(g))
				}
				s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
					return newClient(nil, sending...).Connect(ctx, &mcp.StreamableClientTransport{
						Endpoint: h.URL, HTTPClient: httpClient, OAuthHandler: l, DisableStandaloneSSE: true,
					}, speaking(legacy))
				}, sessionConfig{})
				for len(begun) > 0 {
					<-begun
				}
				first := up(t, s)
				failed := make(chan error, calls)
				for range calls {
					go func() {
						call := func(ctx context.Context) (*mcp.CallToolResult, error) {
							return s.CallTool(ctx, &mcp.CallToolParams{Name: "slow"})
						}
						var err error
						if guard == "of the client" {
							_, err = call(t.Context())
						} else {
							_, err = resilience.Do(t.Context(), g, "slow", call, opts...)
						}
						failed <- err
					}()
				}
				for range calls {
					receive(t, begun)
				}

				ctx, cancel := context.WithCancel(t.Context())
				left := make(chan error, 1)
				go func() {
					_, err := echo(ctx, s)
					left <- err
				}()
				require.Eventually(t, func() bool { return l.asked.Load() > 0 }, testTimeout, time.Millisecond)
				cancel()
				require.Error(t, receive(t, left))
				for range calls {
					err := receive(t, failed)
					e := resilience.AsError("", err)
					assert.Equal(t, resilience.CodeConnectionLost, e.Code, "%v", err)
					assert.Contains(t, e.Message, "a login for another call was canceled")
					assert.False(t, e.Retryable)
				}
				assert.Zero(t, g.Breaker("slow").Failures())
				assert.False(t, first == up(t, s))
			})
		}
	}
}
