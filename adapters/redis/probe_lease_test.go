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

// A meter counts what runs.
type meter struct {
	mu                  sync.Mutex
	total, runs, atOnce int
}

func (m *meter) run(f func() error) error {
	m.mu.Lock()
	m.total++
	m.runs++
	m.atOnce = max(m.atOnce, m.runs)
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.runs--
	}()
	return f()
}

// seen returns how many have run, and how many at once.
func (m *meter) seen() (total, atOnce int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total, m.atOnce
}

// callWith calls tool search of a server, as f.
func callWith(s *server, f func(context.Context) error) {
	_, _ = resilience.Do(context.Background(), s.guard, "search", func(ctx context.Context) (string, error) {
		return "", f(ctx)
	})
}

// However many members there are, and whatever their Probes tell, one call at a time is the probe if all are called
// often, and calls are sacrificed as seldom as by one server, also if they hang. Probes that hang are called one at a
// time, too, or two.
func TestOneCallAtATimeIsTheProbe(t *testing.T) {
	for name, probe := range map[string]func(context.Context) error{
		"fail":         func(context.Context) error { return errBackend },
		"tell nothing": func(context.Context) error { return resilience.MarkNeutral(errBackend) },
		"hang":         untilDone,
	} {
		for _, n := range []int{2, 10} {
			t.Run(fmt.Sprintf("Probes %s, %d members", name, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var probes, calls meter
					var over atomic.Bool
					all := servers(t, newModel(), n, func(c *resilience.BreakerConfig) {
						c.Probe = func(ctx context.Context) error {
							if over.Load() {
								return nil
							}
							return probes.run(func() error { return probe(ctx) })
						}
					})
					defer leaveAll(t, all)
					time.Sleep(2 * absence)
					down(t, all)
					stop := repeat(time.Second, func(s *server) {
						callWith(s, func(ctx context.Context) error { return calls.run(func() error { return untilDone(ctx) }) })
					}, all...)
					time.Sleep(15 * time.Minute)
					stop()
					over.Store(true)
					time.Sleep(time.Minute)
					total, atOnce := calls.seen()
					require.Equal(t, 1, atOnce)
					require.LessOrEqual(t, total, 12)
					total, atOnce = probes.seen()
					require.LessOrEqual(t, atOnce, 2)
					require.LessOrEqual(t, total, 300)
				})
			})
		}
	}
}

// A member that isn't called, and whose turn never comes, is no reason to sacrifice more calls of another one.
func TestIdleMemberCostsNoCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls meter
		all := servers(t, newModel(), 2, func(c *resilience.BreakerConfig) {
			c.Probe = func(context.Context) error { return errBackend }
		})
		defer leaveAll(t, all)
		time.Sleep(2 * absence)
		down(t, all)
		stop := repeat(time.Second, func(s *server) {
			callWith(s, func(context.Context) error { return calls.run(func() error { return errBackend }) })
		}, all[0])
		time.Sleep(time.Hour)
		stop()
		total, _ := calls.seen()
		require.LessOrEqual(t, total, 14)
	})
}

// Probes that fail soon after each other reject calls for no longer, once they have done so for ten Cooldowns. They admit no
// more calls by that than one does as the probe, however long that takes.
func TestProbesThatFailAdmitNoCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls meter
		all := servers(t, newModel(), 1, func(c *resilience.BreakerConfig) {
			c.Cooldown, c.ProbeInterval = 10*time.Second, time.Second
			c.Probe = func(context.Context) error { return errBackend }
		})
		defer leaveAll(t, all)
		down(t, all)
		stop := repeat(730*time.Millisecond, func(s *server) {
			go callWith(s, func(context.Context) error {
				return calls.run(func() error {
					time.Sleep(4 * time.Second)
					return errBackend
				})
			})
		}, all[0])
		time.Sleep(90 * time.Minute)
		stop()
		time.Sleep(time.Minute)
		total, _ := calls.seen()
		require.LessOrEqual(t, total, 100)
	})
}

// Probes that tell nothing spend no turn of calls: the one of a healthy member that is called rarely passes soon,
// however often the calls of another one fail.
func TestProbesThatTellNothingSpendNoTurnOfCalls(t *testing.T) {
	for _, pace := range []time.Duration{53 * time.Second, 61 * time.Second, 73 * time.Second} {
		t.Run(pace.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := servers(t, newModel(), 2, func(c *resilience.BreakerConfig) {
					c.Probe = func(context.Context) error { return resilience.MarkNeutral(errBackend) }
				})
				defer leaveAll(t, all)
				time.Sleep(2 * absence)
				down(t, all)
				all[0].broken.Store(false)
				stop := repeat(time.Second, func(s *server) {
					callWith(s, func(context.Context) error { return errBackend })
				}, all[0])
				defer stop()
				begin := time.Now()
				for time.Sleep(pace); all[1].call() != nil; time.Sleep(pace) {
				}
				require.LessOrEqual(t, time.Since(begin), 10*time.Minute)
			})
		})
	}
}

