package redisfleet

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// doc.go says what members send: no command that could be spared, and no message that is missed.
func TestCommandsOfAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 3, nil)
		defer leaveAll(t, all)
		time.Sleep(2 * time.Second)
		m.executed()
		time.Sleep(10 * time.Minute)
		healthy := m.executed()
		require.InDelta(t, 10*3, healthy["compare"], 3)
		require.GreaterOrEqual(t, healthy["sync"], 10*60*3, "one in a second at least")
		require.LessOrEqual(t, healthy["sync"], 10*60*3*4/3)
		require.Len(t, healthy, 2)

		fail := func(n int) {
			all[0].broken.Store(true)
			for range n {
				require.Error(t, all[0].call())
			}
			all[0].broken.Store(false)
		}
		unread := len(all)
		for _, step := range []struct {
			name string
			do   func()
			want map[string]int
		}{
			{"a failure", func() { fail(1) }, map[string]int{"failure": 1}},
			{"the first success", func() { require.NoError(t, all[1].call()) }, map[string]int{"success": 1}},
			{"that after its own failure", func() { require.NoError(t, all[0].call()) }, map[string]int{"success": 1}},
			{"another one", func() { require.NoError(t, all[0].call()) }, map[string]int{}},
			{"enough failures", func() { fail(4); all[1].fail() }, map[string]int{"failure": 5}},
			{"rejected calls", func() { require.ErrorIs(t, all[2].call(), resilience.CodeCircuitOpen) }, map[string]int{}},
			{"a probe that fails", func() { time.Sleep(30 * time.Second); fail(1) }, map[string]int{"lease": 1, "failure": 1}},
			{"a probe", func() { time.Sleep(30 * time.Second); _ = all[1].call() }, map[string]int{"lease": 1, "recovered": 1}},
			{"a reset", func() { _ = all[1].fleet.Reset(t.Context(), "search") }, map[string]int{"reset": 1}},
		} {
			m.executed()
			step.do()
			time.Sleep(3 * time.Second)
			got := m.executed()
			unread += got["compare"] - got["read"] // once a minute, everything is compared, and soon read
			require.GreaterOrEqual(t, unread, 0, step.name)
			for _, often := range []string{"sync", "compare", "read"} {
				delete(got, often)
			}
			require.Equal(t, step.want, got, step.name)
		}
		synctest.Wait()
		for _, s := range all {
			require.Equal(t, resilience.StateClosed, s.state())
			require.Empty(t, s.fleet.engine.breakers, "only what isn't closed is kept")
		}
	})
}

// fail makes a call that fails for this server alone.
func (s *server) fail() {
	s.cut.Store(true)
	defer s.cut.Store(false)
	require.ErrorIs(s.t, s.call(), errBackend)
}

// A member whose message was lost doesn't report a success that is no news.
func TestSuccessIsReportedOnceForAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 2, nil)
		defer leaveAll(t, all)
		all[0].fail()
		hear := all[1].store.deafen()
		require.NoError(t, all[0].call())
		hear()
		time.Sleep(heartbeat)
		m.executed()
		require.NoError(t, all[1].call())
		require.Zero(t, m.executed()["success"])
	})
}

// A breaker that is open for one member alone leaves those of the fleet alone, also while it is probed.
func TestBreakerThatIsOpenForOneMemberAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 2, nil)
		defer leaveAll(t, all)
		all[0].open("search")
		time.Sleep(30 * time.Second)
		m.executed()
		all[0].begin("search", 10*time.Second)
		time.Sleep(9 * time.Second)
		require.Equal(t, 1, m.executed()["lease"], "there is no lease to be renewed")
		require.NoError(t, all[1].call())
		time.Sleep(2 * time.Second)
		require.Equal(t, resilience.StateClosed, all[0].state())
	})
}

func TestLeasesOfSeveralProbesAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		s := newServer(t, m, "probing")
		s.more = []string{"a", "b"}
		s.start(nil)
		other := m.store("other")
		defer leaveAll(t, []*server{s})
		time.Sleep(absence) // then it is known to be alone
		for _, tool := range s.more {
			s.open(tool)
		}
		time.Sleep(30 * time.Second)
		for _, tool := range s.more {
			s.begin(tool, 20*time.Second)
		}
		for range 19 {
			time.Sleep(time.Second)
			for _, tool := range s.more {
				b, _ := s.fleet.engine.member.Breaker("listed/" + tool)
				lease, err := other.lease(t.Context(), b, resilience.CauseCalls)
				require.NoError(t, err)
				require.False(t, lease.Granted, tool)
			}
		}
		time.Sleep(2 * time.Second)
	})
}

// What a sync has begun to read before is older than a message, and than what was done here.
func TestWhatHappensDuringASyncIsNewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		s := newServer(t, m, "slow")
		s.more = []string{"a", "b"}
		s.start(nil)
		defer leaveAll(t, []*server{s})
		require.NoError(t, s.fleet.Isolate(t.Context(), "a", "")) // so that there is something to read

		// Another member isolates one, which the message says before all is read.
		other := m.store("other")
		s.store.faults.Store("read", fault{after: func(ctx context.Context) error {
			_, err := other.isolate(ctx, "listed/b", "moving house")
			time.Sleep(100 * time.Millisecond)
			return err
		}})
		s.fleet.engine.subscribed()
		time.Sleep(2 * time.Second)
		require.Equal(t, resilience.StateIsolated, s.stateOf("b"))
		s.store.mend()

		// Its operator resets one, which stands until the next sync says that it is open still.
		hear := s.store.deafen()
		b := resilience.FleetBreaker{ID: "listed/search", Config: resilience.BreakerConfig{Failures: 1, Cooldown: time.Hour}}
		_, err := other.failure(t.Context(), b, 1, 1, false)
		require.NoError(t, err)
		began, end := make(chan struct{}), make(chan struct{})
		s.store.faults.Store("read", fault{after: func(context.Context) error {
			close(began)
			<-end
			return nil
		}})
		hear()
		s.fleet.engine.subscribed()
		<-began
		s.store.mend()
		time.Sleep(time.Millisecond)
		s.guard.Breaker("search").Reset()
		close(end)
		synctest.Wait()
		require.Equal(t, resilience.StateClosed, s.state())
		time.Sleep(heartbeat)
		require.Equal(t, resilience.StateOpen, s.state())
	})
}

