package redisfleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// A lateStore is one whose messages are heard after some time, or never if that is negative.
type lateStore struct {
	*modelStore
	after time.Duration
}

func (s lateStore) listen(ctx context.Context, l listener) {
	if s.after < 0 {
		<-ctx.Done()
		return
	}
	time.Sleep(s.after)
	s.modelStore.listen(ctx, l)
}

// Join waits for what the fleet knows and for its messages: for two seconds at most, and no longer than it has to.
func TestHowLongJoinWaits(t *testing.T) {
	refused := replyError("NOPERM no permissions")
	for name, c := range map[string]struct {
		prepare func(s *modelStore)
		after   time.Duration // until messages are heard
		want    time.Duration
		err     error
	}{
		"there is an answer": {},
		"it takes time": {
			prepare: func(s *modelStore) { s.slow.Store(true) },
			after:   200 * time.Millisecond, want: 1200 * time.Millisecond,
		},
		"messages are heard later": {after: 700 * time.Millisecond, want: 700 * time.Millisecond},
		"messages are never heard": {after: -1, want: 2 * time.Second},
		"there is no store":        {prepare: func(s *modelStore) { s.down.Store(true) }, want: 2 * time.Second},
		"an error that may end":    {prepare: func(s *modelStore) { s.refuse(errLost, "sync") }, want: 2 * time.Second},
		"it refuses the member":    {prepare: func(s *modelStore) { s.refuse(refused, "sync") }, after: -1, err: refused},
		"it refuses, and is heard": {prepare: func(s *modelStore) { s.refuse(refused, "sync") }, err: refused},
		"an error while it is heard": {
			prepare: func(s *modelStore) {
				time.AfterFunc(500*time.Millisecond, func() { s.refuse(errLost, "sync") })
			},
			after: time.Second, want: 2 * time.Second,
		},
		"it can't compare": {prepare: func(s *modelStore) { s.refuse(refused, "compare") }, err: refused},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, newModel(), "late")
				s.prepare(nil)
				if c.prepare != nil {
					c.prepare(s.store)
				}
				start := time.Now()
				f, err := join(t.Context(), lateStore{s.store, c.after}, s.store.me, s.guard, Config{Namespace: "test"})
				require.Equal(t, c.want, time.Since(start))
				require.ErrorIs(t, err, c.err)
				if err == nil {
					s.store.down.Store(false)
					require.NoError(t, f.Leave(t.Context()))
				}
			})
		})
	}
}

// What opens after a newcomer has asked, but before it hears messages, it knows too when Join returns.
func TestNewcomerKnowsWhatOpensWhileItJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 2, nil)
		s := newServer(t, m, "newcomer")
		s.prepare(nil)
		s.store.delay = func() time.Duration { return 10 * time.Millisecond }
		go func() {
			time.Sleep(1200 * time.Millisecond)
			down(t, all)
		}()
		start := time.Now()
		var err error
		s.fleet, err = join(t.Context(), lateStore{s.store, 1500 * time.Millisecond}, s.store.me, s.guard, Config{Namespace: "test"})
		require.NoError(t, err)
		require.Equal(t, resilience.StateOpen, s.state())
		require.InDelta(t, 1500*time.Millisecond, time.Since(start), float64(100*time.Millisecond))
		leaveAll(t, append(all, s))
	})
}

func TestJoinWaitsNoLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, newModel(), "alone")
		s.prepare(nil)
		s.store.down.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		start := time.Now()
		f, err := join(ctx, s.store, s.store.me, s.guard, Config{Namespace: "test"})
		require.NoError(t, err)
		require.Equal(t, 300*time.Millisecond, time.Since(start))
		require.NoError(t, f.Leave(t.Context()))
	})
}

// A guard whose breaker is open already tells the others so when it joins.
func TestFleetLearnsWhatAJoiningGuardKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		first, other := newServer(t, m, "first"), newServer(t, m, "other")
		first.quorum = 1
		first.prepare(nil)
		first.open("search")
		first.join()
		other.start(nil)
		defer leaveAll(t, []*server{first, other})
		require.Equal(t, resilience.StateOpen, other.state())
	})
}

