package servers_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
	redisfleet "github.com/seed8d1e2389/resilience/adapters/redis"
	"github.com/stretchr/testify/require"
)

var errBackend = errors.New("503 Service Unavailable")

// A backend is what the tools of all members call.
type backend struct {
	broken   atomic.Bool
	requests atomic.Int64
}

func (b *backend) ask(context.Context) (string, error) {
	b.requests.Add(1)
	if b.broken.Load() {
		return "", errBackend
	}
	return "found", nil
}

// A member is a guard with the tools "search", which calls the backend, and "healthy".
type member struct {
	t       testing.TB
	guard   *resilience.Guard
	fleet   *redisfleet.Fleet
	backend *backend
	log     *record

	mu    sync.Mutex
	links []resilience.ConnectionState
}

// A record is a log in memory.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

// count returns how many lines contain some words.
func (r *record) count(words string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.text.String(), words)
}

func newGuard(t testing.TB, cfg resilience.Config) *resilience.Guard {
	cfg.Retry.MaxRetries = -1
	cfg.Tools = map[string]resilience.Tool{
		"search": {Effect: resilience.ReadOnly}, "healthy": {Effect: resilience.ReadOnly},
	}
	guard, err := resilience.New(cfg)
	require.NoError(t, err)
	return guard
}

// newMember returns one that hasn't joined a fleet.
func newMember(t testing.TB, b *backend, breaker resilience.BreakerConfig) *member {
	m := &member{t: t, backend: b, log: new(record)}
	m.guard = newGuard(t, resilience.Config{
		Breaker: breaker, Log: slog.New(slog.NewTextHandler(m.log, nil)),
		Observers: []resilience.Observer{{Connection: func(e resilience.ConnectionChange) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.links = append(m.links, e.State)
		}}},
	})
	return m
}

// join makes the member one of a fleet, until the end of the test.
func (m *member) join(client redis.UniversalClient) *member {
	var err error
	m.fleet, err = redisfleet.Join(context.Background(), client, m.guard, redisfleet.Config{Namespace: "test"})
	require.NoError(m.t, err)
	m.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		_ = m.fleet.Leave(ctx)
	})
	return m
}

// joinAll returns n members with a client each that know each other.
func joinAll(
	t testing.TB, n int, b *backend, breaker resilience.BreakerConfig, client func() redis.UniversalClient,
) []*member {
	var all []*member
	for range n {
		all = append(all, newMember(t, b, breaker).join(client()))
	}
	eventually(t, "all members know of each other", func() bool {
		return !slices.ContainsFunc(all, func(m *member) bool { return m.fleet.Health().Members != n })
	})
	return all
}

// to returns what makes clients of a server.
func to(t testing.TB, addr string) func() redis.UniversalClient {
	return func() redis.UniversalClient { return newClient(t, addr) }
}

func (m *member) search() error {
	_, err := resilience.Do(context.Background(), m.guard, "search", m.backend.ask)
	return err
}

func (m *member) state() resilience.State { return m.guard.Breaker("search").State() }

// open lets the backend fail until the member's breaker is open.
func (m *member) open() {
	require.True(m.t, m.backend.broken.Load())
	for range 5 {
		_ = m.search()
	}
	require.Equal(m.t, resilience.StateOpen, m.state())
	require.ErrorIs(m.t, m.search(), resilience.CodeCircuitOpen)
}

// reported returns which changes of the connection with the fleet observers have received.
func (m *member) reported() []resilience.ConnectionState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.links)
}

// agree waits until the breakers of all members are in a state.
func agree(t testing.TB, all []*member, state resilience.State) time.Duration {
	t.Helper()
	return eventually(t, "all are "+state.String(), func() bool {
		return !slices.ContainsFunc(all, func(m *member) bool { return m.state() != state })
	})
}

// connected waits until the fleet of all members can or can't be reached.
func connected(t testing.TB, all []*member, want bool) time.Duration {
	t.Helper()
	return eventually(t, "Health notices", func() bool {
		return !slices.ContainsFunc(all, func(m *member) bool { return m.fleet.Health().Connected != want })
	})
}
