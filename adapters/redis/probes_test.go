package redisfleet

import (
	"cmp"
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
	fails   error // nil means errBackend
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
	return cmp.Or(b.fails, errBackend)
}

// since returns how many Probes have begun since then.
func (b *probed) since(at time.Time) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, begun := range b.begun {
		if begun.After(at) {
			n++
		}
	}
	return n
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
// them have the breaker; but after a Probe that hangs, or tells nothing, others may take half an interval.
func TestFleetProbesAsOftenAsOneServer(t *testing.T) {
	const interval = 5 * time.Second
	for _, c := range []struct {
		members, called int
		cooldown, takes time.Duration
		longest         time.Duration
		tells           error // instead of the backend's failure
	}{
		{1, 1, 30 * time.Second, 0, interval, nil},
		{2, 2, time.Minute, 0, interval * 11 / 10, nil},
		{3, 3, 5 * time.Minute, 0, interval * 11 / 10, nil},
		{10, 10, 30 * time.Second, 0, interval * 11 / 10, nil},
		{10, 10, 5 * time.Minute, 0, interval * 11 / 10, nil},
		{3, 1, 5 * time.Minute, 0, interval * 11 / 10, nil},
		{10, 2, 30 * time.Second, 0, interval * 11 / 10, nil},
		{1, 1, 30 * time.Second, interval - 1, interval * 11 / 10, nil},
		{10, 1, time.Minute, interval - 1, interval * 11 / 10, nil},
		{2, 2, 30 * time.Second, interval - 1, interval*3/2 + time.Second, nil},
		{10, 10, 30 * time.Second, interval - 1, interval*3/2 + time.Second, nil},
		{3, 3, 30 * time.Second, time.Second, interval * 3 / 2, nil},
		{10, 10, 30 * time.Second, 0, interval*3/2 + time.Second, resilience.MarkNeutral(errBackend)},
		{50, 50, 5 * time.Second, 0, interval*3/2 + time.Second, resilience.MarkNeutral(errBackend)},
	} {
		name := fmt.Sprintf("%d of %d, %v, takes %v, tells nothing: %t", c.called, c.members, c.cooldown, c.takes, c.tells != nil)
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &probed{takes: c.takes, fails: c.tells}
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
				outage := 4 * time.Minute
				if c.tells == nil {
					outage = min(outage, 9*c.cooldown)
				}
				time.Sleep(outage)
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

// A member that asks for no Probes any more holds no others up: they ask the backend as often as one server does, for as
// long as the outage lasts, and calls after it are no flood.
func TestMemberThatAsksForNoProbesIsOwedNone(t *testing.T) {
	t.Parallel() // it takes long
	for name, odd := range map[string]func(*server){
		"none":                 func(*server) {},
		"isolated for itself":  func(s *server) { s.guard.Breaker("search").Isolate("not here") },
		"reset for itself":     func(s *server) { s.guard.Breaker("search").Reset() },
		"closed, and still in": func(s *server) { _, _ = s.guard.Close(context.Background()) },
		"gone without a word": func(s *server) {
			s.store.down.Store(true)
			_, _ = s.guard.Close(context.Background())
		},
		"told of nothing by it": func(s *server) { s.store.deafen() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &probed{}
				all := servers(t, newModel(), 20, func(cfg *resilience.BreakerConfig) { cfg.Probe = b.ask })
				time.Sleep(2 * absence)
				down(t, all)
				time.Sleep(20 * time.Second)
				odd(all[0])

				for range 8 {
					begin := time.Now()
					time.Sleep(150 * time.Second)
					require.LessOrEqual(t, b.since(begin), 50, "one server sends 40")
				}
				before := all[1].asked.Load()
				var calls sync.WaitGroup
				for _, s := range all[1:] {
					calls.Go(func() { s.callSlowly() })
				}
				calls.Wait()
				require.LessOrEqual(t, all[1].asked.Load()-before, int64(1))

				for _, s := range all {
					s.store.down.Store(false)
				}
				leaveAll(t, all)
			})
		})
	}
}

