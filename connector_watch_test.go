package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Watch finds out that a connection is broken, and why.
func TestConnectorWatch(t *testing.T) {
	for name, tc := range map[string]struct {
		watch func() error
		cause error
	}{
		"says why": {func() error { return errBoom }, errBoom},
		"ends":     {func() error { return nil }, nil},
		"panics":   {func() error { panic(errBoom) }, errBoom},
		"exits":    {func() error { runtime.Goexit(); return nil }, resilience.ErrGoexit},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				watched := make(chan *link, 10)
				c := connector(t, &dialer{}, linkConfig{Watch: func(l *link) error {
					watched <- l
					time.Sleep(time.Minute)
					return tc.watch()
				}})
				first, err := c.Get(t.Context())
				require.NoError(t, err)
				assert.Same(t, first, <-watched)
				time.Sleep(time.Minute)
				synctest.Wait()
				_, err = c.Get(t.Context())
				require.ErrorIs(t, err, resilience.CodeConnectionLost)
				if tc.cause != nil {
					require.ErrorIs(t, err, tc.cause)
				}
				second, err := c.Wait(t.Context())
				require.NoError(t, err)
				assert.Same(t, second, <-watched)
				c.ReportLost(second, nil)
				third, err := c.Wait(t.Context())
				require.NoError(t, err)
				time.Sleep(59 * time.Second) // what watches the second has returned: that is stale
				synctest.Wait()
				got, err := c.Get(t.Context())
				require.NoError(t, err)
				assert.Same(t, third, got)
				assert.Len(t, watched, 1)
				_ = c.Close()
				time.Sleep(time.Hour)
				assert.Len(t, watched, 1)
			})
		})
	}
}

// A reader that a dial has started may find its connection broken before the connector
// has it.
func TestConnectorLostWhileItIsDialled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *resilience.Connector[*link]
		made := make(chan struct{})
		dials := 0
		c = resilience.NewConnector(func(context.Context) (*link, error) {
			<-made
			l := &link{id: dials}
			if dials++; dials == 1 {
				c.ReportLost(l, errBoom)
			}
			c.ReportLost(&link{}, errors.New("another")) // stale
			return l, nil
		}, linkConfig{Backoff: even})
		defer c.Close()
		close(made)
		synctest.Wait()
		_, err := c.Get(t.Context())
		require.ErrorIs(t, err, errBoom)
		conn, err := c.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, conn.id)
		time.Sleep(time.Hour)
		assert.Equal(t, 2, dials)
	})
}

// What an agent reads of a loss.
func TestConnectorWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			cause error
			want  string
		}{
			{nil, "Connection lost"},
			{errors.New("10.0.0.7"), "Connection lost"},
			{io.EOF, "Connection lost: connection closed by the other side"},
			{resilience.ConnectionLostError("the tab was closed"), "Connection lost: the tab was closed"},
			{fmt.Errorf("page: %w", resilience.ConnectionLostError("the tab was closed")), "Connection lost: the tab was closed"},
			{&resilience.Error{Message: "not ours"}, "Connection lost"},
			{context.DeadlineExceeded, "Connection lost: network timeout"},
			{(*typedNil)(nil), "Connection lost"},
		} {
			c := connector(t, &dialer{}, linkConfig{})
			conn, err := c.Get(t.Context())
			require.NoError(t, err)
			c.ReportLost(conn, tc.cause)
			_, err = c.Get(t.Context())
			assert.Equal(t, tc.want, err.(*resilience.Error).Message)
			_ = c.Close()
		}
		c := resilience.NewConnector(func(context.Context) (int, error) { time.Sleep(time.Hour); return 0, nil }, resilience.ConnectorConfig[int]{})
		_, err := c.Get(t.Context())
		assert.EqualError(t, err, "CONNECTION_LOST: Connection lost: not connected yet")
		_ = c.Close()
		time.Sleep(2 * time.Hour)
	})
}

// While the connection is down calls are turned away with the time of the next dial,
// however many there are, and not by a breaker, which would do so when it is back.
func TestConnectorIsNoFailureOfTheTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dialer{script: []func(context.Context) error{refused}}
		c := connector(t, d, linkConfig{})
		g := newGuard(t, one(resilience.Tool{Timeout: time.Second}))
		b := resilience.NewBreaker("b", resilience.BreakerConfig{Failures: 1})
		tool := func(ctx context.Context) (*link, error) { return c.Get(ctx) }
		for range 20 {
			_, err := resilience.Do(t.Context(), g, "x", tool)
			var e *resilience.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, resilience.CodeConnectionLost, e.Code)
			assert.True(t, e.Retryable)
			assert.Positive(t, e.RetryAfter)
			_, err = resilience.WithBreaker(t.Context(), b, tool)
			require.ErrorIs(t, err, resilience.CodeConnectionLost)
		}
		assert.Equal(t, resilience.Closed, g.Breaker("x").State())
		assert.Equal(t, resilience.Closed, b.State())
		assert.Nil(t, g.Health()[0].LastError)
		d.mu.Lock()
		d.script = nil
		d.mu.Unlock()
		time.Sleep(time.Minute)
		_, err := resilience.Do(t.Context(), g, "x", tool)
		assert.NoError(t, err)
	})
}

// Also when all retries have gone by.
func TestConnectorOutlastsRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dialer{script: []func(context.Context) error{refused}}
		c := connector(t, d, linkConfig{})
		g := newGuard(t, one(resilience.Tool{Effect: resilience.NonIdempotent}))
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (*link, error) { return c.Get(ctx) })
		assert.Equal(t, 4, r.Attempts)
		assert.Equal(t, resilience.CodeConnectionLost, r.Err.Code)
		assert.True(t, r.Err.Retryable)
		assert.Positive(t, r.Err.RetryAfter)
	})
}
