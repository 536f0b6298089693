package redisfleet

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// stores returns the stores of n members of a namespace on a server, whose clock stands still.
func stores(t *testing.T, n int) (server *miniredis.Miniredis, tick func(d time.Duration), all []*redisStore) {
	server = miniredis.RunT(t)
	client := newClient(t, redis.Options{Addr: server.Addr()})
	for i := range n {
		all = append(all, newRedisStore(client, "test", fmt.Sprint("member-", i)))
	}
	now := time.UnixMilli(1_700_000_000_000)
	tick = func(d time.Duration) {
		now = now.Add(d)
		server.SetTime(now)
	}
	tick(0)
	return server, tick, all
}

// When more calls fail at once than results wait for the store, it hears of the breakers that they have opened with the
// next sync.
func TestMoreCallsFailThanResultsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tenants = 1000
		m := newModel()
		s := newServer(t, m, "alone")
		s.quorum = 1
		s.store.delay = func() time.Duration { return 10 * time.Millisecond }
		s.start(func(c *resilience.BreakerConfig) { c.Failures = 2 })
		defer leaveAll(t, []*server{s})
		time.Sleep(absence)
		for i := range 2 * tenants {
			_, err := resilience.Do(t.Context(), s.guard, "search", func(context.Context) (string, error) {
				return "", errBackend
			}, resilience.BreakerKey(fmt.Sprint("tenant-", i/2)))
			require.ErrorIs(t, err, errBackend)
		}
		time.Sleep(3 * time.Second)
		for i := range tenants {
			require.Equal(t, "open", m.breaker(fmt.Sprint("listed/search/tenant-", i)).State, i)
		}
	})
}

func TestKeysAreOfTheNamespaceAndExpireAfterADay(t *testing.T) {
	server, _, all := stores(t, 1)
	s := all[0]
	_, err := s.sync(t.Context(), memory{})
	require.NoError(t, err)
	_, err = s.isolate(t.Context(), "listed/search", "moving house")
	require.NoError(t, err)
	_, err = s.compare(t.Context(), []string{"listed/search 5 failures"})
	require.NoError(t, err)

	want := []string{"breaker:listed/search", "configs", "index", "members", "version"}
	for i, name := range want {
		want[i] = "resilience:{test}:" + name
		ttl := keep
		switch name {
		case "index", "breaker:listed/search":
			ttl = life
		case "version":
			ttl = life + time.Hour // or the breakers' versions would be in the future
		}
		require.Equal(t, ttl, server.TTL(want[i]), name)
	}
	require.ElementsMatch(t, want, server.Keys())
}

func TestMemberIsForgottenAfterThreeSeconds(t *testing.T) {
	_, tick, all := stores(t, 2)
	members := func(s *redisStore) int {
		r, err := s.sync(t.Context(), memory{})
		require.NoError(t, err)
		return r.Members
	}
	require.Equal(t, 1, members(all[0]))
	tick(3 * time.Second)
	require.Equal(t, 2, members(all[1]))
	tick(time.Millisecond)
	require.Equal(t, 1, members(all[1]))
}

func TestNamespaceRemembers4096Breakers(t *testing.T) {
	server, _, all := stores(t, 1)
	for i := range 4095 {
		_, err := server.ZAdd("resilience:{test}:index", 2e12, fmt.Sprint("listed/", i))
		require.NoError(t, err)
	}
	for _, tc := range []struct {
		id   string
		room bool
	}{
		{"listed/fetch/the%20last", true}, {"listed/fetch/one%20more", false}, {"unlisted/x", false}, {"listed/search", true},
	} {
		b := resilience.FleetBreaker{ID: tc.id, Config: resilience.BreakerConfig{Failures: 5}}
		x, err := all[0].failure(t.Context(), b, 1, 2, false)
		require.NoError(t, err)
		require.Equal(t, tc.room, x.Failures == 1, tc.id)
		_, err = all[0].isolate(t.Context(), tc.id, "")
		require.Equal(t, tc.room, err == nil, tc.id)
		if err != nil {
			require.ErrorContains(t, err, "too many breakers")
		}
	}
}

// An older memory may have a breaker as open that was isolated since.
func TestRestoredIsolationTakesThePlaceOfAnOpenState(t *testing.T) {
	_, _, all := stores(t, 2)
	open := resilience.FleetBreaker{ID: "listed/search", State: resilience.StateOpen, RetryAfter: time.Second}
	isolated := open
	isolated.State = resilience.StateIsolated
	for _, tc := range []struct {
		b    resilience.FleetBreaker
		want string
	}{{open, "open"}, {isolated, "isolated"}, {open, "isolated"}, {isolated, "isolated"}} {
		x, err := all[0].restore(t.Context(), tc.b, "moving house", 0)
		require.NoError(t, err)
		require.Equal(t, tc.want, x.State)
	}
}

