package resilience_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestChangesOfTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
		b := g.Breaker("x")
		apply := func(c resilience.FleetChange) bool {
			c.Breaker = "listed/x"
			if c.Time.IsZero() {
				c.Time = time.Now()
			}
			return m.Apply(c)
		}

		opened(t, m, time.Minute)
		assert.Equal(t, resilience.StateOpen, b.State())
		assert.Equal(t, time.Minute, b.RetryAfter())
		view, ok := m.Breaker("listed/x")
		require.True(t, ok)
		assert.Equal(t, resilience.StateOpen, view.State)
		assert.Equal(t, time.Minute, view.RetryAfter)
		opened(t, m, time.Second)
		assert.Equal(t, time.Second, b.RetryAfter(), "a member's probe has failed, or is under way")
		assert.True(t, apply(resilience.FleetChange{}))
		assert.Equal(t, resilience.StateClosed, b.State())

		require.True(t, apply(fleetIsolates))
		reason, _ := b.Isolated()
		assert.Equal(t, "moving", reason)
		require.True(t, apply(resilience.FleetChange{Cause: resilience.CauseManual}))
		assert.Equal(t, resilience.StateClosed, b.State())

		trip(t, b)
		assert.True(t, apply(resilience.FleetChange{Failures: 3}))
		assert.Equal(t, resilience.StateOpen, b.State(), "it is open for this member alone")
		time.Sleep(time.Second)
		before := time.Now()
		time.Sleep(time.Second)
		b.Reset()
		assert.False(t, apply(resilience.FleetChange{State: resilience.StateOpen, Time: before}), "the member knows more")
		assert.Equal(t, resilience.StateClosed, b.State())

		b.Isolate("by hand")
		time.Sleep(time.Second)
		opened(t, m, time.Minute)
		assert.True(t, apply(resilience.FleetChange{}))
		assert.Equal(t, resilience.StateIsolated, b.State(), "by hand, for this member alone")
		assert.True(t, apply(resilience.FleetChange{Cause: resilience.CauseManual}))
		assert.Equal(t, resilience.StateClosed, b.State(), "the whole fleet was reset")
	})
}

// What the fleet opens has an end, and leaves a probe that is under way alone.
func TestFleetOpensABreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{Cooldown: time.Minute})
		b := g.Breaker("x")
		opened(t, m, 1000*time.Hour)
		assert.Equal(t, 10*time.Minute, b.RetryAfter(), "ten Cooldowns at most")

		opened(t, m, 0)
		require.Equal(t, resilience.StateHalfOpen, b.State())
		opened(t, m, time.Minute)
		assert.Equal(t, resilience.StateOpen, b.State(), "there was no probe")

		time.Sleep(time.Minute)
		done, err := b.Allow()
		require.NoError(t, err)
		opened(t, m, time.Minute)
		assert.Equal(t, resilience.StateHalfOpen, b.State(), "the probe of this member decides")
		done(nil)
		assert.Equal(t, resilience.StateClosed, b.State())

		change(t, m, fleetIsolates)
		opened(t, m, time.Minute)
		assert.Equal(t, resilience.StateOpen, b.State())
		_, isolated := b.Isolated()
		assert.False(t, isolated)
		assert.Equal(t, 5, b.Failures(), "as by failures")
	})
}

// What a member's own probe has closed, the fleet doesn't close once more when it hears of that: it may be open again.
func TestFleetHearsLateThatAProbeHasSucceeded(t *testing.T) {
	for name, c := range map[string]struct {
		after []resilience.FleetChange
		want  resilience.State
	}{
		"it closes the breaker":          {[]resilience.FleetChange{fleetCloses}, resilience.StateOpen},
		"others have opened it since":    {[]resilience.FleetChange{fleetCloses, fleetOpens, fleetCloses}, resilience.StateClosed},
		"it hears that of another probe": {[]resilience.FleetChange{fleetOpens, fleetCloses}, resilience.StateClosed},
		"it is reset":                    {[]resilience.FleetChange{fleetResets}, resilience.StateClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
				b := g.Breaker("x")
				opened(t, m, time.Second)
				time.Sleep(time.Second)
				done, err := b.Allow()
				require.NoError(t, err)
				done(nil)
				require.Equal(t, resilience.StateClosed, b.State())

				trip(t, b)
				for _, x := range c.after {
					change(t, m, x)
				}
				require.Equal(t, c.want, b.State())
			})
		})
	}
}

