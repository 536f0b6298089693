package gosdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLostSessionComesBackWithoutACall(t *testing.T) {
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

// A Session that has been dialed for the thousandth time keeps none of those before.
func TestLostSessionIsForgotten(t *testing.T) {
	leavesNothing(t)
	p := newPeer()
	s := newSession(t, p.dial, sessionConfig{})
	first := up(t, s)
	p.cut()
	gone(t, s, first)
	up(t, s)
	forgotten := weak.Make(first)
	first = nil
	for forgotten.Value() != nil {
		runtime.GC()
	}
}

func TestThousandLostCallsRedialOnce(t *testing.T) {
	leavesNothing(t)
	p := newPeer()
	s := newSession(t, p.dial, sessionConfig{Backoff: steady(100 * time.Millisecond)})
	old := up(t, s)
	var wg sync.WaitGroup
	for range 1000 {
		wg.Go(func() {
			_, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "hang"})
			assert.ErrorIs(t, err, resilience.CodeConnectionLost)
			_, err = s.Wait(t.Context())
			assert.NoError(t, err)
			s.ReportLost(old, err) // which comes late
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

func TestErrorsOfTheServerAreNoLoss(t *testing.T) {
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
	assert.Equal(t, resilience.ClassInvalid, resilience.Classify(err))
	var own *resilience.Error
	assert.False(t, errors.As(err, &own), "the guard around it says what it means")
	_, err = s.CallTool(t.Context(), nil)
	require.ErrorAs(t, err, &wire)

	_, err = call("closing")
	assert.ErrorIs(t, err, mcp.ErrConnectionClosed, "as the SDK says for a code that a server chose")

	_, err = echo(t.Context(), s)
	require.NoError(t, err)
	assert.Equal(t, 1, p.dials())
}

func TestUseReturnsOtherErrorsAsTheyAre(t *testing.T) {
	leavesNothing(t)
	p := newPeer()
	s := newSession(t, p.dial, sessionConfig{})
	use := func(n int, err error) (int, error) {
		return gosdk.Use(t.Context(), s, func(context.Context, *mcp.ClientSession) (int, error) { return n, err })
	}
	n, err := use(7, errBoom)
	assert.Same(t, errBoom, err)
	assert.Equal(t, 7, n)
	n, err = use(7, nil)
	require.NoError(t, err)
	assert.Equal(t, 7, n)
	var used context.Context
	_, err = gosdk.Use(t.Context(), s, func(ctx context.Context, _ *mcp.ClientSession) (int, error) {
		used = ctx
		return 0, ctx.Err()
	})
	require.NoError(t, err)
	assert.Error(t, used.Err(), "what it has begun ends with it")
	for _, other := range []error{io.EOF, &net.OpError{Op: "dial", Err: errBoom}} {
		_, err = use(0, other)
		assert.Equal(t, other, err, "it isn't about this session")
	}
	own := &resilience.Error{Code: resilience.CodeCircuitOpen, Message: "mine"}
	_, err = use(0, own)
	assert.Same(t, own, err)
	_, err = use(0, (*resilience.Error)(nil))
	assert.Equal(t, (*resilience.Error)(nil), err)
	tools := &resilience.Error{Code: resilience.CodeToolFailed, Message: "the file ends", Err: io.EOF}
	_, err = use(0, tools)
	assert.Same(t, tools, err, "not the end of this session")
	assert.Equal(t, resilience.ConnectionUp, s.State())

	_, err = echo(t.Context(), s)
	require.NoError(t, err)
	assert.Equal(t, 1, p.dials())
}

func TestCanceledCallIsNoLoss(t *testing.T) {
	leavesNothing(t)
	p := newPeer()
	s := newSession(t, p.dial, sessionConfig{})

	ctx, cancel := context.WithCancel(t.Context())
	failed := hang(ctx, s)
	receive(t, p.started)
	cancel()
	err := receive(t, failed)
	assert.ErrorIs(t, err, context.Canceled)
	assert.NotErrorIs(t, err, resilience.CodeConnectionLost)

	ctx, cancel = context.WithCancel(t.Context())
	loss := fmt.Errorf(`calling "tools/call": %w`, io.EOF)
	_, err = gosdk.Use(ctx, s, func(context.Context, *mcp.ClientSession) (int, error) { cancel(); return 0, loss })
	assert.ErrorIs(t, err, loss)
	assert.NotErrorIs(t, err, resilience.CodeConnectionLost, "after the caller has left, no error is a loss")

	_, err = echo(t.Context(), s)
	require.NoError(t, err)
	assert.Equal(t, 1, p.dials())
}

func TestCloseEndsCallsInFlight(t *testing.T) {
	leavesNothing(t)
	p := newPeer()
	s := newSession(t, p.dial, sessionConfig{})
	g := newGuard(t, resilience.Config{Effect: resilience.ReadOnly})
	const calls = 6
	failed := make(chan error, calls)
	for range calls {
		go func() {
			_, err := resilience.Do(t.Context(), g, "hang", func(ctx context.Context) (*mcp.CallToolResult, error) {
				return s.CallTool(ctx, &mcp.CallToolParams{Name: "hang"})
			})
			failed <- err
		}()
		receive(t, p.started)
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	require.NoError(t, receive(t, closed))

	for range calls {
		e := requireLost(t, receive(t, failed))
		assert.False(t, e.Retryable)
		assert.Contains(t, e.Suggestion, "will not come back")
	}
	assert.Zero(t, g.Breaker("hang").Failures(), "the server hasn't failed")
	assert.Equal(t, resilience.ConnectionClosed, s.State())
	assert.Equal(t, 1, p.dials())
}

// Over HTTP, the SDK holds the lock of its connection while it tells the server that the session is over, and the server may
// answer that only once its tools have ended, which it learns from the calls.
func TestCloseLetsCallsReturnFirst(t *testing.T) {
	p := newPeer()
	release := make(chan struct{})
	addRaw(p.server, &mcp.Tool{Name: "wait"}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		p.started <- struct{}{}
		select {
		case <-ctx.Done():
		case <-release: // the SDK may not tell the server
		}
		return nil, context.Canceled
	})
	h := serveHTTP(t, p.server)
	t.Cleanup(func() { close(release) })
	g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"wait": {Timeout: 4 * time.Second}}})
	for range 3 {
		s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
			return newClient(nil).Connect(ctx, &mcp.StreamableClientTransport{Endpoint: h.URL, DisableStandaloneSSE: true}, speaking(legacy))
		}, sessionConfig{})
		const calls = 3
		failed := make(chan error, calls)
		for range calls {
			go func() {
				_, err := resilience.Do(t.Context(), g, "wait", func(ctx context.Context) (*mcp.CallToolResult, error) {
					return s.CallTool(ctx, &mcp.CallToolParams{Name: "wait"})
				})
				failed <- err
			}()
			receive(t, p.started)
		}
		_ = s.Close()
		for range calls {
			requireLost(t, receive(t, failed))
		}
	}
	assert.Zero(t, g.Breaker("wait").Failures())
}

