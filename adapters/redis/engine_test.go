package redisfleet

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// A reply that is lost doesn't keep a member from learning what its own command has done, although it doesn't wait for
// the message.
func TestMemberLearnsWhatItsOwnCommandHasDone(t *testing.T) {
	for op, c := range map[string]struct {
		do   func(s *server)
		want resilience.State
	}{
		"failure": {func(s *server) { require.Error(s.t, s.call()) }, resilience.StateOpen},
		"isolate": {func(s *server) {
			require.ErrorContains(s.t, s.fleet.Isolate(s.t.Context(), "search", ""), "redisfleet: ")
		}, resilience.StateIsolated},
	} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := servers(t, newModel(), 2, nil)
				defer leaveAll(t, all)
				all[0].broken.Store(true)
				for range 4 {
					require.Error(t, all[0].call())
				}
				all[1].store.loseReplies(op)
				c.do(all[1])
				require.Equal(t, c.want, all[0].state())
				time.Sleep(patience)
				all[1].store.mend()
				time.Sleep(heartbeat)
				require.Equal(t, c.want, all[1].state())
			})
		})
	}
}

// A command may be executed after nobody waits for it any more, and after a sync that doesn't know of it.
func TestMemberLearnsWhatItsOwnCommandHasDoneLate(t *testing.T) {
	for op, c := range map[string]struct {
		do   func(s *server)
		want resilience.State
	}{
		"failure": {func(s *server) { require.Error(s.t, s.call()) }, resilience.StateOpen},
		"isolate": {func(s *server) { require.Error(s.t, s.fleet.Isolate(s.t.Context(), "search", "")) }, resilience.StateIsolated},
		"reset":   {func(s *server) { require.Error(s.t, s.fleet.Reset(s.t.Context(), "search")) }, resilience.StateClosed},
	} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				all := servers(t, m, 2, nil)
				defer leaveAll(t, all)
				if op == "reset" {
					require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", ""))
				}
				all[0].broken.Store(true)
				for range 4 {
					require.Error(t, all[0].call())
				}
				time.Sleep(2 * time.Second)
				all[1].store.delayOnce(op, 5*time.Second)
				c.do(all[1])
				time.Sleep(7 * time.Second)
				require.Equal(t, c.want, all[0].state())
				require.Equal(t, c.want, all[1].state())
			})
		})
	}
}

// A result of which the store could not be told isn't forgotten: it learns what has become of the breaker.
func TestStoreLearnsOfResultsThatItMissed(t *testing.T) {
	refused := errors.New("READONLY")
	for name, c := range map[string]struct {
		cut  func(s *server)
		lost bool // and the member knows that before the call
	}{
		"at once":          {cut: func(s *server) { s.store.refuse(refused, "failure") }},
		"after a time-out": {cut: func(s *server) { s.store.lose("failure") }},
		"all":              {cut: func(s *server) { s.store.down.Store(true) }},
		"all, for a while": {cut: func(s *server) { s.store.down.Store(true); time.Sleep(3 * time.Second) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				s, other := newServer(t, m, "first"), newServer(t, m, "other")
				s.quorum, s.more = 1, []string{"a", "b", "tripped", "reset"}
				other.more = s.more
				s.start(nil)
				other.start(nil)
				defer leaveAll(t, []*server{s, other})
				s.open("reset")
				require.Equal(t, resilience.StateOpen, other.stateOf("reset"))

				c.cut(s)
				s.open("a")
				time.Sleep(100 * time.Millisecond)
				s.fleet.engine.subscribed() // a sync while it isn't known yet that the result is lost
				time.Sleep(300 * time.Millisecond)
				s.open("b")
				s.guard.Breaker("tripped").Trip(time.Hour)
				s.guard.Breaker("reset").Reset()
				time.Sleep(600 * time.Millisecond)
				require.False(t, s.fleet.Health().Connected)
				require.Equal(t, resilience.StateClosed, other.stateOf("a"))

				s.store.mend()
				s.store.down.Store(false)
				time.Sleep(time.Second)
				require.True(t, s.fleet.Health().Connected)
				for _, tool := range []string{"a", "b", "reset"} {
					require.Equal(t, resilience.StateOpen, other.stateOf(tool), tool)
				}
				require.Equal(t, resilience.StateClosed, other.stateOf("tripped"), "an operator's wish for one member")
			})
		})
	}
}

// A member that was away tells of what it has found out since, not of what it knew before: others may know more.
func TestMemberThatWasAwayTellsNothingOld(t *testing.T) {
	for name, away := range map[string]bool{"told at once": false, "told after an outage": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				all := servers(t, m, 3, nil)
				defer leaveAll(t, all)
				down(t, all)
				all[0].broken.Store(false)
				time.Sleep(30 * time.Second)
				all[0].store.down.Store(away)
				time.Sleep(2 * time.Second)
				require.NoError(t, all[0].call(), "it is the probe")
				all[0].store.down.Store(false)
				time.Sleep(time.Minute)
				requireAll(t, all, resilience.StateClosed)

				all[0].store.down.Store(true)
				all[0].cut.Store(true)
				require.Error(t, all[0].call(), "which changes nothing")
				time.Sleep(2 * time.Second)
				down(t, all[1:])
				all[0].store.down.Store(false)
				time.Sleep(2 * time.Second)
				requireAll(t, all, resilience.StateOpen)
			})
		})
	}
}

