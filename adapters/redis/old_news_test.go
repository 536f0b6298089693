package redisfleet

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// What a member tells of an outage's beginning is in a row with failures since, unless others have succeeded meanwhile,
// which they told nobody, as nobody had heard of failures.
func TestOldFailuresAndANewOne(t *testing.T) {
	for name, c := range map[string]struct {
		dead  bool // others' calls succeed during the outage, or there are none
		first bool // the new one is before the old ones are told
		want  resilience.State
	}{
		"told before":                        {false, false, resilience.StateClosed},
		"told afterwards":                    {false, true, resilience.StateClosed},
		"told before, without a success":     {true, false, resilience.StateOpen},
		"told afterwards, without a success": {true, true, resilience.StateOpen},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := serversFarAway(t, newModel(), 5, time.Millisecond)
				defer leaveAll(t, all)
				for _, s := range all {
					require.NoError(t, s.call())
				}
				time.Sleep(absence)
				all[0].store.down.Store(true)
				time.Sleep(time.Second)
				all[0].open("search")
				for range 20 {
					for _, s := range all[1:] {
						if !c.dead {
							require.NoError(t, s.call())
						}
					}
					time.Sleep(time.Second)
				}

				if c.first {
					all[1].fail()
					time.Sleep(10 * time.Millisecond)
				}
				all[0].store.down.Store(false)
				time.Sleep(time.Second)
				if !c.first {
					all[1].fail()
					time.Sleep(10 * time.Millisecond)
				}
				requireAll(t, all[1:], c.want)
			})
		})
	}
}

// A success of which the store could not be told ends the fleet's failures nevertheless, unless one is newer.
func TestSuccessThatTheStoreMissedEndsFailures(t *testing.T) {
	for name, newer := range map[string]bool{"no failure since": false, "a failure since": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				all := servers(t, m, 2, nil)
				defer leaveAll(t, all)
				fail := func() {
					all[0].cut.Store(true)
					require.ErrorIs(t, all[0].call(), errBackend)
					all[0].cut.Store(false)
				}
				for range 3 {
					fail()
				}
				all[1].store.down.Store(true)
				require.NoError(t, all[1].call())
				time.Sleep(2 * time.Second)
				want := 0
				if newer {
					fail()
					want = 4
				}
				all[1].store.refuse(errLost, "success")
				all[1].store.down.Store(false)
				time.Sleep(2 * time.Second)
				all[1].store.mend()
				time.Sleep(2 * time.Second)
				require.Equal(t, want, m.breaker("listed/search").Failures)
			})
		})
	}
}

// It does so too if a call has failed since, of which the store could not be told either.
func TestSuccessBeforeAFailureThatTheStoreMissedEndsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 2, nil)
		defer leaveAll(t, all)
		for range 4 {
			all[0].fail()
		}
		setDown(all, true)
		time.Sleep(2 * time.Second)
		require.NoError(t, all[0].call())
		all[0].fail()
		setDown(all, false)
		time.Sleep(2 * time.Second)
		require.Zero(t, m.breaker("listed/search").Failures)
	})
}

// A success may end no failures, as when the server's clock is set back. Then a later one does.
func TestSuccessIsReportedAsLongAsTheStoreHasFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		s := newServer(t, m, "alone")
		s.start(nil)
		defer leaveAll(t, []*server{s})
		s.fail()
		m.mu.Lock()
		m.now = func() time.Time { return time.Now().Add(-time.Minute) }
		m.mu.Unlock()
		require.NoError(t, s.call())
		time.Sleep(2 * time.Minute)
		require.NoError(t, s.call())
		require.Zero(t, m.breaker("listed/search").Failures)
	})
}

// One may succeed while the store is being told of another.
func TestSuccessesThatTheStoreMissesOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		s := newServer(t, m, "server")
		s.more = []string{"another"}
		s.start(nil)
		defer leaveAll(t, []*server{s})
		for _, tool := range []string{"search", "another"} {
			s.broken.Store(true)
			require.ErrorIs(t, s.callTool(tool), errBackend)
			s.broken.Store(false)
		}

		s.store.down.Store(true)
		require.NoError(t, s.callTool("search"))
		s.store.lose("success")
		s.store.down.Store(false)
		time.Sleep(retry + patience/2)
		require.NoError(t, s.callTool("another"), "it is being told of the first")
		s.store.mend()
		time.Sleep(3 * time.Second)
		for _, tool := range []string{"search", "another"} {
			require.Zero(t, m.breaker("listed/"+tool).Failures, tool)
		}
	})
}

// What the store has heard of isn't counted again when it is told of something else.
func TestFailuresAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		s, healthy := newServer(t, m, "server"), newServer(t, m, "healthy")
		s.more = []string{"another"}
		s.start(nil)
		healthy.start(nil)
		defer leaveAll(t, []*server{s, healthy})
		s.open("search")
		time.Sleep(2 * time.Second)
		require.NoError(t, healthy.call())
		require.Zero(t, m.breaker("listed/search").Failures)

		s.store.down.Store(true)
		time.Sleep(2 * time.Second)
		s.open("another")
		s.store.down.Store(false)
		time.Sleep(2 * time.Second)
		require.Positive(t, m.breaker("listed/another").Failures)
		require.Zero(t, m.breaker("listed/search").Failures)
	})
}

