//lint:file-ignore SA1019 servers still ask for sampling and roots
package gosdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// contacts is how a tool contacts its client.
var contacts = map[string]func(context.Context, *mcp.CallToolRequest) error{
	"elicitation": func(ctx context.Context, req *mcp.CallToolRequest) error {
		return askedOf["elicitation"].ask(ctx, req.Session)
	},
	"sampling": func(ctx context.Context, req *mcp.CallToolRequest) error {
		return askedOf["sampling"].ask(ctx, req.Session)
	},
	"roots": func(ctx context.Context, req *mcp.CallToolRequest) error {
		return askedOf["roots"].ask(ctx, req.Session)
	},
	"ping": func(ctx context.Context, req *mcp.CallToolRequest) error { return req.Session.Ping(ctx, nil) },
	"progress": func(ctx context.Context, req *mcp.CallToolRequest) error {
		return gosdk.NotifyProgress(ctx, req, 1, 0, "")
	},
	"a log message": func(ctx context.Context, req *mcp.CallToolRequest) error {
		return req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "error", Data: "so far"})
	},
}

// isContact reports whether a server's message is one of contacts.
func isContact(method string) bool {
	switch method {
	case "elicitation/create", "sampling/createMessage", "roots/list", "ping",
		"notifications/progress", "notifications/message":
		return true
	}
	return false
}

// connectContacted connects a client that can be contacted in each way.
func (f *fixture) connectContacted() {
	f.Helper()
	answerAfter(&f.options, 0)
	f.connect(legacy)
	require.NoError(f, f.session.SetLoggingLevel(f.Context(), &mcp.SetLoggingLevelParams{Level: "info"}))
}

// The backend has no part in it, even if the error looks as if it had.
func TestFailureToReachTheClientIsNotTheBackends(t *testing.T) {
	for name, contact := range contacts {
		for reason, failure := range map[string]error{
			"the client is gone": syscall.ECONNRESET, "it takes too long": context.DeadlineExceeded,
		} {
			t.Run(fmt.Sprintf("%s, %s", name, reason), func(t *testing.T) {
				f := newFixture(t, resilience.Config{}, nil)
				f.server.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
					return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
						if isContact(method) {
							return nil, failure
						}
						return next(ctx, method, req)
					}
				})
				gosdk.Protect(f.server, f.guard)
				runs := 0
				tool := func(ctx context.Context, req *mcp.CallToolRequest) error {
					runs++
					err := contact(ctx, req)
					assert.ErrorIs(t, err, failure)
					assert.EqualError(t, err, failure.Error())
					return fmt.Errorf("contact the client: %w", err)
				}
				f.raw("raw", readOnly, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					return nil, tool(ctx, req)
				})
				mcp.AddTool(f.server, &mcp.Tool{Name: "typed", Annotations: readOnly}, func(
					ctx context.Context, req *mcp.CallToolRequest, _ any,
				) (*mcp.CallToolResult, any, error) {
					return nil, nil, tool(ctx, req)
				})
				f.connectContacted()

				params := &mcp.CallToolParams{Name: "raw", Meta: mcp.Meta{"progressToken": "p"}}
				_, err := f.session.CallTool(t.Context(), params)
				assert.ErrorContains(t, err, "contact the client: "+failure.Error())
				params.Name = "typed"
				res, err := f.session.CallTool(t.Context(), params)
				require.NoError(t, err)
				assert.Equal(t, "contact the client: "+failure.Error(), text(t, res))

				assert.Equal(t, 2, runs, "nothing is repeated")
				for _, h := range f.guard.Health() {
					assert.Zero(t, h.ConsecutiveFailures)
				}
			})
		}
	}
}

