package resilience_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
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

func TestEachKeyHasABreakerOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{Breaker: "grafana"})
		cfg.Tools["y"] = resilience.Tool{Breaker: "grafana"}
		cfg.Tools["z"] = resilience.Tool{}
		g := newGuard(t, cfg)
		failWithKey(t, g, "x", "loki")

		rejects := func(tool, key string) bool {
			r := resilience.Run(t.Context(), g, tool, succeed, resilience.BreakerKey(key))
			return r.Err != nil
		}
		assert.True(t, rejects("x", "loki"))
		assert.True(t, rejects("y", "loki"), "it shares the breaker")
		assert.False(t, rejects("x", "tempo"))
		assert.False(t, rejects("x", ""))
		assert.False(t, rejects("z", "loki"))
		assert.False(t, rejects("unlisted", "loki"))

		r := resilience.Run(t.Context(), g, "x", notCalled(t), resilience.BreakerKey("loki"))
		assert.Equal(t, "x", r.Err.Tool)
		assert.Equal(t, "For 'loki': Circuit breaker open due to repeated failures. Calls are rejected for 30 more seconds.", r.Err.Message)
		assert.Contains(t, r.Err.Suggestion, "calls of this tool for others may succeed")

		for _, h := range g.Health() {
			assert.True(t, h.Available, h.Tool)
			if h.Tool != "x" && h.Tool != "y" {
				assert.Empty(t, h.Keys)
				continue
			}
			assert.Equal(t, []resilience.KeyHealth{
				{Key: "loki", State: resilience.StateOpen, RetryAfter: 30 * time.Second, ConsecutiveFailures: 5},
			}, h.Keys)
			assert.Contains(t, jsonOf(t, h), `"keys":[{"key":"loki","state":"open","retryAfter":30,"consecutiveFailures":5}]`)
		}
		assert.NotContains(t, string(g.AgentHealth()), "loki", "it may be another client's")

		var names []string
		for _, b := range g.Breakers() {
			names = append(names, b.Name())
			if b.Key() == "loki" {
				b.Reset()
			}
		}
		assert.Equal(t, []string{"grafana", "grafana/loki", "grafana/tempo", "unlisted", "unlisted/loki", "z", "z/loki"}, names)
		assert.False(t, rejects("x", "loki"))
	})
}

// Keys may come from agents.
func TestKeysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{})
		failWithKey(t, g, "x", "open")
		for i := range 5000 {
			_, err := resilience.Do(t.Context(), g, "x", succeed, resilience.BreakerKey(fmt.Sprint("made up ", i)))
			require.NoError(t, err)
		}
		assert.Len(t, g.Breakers(), 1025)
		r := resilience.Run(t.Context(), g, "x", notCalled(t), resilience.BreakerKey("open"))
		assert.ErrorIs(t, r.Err, resilience.CodeCircuitOpen, "it isn't forgotten")

		long := strings.Repeat("é", 1000)
		failWithKey(t, g, "x", long)
		assert.Equal(t, resilience.StateClosed, g.Breaker("x").State(), "one that no call uses makes room")
		for _, b := range g.Breakers() {
			assert.LessOrEqual(t, len(b.Name()), 300)
		}

		for i := range 1500 { // each of which is open
			for range 5 {
				_, _ = resilience.Do(t.Context(), g, "x", failing(9, errBoom), resilience.BreakerKey(fmt.Sprint("broken ", i)))
			}
		}
		assert.Len(t, g.Breakers(), 1025)
		assert.Zero(t, g.Breaker("x").Failures(), "those for which there is no room don't shut the tool")
		_, err := resilience.Do(t.Context(), g, "x", succeed, resilience.BreakerKey("another"))
		assert.NoError(t, err)
		_, err = resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			return resilience.Do(ctx, g, "x", succeed, resilience.BreakerKey("another"))
		})
		assert.NoError(t, err, "within a call")
		g.Breaker("x").Trip(20 * time.Second)
		r = resilience.Run(t.Context(), g, "x", notCalled(t), resilience.BreakerKey("another"))
		assert.ErrorIs(t, r.Err, resilience.CodeCircuitOpen)
		time.Sleep(21 * time.Second)
		_, err = resilience.Do(t.Context(), g, "x", succeed, resilience.BreakerKey("another"))
		assert.NoError(t, err)
		assert.Equal(t, resilience.StateClosed, g.Breaker("x").State(), "it was the probe")
	})
}

func TestLabelsOfKeysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		cfg := configWith(resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}})
		cfg.Breaker.Failures, cfg.Observers = 1, []resilience.Observer{r.observer()}
		g := newGuard(t, cfg)
		for i := range 1025 {
			fail := succeed
			if i >= 1023 {
				fail = failing(9, errBoom)
				synctest.Wait() // until what has run the calls before has left their breakers
			}
			_, _ = resilience.Do(t.Context(), g, "x", fail, resilience.BreakerKey(fmt.Sprint(i)))
		}
		flush(t, g)
		changes := received[resilience.BreakerChange](&r)
		require.Len(t, changes, 2)
		assert.Equal(t, "x/1023", changes[0].Label)
		assert.Equal(t, "(others)", changes[1].Label)
	})
}

func TestProbeOfAKeyLearnsItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(map[string]int)
		cfg := configWith(resilience.Tool{})
		cfg.Breaker.Probe = func(ctx context.Context) error {
			asked[resilience.BreakerKeyOf(ctx)]++
			return nil
		}
		g := newGuard(t, cfg)
		failWithKey(t, g, "x", "loki")
		trip(t, g.Breaker("x"))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.Equal(t, map[string]int{"loki": 1, "": 1}, asked)
		assert.Equal(t, "", resilience.BreakerKeyOf(t.Context()))
		for _, b := range g.Breakers() {
			assert.Equal(t, resilience.StateClosed, b.State())
		}
	})
}

// A call on the breaker of a key around it belongs to that call, and one on another key doesn't.
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

// An agent that calls made-up tools doesn't open what is shut.
func TestOpenBreakerOfAKeyOutlivesTheStateOfItsTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{})
		failWithKey(t, g, "unlisted", "k")
		flood(t, g, 3000, succeed)
		r := resilience.Run(t.Context(), g, "unlisted", notCalled(t), resilience.BreakerKey("k"))
		assert.ErrorIs(t, r.Err, resilience.CodeCircuitOpen)
	})
}

// Nobody asks the backends of breakers that are forgotten, by themselves or with their tool.
func TestProbesOfForgottenToolsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		g := newGuard(t, resilience.Config{Retry: steady, Breaker: resilience.BreakerConfig{
			Failures: 1,
			Probe: func(context.Context) error {
				asked.Add(1)
				return resilience.MarkInvalid(errBoom)
			},
		}})
		callAll := func(prefix string, want int) {
			for i := range want {
				_, _ = resilience.Do(t.Context(), g, fmt.Sprint(prefix, i), failing(9, errBoom))
			}
		}
		callAll("a", 1024)
		time.Sleep(31 * time.Second) // now they may be forgotten
		callAll("b", 1024)
		time.Sleep(31 * time.Second)

		asked.Store(0)
		time.Sleep(5 * time.Second)
		assert.LessOrEqual(t, asked.Load(), int64(2*1025), "each is asked after half a ProbeInterval at the earliest")
		_, err := g.Close(t.Context())
		assert.NoError(t, err)
	})
}

func TestProbesOfForgottenBreakersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		asked := make(map[string]bool)
		cfg := configWith(resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}})
		cfg.Breaker.Failures = 1
		cfg.Breaker.Probe = func(ctx context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			asked[resilience.BreakerKeyOf(ctx)] = true
			return resilience.MarkInvalid(errBoom)
		}
		g := newGuard(t, cfg)
		var held *resilience.Breaker
		for round := range 3 {
			for i := range 1024 {
				_, _ = resilience.Do(t.Context(), g, "x", failing(9, errBoom), resilience.BreakerKey(fmt.Sprint(round, "-", i)))
			}
			time.Sleep(31 * time.Second) // now they may be forgotten
			if round == 0 {
				held = g.Breakers()[1] // after that of the tool
			}
		}
		mu.Lock()
		clear(asked)
		mu.Unlock()
		time.Sleep(10 * time.Second)
		mu.Lock()
		assert.NotEmpty(t, asked)
		assert.LessOrEqual(t, len(asked), 1025)
		assert.False(t, asked[held.Key()])
		mu.Unlock()

		held.Trip(time.Hour) // a program may use it on
		time.Sleep(5 * time.Second)
		mu.Lock()
		assert.True(t, asked[held.Key()])
		mu.Unlock()
		_, err := g.Close(t.Context())
		assert.NoError(t, err)
	})
}

func TestBreakerKeyOfARequest(t *testing.T) {
	g := guardWith(t, resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}})
	request := resilience.ForRequest(resilience.Request{BreakerKey: func() string { return "loki" }})
	require.Error(t, resilience.Run(t.Context(), g, "x", failing(9, errBoom), request).Err)
	keys := g.Health()[0].Keys
	require.Len(t, keys, 1)
	assert.Equal(t, "loki", keys[0].Key)
	assert.Equal(t, 1, keys[0].ConsecutiveFailures)
}

func TestOptionGivesTheKeyBeforeTheRequest(t *testing.T) {
	g := guardWith(t, resilience.Tool{})
	request := resilience.ForRequest(resilience.Request{BreakerKey: func() string { return "loki" }})
	require.Error(t, resilience.Run(t.Context(), g, "x", failing(9, errBoom), request, resilience.BreakerKey("tempo")).Err)
	keys := g.Health()[0].Keys
	require.Len(t, keys, 1)
	assert.Equal(t, "tempo", keys[0].Key)
}

// Tools that the server may not have share one breaker, whatever keys are made up for them.
func TestUnknownToolsHaveNoKeys(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	unknown := resilience.ForRequest(resilience.Request{Unknown: true})
	require.Error(t, resilience.Run(t.Context(), g, "made-up", failing(9, errBoom), unknown, resilience.BreakerKey("k")).Err)
	for _, b := range g.Breakers() {
		assert.Empty(t, b.Key())
	}
}

// A retry hears of the breaker that rejects it.
func TestRetryIsRejectedByTheBreakerOfItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly})
		r := resilience.Run(t.Context(), g, "x", func(context.Context) (int, error) {
			failWithKey(t, g, "x", "loki")
			return 0, errBoom
		}, resilience.BreakerKey("loki"))
		assert.ErrorIs(t, r.Err, resilience.CodeCircuitOpen)
		assert.Contains(t, r.Err.Message, "For 'loki'")
	})
}

// A key function that ends the goroutine of its call, which it must not, leaves nothing behind in the guard.
func TestKeyFunctionThatEndsItsGoroutine(t *testing.T) {
	var ended atomic.Int32
	g := newGuard(t, resilience.Config{Observers: []resilience.Observer{{
		End: func(context.Context, resilience.CallEnd) { ended.Add(1) },
	}}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = resilience.Do(t.Context(), g, "x", succeed, resilience.ForRequest(resilience.Request{
			BreakerKey: func() string { runtime.Goexit(); return "" },
		}))
		t.Error("the goroutine goes on")
	}()
	<-done
	_, err := resilience.Do(t.Context(), g, "x", succeed)
	require.NoError(t, err)
	n, err := g.Close(t.Context())
	require.NoError(t, err)
	assert.Zero(t, n)
	assert.EqualValues(t, 2, ended.Load())
}
