//go:build unix

package redisfleet

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// failures returns how many failures the fleet has counted, of a breaker that it knows.
func failures(s *server, breaker string) (n int) {
	text := s.do("HGET", "resilience:{test}:breakers", breaker)
	b, err := parse(text)
	require.NoError(s.t, err)
	return b.Failures
}

func TestFailuresAddUpOverTheFleet(t *testing.T) {
	t.Parallel()
	s, b := startServer(t), new(backend)
	all := joinAll(t, 30, s, b, resilience.BreakerConfig{Cooldown: time.Hour})
	b.broken.Store(true)
	for i := range 5 {
		all[i].fail(1)
		all[i].told()
		require.Equal(t, i+1, failures(s, "search"))
	}
	took := agree(t, all, resilience.StateOpen)
	t.Logf("all 30 are open %s later", took)
	assert.EqualValues(t, 5, b.requests.Load())
}

// Members that are called all the time need no more than one failure each.
func TestMembersUnderLoadOpenByOneFailureEach(t *testing.T) {
	t.Parallel()
	s, b := startServer(t), new(backend)
	all := joinAll(t, 30, s, b, resilience.BreakerConfig{Cooldown: time.Hour})
	b.broken.Store(true)
	for _, m := range all {
		if m.search() != nil {
			m.told()
		}
	}
	agree(t, all, resilience.StateOpen)
	assert.LessOrEqual(t, b.requests.Load(), int64(30))
}

// Without polls, a member hears of an opening as soon as it tells of a failure.
func TestAFailureTellsAtOnce(t *testing.T) {
	t.Parallel()
	s, b := startServer(t), new(backend)
	all := joinAll(t, 2, s, b, resilience.BreakerConfig{Cooldown: time.Hour})
	third := newMember(t, s.client(), b, resilience.BreakerConfig{Cooldown: time.Hour}).beSlow()
	third.fleet.interval = time.Hour
	third.join()
	b.broken.Store(true)
	all[0].fail(4)
	all[0].told()
	all[1].fail(1)
	agree(t, all, resilience.StateOpen)
	require.Equal(t, resilience.StateClosed, third.state())

	third.fail(1)
	agree(t, []*member{third}, resilience.StateOpen)
}

func TestASuccessIsToldOnceAfterFailures(t *testing.T) {
	t.Parallel()
	s, b := startServer(t), new(backend)
	m := newMember(t, s.client(), b, resilience.BreakerConfig{}).beSlow()
	m.fleet.interval = time.Hour
	m.join()
	b.broken.Store(true)
	m.fail(1)
	m.told()
	require.Equal(t, 1, failures(s, "search"))

	b.broken.Store(false)
	before := s.calls("evalsha", "eval")
	for range 10 {
		require.NoError(t, m.search())
		m.told()
	}
	require.Equal(t, "0", s.do("HLEN", "resilience:{test}:breakers"))
	require.LessOrEqual(t, s.calls("evalsha", "eval")-before, 2, "the first one is sent with its script")
}

// TestLease asks for the right to probe a breaker, as two members.
func TestLease(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	one := &newMember(t, s.client(), new(backend), resilience.BreakerConfig{}).beSlow().fleet.store
	two := &newMember(t, s.client(), new(backend), resilience.BreakerConfig{}).beSlow().fleet.store
	lease := func(m *store, how string) bool {
		granted, err := m.lease(t.Context(), soon, "search", time.Hour, how)
		require.NoError(t, err)
		return granted
	}
	open := func(cooldown time.Duration, how string) int64 {
		cfg := resilience.BreakerConfig{Failures: 1, Cooldown: cooldown}
		_, b, err := one.failed(t.Context(), "search", 1, cfg, how)
		require.NoError(t, err)
		return b.OpenUntil
	}
	require.True(t, lease(one, leaseCall) && lease(two, leaseCall), "the breaker isn't open")

	until := open(time.Hour, failedMore)
	require.Positive(t, until)
	require.False(t, lease(one, leaseCall), "its time isn't over")
	require.True(t, lease(one, leaseBackground))
	require.True(t, lease(one, leaseBackground), "it has the lease")
	require.False(t, lease(two, leaseBackground))
	require.Equal(t, until, open(time.Hour, failedMore), "a late failure of a call")

	require.NoError(t, one.succeeded(t.Context(), "search", succeededCall))
	require.False(t, lease(two, leaseBackground), "a late success of a call")
	require.NoError(t, one.succeeded(t.Context(), "search", succeededClosed))
	open(0, failedMore)
	require.True(t, lease(two, leaseCall), "its time is over, and the lease was given back")
	require.False(t, lease(one, leaseCall))
	open(time.Hour, failedAll)
	require.True(t, lease(two, leaseCall), "that was no probe")
	open(time.Hour, failedMore)
	require.False(t, lease(two, leaseCall), "the probe has failed")
}