// change applies a change to the breaker of x, a second after what happened before.
func change(t *testing.T, m *resilience.FleetMember, c resilience.FleetChange) {
	t.Helper()
	time.Sleep(time.Second)
	c.Breaker, c.Time = "listed/x", time.Now()
	require.True(t, m.Apply(c))
}

var (
	fleetOpens    = resilience.FleetChange{State: resilience.StateOpen, RetryAfter: 30 * time.Second}
	fleetCloses   = resilience.FleetChange{Cause: resilience.CauseCalls}
	fleetIsolates = resilience.FleetChange{State: resilience.StateIsolated, Cause: resilience.CauseManual, Reason: "moving"}
	fleetResets   = resilience.FleetChange{Cause: resilience.CauseManual}
)

// A member may miss changes, and hear of the last one only.
func TestMemberFollowsTheFleetThroughAnyChanges(t *testing.T) {
	states := map[string]resilience.FleetChange{
		"open": fleetOpens, "closed": fleetCloses, "isolated": fleetIsolates, "reset": fleetResets,
	}
	for first, a := range states {
		for second, b := range states {
			for third, c := range states {
				t.Run(first+" "+second+" "+third, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
						for _, next := range []resilience.FleetChange{a, b, c} {
							change(t, m, next)
							assert.Equal(t, next.State, g.Breaker("x").State())
						}
					})
				})
			}
		}
	}
}

// What the operator of one member has done is nothing that the fleet's calls and Probes may undo.
func TestOperatorOfAMemberHasTheLastWord(t *testing.T) {
	operators := map[string]struct {
		do   func(*resilience.Breaker)
		want resilience.State
	}{
		"isolates": {func(b *resilience.Breaker) { b.Isolate("disk full") }, resilience.StateIsolated},
		"trips":    {func(b *resilience.Breaker) { b.Trip(time.Hour) }, resilience.StateOpen},
	}
	changes := []resilience.FleetChange{fleetOpens, fleetCloses}
	for name, operator := range operators {
		for _, before := range changes {
			for _, after := range changes {
				t.Run(fmt.Sprint(name, " ", before.State, " ", after.State), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
						b := g.Breaker("x")
						change(t, m, before)
						operator.do(b)
						change(t, m, after)
						change(t, m, fleetOpens)
						change(t, m, fleetCloses)
						assert.Equal(t, operator.want, b.State())

						change(t, m, fleetResets)
						assert.Equal(t, resilience.StateClosed, b.State())
					})
				})
			}
		}
	}
}

func TestIsolationByAMemberOutlastsThatOfTheFleet(t *testing.T) {
	for name, first := range map[string]bool{"before it": true, "after it": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
				if first {
					g.Breaker("x").Isolate("disk full")
				}
				change(t, m, fleetIsolates)
				if !first {
					g.Breaker("x").Isolate("disk full")
				}
				change(t, m, fleetCloses)
				reason, _ := g.Breaker("x").Isolated()
				assert.Equal(t, "disk full", reason)

				g.Breaker("x").Reset()
				change(t, m, fleetOpens)
				assert.Equal(t, resilience.StateOpen, g.Breaker("x").State())
			})
		})
	}
}

// again returns a function that applies one change at any time.
func again(m *resilience.FleetMember, c resilience.FleetChange) (apply func() bool) {
	c.Breaker, c.Time = "listed/x", time.Now()
	return func() bool {
		time.Sleep(time.Second)
		return m.Apply(c)
	}
}

func TestResetOfAMemberStandsUntilTheFleetChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
		isolate := again(m, fleetIsolates)
		require.True(t, isolate())
		g.Breaker("x").Reset()
		require.True(t, isolate())
		assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
		change(t, m, fleetIsolates)
		assert.Equal(t, resilience.StateIsolated, g.Breaker("x").State(), "it is another isolation")
	})
}

