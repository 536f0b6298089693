package gosdk_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An abandoned session is one that the SDK has given up since a caller has left within his login. Nobody else knows that
// until the server has been told to delete the session, nor does a call return before.
type abandoned struct {
	*gosdk.Session
	cs      *mcp.ClientSession
	delete  func()
	made    func()                // is called when a call has returned
	redial  func()                // lets the next session be dialed
	refusal atomic.Pointer[error] // of that; nil if it succeeds
}

func newAbandoned(t *testing.T, sending ...mcp.Middleware) *abandoned {
	h := serveHTTP(t, newPeer().server)
	deleting, deleted, redial := make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	stranger := func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete {
			select {
			case deleting <- struct{}{}:
				_ = await(r.Context(), deleted)
			default: // of the next session
			}
			return false
		}
		if !bytes.Contains(bodyOf(r), []byte(`"fails"`)) {
			return false
		}
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	h.intercept.Store(&stranger)
	a := &abandoned{delete: func() { close(deleted) }, made: func() {}, redial: func() { close(redial) }}
	httpClient := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if err := a.refusal.Load(); err != nil && r.Method == http.MethodPost && bytes.Contains(bodyOf(r), []byte(`"initialize"`)) {
			return nil, *err
		}
		return http.DefaultTransport.RoundTrip(r)
	})}
	l := &login{refusal: context.Canceled, waits: true}
	var dials atomic.Int32
	s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
		if dials.Add(1) > 1 {
			if err := await(ctx, redial); err != nil {
				return nil, err
			}
		}
		return newClient(nil, sending...).Connect(ctx, &mcp.StreamableClientTransport{
			Endpoint: h.URL, HTTPClient: httpClient, OAuthHandler: l, DisableStandaloneSSE: true,
		}, speaking(legacy))
	}, sessionConfig{})

	a.Session, a.cs = s, up(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "fails"})
		left <- err
	}()
	require.Eventually(t, func() bool { return l.asked.Load() > 0 }, testTimeout, time.Millisecond)
	cancel()
	receive(t, deleting)
	t.Cleanup(func() { require.Error(t, receive(t, left)) })
	return a
}

// calls calls a tool by that session, and lets it be deleted once all calls have begun.
func (a *abandoned) calls(t *testing.T, n int, guarded func(call func(context.Context) (*mcp.CallToolResult, error)) error) []error {
	begun, ended := make(chan struct{}, n), make(chan error, n)
	for range n {
		go func() {
			isFirst := true
			ended <- guarded(func(ctx context.Context) (*mcp.CallToolResult, error) {
				return gosdk.Use(ctx, a.Session, func(ctx context.Context, cs *mcp.ClientSession) (*mcp.CallToolResult, error) {
					if isFirst {
						isFirst = false
						begun <- struct{}{}
						cs = a.cs
					}
					defer a.made()
					return cs.CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
				})
			})
		}()
	}
	for range n {
		receive(t, begun)
	}
	a.delete()
	var errs []error
	for range n {
		errs = append(errs, receive(t, ended))
	}
	return errs
}

// A call of which the SDK sends nothing, since it has given up the session, is made again by the next one, whatever the
// tool does, and isn't counted.
func TestCallOfAnAbandonedSessionIsMadeByTheNext(t *testing.T) {
	for name, opts := range map[string][]resilience.Option{"plain": nil, "behind an adapter": {behindAdapter}} {
		t.Run(name, func(t *testing.T) {
			const calls = 6
			a := newAbandoned(t)
			var retries atomic.Int32
			onRetry := func(context.Context, resilience.CallRetry) {
				if retries.Add(1) == calls {
					a.redial()
				}
			}
			g := newGuard(t, resilience.Config{Effect: resilience.NonIdempotent, Observers: []resilience.Observer{{Retry: onRetry}}})
			for _, err := range a.calls(t, calls, func(call func(context.Context) (*mcp.CallToolResult, error)) error {
				_, err := resilience.Do(t.Context(), g, "echo", call, opts...)
				return err
			}) {
				assert.NoError(t, err)
			}
			assert.Zero(t, g.Breaker("echo").Failures())
		})
	}
}

