package gosdk_test

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/require"
)

// An httpServer serves an MCP server over streamable HTTP. Once intercept is set, it may reply
// instead, and returns whether it did.
type httpServer struct {
	*httptest.Server
	intercept atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
}

func serveHTTP(t *testing.T, server *mcp.Server) *httpServer {
	return serveHTTPWith(t, server, nil)
}

func serveHTTPWith(t *testing.T, server *mcp.Server, opts *mcp.StreamableHTTPOptions) *httpServer {
	h := newHTTPServer(t, server, opts)
	h.Start()
	return h
}

// serveHTTP2 serves HTTP/2, for the server's own Client.
func serveHTTP2(t *testing.T, server *mcp.Server) *httpServer {
	h := newHTTPServer(t, server, nil)
	h.EnableHTTP2 = true
	h.StartTLS()
	return h
}

func newHTTPServer(t *testing.T, server *mcp.Server, opts *mcp.StreamableHTTPOptions) *httpServer {
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, opts)
	h := &httpServer{}
	h.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if intercept := h.intercept.Load(); intercept == nil || !(*intercept)(w, r) {
			handler.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		h.stop() // first, since a request that is under way may begin another session
		for session := range server.Sessions() {
			session.Close()
		}
	})
	return h
}

func (h *httpServer) stop() {
	h.CloseClientConnections()
	h.Close()
}

// bodyOf returns the body of a request, which may be read again.
func bodyOf(r *http.Request) []byte {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body
}

// A peer is another server within this process, whose connections can be cut.
type peer struct {
	server   *mcp.Server
	protocol string // of the client; empty: the latest
	options  mcp.ClientOptions
	sending  []mcp.Middleware // of the client
	started  chan struct{}    // receives a value for each call of "hang"
	release  chan struct{}    // ends these calls, if their cancellation gets lost
	gate     chan struct{}    // if it isn't nil, each dial receives a value from it first

	mu   sync.Mutex
	ends []net.Conn // the server's ends, one for each dial
}

func newPeer() *peer {
	p := &peer{server: newServer(nil), started: make(chan struct{}, 1000), release: make(chan struct{})}
	add := func(name string, handler mcp.ToolHandler) { addRaw(p.server, &mcp.Tool{Name: name}, handler) }

	add("echo", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return textResult(string(req.Params.Arguments)), nil
	})
	add("hang", func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		p.started <- struct{}{}
		return nil, cmp.Or(await(ctx, p.release), context.Canceled)
	})
	add("fails", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		res := &mcp.CallToolResult{}
		res.SetError(errBoom)
		return res, nil
	})
	return p
}

// newGatedPeer returns a peer that accepts one dial. Each further one needs a value in the gate.
func newGatedPeer() *peer {
	p := newPeer()
	p.gate = make(chan struct{}, 1)
	p.gate <- struct{}{}
	return p
}

func (p *peer) dial(ctx context.Context) (*mcp.ClientSession, error) {
	if p.gate != nil {
		if err := await(ctx, p.gate); err != nil {
			return nil, err
		}
	}

	serverEnd, clientEnd, err := pipeTo(p.server)
	if err != nil {
		return nil, err
	}
	cs, err := newClient(&p.options, p.sending...).Connect(ctx, pipeTransport(clientEnd), speaking(p.protocol))

	p.mu.Lock()
	defer p.mu.Unlock()
	p.ends = append(p.ends, serverEnd)
	return cs, err
}

func (p *peer) dials() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ends)
}

// cut ends the newest connection, as the end of the server's process does.
func (p *peer) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ends[len(p.ends)-1].Close()
}

// pipeTo connects server to one end of a pipe, and returns both ends.
func pipeTo(server *mcp.Server) (serverEnd, clientEnd net.Conn, err error) {
	serverEnd, clientEnd = net.Pipe()
	_, err = server.Connect(context.Background(), pipeTransport(serverEnd), nil)
	return serverEnd, clientEnd, err
}

func pipeTransport(end net.Conn) mcp.Transport { return &mcp.IOTransport{Reader: end, Writer: end} }

type sessionConfig = resilience.ConnectorConfig[*mcp.ClientSession]

// steady returns a backoff whose delays are all the same.
func steady(delay time.Duration) resilience.Backoff {
	return resilience.Backoff{Base: delay, Max: delay, Jitter: resilience.NoJitter}
}

// newSession returns a session that is up. Without a backoff in cfg, it is dialed again at once.
func newSession(
	t *testing.T, dial func(context.Context) (*mcp.ClientSession, error), cfg sessionConfig,
) *gosdk.Session {
	if cfg.Backoff == (resilience.Backoff{}) {
		cfg.Backoff = steady(time.Millisecond)
	}
	s := gosdk.NewSession(dial, cfg)
	t.Cleanup(func() { _ = s.Close() })
	up(t, s)
	return s
}

// up waits until s is up.
func up(t *testing.T, s *gosdk.Session) *mcp.ClientSession {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	cs, err := s.Wait(ctx)
	require.NoError(t, err)
	return cs
}

// gone waits until s has noticed that cs is lost.
func gone(t *testing.T, s *gosdk.Session, cs *mcp.ClientSession) {
	t.Helper()
	replaced := func() bool {
		now, _ := s.Get(t.Context())
		return now != cs
	}
	require.Eventually(t, replaced, testTimeout, time.Millisecond)
}

func echo(ctx context.Context, s *gosdk.Session) (*mcp.CallToolResult, error) {
	return s.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"a": 1}})
}

// hang starts a call that doesn't end by itself, and returns the channel that receives its error.
func hang(ctx context.Context, s *gosdk.Session) <-chan error {
	failed := make(chan error, 1)
	go func() {
		_, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "hang"})
		failed <- err
	}()
	return failed
}

// failUse makes a use of s fail with err.
func failUse(t *testing.T, s *gosdk.Session, err error) error {
	_, failed := gosdk.Use(t.Context(), s, func(context.Context, *mcp.ClientSession) (int, error) { return 0, err })
	return failed
}

// guarded calls a tool of s under g.
func guarded(t *testing.T, g *resilience.Guard, s *gosdk.Session, tool string, opts ...resilience.Option) error {
	_, err := resilience.Do(t.Context(), g, tool, func(ctx context.Context) (*mcp.CallToolResult, error) {
		return s.CallTool(ctx, &mcp.CallToolParams{Name: tool})
	}, opts...)
	return err
}

// addSlow adds the tool "slow", which returns when finish is closed.
func (p *peer) addSlow(finish <-chan struct{}) {
	slow := func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		p.started <- struct{}{}
		return textResult("done"), await(ctx, finish)
	}
	addRaw(p.server, &mcp.Tool{Name: "slow"}, slow)
}

// behindAdapter makes a call as an adapter does: what isn't explained isn't counted.
var behindAdapter = resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral})

// inBubble runs a test in fake time.
func inBubble(t *testing.T, name string, test func(*testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
