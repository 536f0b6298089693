package gosdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
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

// calling wraps an error as the SDK does.
func calling(err error) error { return fmt.Errorf(`calling "tools/call": %w`, err) }

func wireError(code int64, message string) error {
	return calling(&jsonrpc.Error{Code: code, Message: message})
}

var (
	errRejected = &jsonrpc.Error{Code: -32005, Message: "rejected by transport"}
	wrong       = &jsonrpc.Error{Code: -32602, Message: "n must be a number"}
	unknown     = &jsonrpc.Error{Code: -32603, Message: "boom"}
)

// rejected wraps an error as the SDK does if a single HTTP request failed.
func rejected(err error) error {
	return calling(fmt.Errorf(`sending "tools/call": %w: %w`, errRejected, err))
}

// Whatever a use ends with decides whether its session is kept, checked, or lost without a check.
func TestUseThatFailsTellsOfItsSession(t *testing.T) {
	const (
		kept = iota
		checked
		lost
	)
	for name, tc := range map[string]struct {
		err  error
		want int
	}{
		"nothing":                      {nil, kept},
		"closed":                       {fmt.Errorf("%w: calling: x", mcp.ErrConnectionClosed), lost},
		"a session that is missing":    {calling(mcp.ErrSessionMissing), lost},
		"the end of the output":        {calling(io.EOF), lost},
		"the end of one request":       {rejected(&url.Error{Op: "Post", URL: "http://x", Err: io.EOF}), checked},
		"a broken pipe":                {calling(io.ErrClosedPipe), checked},
		"garbled":                      {calling(errors.New("invalid character 'e' in literal false")), checked},
		"a status":                     {calling(errors.New(`sending "tools/call": Gone`)), checked},
		"a status for one request":     {rejected(errors.New("Service Unavailable")), checked},
		"wrong arguments":              {wireError(-32602, "no"), kept},
		"no such method":               {wireError(-32601, "no"), kept},
		"no such resource":             {wireError(-32002, "no"), kept},
		"a page to visit first":        {wireError(mcp.CodeURLElicitationRequired, "log in"), kept},
		"a wrong result":               {wireError(-32602, "Invalid structured content for tool x"), checked},
		"an internal error":            {wireError(-32603, "no"), checked},
		"an invalid request":           {wireError(-32600, "no"), checked},
		"an error of its own":          {wireError(-32005, "no"), checked},
		"a timeout":                    {context.DeadlineExceeded, checked},
		"the caller's leaving":         {context.Canceled, kept},
		"the loss of another session":  {resilience.ConnectionLostError("x"), checked},
		"the end of another session":   {&resilience.Error{Code: "CONNECTION_LOST", Err: calling(io.EOF)}, checked},
		"a question without an answer": {fmt.Errorf(`multi round-trip: fulfilling input request %w`, io.EOF), checked},
	} {
		inBubble(t, name, func(t *testing.T) {
			p := newPeer()
			var checks atomic.Int32
			s := newSession(t, p.dial, sessionConfig{Check: func(context.Context, *mcp.ClientSession) error {
				checks.Add(1)
				return nil
			}})
			first := up(t, s)
			require.ErrorIs(t, failUse(t, s, tc.err), tc.err)
			time.Sleep(time.Second)
			assert.Equal(t, tc.want == checked, checks.Load() == 1, "%d checks", checks.Load())
			assert.Equal(t, tc.want == lost, up(t, s) != first)
			require.NoError(t, s.Close())
		})
	}
}

// pinged is a peer whose answer to pings is that of a function.
func pinged(answer func(context.Context) error) *peer {
	p := newPeer()
	p.protocol = legacy // later ones have no pings
	p.server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "ping" {
				if err := answer(ctx); err != nil {
					return nil, err
				}
			}
			return next(ctx, method, req)
		}
	})
	return p
}

// Alive is who answers a ping, if only that it knows none, in time.
func TestSessionIsAliveIfItAnswersAPing(t *testing.T) {
	after := func(d time.Duration, err error) func(context.Context) error {
		return func(ctx context.Context) error {
			select {
			case <-time.After(d):
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	for name, tc := range map[string]struct {
		answer   func(context.Context) error
		timeout  time.Duration
		replaced time.Duration // after the use; zero if it isn't
	}{
		"a result":               {after(0, nil), 0, 0},
		"a late result":          {after(9*time.Second, nil), 0, 0},
		"too late a result":      {after(11*time.Second, nil), 0, 10 * time.Second},
		"too late for an option": {after(2*time.Second, nil), time.Second, time.Second},
		"no such method":         {after(0, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound}), 0, 0},
		"an internal error":      {after(0, &jsonrpc.Error{Code: jsonrpc.CodeInternalError}), 0, 1},
		"an invalid request":     {after(0, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest}), 0, 1},
	} {
		inBubble(t, name, func(t *testing.T) {
			p := pinged(tc.answer)
			s := newSession(t, p.dial, sessionConfig{CheckTimeout: tc.timeout, Backoff: steady(time.Nanosecond)})
			first := up(t, s)
			begin := time.Now()
			for range 10 { // one check is enough for all
				require.Error(t, failUse(t, s, context.DeadlineExceeded))
			}
			time.Sleep(max(tc.replaced-1, 0))
			synctest.Wait()
			if tc.replaced > 1 {
				now, _ := s.Get(t.Context())
				assert.Same(t, first, now)
			}
			time.Sleep(time.Minute)
			assert.Equal(t, tc.replaced > 0, up(t, s) != first, "after %s", time.Since(begin))
			require.NoError(t, s.Close())
		})
	}
}

// A server whose pings always fail isn't dialed more often than the backoff says.
func TestSessionWhosePingsAlwaysFailBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pinged(func(context.Context) error { return &jsonrpc.Error{Code: jsonrpc.CodeInternalError} })
		backoff := resilience.Backoff{Base: time.Second, Max: time.Minute, Jitter: resilience.NoJitter}
		s := newSession(t, p.dial, sessionConfig{Backoff: backoff})
		for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
			_ = failUse(t, s, errBoom)
		}
		assert.InDelta(t, 15, p.dials(), 5) // after 1s, 2s, 4s … 60s, 60s
		require.NoError(t, s.Close())
	})
}