// A guard within the session's client counts none of them either, and makes none of them again by that session.
func TestGuardWithinAnAbandonedSession(t *testing.T) {
	g := newGuard(t, resilience.Config{Effect: resilience.NonIdempotent})
	a := newAbandoned(t, gosdk.ClientMiddleware(g))
	for _, err := range a.calls(t, 6, func(call func(context.Context) (*mcp.CallToolResult, error)) error {
		_, err := call(t.Context())
		return err
	}) {
		assert.True(t, requireLost(t, err).Retryable)
	}
	assert.Zero(t, g.Breaker("echo").Failures())
}

// The error of such a call is that of a session that is down, and the SDK's still.
func TestErrorOfACallOfAnAbandonedSession(t *testing.T) {
	a := newAbandoned(t)
	var returned error
	errs := a.calls(t, 1, func(call func(context.Context) (*mcp.CallToolResult, error)) error {
		_, err := gosdk.Use(t.Context(), a.Session, func(ctx context.Context, _ *mcp.ClientSession) (int, error) {
			_, err := call(ctx)
			returned = &toolError{err}
			return 0, returned
		})
		return err
	})
	e := requireLost(t, errs[0])
	assert.True(t, e.Retryable)
	assert.ErrorIs(t, errs[0], mcp.ErrConnectionClosed)
	var wrapper *toolError
	require.ErrorAs(t, errs[0], &wrapper)
	assert.Same(t, returned, wrapper)
}

// So it is within another use, whatever the dial of the next session has said by then: that isn't about the call.
func TestCallOfAnAbandonedSessionWithinAUse(t *testing.T) {
	for name, refusal := range map[string]error{
		"plain": errors.New("tls: handshake failure"), "a dial": errRefused, "marked": resilience.MarkPermanent(errors.New("no account")),
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{Effect: resilience.NonIdempotent, Retry: resilience.Retry{MaxRetries: -1}})
			a := newAbandoned(t)
			del := a.delete
			a.delete = func() {
				a.refusal.Store(&refusal)
				a.ReportLost(a.cs, errBoom)
				a.redial()
				require.Eventually(t, func() bool {
					_, err := a.Get(t.Context())
					return errors.Is(err, refusal)
				}, testTimeout, time.Millisecond)
				del()
			}
			errs := a.calls(t, 1, func(call func(context.Context) (*mcp.CallToolResult, error)) error {
				_, err := resilience.Do(t.Context(), g, "echo", func(ctx context.Context) (*mcp.CallToolResult, error) {
					return gosdk.Use(ctx, a.Session, func(ctx context.Context, _ *mcp.ClientSession) (*mcp.CallToolResult, error) {
						return call(ctx)
					})
				})
				return err
			})
			assert.True(t, requireLost(t, errs[0]).Retryable)
			assert.ErrorIs(t, errs[0], mcp.ErrConnectionClosed)
			assert.Zero(t, g.Breaker("echo").Failures())
		})
	}
}

// What middleware within the client says of such a call stands, as of a charge that it has made before.
func TestMiddlewareThatMarksACallOfAnAbandonedSession(t *testing.T) {
	g := newGuard(t, resilience.Config{Effect: resilience.NonIdempotent})
	charge := func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			res, err := next(ctx, method, req)
			if method == "tools/call" && err != nil {
				err = resilience.MarkPermanent(err)
			}
			return res, err
		}
	}
	a := newAbandoned(t, gosdk.ClientMiddleware(g), charge)
	errs := a.calls(t, 1, func(call func(context.Context) (*mcp.CallToolResult, error)) error {
		_, err := call(t.Context())
		return err
	})
	assert.False(t, resilience.AsError("", errs[0]).Retryable)
	assert.Equal(t, 1, g.Breaker("echo").Failures())
}

