package redisfleet

import (
	"context"
	"fmt"
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

// serversFarAway returns n members that share a backend, for whom a command or a message takes some time, one way.
func serversFarAway(t *testing.T, m *model, n int, oneWay time.Duration) []*server {
	var all []*server
	for i := range n {
		s := newServer(t, m, fmt.Sprint("member-", i))
		s.store.delay = func() time.Duration { return oneWay }
		if i > 0 {
			s.broken, s.asked = all[0].broken, all[0].asked
		}
		s.start(nil)
		all = append(all, s)
	}
	return all
}

// A busy fleet whose backend fails now and then, and never five times in a row, opens no breaker: however many of the
// failures the store hears of before any member has heard of the first.
func TestBackendThatMostlyWorksIsNotShut(t *testing.T) {
	t.Parallel() // it takes long
	for _, c := range []struct {
		members int
		gap     time.Duration // between two calls of a member, on average
		rate    float64       // how many fail
		oneWay  time.Duration
	}{
		{30, 20 * time.Millisecond, 0.05, 5 * time.Millisecond},
		{30, 50 * time.Millisecond, 0.05, 20 * time.Millisecond},
		{10, 50 * time.Millisecond, 0.1, 10 * time.Millisecond},
		{10, 50 * time.Millisecond, 0.05, 35 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%d members, %v, %v, %v", c.members, c.gap, c.rate, c.oneWay), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := serversFarAway(t, newModel(), c.members, c.oneWay)
				defer leaveAll(t, all)
				time.Sleep(absence)

				random := &lockedRand{random: rand.New(rand.NewPCG(1, 0))}
				var inARow, longest atomic.Int64
				var calls sync.WaitGroup
				for _, s := range all {
					calls.Go(func() {
						for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
							time.Sleep(time.Duration(2 * random.float() * float64(c.gap)))
							_, err := resilience.Do(context.Background(), s.guard, "search", func(context.Context) (string, error) {
								if random.float() >= c.rate {
									inARow.Store(0)
									return "found", nil
								}
								longest.Store(max(longest.Load(), inARow.Add(1)))
								return "", errBackend
							})
							if err != nil {
								assert.ErrorIs(t, err, errBackend)
							}
						}
					})
				}
				calls.Wait()
				require.Less(t, longest.Load(), int64(5))
			})
		})
	}
}

// Failures that the store hears of late, because there were many at once, count for nothing beside successes since.
func TestFailuresThatAreToldLateAreNotInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := serversFarAway(t, newModel(), 3, 25*time.Millisecond)
		defer leaveAll(t, all)
		time.Sleep(absence)
		call := func(s *server, want error) {
			for i := range 100 {
				_, err := resilience.Do(t.Context(), s.guard, "search",
					func(context.Context) (string, error) { return "", want }, resilience.BreakerKey(fmt.Sprint("tenant-", i)))
				require.ErrorIs(t, err, want)
			}
		}

		for range 3 {
			call(all[0], errBackend)
		}
		for i := range 60 {
			time.Sleep(time.Second)
			for _, s := range all {
				call(s, nil)
			}
			for range 3 {
				if i == 0 {
					call(all[1], errBackend)
				}
			}
		}
	})
}

// All hear of a dead backend after five round trips at most, which see what the calls of a member alone would.
func TestDeadBackendIsShutSoonHoweverFarTheStoreIs(t *testing.T) {
	for _, oneWay := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 35 * time.Millisecond} {
		t.Run(oneWay.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const gap = 200 * time.Millisecond // between two calls of a member
				all := serversFarAway(t, newModel(), 10, oneWay)
				defer leaveAll(t, all)
				time.Sleep(absence)
				all[0].broken.Store(true)
				start, calls := time.Now(), 0
				for all[calls%10].state() == resilience.StateClosed {
					_ = all[calls%10].call()
					time.Sleep(gap / 10)
					calls++
				}
				time.Sleep(oneWay)
				requireAll(t, all, resilience.StateOpen)
				t.Logf("open after %v and %d calls", time.Since(start), calls)
				require.LessOrEqual(t, time.Since(start), 5*(2*oneWay+gap/10)+oneWay)
			})
		})
	}
}

