package gosdk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// longArguments are too long for the servers of these tests.
var longArguments = map[string]any{"text": strings.Repeat("x", 10_000)}

// behindAdapter is the option of a call behind an adapter.
var behindAdapter = resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral})

// refusing refuses POST requests that are too long with a status and a page, as a proxy does.
func refusing(next http.Handler, status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			body, _ := io.ReadAll(r.Body)
			if len(body) > 10_000 {
				if status < 400 {
					w.Header().Set("Location", "/login")
				}
				w.Header().Set("Content-Type", "text/html")
				w.WriteHeader(status)
				_, _ = io.WriteString(w, "<html>no</html>")
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		if r.URL.Path == "/login" {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<html>log in</html>")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// An agent whose request is refused shuts the tool for no other, over any transport of HTTP, with or without sessions;
// a server in trouble does.
func TestRefusalOfOneRequest(t *testing.T) {
	for _, status := range []int{200, 302, 303, 400, 401, 403, 404, 408, 413, 419, 422, 500, 501} {
		counted := status == 500
		for name, connect := range refusingServers {
			if status == http.StatusNotFound && name == "stateful" || status < 400 && name == "SSE" {
				continue // it says that the session is over, or that all is well
			}
			for _, by := range []string{"a session", "a client"} {
				t.Run(fmt.Sprint(status, ", ", name, ", ", by), func(t *testing.T) {
					g := newGuard(t, resilience.Config{Effect: resilience.NonIdempotent, Retry: fast})
					dial := connect(t, status)
					var call func(map[string]any) error
					if by == "a session" {
						s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) { return dial(ctx, newClient(nil)) }, sessionConfig{})
						call = func(arguments map[string]any) error {
							up(t, s)
							_, err := resilience.Do(t.Context(), g, "echo", func(ctx context.Context) (*mcp.CallToolResult, error) {
								return s.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: arguments})
							}, behindAdapter)
							return err
						}
					} else {
						client := gosdk.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil, g)
						call = func(arguments map[string]any) error {
							cs, err := dial(t.Context(), client)
							require.NoError(t, err)
							defer cs.Close()
							_, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: arguments})
							return err
						}
					}

					for range 5 {
						var e *resilience.Error
						require.ErrorAs(t, call(longArguments), &e)
						assert.NotEqual(t, resilience.CodeConnectionLost, e.Code, "the server has answered")
					}
					assert.Equal(t, counted, g.Breaker("echo").State() == resilience.StateOpen)
					if !counted {
						assert.NoError(t, call(nil))
					}
				})
			}
		}
	}
}

// A refusingDial connects a client with a server that refuses what is too long.
type refusingDial = func(context.Context, *mcp.Client) (*mcp.ClientSession, error)

var refusingServers = map[string]func(t *testing.T, status int) refusingDial{
	"stateless": func(t *testing.T, status int) refusingDial { return serveRefusing(t, latest, status, nil) },
	"stateful":  func(t *testing.T, status int) refusingDial { return serveRefusing(t, legacy, status, nil) },
	"SSE": func(t *testing.T, status int) refusingDial {
		server := newPeer().server
		h := httptest.NewServer(refusing(mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return server }, nil), status))
		t.Cleanup(h.Close)
		t.Cleanup(h.CloseClientConnections)
		return func(ctx context.Context, client *mcp.Client) (*mcp.ClientSession, error) {
			return client.Connect(ctx, &mcp.SSEClientTransport{Endpoint: h.URL}, speaking(legacy))
		}
	},
}

func serveRefusing(t *testing.T, protocol string, status int, transport http.RoundTripper) refusingDial {
	server := newPeer().server
	h := httptest.NewServer(refusing(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: protocol == latest}), status))
	t.Cleanup(h.Close)
	t.Cleanup(h.CloseClientConnections)
	return func(ctx context.Context, client *mcp.Client) (*mcp.ClientSession, error) {
		return client.Connect(ctx, &mcp.StreamableClientTransport{
			Endpoint: h.URL, HTTPClient: &http.Client{Transport: transport}, DisableStandaloneSSE: true,
		}, speaking(protocol))
	}
}

