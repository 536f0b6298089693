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
	"os"
	"reflect"
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

// The SDK ends the calls of a connection with whatever has ended it.
func TestClientOfAServerThatDiedWhileItWroteIsLost(t *testing.T) {
	for name, last := range map[string]string{
		"half of an answer": `{"jsonrpc":"2.0","id":2,"resu`, "why it has crashed": "Traceback (most recent call last):\n",
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{})
			p := newPeer()
			p.sending = []mcp.Middleware{gosdk.ClientMiddleware(g)}
			session, err := p.dial(t.Context())
			require.NoError(t, err)
			t.Cleanup(func() { session.Close() })

			go func() {
				<-p.started
				_, _ = io.WriteString(p.ends[0], last)
				p.cut()
			}()
			_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "hang"})
			requireLost(t, err)
			assert.Equal(t, 1, g.Health()[0].ConsecutiveFailures)
		})
	}
}

// A brokenConn is a connection whose reads end with an error of their own, and whose Close takes as long as the end of a
// process may.
type brokenConn struct {
	net.Conn
	err     error
	release chan struct{}
}

func (c *brokenConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		err = c.err
	}
	return n, err
}

func (c *brokenConn) Close() error {
	<-c.release
	return c.Conn.Close()
}

// The SDK gives up a connection that can't be read any more, and holds a lock until it is closed. No ping tells then.
func TestClientOfABrokenConnectionIsLost(t *testing.T) {
	for _, broken := range []error{
		io.ErrUnexpectedEOF, io.ErrClosedPipe, &fs.PathError{Op: "read", Path: "|0", Err: os.ErrClosed},
		&net.OpError{Op: "read", Net: "unix", Err: syscall.ECONNRESET},
	} {
		t.Run(broken.Error(), func(t *testing.T) {
			g, p := newGuard(t, resilience.Config{}), newPeer()
			serverEnd, clientEnd, err := pipeTo(p.server)
			require.NoError(t, err)
			conn := &brokenConn{clientEnd, broken, make(chan struct{})}
			client := newClient(nil, gosdk.ClientMiddleware(g))
			session, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: conn, Writer: conn}, nil)
			require.NoError(t, err)
			defer func() {
				close(conn.release)
				_ = session.Close()
			}()

			go func() {
				<-p.started
				_ = serverEnd.Close()
			}()
			_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "hang"})
			requireLost(t, err)
			assert.Equal(t, 1, g.Breaker("hang").Failures())
		})
	}
}

// Clients of older protocols have a standalone stream, whose end is that of the session.
func TestClientWhoseStreamHasEndedIsLost(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	r := newRemote(t)
	addRaw(r.server, &mcp.Tool{Name: "reports"}, func(
		ctx context.Context, req *mcp.CallToolRequest,
	) (*mcp.CallToolResult, error) {
		assert.NoError(t, gosdk.NotifyProgress(ctx, req, 1, 0, ""))
		<-r.release
		return textResult("late"), nil
	})
	down := make(chan struct{})
	ends := func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.Method == http.MethodPost:
			return false
		case ended(down):
			w.WriteHeader(http.StatusBadGateway)
			return true
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-down
		return true
	}
	r.intercept.Store(&ends)
	transport := &mcp.StreamableClientTransport{Endpoint: r.URL, MaxRetries: -1}
	progress := make(chan struct{})
	client := newClient(&mcp.ClientOptions{
		ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { close(progress) },
	}, gosdk.ClientMiddleware(g))
	session, err := client.Connect(t.Context(), transport, speaking(legacy))
	require.NoError(t, err)
	defer close(r.release)

	go func() { <-progress; close(down) }() // then the request has a response, of which nothing more comes
	_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "reports", Meta: mcp.Meta{"progressToken": "p"}})
	requireLost(t, err)
	assert.Equal(t, 1, g.Health()[0].ConsecutiveFailures)
}

var errNoReason = errors.New("no reason")

