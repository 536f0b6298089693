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
		for _, step := range []struct {
			name string
			do   func()
			want map[string]int
		}{
			{"a failure", func() { fail(1) }, map[string]int{"failure": 1}},
			{"the first success", func() { require.NoError(t, all[1].call()) }, map[string]int{"success": 1}},
			{"another one", func() { require.NoError(t, all[0].call()) }, map[string]int{}},
			{"enough failures", func() { fail(4); require.Error(t, all[1].call2()) }, map[string]int{"failure": 5}},
			{"rejected calls", func() { require.ErrorIs(t, all[2].call(), resilience.CodeCircuitOpen) }, map[string]int{}},
			{"a probe that fails", func() { time.Sleep(30 * time.Second); fail(1) }, map[string]int{"lease": 1, "failure": 1}},
			{"a probe", func() { time.Sleep(30 * time.Second); _ = all[1].call() }, map[string]int{"lease": 1, "recovered": 1}},
			{"a reset", func() { _ = all[1].fleet.Reset(t.Context(), "search") }, map[string]int{"reset": 1}},
		} {
			m.executed()
			step.do()
			time.Sleep(3 * time.Second)
			got := m.executed()
			if got["read"] <= got["compare"] { // once a minute, everything is read
				delete(got, "read")
			}
			delete(got, "sync")
			delete(got, "compare")
			require.Equal(t, step.want, got, step.name)
		}
		for _, s := range all {
			require.Equal(t, resilience.StateClosed, s.state())
			require.Empty(t, s.fleet.engine.breakers, "only what isn't closed is kept")
		}
	})
}

func (s *server) call2() error {
	s.cut.Store(true)
	defer s.cut.Store(false)
	return s.call()
}

// A store that has forgotten everything, or what it has learned last, is told what is open: no more and no less.
func TestStoreIsToldWhatItHasForgotten(t *testing.T) {
	for name, forget := range map[string]func(m *model) (lose func()){
		"everything": func(m *model) func() { return m.flush },
		"the newest": (*model).snapshot,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				s, other := newServer(t, m, "first"), newServer(t, m, "other")
				s.more, s.quorum = []string{"a", "b", "alone", "recovered"}, 1
				s.start(nil)
				other.start(nil) // which has none of those tools
				defer leaveAll(t, []*server{s, other})

				s.open("recovered")
				lose := forget(m)
				s.open("a")
				s.open("b")
				s.fleet.engine.quorum = 2
				s.open("alone") // it isn't open for the fleet
				time.Sleep(30 * time.Second)
				s.fleet.engine.quorum = 1
				open := func() (ids []string) {
					for _, tool := range append(s.more, "search") {
						if m.breaker("listed/"+tool).State == "open" {
							ids = append(ids, tool)
						}
					}
					return ids
				}
				require.Equal(t, []string{"a", "b", "recovered"}, open())

				// Its probe succeeds while the store is away.
				s.store.down.Store(true)
				time.Sleep(2 * time.Second)
				require.NoError(t, s.callTool("recovered"))
				lose()
				s.store.down.Store(false)
				time.Sleep(2 * time.Second)
				require.Equal(t, []string{"a", "b"}, open())
				require.Equal(t, resilience.StateClosed, s.stateOf("recovered"))
				require.NotEqual(t, resilience.StateClosed, s.stateOf("alone"))
				require.NotEqual(t, resilience.StateClosed, s.stateOf("a"))
			})
		})
	}
}

// A forgetfulStore loses its memory once after a sync, before its breakers are read.
type forgetfulStore struct {
	*modelStore
	loses atomic.Bool
}

func (s *forgetfulStore) read(ctx context.Context, ids []string) ([]entry, error) {
	if s.loses.Swap(false) {
		s.flush()
	}
	return s.modelStore.read(ctx, ids)
}

func TestMemoryThatIsLostDuringASyncClosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, newModel(), "alone")
		s.prepare(nil)
		store := &forgetfulStore{modelStore: s.store}
		var err error
		s.fleet, err = join(t.Context(), store, s.store.me, s.guard, Config{Namespace: "test"})
		require.NoError(t, err)
		defer leaveAll(t, []*server{s})
		s.open("search")
		store.loses.Store(true)
		s.fleet.engine.subscribed()
		time.Sleep(2 * time.Second)
		require.Equal(t, 2, s.store.since)
		require.Equal(t, resilience.StateOpen, s.state())
		require.Equal(t, "open", s.store.breaker("listed/search").State)
		require.Contains(t, s.fleet.engine.breakers, "listed/search", "it is told the next time, too")
	})
}

// An isolation holds until Reset, also if nothing happens for longer than the store remembers what nobody mentions.
func TestIsolationLastsLongerThanADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 2, nil)
		require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
		for day := range 3 {
			m.mu.Lock()
			m.now = func() time.Time { return time.Now().Add(time.Duration(day+1) * (keep - time.Hour)) }
			m.mu.Unlock()
			time.Sleep(2 * time.Minute)
		}
		s := newServer(t, m, "newcomer")
		s.start(nil)
		defer leaveAll(t, append(all, s))
		require.ErrorContains(t, s.call(), "moving house")
		require.ErrorContains(t, all[0].call(), "moving house")
	})
}

// A breaker that others have closed while no message arrived is closed here, too.
func TestWhatIsGoneFromTheStoreIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 2, nil)
		defer leaveAll(t, all)
		down(t, all)
		all[0].broken.Store(false)
		time.Sleep(30 * time.Second)
		m.mu.Lock()
		deaf := m.listeners[all[1].store]
		delete(m.listeners, all[1].store)
		m.mu.Unlock()
		require.NoError(t, all[0].call())
		require.NotEqual(t, resilience.StateClosed, all[1].state())
		deaf.subscribed()
		synctest.Wait()
		require.Equal(t, resilience.StateClosed, all[1].state())
		require.Empty(t, all[1].fleet.engine.breakers)
	})
}

// A partialStore counts what is asked for at once.
type partialStore struct {
	*modelStore
	mostRead, compared int
}

func (s *partialStore) read(ctx context.Context, ids []string) ([]entry, error) {
	s.mostRead = max(s.mostRead, len(ids))
	return s.modelStore.read(ctx, ids)
}

func (s *partialStore) compare(ctx context.Context, configs []string) ([]string, error) {
	s.compared = len(configs)
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
		require.Equal(t, 100, store.mostRead)
		require.Equal(t, 1000, store.compared)
		for i, tool := range first.more {
			require.Equal(t, i < 250, second.stateOf(tool) == resilience.StateIsolated, tool)
		}
	})
}