// What the fleet isolated ends for a member that joins again as for any other, unless its operator isolated it too.
func TestJoiningAgain(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(s *server)
		reset     bool
		want      resilience.State
	}{
		"it is isolated still":       {want: resilience.StateIsolated},
		"it was reset":               {reset: true, want: resilience.StateClosed},
		"the store can't be reached": {meanwhile: func(s *server) { s.store.down.Store(true) }, reset: true, want: resilience.StateIsolated},
		"its operator has done so, too": {
			meanwhile: func(s *server) { s.guard.Breaker("search").Isolate("mine") }, reset: true, want: resilience.StateIsolated,
		},
		"its operator has reset it": {
			meanwhile: func(s *server) { s.guard.Breaker("search").Reset() }, want: resilience.StateClosed,
		},
		"its operator has reset it before another isolation": {
			meanwhile: func(s *server) {
				s.guard.Breaker("search").Reset()
				time.Sleep(time.Second)
				_, err := s.store.store("operator").isolate(s.t.Context(), "listed/search", "moving on")
				require.NoError(s.t, err)
			}, want: resilience.StateIsolated,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				s, other := newServer(t, m, "server"), newServer(t, m, "other")
				s.start(nil)
				other.start(nil)
				defer leaveAll(t, []*server{s, other})
				require.NoError(t, other.fleet.Isolate(t.Context(), "search", "moving house"))
				time.Sleep(time.Second)
				require.NoError(t, s.fleet.Leave(t.Context()))
				require.Equal(t, resilience.StateIsolated, s.state())

				if c.reset {
					require.NoError(t, other.fleet.Reset(t.Context(), "search"))
				}
				if c.meanwhile != nil {
					c.meanwhile(s)
				}
				time.Sleep(2 * time.Minute) // the reset is forgotten
				s.join()
				require.Equal(t, c.want, s.state())
				time.Sleep(2 * time.Minute)
				require.Equal(t, c.want, s.state())
				s.store.down.Store(false)
			})
		})
	}
}

// hangsNow lets the next command of an operation be lost, and returns when that is under way.
func (s *modelStore) hangsNow(op string) {
	began := make(chan struct{})
	s.faults.Store(op, fault{before: func(ctx context.Context) error {
		close(began)
		return hang(ctx)
	}})
	<-began
}

// Leave waits for the results so far and for its own command, and for no more than that.
func TestHowLongLeaveTakes(t *testing.T) {
	refused := errors.New("READONLY")
	for name, c := range map[string]struct {
		prepare  func(s *server)
		patience time.Duration // of its context
		want     time.Duration
		err      error
		leaves   int // how many commands say so
	}{
		"the store answers": {prepare: func(*server) {}, leaves: 1},
		"it refuses":        {prepare: func(s *server) { s.store.refuse(refused, "leave") }, err: refused},
		"it is away": {
			prepare: func(s *server) { s.store.refuse(refused, "sync", "leave"); time.Sleep(time.Second) },
		},
		"it is away, and back": {
			prepare: func(s *server) { s.store.refuse(refused, "sync"); time.Sleep(time.Second) }, leaves: 1,
		},
		"a sync is under way": {prepare: func(s *server) { s.store.hangsNow("sync") }, want: patience, leaves: 1},
		"a sync is under way for too long": {
			prepare:  func(s *server) { s.store.hangsNow("sync") },
			patience: 100 * time.Millisecond, want: 100 * time.Millisecond, err: context.DeadlineExceeded,
		},
		"a result is under way for too long": {
			prepare: func(s *server) {
				s.store.lose("failure")
				s.cut.Store(true)
				require.Error(s.t, s.call())
				s.store.refuse(refused, "sync")
				s.fleet.engine.subscribed()
				synctest.Wait()
			},
			patience: 100 * time.Millisecond, want: 100 * time.Millisecond, err: context.DeadlineExceeded,
		},
		"configurations are compared": {prepare: func(s *server) { s.store.hangsNow("compare") }, leaves: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, newModel(), "alone")
				s.start(nil)
				time.Sleep(10 * time.Second)
				c.prepare(s)
				before := s.reported()
				ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(c.patience, time.Minute))
				defer cancel()

				start := time.Now()
				require.ErrorIs(t, s.fleet.Leave(ctx), c.err)
				require.Equal(t, c.want, time.Since(start))
				time.Sleep(time.Second)
				require.Equal(t, c.leaves, s.store.executed()["leave"])
				require.Equal(t, before, s.reported(), "it isn't an outage")

				left := Health{Namespace: "test", Since: start.Add(c.want), Error: errLeft}
				require.Equal(t, left, s.fleet.Health())
				require.ErrorIs(t, s.fleet.Isolate(t.Context(), "search", ""), errLeft)
				require.ErrorIs(t, s.fleet.Reset(t.Context(), "search"), errLeft)
				_ = s.fleet.Leave(t.Context())
				require.Equal(t, left, s.fleet.Health())
			})
		})
	}
}