// Meanwhile the Session is closed already: no call begins, and a second Close does nothing.
func TestNoCallBeginsWhileCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, newPeer().dial, sessionConfig{})
		release, returned := make(chan struct{}), make(chan error, 1)
		go func() {
			_, _ = gosdk.Use(t.Context(), s, func(context.Context, *mcp.ClientSession) (int, error) { <-release; return 0, nil })
		}()
		synctest.Wait()
		go func() { returned <- s.Close() }()
		synctest.Wait()

		begin := time.Now()
		assert.Equal(t, resilience.ConnectionClosed, s.State())
		_, err := gosdk.Use(t.Context(), s, func(context.Context, *mcp.ClientSession) (int, error) {
			t.Error("a call has begun")
			return 0, nil
		})
		requireLost(t, err)
		assert.NoError(t, s.Close())
		assert.Zero(t, time.Since(begin))
		assert.NoError(t, <-returned)
		assert.Equal(t, time.Second, time.Since(begin))
		close(release)
	})
}

// So does Close if the session is lost, and perhaps still being closed, or the next one is being dialed.
func TestCloseOfALostSessionLetsCallsReturn(t *testing.T) {
	for name, tc := range map[string]struct{ since, backoff time.Duration }{
		"just now":      {0, time.Hour},
		"some time ago": {time.Minute, time.Hour},
		"and dialed":    {time.Second, time.Second - time.Millisecond},
	} {
		inBubble(t, name, func(t *testing.T) {
			p := newPeer()
			var dials atomic.Int64
			s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
				if dials.Add(1) > 1 {
					time.Sleep(100 * time.Millisecond)
				}
				return p.dial(context.WithoutCancel(ctx))
			}, sessionConfig{Backoff: steady(tc.backoff)})
			returned := false
			go func() {
				_, _ = gosdk.Use(t.Context(), s, func(ctx context.Context, _ *mcp.ClientSession) (int, error) {
					<-ctx.Done()
					time.Sleep(300 * time.Millisecond)
					returned = true
					return 0, ctx.Err()
				})
			}()
			synctest.Wait()
			s.ReportLost(current(s), errBoom)
			time.Sleep(tc.since)
			begin := time.Now()
			assert.NoError(t, s.Close())
			assert.True(t, returned)
			assert.Less(t, time.Since(begin), time.Second)
		})
	}
}

