package gosdk_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
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

// What a gateway refuses.
const (
	mistake    = 400 // a call with longArguments, as an MCP server does
	noPing     = 403 // a ping
	noToken    = 401 // all that has no token, but a dial
	lostPing   = 404 // a ping
	noAnswer   = 200 // a ping, by what is no answer
	badRequest = `{"jsonrpc":"2.0","error":{"code":-32602,"message":"too long"},"id":"x"}`
	noAccess   = `{"jsonrpc":"2.0","error":{"code":-32001,"message":"invalid token"},"id":"x"}`
)

// gateway refuses mistakes, and what its second status says, by an error of MCP or by a text.
func gateway(refuses int, byText bool) func(http.ResponseWriter, *http.Request) bool {
	refuse := func(w http.ResponseWriter, status int, body string) bool {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
		return true
	}
	access := noAccess
	if byText {
		access = "no"
	}
	return func(w http.ResponseWriter, r *http.Request) bool {
		body := bodyOf(r)
		has := func(words string) bool { return bytes.Contains(body, []byte(words)) }
		dials := has(`"method":"initialize"`) || has(`"method":"server/discover"`) || has(`"method":"notifications/`)
		switch {
		case r.Method != http.MethodPost:
		case (refuses == noPing || refuses == lostPing) && has(`"method":"ping"`):
			return refuse(w, refuses, access)
		case refuses == noAnswer && has(`"method":"ping"`):
			return refuse(w, noAnswer, `{"status":"ok"}`)
		case refuses == noToken && !dials && r.Header.Get("Authorization") != "good":
			return refuse(w, noToken, access)
		case has(`"text":"xxx`):
			return refuse(w, mistake, badRequest)
		}
		return false
	}
}

// tokenOf sends the token in the context of each request.
type tokenKey struct{}

func tokenOf(base http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		token, _ := r.Context().Value(tokenKey{}).(string)
		r.Header.Set("Authorization", token)
		return base.RoundTrip(r)
	})
}

// Neither an agent's mistakes nor a user's bad token shut a tool for others, also if something before the server lets
// no ping of the session through.
func TestRefusedPingsShutNoTool(t *testing.T) {
	transports := map[string]http.RoundTripper{"plain": http.DefaultTransport, "Transport": gosdk.Transport(nil)}
	for with, base := range transports {
		for _, protocol := range []string{legacy, latest} {
			for name, tc := range map[string]struct {
				refuses   int
				byText    bool
				token     string
				arguments map[string]any
				lost      int // sessions, at most
			}{
				"a mistake, no ping":          {noPing, false, "good", longArguments, 0},
				"a mistake, no ping, by text": {noPing, true, "good", longArguments, 1},
				"a mistake, a ping is lost":   {lostPing, false, "good", longArguments, 1},
				"a mistake, one is, by text":  {lostPing, true, "good", longArguments, 2},
				"a mistake, no answer":        {noAnswer, false, "good", longArguments, 2},
				"a mistake, with tokens":      {noToken, false, "good", longArguments, 0},
				"a bad token":                 {noToken, false, "bad", nil, 1},
			} {
				t.Run(fmt.Sprint(name, ", ", with, ", ", protocol), func(t *testing.T) {
					h := serveHTTPWith(t, newPeer().server, &mcp.StreamableHTTPOptions{Stateless: protocol == latest})
					intercept := gateway(tc.refuses, tc.byText)
					h.intercept.Store(&intercept)
					var dials atomic.Int64
					s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
						dials.Add(1)
						return newClient(nil).Connect(ctx, &mcp.StreamableClientTransport{
							Endpoint: h.URL, HTTPClient: &http.Client{Transport: tokenOf(base)}, DisableStandaloneSSE: true,
						}, speaking(protocol))
					}, sessionConfig{})
					g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
					call := func(token string, arguments map[string]any) error {
						up(t, s)
						ctx := context.WithValue(t.Context(), tokenKey{}, token)
						_, err := resilience.Do(ctx, g, "echo", func(ctx context.Context) (*mcp.CallToolResult, error) {
							return s.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: arguments})
						}, behindAdapter)
						return err
					}

					lost := 0
					for range 10 {
						err := call(tc.token, tc.arguments)
						require.Error(t, err)
						if strings.Contains(err.Error(), "CONNECTION_LOST") {
							lost++
						}
					}
					assert.LessOrEqual(t, lost, tc.lost)
					assert.LessOrEqual(t, dials.Load(), 1+int64(tc.lost))
					require.NoError(t, call("good", nil))

					if tc.refuses == noPing || tc.refuses == noAnswer && with == "plain" || tc.refuses == lostPing && protocol == legacy {
						dialed := dials.Load()
						for range 3 {
							_ = s.Probe(t.Context())
							up(t, s)
						}
						assert.LessOrEqual(t, dials.Load(), dialed+2-int64(tc.lost))
						assert.Equal(t, resilience.ClassNeutral, resilience.Classify(s.Probe(t.Context())))
					}
				})
			}
		}
	}
}