// Failures of one member at the same time, as when it loses the connection to its backend, and one of another that
// hasn't heard of them shut nothing for the others, whose calls succeed meanwhile. (In the very same moment, it is chance
// whether the store hears first of a success after the one, or of the others again.)
func TestFailuresOfOneMemberAndOneThatHasNotHeardOfThem(t *testing.T) {
	for _, after := range []time.Duration{-20, -10, -1, 1, 10, 20, 30, 40, 45} { // the other's
		t.Run(fmt.Sprint(after*time.Millisecond), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := serversFarAway(t, newModel(), 10, 25*time.Millisecond)
				defer leaveAll(t, all)
				time.Sleep(absence)
				failAtOnce := func(s *server) { // without a pause in which it could tell of the first one alone
					for range 5 {
						_, err := resilience.Do(t.Context(), s.guard, "search",
							func(context.Context) (string, error) { return "", errBackend })
						require.ErrorIs(t, err, errBackend)
					}
				}

				for ms := time.Duration(-30); ms < 200; ms++ {
					if ms == 0 {
						failAtOnce(all[0])
					}
					if ms == after {
						all[1].fail()
					}
					for i, s := range all {
						if i > 0 || ms < 0 {
							require.NoError(t, s.call(), "member %d after %dms", i, ms)
						}
					}
					time.Sleep(time.Millisecond)
				}
			})
		})
	}
}

// Failures at the same time, after which no call is made, are in a row once all have heard of them.
func TestFailuresAtTheSameTime(t *testing.T) {
	for _, oneWay := range []time.Duration{0, 10 * time.Millisecond, 35 * time.Millisecond} {
		t.Run(oneWay.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := serversFarAway(t, newModel(), 5, oneWay)
				defer leaveAll(t, all)
				time.Sleep(absence)
				all[0].broken.Store(true)
				for _, s := range all {
					require.ErrorIs(t, s.call(), errBackend)
				}
				time.Sleep(5 * 2 * oneWay)
				synctest.Wait()
				requireAll(t, all, resilience.StateOpen)
			})
		})
	}
}

// They aren't if a call of each member has succeeded by the time that it has heard of the others.
func TestFailuresAtTheSameTimeAndThenSuccesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := serversFarAway(t, newModel(), 5, 35*time.Millisecond)
		defer leaveAll(t, all)
		time.Sleep(absence)
		for range 20 {
			for _, s := range all {
				s.fail()
			}
			for _, s := range all {
				require.NoError(t, s.call())
			}
			time.Sleep(time.Second)
			requireAll(t, all, resilience.StateClosed)
		}
	})
}

// What succeeds before its member has heard of its own failures ends them all the same: those of another, much later,
// begin another row.
func TestSuccessBeforeTheReplyEndsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := serversFarAway(t, newModel(), 3, 10*time.Millisecond)
		defer leaveAll(t, all)
		time.Sleep(absence)
		for range 4 {
			all[0].fail()
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, all[0].call())
		time.Sleep(time.Hour)
		require.Zero(t, all[0].store.breaker("listed/search").Failures)
		all[1].fail()
		time.Sleep(time.Second)
		requireAll(t, all, resilience.StateClosed)
	})
}

