package redisfleet

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// recoverUntold opens the breaker of all, and lets the probe of the first one succeed after some time, of which Redis isn't
// told.
func recoverUntold(t *testing.T, all []*server, after time.Duration) {
	down(t, all)
	time.Sleep(after)
	all[0].broken.Store(false)
	all[0].store.refuse(errLost, "tell", "sync")
	all[0].untilServed(time.Minute)
}

// callUntil calls a server, whose backend hangs until the caller leaves.
func callUntil(ctx context.Context, s *server) {
	_, _ = resilience.Do(ctx, s.guard, "search", func(ctx context.Context) (string, error) { return "", untilDone(ctx) })
}

// What a member has found out while Redis didn't execute its commands is told afterwards, also if it has heard meanwhile
// that another member asks the backend, which tells nothing.
func TestRecoveryIsToldAfterAnotherMemberHasAsked(t *testing.T) {
	for name, probe := range map[string]func(context.Context) error{
		"by its Probe": func(context.Context) error { return resilience.MarkNeutral(errBackend) },
		"by a call":    nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := servers(t, newModel(), 2, func(c *resilience.BreakerConfig) { c.Probe = probe })
				defer leaveAll(t, all)
				time.Sleep(2 * absence)
				recoverUntold(t, all, 31*time.Second)
				if probe == nil {
					time.Sleep(leaseTerm + time.Second)
					ctx, leave := context.WithCancel(context.Background())
					defer time.Sleep(time.Second)
					defer leave()
					go callUntil(ctx, all[1])
				}
				time.Sleep(6 * time.Second)
				require.Equal(t, resilience.StateClosed, all[0].state())
				all[0].store.mend()
				time.Sleep(3 * time.Second)
				require.NoError(t, all[0].call())
				require.Equal(t, resilience.StateClosed, all[0].state())
			})
		})
	}
}

// Whatever a member hears of a memory, it has seen, also if that is no news to it: a failover that loses it is noticed by
// each member, and a recovery told after that is heard by all.
func TestFailoverThatLosesWhatWasNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 3, func(c *resilience.BreakerConfig) {})
		defer leaveAll(t, all)
		time.Sleep(2 * absence)
		recoverUntold(t, all, 31*time.Second)
		time.Sleep(leaseTerm + time.Second)

		older := m.snapshot()
		ctx, leave := context.WithCancel(context.Background())
		go callUntil(ctx, all[1])
		time.Sleep(100 * time.Millisecond)
		_, version := m.memory()
		for _, s := range all {
			require.Equal(t, version, s.store.seen.Load().Version, s.store.me)
		}

		setDown(all, true)
		leave()
		time.Sleep(2 * time.Second)
		older()
		all[0].store.mend()
		for _, s := range all {
			s.store.down.Store(false)
			time.Sleep(2 * time.Second)
		}
		time.Sleep(5 * time.Second)
		requireAll(t, all, resilience.StateClosed)
	})
}

// Nor is it a failure: a memory that is lost then is restored with the last one that there was, so a recovery since is told.
func TestOpeningIsRestoredWithItsLastFailure(t *testing.T) {
	for name, happens := range map[string]func(*model, []*server){
		"another member asks": func(_ *model, all []*server) {
			go callWith(all[1], untilDone)
		},
		"one joins": func(m *model, all []*server) {
			s := newServer(all[0].t, m, "newcomer")
			s.broken, s.asked = all[1].broken, all[1].asked
			s.start(nil)
			all[2] = s // which is back first
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				all := servers(t, m, 3, func(c *resilience.BreakerConfig) { c.Cooldown = 10 * time.Second })
				third := all[2]
				defer time.Sleep(time.Minute)
				defer third.fleet.Leave(context.Background())
				defer leaveAll(t, all)
				time.Sleep(2 * absence)
				recoverUntold(t, all, 11*time.Second)
				time.Sleep(12 * time.Second)
				happens(m, all)
				time.Sleep(time.Second)

				setDown(append(all, third), true)
				time.Sleep(2 * time.Second)
				m.flush()
				all[2].store.down.Store(false)
				time.Sleep(time.Second)
				setDown(append(all, third), false)
				time.Sleep(2 * time.Second)
				all[0].store.mend()
				for range 100 {
					require.NoError(t, all[0].call())
					time.Sleep(100 * time.Millisecond)
				}
			})
		})
	}
}