// What is open is left to others by a member whose probe has failed, and what was forgotten is probed soon.
func TestWhenABreakerMayBeProbed(t *testing.T) {
	_, tick, all := stores(t, 2)
	b := resilience.FleetBreaker{
		ID: "listed/search", State: resilience.StateOpen, RetryAfter: 7 * time.Second,
		Config: resilience.BreakerConfig{Failures: 1, Cooldown: 12 * time.Second, ProbeInterval: 6 * time.Second},
	}
	lease := func(s *redisStore, cause resilience.Cause) time.Duration {
		r, err := s.lease(t.Context(), b, cause)
		require.NoError(t, err)
		require.Equal(t, r.Wait == 0, r.Granted)
		return time.Duration(r.Wait) * time.Millisecond
	}
	for _, s := range all {
		_, err := s.sync(t.Context(), memory{})
		require.NoError(t, err)
	}

	_, err := all[0].restore(t.Context(), b, "", 0)
	require.NoError(t, err)
	require.Equal(t, 3*time.Second, lease(all[0], resilience.CauseProbe), "half of an interval")
	require.Equal(t, 7*time.Second, lease(all[0], resilience.CauseCalls))

	_, err = all[0].failure(t.Context(), b, 1, 2, true)
	require.NoError(t, err)
	require.Equal(t, 15*time.Second, lease(all[0], resilience.CauseCalls), "and a quarter of the cooldown")
	require.Equal(t, 12*time.Second, lease(all[1], resilience.CauseCalls))
	require.Equal(t, 3*time.Second, lease(all[1], resilience.CauseProbe))
	tick(2 * time.Second)
	require.Equal(t, 10*time.Second, lease(all[1], resilience.CauseCalls))
	tick(10 * time.Second)
	require.Zero(t, lease(all[1], resilience.CauseCalls))
	require.Equal(t, 3*time.Second, lease(all[0], resilience.CauseCalls), "it is leased for so long")
}

// Members that have asked for a Probe take turns, whether or not others have the breaker, and what any of their Probes
// finds out puts off the calls of all.
func TestWhoseTurnAProbeIs(t *testing.T) {
	_, pass, all := stores(t, 3)
	b := resilience.FleetBreaker{
		ID: "listed/search", State: resilience.StateOpen,
		Config: resilience.BreakerConfig{Cooldown: 12 * time.Second, ProbeInterval: 2 * time.Second},
	}
	tick := func(d time.Duration) {
		pass(d)
		for _, s := range all {
			_, err := s.sync(t.Context(), memory{}) // it is there
			require.NoError(t, err)
		}
	}
	tick(0)
	_, err := all[0].restore(t.Context(), b, "", 0)
	require.NoError(t, err)

	lease := func(s *redisStore, cause resilience.Cause) time.Duration {
		r, err := s.lease(t.Context(), b, cause)
		require.NoError(t, err)
		return duration(r.Wait)
	}
	probe := func(s *redisStore, wait time.Duration, msg string) {
		require.Equal(t, wait, lease(s, resilience.CauseProbe), msg)
	}
	fails := func(s *redisStore) {
		n := news{op: "failure", breaker: b, n: 1, quorum: 2, probe: true, cause: resilience.CauseProbe}
		_, err := one(t.Context(), s, n)
		require.NoError(t, err)
	}
	const half = time.Second // of an interval
	probe(all[0], half, "since it has opened")
	probe(all[1], half, "since it has opened")

	tick(half)
	probe(all[0], 0, "its turn")
	probe(all[1], 2*half, "until the one under way must have failed")
	tick(half / 2)
	fails(all[0])
	require.Equal(t, 12*time.Second, lease(all[2], resilience.CauseCalls))
	probe(all[1], half/2, "half an interval since the last one began")
	probe(all[0], half/2+half, "and half of one for the others")

	tick(half / 2)
	probe(all[1], 0, "its turn")
	fails(all[1])
	probe(all[0], half, "its turn again: the third one hasn't asked")
	probe(all[1], 2*half, "and half an interval for the first one")

	tick(half)
	probe(all[0], 0, "its turn")
	tick(3 * half / 2)
	fails(all[0])
	probe(all[0], half, "which the others have since it has failed")
	tick(half)
	probe(all[0], 0, "they don't want it")
	fails(all[0])
	require.Equal(t, 12*time.Second, lease(all[2], resilience.CauseCalls), "whose turn it was makes no difference to calls")

	tick(half)
	probe(all[1], 0, "its turn")
	tick(leaseTerm)
	tick(half / 2)
	probe(all[0], 0, "the other one has had its turn, though it has told nothing")
}

