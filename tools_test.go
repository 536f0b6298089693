package resilience_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// flood calls n tools of different names, none of which may be rejected.
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

// A tool that the server doesn't have is a name that an agent made up.
func TestUnlistedToolGetsAState(t *testing.T) {
	for name, tc := range map[string]struct {
		request resilience.Request
		want    []string
	}{
		"it may exist":               {resilience.Request{}, []string{"new", "x"}},
		"the server doesn't have it": {resilience.Request{Unknown: true}, []string{"(others)", "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			var r recorder
			g := newGuard(t, observed(resilience.Tool{}, r.observer()))
			for _, tool := range []string{"x", "new"} {
				_, _ = resilience.Do(t.Context(), g, tool, succeed, resilience.ForRequest(tc.request))
			}

			var tools, labels []string
			for _, h := range g.Health() {
				tools = append(tools, h.Tool)
			}
			flush(t, g)
			for _, e := range received[resilience.CallEnd](&r) {
				labels = append(labels, e.Label)
			}
			assert.Equal(t, tc.want, tools)
			assert.ElementsMatch(t, tc.want, labels)
		})
	}
}

func TestUnlistedToolsAreBounded(t *testing.T) {
	g := newGuard(t, configWith(resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}}))
	trip(t, g.Breaker("open")) // which makes its state
	flood(t, g, 5000, succeed)

	assert.Len(t, g.Health(), 1+1024+1)
	for tool, want := range map[string]bool{
		"x": true, "open": true, "made up 0": true, "made up 1022": true, "made up 1023": false, "(others)": true,
	} {
		_, ok := healthOf(g, tool)
		assert.Equal(t, want, ok, tool)
	}
	_, err := resilience.Do(t.Context(), g, "open", notCalled(t))
	assert.ErrorIs(t, err, resilience.CodeCircuitOpen)
	assert.False(t, isShared(g, "x", "made up 0"))
	assert.True(t, isShared(g, "new", "made up 4000"))
}

// Unlisted tools that fail shut no others.
func TestUnlistedToolsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
		flood(t, g, 1000, failing(9, errBoom))
		for range 5 {
			_, _ = resilience.Do(t.Context(), g, "broken", failing(9, errBoom))
		}
		assert.Equal(t, resilience.StateOpen, g.Breaker("broken").State())
		_, err := resilience.Do(t.Context(), g, "new", succeed)
		assert.NoError(t, err)
	})
}

func TestUnlistedToolsAreSafeForConcurrentUse(t *testing.T) {
	g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 1500 {
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
	assert.LessOrEqual(t, len(g.Health()), 1024+1)
	for _, h := range g.Health() {
		assert.Zero(t, h.InFlight, h.Tool)
	}
}
