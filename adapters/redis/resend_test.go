package redisfleet

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
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
			x, err := s.failure(t.Context(), b, 1, 1, false)
			require.NoError(t, err)
			require.Negative(t, left.Load(), "it was sent again")
			require.Equal(t, i >= 4, x.State == "open")
			if i < 4 {
				require.Equal(t, i+1, x.Failures)
			}
		}
	})
}

// So it does if a success has ended its row by then, and whatever else was told with it: the reply is that of the first
// time.
func TestCommandWhoseReplyIsLostIsExecutedOnce(t *testing.T) {
	b := resilience.FleetBreaker{ID: "listed/search", Config: resilience.BreakerConfig{Failures: 5, Cooldown: time.Minute}}
	failure := news{op: "failure", breaker: b, n: 4, quorum: 1}
	success := news{op: "success", breaker: b}
	for name, c := range map[string]struct {
		told, meanwhile []news
		want            []int // failures
		left            int   // afterwards
	}{
		"nothing meanwhile":                {[]news{failure}, nil, []int{4}, 4},
		"a success meanwhile":              {[]news{failure}, []news{success}, []int{4}, 0},
		"failures with a success":          {[]news{failure, success, failure}, nil, []int{4, 0, 4}, 4},
		"with a success, and a success":    {[]news{failure, success, failure}, []news{success}, []int{4, 0, 4}, 0},
		"a success, and a failure by then": {[]news{failure, success}, []news{failure}, []int{4, 0}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				other := newRedisStore(w.client, "test", "other")
				_, err := other.sync(t.Context(), memory{})
				require.NoError(t, err)

				var left atomic.Int64
				left.Store(1)
				client := redis.NewClient(&redis.Options{
					Addr: "127.0.0.1:6379", MinRetryBackoff: -1, MaxRetryBackoff: -1,
					Dialer: func(context.Context, string, string) (net.Conn, error) {
						if left.Load() == 0 && len(c.meanwhile) > 0 {
							_, err := other.tell(t.Context(), c.meanwhile...)
							require.NoError(t, err)
						}
						conn, err := w.Dial()
						return &cutConn{Conn: conn, text: `"failure"`, left: &left}, err
					},
				})
				defer client.Close()
				replies, err := newRedisStore(client, "test", "member-1").tell(t.Context(), c.told...)
				require.NoError(t, err)
				require.Negative(t, left.Load(), "it was sent again")
				for i, x := range replies {
					require.Equal(t, c.want[i], x.Failures, "reply %d", i)
				}
				x, err := other.read(t.Context(), []string{b.ID})
				require.NoError(t, err)
				require.Equal(t, c.left > 0, len(x) > 0)
				if len(x) > 0 {
					require.Equal(t, c.left, x[0].Failures)
				}
			})
		})
	}
}

// What recognizes a command that is sent again is soon forgotten.
func TestReplyIsKeptForAsLongAsTheCommandMayBeSentAgain(t *testing.T) {
	server, tick, all := stores(t, 1)
	_, err := all[0].tell(t.Context(), news{op: "success", breaker: resilience.FleetBreaker{ID: "listed/search"}})
	require.NoError(t, err)
	answers := func() (n int) {
		for _, key := range server.Keys() {
			if strings.Contains(key, ":answer:") {
				n++
			}
		}
		return n
	}
	require.Equal(t, 1, answers())
	tick(absence)
	server.FastForward(absence)
	require.Zero(t, answers())
}
