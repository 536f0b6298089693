package redisfleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

var errBackend = errors.New("503 Service Unavailable")

// A server is a member of a fleet in a test: a guard with one tool, "search", and perhaps others.
type server struct {
	t      *testing.T
	guard  *resilience.Guard
	fleet  *Fleet
	store  *modelStore
	more   []string // names of other tools
	quorum int

	broken *atomic.Bool  // its backend
	cut    atomic.Bool   // its own network to the backend
	hangs  atomic.Bool   // its own network doesn't say so
	asked  *atomic.Int64 // how many requests the backend has received

	mu    sync.Mutex
	log   bytes.Buffer
	links []resilience.ConnectionChange // that observers have received
}

// newServer returns a server with a backend of its own, which isn't a member yet.
func newServer(t *testing.T, m *model, name string) *server {
	return &server{t: t, store: m.store(name), broken: new(atomic.Bool), asked: new(atomic.Int64)}
}

// servers returns n members that share a backend.
func servers(t *testing.T, m *model, n int, change func(*resilience.BreakerConfig)) []*server {
	var all []*server
	for i := range n {
		s := newServer(t, m, fmt.Sprint("member-", i))
		if i > 0 {
			s.broken, s.asked = all[0].broken, all[0].asked
		}
		s.start(change)
		all = append(all, s)
	}
	return all
}

// start makes the server's guard, and joins the fleet.
func (s *server) start(change func(*resilience.BreakerConfig)) {
	s.prepare(change)
	s.join()
}

// prepare makes the server's guard.
func (s *server) prepare(change func(*resilience.BreakerConfig)) {
	cfg := resilience.Config{
		Retry: resilience.Retry{MaxRetries: -1}, Tools: make(map[string]resilience.Tool),
		Log: slog.New(slog.NewTextHandler(s, nil)), Observers: []resilience.Observer{{Connection: s.linked}},
	}
	for _, tool := range append(s.more, "search") {
		cfg.Tools[tool] = resilience.Tool{Effect: resilience.ReadOnly}
	}
	if change != nil {
		change(&cfg.Breaker)
	}
	var err error
	s.guard, err = resilience.New(cfg)
	require.NoError(s.t, err)
}

func (s *server) join() {
	var err error
	s.fleet, err = join(s.t.Context(), s.store, s.store.me, s.guard, Config{Namespace: "test", Quorum: s.quorum})
	require.NoError(s.t, err)
	synctest.Wait()
}

// Write is the server's log.
func (s *server) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(p)
}

func (s *server) linked(e resilience.ConnectionChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links = append(s.links, e)
}

func (s *server) call() error { return s.callTool("search") }

func (s *server) callTool(tool string) error {
	_, err := resilience.Do(context.Background(), s.guard, tool, func(context.Context) (string, error) {
		if s.cut.Load() {
			return "", errBackend
		}
		s.asked.Add(1)
		if s.broken.Load() {
			return "", errBackend
		}
		return "found", nil
	})
	synctest.Wait()
	return err
}

// open opens a breaker by failures of this server alone.
func (s *server) open(tool string) {
	s.cut.Store(true)
	for range 5 {
		require.ErrorIs(s.t, s.callTool(tool), errBackend)
	}
	s.cut.Store(false)
	require.Equal(s.t, resilience.StateOpen, s.stateOf(tool))
}

func (s *server) state() resilience.State { return s.stateOf("search") }

func (s *server) stateOf(tool string) resilience.State { return s.guard.Breaker(tool).State() }

func leaveAll(t *testing.T, all []*server) {
	for _, s := range all {
		require.NoError(t, s.fleet.Leave(context.Background()))
	}
}

// setDown cuts all servers off from the store, or connects them again.
func setDown(all []*server, down bool) {
	for _, s := range all {
		s.store.down.Store(down)
	}
}

// failOver cuts all servers off from the store, which goes back meanwhile to an older memory.
func failOver(all []*server, back func()) {
	setDown(all, true)
	time.Sleep(2 * time.Second)
	back()
	setDown(all, false)
}

// requireAll requires that breaker search has one state for all.
func requireAll(t *testing.T, all []*server, want resilience.State) {
	t.Helper()
	for i, s := range all {
		require.Equal(t, want, s.state(), "member %d", i)
	}
}
