package gosdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
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

var errRejected = &jsonrpc.Error{Code: -32005, Message: "rejected by transport"}

// What a call's error means for the call, and for its session.
func TestErrorOfACallTellsWhetherItsSessionIsLost(t *testing.T) {
	idle := errors.New("http: server closed idle connection")
	streamable := func(err *url.Error) error { return fmt.Errorf(`sending "tools/call": %w`, err) }
	for name, tc := range map[string]struct {
		err        error
		lost, ends bool // the call's connection, and the session
		waits      bool // for the end of the session, of which nothing is known yet
	}{
		"a dial":               {&net.OpError{Op: "dial", Err: errors.New("connection refused")}, true, true, false},
		"a read":               {&net.OpError{Op: "read", Err: errors.New("connection reset")}, true, true, false},
		"a read by HTTP":       {fmt.Errorf(`sending "tools/call": %w`, &net.OpError{Op: "read", Err: syscall.EPIPE}), true, false, true},
		"a pipe":               {&fs.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}, true, true, false},
		"half a message":       {io.ErrUnexpectedEOF, true, true, false},
		"the session":          {mcp.ErrSessionMissing, true, true, false},
		"no result":            {io.EOF, false, false, false}, // since the server answers a ping
		"an idle connection":   {streamable(&url.Error{Op: "Post", Err: fmt.Errorf("send: %w", idle)}), true, false, false},
		"another of HTTP":      {streamable(&url.Error{Op: "Post", Err: errors.New("malformed response")}), false, false, true},
		"an empty one of HTTP": {streamable(&url.Error{Op: "Post"}), false, false, true},
		"one of SSE":           {&url.Error{Op: "Post", Err: io.EOF}, true, true, false},
		"one of SSE, idle":     {&url.Error{Op: "Post", Err: idle}, true, true, false},
		"no reply":             {errors.New("x: request terminated without response"), true, false, false},
		"the stream":           {fmt.Errorf("%w: standalone SSE stream: Bad Gateway", errRejected), true, true, false},
		"the stream, by MCP":   {fmt.Errorf("standalone SSE stream: %w", &jsonrpc.Error{Code: -32600, Message: "no"}), true, true, false},
		"the server's words":   {&jsonrpc.Error{Code: -32603, Message: "standalone SSE stream: no"}, false, false, false},
		"words of a limit":     {&jsonrpc.Error{Code: -32602, Message: "the text: exceeded 1000 characters"}, false, false, false},
		"words of another":     {&jsonrpc.Error{Code: -32000, Message: "bad host: failed to reconnect (x): no"}, false, false, false},
		"and with that code":   {&jsonrpc.Error{Code: -32005, Message: "rejected by transport: standalone SSE stream: no"}, false, false, false},
		"a limit of HTTP":      {errors.New(`sending "tools/call": failed to read body: context deadline exceeded (Client.Timeout or context cancellation while reading body)`), false, false, true},
		"a limit of the call":  {errors.New(`sending "tools/call": failed to read body: context deadline exceeded`), false, true, false},
		"a login":              {fmt.Errorf(`sending "tools/call": %w: the user has refused`, errRejected), false, false, false},
		"a login that is left": {errors.New(`sending "tools/call": authorization cancelled: context canceled`), true, true, false},
		"a proxy":              {&net.OpError{Op: "proxyconnect", Err: errors.New("connection refused")}, true, true, false},
		"a status":             {errors.New(`sending "tools/call": Request Entity Too Large`), false, true, false},
		"what isn't sent":      {&json.UnsupportedValueError{Str: "NaN"}, false, false, false},
		"another":              {errors.New("no reason"), false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newGatedPeer()
				s := newSession(t, p.dial, sessionConfig{})
				begin := time.Now()
				_, err := gosdk.Use(t.Context(), s, func(context.Context, *mcp.ClientSession) (int, error) {
					return 0, fmt.Errorf(`calling "tools/call": %w`, tc.err)
				})
				assert.Equal(t, tc.waits, time.Since(begin) == time.Second)
				assert.Equal(t, tc.waits, time.Since(begin) > 0)
				assert.Equal(t, tc.lost, errors.Is(err, resilience.CodeConnectionLost), "%v", err)
				assert.ErrorIs(t, err, tc.err)
				assert.Equal(t, tc.ends, s.State() == resilience.ConnectionDown)
				require.NoError(t, s.Close())
			})
		})
	}
}

// A call that has little time waits for a part of that only, to learn whether its session ends.
func TestCallWithLittleTimeWaitsForLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newGatedPeer()
		s := newSession(t, p.dial, sessionConfig{})
		ctx, cancel := context.WithTimeout(t.Context(), 800*time.Millisecond)
		defer cancel()
		begin := time.Now()
		_, err := gosdk.Use(ctx, s, func(context.Context, *mcp.ClientSession) (int, error) {
			return 0, errors.New(`calling "tools/call": no reason`)
		})
		require.ErrorContains(t, err, "no reason")
		assert.Equal(t, 200*time.Millisecond, time.Since(begin))
		require.NoError(t, s.Close())
	})
}

