package redisfleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

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
		s.more = []string{"another"}
		s.prepare(nil)
		store := &forgetfulStore{modelStore: s.store}
		var err error
		s.fleet, err = join(t.Context(), store, s.store.me, s.guard, Config{Namespace: "test"})
		require.NoError(t, err)
		defer leaveAll(t, []*server{s})
		time.Sleep(absence) // then it is known to be alone
		s.open("search")
		require.NoError(t, s.fleet.Reset(t.Context(), "another"), "so that there is something newer")
		store.loses.Store(true)
		s.fleet.engine.subscribed()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.False(t, store.loses.Load())
		require.Equal(t, resilience.StateOpen, s.state())
		require.Equal(t, "open", s.store.breaker("listed/search").State)
		require.Contains(t, s.fleet.engine.breakers, "listed/search", "it is told the next time, too")
	})
}

// The same goes for a listing of many pages: what isn't on the pages of the next memory isn't closed.
func TestMemoryThatIsLostBetweenPages(t *testing.T) {
	for name, forget := range map[string]func(m *model) (lose func()){
		"everything": func(m *model) func() { return m.flush },
		"the newest": (*model).snapshot,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				s := newServer(t, m, "alone")
				for i := range 150 {
					s.more = append(s.more, fmt.Sprint("tool-", i))
				}
				s.start(nil)
				defer leaveAll(t, []*server{s})
				lose := forget(m)
				for _, tool := range s.more {
					require.NoError(t, s.fleet.Isolate(t.Context(), tool, "maintenance"))
					time.Sleep(time.Millisecond)
				}
				var once sync.Once
				s.store.faults.Store("list", fault{before: func(context.Context) error { once.Do(lose); return nil }})
				s.fleet.engine.subscribed()
				time.Sleep(5 * time.Second)
				for _, tool := range s.more {
					require.Equal(t, resilience.StateIsolated, s.guard.Breaker(tool).State(), tool)
					require.Equal(t, "isolated", s.store.breaker("listed/"+tool).State, tool)
				}
			})
		})
	}
}

// A listing ends with what the store had when it began, however much expires later since it has changed meanwhile.
func TestListingEndsWhateverChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		s, other := newServer(t, m, "member"), m.store("other")
		s.start(nil)
		defer leaveAll(t, []*server{s})
		isolate := func(n int) {
			for i := range n {
				_, err := other.isolate(t.Context(), fmt.Sprint("listed/", i), "")
				require.NoError(t, err)
			}
		}
		isolate(300)
		time.Sleep(time.Minute)
		s.store.faults.Store("list", fault{before: func(context.Context) error { time.Sleep(time.Millisecond); isolate(300); return nil }})
		m.executed()
		s.fleet.engine.subscribed()
		time.Sleep(200 * time.Millisecond)
		require.LessOrEqual(t, m.executed()["list"], 20)
		s.store.faults.Delete("list")
	})
}

// The pages have all breakers, also those that are prolonged meanwhile, and many that expire at the same time.
func TestPagesHaveAllBreakers(t *testing.T) {
	_, tick, all := stores(t, 2)
	s, want := all[0], []string{}
	for i := range 350 {
		if i < 60 || i%50 == 0 {
			tick(time.Millisecond)
		}
		id := fmt.Sprint("listed/", i)
		_, err := s.isolate(t.Context(), id, "")
		require.NoError(t, err)
		want = append(want, id)
	}
	tick(2 * time.Hour)

	reply, err := s.sync(t.Context(), memory{})
	require.NoError(t, err)
	got := make(map[string]bool)
	pages := 0
	for p := reply.Page; ; pages++ {
		require.Less(t, len(p.IDs), 200, "not all of them at once")
		for _, id := range p.IDs {
			got[id] = true
		}
		for ids := range slices.Chunk(p.IDs, maxBatch) {
			tick(time.Millisecond)
			_, err := all[1].read(t.Context(), ids) // prolongs them
			require.NoError(t, err)
		}
		if p.Next == "0" {
			break
		}
		p, err = s.list(t.Context(), p.Next)
		require.NoError(t, err)
	}
	require.ElementsMatch(t, want, slices.Collect(maps.Keys(got)))
	require.LessOrEqual(t, pages, 10)
}

