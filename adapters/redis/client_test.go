package redisfleet

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// A faultyClient has callbacks of a user that fail while broken is set.
type faultyClient struct {
	*redis.Client
	broken atomic.Bool

	mu    sync.Mutex
	conns []net.Conn
}

// callbacks are called before each dial, after it, and for each command.
type callbacks struct {
	dial, connected, command func() error
}

func newFaultyClient(t *testing.T, w *wire, c callbacks) *faultyClient {
	f := new(faultyClient)
	call := func(callback func() error) error {
		if callback == nil || !f.broken.Load() {
			return nil
		}
		return callback()
	}
	f.Client = redis.NewClient(&redis.Options{
		Addr:     "127.0.0.1:6379",
		PoolSize: 1000, // each crash takes a place in the pool for good
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			if err := call(c.dial); err != nil {
				return nil, err
			}
			return f.dial(w)
		},
		OnConnect: func(context.Context, *redis.Conn) error { return call(c.connected) },
	})
	f.AddHook(hook{func() error { return call(c.command) }})
	t.Cleanup(func() { f.Close() })
	return f
}

func (f *faultyClient) dial(w *wire) (net.Conn, error) {
	conn, err := w.Dial()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns = append(f.conns, conn)
	return conn, err
}

// fail breaks the callbacks, and loses all connections.
func (f *faultyClient) fail() {
	f.broken.Store(true)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conn := range f.conns {
		conn.Close()
	}
}

// A hook is called for each command.
type hook struct{ command func() error }

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := h.command(); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A hollowError is often a nil pointer, whose methods panic.
type hollowError struct{ inner error }

func (e *hollowError) Error() string { return e.inner.Error() }
func (e *hollowError) Unwrap() error { return e.inner }

// A quietError panics only when something looks at what it wraps.
type quietError struct{ inner error }

func (e *quietError) Error() string { return "no token" }
func (e *quietError) Unwrap() error { return e.inner }

// A client whose callbacks panic, end their goroutine or return errors that do so is one that can't reach Redis. When
// they work again, the member is connected, and hears messages.
func TestCallbacksOfTheClientThatCrash(t *testing.T) {
	panics := func() error { panic("a bug in a callback") }
	exits := func() error { runtime.Goexit(); return nil }
	hollow := func() error { var err *hollowError; return err }
	quiet := func() error { var err *quietError; return err }
	exiting := func() error { return exitingError{} }
	for name, c := range map[string]callbacks{
		"the Dialer panics":                 {dial: panics},
		"the Dialer ends its goroutine":     {dial: exits},
		"the Dialer returns a nil pointer":  {dial: hollow},
		"the Dialer returns a quiet one":    {dial: quiet},
		"the Dialer returns one that exits": {dial: exiting},
		"OnConnect panics":                  {connected: panics},
		"OnConnect ends its goroutine":      {connected: exits},
		"OnConnect returns a nil pointer":   {connected: hollow},
		"a hook panics":                     {command: panics},
		"a hook returns a nil pointer":      {command: hollow},
		"a hook returns a quiet one":        {command: quiet},
		"a hook returns one that exits":     {command: exiting},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				client := newFaultyClient(t, w, c)
				s := newServer(t, newModel(), "alone")
				s.prepare(nil)
				f, err := Join(t.Context(), client, s.guard, Config{Namespace: "test"})
				require.NoError(t, err)

				for range 3 {
					client.fail()
					time.Sleep(5 * time.Second)
					require.False(t, f.Health().Connected)
					require.NotEmpty(t, f.Health().Error.Error())
					require.Error(t, f.Isolate(t.Context(), "search", ""))

					client.broken.Store(false)
					time.Sleep(2 * time.Second)
					require.True(t, f.Health().Connected)
					require.Equal(t, 1, w.PubSubNumSub("resilience:{test}")["resilience:{test}"])
				}
				require.LessOrEqual(t, s.logged("messages are awaited"), 3, "not for each try")
				require.NoError(t, f.Leave(t.Context()))
				require.NoError(t, s.guard.Flush(t.Context()))
			})
		})
	}
}

// An exitingError ends the goroutine that looks at it.
type exitingError struct{}

func (exitingError) Error() string { runtime.Goexit(); return "" }

