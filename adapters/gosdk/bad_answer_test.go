package gosdk_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
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

// An answer to one call that can't be read shuts no other tool, whose calls may end with the session. With Transport,
// one in JSON ends no other call.
func TestAnswerThatCannotBeReadShutsNoOtherTool(t *testing.T) {
	const nan = `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"structuredContent":{"mean":NaN}}}`
	for name, answer := range map[string]struct {
		media, body string
		length      string
	}{
		"JSON that breaks off": {"application/json", `{"jsonrpc":"2.0","id":%s,"result":{"content":[`, "100000"},
		"no JSON":              {"application/json", nan, ""},
		"JSON of no call":      {"application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"too large"}}`, ""},
		"other JSON":           {"application/json", `{"error":"jsonrpc"}`, ""},
		"an event of no JSON":  {"text/event-stream", "data: " + nan + "\n\n", ""},
		"no event":             {"text/event-stream", "<html>504 Gateway Timeout</html>\n\n", ""},
	} {
		for with, base := range map[string]http.RoundTripper{"plain": nil, "Transport": gosdk.Transport(nil)} {
			for _, protocol := range []string{legacy, latest} {
				t.Run(fmt.Sprint(name, ", ", with, ", ", protocol), func(t *testing.T) {
					peer, finish := newPeer(), make(chan struct{})
					addRaw(peer.server, &mcp.Tool{Name: "slow"}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
						peer.started <- struct{}{}
						return textResult("done"), await(ctx, finish)
					})
					h := serveHTTPWith(t, peer.server, &mcp.StreamableHTTPOptions{Stateless: protocol == latest})
					intercept := func(w http.ResponseWriter, r *http.Request) bool {
						body := bodyOf(r)
						if !bytes.Contains(body, []byte(`"name":"bad"`)) {
							return false
						}
						_, id, _ := strings.Cut(string(body), `"id":`)
						id, _, _ = strings.Cut(id, ",")
						w.Header().Set("Content-Type", answer.media)
						if answer.length != "" {
							w.Header().Set("Content-Length", answer.length)
						}
						_, _ = io.WriteString(w, strings.Replace(answer.body, "%s", strings.TrimSuffix(id, "}"), 1))
						return true
					}
					h.intercept.Store(&intercept)
					s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
						return newClient(nil).Connect(ctx, &mcp.StreamableClientTransport{
							Endpoint: h.URL, HTTPClient: &http.Client{Transport: base}, DisableStandaloneSSE: true,
						}, speaking(protocol))
					}, sessionConfig{})
					g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
					call := func(tool string) error {
						_, err := resilience.Do(t.Context(), g, tool, func(ctx context.Context) (*mcp.CallToolResult, error) {
							return s.CallTool(ctx, &mcp.CallToolParams{Name: tool})
						}, behindAdapter)
						return err
					}

					up(t, s)
					slow := make(chan error, 1)
					go func() { slow <- call("slow") }()
					receive(t, peer.started)
					require.Error(t, call("bad"))
					close(finish)
					err := receive(t, slow)
					if with == "Transport" || answer.length == "" { // as documented
						assert.Zero(t, g.Breaker("slow").Failures(), "%v", err)
					}
					if with == "Transport" && answer.media == "application/json" {
						assert.NoError(t, err)
					}
				})
			}
		}
	}
}

