package redisfleet

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// one tells a store of one breaker.
func one(ctx context.Context, s store, n news) (entry, error) {
	all, err := s.tell(ctx, n)
	if err != nil {
		return entry{}, err
	}
	return all[0], nil
}

// callKey calls the tool for a tenant.
func (s *server) callKey(key string) error {
	_, err := resilience.Do(context.Background(), s.guard, "search", func(context.Context) (string, error) {
		if s.cut.Load() {
			return "", errBackend
		}
		return "found", nil
	}, resilience.BreakerKey(key))
	synctest.Wait() // until the result has been reported
	return err
}

// distant returns two members, the second of which is far from Redis: 10ms each way.
func distant(t *testing.T) []*server {
	m := newModel()
	near, far := newServer(t, m, "near"), newServer(t, m, "far")
	far.store.delay = func() time.Duration { return 10 * time.Millisecond }
	near.start(nil)
	far.start(nil)
	return []*server{near, far}
}

// returns brings a member back that was cut off from Redis and from its backends. The breakers of so many tenants have
// opened and closed meanwhile.
func (s *server) returns(tenants int, meanwhile func()) {
	time.Sleep(5 * time.Second)
	s.store.down.Store(true)
	s.cut.Store(true)
	time.Sleep(2 * time.Second)
	for i := range tenants {
		for range 5 {
			require.Error(s.t, s.callKey(fmt.Sprint("tenant-", i)))
		}
	}
	meanwhile()
	s.cut.Store(false)
	time.Sleep(31 * time.Second)
	for i := range tenants {
		require.NoError(s.t, s.callKey(fmt.Sprint("tenant-", i)))
	}
	s.store.down.Store(false)
}

// A member that comes back with much to tell is a member all the time, and learns soon what was isolated meanwhile.
func TestMemberThatHasMuchToTell(t *testing.T) {
	for _, tenants := range []int{1, 1000} {
		t.Run(fmt.Sprint(tenants), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := distant(t)
				defer leaveAll(t, all)
				all[1].returns(tenants, func() {
					require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
				})
				back := time.Now()
				for all[1].state() != resilience.StateIsolated {
					require.LessOrEqual(t, time.Since(back), 2*time.Second)
					time.Sleep(50 * time.Millisecond)
				}
				for range 5 {
					time.Sleep(time.Second)
					require.Equal(t, 2, all[0].fleet.Health().Members)
				}
			})
		})
	}
}

// While it tells, it counts for the quorum: the failures of another member alone open no breaker of both.
func TestMemberThatHasMuchToTellCountsForTheQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := distant(t)
		defer leaveAll(t, all)
		all[1].returns(1000, func() {})
		time.Sleep(6 * time.Second)
		all[0].open("search")
		time.Sleep(10 * time.Second)
		require.NoError(t, all[1].call())
	})
}

// Nothing is told of a breaker whose probe is under way.
func TestMemberThatComesBackDuringAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, newModel(), "alone")
		s.start(nil)
		defer leaveAll(t, []*server{s})
		time.Sleep(absence)
		s.store.down.Store(true)
		time.Sleep(2 * time.Second)
		s.probe("search", 20*time.Second)
		s.store.down.Store(false)
		time.Sleep(2 * time.Second)
		require.True(t, s.fleet.Health().Connected)
		require.Equal(t, "closed", s.store.breaker("listed/search").State)
		time.Sleep(20 * time.Second)
		require.Equal(t, resilience.StateClosed, s.state())
	})
}

// A slowStore notes when it is told what. The first of each batch is apart from a row.
type slowStore struct {
	*modelStore
	ages []time.Duration // of the first one of each batch
}

func (s *slowStore) tell(ctx context.Context, all ...news) ([]entry, error) {
	s.ages = append(s.ages, s.now().Sub(all[0].at))
	time.Sleep(10 * time.Millisecond)
	replies, err := s.modelStore.tell(ctx, all...)
	replies[0].Apart = 1
	return replies, err
}

