package resilience_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// flood calls n tools of different names, which aren't called again.
func flood(t *testing.T, g *resilience.Guard, n int, tool toolFunc) {
	t.Helper()
	for i := range n {
		_, err := resilience.Do(t.Context(), g, fmt.Sprint("made up ", i), tool)
		require.NotErrorIs(t, err, resilience.CodeCircuitOpen)
	}
}

// isShared reports whether the two tools share a breaker.
func isShared(g *resilience.Guard, a, b string) bool { return g.Breaker(a) == g.Breaker(b) }

// healthOf returns the health of a tool that has a state of its own.
func healthOf(g *resilience.Guard, tool string) (resilience.Health, bool) {
	for _, h := range g.Health() {
		if h.Tool == tool {
			return h, true
		}
	}
	return resilience.Health{}, false
}

func TestFullTableForgetsToolsThatAreNotNeeded(t *testing.T) {
	g := newGuard(t, configWith(resilience.Tool{}))
	mustSucceed(t, g)
	flood(t, g, 5000, succeed)

	assert.Len(t, g.Health(), 1025, "x and as many others as there is room for")
	_, ok := healthOf(g, "made up 0")
	assert.False(t, ok, "it was forgotten")
	_, ok = healthOf(g, "made up 4999")
	assert.True(t, ok)
	_, ok = healthOf(g, "x")
	assert.True(t, ok, "the Config lists it")
	assert.False(t, isShared(g, "new", "newer"))
}

func TestToolThatIsNeededIsNotForgotten(t *testing.T) {
	retry := resilience.Retry{MaxRetries: -1}
	fails := func(ctx context.Context, g *resilience.Guard, times int) {
		for range times {
			_, _ = resilience.Do(ctx, g, "needed", failing(9, errBoom))
		}
	}
	for name, tc := range map[string]struct {
		before func(context.Context, *resilience.Guard)
		check  func(*testing.T, *resilience.Guard, resilience.Health)
	}{
		"open": {
			func(ctx context.Context, g *resilience.Guard) { fails(ctx, g, 5) },
			func(t *testing.T, _ *resilience.Guard, h resilience.Health) {
				assert.Equal(t, resilience.StateOpen, h.State)
			},
		},
		"about to open": {
			func(ctx context.Context, g *resilience.Guard) { fails(ctx, g, 4) },
			func(t *testing.T, g *resilience.Guard, h resilience.Health) {
				assert.Equal(t, 4, h.ConsecutiveFailures)
			},
		},
		"in flight": {
			func(ctx context.Context, g *resilience.Guard) {
				go func() { _, _ = resilience.Do(ctx, g, "needed", hang(time.Second)) }()
				synctest.Wait()
			},
			func(t *testing.T, _ *resilience.Guard, h resilience.Health) { assert.Equal(t, 1, h.InFlight) },
		},
		"abandoned": {
			func(ctx context.Context, g *resilience.Guard) {
				_, _ = resilience.Do(ctx, g, "needed", hang(time.Hour), resilience.Timeout(time.Second))
			},
			func(t *testing.T, _ *resilience.Guard, h resilience.Health) { assert.Equal(t, 1, h.Abandoned) },
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{Retry: retry})
			tc.before(t.Context(), g)
			flood(t, g, 5000, succeed)
			h, ok := healthOf(g, "needed")
			require.True(t, ok)
			tc.check(t, g, h)
			time.Sleep(2 * time.Hour)
		})
	}

	g := newGuard(t, resilience.Config{})
	asked := g.Breaker("needed")
	flood(t, g, 5000, succeed)
	assert.Same(t, asked, g.Breaker("needed"), "a program may hold it")
}

// Names that an agent made up fail where no adapter rejects them.
func TestToolsThatHaveFailedAreForgottenWhereThereAreNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{
			Breaker: resilience.BreakerConfig{Failures: 2},
			Retry:   resilience.Retry{MaxRetries: -1},
		})
		flood(t, g, 5000, failing(9, errBoom))
		assert.Len(t, g.Health(), 1024)
		_, ok := healthOf(g, "made up 4999")
		assert.True(t, ok, "it has a state of its own")

		for _, h := range g.Health() {
			_, _ = resilience.Do(t.Context(), g, h.Tool, failing(9, errBoom))
		}
		_, _ = resilience.Do(t.Context(), g, "new", succeed)
		_, ok = healthOf(g, "new")
		assert.False(t, ok, "all breakers are open, and none is forgotten")
		_, ok = healthOf(g, "(others)")
		assert.True(t, ok)

		time.Sleep(30 * time.Second)
		_, _ = resilience.Do(t.Context(), g, "new", succeed)
		_, ok = healthOf(g, "new")
		assert.True(t, ok, "their cooldown has passed")
		assert.Len(t, g.Health(), 1025)

		for _, b := range g.Breakers() {
			b.Isolate("r")
		}
		_, _ = resilience.Do(t.Context(), g, "newest", succeed)
		_, ok = healthOf(g, "newest")
		assert.False(t, ok, "what is isolated isn't forgotten")
	})
}

