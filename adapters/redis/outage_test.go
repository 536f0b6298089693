//go:build unix

package redisfleet

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// TestOutage takes Redis away from three members. Calls go on as if there were none, breakers decide alone, the log
// has a line, and afterwards all members agree again.
func TestOutage(t *testing.T) {
	for name, outage := range map[string]struct{ begin, end func(s *server) }{
		"killed":      {(*server).kill, (*server).start},
		"frozen":      {(*server).freeze, (*server).thaw},
		"full memory": {configure("CONFIG", "SET", "maxmemory", 1), configure("CONFIG", "SET", "maxmemory", 0)},
		"read-only":   {configure("REPLICAOF", "127.0.0.1", 1), configure("REPLICAOF", "NO", "ONE")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, b := startServer(t), new(backend)
			all := joinAll(t, 3, s, b, resilience.BreakerConfig{Cooldown: time.Hour})

			outage.begin(s)
			reachable(t, all, false)
			for i := range 1000 {
				require.NoError(t, all[i%3].search())
			}
			b.broken.Store(true)
			all[0].fail(5)
			all[1].fail(5)
			const open, closed = resilience.StateOpen, resilience.StateClosed
			for i, want := range []resilience.State{open, open, closed} {
				require.Equal(t, want, all[i].state())
			}

			outage.end(s)
			reachable(t, all, true)
			agree(t, all, resilience.StateOpen)
			b.broken.Store(false)
			all[2].guard.Breaker("search").Reset()
			agree(t, all, resilience.StateClosed)
			for _, m := range all {
				require.Equal(t, 1, m.logged("the fleet can't be reached"))
				require.Equal(t, 1, m.logged("the fleet can be reached again"))
			}
		})
	}
}

func configure(words ...any) func(*server) { return func(s *server) { s.do(words...) } }

// reachable waits until all members have noticed whether Redis answers.
func reachable(t *testing.T, all []*member, want bool) {
	t.Helper()
	eventually(t, "Health notices", func() bool {
		return every(all, func(m *member) bool { return (m.fleet.Health().Err == nil) == want })
	})
}

// A call waits for a lease no longer than 100ms, and an outage makes each member the one that probes.
func TestRedisThatIsSlowDelaysNoProbe(t *testing.T) {
	t.Parallel()
	s, b := startServer(t), new(backend)
	client, end := s.client(), make(chan struct{})
	t.Cleanup(func() { close(end) })
	m := newMember(t, client, b, resilience.BreakerConfig{Cooldown: time.Millisecond})
	m.fleet.interval, m.fleet.store.timeout = time.Hour, soon
	m.join()
	client.AddHook(hanging{end})
	b.broken.Store(true)
	m.fail(5)
	b.broken.Store(false)
	eventually(t, "it is the probe", func() bool { return m.search() == nil })
	require.NoError(t, m.fleet.Health().Err, "no poll has noticed")
}

// A hanging is a hook of a client whose commands hang.
type hanging struct{ end chan struct{} }

func (h hanging) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h hanging) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error {
		<-h.end
		return errors.New("hung")
	}
}
func (h hanging) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// What an operator does while Redis is away is told once it is back.
func TestIsolationDuringAnOutage(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	all := joinAll(t, 2, s, new(backend), resilience.BreakerConfig{})
	s.kill()
	reachable(t, all, false)
	all[0].guard.Breaker("search").Isolate("maintenance")
	eventually(t, "it can't be told", func() bool { return all[0].fleet.tell(t.Context()) != nil })
	s.start()
	agree(t, all, resilience.StateIsolated)
	s.kill()
	reachable(t, all, false)
	require.Equal(t, resilience.StateIsolated, all[1].state())
	all[1].guard.Breaker("search").Reset()
	s.start()
	agree(t, all, resilience.StateClosed)
}