// A mistake that a server answers by status 404 ends no session that the server still knows, or of which nothing is known
// since it is slow.
func TestMistakeWithStatusOfAnUnknownSession(t *testing.T) {
	h := serveHTTP(t, newPeer().server)
	var hangs atomic.Bool
	intercept := func(w http.ResponseWriter, r *http.Request) bool {
		body := bodyOf(r)
		if hangs.Load() && bytes.Contains(body, []byte(`"method":"ping"`)) {
			<-r.Context().Done()
			return true
		}
		if !bytes.Contains(body, []byte(`"text":"xxx`)) {
			return false
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, badRequest)
		return true
	}
	h.intercept.Store(&intercept)
	s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
		return newClient(nil).Connect(ctx, &mcp.StreamableClientTransport{Endpoint: h.URL, DisableStandaloneSSE: true}, speaking(legacy))
	}, sessionConfig{})
	first := up(t, s)
	require.NotEmpty(t, first.ID())
	for i := range 5 {
		hangs.Store(i == 4)
		_, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: longArguments})
		assert.Equal(t, resilience.ClassInvalid, resilience.Classify(err), "%v", err)
	}
	assert.Same(t, first, up(t, s))
}

// A session that the server has forgotten is replaced, though a call that it refuses so doesn't wait until it has refused a
// ping, too.
func TestSessionIsForgottenByASlowServer(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusBadRequest} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			h := serveHTTP(t, newPeer().server)
			s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
				return newClient(nil).Connect(ctx, &mcp.StreamableClientTransport{Endpoint: h.URL, DisableStandaloneSSE: true}, speaking(legacy))
			}, sessionConfig{})
			first, answers := up(t, s), make(chan struct{})
			intercept := func(w http.ResponseWriter, r *http.Request) bool {
				body := bodyOf(r)
				if r.Header.Get("Mcp-Session-Id") != first.ID() {
					return false
				}
				if bytes.Contains(body, []byte(`"method":"ping"`)) {
					select {
					case <-answers:
					case <-r.Context().Done():
					}
				}
				w.WriteHeader(status)
				_, _ = io.WriteString(w, badRequest)
				return true
			}
			h.intercept.Store(&intercept)
			_, err := echo(t.Context(), s)
			assert.Equal(t, resilience.ClassInvalid, resilience.Classify(err), "%v", err)
			close(answers)
			gone(t, s, first)
			up(t, s)
			_, err = echo(t.Context(), s)
			assert.NoError(t, err)
		})
	}
}

// The answer to a ping that breaks off ends its session, but says nothing of pings: a session that is forgotten later is
// replaced.
func TestPingWhoseAnswerBreaksOff(t *testing.T) {
	h := serveHTTP(t, newPeer().server)
	var whole atomic.Bool
	var forgotten atomic.Pointer[string]
	intercept := func(w http.ResponseWriter, r *http.Request) bool {
		body := bodyOf(r)
		id := forgotten.Load()
		switch {
		case id != nil && *id == r.Header.Get("Mcp-Session-Id"), bytes.Contains(body, []byte(`"text":"xxx`)):
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, badRequest)
		case bytes.Contains(body, []byte(`"method":"ping"`)) && !whole.Swap(true):
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0",`)
		default:
			return false
		}
		return true
	}
	h.intercept.Store(&intercept)
	s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
		return newClient(nil).Connect(ctx, &mcp.StreamableClientTransport{Endpoint: h.URL, DisableStandaloneSSE: true}, speaking(legacy))
	}, sessionConfig{})
	first := up(t, s)
	_, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: longArguments})
	require.Error(t, err)
	gone(t, s, first)

	second := up(t, s)
	id := second.ID()
	forgotten.Store(&id)
	_, err = echo(t.Context(), s)
	require.Error(t, err)
	gone(t, s, second)
	up(t, s)
	_, err = echo(t.Context(), s)
	assert.NoError(t, err)
}

