package resilience_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

func TestMaxInFlightRejectsFurtherCallsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{MaxInFlight: 2, Effect: resilience.ReadOnly})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { _, _ = resilience.Do(t.Context(), g, "x", hang(time.Second), resilience.BreakerKey("a")) })
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
		assert.Nil(t, resilience.Run(t.Context(), g, "y", succeed).Err, "other tools have their own")

		wg.Wait()
		assert.True(t, g.Health()[0].Available)
		for range 3 {
			assert.Nil(t, resilience.Run(t.Context(), g, "x", succeed).Err)
		}
		for range 2 {
			wg.Go(func() { _, _ = resilience.Do(t.Context(), g, "x", hang(time.Second)) })
		}
		synctest.Wait()
		r = resilience.Run(t.Context(), g, "x", notCalled(t))
		assert.ErrorIs(t, r.Err, resilience.CodeOverloaded, "calls that have ended leave room for one each")
		wg.Wait()
	})
}

// What rejects one call must not reject another one for its sake.
// A tool that is guarded twice, or calls itself, has a place already. Another tool that it calls needs one.
func TestMaxInFlightLeavesOutCallsWithinACall(t *testing.T) {
	g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{
		"x": {MaxInFlight: 1, Breaker: "b"}, "y": {MaxInFlight: 1, Breaker: "b"},
	}})
	call := func(ctx context.Context, tool string, fn toolFunc, opts ...resilience.Option) *resilience.Error {
		return resilience.Run(ctx, g, tool, fn, opts...).Err
	}
	for range 2 {
		err := call(t.Context(), "x", func(ctx context.Context) (int, error) {
			assert.Nil(t, call(ctx, "x", succeed))
			assert.Nil(t, call(ctx, "x", succeed, resilience.BreakerKey("a")))
			assert.ErrorIs(t, call(t.Context(), "x", notCalled(t)), resilience.CodeOverloaded)
			assert.Nil(t, call(ctx, "y", func(ctx context.Context) (int, error) {
				assert.Nil(t, call(ctx, "x", succeed))
				assert.ErrorIs(t, call(t.Context(), "y", notCalled(t)), resilience.CodeOverloaded)
				return 1, nil
			}))
			return 1, nil
		})
		assert.Nil(t, err)
	}

	other := guardWith(t, resilience.Tool{MaxInFlight: 1})
	release := make(chan struct{})
	var wg sync.WaitGroup
	begun := make(chan struct{})
	wg.Go(func() {
		_, _ = resilience.Do(t.Context(), other, "x", func(context.Context) (int, error) { close(begun); <-release; return 1, nil })
	})
	<-begun
	assert.Nil(t, call(t.Context(), "x", func(ctx context.Context) (int, error) {
		_, err := resilience.Do(ctx, other, "x", notCalled(t))
		assert.ErrorIs(t, err, resilience.CodeOverloaded, "it is the tool of another guard")
		return 1, nil
	}))
	close(release)
	wg.Wait()
}

func TestMaxInFlightIsExact(t *testing.T) {
	g := guardWith(t, resilience.Tool{MaxInFlight: 1})
	var wg sync.WaitGroup
	release := make(chan struct{})
	results := make(chan error, 50)
	for range 50 {
		wg.Go(func() {
			_, err := resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) { <-release; return 0, nil })
			results <- err
		})
	}
	for range 49 {
		assert.ErrorIs(t, <-results, resilience.CodeOverloaded)
	}
	close(release)
	wg.Wait()
	assert.NoError(t, <-results)
}

// A probe that finds no room has said nothing.
func TestMaxInFlightGivesTheSlotOfAProbeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{MaxInFlight: 1})
		go func() { _, _ = resilience.Do(t.Context(), g, "x", hang(time.Minute-1)) }()
		synctest.Wait()
		trip(t, g.Breaker("x"))
		time.Sleep(31 * time.Second)
		assert.ErrorIs(t, resilience.Run(t.Context(), g, "x", notCalled(t)).Err, resilience.CodeOverloaded)
		assert.Equal(t, resilience.StateHalfOpen, g.Breaker("x").State())
		time.Sleep(time.Minute)
		assert.Nil(t, resilience.Run(t.Context(), g, "x", succeed).Err)
		assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
	})
}

func TestAttemptTimeoutOfATool(t *testing.T) {
	for name, tc := range map[string]struct {
		own  time.Duration
		want int // attempts
	}{
		"its own":         {2 * time.Second, 4},
		"the Config's":    {0, 2},
		"none":            {-1, 1},
		"longer than all": {time.Hour, 1},
	} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly, Timeout: 10 * time.Second, AttemptTimeout: tc.own})
			cfg.AttemptTimeout = 7 * time.Second
			r := resilience.Run(t.Context(), newGuard(t, cfg), "x", untilDone)
			assert.Equal(t, tc.want, r.Attempts)
		})
	}
}

// Retries by default are for failures that come within 5s, and for attempts that hang until their AttemptTimeout.
func TestAttemptThatHangsLeavesTimeForAnother(t *testing.T) {
	for name, tool := range map[string]resilience.Tool{
		"the default Retry":       {},
		"a Retry of the tool's":   {Retry: &resilience.Retry{MaxRetries: 1}},
		"a longer AttemptTimeout": {AttemptTimeout: 20 * time.Second},
	} {
		runInBubble(t, name, func(t *testing.T) {
			tool.Effect = resilience.ReadOnly
			cfg := configWith(tool)
			cfg.Retry, cfg.AttemptTimeout = resilience.Retry{}, 10*time.Second
			r := resilience.Run(t.Context(), newGuard(t, cfg), "x", func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) == 1 {
					return untilDone(ctx)
				}
				return 1, nil
			})
			assert.Nil(t, r.Err)
			assert.Equal(t, 2, r.Attempts)
		})
	}
}

func TestAttemptTimeoutOfACooperativeTool(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		fn       toolFunc
		value    int
		attempts int
		took     time.Duration
	}{
		"it fails at its end": {
			fn: func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) == 2 {
					return 2, nil
				}
				return untilDone(ctx)
			},
			value: 2, attempts: 2, took: 2*s + 100*time.Millisecond,
		},
		"it succeeds at its end": {
			fn:    func(ctx context.Context) (int, error) { <-ctx.Done(); return 1, nil },
			value: 1, attempts: 1, took: 2 * s,
		},
		"it ignores its end": {fn: hang(5 * s), value: lateValue, attempts: 1, took: 5 * s},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{
				Effect: resilience.ReadOnly, Cooperative: true, Timeout: 10 * s, AttemptTimeout: 2 * s,
			})
			r := resilience.Run(t.Context(), g, "x", tc.fn)
			assert.Nil(t, r.Err)
			assert.Equal(t, tc.value, r.Value)
			assert.Equal(t, tc.attempts, r.Attempts)
			assert.Equal(t, tc.took, r.Duration)
		})
	}
}
