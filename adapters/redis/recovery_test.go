package redisfleet

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What one member restores after Redis has lost its memory, or the newest part of it, doesn't shut a backend that another
// one has found to work in the meantime, whoever is back first: a member that hasn't called it since knows of the opening
// alone.
func TestOpeningThatIsOverIsNotRestored(t *testing.T) {
	for _, lost := range []string{"all", "the newest part", "nothing"} {
		for _, first := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s, member %d is back first", lost, first), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newModel()
					all := servers(t, m, 2, nil)
					defer leaveAll(t, all)
					down(t, all)
					time.Sleep(31 * time.Second)
					back := m.snapshot()
					require.Error(t, all[0].call()) // a probe
					time.Sleep(time.Second)

					setDown(all, true)
					all[0].broken.Store(false)
					time.Sleep(40 * time.Second)
					for range 10 {
						require.NoError(t, all[0].call())
						time.Sleep(time.Minute)
					}
					switch lost {
					case "all":
						m.flush()
					case "the newest part":
						back()
					}
					for _, i := range []int{first, 1 - first} {
						all[i].store.down.Store(false)
						time.Sleep(2 * time.Second)
					}
					assert.Equal(t, resilience.StateClosed, all[0].state())
					assert.NoError(t, all[1].call())
				})
			})
		}
	}
}

// Nor does it if a Probe has found that out, which doesn't ask again so soon, and the other member's hasn't asked yet.
func TestOpeningThatAProbeHasEndedIsNotRestored(t *testing.T) {
	for _, first := range []int{0, 1} {
		t.Run(fmt.Sprintf("member %d is back first", first), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				var all []*server
				for i, interval := range []time.Duration{5 * time.Second, 20 * time.Second} {
					s := newServer(t, m, fmt.Sprint("member-", i))
					if i > 0 {
						s.broken, s.asked = all[0].broken, all[0].asked
					}
					s.start(probing(s, interval))
					all = append(all, s)
				}
				defer leaveAll(t, all)
				down(t, all)
				setDown(all, true)
				time.Sleep(time.Second)
				all[0].broken.Store(false)
				time.Sleep(5 * time.Second)
				require.NoError(t, all[0].call())
				m.flush()
				for _, i := range []int{first, 1 - first} {
					all[i].store.down.Store(false)
					time.Sleep(time.Second)
				}
				assert.NoError(t, all[0].call())
				assert.NoError(t, all[1].call())
			})
		})
	}
}

// probing gives a server a Probe of its backend.
func probing(s *server, interval time.Duration) func(*resilience.BreakerConfig) {
	return func(c *resilience.BreakerConfig) {
		c.ProbeInterval = interval
		c.Probe = func(context.Context) error {
			if s.broken.Load() {
				return errBackend
			}
			return nil
		}
	}
}

// A Probe that has failed since, at another member, counts against that, though the breaker was open all the time.
func TestProbeThatHasFailedSinceARecovery(t *testing.T) {
	for _, first := range []int{0, 1} {
		t.Run(fmt.Sprintf("member %d is back first", first), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				all := []*server{newServer(t, m, "member-0"), newServer(t, m, "member-1")}
				for _, s := range all {
					s.start(probing(s, 5*time.Second))
					s.broken.Store(true)
				}
				defer leaveAll(t, all)
				time.Sleep(5 * time.Second)
				for i := range 5 {
					require.Error(t, all[i%2].call())
				}
				setDown(all, true)
				all[0].broken.Store(false)
				time.Sleep(8 * time.Second)
				require.Equal(t, resilience.StateClosed, all[0].state())
				time.Sleep(80 * time.Second)
				m.flush()
				for _, i := range []int{first, 1 - first} {
					all[i].store.down.Store(false)
					time.Sleep(2 * time.Second)
				}
				assert.Equal(t, resilience.StateOpen, all[1].state())
			})
		})
	}
}

// A story of three members, of which the first is called most, and the order in which they are back from an outage of Redis.
type outage struct {
	happens func(t *testing.T, m *model, all []*server)
	orders  [][]int
	of      int              // the member
	want    resilience.State // its own, then
}

