package gosdk_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// connectHTTP connects a client over HTTP, with a token that names its user.
func connectHTTP(f *fixture, stateless bool) func(user, protocol string) *mcp.ClientSession {
	verify := func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: token, Expiration: time.Now().Add(time.Hour)}, nil
	}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return f.server },
		&mcp.StreamableHTTPOptions{Stateless: stateless, PropagateRequestCancellation: true})
	h := httptest.NewServer(auth.RequireBearerToken(verify, nil)(handler))
	f.Cleanup(h.Close)

	return func(user, protocol string) *mcp.ClientSession {
		base := &http.Transport{}
		f.Cleanup(base.CloseIdleConnections)
		session, err := newClient(nil).Connect(f.Context(), &mcp.StreamableClientTransport{
			Endpoint: h.URL, DisableStandaloneSSE: true,
			HTTPClient: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				r = r.Clone(r.Context())
				r.Header.Set("Authorization", "Bearer "+user)
				return base.RoundTrip(r)
			})},
		}, speaking(protocol))
		require.NoError(f, err)
		f.Cleanup(func() { session.Close() })
		return session
	}
}

// A client cancels a write, which cuts the connection since protocol 2026-07-28, and sends the call again. Another
// client's call with equal arguments is another one.
func TestAWriteThatIsSentAgainActsOnce(t *testing.T) {
	type connect = func(user, protocol string) *mcp.ClientSession
	for name, tc := range map[string]struct {
		protocol string
		connect  func(*fixture) connect
	}{
		"in the sessions of HTTP": {legacy, func(f *fixture) connect { return connectHTTP(f, false) }},
		"without sessions":        {latest, func(f *fixture) connect { return connectHTTP(f, true) }},
		"over streams": {legacy, func(f *fixture) connect {
			return func(_, protocol string) *mcp.ClientSession { f.connect(protocol); return f.session }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			f := newProtected(t, resilience.Config{})
			var writes atomic.Int64
			began, left, finish := make(chan struct{}), make(chan struct{}), make(chan struct{})
			f.raw("write", nil, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				if writes.Add(1) > 1 {
					return textResult("another write"), nil
				}
				close(began)
				<-ctx.Done()
				close(left)
				<-finish
				return textResult("the write"), nil
			})
			write := func(ctx context.Context, s *mcp.ClientSession) (*mcp.CallToolResult, error) {
				arguments := map[string]any{"to": "b", "n": 1}
				return s.CallTool(ctx, &mcp.CallToolParams{Name: "write", Arguments: arguments})
			}
			connect := tc.connect(f)
			alice, bob := connect("alice", tc.protocol), connect("bob", tc.protocol)

			leaving, leave := context.WithCancel(ctx)
			go func() { _, _ = write(leaving, alice) }()
			require.NoError(t, await(ctx, began))
			leave()
			require.NoError(t, await(ctx, left))
			res, err := write(ctx, bob)
			require.NoError(t, err)
			assert.Equal(t, "another write", text(t, res))

			close(finish)
			isOver := func() bool { return f.guard.Health()[0].InFlight == 0 }
			require.Eventually(t, isOver, testTimeout, time.Millisecond)
			res, err = write(ctx, alice)
			require.NoError(t, err)
			require.Len(t, res.Content, 2)
			assert.Equal(t, "the write", res.Content[0].(*mcp.TextContent).Text)
			assert.Regexp(t, `^This is the result of the same call made \d+ seconds? ago, whose answer you did not `+
				`receive\.$`, res.Content[1].(*mcp.TextContent).Text)
			assert.Equal(t, true, res.Meta[resilience.MetaJoined])
			assert.EqualValues(t, 2, writes.Load())

			res, err = write(ctx, alice)
			require.NoError(t, err)
			assert.Equal(t, "another write", text(t, res), "it has received the first one")
		})
	}
}

// A write that ends with its context may have acted: the agent is to check that, before it decides to write again.
func TestAWriteThatIsCutOffAsksToCheck(t *testing.T) {
	f := newProtected(t, resilience.Config{})
	began := make(chan struct{}, 2)
	f.typed("write", nil, func(ctx context.Context) error {
		began <- struct{}{}
		<-ctx.Done()
		return fmt.Errorf("writing: %w", context.Cause(ctx))
	})
	f.connect(latest)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	params := &mcp.CallToolParams{Name: "write", Arguments: in{1}}
	cutOff := func() {
		leaving, leave := context.WithCancel(ctx)
		go func() { <-began; leave() }()
		_, err := f.session.CallTool(leaving, params)
		require.ErrorIs(t, err, context.Canceled)
		isOver := func() bool { return f.guard.Health()[0].InFlight == 0 }
		require.Eventually(t, isOver, testTimeout, time.Millisecond)
	}
	cutOff()
	res, err := f.session.CallTool(ctx, params)
	require.NoError(t, err)
	assert.Regexp(t, `^CANCELED: The same call was made \d+ seconds? ago, and its outcome is unknown\. It may have `+
		`taken effect: check before you call it again\.$`, text(t, res))
	cutOff() // it is made
}
