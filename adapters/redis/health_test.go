package redisfleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// reported returns what observers have received of the connection.
func (s *server) reported() (states []resilience.ConnectionState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.links {
		require.Equal(s.t, "fleet test", e.Connection)
		states = append(states, e.State)
	}
	return states
}

// logged returns how many times the log contains some words.
func (s *server) logged(words string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.log.String(), words)
}

func TestOutageIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, newModel(), "alone")
		joined := time.Now()
		s.start(nil)
		h := s.fleet.Health()
		require.Equal(t, Health{Namespace: "test", Connected: true, Since: joined, Members: 1}, h)
		time.Sleep(time.Minute)
		require.Equal(t, joined, s.fleet.Health().Since)
		require.Empty(t, s.reported())

		s.store.down.Store(true)
		cut := time.Now()
		time.Sleep(heartbeat + patience)
		lost := s.fleet.Health()
		require.False(t, lost.Connected)
		require.Error(t, lost.Error)
		require.WithinRange(t, lost.Since, cut, time.Now())
		time.Sleep(time.Minute)
		require.Equal(t, lost.Since, s.fleet.Health().Since)

		s.store.down.Store(false)
		back := time.Now()
		time.Sleep(patience + retry)
		h = s.fleet.Health()
		require.WithinRange(t, h.Since, back, time.Now())
		require.Equal(t, Health{Namespace: "test", Connected: true, Since: h.Since, Members: 1}, h)

		leaveAll(t, []*server{s})
		require.Equal(t, []resilience.ConnectionState{resilience.ConnectionDown, resilience.ConnectionUp}, s.reported())
	})
}

// A member that can send some commands only isn't connected.
func TestEachCommandOfASyncThatFailsIsAnOutage(t *testing.T) {
	refused := errors.New("READONLY")
	for op, need := range map[string]func(s *server){
		"sync": func(*server) {},
		"read": func(s *server) {
			require.NoError(s.t, s.fleet.Isolate(s.t.Context(), "search", ""))
			s.store.refuse(refused, "read")
			s.fleet.engine.subscribed()
		},
		"failure":   func(s *server) { s.store.refuse(refused, "failure"); s.open("search") },
		"recovered": func(s *server) { s.open("search"); s.store.refuse(refused, "recovered"); s.recover() },
		"restore":   func(s *server) { s.open("search"); s.store.flush() },
		"renew":     func(s *server) { s.probe("search", 20*time.Second) },
	} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, newModel(), "alone")
				s.quorum = 1
				s.start(nil)
				defer func() { require.NoError(t, s.fleet.Leave(context.Background())) }()

				need(s)
				s.store.refuse(refused, op)
				time.Sleep(2 * time.Second)
				for range 10 {
					time.Sleep(heartbeat / 4)
					require.False(t, s.fleet.Health().Connected)
					require.ErrorIs(t, s.fleet.Health().Error, refused)
				}
				require.Equal(t, []resilience.ConnectionState{resilience.ConnectionDown}, s.reported())

				s.store.mend()
				time.Sleep(time.Second)
				require.True(t, s.fleet.Health().Connected)
				require.NoError(t, s.fleet.Health().Error)
				if s.state() == resilience.StateOpen {
					require.Equal(t, "open", s.store.breaker("listed/search").State)
				}
				require.Len(t, s.reported(), 2)
				time.Sleep(time.Minute) // until calls have ended
			})
		})
	}
}

// recover waits until the server's breaker may be probed, and lets the probe succeed.
func (s *server) recover() {
	time.Sleep(30 * time.Second)
	require.NoError(s.t, s.call())
	require.Equal(s.t, resilience.StateClosed, s.state())
}

// probe opens a breaker, and starts a probe of it that takes some time.
func (s *server) probe(tool string, takes time.Duration) {
	s.open(tool)
	time.Sleep(30 * time.Second)
	s.begin(tool, takes)
}

// begin starts a call that takes some time.
func (s *server) begin(tool string, takes time.Duration) {
	go resilience.Do(context.Background(), s.guard, tool, func(context.Context) (string, error) {
		time.Sleep(takes)
		return "found", nil
	})
	synctest.Wait()
}

func TestDifferencesAreWarnedOfOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		usual, odd := newServer(t, m, "usual"), newServer(t, m, "odd")
		usual.more = []string{"a", "b", "c", "d", "own"}
		odd.more = []string{"a", "b", "c", "d"}
		usual.start(nil)
		odd.start(func(c *resilience.BreakerConfig) { c.Cooldown = time.Minute })
		defer leaveAll(t, []*server{usual, odd})

		const settings = ": 5 failures, a cooldown of 1m0s here, 5 failures, a cooldown of 30s elsewhere"
		want := []string{
			"listed/a" + settings, "listed/b" + settings, "listed/c" + settings, "listed/d" + settings,
			"listed/search" + settings,
		}
		h := odd.fleet.Health()
		require.Equal(t, want, h.Differences)
		h.Differences[0] = "the caller's own"
		require.Equal(t, want, odd.fleet.Health().Differences)

		time.Sleep(10 * comparison)
		for _, s := range []*server{usual, odd} {
			require.Len(t, s.fleet.Health().Differences, 5)
			require.Equal(t, 5, s.logged("configure a breaker differently"))
		}
	})
}

// How often a Probe asks is compared where there is one.
func TestDifferencesOfProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, works := newModel(), func(context.Context) error { return nil }
		var all []*server
		for i, interval := range []time.Duration{5 * time.Second, time.Minute} {
			s := newServer(t, m, fmt.Sprint("member-", i))
			s.start(func(c *resilience.BreakerConfig) { c.Probe, c.ProbeInterval = works, interval })
			all = append(all, s)
		}
		defer leaveAll(t, all)
		const settings = "5 failures, a cooldown of 30s, a Probe every "
		require.Equal(t, []string{"listed/search: " + settings + "1m0s here, " + settings + "5s elsewhere"},
			all[1].fleet.Health().Differences)
	})
}

// The breakers of keys are configured as that of their tool, and may be many.
func TestDifferencesAreNotOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		a, b := newServer(t, m, "a"), newServer(t, m, "b")
		a.more, b.more = []string{"fetch"}, []string{"fetch"}
		a.start(nil)
		b.start(func(c *resilience.BreakerConfig) { c.Failures = 7 })
		defer leaveAll(t, []*server{a, b})
		for i := range 1010 {
			for _, s := range []*server{a, b} {
				_, _ = resilience.Do(context.Background(), s.guard, "fetch",
					func(context.Context) (int, error) { return 0, nil }, resilience.BreakerKey(fmt.Sprint("host-", i)))
			}
		}
		time.Sleep(3 * time.Minute)
		differences := a.fleet.Health().Differences
		require.Len(t, differences, 2)
		require.Contains(t, differences[1], "listed/search:")
	})
}

// Agents make up the names of tools that aren't listed. The store keeps none of them, and they hide no difference.
func TestDifferencesAreNotOfNamesThatAgentsMakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		var all []*server
		for i := range 2 {
			s := newServer(t, m, fmt.Sprint("member-", i))
			s.prepare(func(c *resilience.BreakerConfig) { c.Failures = 5 + i })
			for n := range 1024 {
				require.NoError(t, s.callTool(fmt.Sprint("a-", n)))
			}
			s.join()
			all = append(all, s)
		}
		defer leaveAll(t, all)
		time.Sleep(2 * comparison)
		for _, s := range all {
			require.Len(t, s.fleet.Health().Differences, 1)
			require.Contains(t, s.fleet.Health().Differences[0], "listed/search:")
		}
		require.Len(t, m.configs, 2)
	})
}