// What another member prolongs, or changes, while this one lists the breakers, is on a later page: it isn't gone.
func TestListingMissesNothingThatMoves(t *testing.T) {
	change := func(t *testing.T, other *modelStore, ids []string) {
		for _, id := range ids {
			_, err := other.isolate(t.Context(), id, "for another reason")
			require.NoError(t, err)
		}
	}
	for name, move := range map[string]func(t *testing.T, other *modelStore, ids []string){
		"changed": change, "changed, and prolonged before": change,
		"prolonged": func(t *testing.T, other *modelStore, ids []string) {
			for ids := range slices.Chunk(ids, 10) {
				_, err := other.read(t.Context(), ids)
				require.NoError(t, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				s, other := newServer(t, m, "member"), m.store("other")
				for i := range 350 {
					s.more = append(s.more, fmt.Sprint("tool-", i))
				}
				other.delay = func() time.Duration { return time.Millisecond }
				s.start(nil)
				defer leaveAll(t, []*server{s})
				var ids []string
				for _, tool := range s.more {
					require.NoError(t, s.fleet.Isolate(t.Context(), tool, "maintenance"))
					ids = append(ids, "listed/"+tool)
					time.Sleep(time.Millisecond)
				}
				m.mu.Lock()
				m.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
				m.mu.Unlock()

				if name == "changed, and prolonged before" {
					s.fleet.engine.subscribed()
					time.Sleep(2 * time.Second)
				}
				hear := s.store.deafen()
				var once sync.Once
				s.store.faults.Store("list", fault{before: func(context.Context) error {
					once.Do(func() { move(t, other, ids[150:]) })
					return nil
				}})
				s.fleet.engine.subscribed()
				for range 3000 {
					time.Sleep(time.Millisecond)
					for _, tool := range s.more {
						require.Equal(t, resilience.StateIsolated, s.stateOf(tool), tool)
					}
				}
				hear()
			})
		})
	}
}

// An isolation holds until Reset, also if nothing happens for longer than the store remembers what nobody mentions.
func TestIsolationLastsLongerThanADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 2, nil)
		require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
		_, err := all[0].store.isolate(t.Context(), "listed/another", "a tool that these members don't have")
		require.NoError(t, err)
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
		hear := all[1].store.deafen()
		require.NoError(t, all[0].call())
		require.NotEqual(t, resilience.StateClosed, all[1].state())
		hear()
		all[1].fleet.engine.subscribed()
		synctest.Wait()
		require.Equal(t, resilience.StateClosed, all[1].state())
		require.Empty(t, all[1].fleet.engine.breakers)
	})
}

// A store may fail while it is told what it has forgotten. It is told the rest later, and nothing twice.
func TestStoreFailsWhileItIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		s := newServer(t, m, "alone")
		for i := range maxBatch * 3 / 2 {
			s.more = append(s.more, fmt.Sprint("tool-", i))
		}
		s.start(nil)
		defer leaveAll(t, []*server{s})
		time.Sleep(absence) // then it is known to be alone
		for _, tool := range s.more {
			s.open(tool)
		}
		told := 0
		s.store.faults.Store("tell", fault{before: func(context.Context) error {
			if told++; told > 1 {
				return errLost
			}
			return nil
		}})
		m.flush()
		s.fleet.engine.subscribed()
		synctest.Wait()

		var open []string
		for _, tool := range s.more {
			if m.breaker("listed/"+tool).State == "open" {
				open = append(open, tool)
			}
		}
		require.Len(t, open, maxBatch)
		closed := resilience.FleetBreaker{ID: "listed/" + open[0]}
		_, err := m.store("other").tell(t.Context(), news{op: "recovered", breaker: closed})
		require.NoError(t, err)
		s.store.mend()
		time.Sleep(time.Second)
		for _, tool := range s.more {
			require.Equal(t, tool == open[0], m.breaker("listed/"+tool).State == "closed", tool)
		}
	})
}

