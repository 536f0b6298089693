package redisfleet

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// An operator may restore an older backup first, and then a newer one, which has an isolation that was reset since. All
// members were there all the time, and know that.
func TestOlderBackupThenANewerOne(t *testing.T) {
	for name, between := range map[string]func(*testing.T, []*server){
		"nothing between": func(*testing.T, []*server) {},
		"another opening": func(t *testing.T, all []*server) {
			all[0].open("search")
			all[0].guard.Breaker("search").Reset()
			require.NoError(t, all[0].call())
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				all := servers(t, m, 3, nil)
				defer leaveAll(t, all)
				time.Sleep(absence)
				all[0].fail() // so that the memory has a version
				require.NoError(t, all[0].call())

				older := m.snapshot()
				require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
				time.Sleep(time.Minute)
				newer := m.snapshot()
				require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
				time.Sleep(10 * time.Minute)

				failOver(all, older)
				time.Sleep(10 * time.Minute)
				requireAll(t, all, resilience.StateClosed)
				between(t, all)
				time.Sleep(time.Minute)

				failOver(all, newer)
				time.Sleep(10 * time.Second)
				requireAll(t, all, resilience.StateClosed)
				require.Equal(t, "closed", m.breaker("listed/search").State)
			})
		})
	}
}

// A server may load the same backup again and again. What a newcomer does before the others have noticed, who know what was
// lost, stands: the newcomer knows that the memory isn't the newest.
func TestNewcomerIsolatesAfterTheSameBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 2, nil)
		defer func() { leaveAll(t, all) }()
		time.Sleep(absence)
		require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
		time.Sleep(time.Minute)
		back := m.snapshot()
		require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
		time.Sleep(3 * time.Second)
		failOver(all, back)
		time.Sleep(3 * time.Second)
		newcomer := newServer(t, m, "newcomer")
		newcomer.start(nil)
		all = append(all, newcomer)
		time.Sleep(10 * time.Second)

		back()
		require.NoError(t, newcomer.fleet.Isolate(t.Context(), "search", "moving house"))
		time.Sleep(3 * time.Second)
		require.Equal(t, "isolated", m.breaker("listed/search").State)
		requireAll(t, all, resilience.StateIsolated)
	})
}

// Members that know one memory after another begin one new memory between them, rather than one each.
func TestOneMemoryForAllWhoNoticeALoss(t *testing.T) {
	for name, lose := range map[string]func(*model) func(){
		"an older memory": func(m *model) func() { return m.snapshot() },
		"no memory":       func(m *model) func() { return m.flush },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				all := servers(t, m, 5, nil)
				defer leaveAll(t, all)
				time.Sleep(absence)
				lost := lose(m)
				require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
				time.Sleep(time.Minute)
				before, _ := m.memory()
				failOver(all, lost)
				time.Sleep(10 * time.Second)
				after, _ := m.memory()
				require.Equal(t, before+1, after)
				requireAll(t, all, resilience.StateIsolated)
			})
		})
	}
}

// A member's Reset, and another one, end only an isolation of which it has heard.
func TestResetOfAMemberThatIsAway(t *testing.T) {
	for name, resets := range map[string][2]bool{"none": {}, "one before": {true, false}, "one after": {false, true}, "both": {true, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := servers(t, newModel(), 2, nil)
				defer leaveAll(t, all)
				time.Sleep(absence)
				reset := func(now bool) {
					if now {
						all[1].guard.Breaker("search").Reset()
					}
					time.Sleep(3 * time.Second)
				}
				require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
				time.Sleep(3 * time.Second)
				setDown(all[1:], true)
				reset(resets[0])
				require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
				time.Sleep(3 * time.Second)
				require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving again"))
				time.Sleep(3 * time.Second)
				reset(resets[1])
				setDown(all[1:], false)
				time.Sleep(3 * time.Second)
				requireAll(t, all, resilience.StateIsolated)
			})
		})
	}
}

// What the operator of one member has reset stays so, though another one tells a store that has lost its memory of the
// isolation by a later time, since it has heard of that late.
func TestResetOfOneMemberAfterALateMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		var delay atomic.Int64
		late, operated := newServer(t, m, "late"), newServer(t, m, "operated")
		late.store.delay = func() time.Duration { return time.Duration(delay.Load()) }
		all := []*server{late, operated}
		for _, s := range all {
			s.start(nil)
		}
		defer leaveAll(t, all)
		time.Sleep(absence)
		delay.Store(int64(2 * time.Second))
		_, err := m.store("operator").isolate(t.Context(), "listed/search", "moving house")
		require.NoError(t, err)
		synctest.Wait()
		late.store.down.Store(true) // its commands are as late
		delay.Store(0)
		time.Sleep(2*time.Second + time.Millisecond)
		late.store.down.Store(false)
		time.Sleep(5 * time.Minute)
		requireAll(t, all, resilience.StateIsolated)
		operated.guard.Breaker("search").Reset()
		time.Sleep(5 * time.Minute)

		setDown(all[1:], true)
		m.flush()
		time.Sleep(1500 * time.Millisecond)
		setDown(all[1:], false)
		time.Sleep(3 * time.Second)
		require.Equal(t, "isolated", m.breaker("listed/search").State)
		require.Equal(t, resilience.StateClosed, operated.state())
	})
}

// An isolation is restored though the older memory remembers a Reset before it.
func TestIsolationAfterAResetIsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		s := m.store("member")
		_, err := s.reset(t.Context(), "listed/search")
		require.NoError(t, err)
		restore := func(at time.Time) string {
			n := news{op: "restore", breaker: resilience.FleetBreaker{ID: "listed/search", State: resilience.StateIsolated}, at: at}
			all, err := s.tell(t.Context(), n)
			require.NoError(t, err)
			return all[0].State
		}
		at := time.Now()
		time.Sleep(10 * time.Second)
		require.Equal(t, "closed", restore(at.Add(-time.Second)))
		require.Equal(t, "isolated", restore(at.Add(time.Second)))
	})
}