// A backend that asks for time, when one member's Probe asks it, has that of all.
func TestProbesHeedWhatTheBackendHasToldAnother(t *testing.T) {
	const wish = 20 * time.Second
	for _, members := range []int{1, 2, 5, 20} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &probed{fails: &resilience.Error{Code: resilience.CodeConnectionLost, Retryable: true, RetryAfter: wish}}
				all := servers(t, newModel(), members, func(cfg *resilience.BreakerConfig) { cfg.Probe = b.ask })
				defer leaveAll(t, all)
				time.Sleep(2 * absence)
				down(t, all)
				time.Sleep(4 * time.Minute)
				shortest, longest := b.gaps()
				require.GreaterOrEqual(t, shortest, wish)
				require.LessOrEqual(t, longest, wish+5*time.Second)
			})
		})
	}
}

// While a Probe hangs, calls are kept out for as long as by those before it, also if Redis can't be reached any more.
func TestRedisDiesDuringAProbeThatHangs(t *testing.T) {
	for _, members := range []int{1, 5, 20} {
		for after := range 8 {
			t.Run(fmt.Sprint(members, ", ", after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					all := servers(t, newModel(), members, func(cfg *resilience.BreakerConfig) {
						cfg.Probe = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
					})
					time.Sleep(2 * absence)
					down(t, all)
					stop := callOften(time.Second, all...)
					time.Sleep(45*time.Second + time.Duration(after)*time.Second)
					before := all[0].asked.Load()
					setDown(all, true)
					time.Sleep(20 * time.Second)
					require.Equal(t, before, all[0].asked.Load())
					stop()
					setDown(all, false)
					leaveAll(t, all)
					for _, s := range all {
						_, _ = s.guard.Close(t.Context())
					}
					time.Sleep(time.Second) // until the Probes have noticed
				})
			})
		}
	}
}

// However soon calls are the probe, and fail, they put no Probe off. One that tells nothing is followed by another
// member's within one and a half intervals.
func TestCallsOfAFleetPutNoProbeOff(t *testing.T) {
	for _, members := range []int{1, 5} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &probed{fails: resilience.MarkNeutral(errBackend)}
				all := servers(t, newModel(), members, func(cfg *resilience.BreakerConfig) {
					cfg.Cooldown, cfg.Probe = time.Second, b.ask
				})
				time.Sleep(2 * absence)
				down(t, all)
				stop := callOften(100*time.Millisecond, all...)
				time.Sleep(10 * time.Minute)
				stop()
				least := 10 * 60 / 5
				if members > 1 {
					least = 10 * 60 * 2 / 15
				}
				require.GreaterOrEqual(t, b.since(time.Time{}), least-1)
				require.LessOrEqual(t, b.since(time.Time{}), 10*60*2/5)
				leaveAll(t, all)
			})
		})
	}
}

// A Probe that can't see what is wrong closes the breaker once in a Cooldown, also if a member hasn't heard that it has.
func TestProbeThatSeesNothingClosesOnceInACooldown(t *testing.T) {
	for name, late := range map[string]func(all []*server, join func() *server, closes func()) *server{
		"has heard":   func(all []*server, _ func() *server, closes func()) *server { closes(); return all[1] },
		"joins later": func(_ []*server, join func() *server, closes func()) *server { closes(); return join() },
		"was deaf": func(all []*server, _ func() *server, closes func()) *server {
			hear := all[1].store.deafen()
			closes()
			hear()
			return all[1]
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, backend := newModel(), &probed{up: true}
				probe := func(cfg *resilience.BreakerConfig) { cfg.Probe = backend.ask }
				all := servers(t, m, 2, probe)
				time.Sleep(2 * absence)
				state := func() string { return m.breaker("listed/search").State }
				opens := func(first, second *server) {
					for _, s := range []*server{first, second, first, second, first} {
						s.broken.Store(true)
						require.ErrorIs(t, s.call(), errBackend)
					}
					require.Equal(t, "open", state())
				}
				closes := func() {
					time.Sleep(6 * time.Second)
					require.Equal(t, "closed", state())
				}

				opens(all[0], all[1])
				s := late(all, func() *server {
					s := newServer(t, m, "late")
					s.start(probe)
					all = append(all, s)
					return s
				}, closes)
				asked := backend.since(time.Time{})
				opens(all[0], s)
				time.Sleep(29 * time.Second)
				require.Equal(t, "open", state())
				require.Equal(t, asked, backend.since(time.Time{}))

				s.broken.Store(false)
				time.Sleep(2 * time.Second)
				require.NoError(t, s.call(), "it is the probe, unless a Probe was")
				time.Sleep(30 * time.Second)
				opens(all[0], s)
				closes()
				leaveAll(t, all)
			})
		})
	}
}

