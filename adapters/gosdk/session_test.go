package gosdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
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

type sessionConfig = resilience.ConnectorConfig[*mcp.ClientSession]

// soon dials again at once.
var soon = resilience.Backoff{Base: time.Millisecond, Max: time.Millisecond, Jitter: resilience.NoJitter}

// limit is for what must come, however slow the machine is.
const limit = 2 * time.Minute

// A peer is another server, within this process, that can be cut off.
type peer struct {
	server  *mcp.Server
	options mcp.ClientOptions
	sending []mcp.Middleware // of the client
	started chan struct{}    // one for each call of "hang"
	gate    chan struct{}    // dials take one each, if it isn't nil

	mu       sync.Mutex
	ends     []net.Conn // the server's, one for each dial
	sessions []*mcp.ClientSession
}

func newPeer() *peer {
	p := &peer{server: mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil), started: make(chan struct{}, 1000)}
	add := func(name string, handler mcp.ToolHandler) {
		p.server.AddTool(&mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}}, handler)
	}
	add("echo", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(req.Params.Arguments)}}}, nil
	})
	add("hang", func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		p.started <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	add("fails", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		res := &mcp.CallToolResult{}
		res.SetError(errBoom)
		return res, nil
	})
	add("closing", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, &jsonrpc.Error{Code: -32003, Message: "this code means something else here"}
	})
	return p
}

func (p *peer) dial(ctx context.Context) (*mcp.ClientSession, error) {
	if p.gate != nil {
		select {
		case <-p.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	serverEnd, clientEnd := net.Pipe()
	if _, err := p.server.Connect(context.Background(), &mcp.IOTransport{Reader: serverEnd, Writer: serverEnd}, nil); err != nil {
		return nil, err
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &p.options)
	client.AddSendingMiddleware(p.sending...)
	cs, err := client.Connect(ctx, &mcp.IOTransport{Reader: clientEnd, Writer: clientEnd}, nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ends = append(p.ends, serverEnd)
	p.sessions = append(p.sessions, cs)
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

// leavesNothing checks that no goroutine is left at the end.
func leavesNothing(t *testing.T) {
	before := runtime.NumGoroutine() + 1 // Eventually has one too
	t.Cleanup(func() {
		if !assert.Eventually(t, func() bool { return runtime.NumGoroutine() <= before }, limit, time.Millisecond) {
			b := make([]byte, 1<<20)
			t.Logf("%s", b[:runtime.Stack(b, true)])
		}
	})
}

// newSession returns a session that is up.
func newSession(t *testing.T, dial func(context.Context) (*mcp.ClientSession, error), cfg sessionConfig) *gosdk.Session {
	if cfg.Backoff == (resilience.Backoff{}) {
		cfg.Backoff = soon
	}
	s := gosdk.NewSession(dial, cfg)
	t.Cleanup(func() { _ = s.Close() })
	up(t, s)
	return s
}

func up(t *testing.T, s *gosdk.Session) *mcp.ClientSession {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cs, err := s.Wait(ctx)
	require.NoError(t, err)
	return cs
}

// gone waits until s has noticed that cs is lost.
func gone(t *testing.T, s *gosdk.Session, cs *mcp.ClientSession) {
	t.Helper()
	require.Eventually(t, func() bool { now, _ := s.Get(t.Context()); return now != cs }, limit, time.Millisecond)
}

func echo(ctx context.Context, s *gosdk.Session) (*mcp.CallToolResult, error) {
	return s.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"a": 1}})
}

// hang begins a call that doesn't end by itself, and returns where its error will be.
func hang(ctx context.Context, s *gosdk.Session) <-chan error {
	failed := make(chan error, 1)
	go func() {
		_, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "hang"})
		failed <- err
	}()
	return failed
}

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(limit):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

func requireLost(t *testing.T, err error) *resilience.Error {
	t.Helper()
	var e *resilience.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, resilience.CodeConnectionLost, e.Code, "%v", errors.Unwrap(err))
	return e
}

// Nobody calls anything: the session comes back by itself.
func TestSessionNoticesItsEnd(t *testing.T) {
	leavesNothing(t)
	p := newPeer()
	s := newSession(t, p.dial, sessionConfig{})
	first := up(t, s)
	p.cut()
	gone(t, s, first)
	second := up(t, s)
	assert.NotSame(t, first, second)
	assert.Equal(t, 2, p.dials())
	res, err := echo(t.Context(), s)
	require.NoError(t, err)
	assert.Equal(t, `{"a":1}`, text(t, res))
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	_ = second.Wait() // it has been closed
	_, err = echo(t.Context(), s)
	assert.False(t, requireLost(t, err).Retryable)
}

