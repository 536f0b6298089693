package servers_test

import (
	"slices"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// TestLostMemory lets Redis forget everything, or what it has learned last, while breakers are open. Members tell it
// again what they know, and what they learn afterwards isn't mistaken for what they knew.
func TestLostMemory(t *testing.T) {
	for name, lose := range map[string]func(s *server){
		"flushed":              func(s *server) { s.do("FLUSHALL") },
		"killed":               func(s *server) { s.kill(); s.start() },
		"back to a snapshot":   func(s *server) { s.kill(); s.start() },
		"asleep":               func(s *server) { s.do("DEBUG", "SLEEP", "2") },
		"forgotten the script": func(s *server) { s.do("SCRIPT", "FLUSH") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			b := new(backend)
			all := joinAll(t, 3, b, resilience.BreakerConfig{Cooldown: time.Hour}, to(t, s.addr))
			if name == "back to a snapshot" {
				s.do("SAVE")
			}
			b.broken.Store(true)
			all[0].open()
			all[1].open()
			agree(t, all, resilience.StateOpen)

			start := time.Now()
			lose(s)
			connected(t, all, true)
			newcomer := newMember(t, b, resilience.BreakerConfig{Cooldown: time.Hour}).join(newClient(t, s.addr))
			agree(t, []*member{newcomer}, resilience.StateOpen)
			t.Logf("a newcomer knew after %s", round(time.Since(start)))
			all = append(all, newcomer)
			agree(t, all, resilience.StateOpen)

			s.subscribers(4)
			b.broken.Store(false)
			eventually(t, "all are closed", func() bool { // a member that notices only now opens it again
				require.NoError(t, newcomer.fleet.Reset(t.Context(), "search"))
				return !slices.ContainsFunc(all, func(m *member) bool { return m.state() != resilience.StateClosed })
			})
			b.broken.Store(true)
			eventually(t, "all are open again", func() bool {
				_, _ = all[0].search(), all[1].search()
				return !slices.ContainsFunc(all, func(m *member) bool { return m.state() != resilience.StateOpen })
			})
		})
	}
}

// TestResetOutlivesCrashes lets Redis crash twice, and load the same snapshot both times: in it, a breaker is isolated
// that was reset since.
func TestResetOutlivesCrashes(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	all := joinAll(t, 3, new(backend), resilience.BreakerConfig{}, to(t, s.addr))
	require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
	agree(t, all, resilience.StateIsolated)
	s.do("SAVE")
	require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
	agree(t, all, resilience.StateClosed)

	for range 2 {
		s.kill()
		connected(t, all, false)
		s.start()
		connected(t, all, true)
		eventually(t, "a newcomer finds it closed", func() bool {
			newcomer := newMember(t, new(backend), resilience.BreakerConfig{}).join(newClient(t, s.addr))
			return newcomer.state() == resilience.StateClosed
		})
		agree(t, all, resilience.StateClosed)
	}
}
