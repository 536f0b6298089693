package resilience_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A testFleet notes what it is told, and grants each lease unless lease says otherwise.
type testFleet struct {
	mu      sync.Mutex
	results []resilience.FleetResult
	asked   int
	lease   func(context.Context) (bool, time.Duration)
	report  func()
}

func (f *testFleet) Report(results []resilience.FleetResult) {
	if f.report != nil {
		f.report()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.results = append(f.results, results...)
}

func (f *testFleet) Lease(ctx context.Context, _ resilience.FleetBreaker, _ resilience.Cause) (bool, time.Duration) {
	f.mu.Lock()
	f.asked++
	lease := f.lease
	f.mu.Unlock()
	if lease != nil {
		return lease(ctx)
	}
	return true, 0
}

// leases returns how often the fleet was asked for one.
func (f *testFleet) leases() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// told returns what the fleet was told, as text.
func (f *testFleet) told() (all []string) {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.results {
		all = append(all, fmt.Sprintf("%s success=%t probe=%t %v", r.Breaker.ID, r.Success, r.Probe, r.Cause))
	}
	f.results = nil
	return all
}

// joined returns a guard with the tool x that is a member of f.
func joined(
	t *testing.T, f resilience.Fleet, cfg resilience.BreakerConfig,
) (*resilience.Guard, *resilience.FleetMember) {
	t.Helper()
	g := newGuard(t, resilience.Config{
		Tools: map[string]resilience.Tool{"x": {}}, Breaker: cfg, Log: slog.New(slog.DiscardHandler),
	})
	m, err := g.JoinFleet("test", f)
	require.NoError(t, err)
	return g, m
}

// opened tells a member that the fleet has opened the breaker of x for d.
func opened(t *testing.T, m *resilience.FleetMember, d time.Duration) {
	t.Helper()
	require.True(t, m.Apply(resilience.FleetChange{
		Breaker: "listed/x", State: resilience.StateOpen, RetryAfter: d, Time: time.Now(),
	}))
}

// A fleet knows of successes that aren't reported, too, as nobody waits for them.
func TestFleetKnowsWhenACallHasSucceededLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{Failures: 2, Cooldown: time.Second})
		known := func() time.Time {
			b, ok := m.Breaker("listed/x")
			require.True(t, ok)
			return b.Succeeded
		}
		require.Zero(t, known())

		time.Sleep(time.Second)
		for range 2 {
			time.Sleep(time.Second)
			_, _ = resilience.Do(t.Context(), g, "x", succeed)
		}
		last := time.Now()
		require.Equal(t, last, known())

		for range 2 {
			time.Sleep(time.Second)
			_, _ = resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) { return 0, errBoom })
		}
		require.Equal(t, resilience.StateOpen, g.Breaker("x").State())
		require.Equal(t, last, known())
	})
}

func TestFleetIsToldWhatItHasToKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(testFleet)
		g, m := joined(t, f, resilience.BreakerConfig{Failures: 2, Cooldown: time.Second})
		down := func(context.Context) (int, error) { return 0, errBoom }
		mistake := func(context.Context) (int, error) { return 0, resilience.MarkInvalid(errBoom) }
		call := func(fn func(context.Context) (int, error)) { _, _ = resilience.Do(t.Context(), g, "x", fn) }

		call(succeed)
		assert.Empty(t, f.told(), "successes of a breaker without failures")
		call(mistake)
		assert.Empty(t, f.told(), "what says nothing")
		call(down)
		assert.Equal(t, []string{"listed/x success=false probe=false calls"}, f.told())
		call(succeed)
		call(succeed)
		assert.Equal(t, []string{"listed/x success=true probe=false calls"}, f.told(), "once, though the fleet has said nothing")

		call(down)
		m.Apply(resilience.FleetChange{Breaker: "listed/x", Time: time.Now()})
		f.told()
		call(succeed)
		assert.Equal(t, []string{"listed/x success=true probe=false calls"}, f.told(), "the fleet may not have heard of it")

		m.Apply(resilience.FleetChange{Breaker: "listed/x", Failures: 1, Time: time.Now()})
		call(succeed)
		call(succeed)
		assert.Equal(t, []string{"listed/x success=true probe=false calls"}, f.told(), "once")

		m.Apply(resilience.FleetChange{Breaker: "listed/x", Failures: 1, Time: time.Now()})
		call(mistake)
		assert.Empty(t, f.told(), "it takes a success")
		m.Apply(resilience.FleetChange{Breaker: "listed/x", Time: time.Now()})
		call(succeed)
		assert.Empty(t, f.told(), "the fleet has no failures any more")

		call(down)
		call(down)
		f.told()
		time.Sleep(time.Second)
		call(mistake)
		assert.Empty(t, f.told(), "a probe that says nothing")
		call(down)
		assert.Equal(t, []string{"listed/x success=false probe=true calls"}, f.told())
		time.Sleep(time.Second)
		call(succeed)
		assert.Equal(t, []string{"listed/x success=true probe=true calls"}, f.told())

		m.Apply(resilience.FleetChange{
			Breaker: "listed/x", State: resilience.StateOpen, RetryAfter: time.Second, Failures: 2, Time: time.Now(),
		})
		time.Sleep(time.Second)
		call(succeed)
		call(succeed)
		assert.Equal(t, []string{"listed/x success=true probe=true calls"}, f.told(), "it has failures while it is closed")

		call(func(context.Context) (int, error) { g.Breaker("x").Trip(time.Hour); return 0, errBoom })
		assert.Empty(t, f.told(), "a call that an earlier state has admitted")
	})
}

// What waits while the fleet is told of something else, it is told at once, in order, and no more than that.
func TestFleetIsToldTogetherOfWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reports := 0
		f := &testFleet{report: func() {
			reports++
			time.Sleep(time.Minute)
		}}
		g, m := joined(t, f, resilience.BreakerConfig{Failures: 5000})
		for range 2000 {
			_, err := resilience.Do(t.Context(), g, "x", failing(1, errBoom))
			require.ErrorIs(t, err, errBoom)
			synctest.Wait()
		}
		require.NoError(t, m.Leave(t.Context()))
		assert.Equal(t, 2, reports)
		require.Len(t, f.results, 1+1024)
		for i, r := range f.results {
			require.Equal(t, i+1, r.Breaker.Failures)
			require.Equal(t, i == 1024, r.Lost, "result %d", i)
		}
	})
}

// A success that is lost doesn't count as told.
func TestNextSuccessIsToldAfterOneThatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := make(chan struct{})
		f := &testFleet{report: func() { <-blocks }}
		g, _ := joined(t, f, resilience.BreakerConfig{Failures: 5000})
		for range 2000 {
			_, err := resilience.Do(t.Context(), g, "x", failing(1, errBoom))
			require.ErrorIs(t, err, errBoom)
			synctest.Wait()
		}
		call := func() {
			_, err := resilience.Do(t.Context(), g, "x", succeed)
			require.NoError(t, err)
		}
		call()
		close(blocks)
		require.NotContains(t, f.told(), "listed/x success=true probe=false calls")
		call()
		require.Equal(t, []string{"listed/x success=true probe=false calls"}, f.told())
		call()
		require.Empty(t, f.told())
	})
}

func TestFleetIsToldOfProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(testFleet)
		var backend probedBackend
		_, m := joined(t, f, resilience.BreakerConfig{Probe: backend.probe})
		opened(t, m, time.Minute)
		time.Sleep(5 * time.Second)
		assert.Contains(t, f.told(), "listed/x success=false probe=true probe")
		backend.up.Store(true)
		time.Sleep(5 * time.Second)
		assert.Equal(t, []string{"listed/x success=true probe=true probe"}, f.told())
	})
}

// The other members give the backend the time that it has asked for, which is a Cooldown at most.
func TestFleetIsToldWhatAProbeWasAskedToWait(t *testing.T) {
	for wish, want := range map[time.Duration]time.Duration{0: 0, 7 * time.Second: 7 * time.Second, time.Hour: 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := new(testFleet)
			busy := resilience.ConnectionLostError("busy")
			busy.RetryAfter = wish
			_, m := joined(t, f, resilience.BreakerConfig{Probe: func(context.Context) error { return busy }})
			opened(t, m, time.Minute)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			f.mu.Lock()
			defer f.mu.Unlock()
			require.NotEmpty(t, f.results)
			assert.Equal(t, want, f.results[0].RetryAfter)
		})
	}
}

func TestFleetIsNotToldOfProbesThatSayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(testFleet)
		_, m := joined(t, f, resilience.BreakerConfig{Probe: func(context.Context) error { panic("no answer") }})
		opened(t, m, time.Minute)
		time.Sleep(20 * time.Second)
		assert.NotZero(t, f.leases(), "Probe was called")
		assert.Empty(t, f.told())
	})
}

func TestNewBreakerHasTheStateOfTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
		for _, id := range []string{"unlisted/new", "listed/x/e%2Fu", "unlisted/new/key"} {
			require.True(t, m.Apply(resilience.FleetChange{
				Breaker: id, State: resilience.StateOpen, RetryAfter: time.Minute, Time: time.Now(),
			}))
		}
		time.Sleep(10 * time.Second)

		for _, call := range []struct{ tool, key string }{{"new", ""}, {"x", "e/u"}, {"new", "key"}} {
			r := resilience.Run(t.Context(), g, call.tool, notCalled(t), resilience.BreakerKey(call.key))
			require.ErrorIs(t, r.Err, resilience.CodeCircuitOpen, "%+v", call)
			assert.Equal(t, 50*time.Second, r.Err.RetryAfter)
		}
		for _, id := range []string{"listed/x/e%2Fu", "unlisted/new", "unlisted/new/key"} {
			view, ok := m.Breaker(id)
			assert.True(t, ok, id)
			assert.Equal(t, id, view.ID)
			assert.Equal(t, 50*time.Second, view.RetryAfter)
		}
		_, err := resilience.Do(t.Context(), g, "x", succeed)
		require.NoError(t, err)
		_, err = resilience.Do(t.Context(), g, "x", succeed, resilience.BreakerKey("us"))
		require.NoError(t, err)

		b, ok := m.Breaker("listed/x/e%2Fu")
		require.True(t, ok)
		assert.Equal(t, "x/e/u", b.Name)
		for _, id := range []string{"", "listed", "listed/y", "other/x", "other/new", "listed/x/a/b", "listed/%zz", "unlisted/x/%zz"} {
			_, ok := m.Breaker(id)
			assert.False(t, ok, "%q", id)
		}
	})
}

func TestNewBreakerIsNotOpenAnyMoreIfTheFleetHasClosedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
		for _, c := range []resilience.FleetChange{fleetOpens, fleetCloses} {
			c.Breaker, c.Time = "unlisted/new", time.Now()
			require.True(t, m.Apply(c))
		}
		_, err := resilience.Do(t.Context(), g, "new", succeed)
		assert.NoError(t, err)
	})
}

// What the fleet has said last counts for the next breaker of a key, also if the last one knew more.
func TestNewBreakerIsNotOpenAnyMoreThoughTheLastOneKnewMore(t *testing.T) {
	for name, failures := range map[string]int{"the fleet has closed it": 0, "and it has failed since": 2} {
		runInBubble(t, name, func(t *testing.T) {
			const id = "listed/x/eu"
			g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
			call := func(key string) error {
				_, err := resilience.Do(t.Context(), g, "x", succeed, resilience.BreakerKey(key))
				return err
			}
			require.NoError(t, call("eu"))
			c := fleetOpens
			c.Breaker, c.Time, c.RetryAfter = id, time.Now(), time.Second
			require.True(t, m.Apply(c))

			time.Sleep(2 * time.Second)
			asked := time.Now()
			time.Sleep(time.Millisecond)
			require.NoError(t, call("eu"), "it is the probe")
			require.False(t, m.Apply(resilience.FleetChange{Breaker: id, Failures: failures, Time: asked}))

			for i := range 2000 {
				require.NoError(t, call(fmt.Sprint(i)))
			}
			_, has := m.Breaker(id)
			require.False(t, has, "it is forgotten")
			require.NoError(t, call("eu"))
			b, _ := m.Breaker(id)
			assert.Zero(t, b.Changed, "it was closed from the beginning")
		})
	}
}