// A breaker that rejects calls is kept, and doesn't keep those that have only failed.
func TestFullTableForgetsAToolThatHasFailedThoughTheOldestIsOpen(t *testing.T) {
	g := newGuard(t, resilience.Config{
		Breaker: resilience.BreakerConfig{Failures: 2},
		Retry:   resilience.Retry{MaxRetries: -1},
	})
	flood(t, g, 1024, failing(9, errBoom))
	_, _ = resilience.Do(t.Context(), g, "made up 0", failing(9, errBoom))
	require.Equal(t, resilience.StateOpen, g.Breaker("made up 0").State())

	_, err := resilience.Do(t.Context(), g, "new", succeed)
	require.NoError(t, err)
	_, ok := healthOf(g, "new")
	assert.True(t, ok, "it has a state of its own")
	_, ok = healthOf(g, "made up 0")
	assert.True(t, ok, "its breaker is open")
	_, ok = healthOf(g, "made up 1")
	assert.False(t, ok, "it was the oldest of those that may be forgotten")
}

// A call looks at 32 of them for one that may be forgotten, from where the last call has found one.
func TestFullTableIsSearchedForAWhile(t *testing.T) {
	for open, want := range map[int]bool{31: true, 32: false} {
		g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
		flood(t, g, 1024, succeed)
		for i := range open {
			g.Breaker(fmt.Sprint("made up ", i)).Isolate("r")
		}
		_, _ = resilience.Do(t.Context(), g, "new", succeed)
		_, ok := healthOf(g, "new")
		assert.Equal(t, want, ok, "%d", open)
	}
}

func TestFullTableForgetsTheOldestOfThoseThatHaveFailed(t *testing.T) {
	g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
	flood(t, g, 1024, failing(9, errBoom))
	_, _ = resilience.Do(t.Context(), g, "new", succeed)
	for i, want := range []bool{false, true} {
		_, ok := healthOf(g, fmt.Sprint("made up ", i))
		assert.Equal(t, want, ok, "%d", i)
	}
}

// Metrics keep every label that they have ever seen.
func TestLabelsStayBoundedThoughToolsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		g := newGuard(t, resilience.Config{
			Observers: []resilience.Observer{r.observer()},
			Breaker:   resilience.BreakerConfig{Failures: 1},
			Retry:     resilience.Retry{MaxRetries: -1},
		})
		for range 2 {
			for i := range 3000 {
				_, _ = resilience.Do(t.Context(), g, fmt.Sprint("made up ", i), succeed)
				flush(t, g)
			}
		}
		_, _ = resilience.Do(t.Context(), g, "made up 0", succeed)
		_, _ = resilience.Do(t.Context(), g, "broken", failing(9, errBoom))
		flush(t, g)

		labels := make(map[string]bool)
		for _, e := range received[resilience.CallEnd](&r) {
			labels[e.Label] = true
			if e.Tool == "made up 0" {
				assert.Equal(t, e.Tool, e.Label, "it was among the first")
			}
			assert.Contains(t, []string{"(others)", e.Tool}, e.Label)
		}
		assert.Len(t, labels, 1025)
		changes := received[resilience.BreakerChange](&r)
		require.Len(t, changes, 1)
		assert.Equal(t, "broken", changes[0].Breaker)
		assert.Equal(t, "(others)", changes[0].Label)
	})
}

// A state that is being forgotten while a call comes must not be used.
func TestCallsAtTheSameTimeLoseNoStateThatIsNeeded(t *testing.T) {
	g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
	flood(t, g, 1024, succeed)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 3000 {
				_, _ = resilience.Do(t.Context(), g, fmt.Sprint("made up ", i), succeed)
				_, _ = resilience.Do(t.Context(), g, "often", succeed)
			}
		})
	}
	wg.Wait()

	for range 4 {
		_, _ = resilience.Do(t.Context(), g, "often", failing(9, errBoom))
	}
	h, _ := healthOf(g, "often")
	assert.Equal(t, 4, h.ConsecutiveFailures)
	for _, h := range g.Health() {
		assert.Zero(t, h.InFlight, h.Tool)
	}
	assert.LessOrEqual(t, len(g.Health()), 1025)
}