// With Transport, the session stays, and the call at fault reads why it was refused.
func TestTransportKeepsTheSessionOfOthers(t *testing.T) {
	for _, protocol := range []string{latest, legacy} {
		for status, want := range map[int]resilience.Code{
			400: resilience.CodeValidation, 401: resilience.CodeValidation, 413: resilience.CodeValidation,
			419: resilience.CodeValidation, 200: resilience.CodeToolFailed, 302: resilience.CodeToolFailed,
			408: resilience.CodeToolFailed, 500: resilience.CodeToolFailed, 503: resilience.CodeToolFailed,
			404: resilience.CodeValidation,
		} {
			if status == http.StatusNotFound && protocol == legacy {
				continue // the session is over
			}
			t.Run(fmt.Sprint(status, ", ", protocol), func(t *testing.T) {
				dial := serveRefusing(t, protocol, status, gosdk.Transport(nil))
				g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
				s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) { return dial(ctx, newClient(nil)) },
					sessionConfig{})
				first := up(t, s)
				for range 5 {
					_, err := resilience.Do(t.Context(), g, "echo", func(ctx context.Context) (*mcp.CallToolResult, error) {
						return s.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: longArguments})
					}, behindAdapter)
					var e *resilience.Error
					require.ErrorAs(t, err, &e)
					assert.Equal(t, want, e.Code, "%v", e.Err)
				}
				_, err := echo(t.Context(), s)
				require.NoError(t, err)
				assert.Same(t, first, up(t, s))
				assert.Equal(t, status >= 500, g.Breaker("echo").State() == resilience.StateOpen)
			})
		}
	}
}

// What is an answer of MCP, or tells of the session, stays as it is.
func TestTransportLeavesWhatTheSDKKnows(t *testing.T) {
	const call, note = `{"jsonrpc":"2.0","id":7,"method":"tools/call"}`, `{"jsonrpc":"2.0","method":"notifications/cancelled"}`
	const answer, page = `{"jsonrpc":"2.0","id":7,"result":{}}`, "<html>no</html>"
	for name, tc := range map[string]struct {
		method, sent string
		status       int
		media, body  string
		same         bool
	}{
		"an error of MCP":                        {"POST", call, 400, "application/json", `{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"no"}}`, true},
		"an answer":                              {"POST", call, 200, "application/json", answer, true},
		"a long answer":                          {"POST", call, 200, "application/json", strings.Repeat(" ", 2<<20) + answer, true},
		"a stream":                               {"POST", call, 200, "text/event-stream", "data: x", true},
		"a stream, of a charset":                 {"POST", call, 200, "text/event-stream; charset=utf-8", "data: x", true},
		"no such session":                        {"POST", call, 404, "text/html", page, true},
		"no such page, of no session":            {"POST", call, 404, "text/html", page, false},
		"a busy server":                          {"POST", call, 503, "text/html", page, true},
		"no stream to get":                       {"GET", "", 405, "text/html", page, true},
		"what is asked is answered, and refused": {"POST", answer, 413, "text/html", page, true},
		"accepted":                               {"POST", note, 202, "", "", true},
		"accepted, a page":                       {"POST", note, 200, "text/html", page, true},
		"no message":                             {"POST", "hello", 400, "text/html", page, true},
		"a text":                                 {"POST", call, 400, "text/plain", "no", false},
		"an error without an ID":                 {"POST", call, 400, "application/json", `{"jsonrpc":"2.0","error":{"code":-32602,"message":"own words","data":{"a":1}},"id":null}`, false},
		"a result with 400":                      {"POST", call, 400, "application/json", answer, false},
		"nothing":                                {"POST", call, 500, "", "", false},
		"nothing, for 204":                       {"POST", call, 204, "", "", false},
		"a long text":                            {"POST", call, 413, "text/html", strings.Repeat("x", 2<<20), false},
		"a page":                                 {"POST", call, 200, "text/html", page, false},
		"JSON":                                   {"POST", call, 200, "application/json", `{"error":"invalid_token"}`, false},
		"a status of one's own, for a notification": {"POST", note, 460, "text/html", page, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tc.media)
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			}))
			defer h.Close()
			client := &http.Client{Transport: gosdk.Transport(nil)}
			defer client.CloseIdleConnections()
			req, err := http.NewRequestWithContext(t.Context(), tc.method, h.URL, strings.NewReader(tc.sent))
			require.NoError(t, err)
			if name == "no such session" {
				req.Header.Set("Mcp-Session-Id", "1")
			}
			res, err := client.Do(req)
			require.NoError(t, err)
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			if tc.same {
				assert.Equal(t, tc.status, res.StatusCode)
				assert.Equal(t, tc.body, string(body))
				return
			}

			message, err := jsonrpc.DecodeMessage(body)
			require.NoError(t, err, "%s", body)
			refused := message.(*jsonrpc.Response)
			var wire *jsonrpc.Error
			require.ErrorAs(t, refused.Error, &wire)
			assert.EqualValues(t, len(body), res.ContentLength)
			if tc.status >= 300 {
				assert.Equal(t, tc.status, res.StatusCode)
				own := strings.Contains(tc.body, `"own words"`)
				assert.Equal(t, own, wire.Code == jsonrpc.CodeInvalidParams && wire.Message == "own words" && string(wire.Data) == `{"a":1}`)
				return
			}
			assert.Equal(t, http.StatusOK, res.StatusCode)
			assert.EqualValues(t, 7, refused.ID.Raw())
			assert.Contains(t, wire.Message, fmt.Sprint(tc.status))
		})
	}
}