// A half-open breaker whose probe has told nothing is opened by the fleet; one with a probe under way isn't.
func TestFleetOpensAHalfOpenBreakerWithoutAProbe(t *testing.T) {
	for name, ends := range map[string]bool{"a probe under way": false, "none": true} {
		runInBubble(t, name, func(t *testing.T) {
			g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
			b := g.Breaker("x")
			opened(t, m, time.Second)
			time.Sleep(time.Second)
			done, err := b.Allow()
			require.NoError(t, err)
			if ends {
				done(resilience.MarkInvalid(errBoom))
			}
			opened(t, m, time.Minute)
			assert.Equal(t, map[bool]resilience.State{false: resilience.StateHalfOpen, true: resilience.StateOpen}[ends], b.State())
		})
	}
}

// What a member's own Probe has found out is newer than a change of before.
func TestOlderChangeThanByAProbeIsNotApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var backend probedBackend
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{Probe: backend.probe})
		opened(t, m, time.Minute)
		before := time.Now()
		backend.up.Store(true)
		time.Sleep(10 * time.Second)
		require.Equal(t, resilience.StateClosed, g.Breaker("x").State())
		c := fleetOpens
		c.Breaker, c.Time, c.RetryAfter = "listed/x", before, time.Hour
		assert.False(t, m.Apply(c))
		assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
	})
}

// Whatever a Fleet does, a call is answered, and a breaker recovers.
func TestFleetThatMisbehaves(t *testing.T) {
	fleets := map[string]func(context.Context) (bool, time.Duration){
		"panics":             func(context.Context) (bool, time.Duration) { panic("boom") },
		"blocks":             func(context.Context) (bool, time.Duration) { select {} },
		"denies for ever":    func(context.Context) (bool, time.Duration) { return false, time.Hour },
		"denies for no time": func(context.Context) (bool, time.Duration) { return false, -1 },
	}
	for name, lease := range fleets {
		t.Run(name, func(t *testing.T) {
			f := &testFleet{lease: lease, report: func() { panic("boom") }}
			g, m := joined(t, f, resilience.BreakerConfig{Cooldown: 5 * time.Millisecond})
			opened(t, m, time.Millisecond)
			require.Eventually(t, func() bool {
				_, err := resilience.Do(t.Context(), g, "x", succeed)
				m.Apply(resilience.FleetChange{Breaker: "unlisted/y", State: resilience.StateOpen, Time: time.Now()})
				return err == nil
			}, 20*time.Second, 5*time.Millisecond)
		})
	}
}

func TestFleetSeesTheStateOfABreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{
			ProbeTimeout: 10 * time.Second, ProbeInterval: 40 * time.Second,
			Probe: func(context.Context) error {
				time.Sleep(10 * time.Second)
				return resilience.MarkInvalid(errBoom)
			},
		})
		b := g.Breaker("x")
		view := func() resilience.FleetBreaker {
			v, ok := m.Breaker("listed/x")
			assert.True(t, ok)
			return v
		}
		trip(t, b)
		opened := view()
		assert.Equal(t, 5, opened.Failures)
		assert.Equal(t, resilience.CauseCalls, opened.Cause)
		assert.Equal(t, time.Now(), opened.Changed)
		assert.Equal(t, 30*time.Second, opened.RetryAfter)
		time.Sleep(time.Second)
		b.Reset()
		closed := view()
		assert.Zero(t, closed.Failures)
		assert.Equal(t, resilience.CauseManual, closed.Cause)
		assert.Equal(t, time.Now(), closed.Changed)
		assert.Zero(t, closed.RetryAfter)

		probing := func() bool {
			return view().Probing
		}

		done, err := b.Allow()
		require.NoError(t, err)
		assert.False(t, probing(), "a call of a closed breaker")
		done(nil)

		b.Trip(15 * time.Second) // before Probe is called
		time.Sleep(15 * time.Second)
		assert.False(t, probing())
		done, err = b.Allow()
		require.NoError(t, err)
		assert.True(t, probing(), "the call is the probe")
		done(context.Canceled)
		assert.False(t, probing())

		for range 37 { // Probe runs, and tells nothing
			time.Sleep(time.Second)
			assert.False(t, probing())
		}
		_, err = b.Allow()
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		assert.True(t, probing(), "the probe may still report")
		b.Reset()

		b.Trip(time.Second)
		time.Sleep(time.Second)
		go resilience.Do(t.Context(), g, "x", pausedFor(10*time.Second))
		synctest.Wait()
		assert.False(t, probing(), "a probe that is paused keeps nobody from being it")
		time.Sleep(10 * time.Second)
	})
}