// Failures are no news when the cooldown after them has ended.
func TestFailuresOfAnEndedCooldownAreNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(t, newModel(), 3, nil)
		defer leaveAll(t, all)
		setDown(all, true)
		time.Sleep(2 * time.Second)
		for _, s := range all[:2] {
			s.open("search")
		}
		time.Sleep(time.Hour)
		setDown(all, false)
		time.Sleep(2 * time.Second)
		require.NoError(t, all[2].call())
		require.Equal(t, resilience.StateClosed, all[2].state())
		require.Equal(t, resilience.StateHalfOpen, all[0].state())
	})
}

// A member hears of a Reset, although it has failures to tell that are older.
func TestFailuresFromBeforeAResetAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := servers(t, m, 2, nil)
		defer leaveAll(t, all)
		all[1].store.down.Store(true)
		time.Sleep(2 * time.Second)
		all[1].open("search")
		time.Sleep(time.Second)
		require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
		all[1].store.down.Store(false)
		time.Sleep(2 * time.Second)
		require.Equal(t, resilience.StateClosed, all[1].state())
		require.Zero(t, m.breaker("listed/search").Failures)
	})
}

// A breaker whose cooldown has ended may be probed at once, also if the store has forgotten it.
func TestRestoredBreakerIsNotOpenForLonger(t *testing.T) {
	for name, trip := range map[string]bool{"its cooldown has ended": false, "tripped by the operator of one": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				all := servers(t, m, 2, nil)
				defer leaveAll(t, all)
				down(t, all)
				all[0].broken.Store(false)
				if trip {
					all[0].guard.Breaker("search").Trip(time.Hour)
				} else {
					time.Sleep(35 * time.Second)
				}
				all[1].store.down.Store(true)
				time.Sleep(time.Second)
				m.flush()
				time.Sleep(2 * time.Second)
				all[1].store.down.Store(false)
				time.Sleep(2 * time.Second)
				if trip {
					require.LessOrEqual(t, all[1].guard.Breaker("search").RetryAfter(), 30*time.Second)
				} else {
					require.NoError(t, all[1].call())
				}
			})
		})
	}
}

// An operator may reset what the fleet has isolated, though no call of this server has named it yet.
func TestResetOfABreakerThatTheMemberHasOnlyHeardOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		for id, name := range map[string]string{
			"listed/search/a%2Fb": "search/a/b", "unlisted/x%20y": "x y", "listed/other": "other",
		} {
			_, err := m.store("operator").isolate(t.Context(), id, "")
			require.NoError(t, err)
			s := newServer(t, m, "server")
			s.start(nil)
			require.NoError(t, s.fleet.Reset(t.Context(), name))
			require.Equal(t, "closed", m.breaker(id).State)
			leaveAll(t, []*server{s})
		}
	})
}

func TestJoinWithANilPointer(t *testing.T) {
	var client *redis.Client
	_, err := Join(context.Background(), client, newGuard(t, io.Discard), Config{Namespace: "test"})
	require.EqualError(t, err, "redisfleet: Join: the client is nil")
}

// An error of an operator's command says what was waited for.
func TestErrorOfASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, newModel(), "server")
		s.start(nil)
		defer leaveAll(t, []*server{s})
		s.store.lose("isolate")
		require.EqualError(t, s.fleet.Isolate(t.Context(), "search", ""),
			"redisfleet: the server hasn't answered within 500ms")
	})
}

// A caller with less time than the fleet has is told so.
func TestErrorOfACallerWithLittleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, newModel(), "server")
		s.start(nil)
		defer leaveAll(t, []*server{s})
		s.store.lose("isolate")
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err := s.fleet.Isolate(ctx, "search", "")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotContains(t, err.Error(), "500ms")
	})
}

// What the store replies, and its message, are as old as what it was told: the member may have found out more since.
func TestReplyIsOlderThanFailuresSince(t *testing.T) {
	for name, hears := range map[string]bool{"the reply alone": false, "the message first": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := servers(t, newModel(), 2, nil)
				defer leaveAll(t, all)
				down(t, all)
				s := all[0]
				s.broken.Store(false)
				time.Sleep(30 * time.Second)
				hear := s.store.deafen()
				if hears {
					hear()
				}
				s.store.delay = func() time.Duration { return 15 * time.Millisecond }
				s.store.faults.Store("recovered", fault{after: func(context.Context) error {
					time.Sleep(5 * time.Millisecond)
					return nil
				}})
				call := func() error {
					_, err := resilience.Do(t.Context(), s.guard, "search", func(context.Context) (int, error) {
						time.Sleep(time.Millisecond)
						if s.cut.Load() {
							return 0, errBackend
						}
						return 0, nil
					})
					return err
				}

				require.NoError(t, call(), "it is the probe")
				s.cut.Store(true)
				for range 5 {
					require.ErrorIs(t, call(), errBackend)
				}
				require.Equal(t, resilience.StateOpen, s.state())
				time.Sleep(5 * time.Second)
				require.Equal(t, resilience.StateOpen, s.state())
				require.Equal(t, resilience.StateClosed, all[1].state(), "one member has seen failures")
			})
		})
	}
}