// A server whose loss is known before counts.
func TestLossBeforeACloseCounts(t *testing.T) {
	p := newPeer()
	s := newSession(t, p.dial, sessionConfig{Backoff: steady(time.Hour)})
	g := newGuard(t, resilience.Config{})
	_, err := resilience.Do(t.Context(), g, "hang", func(ctx context.Context) (*mcp.CallToolResult, error) {
		return gosdk.Use(ctx, s, func(ctx context.Context, cs *mcp.ClientSession) (*mcp.CallToolResult, error) {
			go func() { <-p.started; p.cut() }()
			res, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "hang"})
			require.Eventually(t, func() bool { return s.State() == resilience.ConnectionDown }, testTimeout, time.Millisecond)
			_ = s.Close()
			return res, err
		})
	})
	e := requireLost(t, err)
	assert.False(t, e.Retryable)
	assert.Contains(t, e.Suggestion, "will not come back")
	assert.Equal(t, 1, g.Breaker("hang").Failures())
}

// A call that comes to the SDK just after Close counts no more than one that is in flight, whatever the SDK says of it.
func TestCallAfterACloseCountsForNobody(t *testing.T) {
	dials := map[string]func(*testing.T) func(context.Context) (*mcp.ClientSession, error){
		"a pipe": func(*testing.T) func(context.Context) (*mcp.ClientSession, error) { return newPeer().dial },
		"HTTP": func(t *testing.T) func(context.Context) (*mcp.ClientSession, error) {
			h := serveHTTP(t, newPeer().server)
			return func(ctx context.Context) (*mcp.ClientSession, error) {
				return newClient(nil).Connect(ctx, &mcp.StreamableClientTransport{Endpoint: h.URL, DisableStandaloneSSE: true}, speaking(legacy))
			}
		},
	}
	for name, dial := range dials {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{Breaker: resilience.BreakerConfig{Failures: 1}})
			const sessions = 20 // the SDK may say either of two things
			failed := make(chan error, sessions)
			for range sessions {
				s := newSession(t, dial(t), sessionConfig{})
				go func() {
					_, err := resilience.Do(t.Context(), g, "echo", func(ctx context.Context) (*mcp.CallToolResult, error) {
						return gosdk.Use(ctx, s, func(ctx context.Context, cs *mcp.ClientSession) (*mcp.CallToolResult, error) {
							_ = s.Close()
							return cs.CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
						})
					})
					failed <- err
				}()
			}
			for range sessions {
				assert.False(t, requireLost(t, receive(t, failed)).Retryable)
			}
			assert.Equal(t, resilience.StateClosed, g.Breaker("echo").State())
		})
	}
}

// So does one whose error doesn't tell why it has failed, if Close comes while it waits to learn that.
func TestCloseWhileACallLearnsWhyItHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, newPeer().dial, sessionConfig{})
		g := newGuard(t, resilience.Config{})
		_, err := resilience.Do(t.Context(), g, "echo", func(ctx context.Context) (int, error) {
			return gosdk.Use(ctx, s, func(context.Context, *mcp.ClientSession) (int, error) {
				time.AfterFunc(time.Second/2, func() { _ = s.Close() })
				return 0, errors.New(`calling "tools/call": no reason`)
			})
		})
		assert.False(t, requireLost(t, err).Retryable)
		assert.Zero(t, g.Breaker("echo").Failures())
	})
}

func TestSessionThatEndsDuringItsDialIsLost(t *testing.T) {
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
	}, sessionConfig{Observers: []resilience.Observer{{
		Connection: func(resilience.ConnectionChange) { changes.Add(1) },
	}}})

	alive := func() bool { return p.dials() == dead+1 && s.State() == resilience.ConnectionUp }
	require.Eventually(t, alive, testTimeout, time.Millisecond)
	_, err := echo(t.Context(), s)
	require.NoError(t, err)
	upAndDown := func() bool { return changes.Load() == 2*dead+1 }
	require.Eventually(t, upAndDown, testTimeout, time.Millisecond, "up, down, up, down … up")
}

func TestServerThatHangsAtFirstIsDialedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer()
		var dials atomic.Int64
		s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
			if dials.Add(1) > 2 {
				return p.dial(ctx)
			}
			serverEnd, clientEnd := net.Pipe()
			context.AfterFunc(ctx, func() { serverEnd.Close() })
			go func() { _, _ = io.Copy(io.Discard, serverEnd) }()
			return newClient(nil).Connect(ctx, pipeTransport(clientEnd), nil)
		}, sessionConfig{DialTimeout: 200 * time.Millisecond})
		_, err := echo(t.Context(), s)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, dials.Load(), int64(3))
	})
}

func TestContextOfADialEndsWithItsSession(t *testing.T) {
	leavesNothing(t)
	p := newPeer()
	var failed, lasting context.Context
	s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
		if failed == nil {
			failed = ctx
			return nil, nil
		}
		if lasting == nil {
			lasting = ctx
		}
		return p.dial(ctx)
	}, sessionConfig{DialTimeout: testTimeout})
	assert.Error(t, failed.Err())
	first := up(t, s)
	_, err := echo(t.Context(), s)
	require.NoError(t, err)
	assert.NoError(t, lasting.Err())

	p.cut()
	receive(t, lasting.Done())
	gone(t, s, first)
}

// The SDK writes into the params that it receives. A retry must not send what was specific to the
// session before.
func TestCallToolLeavesParamsAlone(t *testing.T) {
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

// A stuckWriter writes to a process that stops reading at some point.
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

// The SDK can't close a session with a call that hangs in its transport.
func TestSessionThatCannotBeClosedEndsAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer()
		var writers []*stuckWriter
		s := gosdk.NewSession(func(ctx context.Context) (*mcp.ClientSession, error) {
			_, clientEnd, err := pipeTo(p.server)
			assert.NoError(t, err)
			w := &stuckWriter{WriteCloser: clientEnd, process: ctx}
			writers = append(writers, w)
			return newClient(nil).Connect(ctx, &mcp.IOTransport{Reader: clientEnd, Writer: w}, nil)
		}, sessionConfig{Backoff: steady(time.Millisecond)})
		old, err := s.Wait(t.Context())
		require.NoError(t, err)
		writers[0].stuck.Store(true)
		failed := hang(t.Context(), s)
		synctest.Wait()

		begin := time.Now()
		s.ReportLost(old, errBoom)
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

// Nor one whose transport has panicked in a call.
func TestCloseOfASessionThatCannotBeClosedReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		s := newSession(t, newPeer().dial, sessionConfig{Close: func(cs *mcp.ClientSession) error {
			<-release
			return cs.Close()
		}})
		begin := time.Now()
		assert.ErrorContains(t, s.Close(), "can't be closed")
		assert.Equal(t, 2*time.Minute, time.Since(begin))
		assert.Equal(t, resilience.ConnectionClosed, s.State())
	})
}

func TestNewSessionPanicsOnBadInput(t *testing.T) {
	const nilDial = "resilience: gosdk: NewSession: nil dial"
	assert.PanicsWithValue(t, nilDial, func() { gosdk.NewSession(nil, sessionConfig{}) })
	const watch = "resilience: gosdk: NewSession: Watch must be nil: a Session watches by itself"
	assert.PanicsWithValue(t, watch, func() {
		gosdk.NewSession(newPeer().dial, sessionConfig{Watch: (*mcp.ClientSession).Wait})
	})
	assert.Panics(t, func() { gosdk.NewSession(newPeer().dial, sessionConfig{DialTimeout: -1}) })
}

// A dial that returns a session for the second time harms neither the process nor the next dial.
func TestDialMayReturnALostSession(t *testing.T) {
	leavesNothing(t)
	p := newPeer()
	var first *mcp.ClientSession
	dials := 0
	s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
		if dials++; dials == 2 {
			return first, nil
		}
		cs, err := p.dial(ctx)
		if first == nil {
			first = cs
		}
		return cs, err
	}, sessionConfig{})
	p.cut()
	again := func() bool { return p.dials() == 2 && s.State() == resilience.ConnectionUp }
	require.Eventually(t, again, testTimeout, time.Millisecond)
	_, err := echo(t.Context(), s)
	require.NoError(t, err)
}

func TestSessionIsClosedByTheFunctionOfItsConfig(t *testing.T) {
	p := newPeer()
	var closed []*mcp.ClientSession
	s := newSession(t, p.dial, sessionConfig{Close: func(cs *mcp.ClientSession) error {
		closed = append(closed, cs)
		return errors.Join(cs.Close(), errBoom)
	}})
	cs := up(t, s)
	assert.ErrorIs(t, s.Close(), errBoom)
	assert.Equal(t, []*mcp.ClientSession{cs}, closed)
}