// A Probe that can't see what is wrong must not make the breakers of a fleet open and close by turns.
func TestProbeOfAnotherMemberClosesOnceInACooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var backend probedBackend
		backend.up.Store(true)
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{Probe: backend.probe})
		opened(t, m, time.Minute)
		m.Apply(resilience.FleetChange{Breaker: "listed/x", Cause: resilience.CauseProbe, Time: time.Now()})
		opened(t, m, time.Minute)
		time.Sleep(20 * time.Second)
		assert.Zero(t, backend.asked.Load())
		assert.Equal(t, resilience.StateOpen, g.Breaker("x").State())
	})
}

// For a Cooldown after a Probe has closed the breaker, Probe can't see what is wrong, whatever the fleet says. Then the news
// that a call has been the probe in vain is that it may ask again.
func TestProbeAsksAgainAfterACooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var backend probedBackend
		_, m := joined(t, new(testFleet), resilience.BreakerConfig{Probe: backend.probe})
		opened(t, m, time.Minute)
		m.Apply(resilience.FleetChange{Breaker: "listed/x", Cause: resilience.CauseProbe, Time: time.Now()})
		opened(t, m, time.Minute)
		time.Sleep(15 * time.Second)
		opened(t, m, time.Minute)
		time.Sleep(14 * time.Second)
		assert.Zero(t, backend.asked.Load())

		time.Sleep(2 * time.Second)
		opened(t, m, time.Minute)
		time.Sleep(10 * time.Second)
		assert.NotZero(t, backend.asked.Load())
	})
}

// Servers of a fleet may have different configurations.
func TestProbeOfAnotherMemberClosesABreakerWithoutOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
		opened(t, m, time.Minute)
		m.Apply(resilience.FleetChange{Breaker: "listed/x", Cause: resilience.CauseProbe, Time: time.Now()})
		assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
	})
}

// What calls of another member have found out doesn't keep this one's Probe from closing the breaker.
func TestCallOfAnotherMemberClosesAsOftenAsItWants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var backend probedBackend
		backend.up.Store(true)
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{Probe: backend.probe})
		opened(t, m, time.Minute)
		change(t, m, fleetCloses)
		opened(t, m, time.Minute)
		time.Sleep(10 * time.Second)
		assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
	})
}

func TestObserversOfAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var changes []string
		g := newGuard(t, resilience.Config{
			Tools: map[string]resilience.Tool{"x": {}}, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Observers: []resilience.Observer{{
				Breaker: func(e resilience.BreakerChange) { changes = append(changes, fmt.Sprint(e.To, " ", e.Cause)) },
				Connection: func(e resilience.ConnectionChange) {
					assert.Equal(t, time.Now(), e.Time)
					changes = append(changes, fmt.Sprint(e.Connection, " ", e.State, " ", e.Err))
				},
			}},
		})
		m, err := g.JoinFleet("test", new(testFleet))
		require.NoError(t, err)

		for range 3 {
			m.Connected(errors.New("i/o timeout"))
		}
		m.Connected(nil)
		m.Connected(nil)
		opened(t, m, time.Minute)
		m.Apply(resilience.FleetChange{Breaker: "listed/x", Time: time.Now()})
		require.NoError(t, g.Flush(t.Context()))
		assert.Equal(t, []string{"test down i/o timeout", "test up <nil>", "open fleet", "closed fleet"}, changes)
		assert.Equal(t, 1, strings.Count(log.String(), "decide alone"))
		assert.Equal(t, 1, strings.Count(log.String(), "again"))
	})
}