// A crash while messages are awaited is logged once, not for each try.
func TestCrashWhileMessagesAreAwaitedIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		s := newServer(t, newModel(), "alone")
		s.prepare(nil)
		client := newFaultyClient(t, w, callbacks{dial: func() error { panic("a bug in a callback") }})
		f, err := Join(t.Context(), client, s.guard, Config{Namespace: "test"})
		require.NoError(t, err)
		client.fail()
		time.Sleep(5 * time.Second)
		require.NoError(t, s.guard.Flush(t.Context()))
		require.Equal(t, 1, s.logged("messages are awaited"))
		client.broken.Store(false)
		time.Sleep(2 * time.Second)
		require.NoError(t, f.Leave(t.Context()))
	})
}

// Calls of a client that hang, or whose errors do, don't add up for as long as that lasts. The member is connected
// soon after it ends.
func TestCallsOfTheClientThatHangAreBounded(t *testing.T) {
	for name, hang := range map[string]func(running func()) error{
		"a hook hangs":                 func(running func()) error { running(); return nil },
		"a hook returns one that does": func(running func()) error { return hangingError{running} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				var end chan struct{}
				var running atomic.Int64
				client := newFaultyClient(t, w, callbacks{command: func() error {
					return hang(func() {
						running.Add(1)
						defer running.Add(-1)
						<-end
					})
				}})
				s := newServer(t, newModel(), "alone")
				s.prepare(nil)
				f, err := Join(t.Context(), client, s.guard, Config{Namespace: "test"})
				require.NoError(t, err)

				for range 2 {
					end = make(chan struct{})
					client.broken.Store(true)
					time.Sleep(time.Hour)
					require.EqualValues(t, maxHanging, running.Load())
					require.ErrorIs(t, f.Health().Error, errHanging)
					require.ErrorIs(t, f.Isolate(t.Context(), "search", ""), errHanging)
					require.NoError(t, s.call())

					client.broken.Store(false)
					close(end)
					time.Sleep(2 * time.Second)
					require.True(t, f.Health().Connected)
					require.Zero(t, running.Load())
				}
				require.NoError(t, f.Leave(t.Context()))
			})
		})
	}
}

// A hangingError hangs when something looks at it.
type hangingError struct{ hang func() }

func (e hangingError) Error() string { e.hang(); return "late" }

// Whatever the client returns or does, its error can be printed. One that does no harm is what it is.
func TestErrorsOfTheClient(t *testing.T) {
	refusal := replyError("NOPERM no permissions")
	for want, op := range map[string]func() error{
		"NOPERM no permissions":           func() error { return refusal },
		"i/o timeout":                     func() error { return errLost },
		"the client has failed: panic: 7": func() error { panic(7) },
		"the client has failed: panic: runtime error: invalid memory address or nil pointer dereference": func() error {
			var err *quietError
			return err
		},
		"the client has called runtime.Goexit":    func() error { runtime.Goexit(); return nil },
		"the client has failed: panic: no":        func() error { panic(errors.New("no")) },
		"the server hasn't answered within 500ms": func() error { time.Sleep(time.Minute); return nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			_, err := bounded(t.Context(), new(atomic.Int64), func(context.Context) (int, error) { return 0, op() })
			require.EqualError(t, err, want)
			require.Equal(t, want == refusal.Error(), isRefusal(err))
			require.Equal(t, want == refusal.Error(), errors.Is(err, refusal))
			require.Equal(t, want == errLost.Error(), errors.Is(err, errLost))
			require.Equal(t, strings.HasPrefix(want, "the client"), errors.Is(err, resilience.CodeToolFailed))
			require.Equal(t, strings.HasPrefix(want, "the server"), errors.Is(err, resilience.CodeTimeout))

			if err := apart(func() { _ = op() }); strings.HasPrefix(want, "the client") && !strings.Contains(want, "nil pointer") {
				require.EqualError(t, err, want)
			} else {
				require.NoError(t, err)
			}
		})
	}
}

func TestWhatIsATimeout(t *testing.T) {
	var hollow *hollowError
	require.True(t, isTimeout(&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}))
	require.False(t, isTimeout(&net.OpError{Op: "read", Err: errLost}))
	require.False(t, isTimeout(hollow), "nor does it crash")
	require.False(t, isTimeout(nil))
}

func TestCallerWhoLeavesIsNoCrash(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := bounded(ctx, new(atomic.Int64), func(context.Context) (int, error) { return 0, nil })
	require.ErrorIs(t, err, resilience.CodeCanceled)
	require.NotContains(t, err.Error(), "client")
}

func TestCrashHasItsStack(t *testing.T) {
	var p *resilience.PanicError
	require.ErrorAs(t, apart(func() { panic("a bug") }), &p)
	require.Contains(t, string(p.Stack), "TestCrashHasItsStack")
}
