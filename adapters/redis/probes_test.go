package redisfleet

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// A probed backend notes when it is asked by a Probe, which takes some time to fail while it is down.
type probed struct {
	mu      sync.Mutex
	up      bool
	takes   time.Duration
	running int
	begun   []time.Time
}

func (b *probed) ask(context.Context) error {
	b.mu.Lock()
	b.begun = append(b.begun, time.Now())
	b.running++
	alone, up := b.running == 1, b.up
	b.mu.Unlock()
	if !alone {
		panic("two Probes at once")
	}
	if !up {
		time.Sleep(b.takes)
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	b.running--
	if up {
		return nil
	}
	return errBackend
}

// gaps returns the shortest and the longest time between two Probes.
func (b *probed) gaps() (shortest, longest time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	shortest = time.Hour
	for i := range len(b.begun) - 1 {
		gap := b.begun[i+1].Sub(b.begun[i])
		shortest, longest = min(shortest, gap), max(longest, gap)
	}
	return shortest, longest
}

// With a Probe, the fleet asks the backend as often as one server does, however many there are, and however many of
// them have the breaker; but after a Probe that hangs, others may take half an interval.
func TestFleetProbesAsOftenAsOneServer(t *testing.T) {
	const interval = 5 * time.Second
	for _, c := range []struct {
		members, called int
		cooldown, takes time.Duration
		longest         time.Duration
	}{
		{1, 1, 30 * time.Second, 0, interval},
		{2, 2, time.Minute, 0, interval * 11 / 10},
		{3, 3, 5 * time.Minute, 0, interval * 11 / 10},
		{10, 10, 30 * time.Second, 0, interval * 11 / 10},
		{10, 10, 5 * time.Minute, 0, interval * 11 / 10},
		{3, 1, 5 * time.Minute, 0, interval * 11 / 10},
		{10, 2, 30 * time.Second, 0, interval * 11 / 10},
		{1, 1, 30 * time.Second, interval - 1, interval * 11 / 10},
		{10, 1, time.Minute, interval - 1, interval * 11 / 10},
		{2, 2, 30 * time.Second, interval - 1, interval*3/2 + time.Second},
		{10, 10, 30 * time.Second, interval - 1, interval*3/2 + time.Second},
		{3, 3, 30 * time.Second, time.Second, interval * 3 / 2},
	} {
		name := fmt.Sprintf("%d of %d, %v, takes %v", c.called, c.members, c.cooldown, c.takes)
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &probed{takes: c.takes}
				all := servers(t, newModel(), c.members, func(cfg *resilience.BreakerConfig) {
					cfg.Cooldown, cfg.Probe = c.cooldown, b.ask
				})
				defer leaveAll(t, all)
				time.Sleep(2 * absence)
				for i := range 10 {
					s := all[i%c.called]
					s.cut.Store(true)
					require.Error(t, s.callKey("acme"))
				}
				time.Sleep(min(4*time.Minute, 9*c.cooldown))
				shortest, longest := b.gaps()
				require.GreaterOrEqual(t, shortest, interval/3)
				require.LessOrEqual(t, longest, c.longest)

				for _, s := range all {
					s.cut.Store(false)
				}
				b.mu.Lock()
				b.up = true
				b.mu.Unlock()
				time.Sleep(longest + interval)
				for _, s := range all[:c.called] {
					require.NoError(t, s.callKey("acme"))
				}
			})
		})
	}
}

// And it keeps calls from being the probe for as long: after that, one call in ten Cooldowns is.
func TestFleetOfWhichProbesKeepCallsOut(t *testing.T) {
	t.Parallel() // it takes long
	for _, members := range []int{1, 3, 20} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b probed
				all := servers(t, newModel(), members, func(cfg *resilience.BreakerConfig) { cfg.Probe = b.ask })
				defer leaveAll(t, all)
				time.Sleep(2 * absence)
				down(t, all)
				before := all[0].asked.Load()
				stop := callOften(time.Second, all...)
				time.Sleep(299 * time.Second)
				require.Equal(t, before, all[0].asked.Load())
				time.Sleep(25 * time.Minute)
				stop()
				require.InDelta(t, 5, all[0].asked.Load()-before, 1)
			})
		})
	}
}

// A member whose own network is broken asks no more often than the others: each has its turn.
func TestProbesTakeTurns(t *testing.T) {
	for name, takes := range map[string]time.Duration{"fails at once": 0, "hangs": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				var up atomic.Bool
				var asked [4]atomic.Int64
				var all []*server
				for i := range asked {
					s := newServer(t, m, fmt.Sprint("member-", i))
					s.start(func(cfg *resilience.BreakerConfig) {
						cfg.Probe = func(ctx context.Context) error {
							asked[i].Add(1)
							if i > 0 && up.Load() {
								return nil
							}
							if i == 0 {
								select {
								case <-time.After(takes):
								case <-ctx.Done():
								}
							}
							return errBackend
						}
					})
					s.cut.Store(true)
					all = append(all, s)
				}
				defer leaveAll(t, all)
				time.Sleep(2 * absence)
				for i := range 5 {
					require.Error(t, all[i%len(all)].call())
				}
				time.Sleep(4 * time.Minute)
				for i := range asked {
					require.GreaterOrEqual(t, asked[i].Load(), int64(4*60/5/4/2), "member %d", i)
				}
				up.Store(true)
				time.Sleep(16 * time.Second)
				for _, s := range all[1:] {
					require.Equal(t, resilience.StateClosed, s.state())
				}
			})
		})
	}
}