// However an engine's goroutines say so, each change follows another.
func TestConnectionsOfAFleetAreObservedInOrder(t *testing.T) {
	for range 2_000 {
		var states []resilience.ConnectionState
		g := newGuard(t, resilience.Config{Log: slog.New(slog.DiscardHandler), Observers: []resilience.Observer{{
			Connection: func(e resilience.ConnectionChange) { states = append(states, e.State) },
		}}})
		m, err := g.JoinFleet("test", new(testFleet))
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { m.Connected(errBoom) })
			wg.Go(func() { m.Connected(nil) })
		}
		wg.Wait()
		require.NoError(t, g.Flush(t.Context()))
		for i, s := range states {
			want := []resilience.ConnectionState{resilience.ConnectionDown, resilience.ConnectionUp}[i%2]
			require.Equal(t, want, s, "%v", states)
		}
	}
}

func TestJoinAndLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
		_, err := g.JoinFleet("other", new(testFleet))
		require.ErrorContains(t, err, "must leave that first")
		_, err = g.JoinFleet("other", nil)
		require.ErrorContains(t, err, "the Fleet is nil")

		require.Len(t, m.Breakers(), 1)
		require.NoError(t, m.Leave(t.Context()))
		assert.False(t, m.Apply(resilience.FleetChange{Breaker: "listed/x", State: resilience.StateOpen, Time: time.Now()}))
		assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())

		f := &testFleet{report: func() { time.Sleep(time.Hour) }}
		m, err = g.JoinFleet("other", f)
		require.NoError(t, err)
		_, _ = resilience.Do(t.Context(), g, "x", failing(1, errBoom))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, m.Leave(ctx), context.DeadlineExceeded)
		require.NoError(t, m.Leave(t.Context()))
		assert.Len(t, f.told(), 1)
	})
}

// A breaker of a former fleet recovers by itself if it is open, and by the next fleet's word if it is isolated.
func TestNextFleetEndsIsolations(t *testing.T) {
	for name, c := range map[string]struct {
		before  resilience.FleetChange
		closes  resilience.FleetChange
		becomes resilience.State
	}{
		"isolated":               {before: fleetIsolates, closes: fleetCloses, becomes: resilience.StateClosed},
		"isolated, with a reset": {before: fleetIsolates, closes: fleetResets, becomes: resilience.StateClosed},
		"open":                   {before: fleetOpens, closes: fleetCloses, becomes: resilience.StateOpen},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
			change(t, m, c.before)
			require.NoError(t, m.Leave(t.Context()))
			m, err := g.JoinFleet("other", new(testFleet))
			require.NoError(t, err)
			require.Equal(t, c.before.State, g.Breaker("x").State())
			change(t, m, c.closes)
			require.Equal(t, c.becomes, g.Breaker("x").State())
		})
	}
}

// What was done by hand in a former fleet is none of the next one's.
func TestNextFleetKnowsNothingOfTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
		isolate, reset := again(m, fleetIsolates), fleetResets
		reset.Breaker, reset.Time = "listed/x", time.Now()
		isolate()
		g.Breaker("x").Reset()
		time.Sleep(time.Second)
		change(t, m, fleetResets)
		require.NoError(t, m.Leave(t.Context()))

		m, err := g.JoinFleet("other", new(testFleet))
		require.NoError(t, err)
		older := fleetIsolates
		older.Breaker, older.Time = reset.Breaker, reset.Time
		require.True(t, m.Apply(older))
		assert.Equal(t, resilience.StateIsolated, g.Breaker("x").State())
	})
}

func TestMemberRemembersABoundedNumberOfBreakers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
		remembered := 0
		for i := range 5000 {
			c := fleetOpens
			c.Breaker, c.Time = fmt.Sprint("unlisted/", i), time.Now()
			if m.Apply(c) {
				remembered++
			}
		}
		assert.Equal(t, 4096, remembered)
		for _, c := range []struct {
			id      string
			change  resilience.FleetChange
			applied bool
		}{
			{"unlisted/0", fleetOpens, true}, // known
			{"unlisted/one more", fleetOpens, false},
			{"unlisted/0", fleetCloses, true}, // makes room
			{"unlisted/one more", fleetOpens, true},
			{"unlisted/0", fleetOpens, false},
		} {
			c.change.Breaker, c.change.Time = c.id, time.Now()
			assert.Equal(t, c.applied, m.Apply(c.change), "%+v", c)
		}
		change(t, m, fleetIsolates)
		change(t, m, fleetCloses)
		_, err := resilience.Do(t.Context(), g, "x", succeed)
		require.NoError(t, err, "what it has, it needs not remember")
	})
}

func TestBreakerOfOthersIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(testFleet)
		g, m := joined(t, f, resilience.BreakerConfig{})
		unknown := resilience.ForRequest(resilience.Request{Unknown: true})
		_, _ = resilience.Do(t.Context(), g, "unknown", failing(1, errBoom), unknown)
		assert.Empty(t, f.told())
		assert.Len(t, m.Breakers(), 1)
	})
}

func TestSuccessOfANewBreakerIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(testFleet)
		g, m := joined(t, f, resilience.BreakerConfig{})
		require.True(t, m.Apply(resilience.FleetChange{Breaker: "listed/x/eu", Failures: 4, Time: time.Now()}))
		_, err := resilience.Do(t.Context(), g, "x", succeed, resilience.BreakerKey("eu"))
		require.NoError(t, err)
		assert.Equal(t, []string{"listed/x/eu success=true probe=false calls"}, f.told())
	})
}

func TestFleetSeesNoProbeThatIsOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{ProbeTimeout: 10 * time.Second})
		trip(t, g.Breaker("x"))
		time.Sleep(30 * time.Second)
		_, err := g.Breaker("x").Allow()
		require.NoError(t, err)
		for _, after := range []time.Duration{0, 10 * time.Second, time.Nanosecond} {
			time.Sleep(after)
			v, _ := m.Breaker("listed/x")
			assert.Equal(t, after != time.Nanosecond, v.Probing, "%s later", after)
		}
	})
}

// What the fleet says of a breaker may come while a call opens it: neither waits for the other.
func TestFleetSpeaksWhileACallOpensTheBreaker(t *testing.T) {
	g, m := joined(t, new(testFleet), resilience.BreakerConfig{Failures: 1, Cooldown: time.Nanosecond})
	done := make(chan struct{})
	go func() {
		defer close(done)
		var both sync.WaitGroup
		for range 4 {
			both.Go(func() {
				for range 30_000 {
					_, _ = resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) { return 0, errBoom })
				}
			})
			both.Go(func() {
				for range 30_000 {
					m.Apply(resilience.FleetChange{Breaker: "listed/x", State: resilience.StateClosed, Time: time.Now()})
				}
			})
		}
		both.Wait()
	}()

	select {
	case <-done:
	case <-time.After(time.Minute):
		require.FailNow(t, "they wait for each other")
	}
}

// Another Reset, while this member is away, takes nothing back of the first one: that ended what the fleet had isolated
// before it, also what this member hears of later.
func TestResetAgainWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
		isolated := resilience.FleetChange{Breaker: "listed/x", State: resilience.StateIsolated, Time: time.Now()}
		require.True(t, m.Apply(isolated))
		time.Sleep(10 * time.Second)
		g.Breaker("x").Reset()
		m.Connected(errBoom)
		g.Breaker("x").Reset()
		m.Connected(nil)

		isolated.Time = isolated.Time.Add(5 * time.Second)
		m.Apply(isolated)
		assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
	})
}

// A fleet may open a breaker for no time at all. This is in real time, in which some has passed by then.
func TestProbeIsCalledAfterAnOpeningForNoTime(t *testing.T) {
	asked := make(chan struct{}, 100)
	g, m := joined(t, new(testFleet), resilience.BreakerConfig{
		Cooldown: 50 * time.Millisecond, ProbeInterval: 5 * time.Millisecond,
		Probe: func(context.Context) error { asked <- struct{}{}; return nil },
	})
	trip(t, g.Breaker("x"))
	<-asked
	closed := func() bool { return g.Breaker("x").State() == resilience.StateClosed }
	require.Eventually(t, closed, time.Minute, time.Millisecond)
	opened(t, m, 0)
	<-asked
}