// A member that may have missed something asks at once, once for all it has missed, also while it is asking.
func TestMemberAsksAtOnceForWhatItHasMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, newModel(), "alone")
		s.start(nil)
		defer leaveAll(t, []*server{s})
		time.Sleep(10 * time.Second)
		s.store.executed()
		s.fleet.engine.subscribed()
		synctest.Wait()
		require.Equal(t, 1, s.store.executed()["sync"])

		began, end := make(chan struct{}), make(chan struct{})
		s.store.faults.Store("sync", fault{after: func(context.Context) error {
			close(began)
			<-end
			return nil
		}})
		s.fleet.engine.subscribed()
		<-began
		s.store.mend()
		for range 5 {
			s.fleet.engine.subscribed()
		}
		close(end)
		synctest.Wait()
		require.Equal(t, 2, s.store.executed()["sync"])
	})
}

// What is found out while the store comes back, it learns at once.
func TestResultsDuringTheSyncThatReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, newModel(), "alone")
		s.start(nil)
		defer leaveAll(t, []*server{s})
		time.Sleep(absence) // then it is known to be alone
		s.store.refuse(errLost, "sync")
		time.Sleep(2 * time.Second)
		began, end := make(chan struct{}), make(chan struct{})
		s.store.faults.Store("sync", fault{after: func(context.Context) error {
			close(began)
			<-end
			return nil
		}})
		<-began
		s.store.mend()
		time.Sleep(time.Millisecond)
		s.open("search")
		close(end)
		synctest.Wait()
		require.Equal(t, "open", s.store.breaker("listed/search").State)
	})
}

// A partialStore counts what is asked for at once.
type partialStore struct {
	*modelStore
	mostRead, compared atomic.Int64
}

func (s *partialStore) read(ctx context.Context, ids []string) ([]entry, error) {
	s.mostRead.Store(max(s.mostRead.Load(), int64(len(ids))))
	return s.modelStore.read(ctx, ids)
}

func (s *partialStore) compare(ctx context.Context, configs []string) ([]string, error) {
	s.compared.Store(int64(len(configs)))
	return s.modelStore.compare(ctx, configs)
}

func TestManyBreakersAreReadInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		first, second := newServer(t, m, "first"), newServer(t, m, "second")
		for i := range 1001 {
			first.more = append(first.more, fmt.Sprint("tool-", i))
		}
		second.more = first.more
		first.start(nil)
		for _, tool := range first.more[:250] {
			require.NoError(t, first.fleet.Isolate(t.Context(), tool, ""))
		}

		second.prepare(nil)
		store := &partialStore{modelStore: second.store}
		var err error
		second.fleet, err = join(t.Context(), store, "second", second.guard, Config{Namespace: "test"})
		require.NoError(t, err)
		defer leaveAll(t, []*server{first, second})
		require.EqualValues(t, 100, store.mostRead.Load())
		require.EqualValues(t, 1000, store.compared.Load())
		for i, tool := range first.more {
			require.Equal(t, i < 250, second.stateOf(tool) == resilience.StateIsolated, tool)
		}
	})
}

// A member that fails to learn what its commands have done is told so by messages. It tries again no sooner for these.
func TestMessagesDoNotHurryARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		s := newServer(t, m, "alone")
		s.prepare(nil)
		s.open("search")
		s.store.delay = func() time.Duration { return time.Millisecond }
		s.store.faults.Store("failure", fault{after: func(context.Context) error { return errLost }})
		s.join()
		require.False(t, s.fleet.Health().Connected)
		m.executed()
		time.Sleep(10 * time.Second)
		require.InDelta(t, int(10*time.Second/retry), m.executed()["failure"], 2)
		s.store.mend()
		time.Sleep(heartbeat)
		require.True(t, s.fleet.Health().Connected)
		leaveAll(t, []*server{s})
	})
}

// What the operator of one server has closed stays so until the fleet has news, however often all is read again.
func TestResetOfOneMemberStandsWithoutNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 2, func(c *resilience.BreakerConfig) { c.Cooldown = time.Hour })
		defer leaveAll(t, all)
		down(t, all)
		time.Sleep(time.Second)
		all[0].guard.Breaker("search").Reset()
		time.Sleep(2 * comparison)
		require.Equal(t, resilience.StateClosed, all[0].state())
		require.Equal(t, resilience.StateOpen, all[1].state())

		_, err := all[1].store.failure(t.Context(), resilience.FleetBreaker{
			ID: "listed/search", RetryAfter: time.Hour,
			Config: resilience.BreakerConfig{Cooldown: time.Hour, ProbeInterval: time.Minute},
		}, 1, 2, true)
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, resilience.StateOpen, all[0].state(), "a probe has failed")
	})
}
