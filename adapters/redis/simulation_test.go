package redisfleet

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	simulated = flag.Int("fleet.members", members, "how many members TestSimulation has")
	seed      = flag.Uint64("fleet.seed", 1, "of TestSimulation's delays, losses and calls")
)

// A simulation is a large fleet over a bad network: a command or a message takes up to 40ms each way, one in a
// hundred is lost, and the server's clock is five hours behind. Each member makes a call about every ten seconds.
type simulation struct {
	t       *testing.T
	store   *model
	servers []*server
	broken  atomic.Bool
	asked   atomic.Int64
	failed  atomic.Int64 // calls that have failed, and those that took time
	delayed atomic.Int64

	callers sync.WaitGroup
	over    atomic.Bool
}

const (
	maxDelay = 40 * time.Millisecond
	lossRate = 0.01
	pace     = 10 * time.Second // between two calls of a member, on average

	// settled is after what time all members have heard of a change: a command, its message and a heartbeat,
	// because the message may have been lost, three of which may be, too.
	settled = 5 * time.Second
)

func newSimulation(t *testing.T, n int) *simulation {
	s := &simulation{t: t, store: newModel()}
	s.store.now = func() time.Time { return time.Now().Add(-5 * time.Hour) }
	source := rand.New(rand.NewPCG(*seed, 0))
	var joining sync.WaitGroup
	for i := range n {
		random := &lockedRand{random: rand.New(rand.NewPCG(source.Uint64(), 0))}
		m := &server{t: t, store: s.store.store(fmt.Sprint("member-", i)), broken: &s.broken, asked: &s.asked}
		m.store.delay = func() time.Duration { return time.Duration(random.float() * float64(maxDelay)) }
		m.store.lost = func() bool { return random.float() < lossRate }
		m.guard = resilience.Must(resilience.New(resilience.Config{
			Retry: resilience.Retry{MaxRetries: -1}, Tools: map[string]resilience.Tool{"search": {}},
			Log: slog.New(slog.DiscardHandler),
		}))
		joining.Go(func() {
			var err error
			m.fleet, err = join(t.Context(), m.store, m.store.me, m.guard, Config{Namespace: "test"})
			assert.NoError(t, err)
		})
		s.servers = append(s.servers, m)

		s.callers.Go(func() {
			joining.Wait()
			for !s.over.Load() {
				time.Sleep(time.Duration(random.float() * 2 * float64(pace)))
				s.call(m)
			}
		})
	}
	joining.Wait()
	return s
}

// A lockedRand is shared by the goroutines of a member.
type lockedRand struct {
	mu     sync.Mutex
	random *rand.Rand
}

func (r *lockedRand) float() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.random.Float64()
}

func (s *simulation) call(m *server) {
	start := time.Now()
	_, err := resilience.Do(context.Background(), m.guard, "search", func(context.Context) (int, error) {
		if m.cut.Load() {
			return 0, errBackend
		}
		s.asked.Add(1)
		if s.broken.Load() {
			return 0, errBackend
		}
		return 0, nil
	})
	if m.cut.Load() {
		return
	}
	if err != nil {
		s.failed.Add(1)
	}
	if time.Since(start) > 0 {
		s.delayed.Add(1)
	}
}

// in returns how many members are in a state.
func (s *simulation) in(state resilience.State) (n int) {
	for _, m := range s.servers {
		if m.state() == state {
			n++
		}
	}
	return n
}

// until waits until f reports true, and returns how long that took, in steps of 50ms.
func (s *simulation) until(f func() bool) time.Duration {
	start := time.Now()
	for !f() {
		require.Less(s.t, time.Since(start), 5*time.Minute)
		time.Sleep(50 * time.Millisecond)
	}
	return time.Since(start)
}

func TestSimulation(t *testing.T) {
	t.Parallel() // it takes long
	synctest.Test(t, func(t *testing.T) {
		n := *simulated
		if testing.Short() { // as for each mutant
			n = min(n, 50)
		}
		s := newSimulation(t, n)
		perSecond := float64(n) / pace.Seconds()

		// Healthy: nothing fails or waits, and a member that can't reach the backend opens alone.
		s.servers[0].cut.Store(true)
		time.Sleep(90 * time.Second)
		require.Zero(t, s.failed.Load())
		require.Zero(t, s.delayed.Load())
		require.LessOrEqual(t, n-s.in(resilience.StateClosed), 1)
		s.servers[0].cut.Store(false)

		// The backend dies: failures add up.
		before := s.asked.Load()
		s.broken.Store(true)
		opened := s.until(func() bool { return s.in(resilience.StateClosed) == 0 })
		calls := s.asked.Load() - before
		t.Logf("%d members: all open after %v and %d calls", n, opened, calls)
		require.LessOrEqual(t, opened, 5*pace/time.Duration(n)*10+settled)
		require.LessOrEqual(t, float64(calls), 5+perSecond*settled.Seconds()/2)

		// One probe in a cooldown, but for those whose lease was lost.
		before = s.asked.Load()
		time.Sleep(5 * time.Minute)
		probes := s.asked.Load() - before
		t.Logf("%d probes in ten cooldowns", probes)
		require.InDelta(t, 10, probes, 4)

		// The backend is back.
		s.broken.Store(false)
		s.until(func() bool { return s.in(resilience.StateClosed) > 0 })
		closed := s.until(func() bool { return s.in(resilience.StateClosed) == n })
		t.Logf("all closed %v after the first", closed)
		require.LessOrEqual(t, closed, settled)

		// The store is down: nothing fails or waits. Then all agree.
		time.Sleep(time.Second) // a call may still wait for its lease
		s.failed.Store(0)
		s.delayed.Store(0)
		setDown(s.servers, true)
		time.Sleep(30 * time.Second)
		require.Zero(t, s.failed.Load())
		require.Zero(t, s.delayed.Load())
		s.broken.Store(true)
		s.until(func() bool { return s.in(resilience.StateOpen) >= 2 })
		setDown(s.servers, false)
		agreed := s.until(func() bool { return s.in(resilience.StateClosed) == 0 })
		t.Logf("all agree %v after the store is back", agreed)
		require.LessOrEqual(t, agreed, settled)

		s.over.Store(true)
		s.callers.Wait()
		var leaving sync.WaitGroup
		for _, m := range s.servers {
			leaving.Go(func() { _ = m.fleet.Leave(t.Context()) })
		}
		leaving.Wait()
	})
}
