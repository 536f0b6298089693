package redisfleet

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

var errBackend = errors.New("503 Service Unavailable")

// A server is a member of a fleet in a test: a guard with one tool, "search".
type server struct {
	t     *testing.T
	guard *resilience.Guard
	fleet *Fleet
	store *modelStore

	broken *atomic.Bool  // its backend
	asked  *atomic.Int64 // how many requests that has received
}

// servers returns n members that share a backend.
func servers(t *testing.T, m *model, n int, change func(*resilience.BreakerConfig)) []*server {
	var all []*server
	broken, asked := new(atomic.Bool), new(atomic.Int64)
	for i := range n {
		s := &server{t: t, store: m.store(fmt.Sprint("member-", i)), broken: broken, asked: asked}
		s.start(change)
		all = append(all, s)
	}
	return all
}

// start makes the server's guard, and joins the fleet.
func (s *server) start(change func(*resilience.BreakerConfig)) {
	cfg := resilience.BreakerConfig{}
	if change != nil {
		change(&cfg)
	}
	var err error
	s.guard, err = resilience.New(resilience.Config{
		Breaker: cfg, Retry: resilience.Retry{MaxRetries: -1},
		Tools: map[string]resilience.Tool{"search": {Effect: resilience.ReadOnly}},
	})
	require.NoError(s.t, err)
	s.fleet, err = join(s.t.Context(), s.store, s.store.me, s.guard, Config{Namespace: "test"})
	require.NoError(s.t, err)
	synctest.Wait()
}

func (s *server) call() error {
	_, err := resilience.Do(context.Background(), s.guard, "search", func(context.Context) (string, error) {
		s.asked.Add(1)
		if s.broken.Load() {
			return "", errBackend
		}
		return "found", nil
	})
	synctest.Wait()
	return err
}

func (s *server) state() resilience.State { return s.guard.Breaker("search").State() }

func leaveAll(t *testing.T, all []*server) {
	for _, s := range all {
		require.NoError(t, s.fleet.Leave(context.Background()))
	}
}

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
