package gosdk_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dialPlain dials a session over a transport that isn't gosdk.Transport.
func dialPlain(h *httpServer) func(context.Context) (*mcp.ClientSession, error) {
	return func(ctx context.Context) (*mcp.ClientSession, error) {
		return newClient(nil).Connect(ctx, &mcp.StreamableClientTransport{Endpoint: h.URL, DisableStandaloneSSE: true}, speaking(legacy))
	}
}

func makeMistake(ctx context.Context, s *gosdk.Session) error {
	_, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: longArguments})
	return err
}

// The answer to a ping may come more slowly than a mistake has time for. To end the ping would end the session.
func TestSlowAnswerToAPingKeepsTheSession(t *testing.T) {
	h := serveHTTP(t, newPeer().server)
	pings, answers := make(chan struct{}, 10), make(chan struct{})
	intercept := func(w http.ResponseWriter, r *http.Request) bool {
		body := bodyOf(r)
		switch {
		case bytes.Contains(body, []byte(`"text":"xxx`)):
			w.WriteHeader(mistake)
			_, _ = io.WriteString(w, badRequest)
		case bytes.Contains(body, []byte(`"method":"ping"`)):
			pings <- struct{}{}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0",`)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-answers:
			case <-r.Context().Done():
			}
			_, id, _ := bytes.Cut(body, []byte(`"id":`))
			id, _, _ = bytes.Cut(id, []byte(`,`))
			_, _ = fmt.Fprintf(w, `"id":%s,"result":{}}`, bytes.TrimRight(id, "}"))
		default:
			return false
		}
		return true
	}
	h.intercept.Store(&intercept)

	s := newSession(t, dialPlain(h), sessionConfig{})
	first := up(t, s)
	mistaken := make(chan error)
	for range 3 {
		go func() { mistaken <- makeMistake(t.Context(), s) }()
	}
	for range 3 {
		err := receive(t, mistaken)
		assert.Equal(t, resilience.ClassInvalid, resilience.Classify(err), "%v", err)
	}
	assert.Len(t, pings, 1, "the calls share a ping")

	close(answers)
	_, err := echo(t.Context(), s)
	assert.NoError(t, err)
	assert.True(t, first == up(t, s), "another session is up")
}

// A call that ends the session while a mistake's ping is under way is no reason to blame the server for the mistake.
func TestMistakeWhileAnotherCallEndsTheSession(t *testing.T) {
	h := serveHTTP(t, newPeer().server)
	pings := make(chan struct{})
	intercept := func(w http.ResponseWriter, r *http.Request) bool {
		body := bodyOf(r)
		switch {
		case bytes.Contains(body, []byte(`"text":"xxx`)):
			w.WriteHeader(mistake)
			_, _ = io.WriteString(w, badRequest)
		case bytes.Contains(body, []byte(`"method":"ping"`)):
			pings <- struct{}{}
			<-r.Context().Done()
		case bytes.Contains(body, []byte(`"text":"forbidden"`)):
			w.WriteHeader(http.StatusForbidden)
		default:
			return false
		}
		return true
	}
	h.intercept.Store(&intercept)

	s := newSession(t, dialPlain(h), sessionConfig{})
	first := up(t, s)
	mistaken := make(chan error, 1)
	go func() { mistaken <- makeMistake(t.Context(), s) }()
	receive(t, pings)
	params := &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "forbidden"}}
	_, err := s.CallTool(t.Context(), params)
	require.Error(t, err)
	err = receive(t, mistaken)
	assert.Equal(t, resilience.ClassInvalid, resilience.Classify(err), "%v", err)
	gone(t, s, first)
}