// What one member tells of a probe that has succeeded is weighed by when that was, and changes nothing else that the
// others are to learn.
func TestRecoveryAmongOtherNews(t *testing.T) {
	back, forth := []int{0, 1, 2}, []int{1, 2, 0}
	for name, o := range map[string]outage{
		"failures of others before it": {orders: [][]int{back, forth}, happens: func(t *testing.T, _ *model, all []*server) {
			setDown(all, true)
			all[0].open("search")
			time.Sleep(20 * time.Second)
			all[1].open("search")
			all[2].open("search")
			time.Sleep(11 * time.Second)
			require.NoError(t, all[0].call())
		}},
		"told before the memory is lost": {orders: [][]int{back, forth}, happens: func(t *testing.T, m *model, all []*server) {
			down(t, all)
			recoverAlone(t, all)
			m.flush()
		}},
		"told before it goes back": {orders: [][]int{back, forth}, happens: func(t *testing.T, m *model, all []*server) {
			all[0].open("search")
			time.Sleep(31 * time.Second)
			require.NoError(t, all[0].call())
			older := m.snapshot()
			down(t, all)
			recoverAlone(t, all)
			older()
		}},
		"followed by a stray failure": {orders: [][]int{back, {2, 0, 1}}, happens: func(t *testing.T, m *model, all []*server) {
			down(t, all)
			setDown(all[2:], true)
			time.Sleep(31 * time.Second)
			all[0].broken.Store(false)
			require.NoError(t, all[0].call())
			time.Sleep(time.Second)
			all[1].cut.Store(true)
			require.Error(t, all[1].call())
			all[1].cut.Store(false)
			time.Sleep(time.Second)
			setDown(all, true)
			m.flush()
		}},
		"after a reset, before both of which it goes back": {orders: [][]int{back, forth}, happens: func(t *testing.T, m *model, all []*server) {
			require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving"))
			time.Sleep(time.Second)
			older := m.snapshot()
			require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
			time.Sleep(time.Second)
			down(t, all)
			time.Sleep(31 * time.Second)
			all[0].broken.Store(false)
			require.NoError(t, all[0].call())
			time.Sleep(time.Second)
			setDown(all, true)
			older()
		}},
		"alone, after a reset, before which it goes back": {orders: [][]int{back, forth}, happens: func(t *testing.T, m *model, all []*server) {
			require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving"))
			time.Sleep(time.Second)
			older := m.snapshot()
			require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
			time.Sleep(time.Second)
			down(t, all)
			setDown(all, true)
			time.Sleep(31 * time.Second)
			all[0].broken.Store(false)
			for _, s := range all {
				require.NoError(t, s.call())
			}
			time.Sleep(2 * time.Minute)
			older()
		}},
		"before a reset": {orders: [][]int{{1, 2}, {2, 1}}, of: 2, happens: func(t *testing.T, _ *model, all []*server) {
			setDown(all[1:], true)
			all[1].open("search")
			time.Sleep(31 * time.Second)
			require.NoError(t, all[1].call())
			all[2].guard.Breaker("search").Isolate("by this member's operator")
			time.Sleep(time.Second)
			require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
		}},
		"none after an isolation that was reset here": {orders: [][]int{back, {2, 1, 0}}, of: 2, want: resilience.StateOpen, happens: func(t *testing.T, m *model, all []*server) {
			require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving"))
			time.Sleep(time.Second)
			all[2].guard.Breaker("search").Reset()
			time.Sleep(time.Second)
			all[2].open("search")
			setDown(all, true)
			m.flush()
		}},
		"none, and a wait of long ago": {orders: [][]int{back}, of: 2, want: resilience.StateHalfOpen, happens: func(t *testing.T, m *model, all []*server) {
			down(t, all)
			all[0].guard.Breaker("search").Trip(time.Hour)
			setDown(all, true)
			time.Sleep(5 * time.Minute)
			m.flush()
		}},
	} {
		for _, order := range o.orders {
			t.Run(fmt.Sprint(name, ", back ", order), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testOutage(t, o, order) })
			})
		}
	}
}

// recoverAlone closes the breaker while the other members can't reach the store, which all lose then.
func recoverAlone(t *testing.T, all []*server) {
	time.Sleep(29 * time.Second)
	setDown(all[1:], true)
	time.Sleep(3 * time.Second)
	all[0].broken.Store(false)
	require.NoError(t, all[0].call())
	time.Sleep(3 * time.Second)
	setDown(all, true)
}

func testOutage(t *testing.T, o outage, order []int) {
	m := newModel()
	all := servers(t, m, 3, nil)
	defer leaveAll(t, all)
	time.Sleep(5 * time.Second)
	o.happens(t, m, all)
	time.Sleep(time.Second)
	for _, i := range order {
		all[i].store.down.Store(false)
		time.Sleep(2 * time.Second)
	}
	assert.Equal(t, o.want, all[o.of].state())
}