// Agents make up keys and names of tools: what they do doesn't undo a Reset either.
func TestResetOfAMemberStandsWhateverElseIsCalled(t *testing.T) {
	for id, of := range map[string]struct{ tool, key string }{
		"listed/x/key": {"x", "key"}, "unlisted/y": {"y", ""},
	} {
		runInBubble(t, id, func(t *testing.T) {
			g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
			call := func(tool, key string) error {
				_, err := resilience.Do(t.Context(), g, tool, succeed, resilience.BreakerKey(key))
				return err
			}
			others := func() {
				for i := range 1100 {
					require.NoError(t, call("x", fmt.Sprint(i)))
					require.NoError(t, call(fmt.Sprint("other-", i), ""))
				}
			}
			require.NoError(t, call(of.tool, of.key))
			isolate, closes := fleetIsolates, fleetCloses
			isolate.Breaker, isolate.Time, closes.Breaker = id, time.Now(), id
			require.True(t, m.Apply(isolate))
			require.ErrorIs(t, call(of.tool, of.key), resilience.CodeCircuitOpen)
			time.Sleep(time.Second)
			for _, b := range g.Breakers() {
				b.Reset()
			}

			others()
			require.NoError(t, call(of.tool, of.key))
			closes.Time = time.Now()
			require.True(t, m.Apply(closes))
			others()
			_, kept := m.Breaker(id)
			require.False(t, kept, "there is nothing to remember")
		})
	}
}

// A member that joins the same fleet again is still one whose operator has reset what that had isolated.
func TestResetOfAMemberStandsWhenItJoinsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
		b, isolates := g.Breaker("x"), fleetIsolates
		isolates.Breaker, isolates.Time = "listed/x", time.Now()
		join := func(name string) {
			t.Helper()
			require.NoError(t, m.Leave(t.Context()))
			var err error
			m, err = g.JoinFleet(name, new(testFleet))
			require.NoError(t, err)
			require.True(t, m.Apply(isolates))
		}

		require.True(t, m.Apply(isolates))
		time.Sleep(time.Second)
		b.Reset()
		join("test")
		assert.Equal(t, resilience.StateClosed, b.State())
		join("test")
		assert.Equal(t, resilience.StateClosed, b.State())

		time.Sleep(time.Second)
		isolates.Time = time.Now()
		join("test")
		assert.Equal(t, resilience.StateIsolated, b.State(), "it is another isolation")
		require.NoError(t, m.Leave(t.Context()))
		time.Sleep(time.Second)
		b.Reset()
		join("test")
		assert.Equal(t, resilience.StateClosed, b.State(), "the operator knew of it")
		join("other")
		assert.Equal(t, resilience.StateIsolated, b.State(), "it is another fleet's")
	})
}

// What the operator of a member does stands if the fleet's has done something before, of which the member hears late.
func TestOperatorOfAMemberDecidesAfterThatOfTheFleet(t *testing.T) {
	for name, c := range map[string]struct {
		does func(*resilience.Breaker)
		want resilience.State
	}{
		"isolate": {func(b *resilience.Breaker) { b.Isolate("mine") }, resilience.StateIsolated},
		"trip":    {func(b *resilience.Breaker) { b.Trip(time.Hour) }, resilience.StateOpen},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
			b, reset := g.Breaker("x"), again(m, fleetResets)
			time.Sleep(time.Second)
			c.does(b)
			for range 2 {
				require.True(t, reset())
				assert.Equal(t, c.want, b.State())
			}
			change(t, m, fleetResets)
			assert.Equal(t, resilience.StateClosed, b.State())
		})
	}
}

// Nobody has tripped what is in service again.
func TestIsolationEndsThatABreakerIsTripped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
		g.Breaker("x").Trip(time.Hour)
		change(t, m, fleetIsolates)
		change(t, m, fleetCloses) // the reset was missed
		assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
	})
}

