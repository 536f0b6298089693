package gosdk_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
)

// A scripted peer answers a client's requests by a function, in fake time.
type scripted struct {
	mu       sync.Mutex
	sessions int
	nameless bool // it gives its sessions no IDs
	mute     bool // net/http's transport isn't the client's: nothing reports its requests
	answer   func(session, method, tool string) fakeAnswer
}

// A fakeAnswer is a result. If it has a status, it is an error of MCP with its code, or without one a page, but one
// with status 200 is an answer without a result.
type fakeAnswer struct {
	after        time.Duration
	status, code int
	words        string // of an error
}

var unknownSession = fakeAnswer{after: time.Millisecond, status: 400, code: -32000} // as servers in TypeScript say it

func (f *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct{ Name string }
	}
	if r.Body != nil {
		_ = json.Unmarshal(bodyOf(r), &m)
	}
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && !f.mute {
		trace.GetConn("fake:80")
		trace.GotConn(httptrace.GotConnInfo{})
		for key, value := range r.Header {
			trace.WroteHeaderField(key, value)
		}
		trace.GotFirstResponseByte()
	}
	media := "application/json"
	reply := func(status int, format string, args ...any) (*http.Response, error) {
		header := http.Header{"Content-Type": {media}}
		if m.Method == "initialize" {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.sessions++
			if !f.nameless {
				header.Set("Mcp-Session-Id", fmt.Sprint(f.sessions))
			}
		}
		body := io.NopCloser(strings.NewReader(fmt.Sprintf(format, args...)))
		return &http.Response{StatusCode: status, Header: header, Body: body, Request: r}, nil
	}
	switch {
	case r.Method != http.MethodPost:
		return reply(http.StatusMethodNotAllowed, "")
	case m.Method == "initialize":
		return reply(http.StatusOK, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18",`+
			`"capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}}`, m.ID)
	case m.ID == nil:
		return reply(http.StatusAccepted, "")
	}

	a := f.answer(r.Header.Get("Mcp-Session-Id"), m.Method, m.Params.Name)
	select {
	case <-time.After(a.after):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	switch {
	case a.status == 0:
		return reply(http.StatusOK, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, m.ID)
	case a.code != 0:
		return reply(a.status, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, m.ID, a.code, cmp.Or(a.words, "no"))
	case a.status == http.StatusOK:
		return reply(http.StatusOK, `{"jsonrpc":"2.0","id":%s}`, m.ID)
	}
	media = "text/html"
	return reply(a.status, "<p>no</p>")
}

// connect returns a session of the SDK with the fake, which has gosdk's Transport or, if it is plain, none.
func (f *scripted) connect(ctx context.Context, plain bool, sending ...mcp.Middleware) (*mcp.ClientSession, error) {
	var transport http.RoundTripper = f
	if !plain {
		transport = gosdk.Transport(f)
	}
	return newClient(nil, sending...).Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: "http://fake/", HTTPClient: &http.Client{Transport: transport}, DisableStandaloneSSE: true,
	}, speaking(legacy))
}

// session returns a session with the fake, of which each call is made under a guard that retries.
func (f *scripted) session(t *testing.T, sending ...mcp.Middleware) (s *gosdk.Session, call func(tool string) error) {
	s = newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
		return f.connect(ctx, false, sending...)
	}, sessionConfig{})
	g := newGuard(t, resilience.Config{Effect: resilience.ReadOnly})
	return s, callBy(t, s, g)
}

// callBy returns a function that calls a tool by a session, under a guard.
func callBy(t *testing.T, s *gosdk.Session, g *resilience.Guard) func(tool string) error {
	return func(tool string) error {
		_, err := resilience.Do(t.Context(), g, tool, func(ctx context.Context) (*mcp.CallToolResult, error) {
			return s.CallTool(ctx, &mcp.CallToolParams{Name: tool})
		}, behindAdapter)
		return err
	}
}

// inBubble runs a test in fake time.
func inBubble(t *testing.T, name string, test func(*testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}