// What a client's own transport says of a request that it doesn't send stands, as does what net/http says.
func TestRequestThatTheClientDoesNotSend(t *testing.T) {
	stranger := errors.New("this user isn't logged in")
	for name, tc := range map[string]struct {
		tool string
		err  error
	}{
		"a mistake":                {"echo", resilience.MarkInvalid(stranger)},
		"neutral, though it ends":  {"echo", resilience.MarkNeutral(io.EOF)},
		"a name that is no header": {"echo\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := serveHTTPWith(t, newPeer().server, &mcp.StreamableHTTPOptions{Stateless: true})
			var fails atomic.Bool
			transport := roundTripper(func(r *http.Request) (*http.Response, error) {
				if tc.err != nil && fails.Load() {
					return nil, tc.err
				}
				return http.DefaultTransport.RoundTrip(r)
			})
			g := newGuard(t, resilience.Config{Effect: resilience.ReadOnly, Retry: fast})
			client := gosdk.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil, g)
			cs, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
				Endpoint: h.URL, HTTPClient: &http.Client{Transport: transport}, DisableStandaloneSSE: true,
			}, speaking(latest))
			require.NoError(t, err)
			defer cs.Close()

			fails.Store(true)
			for range 6 {
				_, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tc.tool})
				require.Error(t, err)
				assert.NotErrorIs(t, err, resilience.CodeCircuitOpen)
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A server's own codes mean what it says, not what the SDK means by them.
func TestCodesOfAServersOwn(t *testing.T) {
	for _, code := range []int64{-32000, -32001, -32003, -32004, -32005, -32006, -32603} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, resilience.Config{Effect: resilience.ReadOnly, Retry: fast}, nil)
			runs := 0
			f.raw("x", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				runs++
				return nil, &jsonrpc.Error{Code: code, Message: "forbidden for this user"}
			})
			f.connect(latest, gosdk.ClientMiddleware(f.guard))
			_, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "x"})
			assert.ErrorIs(t, err, resilience.CodeToolFailed, "%d", code)
			assert.Equal(t, 1, runs, "%d", code)
			assert.Zero(t, f.guard.Breaker("x").Failures(), "%d", code)
		})
	}
}

// A RoundTripper of the user's may leave out what net/http doesn't.
func TestTransportOfABareAnswer(t *testing.T) {
	transport := gosdk.Transport(roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusBadRequest}, nil
	}))
	req, err := http.NewRequest(http.MethodPost, "http://peer", strings.NewReader(`{"jsonrpc":"2.0","id":7,"method":"tools/call"}`))
	require.NoError(t, err)
	res, err := transport.RoundTrip(req)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	assert.Contains(t, string(body), http.StatusText(http.StatusBadRequest))
}