// Tools of the TypeScript SDK that return nothing are answered without a result, of which the Go SDK says no more than EOF.
// Nothing is lost by that.
func TestAnswerWithoutAResult(t *testing.T) {
	peer := newPeer()
	var slow atomic.Bool
	dial := func(client *mcp.Client) (*mcp.ClientSession, error) {
		serverEnd, clientEnd := net.Pipe()
		if _, err := peer.server.Connect(context.Background(), pipeTransport(withoutResults{serverEnd, &slow}), nil); err != nil {
			return nil, err
		}
		return client.Connect(context.Background(), pipeTransport(clientEnd), speaking(legacy))
	}
	g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
	client, err := dial(gosdk.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil, g))
	require.NoError(t, err)
	defer client.Close()
	var dials atomic.Int64
	s := newSession(t, func(context.Context) (*mcp.ClientSession, error) {
		dials.Add(1)
		return dial(newClient(nil))
	}, sessionConfig{})
	params := &mcp.CallToolParams{Name: "echo"}
	for by, call := range map[string]func() error{
		"NewClient": func() error { _, err := client.CallTool(t.Context(), params); return err },
		"Session": func() error {
			_, err := resilience.Do(t.Context(), g, "echo", func(ctx context.Context) (*mcp.CallToolResult, error) {
				return s.CallTool(ctx, params)
			}, behindAdapter)
			return err
		},
	} {
		for i := range 6 {
			slow.Store(i == 5)
			err := call()
			require.ErrorIs(t, err, resilience.CodeToolFailed, by)
			assert.ErrorContains(t, err, "without a result", by)
			assert.ErrorIs(t, err, io.EOF, by)
		}
	}
	slow.Store(false)
	assert.NoError(t, client.Ping(t.Context(), nil))
	assert.EqualValues(t, 1, dials.Load())
}

// withoutResults leaves the results of tools out, and replies to no ping while the server is slow.
type withoutResults struct {
	net.Conn
	slow *atomic.Bool
}

func (c withoutResults) Write(p []byte) (int, error) {
	if c.slow.Load() && bytes.Contains(p, []byte(`"result":{}`)) {
		return len(p), nil
	}
	if before, _, found := bytes.Cut(p, []byte(`,"result":{"content"`)); found {
		_, err := c.Conn.Write(append(bytes.Clone(before), "}\n"...))
		return len(p), err
	}
	return c.Conn.Write(p)
}

// A server that dies while it answers is lost, also if the rest of its answer could have been had later.
func TestServerThatDiesWithinAnAnswer(t *testing.T) {
	for _, retries := range []int{-1, 1} {
		for _, stores := range []bool{false, true} {
			for with, base := range map[string]http.RoundTripper{"plain": nil, "Transport": gosdk.Transport(nil)} {
				t.Run(fmt.Sprint(retries, ", ", stores, ", ", with), func(t *testing.T) {
					opts := &mcp.StreamableHTTPOptions{}
					if stores {
						opts.EventStore = mcp.NewMemoryEventStore(nil)
					}
					peer, finish := newPeer(), make(chan struct{})
					addRaw(peer.server, &mcp.Tool{Name: "slow"}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
						peer.started <- struct{}{}
						return textResult("done"), await(ctx, finish)
					})
					h := serveHTTPWith(t, peer.server, opts)
					defer close(finish)
					s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
						return newClient(nil).Connect(ctx, &mcp.StreamableClientTransport{
							Endpoint: h.URL, HTTPClient: &http.Client{Transport: base}, DisableStandaloneSSE: true, MaxRetries: retries,
						}, speaking(legacy))
					}, sessionConfig{Backoff: steady(time.Hour)})
					g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
					failed := make(chan error, 1)
					go func() {
						_, err := resilience.Do(t.Context(), g, "slow", func(ctx context.Context) (*mcp.CallToolResult, error) {
							return s.CallTool(ctx, &mcp.CallToolParams{Name: "slow"})
						}, behindAdapter, resilience.Timeout(testTimeout))
						failed <- err
					}()
					receive(t, peer.started)
					_ = h.Listener.Close()
					h.CloseClientConnections()
					requireLost(t, receive(t, failed))
					assert.Equal(t, 1, g.Breaker("slow").Failures())
				})
			}
		}
	}
}

// begunAnswer is an answer of which more could be had.
const begunAnswer = "id: 1\nretry: 10\ndata:\n\n"