func TestSessionInFlight(t *testing.T) {
	leavesNothing(t)
	p := newPeer()
	p.gate = make(chan struct{}, 1)
	p.gate <- struct{}{}
	s := newSession(t, p.dial, sessionConfig{})
	failed := hang(t.Context(), s)
	receive(t, p.started)
	p.cut()
	err := receive(t, failed)
	e := requireLost(t, err)
	assert.ErrorIs(t, err, io.EOF)
	assert.True(t, e.Retryable)
	assert.Positive(t, e.RetryAfter, "reported by the call, before it returned")
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

// A thousand calls at the moment of loss cause one redial.
func TestSessionManyCalls(t *testing.T) {
	leavesNothing(t)
	p := newPeer()
	s := newSession(t, p.dial, sessionConfig{Backoff: resilience.Backoff{Base: 100 * time.Millisecond, Jitter: resilience.NoJitter}})
	old := up(t, s)
	var wg sync.WaitGroup
	for range 1000 {
		wg.Go(func() {
			_, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "hang"})
			requireLost(t, err)
			_, err = s.Wait(t.Context())
			assert.NoError(t, err)
			s.Lost(old, err) // late
			_, err = echo(t.Context(), s)
			assert.NoError(t, err)
		})
	}
	for range 1000 {
		receive(t, p.started)
	}
	p.cut()
	wg.Wait()
	assert.Equal(t, 2, p.dials())
}

// What isn't a loss is returned as it is, and costs no session.
func TestSessionOtherErrors(t *testing.T) {
	leavesNothing(t)
	p := newPeer()
	s := newSession(t, p.dial, sessionConfig{})
	call := func(name string) (*mcp.CallToolResult, error) {
		return s.CallTool(t.Context(), &mcp.CallToolParams{Name: name})
	}
	res, err := call("fails")
	require.NoError(t, err)
	assert.True(t, res.IsError)

	_, err = call("unknown")
	var wire *jsonrpc.Error
	require.ErrorAs(t, err, &wire)
	assert.Equal(t, resilience.Invalid, resilience.Classify(err))
	_, err = s.CallTool(t.Context(), nil)
	require.ErrorAs(t, err, &wire)

	_, err = call("closing")
	assert.ErrorIs(t, err, mcp.ErrConnectionClosed, "so says the SDK, of a code that a server chose")

	_, err = gosdk.Use(t.Context(), s, func(context.Context, *mcp.ClientSession) (int, error) { return 7, errBoom })
	assert.Same(t, errBoom, err)
	n, err := gosdk.Use(t.Context(), s, func(context.Context, *mcp.ClientSession) (int, error) { return 7, nil })
	require.NoError(t, err)
	assert.Equal(t, 7, n)
	for _, theirs := range []error{io.EOF, &net.OpError{Op: "dial", Err: errBoom}} {
		_, err = gosdk.Use(t.Context(), s, func(context.Context, *mcp.ClientSession) (int, error) { return 0, theirs })
		assert.Equal(t, theirs, err, "of something else that was used")
	}
	own := &resilience.Error{Code: resilience.CodeCircuitOpen, Message: "mine"}
	_, err = gosdk.Use(t.Context(), s, func(context.Context, *mcp.ClientSession) (int, error) { return 0, own })
	assert.Same(t, own, err)

	ctx, cancel := context.WithCancel(t.Context())
	failed := hang(ctx, s)
	receive(t, p.started)
	cancel()
	assert.Equal(t, context.Canceled, receive(t, failed))
	ctx, cancel = context.WithCancel(t.Context())
	echoed := fmt.Errorf(`calling "x": %w`, io.EOF)
	_, err = gosdk.Use(ctx, s, func(context.Context, *mcp.ClientSession) (int, error) { cancel(); return 0, echoed })
	assert.Same(t, echoed, err, "nothing that a caller who has left sees is a loss")
	_, err = echo(t.Context(), s)
	require.NoError(t, err)
	assert.Equal(t, 1, p.dials())
}

