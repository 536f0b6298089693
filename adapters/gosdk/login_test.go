package gosdk_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

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
	asked   atomic.Int32
}

func (*login) TokenSource(context.Context) (oauth2.TokenSource, error) { return nil, nil }

func (l *login) Authorize(_ context.Context, _ *http.Request, res *http.Response) error {
	res.Body.Close()
	l.asked.Add(1)
	return l.refusal
}

// A user who doesn't log in is asked once by each call, and shuts the tool for no other.
func TestLoginThatTheUserRefuses(t *testing.T) {
	refused := errors.New("the user has refused")
	for name, err := range map[string]error{
		"plain":                   refused,
		"a mistake":               resilience.MarkInvalid(refused),
		"in words":                &resilience.Error{Code: resilience.CodeValidation, Message: "Log in.", Err: refused},
		"neutral, though it ends": resilience.MarkNeutral(io.EOF),
	} {
		for with, base := range transports {
			t.Run(name+", "+with, func(t *testing.T) { testLogin(t, err, base()) })
		}
	}
}

func testLogin(t *testing.T, refused error, base http.RoundTripper) {
	server := newPeer().server
	h := serveHTTPWith(t, server, &mcp.StreamableHTTPOptions{Stateless: true})
	h.refuse(refusal{401, ""}, `"tools/call"`)
	l := &login{refusal: refused}
	g := newGuard(t, resilience.Config{Effect: resilience.ReadOnly, Retry: fast})
	client := gosdk.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil, g)
	cs, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: h.URL, HTTPClient: &http.Client{Transport: base}, OAuthHandler: l, DisableStandaloneSSE: true,
	}, speaking(latest))
	require.NoError(t, err)
	defer cs.Close()

	for n := range 6 {
		_, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo"})
		require.ErrorIs(t, err, refused)
		assert.EqualValues(t, n+1, l.asked.Load())
	}
	h.intercept.Store(nil)
	_, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo"})
	assert.NoError(t, err)
}