// A breaker that closes while Redis is away is closed in the fleet's memory, too. One failure is no failed probe.
func TestRecoveryDuringAnOutage(t *testing.T) {
	t.Parallel()
	s, b := startServer(t), new(backend)
	all := joinAll(t, 2, s, b, resilience.BreakerConfig{Cooldown: 5 * time.Second})
	b.broken.Store(true)
	all[0].fail(4)
	all[0].told()
	all[1].fail(1)
	agree(t, all, resilience.StateOpen)

	s.freeze()
	reachable(t, all, false)
	b.broken.Store(false)
	for _, m := range all {
		eventually(t, "its probe succeeds", func() bool { return m.search() == nil })
		require.NoError(t, m.guard.Flush(t.Context()))
		require.NoError(t, m.fleet.tell(t.Context()), "there is nothing to tell without Redis")
	}
	s.thaw()
	reachable(t, all, true)
	forgotten := func() bool { return s.do("HLEN", "resilience:{test}:breakers") == "0" }
	eventually(t, "the fleet has forgotten it", forgotten)
	agree(t, all, resilience.StateClosed)
}

// A Redis that has lost its memory is told which breakers are open.
func TestLostMemory(t *testing.T) {
	t.Parallel()
	s, b := startServer(t), new(backend)
	all := joinAll(t, 2, s, b, resilience.BreakerConfig{Cooldown: time.Hour})
	b.broken.Store(true)
	all[0].fail(4)
	all[0].told()
	all[1].fail(1)
	agree(t, all, resilience.StateOpen)
	s.do("FLUSHALL")
	eventually(t, "the fleet knows again", func() bool {
		b, err := parse(strings.Trim(s.do("HVALS", "resilience:{test}:breakers"), "[]"))
		return err == nil && b.OpenUntil > 0
	})
}

func TestJoinWithoutRedis(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.kill()
	m := newMember(t, s.client(), new(backend), resilience.BreakerConfig{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.NoError(t, m.fleet.Join(ctx, m.guard))
	require.NoError(t, m.search())
	eventually(t, "the log has a line", func() bool { return m.logged("the fleet can't be reached") == 1 })
	require.Error(t, m.fleet.Health().Err)

	s.start()
	eventually(t, "the member is in the fleet", func() bool { return m.fleet.Health().Members == 1 })
	require.NoError(t, m.fleet.Health().Err)
}

func TestJoinIsRefused(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--requirepass", "secret")
	m := newMember(t, s.client(), new(backend), resilience.BreakerConfig{})
	require.ErrorContains(t, m.fleet.Join(t.Context(), m.guard), "redisfleet: Join: NOAUTH")
	require.NoError(t, m.search())
}

// A user of the ACL needs no more rights than the package's doc names.
func TestRightsOfAUser(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.do("ACL", "SETUSER", "fleet", "on", ">secret", "~resilience:{test}:*",
		"+evalsha", "+eval", "+time", "+get", "+set",
		"+del", "+pexpire", "+@hash", "+@sortedset")
	client := redis.NewClient(&redis.Options{Addr: s.addr, Username: "fleet", Password: "secret"})
	defer client.Close()
	b := new(backend)
	m := newMember(t, client, b, resilience.BreakerConfig{Cooldown: 10 * time.Millisecond}).beSlow().join()
	b.broken.Store(true)
	m.fail(5)
	m.told()
	b.broken.Store(false)
	eventually(t, "the probe succeeds", func() bool { return m.search() == nil })
	m.guard.Breaker("search").Isolate("maintenance")
	m.told()
	m.guard.Breaker("search").Reset()
	m.told()
	require.NoError(t, m.fleet.Health().Err)
	require.NoError(t, m.fleet.Leave(t.Context()))
	require.Equal(t, "0", s.do("ZCARD", "resilience:{test}:members"))
	require.Equal(t, "0", s.do("HLEN", "resilience:{test}:isolated"))
	require.Zero(t, m.logged("can't be reached"))
}

func TestAClientThatPanicsIsAnOutage(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) {
		panic("no network")
	}})
	defer client.Close()
	m := newMember(t, client, new(backend), resilience.BreakerConfig{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.NoError(t, m.fleet.Join(ctx, m.guard))
	require.NoError(t, m.search())
	require.Error(t, m.fleet.Health().Err)
}

func TestConfigIsChecked(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: os.DevNull})
	defer client.Close()
	for _, namespace := range []string{"", "a b", "a{b", string(make([]byte, 65))} {
		_, err := New(client, Config{Namespace: namespace})
		require.ErrorContains(t, err, "Config.Namespace")
	}
	_, err := New(nil, Config{Namespace: "test"})
	require.ErrorContains(t, err, "the client is nil")

	fleet, err := New(client, Config{Namespace: "test"})
	require.NoError(t, err)
	guard := resilience.Must(resilience.New(resilience.Config{}))
	require.ErrorContains(t, fleet.Join(t.Context(), nil), "the guard is nil")
	require.ErrorContains(t, fleet.Join(t.Context(), guard), "Configure")
	require.ErrorIs(t, fleet.Leave(t.Context()), errNotJoined)
}

