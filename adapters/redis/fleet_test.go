package redisfleet

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

func TestFailuresOfAllMembersAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(t, newModel(), 10, nil)
		defer leaveAll(t, all)
		all[0].broken.Store(true)

		for i := range 5 {
			require.ErrorIs(t, all[i].call(), errBackend)
		}
		for _, s := range all {
			require.Equal(t, resilience.StateOpen, s.state())
			require.ErrorIs(t, s.call(), resilience.CodeCircuitOpen)
		}
		require.EqualValues(t, 5, all[0].asked.Load())
	})
}

func TestSuccessAnywhereForgetsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(t, newModel(), 3, nil)
		defer leaveAll(t, all)

		for range 10 {
			all[0].broken.Store(true)
			require.Error(t, all[0].call())
			require.Error(t, all[1].call())
			all[0].broken.Store(false)
			require.NoError(t, all[2].call())
		}
		require.Error(t, func() error { all[0].broken.Store(true); return all[1].call() }())
		require.Equal(t, resilience.StateClosed, all[2].state())
	})
}

func TestOneProbeForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(t, newModel(), 10, nil)
		defer leaveAll(t, all)
		all[0].broken.Store(true)
		for i := range 5 {
			require.Error(t, all[i].call())
		}

		// Ten minutes of calls at every member: one probe in each cooldown of 30s.
		for range 600 {
			for _, s := range all {
				require.Error(t, s.call())
			}
			time.Sleep(time.Second)
		}
		probes := all[0].asked.Load() - 5
		require.InDelta(t, 600/30, probes, 2)

		all[0].broken.Store(false)
		for i := 0; all[0].asked.Load() == probes+5; i++ {
			_ = all[i%10].call()
			time.Sleep(100 * time.Millisecond)
		}
		for _, s := range all {
			require.Equal(t, resilience.StateClosed, s.state())
		}
	})
}

// down opens the breakers of all servers.
func down(t *testing.T, all []*server) {
	all[0].broken.Store(true)
	for i := range 5 {
		require.ErrorIs(t, all[i%len(all)].call(), errBackend)
	}
	for _, s := range all {
		require.Equal(t, resilience.StateOpen, s.state())
	}
}

func TestMemberWithABrokenNetworkPoisonsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(t, newModel(), 5, nil)
		defer leaveAll(t, all)
		all[0].cut.Store(true)

		for range 20 * 60 {
			for i, s := range all {
				if err := s.call(); i > 0 {
					require.NoError(t, err)
				}
			}
			time.Sleep(time.Second)
		}
		require.NotEqual(t, resilience.StateClosed, all[0].state(), "it is open alone")
	})
}

// A server that starts again is a new member, and counts as one all the same.
func TestServerThatStartsAgainIsNoQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		healthy := servers(t, m, 2, nil)
		defer leaveAll(t, healthy)
		for i := range 10 {
			s := newServer(t, m, fmt.Sprint("start-", i))
			s.start(nil)
			s.cut.Store(true)
			require.Error(t, s.call())
			if i%2 == 0 {
				require.NoError(t, s.fleet.Leave(t.Context()))
			} else { // as if it was killed
				s.store.down.Store(true)
				defer func() { require.NoError(t, s.fleet.Leave(t.Context())) }()
			}
			time.Sleep(2 * absence)
		}
		for _, s := range healthy {
			require.Equal(t, resilience.StateClosed, s.state())
		}
	})
}

// One that can't reach the backend must not fail the probe of all, time and again.
func TestProbeIsLeftToMembersWhoseProbeHasNotFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(t, newModel(), 3, nil)
		defer leaveAll(t, all)
		down(t, all)
		all[0].broken.Store(false)
		all[0].cut.Store(true)

		time.Sleep(30 * time.Second)
		require.ErrorIs(t, all[0].call(), errBackend, "it has the first probe")
		for elapsed := time.Duration(0); all[1].state() != resilience.StateClosed; elapsed += time.Second {
			require.LessOrEqual(t, elapsed, 31*time.Second)
			for _, s := range all {
				_ = s.call()
			}
			time.Sleep(time.Second)
		}
	})
}

func TestLoneMemberProbesInEachCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(t, newModel(), 1, nil)
		defer leaveAll(t, all)
		down(t, all)
		for range 600 {
			_ = all[0].call()
			time.Sleep(time.Second)
		}
		require.InDelta(t, 600/30, all[0].asked.Load()-5, 1)
	})
}

func TestLeaseOfAMemberThatHasDiedExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(t, newModel(), 2, nil)
		defer leaveAll(t, all)
		down(t, all)
		all[0].broken.Store(false)
		time.Sleep(30 * time.Second)

		b, _ := all[0].fleet.engine.member.Breaker("listed/search")
		granted, _ := all[0].fleet.engine.Lease(t.Context(), b, resilience.CauseCalls) // and then nothing is heard of it
		require.True(t, granted)
		synctest.Wait()
		require.ErrorIs(t, all[1].call(), resilience.CodeCircuitOpen)
		time.Sleep(leaseTerm)
		require.NoError(t, all[1].call())
		require.Equal(t, resilience.StateClosed, all[0].state())
	})
}

