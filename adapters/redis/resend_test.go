package redisfleet

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// A cutConn is lost after a command that contains some text has been sent, as often as left says, before the reply
// arrives.
type cutConn struct {
	net.Conn
	text string
	left *atomic.Int64
	cut  atomic.Bool
}

func (c *cutConn) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(c.text)) && c.left.Add(-1) >= 0 {
		c.cut.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.cut.Load() {
		c.Close()
		return 0, io.EOF
	}
	return n, err
}

// The client sends a command again whose reply was lost with its connection. A failure counts once all the same.
func TestFailureWhoseReplyIsLostCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		var left atomic.Int64
		client := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:6379", MinRetryBackoff: -1, MaxRetryBackoff: -1,
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				conn, err := w.Dial()
				return &cutConn{Conn: conn, text: `"failure"`, left: &left}, err
			},
		})
		defer client.Close()
		s := newRedisStore(client, "test", "member-1")
		b := resilience.FleetBreaker{ID: "listed/search", Config: resilience.BreakerConfig{Failures: 5, Cooldown: time.Minute}}
		for i := range 6 {
			left.Store(3)
			x, err := s.failure(t.Context(), b, 0, 1, 1, false)
			require.NoError(t, err)
			require.Negative(t, left.Load(), "it was sent again")
			require.Equal(t, i >= 4, x.State == "open")
			if i < 4 {
				require.Equal(t, i+1, x.Failures)
			}
		}
	})
}