// A guarded client has one session, which no ping of the guard's ends.
func TestMistakeBehindAGatewayKeepsTheSession(t *testing.T) {
	for _, protocol := range []string{legacy, latest} {
		t.Run(protocol, func(t *testing.T) {
			h := serveHTTPWith(t, newPeer().server, &mcp.StreamableHTTPOptions{Stateless: protocol == latest})
			intercept := gateway(noPing, true)
			h.intercept.Store(&intercept)
			client := gosdk.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil, newGuard(t, resilience.Config{}))
			cs, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
				Endpoint: h.URL, HTTPClient: &http.Client{}, DisableStandaloneSSE: true,
			}, speaking(protocol))
			require.NoError(t, err)
			defer cs.Close()
			for range 6 {
				_, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: longArguments})
				assert.ErrorIs(t, err, resilience.CodeValidation)
			}
			_, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo"})
			assert.NoError(t, err)
		})
	}
}

// A server without sessions answers a ping by status 404, which a Transport sees: it is nothing that the call was told.
func TestPingIsNoAnswerToTheCall(t *testing.T) {
	h := serveHTTPWith(t, newPeer().server, &mcp.StreamableHTTPOptions{Stateless: true})
	notAtAll := func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "tools/call" {
				return nil, fmt.Errorf("calling %q: no reason", method)
			}
			return next(ctx, method, req)
		}
	}
	client := newClient(nil, gosdk.ClientMiddleware(newGuard(t, resilience.Config{})), notAtAll)
	cs, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: h.URL, HTTPClient: &http.Client{Transport: gosdk.Transport(nil)}, DisableStandaloneSSE: true,
	}, speaking(latest))
	require.NoError(t, err)
	defer cs.Close()
	_, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo"})
	assert.ErrorIs(t, err, resilience.CodeToolFailed)
}

// A loss that a call notices first, whatever a ping says of it then, keeps no later one from being noticed.
func TestLossesAfterALoss(t *testing.T) {
	const noSession = `{"jsonrpc":"2.0","error":{"code":-32000,"message":"no valid session"},"id":"x"}`
	for name, status := range map[string]int{"two calls": 400, "an unknown session": 404, "no server": 400} {
		t.Run(name, func(t *testing.T) {
			h := serveHTTP(t, newPeer().server)
			var dials, valid, refuses atomic.Int64
			valid.Store(1)
			refuses.Store(int64(status))
			arrived, again := make(chan struct{}, 1), make(chan struct{}) // again is closed by the second dial
			intercept := func(w http.ResponseWriter, r *http.Request) bool {
				body := bodyOf(r)
				if r.Header.Get("Authorization") == fmt.Sprint(valid.Load()) {
					return false
				}
				if bytes.Contains(body, []byte("late")) {
					arrived <- struct{}{}
					<-again
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(int(refuses.Load()))
				_, _ = io.WriteString(w, noSession)
				return true
			}
			h.intercept.Store(&intercept)
			s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
				n := dials.Add(1)
				if n == 2 {
					close(again)
				}
				base := gosdk.Transport(roundTripper(func(r *http.Request) (*http.Response, error) {
					r = r.Clone(r.Context())
					r.Header.Set("Authorization", fmt.Sprint(n))
					if name == "no server" && n == 1 && r.GetBody != nil {
						body, _ := r.GetBody()
						if data, _ := io.ReadAll(body); bytes.Contains(data, []byte(`"method":"ping"`)) {
							return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
						}
					}
					return http.DefaultTransport.RoundTrip(r)
				}))
				return newClient(nil).Connect(ctx, &mcp.StreamableClientTransport{
					Endpoint: h.URL, HTTPClient: &http.Client{Transport: base}, DisableStandaloneSSE: true,
				}, speaking(legacy))
			}, sessionConfig{})
			up(t, s)
			works := func() bool { _, err := echo(t.Context(), s); return err == nil }
			require.True(t, works())

			valid.Add(1)
			late := make(chan error, 1)
			if name == "two calls" {
				go func() {
					params := &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "late"}}
					_, err := s.CallTool(t.Context(), params)
					late <- err
				}()
				receive(t, arrived)
			}
			require.Eventually(t, works, testTimeout, 10*time.Millisecond)
			if name == "two calls" {
				requireLost(t, receive(t, late))
			}

			refuses.Store(http.StatusUnauthorized)
			valid.Add(1)
			require.Eventually(t, works, testTimeout, 10*time.Millisecond)
			assert.EqualValues(t, 3, dials.Load())
		})
	}
}

// The answers of a RoundTripper needn't know their requests.
func TestTransportOfARedirectWithoutARequest(t *testing.T) {
	from := &http.Request{Method: http.MethodPost, Response: &http.Response{}}
	base := roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	})
	_, err := gosdk.Transport(base).RoundTrip(from.WithContext(t.Context()))
	assert.NoError(t, err)
}