// Close ends the calls in flight, for which the SDK would wait.
func TestSessionClose(t *testing.T) {
	leavesNothing(t)
	p := newPeer()
	s := newSession(t, p.dial, sessionConfig{})
	failed := hang(t.Context(), s)
	receive(t, p.started)
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	require.NoError(t, receive(t, closed))
	err := receive(t, failed)
	assert.False(t, requireLost(t, err).Retryable)
	assert.Equal(t, resilience.Permanent, resilience.Classify(err))
	assert.Equal(t, resilience.ConnectionClosed, s.State())
	assert.Equal(t, 1, p.dials())
}

// A session that has ended when its dial returns is lost like any other.
func TestSessionEndsAtOnce(t *testing.T) {
	leavesNothing(t)
	p := newPeer()
	const dead = 3
	var changes atomic.Int64
	s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
		cs, err := p.dial(ctx)
		if err == nil && p.dials() <= dead {
			p.cut()
			_ = cs.Wait()
		}
		return cs, err
	}, sessionConfig{OnChange: func(resilience.ConnectionChange) { changes.Add(1) }})
	require.Eventually(t, func() bool { return p.dials() == dead+1 && s.State() == resilience.ConnectionUp }, limit, time.Millisecond)
	_, err := echo(t.Context(), s)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return changes.Load() == 2*dead+1 }, limit, time.Millisecond, "up, down, up, down … up")
}

// A server that doesn't answer at first is given up on, and so is its transport.
func TestSessionHungServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer()
		var hung atomic.Int64
		s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
			if hung.Add(1) > 2 {
				return p.dial(ctx)
			}
			serverEnd, clientEnd := net.Pipe()
			context.AfterFunc(ctx, func() { serverEnd.Close() })
			go func() { _, _ = io.Copy(io.Discard, serverEnd) }()
			client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil)
			return client.Connect(ctx, &mcp.IOTransport{Reader: clientEnd, Writer: clientEnd}, nil)
		}, sessionConfig{DialTimeout: 200 * time.Millisecond})
		_, err := echo(t.Context(), s)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, hung.Load(), int64(3))
	})
}

// The context of a dial lives as long as what it made.
func TestSessionDialContext(t *testing.T) {
	leavesNothing(t)
	p := newPeer()
	var failed, lives context.Context
	s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
		if failed == nil {
			failed = ctx
			return nil, nil
		}
		if lives == nil {
			lives = ctx
		}
		return p.dial(ctx)
	}, sessionConfig{DialTimeout: limit})
	assert.ErrorContains(t, context.Cause(failed), "neither a session nor an error")
	first := up(t, s)
	_, err := echo(t.Context(), s)
	require.NoError(t, err)
	assert.NoError(t, lives.Err())
	p.cut()
	receive(t, lives.Done())
	gone(t, s, first)
	assert.ErrorIs(t, context.Cause(lives), io.ErrUnexpectedEOF)
}

// So does that of a session which its own dial reports lost.
func TestSessionLostByItsDial(t *testing.T) {
	leavesNothing(t)
	p := newPeer()
	var s *gosdk.Session
	made, lost := make(chan struct{}), make(chan context.Context, 1)
	s = gosdk.NewSession(func(ctx context.Context) (*mcp.ClientSession, error) {
		<-made
		cs, err := p.dial(ctx)
		if p.dials() == 1 {
			lost <- ctx
			s.Lost(cs, errBoom)
		}
		return cs, err
	}, sessionConfig{Backoff: soon})
	t.Cleanup(func() { s.Close() })
	close(made)
	up(t, s)
	receive(t, receive(t, lost).Done())
	assert.Equal(t, 2, p.dials())
}

// The SDK writes into what it is given: a retry must not send what went for the session
// before.
func TestSessionLeavesParamsAlone(t *testing.T) {
	leavesNothing(t)
	p := newPeer()
	s := newSession(t, p.dial, sessionConfig{})
	params := &mcp.CallToolParams{Name: "echo", Meta: mcp.Meta{"mine": 1}}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			_, err := s.CallTool(t.Context(), params)
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	assert.Equal(t, &mcp.CallToolParams{Name: "echo", Meta: mcp.Meta{"mine": 1}}, params)
}