// News grows older while other news is told, also what is told again.
func TestAgeOfNewsInLaterBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{modelStore: newModel().store("me")}
		s.now = func() time.Time { return time.Now().Add(time.Hour) }
		e := newEngine(s, "me", Config{})
		var err error
		e.member, err = newGuard(t, io.Discard).JoinFleet("test", e)
		require.NoError(t, err)
		_, _, err = e.ask(t.Context())
		require.NoError(t, err)
		var all []news
		for i := range 2*maxBatch + 1 {
			b := resilience.FleetBreaker{ID: fmt.Sprint("listed/", i)}
			all = append(all, news{op: "success", breaker: b, at: time.Now()})
		}
		time.Sleep(time.Second)

		var told []string
		again, err := e.tellAll(t.Context(), all, func(n news, e entry) {
			require.Equal(t, n.breaker.ID, e.ID)
			told = append(told, e.ID)
		})
		require.NoError(t, err)
		require.Len(t, told, len(all))
		require.Len(t, again, 3)
		_, err = e.tellAll(t.Context(), again, func(news, entry) {})
		require.NoError(t, err)
		for i, age := range s.ages {
			want := time.Second + time.Duration(i)*10*time.Millisecond
			require.InDelta(t, want, age, float64(time.Millisecond+precision), "batch %d", i)
		}
		require.Len(t, s.ages, 4)
	})
}

// What a store has lost is given to it as fast.
func TestMemberThatHasMuchToRestore(t *testing.T) {
	for name, lose := range map[string]func(m *model){
		"all of it": func(m *model) { m.flush() },
		"a part":    nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				s := newServer(t, m, "alone")
				s.quorum = 1
				var far atomic.Bool
				s.store.delay = func() time.Duration {
					if far.Load() {
						return 10 * time.Millisecond
					}
					return 0
				}
				s.start(nil)
				defer leaveAll(t, []*server{s})
				time.Sleep(5 * time.Second)
				back := m.snapshot()
				s.cut.Store(true)
				for i := range 1000 {
					for range 5 {
						require.Error(t, s.callKey(fmt.Sprint("tenant-", i)))
					}
				}
				s.cut.Store(false)
				time.Sleep(time.Second)
				far.Store(true)
				if lose == nil {
					back()
				} else {
					lose(m)
				}
				time.Sleep(3 * time.Second)
				for i := range 1000 {
					require.Equal(t, "open", m.breaker(fmt.Sprint("listed/search/tenant-", i)).State)
				}
				require.True(t, s.fleet.Health().Connected)
			})
		})
	}
}

// Each command of a member says that it is alive, but for its last one, and those that may come after it.
func TestEachCommandSaysThatTheMemberIsAlive(t *testing.T) {
	b := resilience.FleetBreaker{ID: "listed/search", Config: resilience.BreakerConfig{Failures: 5}}
	for name, do := range map[string]func(ctx context.Context, s *redisStore) error{
		"read": func(ctx context.Context, s *redisStore) error { _, err := s.read(ctx, []string{b.ID}); return err },
		"failure": func(ctx context.Context, s *redisStore) error {
			_, err := s.failure(ctx, b, 1, 2, false)
			return err
		},
		"success": func(ctx context.Context, s *redisStore) error {
			_, err := s.tell(ctx, news{op: "success", breaker: b})
			return err
		},
		"restore": func(ctx context.Context, s *redisStore) error { _, err := s.restore(ctx, b, "", 0); return err },
		"compare": func(ctx context.Context, s *redisStore) error { _, err := s.compare(ctx, nil); return err },
	} {
		t.Run(name, func(t *testing.T) {
			_, tick, all := stores(t, 2)
			require.NoError(t, do(t.Context(), all[1]))
			tick(absence)
			reply, err := all[0].sync(t.Context(), memory{})
			require.NoError(t, err)
			require.Equal(t, 2, reply.Members)
			require.NoError(t, all[1].leave(t.Context()))
			reply, err = all[0].sync(t.Context(), memory{})
			require.NoError(t, err)
			require.Equal(t, 1, reply.Members)
		})
	}
}

func (s *redisStore) failure(
	ctx context.Context, b resilience.FleetBreaker, times, quorum int, probe bool,
) (entry, error) {
	n := news{op: "failure", breaker: b, n: times, quorum: quorum, probe: probe}
	known, err := s.read(ctx, []string{b.ID})
	if err != nil {
		return entry{}, err
	}
	if len(known) > 0 {
		n.heard = known[0].Version
	}
	return one(ctx, s, n)
}

func (s *redisStore) restore(
	ctx context.Context, b resilience.FleetBreaker, reason string, older int64,
) (entry, error) {
	return one(ctx, s, news{op: "restore", breaker: b, reason: reason, older: older})
}
