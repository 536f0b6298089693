package backends

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// go-redis sends a command again by itself, and returns that the connection was refused.
func TestCommandThatTheClientRepeatsIsNotRepeated(t *testing.T) {
	var counted atomic.Int32
	redisServer := miniredis.RunT(t)
	redisServer.Server().SetPreHook(func(c *server.Peer, command string, _ ...string) bool {
		if command != "INCR" {
			return false
		}
		counted.Add(1)
		c.Close() // it has counted, and is gone before it has said so
		return true
	})
	client := redis.NewClient(&redis.Options{
		Addr: redisServer.Addr(),
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if counted.Load() > 0 {
				return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	})
	defer client.Close()
	client.AddHook(RedisHook{})
	require.NoError(t, client.Ping(t.Context()).Err(), "there is a connection already")

	guard := resilience.Must(resilience.New(resilience.Config{
		Effect: resilience.NonIdempotent,
		Retry:  resilience.Retry{Backoff: resilience.Backoff{Base: time.Nanosecond, Max: time.Nanosecond}},
	}))
	r := resilience.Run(t.Context(), guard, "count", func(ctx context.Context) (int64, error) {
		return client.Incr(ctx, "n").Result()
	})
	require.ErrorIs(t, r.Err, syscall.ECONNREFUSED)
	assert.EqualValues(t, 1, counted.Load())
	assert.Equal(t, 1, r.Attempts)
	assert.False(t, r.Err.Retryable)
}

// A tool that gives a command up has heard nothing of Redis.
func TestCommandThatIsGivenUpSaysNothing(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	client.AddHook(RedisHook{})
	assert.Equal(t, own, judge(t, func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		assert.ErrorIs(t, client.Get(ctx, "word").Err(), context.Canceled)
	}))
	server.Close()
	assert.Equal(t, counted, judge(t, func(ctx context.Context) { _ = client.Get(ctx, "word").Err() }))
}