// A call may fail for no clear reason a moment before its session ends.
func TestErrorBeforeTheEndOfASessionIsItsLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newGatedPeer()
		s := newSession(t, p.dial, sessionConfig{Backoff: steady(time.Hour)})
		_, err := gosdk.Use(t.Context(), s, func(context.Context, *mcp.ClientSession) (int, error) {
			time.AfterFunc(time.Second/2, p.cut)
			return 0, errors.New(`calling "tools/call": no reason`)
		})
		e := requireLost(t, err)
		assert.Positive(t, e.RetryAfter, "the call reports the loss")
		assert.ErrorContains(t, e.Err, "no reason")
		require.NoError(t, s.Close())
	})
}

// Only a dial that has failed says that a call hasn't reached the server.
func TestRequestThatBrokeOnItsWayIsNotRepeated(t *testing.T) {
	for op, want := range map[string]int{"dial": 4, "dial of another call": 1, "read": 1, "write": 1} {
		synctest.Test(t, func(t *testing.T) {
			attempts := 0
			g := newGuard(t, resilience.Config{Effect: resilience.NonIdempotent, Retry: fast})
			call := gosdk.ClientMiddleware(g)(func(ctx context.Context, _ string, _ mcp.Request) (mcp.Result, error) {
				attempts++
				httptrace.ContextClientTrace(ctx).GetConn("10.0.0.7:80")
				op, _, another := strings.Cut(op, " ")
				broken := &net.OpError{Op: op, Net: "tcp", Err: syscall.ECONNREFUSED}
				if another {
					return nil, broken
				}
				return nil, fmt.Errorf("%w: %w", &jsonrpc.Error{Code: -32005, Message: "rejected by transport"}, broken)
			})
			_, err := call(t.Context(), "tools/call", &mcp.ClientRequest[mcp.Params]{Params: &mcp.CallToolParams{Name: "x"}})
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
			assert.Equal(t, want, attempts, op)
		})
	}
}

// A server without sessions can't have forgotten one. Only status 404 says so, not the server's choice of a code.
func TestOnlyAReplyThatASessionIsUnknownEndsIt(t *testing.T) {
	unknown := fmt.Errorf("%w: %w: Not Found", &jsonrpc.Error{Code: -32600}, &jsonrpc.Error{Code: -32005})
	call := gosdk.ClientMiddleware(newGuard(t, resilience.Config{}))(
		func(context.Context, string, mcp.Request) (mcp.Result, error) { return nil, unknown })
	_, err := call(t.Context(), "tools/call", &mcp.ClientRequest[mcp.Params]{Params: &mcp.CallToolParams{Name: "x"}})
	assert.NotErrorIs(t, err, resilience.CodeConnectionLost)

	p := newHTTPPeer(t)
	for _, chosen := range []int64{-32005, -32600} {
		_, err = gosdk.Use(t.Context(), p.session, func(context.Context, *mcp.ClientSession) (int, error) {
			return 0, fmt.Errorf(`calling "tools/call": %w`, &jsonrpc.Error{Code: chosen, Message: "x: Not Found"})
		})
		assert.NotErrorIs(t, err, resilience.CodeConnectionLost, chosen)
	}
	for code, status := range map[int]int{-32600: http.StatusBadRequest, -32601: http.StatusNotFound} {
		once := func(w http.ResponseWriter, _ *http.Request) bool {
			p.intercept.Store(nil)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":"x","error":{"code":%d,"message":"no"}}`, code)
			return true
		}
		p.intercept.Store(&once)
		_, err = echo(t.Context(), p.session)
		assert.ErrorContains(t, err, http.StatusText(status))
		assert.NotErrorIs(t, err, resilience.CodeConnectionLost)
	}
}

// An agent reads why there is no connection.
func TestErrorOfADialSaysWhy(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{syscall.ECONNREFUSED, resilience.AsError("", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}).Message},
		{context.Canceled, "Connection lost: the server can't be reached"},
	} {
		call := gosdk.ClientMiddleware(newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}}))(
			func(context.Context, string, mcp.Request) (mcp.Result, error) {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: tc.err}
			})
		_, err := call(t.Context(), "tools/call", &mcp.ClientRequest[mcp.Params]{Params: &mcp.CallToolParams{Name: "x"}})
		assert.Equal(t, tc.want, requireLost(t, err).Message)
	}
}