// The last failure of an opening is as old as the store says, whenever the member has heard of it, unless that knows of a
// later one.
func TestLastFailureOfAnOpening(t *testing.T) {
	came := time.Now()
	for _, c := range []struct {
		entry   entry
		breaker resilience.FleetBreaker
		want    time.Duration // after it has come
	}{
		{entry{Failed: 10_000}, resilience.FleetBreaker{}, -10 * time.Second},
		{entry{Failed: 10_000, Wait: 60_000}, resilience.FleetBreaker{}, -10 * time.Second},
		{entry{Failed: 10_000, read: came.Add(-2 * time.Second)}, resilience.FleetBreaker{}, -12 * time.Second},
		{entry{Failed: -1}, resilience.FleetBreaker{}, 0},
		{entry{failed: came.Add(time.Second)}, resilience.FleetBreaker{}, time.Second},
		{entry{}, resilience.FleetBreaker{State: resilience.StateOpen, Changed: came.Add(time.Second)}, time.Second},
		{entry{Failed: 30_000}, resilience.FleetBreaker{State: resilience.StateHalfOpen, Changed: came.Add(time.Second)}, -30 * time.Second},
		{
			entry{Failed: 30_000}, resilience.FleetBreaker{State: resilience.StateOpen, Changed: came.Add(time.Second), Cause: resilience.CauseManual},
			-30 * time.Second,
		},
	} {
		c.entry.came = came
		assert.Equal(t, c.want, c.entry.lastFailure(c.breaker).Sub(came), "%+v", c)
	}
}

// Probes that fail may put calls off since the opening, or since a call has failed as the probe.
func TestSinceWhenProbesPutCallsOff(t *testing.T) {
	came := time.Now()
	later := came.Add(time.Second)
	for _, c := range []struct {
		entry   entry
		breaker resilience.FleetBreaker
		want    time.Duration // after it has come
	}{
		{entry{Opened: 10_000}, resilience.FleetBreaker{}, -10 * time.Second},
		{entry{Opened: 10_000, read: came.Add(-2 * time.Second)}, resilience.FleetBreaker{}, -12 * time.Second},
		{entry{Opened: -1}, resilience.FleetBreaker{}, 0},
		{entry{Opened: 10_000}, resilience.FleetBreaker{State: resilience.StateOpen, Changed: later}, time.Second},
		{entry{Opened: 10_000}, resilience.FleetBreaker{State: resilience.StateOpen, Changed: came.Add(-time.Second)}, -10 * time.Second},
		{entry{Opened: 10_000}, resilience.FleetBreaker{State: resilience.StateHalfOpen, Changed: later}, -10 * time.Second},
		{
			entry{Opened: 10_000}, resilience.FleetBreaker{State: resilience.StateOpen, Changed: later, Cause: resilience.CauseProbe},
			-10 * time.Second,
		},
	} {
		c.entry.came = came
		assert.Equal(t, c.want, c.entry.openSince(c.breaker).Sub(came), "%+v", c)
	}
}

// What is over leaves room for what isn't, however many names agents make up.
func TestRecoveriesLeaveRoom(t *testing.T) {
	_, _, all := stores(t, 1)
	for i := range maxBreakers {
		b := resilience.FleetBreaker{ID: fmt.Sprint("unlisted/", i)}
		_, err := all[0].tell(t.Context(), news{op: "recovered", breaker: b})
		require.NoError(t, err)
	}
	_, err := all[0].isolate(t.Context(), "listed/search/key", "moving")
	assert.NoError(t, err)
}

// Two members that list the same breakers, and prolong them page by page, each find all of them.
func TestListingsOfTwoMembersMissNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		s, other := newServer(t, m, "member"), m.store("other")
		s.start(nil)
		defer leaveAll(t, []*server{s})
		time.Sleep(2 * time.Second)
		hear := s.store.deafen()
		s.store.down.Store(true)
		var ids []string
		for i := range 900 {
			id := fmt.Sprintf("listed/search/tenant-%04d", i)
			_, err := other.isolate(t.Context(), id, "moved")
			require.NoError(t, err)
			ids = append(ids, id)
			time.Sleep(time.Millisecond)
		}
		m.mu.Lock()
		m.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
		m.mu.Unlock()

		pages := slices.Collect(slices.Chunk(ids, 100))
		s.store.faults.Store("list", fault{before: func(ctx context.Context) error {
			if len(pages) < 2 {
				return nil
			}
			time.Sleep(time.Millisecond)
			_, err := other.read(context.WithoutCancel(ctx), pages[1]) // the other one is a page ahead
			pages = pages[2:]
			return err
		}})
		hear()
		s.store.down.Store(false)
		time.Sleep(5 * time.Second)
		assert.Len(t, s.fleet.engine.heardOf(), len(ids))
	})
}