// A command that has failed just before is no reason to leave without a word: the fleet has the results since.
func TestLeaveAfterACommandHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, newModel(), "alone")
		s.start(nil)
		time.Sleep(10 * time.Second)
		refused := errors.New("READONLY")
		s.store.refuse(refused, "failure")
		s.open("search")
		require.ErrorIs(t, s.fleet.Health().Error, refused)
		s.store.mend()
		require.NoError(t, s.fleet.Leave(t.Context()))
		require.Equal(t, "open", s.store.breaker("listed/search").State)
		require.Equal(t, 1, s.store.executed()["leave"])
	})
}

// A hungStore has a client that never ends to wait for messages.
type hungStore struct {
	*modelStore
	end chan struct{}
}

func (s hungStore) listen(_ context.Context, l listener) {
	l.subscribed()
	<-s.end
}

// Leave returns though the client hangs, also without a deadline.
func TestLeaveWhileTheClientHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, newModel(), "alone")
		s.prepare(nil)
		hung := hungStore{s.store, make(chan struct{})}
		defer close(hung.end)
		f, err := join(t.Context(), hung, s.store.me, s.guard, Config{Namespace: "test"})
		require.NoError(t, err)
		start := time.Now()
		require.ErrorIs(t, f.Leave(context.Background()), context.DeadlineExceeded)
		require.Equal(t, 5*time.Second, time.Since(start))
	})
}

// A member that leaves while the store is out of reach, and joins again when it is back, says so.
func TestJoiningAgainAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servers(t, newModel(), 1, nil)[0]
		s.store.down.Store(true)
		time.Sleep(3 * time.Second)
		require.NoError(t, s.fleet.Leave(t.Context()))
		s.store.down.Store(false)
		s.join()
		time.Sleep(3 * time.Second)
		require.NoError(t, s.fleet.Leave(context.Background()))
		s.mu.Lock()
		defer s.mu.Unlock()
		var states []resilience.ConnectionState
		for _, l := range s.links {
			states = append(states, l.State)
		}
		require.Equal(t, []resilience.ConnectionState{resilience.ConnectionDown, resilience.ConnectionUp}, states)
	})
}

// The messages of another fleet, as of one with the same namespace in another database, make nobody ask the store; those
// of several, once in a heartbeat.
func TestMessagesOfAnotherFleet(t *testing.T) {
	for fleets, most := range map[int]int{1: 10*4/3 + 2, 2: 2*10*4/3 + 2} {
		synctest.Test(t, func(t *testing.T) {
			m := newModel()
			s := servers(t, m, 1, nil)[0]
			time.Sleep(3 * time.Second)
			m.executed()
			for i := range 1000 {
				since := fmt.Sprint("another ", i%fleets)
				s.fleet.engine.heard(entry{ID: "listed/search", State: "open", Since: since, Version: 1})
				time.Sleep(10 * time.Millisecond)
			}
			require.LessOrEqual(t, m.executed()["sync"], most)
			require.Equal(t, resilience.StateClosed, s.state())
			require.NoError(t, s.fleet.Leave(context.Background()))
		})
	}
}