// A reply with the code by which the SDK knows a closed connection is no loss, whatever the server says to a ping.
func TestCodeOfAClosedConnectionOfAServerThatKnowsNoPing(t *testing.T) {
	leavesNothing(t)
	p := newPeer()
	p.server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "ping" {
				return nil, errBoom
			}
			return next(ctx, method, req)
		}
	})
	s := newSession(t, p.dial, sessionConfig{})
	_, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "closing"})
	assert.ErrorIs(t, err, mcp.ErrConnectionClosed)
	_, err = echo(t.Context(), s)
	require.NoError(t, err)
	assert.Equal(t, 1, p.dials())
}

// A call whose connection Close has ended is lost for good, whatever its error is.
func TestCallThatEndsWithItsConnectionAfterClose(t *testing.T) {
	for _, end := range []error{io.EOF, context.Canceled} {
		leavesNothing(t)
		s := newSession(t, newPeer().dial, sessionConfig{})
		_, err := gosdk.Use(t.Context(), s, func(context.Context, *mcp.ClientSession) (int, error) {
			assert.NoError(t, s.Close())
			return 0, fmt.Errorf(`calling "tools/call": %w`, end)
		})
		e := requireLost(t, err)
		assert.False(t, e.Retryable)
		assert.Contains(t, e.Suggestion, "will not come back")
		assert.ErrorIs(t, err, end)
	}
}

// What a dial and the connection have said is the reason why there is none.
func TestReasonOfALossIsKept(t *testing.T) {
	leavesNothing(t)
	p := newPeer()
	cut := make(chan struct{})
	var serverEnd net.Conn
	s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
		if ended(cut) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		var clientEnd net.Conn
		var err error
		serverEnd, clientEnd, err = pipeTo(p.server)
		assert.NoError(t, err)
		reader := &cableReader{ReadCloser: clientEnd, cut: cut}
		return newClient(nil).Connect(ctx, &mcp.IOTransport{Reader: reader, Writer: clientEnd}, nil)
	}, sessionConfig{Backoff: steady(time.Hour)})
	cs := up(t, s)
	close(cut)
	serverEnd.Close()
	gone(t, s, cs)
	_, err := s.Get(t.Context())
	assert.ErrorIs(t, err, errCable)

	s = gosdk.NewSession(func(context.Context) (*mcp.ClientSession, error) { return nil, errBoom },
		sessionConfig{Backoff: steady(time.Hour)})
	t.Cleanup(func() { s.Close() })
	says := func() bool { _, err := s.Get(t.Context()); return errors.Is(err, errBoom) }
	require.Eventually(t, says, testTimeout, time.Millisecond)
}

// A cableReader fails once its cable is cut.
type cableReader struct {
	io.ReadCloser
	cut <-chan struct{}
}

var errCable = errors.New("the cable is cut")

func (r *cableReader) Read(b []byte) (int, error) {
	n, err := r.ReadCloser.Read(b)
	if ended(r.cut) {
		return 0, errCable
	}
	return n, err
}

func ended(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestCallInFlightReportsTheLoss(t *testing.T) {
	leavesNothing(t)
	p := newGatedPeer()
	s := newSession(t, p.dial, sessionConfig{})
	failed := hang(t.Context(), s)
	receive(t, p.started)
	p.cut()

	err := receive(t, failed)
	e := requireLost(t, err)
	assert.ErrorIs(t, err, io.EOF)
	assert.True(t, e.Retryable)
	assert.Positive(t, e.RetryAfter, "the call reports the loss before it returns")
	assert.Equal(t, resilience.ConnectionDown, s.State())

	_, err = echo(t.Context(), s)
	e = requireLost(t, err)
	assert.ErrorContains(t, e.Err, "EOF")
	assert.Positive(t, e.RetryAfter)

	p.gate <- struct{}{}
	up(t, s)
	_, err = echo(t.Context(), s)
	require.NoError(t, err)
}

// What f has joined with a loss, or put around it, doesn't hide when the next dial comes.
func TestLossBesideAnotherFailureTellsWhenTheNextDialComes(t *testing.T) {
	other := errors.New("the file can't be closed")
	for name, wrap := range map[string]func(error) error{
		"alone":   func(err error) error { return err },
		"wrapped": func(err error) error { return &toolError{err} },
		"joined":  func(err error) error { return errors.Join(err, other) },
	} {
		for _, isNested := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", nested ", isNested), func(t *testing.T) {
				p := newPeer()
				s := newSession(t, p.dial, sessionConfig{Backoff: steady(time.Hour)})
				f := func(ctx context.Context, cs *mcp.ClientSession) (int, error) {
					p.cut()
					_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
					return 0, wrap(err)
				}
				_, err := gosdk.Use(t.Context(), s, func(ctx context.Context, cs *mcp.ClientSession) (int, error) {
					if isNested {
						return gosdk.Use(ctx, s, f)
					}
					return f(ctx, cs)
				})
				assert.Positive(t, requireLost(t, err).RetryAfter)
			})
		}
	}
}
