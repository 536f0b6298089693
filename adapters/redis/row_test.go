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
