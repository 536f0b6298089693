package redisfleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// soon is how long tests wait for what takes a second at most on an idle machine.
const soon = 30 * time.Second

func newGuard(t *testing.T, log io.Writer) *resilience.Guard {
	g, err := resilience.New(resilience.Config{
		Tools: map[string]resilience.Tool{"search": {}}, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	require.NoError(t, err)
	return g
}

func newClient(t *testing.T, options redis.Options) *redis.Client {
	client := redis.NewClient(&options)
	t.Cleanup(func() { client.Close() })
	return client
}

// TestFleetOverRedis lets two members use a server's protocol. The module servers does so with real servers.
func TestFleetOverRedis(t *testing.T) {
	server := miniredis.RunT(t)
	var logs [2]strings.Builder
	var fleets []*Fleet
	var guards []*resilience.Guard
	for i := range logs {
		g := newGuard(t, &logs[i])
		f, err := Join(t.Context(), newClient(t, redis.Options{Addr: server.Addr()}), g, Config{Namespace: "test"})
		require.NoError(t, err)
		require.True(t, f.Health().Connected)
		require.NoError(t, f.Health().Error)
		fleets, guards = append(fleets, f), append(guards, g)
	}
	require.Equal(t, 2, fleets[1].Health().Members)

	start := time.Now()
	require.NoError(t, fleets[0].Isolate(t.Context(), "search", "moving house"))
	require.Equal(t, resilience.StateIsolated, guards[0].Breaker("search").State())
	all := func(state resilience.State) func() bool {
		return func() bool { return guards[1].Breaker("search").State() == state }
	}
	require.Eventually(t, all(resilience.StateIsolated), soon, time.Millisecond)
	require.NoError(t, fleets[0].Reset(t.Context(), "search"))
	require.Eventually(t, all(resilience.StateClosed), soon, time.Millisecond)
	t.Logf("the messages took %s", time.Since(start))

	require.NoError(t, fleets[0].Leave(t.Context()))
	require.Eventually(t, func() bool { return fleets[1].Health().Members == 1 }, soon, time.Millisecond)
	require.NoError(t, fleets[1].Leave(t.Context()))
	require.False(t, server.Exists("resilience:{test}:members"), "all have left")
	unsubscribed := func() bool { return len(server.PubSubChannels("")) == 0 } // the server learns of it later
	require.Eventually(t, unsubscribed, soon, time.Millisecond)
	for i, g := range guards {
		require.NoError(t, g.Flush(t.Context()))
		require.NotContains(t, logs[i].String(), "reached", "no command has failed")
	}
}

// TestMessageArrivesWithoutASync subscribes by itself: a sync isn't what tells the listener.
func TestMessageArrivesWithoutASync(t *testing.T) {
	server := miniredis.RunT(t)
	s := newRedisStore(newClient(t, redis.Options{Addr: server.Addr()}), "test", "member-1")
	l := &heardAll{subscriptions: make(chan struct{}, 10), entries: make(chan entry, 10)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.listen(ctx, l) }()

	<-l.subscriptions
	server.Publish("resilience:{test}", "no entry")
	_, err := s.isolate(t.Context(), "listed/search", "moving house")
	require.NoError(t, err)
	e := <-l.entries
	require.Equal(t, "isolated", e.State)
	require.Equal(t, "member-1", e.By)

	server.Close()
	require.NoError(t, server.Restart())
	<-l.subscriptions
	cancel()
	<-done
	require.Empty(t, l.entries)
}

// heardAll is a listener that remembers.
type heardAll struct {
	subscriptions chan struct{}
	entries       chan entry
}

func (l *heardAll) subscribed()   { l.subscriptions <- struct{}{} }
func (l *heardAll) heard(e entry) { l.entries <- e }
func (*heardAll) crashed(error)   {}

func TestJoinSaysWhatIsWrong(t *testing.T) {
	server := miniredis.RunT(t)
	server.RequireAuth("secret")
	client := newClient(t, redis.Options{Addr: server.Addr(), Password: "secret"})
	g := newGuard(t, io.Discard)
	good := Config{Namespace: "test"}
	for want, join := range map[string]func() (*Fleet, error){
		"the client is nil": func() (*Fleet, error) { return Join(t.Context(), nil, g, good) },
		"the client is a Ring": func() (*Fleet, error) {
			return Join(t.Context(), redis.NewRing(&redis.RingOptions{}), g, good)
		},
		"the guard is nil": func() (*Fleet, error) { return Join(t.Context(), client, nil, good) },
		`Config.Namespace is "a b"`: func() (*Fleet, error) {
			return Join(t.Context(), client, g, Config{Namespace: "a b"})
		},
		"Config.Quorum is -1": func() (*Fleet, error) {
			return Join(t.Context(), client, g, Config{Namespace: "test", Quorum: -1})
		},
		"NOAUTH": func() (*Fleet, error) {
			return Join(t.Context(), newClient(t, redis.Options{Addr: server.Addr()}), g, good)
		},
		"WRONGPASS": func() (*Fleet, error) {
			return Join(t.Context(), newClient(t, redis.Options{Addr: server.Addr(), Password: "guessed"}), g, good)
		},
	} {
		start := time.Now()
		f, err := join()
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "redisfleet: ")
		require.Nil(t, f)
		require.Less(t, time.Since(start), soon)
	}

	f, err := Join(t.Context(), client, g, good)
	require.NoError(t, err, "a guard that was refused may join")
	_, err = Join(t.Context(), client, g, good)
	require.ErrorContains(t, err, "redisfleet: Join: ")
	require.NoError(t, f.Leave(t.Context()))
}

func TestConfigIsChecked(t *testing.T) {
	for _, name := range []string{"a", "A-z_0.9", strings.Repeat("n", 64)} {
		require.NoError(t, Config{Namespace: name, Quorum: 1}.check(), name)
	}
	for _, name := range []string{"", "a b", "{a}", "ä", strings.Repeat("n", 65)} {
		require.ErrorContains(t, Config{Namespace: name}.check(), fmt.Sprintf("Config.Namespace is %q", name))
	}
	require.EqualError(t, Config{Namespace: "a", Quorum: -1}.check(),
		"redisfleet: Config.Quorum is -1: it must not be negative (0 is the default)")
	require.NoError(t, Config{Namespace: "a"}.check())

	for quorum, want := range map[int]int{0: 2, 1: 1, 2: 2, 3: 3} {
		require.Equal(t, want, newEngine(nil, "me", Config{Quorum: quorum}).quorum)
	}
}

// A replyError is an error that a server has replied.
type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

func TestOnlyWhatStaysIsARefusal(t *testing.T) {
	for _, text := range []string{
		"NOPERM no permissions", "NOAUTH Authentication required.", "WRONGPASS invalid", "WRONGTYPE Operation against",
		"ERR unknown command",
	} {
		require.True(t, isRefusal(examine(fmt.Errorf("run: %w", replyError(text)))), text)
		require.False(t, isRefusal(examine(errors.New(text))), "no reply")
	}
	for _, text := range []string{"ERR max number of clients reached", "LOADING", "READONLY", "CLUSTERDOWN", "BUSY"} {
		require.False(t, isRefusal(examine(replyError(text))), text)
	}
	require.False(t, isRefusal(nil))
}

func TestMillisecondsAreRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		-time.Second: 0, 0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, 2*time.Millisecond - 1: 2,
		time.Second: 1000, math.MaxInt64: 9223372036854, math.MaxInt64 - 1: 9223372036854,
	} {
		require.Equal(t, want, milliseconds(d), d)
	}
}