func TestChangeThatIsAppliedAgainDoesNoHarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
		open := again(m, fleetOpens)
		for range 29 {
			open()
		}
		assert.Equal(t, time.Second, g.Breaker("x").RetryAfter())

		reset := again(m, fleetResets)
		for range 5 {
			reset()
			_, _ = resilience.Do(t.Context(), g, "x", failing(1, errBoom))
		}
		assert.Equal(t, resilience.StateOpen, g.Breaker("x").State())

		time.Sleep(time.Second)
		isolate := again(m, fleetIsolates)
		for range 3 {
			isolate()
		}
		b, _ := m.Breaker("listed/x")
		assert.Equal(t, resilience.CauseCalls, b.Cause, "the fleet is no operator of this member")
	})
}

func TestOlderChangeThanByHandIsNotApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
		g.Breaker("x").Trip(time.Minute)
		time.Sleep(time.Second)
		asked := time.Now()
		time.Sleep(time.Second)
		g.Breaker("x").Trip(time.Hour)
		assert.False(t, m.Apply(resilience.FleetChange{Breaker: "listed/x", Time: asked}))
		assert.Equal(t, time.Hour, g.Breaker("x").RetryAfter())
	})
}

// What the fleet had closed before the member's own calls opened the breaker, it doesn't close when it says so again.
func TestOlderChangeThanByCallsIsNoNewsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
		opened(t, m, time.Minute)
		time.Sleep(time.Minute)
		_, err := resilience.Do(t.Context(), g, "x", succeed)
		require.NoError(t, err, "it is the probe")
		asked := time.Now()
		time.Sleep(time.Second)
		for range 5 {
			_, _ = resilience.Do(t.Context(), g, "x", failing(1, errBoom))
		}

		assert.False(t, m.Apply(resilience.FleetChange{Breaker: "listed/x", Time: asked}))
		change(t, m, fleetCloses)
		assert.Equal(t, resilience.StateOpen, g.Breaker("x").State())
	})
}

// A trip ends, and an isolation of the whole fleet doesn't.
func TestFleetIsIsolatedDuringATrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
		g.Breaker("x").Trip(time.Minute)
		change(t, m, fleetIsolates)
		time.Sleep(2 * time.Minute)
		assert.Equal(t, resilience.StateIsolated, g.Breaker("x").State())
		change(t, m, fleetResets)
		assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
	})
}

func TestFleetOpensABreakerAfterATrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
		g.Breaker("x").Trip(time.Minute)
		time.Sleep(time.Minute)
		opened(t, m, 30*time.Second)
		assert.Equal(t, resilience.StateOpen, g.Breaker("x").State())
		assert.Equal(t, 30*time.Second, g.Breaker("x").RetryAfter())
	})
}

func TestAnotherFleetKnowsNothingOfTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, first := joined(t, new(testFleet), resilience.BreakerConfig{})
		b := g.Breaker("x")
		change(t, first, fleetIsolates)
		require.NoError(t, first.Leave(t.Context()))
		b.Reset()
		second, err := g.JoinFleet("second", new(testFleet))
		require.NoError(t, err)
		change(t, second, fleetIsolates)
		assert.Equal(t, resilience.StateIsolated, b.State())

		change(t, second, fleetOpens)
		require.NoError(t, second.Leave(t.Context()))
		b.Reset()
		trip(t, b)
		third, err := g.JoinFleet("third", new(testFleet))
		require.NoError(t, err)
		change(t, third, resilience.FleetChange{Failures: 1})
		assert.Equal(t, resilience.StateOpen, b.State(), "it is open for this member alone")
	})
}

func TestAnotherFleetIsNotToldWhatTheFirstHasToKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, first := joined(t, new(testFleet), resilience.BreakerConfig{})
		change(t, first, resilience.FleetChange{Failures: 1})
		require.NoError(t, first.Leave(t.Context()))

		f := new(testFleet)
		_, err := g.JoinFleet("second", f)
		require.NoError(t, err)
		_, err = resilience.Do(t.Context(), g, "x", succeed)
		require.NoError(t, err)
		assert.Empty(t, f.told())
	})
}