// If another session is up by then, it is used at once.
func TestCallOfAnAbandonedSessionThatHasBeenReplaced(t *testing.T) {
	g := newGuard(t, resilience.Config{Effect: resilience.NonIdempotent})
	a := newAbandoned(t)
	del := a.delete
	a.delete = func() {
		a.ReportLost(a.cs, errBoom)
		a.redial()
		assert.True(t, a.cs != up(t, a.Session))
		del()
	}
	errs := a.calls(t, 1, func(call func(context.Context) (*mcp.CallToolResult, error)) error {
		_, err := resilience.Do(t.Context(), g, "echo", call)
		return err
	})
	assert.NoError(t, errs[0])
}

// Whose caller has left meanwhile reads what the SDK has said.
func TestCallerOfAnAbandonedSessionWhoLeaves(t *testing.T) {
	a := newAbandoned(t)
	ctx, cancel := context.WithCancel(t.Context())
	a.made = cancel
	errs := a.calls(t, 1, func(call func(context.Context) (*mcp.CallToolResult, error)) error {
		_, err := call(ctx)
		return err
	})
	assert.ErrorIs(t, errs[0], mcp.ErrConnectionClosed)
	var e *resilience.Error
	assert.False(t, errors.As(errs[0], &e), "%v", errs[0])
}

// What else has failed beside such a call decides.
func TestFailureBesideACallOfAnAbandonedSession(t *testing.T) {
	g := newGuard(t, resilience.Config{Effect: resilience.NonIdempotent})
	a := newAbandoned(t)
	a.redial()
	tries := 0
	a.calls(t, 1, func(call func(context.Context) (*mcp.CallToolResult, error)) error {
		_, err := resilience.Do(t.Context(), g, "echo", func(ctx context.Context) (int, error) {
			return gosdk.Use(ctx, a.Session, func(ctx context.Context, _ *mcp.ClientSession) (int, error) {
				tries++
				_, err := call(ctx)
				return 0, errors.Join(err, errors.New("the order was made, and couldn't be written down"))
			})
		})
		return err
	})
	assert.Equal(t, 1, tries)
	assert.Equal(t, 1, g.Breaker("echo").Failures())
}

// A server that says what the SDK says of such calls, and ends the session, has been sent the call.
func TestWordsOfAServerAreNoProofThatNothingWasSent(t *testing.T) {
	for name, over := range map[string]func(*testing.T, *mcp.Server) (*gosdk.Session, func()){
		"HTTP": func(t *testing.T, server *mcp.Server) (*gosdk.Session, func()) {
			p := newHTTPPeerOf(t, server, legacy, newClient(nil))
			close(p.back)
			first := up(t, p.session).ID()
			return p.session, func() {
				forgotten := func(w http.ResponseWriter, r *http.Request) bool {
					if r.Header.Get("Mcp-Session-Id") == first {
						http.Error(w, "session not found", http.StatusNotFound)
						return true
					}
					return false
				}
				p.intercept.Store(&forgotten)
			}
		},
		"a pipe": func(t *testing.T, server *mcp.Server) (*gosdk.Session, func()) {
			p := newPeer()
			p.server = server
			return newSession(t, p.dial, sessionConfig{}), p.cut
		},
	} {
		t.Run(name, func(t *testing.T) {
			leavesNothing(t)
			var orders atomic.Int32
			server := newServer(nil)
			addRaw(server, &mcp.Tool{Name: "order"}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				orders.Add(1)
				return nil, &jsonrpc.Error{Code: -32003, Message: "client is closing"}
			})
			s, end := over(t, server)
			g := newGuard(t, resilience.Config{Effect: resilience.NonIdempotent})
			_, err := resilience.Do(t.Context(), g, "order", func(ctx context.Context) (*mcp.CallToolResult, error) {
				return gosdk.Use(ctx, s, func(ctx context.Context, cs *mcp.ClientSession) (*mcp.CallToolResult, error) {
					defer end()
					return cs.CallTool(ctx, &mcp.CallToolParams{Name: "order"})
				})
			})
			assert.False(t, requireLost(t, err).Retryable)
			assert.EqualValues(t, 1, orders.Load())
			assert.Equal(t, 1, g.Breaker("order").Failures())
		})
	}
}
