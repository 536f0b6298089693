package resilience_test

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Whatever the reason: a call that got no connection has done nothing.
func TestConnectorGetHadNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dialer{script: []func(context.Context) error{func(context.Context) error { return errBoom }, nil}} // no dial error by itself
		c := connector(t, d, linkConfig{})
		g := newGuard(t, one(resilience.Tool{Effect: resilience.NonIdempotent}))
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			_, err := c.Get(ctx)
			return 0, err
		})
		assert.Greater(t, r.Attempts, 1)
		assert.Nil(t, r.Err)
	})
}

// Nobody waits for a connection to be closed.
func TestConnectorCloseThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c := connector(t, &dialer{}, linkConfig{Close: func(*link) error { <-release; return nil }})
		conn, err := c.Get(t.Context())
		require.NoError(t, err)
		done := make(chan struct{})
		go func() { defer close(done); c.Lost(conn, io.EOF) }()
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Error("Lost waits for Close")
		}
		close(release)
		_, err = c.Wait(t.Context())
		assert.NoError(t, err)
	})
}

// A failed dial has left nothing to close, and its context ends.
func TestConnectorNothingToClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Int32
		contexts := make(chan context.Context, 3)
		dial := func(ctx context.Context) (*link, error) {
			contexts <- ctx
			switch len(contexts) {
			case 1:
				time.Sleep(time.Minute) // given up on; fails later
			case 3:
				<-ctx.Done() // Close
			}
			return nil, errBoom
		}
		c := resilience.NewConnector(dial, linkConfig{DialTimeout: time.Second, Backoff: even, Close: func(*link) error { closed.Add(1); return nil }})
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait() // the second dial is over, and the third comes a second later
		time.Sleep(time.Second)
		synctest.Wait()
		_ = c.Close()
		time.Sleep(time.Hour)
		<-contexts
		assert.ErrorIs(t, (<-contexts).Err(), context.Canceled, "the dial's context ends with the dial")
		assert.Zero(t, closed.Load(), "there was nothing to close")
	})
}

// A dial has 30s, and a connection that lasts a minute is stable.
func TestConnectorStableAndDialTimeoutDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []resilience.ConnectionChange
		d := &dialer{script: []func(context.Context) error{func(ctx context.Context) error { time.Sleep(time.Hour); return nil }, nil}}
		c := connector(t, d, linkConfig{OnChange: func(e resilience.ConnectionChange) { changes = append(changes, e) }})
		begin := time.Now()
		for _, lasts := range []time.Duration{59 * time.Second, time.Minute, 0} {
			conn, err := c.Wait(t.Context())
			require.NoError(t, err)
			time.Sleep(lasts)
			c.Lost(conn, nil)
		}
		synctest.Wait()
		assert.Equal(t, begin.Add(30*time.Second), changes[0].Time)
		assert.ErrorIs(t, changes[0].Err, context.DeadlineExceeded)
		var delays []time.Duration
		for _, e := range changes {
			if e.State == resilience.ConnectionDown {
				delays = append(delays, e.NextDial)
				assert.Error(t, e.Err)
			}
		}
		ms := time.Millisecond
		assert.Equal(t, []time.Duration{500 * ms, 1000 * ms, 500 * ms, 1000 * ms}, delays)
		_ = c.Close()
		time.Sleep(2 * time.Hour)
	})
}

// While a dial is under way nobody knows how long it takes.
func TestConnectorRetryAfterWhileItDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connector(t, &dialer{script: []func(context.Context) error{refused, func(context.Context) error { time.Sleep(time.Second); return nil }}}, linkConfig{})
		c.Reconnect()
		_, err := c.Get(t.Context())
		var e *resilience.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, 100*time.Millisecond, e.RetryAfter)
		time.Sleep(time.Minute)
	})
}

// In real time: each connection is closed once.
func TestConnectorClosesEachOnce(t *testing.T) {
	for range 10 {
		var made, closed atomic.Int64
		c := resilience.NewConnector(func(context.Context) (int64, error) { return made.Add(1), nil },
			resilience.ConnectorConfig[int64]{Backoff: resilience.Backoff{Base: 1, Max: 1}, Close: func(int64) error { closed.Add(1); return nil }})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 300 {
					conn, err := c.Wait(t.Context())
					if !assert.NoError(t, err) {
						return
					}
					c.Lost(conn, nil)
				}
			})
		}
		wg.Wait()
		_ = c.Close()
		require.Eventually(t, func() bool { return made.Load() == closed.Load() }, 2*time.Minute, time.Millisecond)
	}
}

// A second Close is no news.
func TestConnectorSecondClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		c := connector(t, &dialer{}, linkConfig{OnChange: func(e resilience.ConnectionChange) { n++ }})
		_ = c.Close()
		assert.NoError(t, c.Close())
		synctest.Wait()
		assert.Equal(t, 2, n, "up and closed")
	})
}

type lockErr struct{ f func() }

func (lockErr) Error() string   { return "e" }
func (e lockErr) Unwrap() error { e.f(); return nil }

// Methods of errors are a program's, and may use the connector.
func TestConnectorErrorsThatUseIt(t *testing.T) {
	c := resilience.NewConnector(func(context.Context) (int, error) { return 1, nil }, resilience.ConnectorConfig[int]{Backoff: even})
	_, err := c.Wait(t.Context())
	require.NoError(t, err)
	c.Lost(1, lockErr{func() { c.State() }})
	_, err = c.Get(t.Context())
	assert.ErrorIs(t, err, resilience.CodeConnectionLost)
	_ = c.Close()
}

// A dial that Close ends is no failure.
func TestConnectorCloseIsNoFailure(t *testing.T) {
	for range 2000 {
		started, told := make(chan struct{}), make(chan resilience.ConnectionChange, 8)
		c := resilience.NewConnector(func(ctx context.Context) (int, error) { close(started); <-ctx.Done(); return 0, ctx.Err() },
			resilience.ConnectorConfig[int]{MaxAttempts: 1, OnChange: func(e resilience.ConnectionChange) { told <- e }})
		<-started
		_ = c.Close()
		require.Equal(t, resilience.ConnectionClosed, (<-told).State)
	}
}

func TestConnectorOneAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connector(t, &dialer{script: []func(context.Context) error{refused}}, linkConfig{MaxAttempts: 1})
		_, err := c.Get(t.Context())
		assert.EqualError(t, err, "RETRY_EXHAUSTED: Connection lost: the attempt to connect has failed")
	})
}

// Whatever a dial still brings after Close is closed, once.
func TestConnectorDialThatCloses(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			var c *resilience.Connector[*link]
			made, l := make(chan struct{}), &link{}
			c = resilience.NewConnector(func(context.Context) (*link, error) {
				<-made
				_ = c.Close()
				return l, nil
			}, linkConfig{})
			close(made)
			synctest.Wait()
			require.EqualValues(t, 1, l.closed.Load())
		})
	}
}

// A tool that crashes has failed, whatever it crashed with.
func TestConnectorPanicWithItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connector(t, &dialer{script: []func(context.Context) error{refused}}, linkConfig{})
		g := newGuard(t, one(resilience.Tool{}))
		for range 5 {
			_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				_, err := c.Get(ctx)
				panic(err)
			})
			require.ErrorIs(t, err, resilience.CodeToolFailed)
		}
		assert.Equal(t, resilience.Open, g.Breaker("x").State())
	})
}