// An answer that can't be resumed fails its own call, though the SDK ends all calls of the session with it.
func TestAnswerThatCannotBeResumed(t *testing.T) {
	for name, resume := range map[string]func(http.ResponseWriter){
		"cut off": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"repeated": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, begunAnswer)
		},
	} {
		testAnswerThatCannotBeResumed(t, name, resume)
	}
}

func testAnswerThatCannotBeResumed(t *testing.T, name string, resume func(http.ResponseWriter)) {
	for _, path := range []string{"", "/redirected"} {
		t.Run(name+path, func(t *testing.T) {
			peer, finish := newPeer(), make(chan struct{})
			addRaw(peer.server, &mcp.Tool{Name: "slow"}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				progress := &mcp.ProgressNotificationParams{ProgressToken: "slow", Progress: 1} // its answer has begun
				require.NoError(t, req.Session.NotifyProgress(ctx, progress))
				peer.started <- struct{}{}
				return textResult("done"), await(ctx, finish)
			})
			h := serveHTTP(t, peer.server)
			defer close(finish)
			intercept := func(w http.ResponseWriter, r *http.Request) bool {
				body := bodyOf(r)
				switch {
				case r.URL.Path == "/redirected":
					http.Redirect(w, r, "/", http.StatusTemporaryRedirect)
				case r.Header.Get("Last-Event-ID") != "":
					resume(w)
				case r.Method == http.MethodDelete: // so that the session ends at once
				case bytes.Contains(body, []byte(`"name":"bad"`)):
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, begunAnswer)
				default:
					return false
				}
				return true
			}
			h.intercept.Store(&intercept)
			s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
				return newClient(nil).Connect(ctx, &mcp.StreamableClientTransport{
					Endpoint: h.URL + path, DisableStandaloneSSE: true, MaxRetries: 1,
				}, speaking(legacy))
			}, sessionConfig{})
			g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
			call := func(tool string) error {
				_, err := resilience.Do(t.Context(), g, tool, func(ctx context.Context) (*mcp.CallToolResult, error) {
					return s.CallTool(ctx, &mcp.CallToolParams{Name: tool})
				}, behindAdapter, resilience.Timeout(testTimeout))
				return err
			}
			up(t, s)
			slow := make(chan error, 1)
			go func() { slow <- call("slow") }()
			receive(t, peer.started)
			requireLost(t, call("bad"))
			assert.Equal(t, 1, g.Breaker("bad").Failures())
			require.Error(t, receive(t, slow))
			assert.Zero(t, g.Breaker("slow").Failures())
		})
	}
}

// Where a gateway lets no pings through, a ping would end the session of a client, which has no other: none is sent
// after an answer by streamable HTTP, with sessions or without.
func TestAnswerWithoutAResultThroughAGateway(t *testing.T) {
	for _, stateless := range []bool{false, true} {
		for _, protocol := range []string{legacy, latest} {
			t.Run(fmt.Sprintf("stateless: %t, protocol %s", stateless, protocol), func(t *testing.T) {
				h := serveHTTPWith(t, newPeer().server, &mcp.StreamableHTTPOptions{Stateless: stateless})
				intercept := func(w http.ResponseWriter, r *http.Request) bool {
					var m struct {
						ID     json.RawMessage
						Method string
						Params struct{ Name string }
					}
					_ = json.Unmarshal(bodyOf(r), &m)
					switch {
					case m.Method == "ping":
						w.WriteHeader(http.StatusForbidden)
					case m.Params.Name == "silent":
						w.Header().Set("Content-Type", "application/json")
						_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s}`, m.ID)
					default:
						return false
					}
					return true
				}
				h.intercept.Store(&intercept)

				client := newClient(nil, gosdk.ClientMiddleware(newGuard(t, resilience.Config{})))
				session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
					Endpoint: h.URL, DisableStandaloneSSE: true,
				}, speaking(protocol))
				require.NoError(t, err)
				defer session.Close()
				for range 2 {
					_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "silent"})
					assert.ErrorContains(t, err, "without a result")
					_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo"})
					assert.NoError(t, err)
				}
			})
		}
	}
}
