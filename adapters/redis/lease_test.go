package redisfleet

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// A probe keeps its lease however much its member has to tell the store, or to read, meanwhile.
func TestLeaseIsRenewedDuringALongSync(t *testing.T) {
	id := func(i int) string { return fmt.Sprint("unlisted/", i) }
	for name, begin := range map[string]func(m *model, s *server){
		"all is read": func(m *model, s *server) {
			m.fill()
			s.fleet.engine.subscribed()
		},
		"results that the store has missed": func(_ *model, s *server) {
			e := s.fleet.engine
			for i := range maxBreakers {
				e.missed([]resilience.FleetResult{{Breaker: resilience.FleetBreaker{ID: id(i)}, Success: true, Time: time.Now()}})
			}
			e.subscribed()
		},
		"changes that the store has forgotten": func(m *model, s *server) {
			back, other := m.snapshot(), m.store("other")
			for i := range maxBreakers - 1 {
				_, err := other.failure(t.Context(), resilience.FleetBreaker{
					ID: id(i), Config: resilience.BreakerConfig{Failures: 5},
				}, 1, 2, false)
				require.NoError(t, err)
			}
			time.Sleep(100 * time.Millisecond) // until all has been heard
			back()
			s.fleet.engine.subscribed()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				s := newServer(t, m, "probing")
				s.quorum = 1
				s.store.delay = func() time.Duration { return 35 * time.Millisecond }
				s.start(nil)
				defer leaveAll(t, []*server{s})
				s.open("search")
				time.Sleep(31 * time.Second)
				s.begin("search", 20*time.Second)
				time.Sleep(2 * time.Second)

				begin(m, s)
				b, _ := s.fleet.engine.member.Breaker("listed/search")
				granted := 0
				for range 150 {
					time.Sleep(100 * time.Millisecond)
					lease, err := m.store("other").lease(t.Context(), b, resilience.CauseCalls)
					require.NoError(t, err)
					if lease.Granted {
						granted++
					}
				}
				time.Sleep(10 * time.Second) // until the probe has ended
				require.Zero(t, granted)
				require.Equal(t, resilience.StateClosed, s.state())
			})
		})
	}
}

// However many leases there are, and however slow the store is, renewing them keeps the member from nothing else.
func TestLeasesOfManyProbesAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		s := newServer(t, m, "probing")
		s.quorum = 1
		var delay atomic.Int64
		s.store.delay = func() time.Duration { return time.Duration(delay.Load()) }
		for i := range 2*maxBatch + 1 {
			s.more = append(s.more, fmt.Sprint("tool-", i))
		}
		s.start(nil)
		for _, tool := range s.more {
			s.open(tool)
		}
		time.Sleep(31 * time.Second)
		for _, tool := range s.more {
			s.begin(tool, 20*time.Second)
		}
		defer time.Sleep(20 * time.Second) // until the probes have ended
		defer leaveAll(t, []*server{s})
		delay.Store(int64(100 * time.Millisecond))
		m.executed()
		time.Sleep(10 * time.Second)

		executed := m.executed()
		require.Greater(t, executed["sync"], 4, executed)
		require.Greater(t, executed["renew"], 4*len(s.more), executed)
	})
}

// A lease that has expired is renewed unless another member has it now.
func TestExpiredLeaseIsNotTakenFromAnotherMember(t *testing.T) {
	server, tick, all := stores(t, 2)
	b := resilience.FleetBreaker{
		ID: "listed/search", State: resilience.StateOpen, RetryAfter: time.Second,
		Config: resilience.BreakerConfig{Cooldown: time.Minute, ProbeTimeout: time.Minute},
	}
	holder := func() string { return server.HGet("resilience:{test}:breaker:listed/search", "lease") }
	lease := func(s *redisStore) bool {
		r, err := s.lease(t.Context(), b, resilience.CauseCalls)
		require.NoError(t, err)
		return r.Granted
	}
	renew := func(s *redisStore) {
		_, err := s.tell(t.Context(), news{op: "renew", breaker: b})
		require.NoError(t, err)
	}
	_, err := all[0].restore(t.Context(), b, "", 0)
	require.NoError(t, err)
	tick(time.Second)
	require.True(t, lease(all[0]))

	tick(leaseTerm + time.Second)
	renew(all[0])
	require.False(t, lease(all[1]), "nobody had it")
	tick(leaseTerm + time.Second)
	require.True(t, lease(all[1]))
	renew(all[0])
	require.Equal(t, all[1].member, holder())
	tick(leaseTerm - time.Millisecond)
	require.False(t, lease(all[0]))
}

// However slow Redis is, a fleet asks a dead backend no more often than its servers would without it.
func TestSlowRedisAsksNoMoreOften(t *testing.T) {
	const members, cooldowns = 20, 10
	for _, oneWay := range []time.Duration{75 * time.Millisecond, 150 * time.Millisecond, 200 * time.Millisecond, 240 * time.Millisecond} {
		t.Run(fmt.Sprint(oneWay), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := serversFarAway(t, newModel(), members, oneWay)
				time.Sleep(2 * absence)
				defer leaveAll(t, all)
				all[0].broken.Store(true)
				for _, s := range all { // one after the other
					defer callOften(time.Second, s)()
					time.Sleep(time.Second / members)
				}
				time.Sleep(time.Minute)
				before := all[0].asked.Load()
				time.Sleep(cooldowns * 30 * time.Second)
				require.LessOrEqual(t, all[0].asked.Load()-before, int64(members*cooldowns))
			})
		})
	}
}
