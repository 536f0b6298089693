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
// hasn't heard of them shut nothing for the others, whose calls succeed meanwhile.
func TestFailuresOfOneMemberAndOneThatHasNotHeardOfThem(t *testing.T) {
	for _, after := range []time.Duration{-20, -10, 0, 10, 20, 30, 40, 45} { // the other's
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

// A member counts for the quorum if it has seen the row that is as long as one breaker takes, or as many failures of its
// own.
func TestQuorumHasSeenTheRow(t *testing.T) {
	type failure struct {
		member, n int
		heard     bool // of all before it
	}
	for name, c := range map[string]struct {
		failures []failure
		want     string
	}{
		"each has heard of those before":             {[]failure{{0, 1, true}, {1, 1, true}, {0, 1, true}}, "open"},
		"of one member":                              {[]failure{{0, 1, true}, {0, 1, true}, {0, 1, true}}, "closed"},
		"of one member, and one after them":          {[]failure{{0, 1, true}, {0, 1, false}, {0, 1, false}, {1, 1, true}}, "open"},
		"of one member, and another that is unheard": {[]failure{{0, 1, true}, {0, 1, false}, {0, 1, false}, {1, 2, false}}, "closed"},
		"another that is unheard before them":        {[]failure{{1, 1, true}, {0, 1, false}, {0, 1, false}, {0, 1, false}}, "closed"},
		"and one after them":                         {[]failure{{1, 1, true}, {0, 3, false}, {2, 1, true}}, "open"},
		"and then as many of the other's own":        {[]failure{{1, 1, true}, {0, 3, false}, {1, 2, false}}, "open"},
		"of two at the same time":                    {[]failure{{0, 1, true}, {1, 1, false}, {0, 1, false}, {1, 1, false}, {0, 1, false}, {1, 1, false}}, "open"},
		"of two who told of them after an outage":    {[]failure{{0, 7, false}, {1, 4, false}}, "open"},
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
			rows, states := make([]int, 3), make([]entry, 2)
			for _, f := range c.failures {
				rows[f.member] += f.n
				for i, s := range []store{scripts[f.member], models[f.member]} {
					n := news{op: "failure", n: f.n, row: rows[f.member], quorum: 2}
					n.breaker = resilience.FleetBreaker{ID: "listed/search", Config: resilience.BreakerConfig{Failures: 3}}
					if f.heard {
						n.heard = states[i].Version
					}
					var err error
					states[i], err = one(t.Context(), s, n)
					require.NoError(t, err)
				}
			}
			require.Equal(t, c.want, states[0].State, "the script")
			require.Equal(t, c.want, states[1].State, "the model")
		})
	}
}