func TestChangesThatMakeNoSense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
		asked := time.Now()
		time.Sleep(time.Second)
		assert.True(t, m.Apply(resilience.FleetChange{
			Breaker: "listed/x", State: resilience.StateOpen, RetryAfter: math.MinInt64, Time: asked,
		}))
		assert.Equal(t, resilience.StateHalfOpen, g.Breaker("x").State(), "zero or less: now")
		assert.False(t, m.Apply(resilience.FleetChange{Breaker: "listed/x", State: resilience.StateHalfOpen, Time: time.Now()}))
	})
}

// What the operator of a member has reset stands, whatever the breaker of that member does afterwards.
func TestResetOfAMemberStandsThoughItsBreakerOpensLater(t *testing.T) {
	for name, opens := range map[string]func(*testing.T, *resilience.Breaker){
		"by calls": trip,
		"by Trip":  func(_ *testing.T, b *resilience.Breaker) { b.Trip(time.Minute) },
	} {
		runInBubble(t, name, func(t *testing.T) {
			g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
			b, isolate := g.Breaker("x"), again(m, fleetIsolates)
			isolate()
			b.Reset()
			isolate()
			opens(t, b)
			isolate()
			assert.Equal(t, resilience.StateOpen, b.State())
			time.Sleep(time.Hour)
			_, err := resilience.Do(t.Context(), g, "x", succeed)
			assert.NoError(t, err)

			b.Isolate("here")
			b.Reset()
			isolate()
			assert.Equal(t, resilience.StateClosed, b.State())
			change(t, m, fleetCloses)
			change(t, m, fleetIsolates)
			assert.Equal(t, resilience.StateIsolated, b.State())
		})
	}
}

func TestProbingEndsWhenItsResultCannotCountAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
		g.Breaker("x").Trip(time.Second)
		time.Sleep(time.Second)
		go func() { _, _ = resilience.Do(t.Context(), g, "x", hang(30*time.Second)) }()
		synctest.Wait()
		v, _ := m.Breaker("listed/x")
		assert.True(t, v.Probing)
		g.Breaker("x").Trip(10 * time.Second)
		v, _ = m.Breaker("listed/x")
		assert.False(t, v.Probing)
		time.Sleep(time.Minute)
	})
}

// A Reset of which a member hears late doesn't close what its own probe has found broken since.
func TestResetFromBeforeAProbeThatHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{})
		b := g.Breaker("x")
		opened(t, m, time.Second)
		reset := time.Now()
		time.Sleep(time.Second)
		require.True(t, report(b, errBoom))
		m.Apply(resilience.FleetChange{Breaker: "listed/x", Cause: resilience.CauseManual, Time: reset})
		assert.Equal(t, resilience.StateOpen, b.State())
		m.Apply(resilience.FleetChange{Breaker: "listed/x", Cause: resilience.CauseManual, Time: time.Now()})
		assert.Equal(t, resilience.StateClosed, b.State())
	})
}

// What the fleet has isolated it ends, however late the member hears of both, and whatever its calls have told meanwhile.
func TestLateIsolationAndItsReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := joined(t, new(testFleet), resilience.BreakerConfig{Cooldown: time.Second})
		b := g.Breaker("x")
		isolated := time.Now()
		time.Sleep(time.Second)
		reset := time.Now()
		time.Sleep(time.Second)
		trip(t, b)
		time.Sleep(time.Second)
		require.True(t, report(b, nil))

		isolates, resets := fleetIsolates, fleetResets
		isolates.Breaker, isolates.Time = "listed/x", isolated
		resets.Breaker, resets.Time = "listed/x", reset
		assert.True(t, m.Apply(isolates))
		assert.Equal(t, resilience.StateIsolated, b.State())
		assert.True(t, m.Apply(resets))
		assert.Equal(t, resilience.StateClosed, b.State())

		b.Isolate("by this member's operator")
		resets.Time = reset.Add(1)
		m.Apply(resets)
		assert.Equal(t, resilience.StateIsolated, b.State())
	})
}