// With a guard outside: what was not made is retried for any tool, what was in flight
// where that can do no harm.
func TestSessionUnderAGuard(t *testing.T) {
	for effect, again := range map[resilience.Effect]bool{resilience.ReadOnly: true, resilience.NonIdempotent: false} {
		t.Run(fmt.Sprint(effect), func(t *testing.T) {
			leavesNothing(t)
			p := newPeer()
			p.gate = make(chan struct{}, 1)
			p.gate <- struct{}{}
			s := newSession(t, p.dial, sessionConfig{})
			g := resilience.Must(resilience.New(resilience.Config{Effect: effect, Retry: resilience.Retry{MaxRetries: 100}}))
			calls := 0
			call := func(ctx context.Context) (*mcp.CallToolResult, error) {
				calls++
				if calls == 1 {
					return s.CallTool(ctx, &mcp.CallToolParams{Name: "hang"})
				}
				return echo(ctx, s)
			}
			go func() {
				<-p.started
				p.cut()
				if again {
					p.gate <- struct{}{}
				}
			}()
			res, err := resilience.Do(t.Context(), g, "x", call)
			if again {
				require.NoError(t, err)
				assert.Equal(t, `{"a":1}`, text(t, res))
				return
			}
			assert.False(t, requireLost(t, err).Retryable)
			assert.Equal(t, 1, calls)

			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (*mcp.CallToolResult, error) {
				if resilience.Attempt(ctx) == 2 {
					p.gate <- struct{}{}
				}
				return echo(ctx, s)
			})
			require.Nil(t, r.Err)
			assert.Greater(t, r.Attempts, 1, "not made at first")
		})
	}
}

// With a guard inside, its errors stay, and the loss is noticed.
func TestSessionAroundAGuard(t *testing.T) {
	leavesNothing(t)
	p := newPeer()
	p.sending = []mcp.Middleware{gosdk.ClientMiddleware(resilience.Must(resilience.New(resilience.Config{Effect: resilience.ReadOnly, Retry: fast})))}
	p.gate = make(chan struct{}, 1)
	p.gate <- struct{}{}
	s := newSession(t, p.dial, sessionConfig{})
	failed := hang(t.Context(), s)
	receive(t, p.started)
	p.cut()
	err := receive(t, failed)
	assert.ErrorIs(t, err, resilience.CodeRetryExhausted)
	assert.ErrorIs(t, err, resilience.CodeConnectionLost)
	assert.Equal(t, resilience.ConnectionDown, s.State())
	p.gate <- struct{}{}
	up(t, s)
	_, err = echo(t.Context(), s)
	require.NoError(t, err)
}

// A front stands before a server over streamable HTTP, and answers for it once it is told to.
type front struct {
	peer   *peer
	answer atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
	dials  atomic.Int64
	back   chan struct{} // once it is closed, the session is dialled again
}

func newFront(t *testing.T, sending ...mcp.Middleware) (*front, *gosdk.Session) {
	leavesNothing(t)
	f := &front{peer: newPeer(), back: make(chan struct{})}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return f.peer.server }, nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer := f.answer.Load(); answer == nil || !(*answer)(w, r) {
			handler.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		for ss := range f.peer.server.Sessions() {
			ss.Close()
		}
		server.CloseClientConnections()
		server.Close()
	})
	httpClient := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(httpClient.CloseIdleConnections)
	return f, newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
		if f.dials.Add(1) > 1 {
			select {
			case <-f.back:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil)
		client.AddSendingMiddleware(sending...)
		transport := &mcp.StreamableClientTransport{Endpoint: server.URL, HTTPClient: httpClient, DisableStandaloneSSE: true}
		return client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	}, sessionConfig{})
}

// Servers say in several ways that they have forgotten a session.
func TestSessionForgotten(t *testing.T) {
	guard := gosdk.ClientMiddleware(resilience.Must(resilience.New(resilience.Config{})))
	for name, body := range map[string]string{
		"go":         "session not found",
		"typescript": `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`,
		"python":     `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}`,
	} {
		for _, sending := range [][]mcp.Middleware{nil, {guard}} {
			t.Run(fmt.Sprintf("%s, %d guards", name, len(sending)), func(t *testing.T) {
				f, s := newFront(t, sending...)
				first := up(t, s)
				require.NotEmpty(t, first.ID())
				_, err := echo(t.Context(), s)
				require.NoError(t, err)
				answer := func(w http.ResponseWriter, r *http.Request) bool {
					if r.Header.Get("Mcp-Session-Id") != first.ID() {
						return false
					}
					w.WriteHeader(http.StatusNotFound)
					_, _ = io.WriteString(w, body)
					return true
				}
				f.answer.Store(&answer)
				_, err = echo(t.Context(), s)
				e := requireLost(t, err)
				assert.Equal(t, len(sending) == 0, e.RetryAfter > 0)
				close(f.back)
				require.NotSame(t, first, up(t, s))
				_, err = echo(t.Context(), s)
				require.NoError(t, err)
				assert.EqualValues(t, 2, f.dials.Load())
			})
		}
	}
}