// A success of a call that began before the fleet opened the breaker doesn't close it.
func TestOnlyTheSuccessOfAProbeClosesTheFleetsBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 2, nil)
		defer leaveAll(t, all)
		down(t, all)
		b, _ := all[0].fleet.engine.member.Breaker("listed/search")
		for _, probe := range []bool{false, true} {
			all[0].fleet.engine.Report([]resilience.FleetResult{{
				Breaker: b, Success: true, Probe: probe, Cause: resilience.CauseProbe, Time: time.Now(),
			}})
			synctest.Wait()
			require.Equal(t, !probe, m.breaker("listed/search").State == "open")
		}
	})
}

// A call that may be the probe doesn't wait for a store that is known to be away, and is it if there is no answer.
func TestProbeWithoutAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		cut  func(s *server)
		want time.Duration
	}{
		"an error":          {func(s *server) { s.store.refuse(errors.New("LOADING"), "lease") }, 0},
		"none":              {func(s *server) { s.store.lose("lease") }, 100 * time.Millisecond},
		"none, as is known": {func(s *server) { s.store.down.Store(true); time.Sleep(2 * time.Second) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := servers(t, newModel(), 2, nil)
				down(t, all)
				all[0].broken.Store(false)
				time.Sleep(30 * time.Second)
				c.cut(all[0])
				start := time.Now()
				require.NoError(t, all[0].call())
				require.Equal(t, c.want, time.Since(start))
				all[0].store.mend()
				all[0].store.down.Store(false)
				time.Sleep(time.Second)
				leaveAll(t, all)
			})
		})
	}
}

func TestMemberIsToldWhenItMayAskForTheLeaseAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(t, newModel(), 2, nil)
		defer leaveAll(t, all)
		down(t, all)
		time.Sleep(30 * time.Second)
		b, _ := all[0].fleet.engine.member.Breaker("listed/search")
		granted, _ := all[0].fleet.engine.Lease(t.Context(), b, resilience.CauseCalls)
		require.True(t, granted)
		time.Sleep(time.Second)
		granted, wait := all[1].fleet.engine.Lease(t.Context(), b, resilience.CauseCalls)
		require.False(t, granted)
		require.Equal(t, 2*time.Second, wait)
	})
}

// A message or a reply of a memory that the member doesn't know yet is no reason to wait for the next heartbeat.
func TestNewMemoryIsNoticedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 3, nil)
		defer leaveAll(t, all)
		down(t, all)
		m.flush()
		all[0].store.deafen() // it has the reply
		require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
		synctest.Wait()
		for i, s := range all {
			require.Equal(t, resilience.StateIsolated, s.state(), "member %d", i)
			require.Equal(t, "2", s.fleet.engine.since)
		}
	})
}

// What a member that was away tells of a breaker that was open all the time changes nothing of when it is probed.
func TestMemberThatWasAwayPutsOffNoProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 3, nil)
		defer leaveAll(t, all)
		all[2].store.down.Store(true)
		time.Sleep(2 * time.Second)
		down(t, all[:2])
		time.Sleep(10 * time.Second)
		all[2].open("search")
		all[2].store.down.Store(false)
		time.Sleep(2 * time.Second)
		for _, s := range all {
			require.InDelta(t, 18*time.Second, s.guard.Breaker("search").RetryAfter(), float64(time.Second))
		}
	})
}

// A member that was away tells how many failures it has seen.
func TestMemberThatWasAwayTellsItsFailures(t *testing.T) {
	for _, n := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			m := newModel()
			all := servers(t, m, 2, func(c *resilience.BreakerConfig) { c.Failures = n })
			defer leaveAll(t, all)
			all[0].store.down.Store(true)
			time.Sleep(2 * time.Second)
			for range n {
				all[0].fail()
			}
			all[0].store.down.Store(false)
			time.Sleep(2 * time.Second)
			require.Equal(t, n, m.breaker("listed/search").Failures)
			require.Equal(t, resilience.StateClosed, all[1].state(), "it alone is no quorum")
		})
	}
}