// Another failure of a member whose probe has failed puts off that member, and not one that had no turn.
func TestWhomAnotherFailureOfAMemberPutsOff(t *testing.T) {
	_, tick, all := stores(t, 2)
	b := resilience.FleetBreaker{
		ID: "listed/search", State: resilience.StateOpen, RetryAfter: 12 * time.Second,
		Config: resilience.BreakerConfig{Cooldown: 12 * time.Second, ProbeTimeout: time.Minute},
	}
	lease := func(s *redisStore) time.Duration {
		r, err := s.lease(t.Context(), b, resilience.CauseCalls)
		require.NoError(t, err)
		return time.Duration(r.Wait) * time.Millisecond
	}
	known := func(s *redisStore) time.Duration {
		x, err := s.read(t.Context(), []string{b.ID})
		require.NoError(t, err)
		return time.Duration(x[0].Wait) * time.Millisecond
	}
	_, err := all[0].restore(t.Context(), b, "", 0)
	require.NoError(t, err)
	tick(12 * time.Second)
	for i := range 2 {
		for _, s := range all {
			_, err := s.sync(t.Context(), memory{})
			require.NoError(t, err)
		}
		require.Zero(t, lease(all[0]), "probe %d", i)
		x, err := all[0].failure(t.Context(), b, 1, 2, true)
		require.NoError(t, err)
		require.Equal(t, int64(12_000), x.Wait)
		require.Equal(t, 12*time.Second, known(all[0]))
		tick(12*time.Second + 3*time.Second*time.Duration(1-i))
	}
	require.Zero(t, known(all[1]))
	require.Zero(t, lease(all[1]))
	require.Equal(t, leaseTerm, known(all[0]), "the other one's turn comes first")
}

func TestWhatAnEntrySaysOfABreaker(t *testing.T) {
	asked := time.Now()
	read := asked.Add(time.Second)
	for _, c := range []struct {
		entry entry
		want  resilience.FleetChange // of when it was asked, unless Time says otherwise
	}{
		{entry{State: "closed", Failures: 3, Cause: "calls"}, resilience.FleetChange{Failures: 3}},
		{
			entry{State: "open", Wait: 1500, Cause: "calls"},
			resilience.FleetChange{State: resilience.StateOpen, RetryAfter: 2500 * time.Millisecond}, // 1500 since it was read
		},
		{
			entry{State: "isolated", Reason: "moving house", Cause: "manual", Age: 1500},
			resilience.FleetChange{
				State: resilience.StateIsolated, Reason: "moving house", Cause: resilience.CauseManual,
				Time: read.Add(-1500 * time.Millisecond),
			},
		},
		{entry{State: "closed", Cause: "probe"}, resilience.FleetChange{Cause: resilience.CauseProbe}},
		{entry{State: "closed", Cause: "manual"}, resilience.FleetChange{Cause: resilience.CauseManual, Time: read}},
	} {
		c.entry.ID, c.entry.read, c.want.Breaker = "listed/search", read, "listed/search"
		if c.want.Time.IsZero() {
			c.want.Time = asked
		}
		require.Equal(t, c.want, c.entry.change(asked))
	}
}

// fill lets agents' names take all the room of the namespace.
func (m *model) fill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range maxBreakers {
		m.version++
		e := entry{State: "closed", Failures: 1, Cause: "calls", Version: m.version}
		m.breakers[fmt.Sprint("unlisted/", i)] = &modelBreaker{
			entry: e, by: make(map[string]bool), expires: m.now().Add(keep),
		}
	}
}

// A member of an older version has no room for what only newer ones list. It reads no more than it would without that.
func TestFullNamespaceDuringAnUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		s, newer := newServer(t, m, "older"), m.store("newer")
		s.start(nil)
		defer leaveAll(t, []*server{s})
		m.fill()
		reads := func(each func()) int {
			m.executed()
			for range 60 {
				each()
				time.Sleep(time.Second)
			}
			return m.executed()["read"]
		}
		reads(func() {}) // all of them for the first time
		usual := reads(func() {})
		fails := func() {
			b := resilience.FleetBreaker{ID: "listed/new", Config: resilience.BreakerConfig{Failures: 1000}}
			_, err := newer.failure(t.Context(), b, 1, 2, false)
			require.NoError(t, err)
		}
		fails()
		require.LessOrEqual(t, reads(func() {}), 2*usual, "it is there")
		require.LessOrEqual(t, reads(fails), 2*usual, "it changes all the time")
	})
}

// A member that has missed which breaker of a full namespace was replaced by which has room for the new one.
func TestFullNamespaceWhoseChangesAreMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		s, other := newServer(t, m, "server"), m.store("other")
		s.start(nil)
		defer leaveAll(t, []*server{s})
		m.fill()
		time.Sleep(comparison / 2) // not when all is read again
		hear := s.store.deafen()
		_, err := other.reset(t.Context(), "unlisted/0")
		require.NoError(t, err)
		m.mu.Lock()
		delete(m.breakers, "unlisted/0") // the reset is forgotten
		m.mu.Unlock()
		_, err = other.isolate(t.Context(), "listed/search/tenant", "")
		require.NoError(t, err)
		hear()
		time.Sleep(2 * time.Second)
		require.ErrorIs(t, s.callKey("tenant"), resilience.CodeCircuitOpen)
	})
}