// A tool may give its user less time than a pause would.
func TestUserWhoDoesNotAnswerInTimeIsNoFailureOfTheBackend(t *testing.T) {
	for name := range askedOf {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newProtected(t, resilience.Config{})
				f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					asking, cancel := context.WithTimeout(ctx, 30*time.Second)
					defer cancel()
					err := contacts[name](asking, req)
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					return nil, err
				})
				answerAfter(&f.options, thinks)
				f.receiving = []mcp.Middleware{slowRoots(thinks)}
				f.connect(legacy)

				_, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "x"})
				assert.ErrorContains(t, err, context.DeadlineExceeded.Error())
				assert.Zero(t, f.guard.Health()[0].ConsecutiveFailures)
			})
		})
	}
}

// A protocol error that a handler passes on as it is reaches the client with its data.
func TestProtocolErrorFromMiddlewareTowardsTheClientIsUnchanged(t *testing.T) {
	sent := &jsonrpc.Error{Code: 42, Message: "not now", Data: []byte(`{"until":"noon"}`)}
	f := newFixture(t, resilience.Config{}, nil)
	f.server.AddSendingMiddleware(func(mcp.MethodHandler) mcp.MethodHandler {
		return func(context.Context, string, mcp.Request) (mcp.Result, error) { return nil, sent }
	})
	gosdk.Protect(f.server, f.guard)
	f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, req.Session.Ping(ctx, nil)
	})
	f.connectBlind(legacy)

	got := f.protocolError("x")
	assert.Equal(t, sent, got)
}

// Sending is done on another goroutine, where a panic would end the process.
func TestMiddlewareThatPanicsTowardsTheClientFailsOnlyItsCall(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			var ended *resilience.Error
			f := newFixture(t, resilience.Config{Observers: []resilience.Observer{{
				End: func(_ context.Context, e resilience.CallEnd) { ended = e.Err },
			}}}, nil)
			f.server.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
				return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
					if isContact(method) {
						end()
					}
					return next(ctx, method, req)
				}
			})
			gosdk.Protect(f.server, f.guard)
			f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return nil, req.Session.Ping(ctx, nil)
			})
			f.connect(legacy)
			assert.Equal(t, resilience.CodeToolFailed, metadataOf(t, f.call("x")).Code)
			assert.Equal(t, 1, f.guard.Health()[0].ConsecutiveFailures)
			require.NoError(t, f.guard.Flush(t.Context()))
			var p *resilience.PanicError
			assert.Equal(t, name == "panic", errors.As(ended, &p))
			assert.Equal(t, name == "Goexit", errors.Is(ended, resilience.ErrGoexit))
			if p != nil {
				assert.Equal(t, "boom", p.Value)
			}
		})
	}
}

// A server that is too busy asks for nothing, and says so in one of two ways: the call hasn't succeeded.
func TestServerThatShedsLoadIsNoSuccess(t *testing.T) {
	for name, requests := range map[string]string{"no requests": "", "empty requests": `,"inputRequests":{}`} {
		t.Run(name, func(t *testing.T) {
			h := serveHTTPWith(t, newServer(nil), &mcp.StreamableHTTPOptions{Stateless: true})
			var sheds atomic.Bool
			intercept := func(w http.ResponseWriter, r *http.Request) bool {
				var m struct {
					ID     json.RawMessage
					Method string
				}
				_ = json.Unmarshal(bodyOf(r), &m)
				switch {
				case m.Method != "tools/call":
					return false
				case !sheds.Load():
					w.WriteHeader(http.StatusServiceUnavailable)
					return true
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"resultType":"input_required",`+
					`"requestState":"later"%s}}`, m.ID, requests)
				return true
			}
			h.intercept.Store(&intercept)

			g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
			client := gosdk.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil, g)
			cs, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: h.URL}, speaking(latest))
			require.NoError(t, err)
			defer cs.Close()
			call := func() { _, _ = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "x"}) }
			call()
			require.Equal(t, 1, g.Breaker("x").Failures())
			sheds.Store(true)
			call()
			assert.Equal(t, 1, g.Breaker("x").Failures())
		})
	}
}