// A call may fail for another reason while its session is up, which a ping tells.
func TestErrorOfACallOfASessionThatMayBeUp(t *testing.T) {
	sdks := func(err error) error { return fmt.Errorf(`calling "tools/call": %w`, err) }
	for name, tc := range map[string]struct {
		err    error
		ping   error
		silent bool
		pings  int32
		lost   bool
	}{
		"the server replies":      {err: sdks(errNoReason), pings: 1},
		"it knows no ping":        {err: sdks(errNoReason), ping: &jsonrpc.Error{Code: -32601, Message: "m"}, pings: 1},
		"it is silent":            {err: sdks(errNoReason), silent: true, pings: 1}, // it may be busy
		"somebody knows better":   {err: sdks(errBoom)},
		"the call wasn't sent":    {err: sdks(&json.UnsupportedValueError{Str: "NaN"})},
		"nor could be":            {err: sdks(&json.MarshalerError{Err: errBoom})},
		"nor is of a type":        {err: sdks(&json.UnsupportedTypeError{Type: reflect.TypeFor[func()]()})},
		"it isn't the SDK's":      {err: errBoom},
		"the server has answered": {err: sdks(&jsonrpc.Error{Code: -32603, Message: "m"})},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, resilience.Config{}, nil)
				var pings atomic.Int32 // an abandoned attempt may be pinging
				fails := func(next mcp.MethodHandler) mcp.MethodHandler {
					return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
						switch {
						case method == "tools/call":
							return nil, tc.err
						case method != "ping":
							return next(ctx, method, req)
						}
						pings.Add(1)
						switch {
						case tc.silent:
							<-ctx.Done()
							return nil, ctx.Err()
						case tc.ping != nil:
							return nil, tc.ping
						}
						return next(ctx, method, req)
					}
				}
				f.connect(legacy, gosdk.ClientMiddleware(f.guard), fails)
				start := time.Now()
				_, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "x"})
				assert.LessOrEqual(t, time.Since(start), 200*time.Millisecond)
				assert.Equal(t, tc.lost, errors.Is(err, resilience.CodeConnectionLost), "%v", err)
				assert.Equal(t, tc.pings, pings.Load())
			})
		})
	}
}

// A message over stdio without an ID, as JSON-RPC wants it of an error that belongs to no request, ends the connection,
// and so does what is no message. The SDK says so of the calls in flight: they may have taken effect.
func TestUnreadableMessageEndsTheConnection(t *testing.T) {
	for name, last := range map[string]string{
		"an error":        `{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found"}}`,
		"a result":        `{"jsonrpc":"2.0","result":{}}`,
		"an ID of a kind": `{"jsonrpc":"2.0","id":{},"result":{}}`,
		"no version":      `{"id":1,"result":{}}`,
		"an empty batch":  `[]`,
		"no JSON":         `fetching the page`,
		"a word":          `"fetching"`,
	} {
		for _, with := range []string{"a client", "a Session"} {
			t.Run(name+", "+with, func(t *testing.T) {
				g := newGuard(t, resilience.Config{Effect: resilience.NonIdempotent})
				p := newPeer()
				params := &mcp.CallToolParams{Name: "hang"}
				call := func() error {
					s := newSession(t, p.dial, sessionConfig{})
					_, err := resilience.Do(t.Context(), g, "hang", func(ctx context.Context) (*mcp.CallToolResult, error) {
						return s.CallTool(ctx, params)
					}, behindAdapter)
					return err
				}
				if with == "a client" {
					p.sending = []mcp.Middleware{gosdk.ClientMiddleware(g)}
					session, err := p.dial(t.Context())
					require.NoError(t, err)
					t.Cleanup(func() { session.Close() })
					call = func() error { _, err := session.CallTool(t.Context(), params); return err }
				}

				go func() {
					<-p.started
					_, _ = io.WriteString(p.ends[0], last+"\n")
				}()
				requireLost(t, call())
				assert.Equal(t, 1, g.Health()[0].ConsecutiveFailures)
			})
		}
	}
}