// Beside calls of one member that hang as the probe, each member's Probe has its turn, whatever the others' tell, and they
// are called as often as without such calls.
func TestProbesTakeTurnsBesideACallThatHangs(t *testing.T) {
	for name, probe := range map[string]func(context.Context) error{
		"tell nothing": func(context.Context) error { return resilience.MarkNeutral(errBackend) },
		"crash":        func(context.Context) error { panic("a bug") },
		"hang":         untilDone,
		"fail":         func(context.Context) error { return errBackend },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked [3]atomic.Int64
				var over atomic.Bool
				members := -1
				all := servers(t, newModel(), len(asked), func(c *resilience.BreakerConfig) {
					members++
					me := members
					c.Probe = func(ctx context.Context) error {
						if over.Load() {
							return nil
						}
						asked[me].Add(1)
						if me == 0 {
							return errBackend
						}
						return probe(ctx)
					}
				})
				defer leaveAll(t, all)
				time.Sleep(2 * absence)
				down(t, all)
				stop := repeat(time.Second, func(s *server) { callWith(s, untilDone) }, all[1])
				time.Sleep(10 * time.Minute)
				stop()
				over.Store(true)
				time.Sleep(time.Minute)
				total := int64(0)
				for i := range asked {
					total += asked[i].Load()
				}
				require.GreaterOrEqual(t, total, int64(10*60*2/15))
				for i := range asked {
					require.GreaterOrEqual(t, asked[i].Load(), total/4, "member %d of %d", i, total)
				}
			})
		})
	}
}

// What a Probe can't see, a call must: for a Cooldown, no Probe closes the breaker while the first one that is the probe
// is under way.
func TestNoProbeBesideTheFirstCallAfterARelapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &probed{up: true} // its Probe sees nothing
		all := servers(t, newModel(), 3, func(c *resilience.BreakerConfig) { c.Probe = backend.ask })
		defer leaveAll(t, all)
		time.Sleep(2 * absence)
		down(t, all)
		time.Sleep(10 * time.Second)
		requireAll(t, all, resilience.StateClosed)
		time.Sleep(5 * time.Second)
		down(t, all) // within a Cooldown
		opened := time.Now()
		time.Sleep(31 * time.Second)

		_, err := resilience.Do(t.Context(), all[0].guard, "search", func(context.Context) (string, error) {
			time.Sleep(20 * time.Second)
			return "", errBackend
		})
		require.ErrorIs(t, err, errBackend)
		require.Zero(t, backend.since(opened))
	})
}

// So it does for each member, but for that call alone, and not if Probes may see what is wrong.
func TestWhichCallKeepsProbesOff(t *testing.T) {
	b := resilience.FleetBreaker{
		ID: "listed/search", State: resilience.StateOpen,
		Config: resilience.BreakerConfig{Failures: 1, Cooldown: 4 * time.Second, ProbeInterval: 4 * time.Second},
	}
	for _, relapse := range []bool{false, true} {
		t.Run(fmt.Sprintf("relapse: %t", relapse), func(t *testing.T) {
			_, tick, all := stores(t, 2)
			do := func(n news) {
				n.breaker, n.n, n.quorum = b, 1, 1
				_, err := one(t.Context(), all[0], n)
				require.NoError(t, err)
			}
			lease := func(s *redisStore, cause resilience.Cause) time.Duration {
				r, err := s.lease(t.Context(), b, cause)
				require.NoError(t, err)
				return duration(r.Wait)
			}

			do(news{op: "failure"})
			var off time.Duration
			if relapse {
				do(news{op: "recovered", cause: resilience.CauseProbe})
				do(news{op: "failure"})
				off = leaseTerm
			}
			tick(b.Config.Cooldown)
			require.Zero(t, lease(all[0], resilience.CauseCalls))
			if relapse {
				require.Equal(t, off, lease(all[0], resilience.CauseProbe))
			}
			require.Equal(t, off, lease(all[1], resilience.CauseProbe))

			do(news{op: "failure", probe: true, cause: resilience.CauseCalls})
			tick(2 * b.Config.Cooldown)
			require.Zero(t, lease(all[1], resilience.CauseCalls))
			require.Zero(t, lease(all[1], resilience.CauseProbe))
		})
	}
}

// Members whose ProbeIntervals differ take turns, too: a Probe that tells nothing, and is called more often, keeps none of
// another member off.
func TestProbesOfDifferentIntervalsTakeTurns(t *testing.T) {
	for _, intervals := range [][2]time.Duration{{5 * time.Second, 15 * time.Second}, {time.Second, 5 * time.Second}, {time.Second, time.Minute}} {
		t.Run(fmt.Sprint(intervals), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				members := -1
				all := servers(t, newModel(), 2, func(c *resilience.BreakerConfig) {
					members++
					c.ProbeInterval = intervals[members]
					c.Probe = func(context.Context) error { return nil }
					if members == 0 {
						c.Probe = func(context.Context) error { return resilience.MarkNeutral(errBackend) }
					}
				})
				defer leaveAll(t, all)
				time.Sleep(2 * absence)
				down(t, all)
				time.Sleep(20 * intervals[1])
				requireAll(t, all, resilience.StateClosed)
			})
		})
	}
}

// However short a Cooldown is, Probes that tell nothing are called no more often by many members than by one.
func TestProbesOfShortCooldownsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var probes meter
		var over atomic.Bool
		all := servers(t, newModel(), 20, func(c *resilience.BreakerConfig) {
			c.Cooldown = 100 * time.Millisecond
			c.Probe = func(context.Context) error {
				if over.Load() {
					return nil
				}
				return probes.run(func() error { return resilience.MarkNeutral(errBackend) })
			}
		})
		defer leaveAll(t, all)
		time.Sleep(2 * absence)
		down(t, all)
		time.Sleep(10 * time.Minute)
		over.Store(true)
		time.Sleep(time.Minute)
		total, _ := probes.seen()
		require.LessOrEqual(t, total, 10*60*2/5)
	})
}