// A probe that takes long keeps its lease.
func TestLeaseOfAProbeThatTakesLongIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(t, newModel(), 2, nil)
		defer leaveAll(t, all)
		down(t, all)
		time.Sleep(30 * time.Second)

		ended := make(chan error)
		go func() {
			_, err := resilience.Do(context.Background(), all[0].guard, "search", func(context.Context) (string, error) {
				time.Sleep(20 * time.Second)
				return "found", nil
			})
			ended <- err
		}()
		for range 19 {
			time.Sleep(time.Second)
			require.ErrorIs(t, all[1].call(), resilience.CodeCircuitOpen)
		}
		require.NoError(t, <-ended)
		synctest.Wait()
		require.Equal(t, resilience.StateClosed, all[1].state())
	})
}

func TestNewcomerKnowsWhatIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 2, nil)
		down(t, all)
		time.Sleep(10 * time.Second)

		s := newServer(t, m, "newcomer")
		s.start(nil)
		all = append(all, s)
		defer leaveAll(t, all)
		require.Equal(t, resilience.StateOpen, s.state())
		require.Equal(t, 20*time.Second, s.guard.Breaker("search").RetryAfter())
		require.Equal(t, 3, s.fleet.Health().Members)
	})
}

func TestMembersThatDieOrLeaveAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 3, nil)
		defer leaveAll(t, all[:1])
		require.NoError(t, all[1].fleet.Leave(t.Context()))
		all[2].store.down.Store(true)
		time.Sleep(2 * absence)
		require.Equal(t, 1, all[0].fleet.Health().Members)

		all[0].open("search")
		require.Equal(t, "closed", m.breaker("listed/search").State, "the other may just be out of reach")
		time.Sleep(10 * time.Minute)
		all[0].guard.Breaker("search").Reset()
		all[0].cut.Store(true)
		require.ErrorIs(t, all[0].call(), errBackend, "it is the quorum now")
		require.Equal(t, "open", m.breaker("listed/search").State)
		all[2].store.down.Store(false)
		leaveAll(t, all[2:])
	})
}

// A member that can reach Redis, but neither the backend nor the others, opens its breaker alone.
func TestPartitionOpensNothingOnTheOtherSide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 3, nil)
		defer leaveAll(t, all)
		setDown(all[1:], true)
		time.Sleep(time.Minute)
		all[0].open("search")
		for range 5 {
			time.Sleep(time.Minute)
			all[0].cut.Store(true)
			require.Error(t, all[0].call(), "it is the probe")
		}
		setDown(all[1:], false)
		for range 10 {
			time.Sleep(time.Second)
			require.NoError(t, all[1].call())
			require.NoError(t, all[2].call())
		}
		all[0].cut.Store(false)
	})
}

func TestIsolateAndResetForTheWholeFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(t, newModel(), 3, nil)
		defer leaveAll(t, all)
		require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
		synctest.Wait()
		for _, s := range all {
			require.ErrorContains(t, s.call(), "moving house")
		}
		time.Sleep(time.Hour)
		require.ErrorContains(t, all[2].call(), "moving house")

		require.NoError(t, all[1].fleet.Reset(t.Context(), "search"))
		synctest.Wait()
		for _, s := range all {
			require.NoError(t, s.call())
		}

		err := all[0].fleet.Isolate(t.Context(), "serach", "")
		require.EqualError(t, err, `redisfleet: the breaker is "serach": it must be one of ["search"]`)
		all[0].store.down.Store(true)
		require.Error(t, all[0].fleet.Isolate(t.Context(), "search", ""))
		require.Equal(t, resilience.StateClosed, all[0].state())
		all[0].store.down.Store(false)
	})
}

func TestErrorOfAnUnknownBreakerNamesThoseThatThereAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, newModel(), "alone")
		s.more = []string{"zeta", "alpha", "omega", "beta", "gamma"}
		s.start(nil)
		defer leaveAll(t, []*server{s})
		require.NoError(t, s.callTool("delta")) // which isn't listed
		const want = `redisfleet: the breaker is "serach": ` +
			`it must be one of ["alpha" "beta" "gamma" "omega" "search" "zeta" "delta"]`
		require.EqualError(t, s.fleet.Isolate(t.Context(), "serach", ""), want)
		require.EqualError(t, s.fleet.Reset(t.Context(), "serach"), want)

		for i := range 100 {
			require.NoError(t, s.callKey(fmt.Sprint("customer-", 100+i)))
		}
		require.EqualError(t, s.fleet.Reset(t.Context(), "serach"), `redisfleet: the breaker is "serach": `+
			`it must be one of ["alpha" "beta" "gamma" "omega" "search" "zeta" `+
			`"search/customer-100" "search/customer-101" "search/customer-102" "search/customer-103"] and 97 more`)
	})
}
