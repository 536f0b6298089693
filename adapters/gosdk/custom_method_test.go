package gosdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
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

// callCustom calls a custom method of a session's server, which answers as to a tool.
func callCustom(ctx context.Context, cs *mcp.ClientSession, method string) (*mcp.CallToolResult, error) {
	return mcp.CallCustomMethod[*mcp.CallToolParams, *mcp.CallToolResult](ctx, cs, method, &mcp.CallToolParams{Name: "x"})
}

// A session is given up by a call of a custom method, too, whatever its name is.
func TestSessionOfACustomMethod(t *testing.T) {
	for _, method := range []string{"acme/search", "com.acme/search", "acme/search_docs", "acme/v2/search", "search"} {
		for _, forgotten := range []fakeAnswer{
			unknownSession, {status: 404, code: -32600}, {status: 404, code: -32001}, {status: 404}, {status: 403},
		} {
			inBubble(t, fmt.Sprint(method, ", ", forgotten.status, forgotten.code), func(t *testing.T) {
				var forgets atomic.Bool
				f := &scripted{answer: func(session, _, _ string) fakeAnswer {
					if session == "1" && forgets.Load() {
						return forgotten
					}
					return fakeAnswer{after: time.Millisecond}
				}}
				s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
					client := newClient(nil)
					require.NoError(t, mcp.AddSendingCustomMethod[*mcp.CallToolParams, *mcp.CallToolResult](client, method))
					return client.Connect(ctx, &mcp.StreamableClientTransport{
						Endpoint: "http://fake/", HTTPClient: &http.Client{Transport: f}, DisableStandaloneSSE: true,
					}, speaking(legacy))
				}, sessionConfig{})
				defer s.Close()
				first := up(t, s)
				forgets.Store(true)
				_, err := gosdk.Use(t.Context(), s, func(ctx context.Context, cs *mcp.ClientSession) (*mcp.CallToolResult, error) {
					return callCustom(ctx, cs, method)
				})
				require.Error(t, err)
				second := up(t, s)
				assert.NotSame(t, first, second)
				_, err = callCustom(t.Context(), second, method)
				assert.NoError(t, err)
			})
		}
	}
}

// What the SDK says of a custom method means what it means of others.
func TestWordsOfTheSDKOfACustomMethod(t *testing.T) {
	for _, method := range []string{"tools/call", "acme/search", "com.acme/search"} {
		for _, tc := range []struct {
			cause error
			lost  bool
		}{
			{io.ErrUnexpectedEOF, true},
			{&json.SyntaxError{}, true},
			{errors.New("empty batch"), true},
			{errors.New("request terminated without response"), true},
			{errors.New(`sending "tools/call": Request Entity Too Large`), false},
			{errors.New("failed to write: 413 Request Entity Too Large"), false},
		} {
			inBubble(t, fmt.Sprint(method, ", ", tc.cause), func(t *testing.T) {
				s := newSession(t, newPeer().dial, sessionConfig{})
				defer s.Close()
				g := newGuard(t, resilience.Config{})
				up(t, s)
				_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					return gosdk.Use(ctx, s, func(context.Context, *mcp.ClientSession) (int, error) {
						return 0, fmt.Errorf("calling %q: %w", method, tc.cause)
					})
				})
				assert.Equal(t, tc.lost, errors.Is(err, resilience.CodeConnectionLost))
				assert.Equal(t, tc.lost, g.Breaker("x").Failures() > 0)
			})
		}
	}
}

// A tool may have a name like that of a method, and who calls it says so: what the SDK says is within.
func TestWordsOfWhoCallsATool(t *testing.T) {
	for _, tool := range []string{"search", "github_search", "github/search"} {
		for name, answer := range map[string]fakeAnswer{
			"no result": {after: time.Millisecond, status: 200}, "too long": {status: 413}, "no token": {status: 401},
		} {
			inBubble(t, tool+", "+name, func(t *testing.T) {
				f := &scripted{answer: func(_, method, _ string) fakeAnswer {
					if method == "ping" {
						return fakeAnswer{after: time.Millisecond}
					}
					return answer
				}}
				wording := func(err error, _ error) error { return fmt.Errorf("calling %q: %w", tool, err) }
				s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) { return f.connect(ctx, true) }, sessionConfig{})
				defer s.Close()
				g := newGuard(t, resilience.Config{})
				for range 5 {
					up(t, s)
					_, err := resilience.Do(t.Context(), g, tool, func(ctx context.Context) (int, error) {
						return gosdk.Use(ctx, s, func(ctx context.Context, cs *mcp.ClientSession) (int, error) {
							_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: tool})
							return 0, wording(err, nil)
						})
					}, behindAdapter)
					assert.ErrorIs(t, err, resilience.CodeToolFailed)
				}
				assert.Zero(t, g.Breaker(tool).Failures())

				client := newGuard(t, resilience.Config{})
				cs, err := f.connect(t.Context(), true, gosdk.ClientMiddleware(client), putting(wording))
				require.NoError(t, err)
				defer cs.Close()
				_, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool})
				require.Error(t, err)
				assert.Zero(t, client.Breaker(tool).Failures())
			})
		}
	}
}

// errRefusedElsewhere is of another backend.
var errRefusedElsewhere = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

// What else a caller of a tool says is none of the SDK's.
func TestOwnWordsOfWhoCallsATool(t *testing.T) {
	for _, tool := range []string{"search", "github_search"} {
		for _, own := range []error{errors.New("no index"), io.ErrShortWrite, errRefusedElsewhere} {
			inBubble(t, fmt.Sprint(tool, ", ", own), func(t *testing.T) {
				s := newSession(t, newPeer().dial, sessionConfig{})
				defer s.Close()
				first := up(t, s)
				said := fmt.Errorf("calling %q: %w", tool, own)
				_, err := gosdk.Use(t.Context(), s, func(context.Context, *mcp.ClientSession) (int, error) { return 0, said })
				assert.Same(t, said, err)
				assert.Same(t, first, up(t, s))
			})
		}
	}
}