// A caller who leaves ends no session, even if the server can't answer pings meanwhile.
func TestCallerWhoLeavesEndsNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pinged(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		s := newSession(t, p.dial, sessionConfig{})
		first := up(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		failed := hang(ctx, s)
		<-p.started
		cancel()
		err := <-failed
		assert.ErrorIs(t, err, context.Canceled)
		assert.NotErrorIs(t, err, resilience.CodeConnectionLost)
		time.Sleep(time.Hour)
		assert.Same(t, first, up(t, s))
		require.NoError(t, s.Close())
	})
}

// A cable passes connections on to a server. Once it is cut, those that there are remain open, and nothing passes.
type cable struct {
	net.Listener
	to string

	mu  sync.Mutex
	all []*half
}

// A half is a direction of a connection.
type half struct {
	io.Writer
	mu  sync.Mutex
	cut bool
}

func (h *half) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cut {
		return len(b), nil
	}
	return h.Writer.Write(b)
}

func newCable(t *testing.T, to string) *cable {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cable{Listener: l, to: to}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			t.Cleanup(func() { near.Close(); far.Close() })
			c.join(near, far)
			c.join(far, near)
		}
	}()
	return c
}

func (c *cable) join(from io.Reader, to io.WriteCloser) {
	h := &half{Writer: to}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, h)
	go func() {
		_, _ = io.Copy(h, from)
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.cut {
			to.Close()
		}
	}()
}

// cut makes all connections half-open.
func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.all {
		h.mu.Lock()
		h.cut = true
		h.mu.Unlock()
	}
}

// After a laptop's sleep, a connection looks open, and the other side has forgotten it.
func TestHalfOpenConnectionIsReplaced(t *testing.T) {
	for name, begin := range map[string]func(*testing.T) (*cable, func(context.Context) (*mcp.ClientSession, error)){
		"TCP":                   overTCP,
		"HTTP/1":                overHTTP(false, false),
		"HTTP/1, with a stream": overHTTP(false, true),
		"HTTP/2":                overHTTP(true, false),
		"HTTP/2, with a stream": overHTTP(true, true),
	} {
		t.Run(name, func(t *testing.T) {
			c, dial := begin(t)
			t.Parallel()
			s := newSession(t, dial, sessionConfig{CheckTimeout: time.Second})
			var wg sync.WaitGroup
			for range 3 { // several connections, for HTTP/1
				wg.Go(func() { _, _ = echo(t.Context(), s) })
			}
			wg.Wait()
			c.cut()

			use := func(timeout time.Duration) error {
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				_, err := echo(ctx, s)
				return err
			}
			if err := use(100 * time.Millisecond); err != nil { // HTTP/1 may have dialed one too late to be cut
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			works := func() bool { return use(time.Second) == nil }
			require.Eventually(t, works, testTimeout, 10*time.Millisecond)
		})
	}
}

func overTCP(t *testing.T) (*cable, func(context.Context) (*mcp.ClientSession, error)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	server := newPeer().server
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = server.Connect(context.Background(), pipeTransport(conn), nil)
		}
	}()
	c := newCable(t, l.Addr().String())
	return c, func(ctx context.Context) (*mcp.ClientSession, error) {
		conn, err := net.Dial("tcp", c.Addr().String())
		if err != nil {
			return nil, err
		}
		return newClient(nil).Connect(ctx, pipeTransport(conn), nil)
	}
}

func overHTTP(second, stream bool) func(*testing.T) (*cable, func(context.Context) (*mcp.ClientSession, error)) {
	return func(t *testing.T) (*cable, func(context.Context) (*mcp.ClientSession, error)) {
		h := serveHTTP(t, newPeer().server)
		base := &http.Transport{}
		if second {
			h = serveHTTP2(t, newPeer().server)
			base = h.Client().Transport.(*http.Transport).Clone()
		}
		c := newCable(t, h.Listener.Addr().String())
		base.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", c.Addr().String())
		}

		http.DefaultTransport = base // of which Transport makes a copy
		defer func() { http.DefaultTransport = standard }()
		transport := gosdk.Transport(nil)
		t.Cleanup((&http.Client{Transport: transport}).CloseIdleConnections)
		return c, dialHTTP(h, transport, legacy, stream)
	}
}