// A cooldown may be as long as a Duration: what the store adds to it doesn't make it negative.
func TestLongestDurationsStayLong(t *testing.T) {
	require.Equal(t, 1500*time.Millisecond, duration(1500))
	require.Equal(t, 9223372036854*time.Millisecond, duration(milliseconds(math.MaxInt64)+1000))
	require.Zero(t, duration(math.MinInt64/1000000-1), "nor is what is negative long")

	_, _, all := stores(t, 2)
	b := resilience.FleetBreaker{
		ID: "listed/search", State: resilience.StateOpen, RetryAfter: math.MaxInt64,
		Config: resilience.BreakerConfig{Failures: 1, Cooldown: math.MaxInt64, ProbeInterval: math.MaxInt64},
	}
	x, err := all[0].failure(t.Context(), b, 1, 1, false)
	require.NoError(t, err)
	require.Equal(t, "open", x.State)
	require.Positive(t, x.change(time.Now()).RetryAfter)
	x, err = all[0].failure(t.Context(), b, 1, 1, true)
	require.NoError(t, err)
	require.Positive(t, x.change(time.Now()).RetryAfter)
	for _, s := range all {
		lease, err := s.lease(t.Context(), b, resilience.CauseCalls)
		require.NoError(t, err)
		require.False(t, lease.Granted)
		require.Positive(t, duration(lease.Wait))
	}
}