// Nor is a failure told again that a success has ended, whatever has failed since.
func TestFailureThatIsOverIsNotToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		var all []*server
		for i := range 2 {
			s := newServer(t, m, fmt.Sprint("member-", i))
			s.more = []string{"lookup"}
			s.store.delay = func() time.Duration { return 25 * time.Millisecond }
			s.start(nil)
			all = append(all, s)
		}
		defer leaveAll(t, all)
		time.Sleep(absence)
		_, err := resilience.Do(t.Context(), all[0].guard, "lookup", func(context.Context) (int, error) { return 0, errBackend })
		require.ErrorIs(t, err, errBackend)
		synctest.Wait() // the store is being told of that, and then of all the following at once
		for range 4 {
			all[0].fail()
		}
		time.Sleep(60 * time.Millisecond)
		all[1].fail() // it hears at 110ms which row this is apart from
		time.Sleep(time.Millisecond)
		require.NoError(t, all[1].call())
		time.Sleep(48 * time.Millisecond)
		all[1].fail()
		time.Sleep(time.Second)
		requireAll(t, all[1:], resilience.StateClosed)
		require.LessOrEqual(t, all[1].store.breaker("listed/search").Failures, 1)
	})
}

// A failure is told again for as long as it isn't counted, but not if the failures that it came too late for are over.
func TestFailuresAreInARowOnceTheirMemberHasHeardOfThoseBefore(t *testing.T) {
	type step struct {
		op        string
		member, n int
		heard     bool // of all before it
		again     bool // what it has told last
		want      string
	}
	for name, steps := range map[string][]step{
		"each has heard of those before": {
			{"failure", 0, 1, true, false, "closed 1"}, {"failure", 1, 1, true, false, "closed 2"},
			{"failure", 0, 1, true, false, "open 0"},
		},
		"one has heard of them when it tells again": {
			{"failure", 0, 2, true, false, "closed 2"}, {"failure", 1, 1, false, false, "apart 2"},
			{"failure", 1, 1, true, true, "open 0"},
		},
		"of one member": {
			{"failure", 0, 1, true, false, "closed 1"}, {"failure", 0, 1, true, false, "closed 2"},
			{"failure", 0, 5, true, false, "closed 7"},
		},
		"two who tell of them after an outage": {
			{"failure", 0, 7, false, false, "closed 7"}, {"failure", 1, 4, false, false, "apart 7"},
			{"failure", 1, 4, true, true, "open 0"},
		},
		"others are counted meanwhile": {
			{"failure", 0, 1, true, false, "closed 1"}, {"failure", 1, 1, false, false, "apart 1"},
			{"failure", 0, 1, true, false, "closed 2"}, {"failure", 1, 1, false, true, "apart 2"},
			{"failure", 1, 1, true, true, "open 0"},
		},
		"the others are over": {
			{"failure", 0, 2, true, false, "closed 2"}, {"failure", 1, 1, false, false, "apart 2"},
			{"success", 2, 0, true, false, "closed 0"}, {"failure", 1, 1, true, true, "closed 0"},
		},
		"and there are new ones": {
			{"failure", 0, 2, true, false, "closed 2"}, {"failure", 1, 1, false, false, "apart 2"},
			{"success", 2, 0, true, false, "closed 0"}, {"failure", 0, 2, true, false, "closed 2"},
			{"failure", 1, 1, true, true, "closed 2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, scripts := stores(t, 3)
			m := newModel()
			var models []store
			for i := range scripts {
				models = append(models, m.store(fmt.Sprint("member-", i)))
				for _, s := range []store{scripts[i], models[i]} {
					_, err := s.sync(t.Context(), memory{})
					require.NoError(t, err)
				}
			}

			var version [2]int64 // of the script and of the model
			var apart [2]int64
			for i, step := range steps {
				for k, s := range []store{scripts[step.member], models[step.member]} {
					n := news{op: step.op, n: step.n, quorum: 2}
					n.breaker = resilience.FleetBreaker{ID: "listed/search", Config: resilience.BreakerConfig{Failures: 3}}
					if step.heard {
						n.heard = version[k]
					}
					if step.again {
						n.apart = apart[k]
					}
					x, err := one(t.Context(), s, n)
					require.NoError(t, err)
					got := fmt.Sprint(x.State, " ", x.Failures)
					if x.Apart != 0 {
						got = fmt.Sprint("apart ", x.Failures)
						apart[k] = x.Apart
					}
					require.Equal(t, step.want, got, "step %d, store %d", i, k)
					version[k] = x.Version
				}
			}
		})
	}
}