func TestBreakerThatTheStoreHasNoRoomForStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		s := newServer(t, m, "alone")
		s.start(nil)
		defer leaveAll(t, []*server{s})
		time.Sleep(absence) // then it is known to be alone
		call := func() error {
			_, err := resilience.Do(t.Context(), s.guard, "search",
				func(context.Context) (int, error) { return 0, errBackend }, resilience.BreakerKey("key"))
			synctest.Wait()
			return err
		}
		for range 5 {
			require.ErrorIs(t, call(), errBackend)
		}
		require.Equal(t, "open", m.breaker("listed/search/key").State)

		m.flush()
		m.mu.Lock()
		for i := range maxBreakers {
			id := fmt.Sprint("listed/other/key-", i)
			m.breakers[id] = &modelBreaker{entry: entry{State: "isolated"}, expires: time.Now().Add(keep)}
		}
		m.mu.Unlock()
		time.Sleep(2 * time.Second)
		require.Equal(t, "closed", m.breaker("listed/search/key").State)
		require.ErrorIs(t, call(), resilience.CodeCircuitOpen)
	})
}

// A store that has gone back to what the member has seen, after the member has seen something newer, is told that.
func TestStoreGoesBackToWhatTheMemberHasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		s := newServer(t, m, "alone")
		s.more = []string{"a", "b"}
		s.start(nil)
		defer leaveAll(t, []*server{s})
		require.NoError(t, s.fleet.Isolate(t.Context(), "search", ""))
		time.Sleep(2 * time.Second)
		back := m.snapshot()
		hear := s.store.deafen()
		other := m.store("other")
		_, err := other.isolate(t.Context(), "listed/a", "")
		require.NoError(t, err)
		hear()
		_, err = other.isolate(t.Context(), "listed/b", "")
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, resilience.StateIsolated, s.stateOf("b"))
		back()
		time.Sleep(2 * time.Second)
		require.Equal(t, "isolated", m.breaker("listed/b").State)

		_, err = other.reset(t.Context(), "listed/search")
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Equal(t, resilience.StateClosed, s.state(), "it knows what the older memory has, too")
	})
}

// A reset isn't applied again when everything is read again.
func TestResetIsAppliedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(t, newModel(), 2, nil)
		defer leaveAll(t, all)
		require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
		synctest.Wait()
		all[1].cut.Store(true)
		all[1].store.refuse(errLost, "failure")
		for range 3 {
			time.Sleep(time.Second)
			require.Error(t, all[1].call())
			all[1].fleet.engine.subscribed()
			synctest.Wait()
		}
		require.Equal(t, 3, all[1].guard.Breaker("search").Failures())
	})
}

// What a member remembers of breakers doesn't grow for ever.
func TestMemoryOfAMemberIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		s := newServer(t, m, "alone")
		s.start(nil)
		defer leaveAll(t, []*server{s})
		require.NoError(t, s.fleet.Isolate(t.Context(), "search", ""))
		e := s.fleet.engine
		m.mu.Lock()
		m.version = 3 * maxBreakers
		m.mu.Unlock()
		for i := range 2 * maxBreakers {
			e.told(entry{ID: fmt.Sprint("unlisted/", i), State: "closed", Version: int64(i + 2), Since: "1"}, time.Now())
			if i == maxBreakers-2 || i == 2*maxBreakers-1 {
				e.subscribed()
				synctest.Wait()
				require.Equal(t, maxBreakers, len(e.versions))
				require.Equal(t, int64(1), e.versions["listed/search"].number, "it isn't closed")
			}
		}
	})
}