// What a proxy does to one call must not cost the others their session.
func TestSessionRequestCutOff(t *testing.T) {
	for name, cut := range map[string]func(http.ResponseWriter){
		"before the answer": func(http.ResponseWriter) {},
		"within it": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, s := newFront(t)
			answer := func(w http.ResponseWriter, _ *http.Request) bool {
				f.answer.Store(nil)
				cut(w)
				panic(http.ErrAbortHandler)
			}
			f.answer.Store(&answer)
			_, err := echo(t.Context(), s)
			requireLost(t, err)
			_, err = echo(t.Context(), s)
			require.NoError(t, err)
			assert.EqualValues(t, 1, f.dials.Load())
		})
	}
}

// A stuckWriter is the way to a process that has stopped reading.
type stuckWriter struct {
	io.WriteCloser
	process context.Context
	stuck   atomic.Bool
}

func (w *stuckWriter) Write(b []byte) (int, error) {
	if w.stuck.Load() {
		<-w.process.Done()
		return 0, io.ErrClosedPipe
	}
	return w.WriteCloser.Write(b)
}

// The SDK can't close a session with a call that hangs in its transport: in the end the
// context of what was dialled does.
func TestSessionThatCannotBeClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer()
		var writers []*stuckWriter
		s := gosdk.NewSession(func(ctx context.Context) (*mcp.ClientSession, error) {
			serverEnd, clientEnd := net.Pipe()
			_, err := p.server.Connect(t.Context(), &mcp.IOTransport{Reader: serverEnd, Writer: serverEnd}, nil)
			require.NoError(t, err)
			w := &stuckWriter{WriteCloser: clientEnd, process: ctx}
			writers = append(writers, w)
			return newClient().Connect(ctx, &mcp.IOTransport{Reader: clientEnd, Writer: w}, nil)
		}, sessionConfig{Backoff: soon})
		old, err := s.Wait(t.Context())
		require.NoError(t, err)
		writers[0].stuck.Store(true)
		failed := hang(t.Context(), s)
		synctest.Wait()
		begin := time.Now()
		s.Lost(old, errBoom)
		_, err = s.Wait(t.Context())
		require.NoError(t, err)
		_, err = echo(t.Context(), s)
		require.NoError(t, err)
		assert.Less(t, time.Since(begin), time.Second)
		requireLost(t, <-failed)
		_ = old.Wait()
		assert.Equal(t, time.Minute, time.Since(begin))
		require.NoError(t, s.Close())
		assert.Len(t, writers, 2)
	})
}

// A call that came too late was not made: it may be repeated whatever the tool.
func TestSessionNotSent(t *testing.T) {
	leavesNothing(t)
	p := newPeer()
	s := newSession(t, p.dial, sessionConfig{})
	g := resilience.Must(resilience.New(resilience.Config{Effect: resilience.NonIdempotent, Retry: resilience.Retry{MaxRetries: 100}}))
	r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (*mcp.CallToolResult, error) {
		return gosdk.Use(ctx, s, func(ctx context.Context, cs *mcp.ClientSession) (*mcp.CallToolResult, error) {
			if p.dials() == 1 {
				cs.Close()
			}
			return cs.CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
		})
	})
	require.Nil(t, r.Err)
	assert.Greater(t, r.Attempts, 1)
}

func TestNewSessionBadInput(t *testing.T) {
	assert.PanicsWithValue(t, "resilience: gosdk: NewSession: nil dial", func() { gosdk.NewSession(nil, sessionConfig{}) })
	assert.PanicsWithValue(t, "resilience: gosdk: NewSession: Watch must be nil: a Session watches by itself", func() {
		gosdk.NewSession(newPeer().dial, sessionConfig{Watch: (*mcp.ClientSession).Wait})
	})
	assert.Panics(t, func() { gosdk.NewSession(newPeer().dial, sessionConfig{DialTimeout: -1}) })
}
