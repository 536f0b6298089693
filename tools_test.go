package resilience_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

func TestToolIsOverloadedWhileTooManyAbandonedCallsStillRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{
			MaxAbandoned: 3,
			Breaker:      resilience.BreakerConfig{Failures: 100},
		})
		for i := range 3 {
			_, err := resilience.Do(t.Context(), g, "x", hang(time.Hour))
			require.ErrorIs(t, err, resilience.CodeTimeout, "call %d", i)
		}

		start := time.Now()
		r := resilience.Run(t.Context(), g, "x", notCalled(t))
		assert.ErrorIs(t, r.Err, resilience.CodeOverloaded)
		assert.Equal(t, "Too many earlier calls of tool 'x' still run", r.Err.Message)
		assert.True(t, r.Err.Retryable)
		assert.Zero(t, r.Attempts)
		assert.Equal(t, start, time.Now())
		h := g.Health()[0]
		assert.Equal(t, []int{3, 0}, []int{h.Abandoned, h.InFlight})
		assert.Equal(t, 3, h.ConsecutiveFailures, "an overload isn't counted")

		_, err := resilience.Do(t.Context(), g, "y", succeed)
		assert.NoError(t, err, "each tool has its own limit")

		time.Sleep(time.Hour)
		_, err = resilience.Do(t.Context(), g, "x", succeed)
		assert.NoError(t, err, "the abandoned calls have returned")
		assert.Zero(t, g.Health()[0].Abandoned)
	})
}

func TestRetriesOfAnOverloadedToolAreNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly, Timeout: 3 * time.Second})
		cfg.MaxAbandoned = 1
		g := newGuard(t, cfg)
		go resilience.Run(t.Context(), g, "x", hang(time.Hour), resilience.Timeout(time.Second))
		r := resilience.Run(t.Context(), g, "x", failingAfter(4*time.Second, errBoom), resilience.Timeout(time.Minute))
		assert.Equal(t, 1, r.Attempts)
		time.Sleep(time.Hour)
	})
}

// A rejected probe gives its slot back.
func TestProbeOfAnOverloadedToolGivesItsSlotBack(t *testing.T) {
	for name, limit := range map[string]resilience.Config{
		"too many calls":     configWith(resilience.Tool{MaxInFlight: 1, Timeout: 2 * time.Minute}),
		"too many abandoned": {MaxAbandoned: 1, Tools: map[string]resilience.Tool{"x": {Timeout: time.Second}}},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := newGuard(t, limit)
			go func() { _, _ = resilience.Do(t.Context(), g, "x", hang(90*time.Second)) }()
			time.Sleep(2 * time.Second)
			g.Breaker("x").Trip(0)

			time.Sleep(30 * time.Second)
			assert.ErrorIs(t, resilience.Run(t.Context(), g, "x", notCalled(t)).Err, resilience.CodeOverloaded)
			assert.Equal(t, resilience.StateHalfOpen, g.Breaker("x").State())

			time.Sleep(time.Minute)
			assert.Nil(t, resilience.Run(t.Context(), g, "x", succeed).Err)
			assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
		})
	}
}

// An agent may make up a name of any size. It would reach logs, traces and other agents.
func TestLongNameIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		huge := strings.Repeat("ä", 1<<20)
		listed := strings.Repeat("l", 300)
		cfg := observed(resilience.Tool{}, r.observer())
		cfg.Tools[listed] = resilience.Tool{}
		g := newGuard(t, cfg)

		request := resilience.ForRequest(resilience.Request{
			RequestInfo: resilience.RequestInfo{Method: huge, Session: huge, Protocol: huge},
		})
		_, err := resilience.Do(t.Context(), g, huge, failing(9, errBoom), request)
		_, _ = resilience.Do(t.Context(), g, listed, failing(9, errBoom))
		flush(t, g)

		cut := strings.Repeat("ä", 128) + "…"
		e := err.(*resilience.Error)
		assert.Equal(t, "Tool '"+cut+"' failed", e.Message)
		assert.Equal(t, cut, e.Tool)
		starts := received[resilience.CallStart](&r)
		assert.Equal(t, resilience.RequestInfo{Method: cut, Session: cut, Protocol: cut}, starts[0].Request)
		assert.Equal(t, []string{cut, listed}, []string{starts[0].Tool, starts[1].Tool})
		assert.Equal(t, "(others)", received[resilience.CallEnd](&r)[0].Label)
	})
}

func TestMaxInFlightRejectsFurtherCallsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{MaxInFlight: 2, Effect: resilience.ReadOnly})
		for range 2 {
			var running sync.WaitGroup
			for range 2 {
				running.Go(func() { _, _ = resilience.Do(t.Context(), g, "x", hang(time.Second)) })
			}
			synctest.Wait()
			assert.False(t, g.Health()[0].Available)

			start := time.Now()
			r := resilience.Run(t.Context(), g, "x", notCalled(t))
			assert.Equal(t, resilience.CodeOverloaded, r.Err.Code)
			assert.Equal(t, "Too many calls of tool 'x' still run", r.Err.Message)
			assert.True(t, r.Err.Retryable)
			assert.Zero(t, time.Since(start))
			assert.Zero(t, g.Health()[0].ConsecutiveFailures)
			assert.Nil(t, resilience.Run(t.Context(), g, "y", succeed).Err, "other tools have their own limits")

			running.Wait()
			assert.True(t, g.Health()[0].Available)
			for range 3 {
				assert.Nil(t, resilience.Run(t.Context(), g, "x", succeed).Err)
			}
		}
	})
}

func TestMaxInFlightIsExact(t *testing.T) {
	g := guardWith(t, resilience.Tool{MaxInFlight: 1})
	release := make(chan struct{})
	results := make(chan error, 50)
	for range 50 {
		go func() {
			waits := func(context.Context) (int, error) { <-release; return 0, nil }
			_, err := resilience.Do(t.Context(), g, "x", waits)
			results <- err
		}()
	}
	for range 49 {
		assert.ErrorIs(t, <-results, resilience.CodeOverloaded)
	}
	close(release)
	assert.NoError(t, <-results)
}

// A tool that is guarded twice, or calls itself, has a place already. Another tool that it calls needs one.
func TestMaxInFlightLeavesOutCallsWithinACall(t *testing.T) {
	g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{
		"x": {MaxInFlight: 1, MaxWait: time.Millisecond, Breaker: "b"}, "y": {MaxInFlight: 1, Breaker: "b"},
	}})
	call := func(ctx context.Context, tool string, fn toolFunc, opts ...resilience.Option) *resilience.Error {
		return resilience.Run(ctx, g, tool, fn, opts...).Err
	}
	for range 2 {
		assert.Nil(t, call(t.Context(), "x", func(ctx context.Context) (int, error) {
			assert.Nil(t, call(ctx, "x", succeed))
			assert.Nil(t, call(ctx, "x", succeed, resilience.BreakerKey("a")))
			assert.ErrorIs(t, call(t.Context(), "x", notCalled(t)), resilience.CodeOverloaded)
			assert.Nil(t, call(ctx, "y", func(context.Context) (int, error) {
				assert.ErrorIs(t, call(t.Context(), "y", notCalled(t)), resilience.CodeOverloaded)
				return 1, nil
			}))
			return 1, nil
		}))
	}
}