func TestOneProbeInACooldown(t *testing.T) {
	t.Parallel()
	const cooldown = time.Second
	s, b := startServer(t), new(backend)
	var mu sync.Mutex
	var probes []time.Time
	all := joinAll(t, 5, s, b, resilience.BreakerConfig{Cooldown: cooldown})
	b.broken.Store(true)
	for _, m := range all {
		m.fail(1)
		m.told()
	}
	agree(t, all, resilience.StateOpen)

	b.ask = func() error {
		mu.Lock()
		defer mu.Unlock()
		probes = append(probes, time.Now())
		if len(probes) >= 3 {
			return nil
		}
		return errBackend
	}
	var calls sync.WaitGroup
	for _, m := range all {
		calls.Go(func() {
			for m.search() != nil {
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	calls.Wait()
	agree(t, all, resilience.StateClosed)
	for i := 1; i < 3; i++ {
		assert.GreaterOrEqual(t, probes[i].Sub(probes[i-1]), cooldown-2*time.Millisecond, "Redis counts milliseconds")
	}
}

// A probe that neither succeeds nor fails keeps the others waiting for a Cooldown.
func TestProbeThatHangsIsReplaced(t *testing.T) {
	t.Parallel()
	s, b := startServer(t), new(backend)
	all := joinAll(t, 2, s, b, resilience.BreakerConfig{Cooldown: time.Second})
	b.broken.Store(true)
	for i := range 5 {
		all[i%2].fail(1)
		all[i%2].told()
	}
	agree(t, all, resilience.StateOpen)

	hanging, end := make(chan struct{}), make(chan struct{})
	defer close(end)
	var first atomic.Bool
	b.ask = func() error {
		if !first.Swap(true) {
			close(hanging)
			<-end
		}
		return nil
	}
	go func() {
		for all[0].search() != nil {
			time.Sleep(time.Millisecond)
		}
	}()
	<-hanging
	eventually(t, "another call is the probe", func() bool { return all[1].search() == nil })
	agree(t, all, resilience.StateClosed)
}

func TestNewcomerKnowsAtOnce(t *testing.T) {
	t.Parallel()
	s, b := startServer(t), new(backend)
	first := joinAll(t, 1, s, b, resilience.BreakerConfig{Cooldown: time.Hour})[0]
	b.broken.Store(true)
	first.fail(5)
	eventually(t, "the fleet knows", func() bool {
		first.fleet.mu.Lock()
		defer first.fleet.mu.Unlock()
		return first.fleet.known.breakers["search"].OpenUntil > 0
	})

	second := newMember(t, s.client(), b, resilience.BreakerConfig{Cooldown: time.Hour}).beSlow().join()
	require.Equal(t, resilience.StateOpen, second.state(), "a fleet of one member needs no other")
	left := second.guard.Breaker("search").RetryAfter()
	require.Greater(t, left, 59*time.Minute)
	require.LessOrEqual(t, left, time.Hour)

	s.do("HSET", "resilience:{test}:breakers", "search", `{"failures": 5, "openUntil": 1, "changed": 1e14}`)
	third := newMember(t, s.client(), b, resilience.BreakerConfig{}).beSlow().join()
	eventually(t, "a call may be the probe", func() bool { return third.state() == resilience.StateHalfOpen })
}

func TestMemberWithABrokenNetworkOpensAlone(t *testing.T) {
	t.Parallel()
	s, b := startServer(t), new(backend)
	all := joinAll(t, 3, s, b, resilience.BreakerConfig{Cooldown: 500 * time.Millisecond})
	cut, others := all[0], all[1:]
	cut.cut.Store(true)
	cut.fail(5)
	require.Equal(t, resilience.StateOpen, cut.state())
	cut.told()
	known, err := parse(s.do("HGET", "resilience:{test}:breakers", "search"))
	require.NoError(t, err)
	require.Equal(t, shared{Failures: 5}, known)
	require.NoError(t, others[0].search())

	for range 3 {
		eventually(t, "its probe fails", func() bool {
			return cut.search() != nil && cut.state() == resilience.StateOpen
		})
		eventually(t, "a success ends the row", func() bool {
			return others[1].search() == nil && s.do("HLEN", "resilience:{test}:breakers") == "0"
		})
	}
	b.broken.Store(true)
	others[0].fail(1)
	others[0].told()
	b.broken.Store(false)
	require.NoError(t, others[0].search())
	for _, m := range others {
		require.Equal(t, resilience.StateClosed, m.state())
	}

	cut.cut.Store(false)
	eventually(t, "its own probe succeeds", func() bool { return cut.search() == nil })
}

func TestWhatAnOperatorDoesConcernsAll(t *testing.T) {
	t.Parallel()
	s, b := startServer(t), new(backend)
	all := joinAll(t, 3, s, b, resilience.BreakerConfig{})
	breaker := func(i int) *resilience.Breaker { return all[i].guard.Breaker("search") }

	breaker(0).Isolate("maintenance")
	agree(t, all, resilience.StateIsolated)
	reason, _ := breaker(2).Isolated()
	require.Equal(t, "maintenance", reason)
	breaker(2).Isolate("until 16:00")
	eventually(t, "all know the new reason", func() bool {
		return every(all, func(m *member) bool {
			reason, _ := m.guard.Breaker("search").Isolated()
			return reason == "until 16:00"
		})
	})
	all = append(all, newMember(t, s.client(), b, resilience.BreakerConfig{}).beSlow().join())
	require.Equal(t, resilience.StateIsolated, all[3].state())
	breaker(1).Reset()
	agree(t, all, resilience.StateClosed)
	breaker(3).Trip(time.Hour)
	agree(t, all, resilience.StateOpen)
	require.Greater(t, breaker(0).RetryAfter(), 59*time.Minute)
	breaker(2).Reset()
	agree(t, all, resilience.StateClosed)

	for _, m := range all {
		m.told()
	}
	require.Equal(t, 5, s.calls("hset"), "members don't tell what they have been told")
	require.NoError(t, all[0].search())
}

func TestBreakersOfKeysAndOtherTools(t *testing.T) {
	t.Parallel()
	s, b := startServer(t), new(backend)
	all := joinAll(t, 3, s, b, resilience.BreakerConfig{Cooldown: time.Hour})
	other := func(m *member) error {
		fail := func(context.Context) (int, error) { return 0, errBackend }
		_, err := resilience.Do(t.Context(), m.guard, "unlisted", fail)
		return err
	}
	b.broken.Store(true)
	for i := range 5 {
		require.ErrorIs(t, all[i%2].search(resilience.BreakerKey("eu")), errBackend)
		require.ErrorIs(t, other(all[i%2]), errBackend)
		all[i%2].told()
	}
	eventually(t, "both are open", func() bool {
		return every(all[:2], func(m *member) bool {
			return m.guard.Breaker("unlisted").State() == resilience.StateOpen && m.rejects("eu")
		})
	})
	require.Equal(t, resilience.StateClosed, all[0].state())

	b.broken.Store(false)
	require.NoError(t, all[2].search(resilience.BreakerKey("eu")), "this breaker is new")
	eventually(t, "it follows the fleet's", func() bool { return all[2].rejects("eu") })
	require.NoError(t, all[2].search())
}

// rejects reports whether the breaker of a key is open.
func (m *member) rejects(key string) bool {
	for _, b := range m.guard.Breakers() {
		if b.Key() == key {
			return b.State() == resilience.StateOpen
		}
	}
	return false
}

func TestOneMemberCallsProbe(t *testing.T) {
	t.Parallel()
	s, b := startServer(t), new(backend)
	var all []*member
	var probes [3]atomic.Int64
	var works atomic.Bool
	client := s.client()
	for i := range probes {
		all = append(all, newMember(t, client, b, resilience.BreakerConfig{
			Cooldown: time.Hour, ProbeInterval: 50 * time.Millisecond,
			Probe: func(context.Context) error {
				probes[i].Add(1)
				if works.Load() {
					return nil
				}
				return errBackend
			},
		}).beSlow().join())
	}
	all[0].guard.Breaker("search").Trip(0)
	agree(t, all, resilience.StateOpen)
	asked := func() (n int64) { return probes[0].Load() + probes[1].Load() + probes[2].Load() }
	start := asked()
	eventually(t, "the backend is asked", func() bool { return asked() > start+10 })

	works.Store(true)
	agree(t, all, resilience.StateClosed)
	members := 0
	for i := range probes {
		if probes[i].Load() > 2 { // before the others were told of the opening, and after they were told of the end
			members++
		}
	}
	require.Equal(t, 1, members)
}

func TestAtRestAMemberSendsTwoCommandsASecond(t *testing.T) {
	t.Parallel()
	s, b := startServer(t), new(backend)
	all := joinAll(t, 2, s, b, resilience.BreakerConfig{})
	b.broken.Store(true)
	all[0].fail(1)
	all[0].told()
	b.broken.Store(false)
	eventually(t, "the failure is forgotten", func() bool {
		return all[1].search() == nil && s.do("HLEN", "resilience:{test}:breakers") == "0"
	})
	all[1].told()
	eventually(t, "all know", func() bool {
		return every(all, func(m *member) bool {
			m.fleet.mu.Lock()
			defer m.fleet.mu.Unlock()
			return len(m.fleet.known.breakers) == 0
		})
	})

	start, before := time.Now(), s.calls("evalsha", "eval")
	for i := range 10_000 {
		require.NoError(t, all[i%2].search())
	}
	eventually(t, "both have asked twice", func() bool { return s.calls("evalsha") >= before+4 })
	polls := int(time.Since(start)/pollInterval) + 1
	require.LessOrEqual(t, s.calls("evalsha", "eval")-before, 2*polls)
}

func TestOnlyAThousandBreakersAreShared(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	m := newMember(t, s.client(), new(backend), resilience.BreakerConfig{}).beSlow().join()
	cfg := m.fleet.configOf("search")
	for i := range 1000 {
		_, b, err := m.fleet.store.failed(t.Context(), fmt.Sprint("breaker ", i), 1, cfg, failedMore)
		require.NoError(t, err)
		require.Equal(t, 1, b.Failures)
	}
	_, b, err := m.fleet.store.failed(t.Context(), "another", 1, cfg, failedMore)
	require.NoError(t, err)
	require.Zero(t, b)
	_, b, err = m.fleet.store.failed(t.Context(), "breaker 1", 1, cfg, failedMore)
	require.NoError(t, err)
	require.Equal(t, 2, b.Failures)

	a, err := m.fleet.store.poll(t.Context())
	require.NoError(t, err)
	require.Len(t, a.breakers, 1000)
}

func TestWhatIsAnHourOldIsForgotten(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	m := newMember(t, s.client(), new(backend), resilience.BreakerConfig{}).beSlow().join()
	a, err := m.fleet.store.poll(t.Context())
	require.NoError(t, err)
	hour := time.Hour.Milliseconds()
	for name, times := range map[string][2]int64{
		"failures": {a.now - hour - 1, 0}, "open": {a.now - 9*hour, a.now - hour - 1},
		"late failures": {a.now - hour/2, 0}, "open still": {a.now - 9*hour, a.now + hour},
	} {
		s.do("HSET", "resilience:{test}:breakers", name,
			fmt.Sprintf(`{"failures": 1, "changed": %d, "openUntil": %d}`, times[0], times[1]))
	}

	a, err = m.fleet.store.poll(t.Context())
	require.NoError(t, err)
	require.Len(t, a.breakers, 2)
	require.Contains(t, a.breakers, "late failures")
	require.Contains(t, a.breakers, "open still")
	require.Equal(t, "2", s.do("HLEN", "resilience:{test}:breakers"))
	require.NotEqual(t, "-1", s.do("PTTL", "resilience:{test}:breakers"))
	require.NotEqual(t, "-1", s.do("PTTL", "resilience:{test}:members"))
}

func TestLeave(t *testing.T) {
	t.Parallel()
	s, b := startServer(t), new(backend)
	all := joinAll(t, 2, s, b, resilience.BreakerConfig{})
	b.broken.Store(true)
	all[0].fail(3)
	_, err := all[0].guard.Close(t.Context())
	require.NoError(t, err)
	require.NoError(t, all[0].fleet.Leave(t.Context()))
	require.Equal(t, 3, failures(s, "search"))
	require.Equal(t, "1", s.do("ZCARD", "resilience:{test}:members"))
	require.ErrorIs(t, all[0].fleet.Health().Err, errNotJoined)
	require.ErrorIs(t, all[0].fleet.Leave(t.Context()), errNotJoined)
	require.ErrorContains(t, all[0].fleet.Join(t.Context(), all[0].guard), "has been joined before")

	eventually(t, "the breaker opens, after the failures of both", func() bool {
		_ = all[1].search()
		return all[1].state() == resilience.StateOpen
	})
}

// TestCluster uses a cluster of one server, which refuses commands whose keys lie in different slots.
func TestCluster(t *testing.T) {
	t.Parallel()
	s, b := startServer(t, "--cluster-enabled", "yes"), new(backend)
	s.do("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
	eventually(t, "the cluster is up", func() bool {
		client := redis.NewClient(&redis.Options{Addr: s.addr})
		defer client.Close()
		return client.Set(t.Context(), "x", 1, 0).Err() == nil
	})
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.addr}})
	t.Cleanup(func() { client.Close() })
	one := newMember(t, client, b, resilience.BreakerConfig{Cooldown: time.Second}).beSlow().join()
	two := newMember(t, client, b, resilience.BreakerConfig{Cooldown: time.Second}).beSlow().join()

	b.broken.Store(true)
	one.fail(4)
	one.told()
	two.fail(1)
	agree(t, []*member{one, two}, resilience.StateOpen)
	b.broken.Store(false)
	eventually(t, "a probe succeeds", func() bool { return one.search() == nil })
	agree(t, []*member{one, two}, resilience.StateClosed)
	one.guard.Breaker("search").Isolate("maintenance")
	agree(t, []*member{one, two}, resilience.StateIsolated)
	two.guard.Breaker("search").Reset()
	agree(t, []*member{one, two}, resilience.StateClosed)
}