// A backend that fails again soon after a Probe has closed the breaker is asked by no Probe until a call has been the probe in
// vain. Then all members' Probes ask again, each in its turn: the network of the first one may be what is broken.
func TestProbesOfAllAfterARelapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var probes [3]atomic.Int64
		m := newModel()
		var all []*server
		for i := range probes {
			s := newServer(t, m, fmt.Sprint("member-", i))
			if i > 0 {
				s.broken, s.asked = all[0].broken, all[0].asked
			}
			s.start(func(c *resilience.BreakerConfig) {
				c.Probe = func(context.Context) error {
					probes[i].Add(1)
					if s.cut.Load() || s.broken.Load() {
						return errBackend
					}
					return nil
				}
			})
			all = append(all, s)
		}
		defer leaveAll(t, all)
		down(t, all)
		all[0].broken.Store(false)
		time.Sleep(15 * time.Second)
		requireAll(t, all, resilience.StateClosed)
		for i := range probes {
			probes[i].Store(0)
		}
		down(t, all)
		time.Sleep(31 * time.Second)
		all[0].cut.Store(true)
		require.Error(t, all[0].call())
		time.Sleep(time.Minute)
		for i := range probes {
			require.NotZero(t, probes[i].Load(), "member %d", i)
		}

		all[0].broken.Store(false)
		time.Sleep(30 * time.Second)
		requireAll(t, all, resilience.StateClosed)
	})
}

// Calls have opened the breaker again soon after a Probe had closed it, which therefore can't see what is wrong. That
// doesn't change when the opening is told again, after Redis has lost its memory, or went back to an older one.
func TestNoProbeOfAnOpeningThatIsToldAgain(t *testing.T) {
	for name, how := range map[string]func(*model) func(){
		"kept":    func(*model) func() { return func() {} },
		"flushed": func(m *model) func() { return m.flush },
		"older":   func(m *model) func() { return m.snapshot() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, backend := newModel(), &probed{up: true} // its Probe sees nothing
				all := servers(t, m, 3, func(c *resilience.BreakerConfig) { c.Probe = backend.ask })
				defer leaveAll(t, all)
				time.Sleep(2 * absence)
				down(t, all)
				time.Sleep(10 * time.Second)
				requireAll(t, all, resilience.StateClosed)

				time.Sleep(15 * time.Second)
				lose := how(m)
				down(t, all) // within a Cooldown
				opened := time.Now()
				time.Sleep(9 * time.Second)
				failOver(all, lose)
				time.Sleep(18 * time.Second)
				require.Zero(t, backend.since(opened))
				requireAll(t, all, resilience.StateOpen)
			})
		})
	}
}

// A call of one member that hangs as the probe keeps none of the others' Probes, which close the breaker soon after the
// backend answers. The Probes of that member hang, too, or tell nothing.
func TestProbesBesideACallThatHangs(t *testing.T) {
	for name, own := range map[string]func(context.Context) error{
		"hang":         untilDone,
		"tell nothing": func(context.Context) error { return resilience.MarkNeutral(errBackend) },
	} {
		for range 5 { // when Probes are called is a matter of chance
			t.Run("its Probes "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testProbesBesideACallThatHangs(t, own) })
			})
		}
	}
}

func testProbesBesideACallThatHangs(t *testing.T, own func(context.Context) error) {
	m, backend := newModel(), new(probed)
	all := servers(t, m, 3, func(c *resilience.BreakerConfig) {
		c.Probe = backend.ask
		if len(m.members) == 0 {
			c.Probe = own
		}
	})
	defer leaveAll(t, all)
	time.Sleep(2 * absence)
	down(t, all)
	time.Sleep(6 * time.Minute) // no Probe keeps calls out for so long
	hung := make(chan error, 1)
	go func() {
		_, err := resilience.Do(context.Background(), all[0].guard, "search", func(ctx context.Context) (string, error) {
			return "", untilDone(ctx)
		})
		hung <- err
	}()
	synctest.Wait()
	backend.mu.Lock()
	backend.up = true
	backend.mu.Unlock()
	time.Sleep(25 * time.Second)
	require.Empty(t, hung)
	requireAll(t, all[1:], resilience.StateClosed)
	require.ErrorIs(t, <-hung, resilience.CodeTimeout)
}

func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}
