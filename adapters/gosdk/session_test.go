package gosdk_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

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

func TestUseReturnsOtherErrorsAsTheyAre(t *testing.T) {
	leavesNothing(t)
	p := newPeer()
	s := newSession(t, p.dial, sessionConfig{})
	own := &resilience.Error{Code: resilience.CodeToolFailed, Message: "the file ends", Err: io.EOF}
	for _, other := range []error{nil, errBoom, own} {
		var used context.Context
		n, err := gosdk.Use(t.Context(), s, func(ctx context.Context, _ *mcp.ClientSession) (int, error) {
			used = ctx
			return 7, errors.Join(ctx.Err(), other)
		})
		assert.ErrorIs(t, err, other)
		assert.Equal(t, 7, n)
		assert.Error(t, used.Err(), "what it has begun ends with it")
	}

	_, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "unknown"})
	assert.Equal(t, resilience.ClassInvalid, resilience.Classify(err))
	assert.False(t, errors.As(err, &own), "the guard around it says what it means")
	_, err = s.CallTool(t.Context(), nil)
	require.Error(t, err)
	res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "fails"})
	require.NoError(t, err)
	assert.True(t, res.IsError)
	assert.Equal(t, 1, p.dials())
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

		require.Error(t, <-failed)
		_ = old.Wait()
		assert.Equal(t, time.Minute, time.Since(begin))
		require.NoError(t, s.Close())
		assert.Len(t, writers, 2)
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
