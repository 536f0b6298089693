package resilience_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// failWithKey makes five calls that fail.
func failWithKey(t *testing.T, g *resilience.Guard, tool, key string) {
	t.Helper()
	for range 5 {
		r := resilience.Run(t.Context(), g, tool, failing(9, errBoom), resilience.BreakerKey(key))
		require.ErrorIs(t, r.Err, errBoom)
	}
}

// withKey calls tool "x".
func withKey(t *testing.T, g *resilience.Guard, key string, fn toolFunc) error {
	t.Helper()
	_, err := resilience.Do(t.Context(), g, "x", fn, resilience.BreakerKey(key))
	return err
}

func TestEachKeyHasABreakerOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{Breaker: "grafana"})
		cfg.Tools["y"] = resilience.Tool{Breaker: "grafana"}
		cfg.Tools["z"] = resilience.Tool{}
		g := newGuard(t, cfg)
		failWithKey(t, g, "x", "loki")

		rejects := func(tool, key string) bool {
			return resilience.Run(t.Context(), g, tool, succeed, resilience.BreakerKey(key)).Err != nil
		}
		assert.True(t, rejects("x", "loki"))
		assert.True(t, rejects("y", "loki"), "it shares the breaker")
		assert.False(t, rejects("x", "tempo"))
		assert.False(t, rejects("x", ""))
		assert.False(t, rejects("z", "loki"))

		e := resilience.Run(t.Context(), g, "x", notCalled(t), resilience.BreakerKey("loki")).Err
		assert.Equal(t, "x", e.Tool)
		assert.Equal(t, "For 'loki': Circuit breaker open due to repeated failures. "+
			"Calls are rejected for 30 more seconds.", e.Message)
		assert.Contains(t, e.Suggestion, "calls of this tool for others may succeed")

		var names []string
		for _, b := range g.Breakers() {
			names = append(names, b.Name())
			if b.Key() == "loki" {
				b.Reset()
			}
		}
		assert.Equal(t, []string{"grafana", "grafana/loki", "grafana/tempo", "z", "z/loki"}, names)
		assert.False(t, rejects("x", "loki"))
	})
}

func TestHealthOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{})
		cfg.Tools["y"] = resilience.Tool{}
		g := newGuard(t, cfg)
		require.NoError(t, withKey(t, g, "tempo", succeed))
		failWithKey(t, g, "x", "loki")

		h, _ := healthOf(g, "x")
		assert.True(t, h.Available)
		assert.Equal(t, []resilience.KeyHealth{
			{Key: "loki", State: resilience.StateOpen, RetryAfter: 30 * time.Second, ConsecutiveFailures: 5},
		}, h.Keys)
		assert.Contains(t, jsonOf(t, h),
			`"keys":[{"key":"loki","state":"open","retryAfter":30,"consecutiveFailures":5}]`)
		assert.NotContains(t, string(g.AgentHealth()), "loki", "it may be another client's")
		h, _ = healthOf(g, "y")
		assert.Empty(t, h.Keys)
	})
}

// Keys may come from agents.
func TestKeysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}})
		failWithKey(t, g, "x", "open")
		for i := range 2000 {
			require.NoError(t, withKey(t, g, fmt.Sprint("made up ", i), succeed))
		}
		assert.Len(t, g.Breakers(), 1025)
		assert.ErrorIs(t, withKey(t, g, "open", notCalled(t)), resilience.CodeCircuitOpen, "it isn't evicted")

		failWithKey(t, g, "x", strings.Repeat("é", 1000))
		for _, b := range g.Breakers() {
			assert.LessOrEqual(t, len(b.Name()), 300)
		}
	})
}

// Keys that all fail leave no room for others.
func TestFullTableOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}})
		cfg.Breaker.Failures = 2
		g := newGuard(t, cfg)
		for i := range 1024 {
			for range 2 {
				require.ErrorIs(t, withKey(t, g, fmt.Sprint("broken ", i), failing(9, errBoom)), errBoom)
			}
		}
		require.Len(t, g.Breakers(), 1025)

		b := g.Breaker("x")
		require.ErrorIs(t, withKey(t, g, "another", failing(9, errBoom)), errBoom)
		assert.Equal(t, 1, b.Failures(), "it counts on the tool's own breaker")
		require.NoError(t, withKey(t, g, "another", succeed))
		assert.Zero(t, b.Failures())
		assert.Len(t, g.Breakers(), 1025)
	})
}

func TestProbeOfAKeyLearnsItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan string, 9)
		cfg := configWith(resilience.Tool{})
		cfg.Breaker.Probe = func(ctx context.Context) error { asked <- resilience.BreakerKeyOf(ctx); return nil }
		g := newGuard(t, cfg)
		failWithKey(t, g, "x", "loki")
		trip(t, g.Breaker("x"))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.ElementsMatch(t, []string{"loki", ""}, []string{<-asked, <-asked})
		assert.Empty(t, asked)
		assert.Empty(t, resilience.BreakerKeyOf(t.Context()))
		for _, b := range g.Breakers() {
			assert.Equal(t, resilience.StateClosed, b.State())
		}
	})
}

// A call on the breaker of the key around it belongs to that call. A call on another key doesn't.
func TestNestedCallsWithKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}})
		for range 5 {
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				_, err := resilience.Do(ctx, g, "x", failing(9, errBoom), resilience.BreakerKey("a"))
				_, _ = resilience.Do(ctx, g, "x", failing(9, errBoom), resilience.BreakerKey("b"))
				return 0, err
			}, resilience.BreakerKey("a"))
			require.ErrorIs(t, r.Err, errBoom)
		}
		for _, b := range g.Breakers() {
			assert.Equal(t, map[string]int{"": 0, "a": 5, "b": 5}[b.Key()], b.Failures(), b.Name())
		}
	})
}

func TestKeyOfACall(t *testing.T) {
	loki := func() string { return "loki" }
	request, tempo := resilience.ForRequest(resilience.Request{BreakerKey: loki}), resilience.BreakerKey("tempo")
	// Unknown tools share one breaker, whatever keys are made up for them.
	unknown := resilience.ForRequest(resilience.Request{BreakerKey: loki, Unknown: true})
	for name, tc := range map[string]struct {
		options []resilience.Option
		want    string
	}{
		"none":                  {nil, ""},
		"an Option":             {[]resilience.Option{tempo}, "tempo"},
		"a request's":           {[]resilience.Option{request}, "loki"},
		"an Option before that": {[]resilience.Option{request, tempo}, "tempo"},
		"an unknown tool":       {[]resilience.Option{unknown, tempo}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
			if name != "an unknown tool" {
				g.Breaker("x")
			}
			require.Error(t, resilience.Run(t.Context(), g, "x", failing(9, errBoom), tc.options...).Err)
			keys := map[string]bool{"": true, tc.want: true}
			for _, b := range g.Breakers() {
				assert.True(t, keys[b.Key()], b.Key())
				assert.Equal(t, b.Key() == tc.want, b.Failures() == 1, b.Name())
			}
		})
	}
}

func TestRetryIsNotMadeIfTheBreakerOfItsKeyOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly})
		err := withKey(t, g, "loki", func(context.Context) (int, error) {
			failWithKey(t, g, "x", "loki")
			return 0, errBoom
		})
		assert.ErrorIs(t, err, errBoom)
		assert.Contains(t, err.(*resilience.Error).Suggestion, "calls of this tool for others may succeed")
	})
}
