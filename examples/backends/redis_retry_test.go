package backends

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A dyingServer answers as Redis does, until it has counted for the first time: then it is gone, before it has said so.
type dyingServer struct {
	net.Listener
	counted atomic.Int32
}

func (s *dyingServer) serve() {
	for {
		conn, err := s.Accept()
		if err != nil {
			return
		}
		go s.answer(conn)
	}
}

func (s *dyingServer) answer(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		command, err := readCommand(in)
		if err != nil {
			return
		}
		switch strings.ToLower(command) {
		case "incr":
			s.counted.Add(1)
			_ = s.Close()
			return
		case "hello":
			fmt.Fprint(conn, "-ERR unknown command\r\n")
		default:
			fmt.Fprint(conn, "+OK\r\n")
		}
	}
}

// readCommand reads an array of strings, and returns the first.
func readCommand(in *bufio.Reader) (first string, err error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "*")))
	for i := range 2 * n { // lengths and texts
		if line, err = in.ReadString('\n'); err != nil {
			return "", err
		}
		if i == 1 {
			first = strings.TrimSpace(line)
		}
	}
	return first, err
}

// go-redis sends a command again by itself, and returns that the connection was refused.
func TestCommandThatTheClientRepeatsIsNotRepeated(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &dyingServer{Listener: listener}
	go server.serve()
	client := redis.NewClient(&redis.Options{Addr: listener.Addr().String(), Protocol: 2, DisableIdentity: true})
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
	require.Error(t, r.Err)
	assert.EqualValues(t, 1, server.counted.Load())
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