func TestBreakersHaveTheirOwnConfig(t *testing.T) {
	c := &configs{
		all: resilience.BreakerConfig{Failures: 3},
		breakers: map[string]resilience.BreakerConfig{
			"index": {Failures: 9, Cooldown: time.Minute, ProbeTimeout: time.Second}, "index/eu": {Failures: 7},
		},
	}
	for breaker, want := range map[string]resilience.BreakerConfig{
		"search":   {Failures: 3, Cooldown: 30 * time.Second, ProbeTimeout: 2 * time.Minute},
		"index":    {Failures: 9, Cooldown: time.Minute, ProbeTimeout: time.Second},
		"index/us": {Failures: 9, Cooldown: time.Minute, ProbeTimeout: time.Second},
		"index/eu": {Failures: 7, Cooldown: 30 * time.Second, ProbeTimeout: 2 * time.Minute},
		"indexes":  {Failures: 3, Cooldown: 30 * time.Second, ProbeTimeout: 2 * time.Minute},
	} {
		got := c.of(breaker)
		require.Equal(t, want.Failures, got.Failures, breaker)
		require.Equal(t, want.Cooldown, got.Cooldown, breaker)
		require.Equal(t, want.ProbeTimeout, got.ProbeTimeout, breaker)
	}
	require.Equal(t, 5, new(configs).of("search").Failures)
}

// A Reset also ends an isolation that a member has told, and not yet heard of from Redis.
func TestResetOfAnIsolationThatWasJustTold(t *testing.T) {
	t.Parallel()
	s, b := startServer(t), new(backend)
	one := newMember(t, s.client(), b, resilience.BreakerConfig{}).beSlow()
	one.fleet.interval = time.Hour
	one.join()
	two := newMember(t, s.client(), b, resilience.BreakerConfig{}).beSlow().join()
	one.guard.Breaker("search").Isolate("maintenance")
	one.told()
	agree(t, []*member{two}, resilience.StateIsolated)
	two.guard.Breaker("search").Reset()
	two.told()
	require.NoError(t, one.fleet.poll(t.Context()))
	require.Equal(t, resilience.StateClosed, one.state())
}

// What a server has isolated before it joins stays so, whatever an operator has reset before.
func TestIsolationBeforeJoin(t *testing.T) {
	t.Parallel()
	s, b := startServer(t), new(backend)
	first := joinAll(t, 1, s, b, resilience.BreakerConfig{})[0]
	first.guard.Breaker("search").Isolate("maintenance")
	first.told()
	first.guard.Breaker("search").Reset()
	first.told()
	require.Equal(t, "1", s.do("HLEN", "resilience:{test}:breakers"))

	second := newMember(t, s.client(), b, resilience.BreakerConfig{}).beSlow()
	second.guard.Breaker("search").Isolate("not ready")
	second.join()
	require.Equal(t, resilience.StateIsolated, second.state())
	require.Equal(t, resilience.StateClosed, first.state())
}
