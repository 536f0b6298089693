package servers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	redisfleet "github.com/seed8d1e2389/resilience/adapters/redis"
	"github.com/stretchr/testify/require"
)

// TestHealthyCallsSendNothing counts the commands that 10,000 calls cause, on the server.
func TestHealthyCallsSendNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	all := joinAll(t, 2, new(backend), resilience.BreakerConfig{}, to(t, s.addr))
	require.Error(t, func() error { all[0].backend.broken.Store(true); return all[0].search() }())
	all[0].backend.broken.Store(false)
	require.NoError(t, all[0].search())

	start, before := time.Now(), s.commands()
	for i := range 10_000 {
		require.NoError(t, all[i%2].search())
	}
	after, took := s.commands(), time.Since(start)
	sent := after["evalsha"] - before["evalsha"]
	t.Logf("10,000 calls in %s: %d commands of the members", round(took), sent)
	beats := int(took/(750*time.Millisecond)) + 1 // how often a member says that it is alive
	require.LessOrEqual(t, sent, 2*beats+4, "each member compares configurations once, and forgets a failure")
	require.Equal(t, before["eval"], after["eval"])
}

func TestKeysExpire(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := new(backend)
	all := joinAll(t, 2, b, resilience.BreakerConfig{Failures: 2}, to(t, s.addr))
	b.broken.Store(true)
	require.Error(t, all[0].search())
	require.NoError(t, all[0].fleet.Isolate(t.Context(), "healthy", "maintenance"))
	eventually(t, "all keys are there", func() bool { return s.do("DBSIZE") == "6" })

	for _, key := range strings.Fields(strings.Trim(s.do("KEYS", "*"), "[]")) {
		require.NotEqual(t, "-1", s.do("TTL", key), key)
		require.True(t, strings.HasPrefix(key, "resilience:{test}:"), key)
	}
}

// TestNamesFromAgents calls tools that no Config lists, under more names than a namespace remembers.
func TestNamesFromAgents(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.addr)
	const members = 5
	for i := range members {
		guard := newGuard(t, resilience.Config{})
		fleet, err := redisfleet.Join(t.Context(), client, guard, redisfleet.Config{Namespace: "test"})
		require.NoError(t, err)
		for j := range 1000 {
			name := fmt.Sprintf("name-%d-%d %s", i, j, strings.Repeat("x", j%100))
			_, err := resilience.Do(t.Context(), guard, name, func(context.Context) (string, error) { return "", errBackend })
			require.Error(t, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		require.NoError(t, fleet.Leave(ctx))
	}
	require.Equal(t, "4096", s.do("ZCARD", "resilience:{test}:index"))
	eventually(t, "answers are forgotten", func() bool { return s.do("DBSIZE") == fmt.Sprint(4096+3) })
}

// TestNewcomerLearnsAllPages isolates more breakers, of long names, than one answer has.
func TestNewcomerLearnsAllPages(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := newClient(t, s.addr)
	tools := make(map[string]resilience.Tool)
	for i := range 500 {
		tools[fmt.Sprint(i, " ", strings.Repeat("ü", 100))] = resilience.Tool{}
	}
	join := func() (*resilience.Guard, *redisfleet.Fleet) {
		guard, err := resilience.New(resilience.Config{Tools: tools})
		require.NoError(t, err)
		fleet, err := redisfleet.Join(t.Context(), client, guard, redisfleet.Config{Namespace: "test"})
		require.NoError(t, err)
		t.Cleanup(func() { _ = fleet.Leave(context.Background()) })
		return guard, fleet
	}

	_, first := join()
	for name := range tools {
		require.NoError(t, first.Isolate(t.Context(), name, "maintenance"))
	}
	newcomer, _ := join()
	for name := range tools {
		require.Equal(t, resilience.StateIsolated, newcomer.Breaker(name).State())
	}
	require.GreaterOrEqual(t, s.commands()["zrangebyscore"], 5)
}

// TestProbeIsOne lets the cooldown pass at members that are all called.
func TestProbeIsOne(t *testing.T) {
	s := startServer(t)
	b := new(backend)
	all := joinAll(t, 5, b, resilience.BreakerConfig{Cooldown: 2 * time.Second}, to(t, s.addr))
	b.broken.Store(true)
	for i := range 5 {
		require.Error(t, all[i].search())
		eventually(t, "the fleet knows", func() bool {
			return i == 4 || s.do("HGET", "resilience:{test}:breaker:listed/search", "failures") == fmt.Sprint(i+1)
		})
	}
	agree(t, all, resilience.StateOpen)
	require.EqualValues(t, 5, b.requests.Load())

	eventually(t, "a call is the probe", func() bool {
		for _, m := range all {
			_ = m.search()
		}
		return b.requests.Load() > 5
	})
	require.Less(t, b.requests.Load(), int64(5+3), "one, or some more if Redis is slower than 100ms")
}