// Each row is heard by a member that has learned of version 5 that the breaker is open for another 10s.
func TestWhatAMessageMeans(t *testing.T) {
	open := entry{ID: "listed/search", State: "open", Wait: 10_000, Version: 5, By: "another", Cause: "calls"}
	change := func(f func(x *entry)) entry {
		x := open
		f(&x)
		return x
	}
	for name, c := range map[string]struct {
		message entry
		want    resilience.State
		after   time.Duration
		known   int64 // 5 before; 0: all has to be read again
		reply   bool  // whether a reply says it, too, before
		unknown bool  // whether it has learned of the breaker from a store that has forgotten it
	}{
		"older": {
			message: change(func(x *entry) { x.State, x.Version = "closed", 4 }),
			want:    resilience.StateOpen, after: 10 * time.Second, known: 5,
		},
		"the same, later": {
			message: change(func(x *entry) { x.Wait = 20_000 }),
			want:    resilience.StateOpen, after: 10 * time.Second, known: 5,
		},
		"closed, as a reply has said": {
			message: change(func(x *entry) { x.State, x.Wait, x.Version = "closed", 0, 6 }),
			known:   6, reply: true,
		},
		"closed, because the store doesn't know it": {
			message: change(func(x *entry) { x.State, x.Wait, x.Version = "closed", 0, 0 }),
			known:   5, unknown: true,
		},
		"newer": {
			message: change(func(x *entry) { x.Version, x.Wait = 6, 20_000 }),
			want:    resilience.StateOpen, after: 20 * time.Second, known: 6,
		},
		"newer, after one that is missing": {
			message: change(func(x *entry) { x.Version, x.Wait = 7, 20_000 }),
			want:    resilience.StateOpen, after: 20 * time.Second, known: 5,
		},
		"newer, of another breaker": {
			message: change(func(x *entry) { x.ID, x.Version = "listed/another", 6 }),
			want:    resilience.StateOpen, after: 10 * time.Second, known: 6,
		},
		"closed": {
			message: change(func(x *entry) { x.State, x.Wait, x.Version = "closed", 0, 6 }),
			want:    resilience.StateClosed, after: 0, known: 6,
		},
		"its own": {
			message: change(func(x *entry) { x.By, x.Wait, x.Version = "me", 20_000, 6 }),
			want:    resilience.StateOpen, after: 10 * time.Second, known: 6,
		},
		"its own, of a command whose reply was lost": {
			message: change(func(x *entry) { x.By, x.State, x.Wait, x.Version = "me", "closed", 0, 6 }),
			want:    resilience.StateClosed, after: 0, known: 6,
		},
		"of another memory": {
			message: change(func(x *entry) { x.Since, x.State, x.Version = "another", "closed", 6 }),
			want:    resilience.StateOpen, after: 10 * time.Second, known: 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, newModel(), "me")
				e := newEngine(s.store, "me", Config{})
				s.prepare(nil)
				var err error
				e.member, err = s.guard.JoinFleet("fleet test", e)
				require.NoError(t, err)
				open.Since, e.since, e.known = "memory", "memory", memory{"memory", 4}
				e.heard(open)
				require.Equal(t, memory{"memory", 5}, e.known)

				x := c.message
				if x.Since == "" {
					x.Since = "memory"
				}
				if c.unknown {
					clear(e.versions)
				}
				if c.reply {
					e.told(x, time.Now())
				}
				e.heard(x)
				require.Equal(t, c.want, s.state())
				require.Equal(t, c.after, s.guard.Breaker("search").RetryAfter())
				require.Equal(t, c.known, e.known.Version)
				require.Equal(t, c.known == 0, len(e.wake) > 0)
			})
		})
	}
}

// A probe succeeds, and the backend fails again, before the store hears of either: what it says of the success doesn't close
// the breaker, whichever way that arrives.
func TestBreakerThatHasOpenedAgainIsNotClosedByWhatTheStoreSaysOfBefore(t *testing.T) {
	for name, trouble := range map[string]func(s *server){
		"the reply":               func(*server) {},
		"a message":               func(s *server) { s.store.loseReplies("failure") },
		"what is read meanwhile":  func(s *server) { time.AfterFunc(60*time.Millisecond, s.fleet.engine.subscribed) },
		"what is read afterwards": func(s *server) { time.AfterFunc(110*time.Millisecond, s.fleet.engine.subscribed) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				all := []*server{newServer(t, m, "server"), newServer(t, m, "other")}
				var delay atomic.Int64
				all[0].store.delay = func() time.Duration { return time.Duration(delay.Load()) }
				for _, s := range all {
					s.more, s.broken = []string{"another"}, all[0].broken
					s.start(nil)
				}
				defer leaveAll(t, all)
				down(t, all)
				s := all[0]
				delay.Store(int64(25 * time.Millisecond))
				time.Sleep(31 * time.Second)
				failed := func(tool string) {
					s.cut.Store(true)
					require.ErrorIs(t, s.callTool(tool), errBackend)
				}

				failed("another") // which the store is told of at first
				s.broken.Store(false)
				s.cut.Store(false)
				require.NoError(t, s.call(), "it is the probe")
				failed("another")
				for range 5 {
					failed("search")
				}
				trouble(s)
				for range 20 {
					require.Equal(t, resilience.StateOpen, s.state())
					time.Sleep(10 * time.Millisecond)
				}
				s.store.mend()
			})
		})
	}
}
