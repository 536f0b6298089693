package resilience_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type big struct{ p *[1 << 20]byte }

// areFreed waits until the garbage collector has found n of what a test has made.
func areFreed[T any](t *testing.T, freed chan T, n int) {
	t.Helper()
	assert.Eventually(t, func() bool { runtime.GC(); return len(freed) == n }, 2*time.Minute, time.Millisecond)
}

// A tool that keeps its context keeps no more than that.
func TestContextKeepsNoValue(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	var kept context.Context
	freed := make(chan struct{}, 1)
	_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (big, error) {
		kept = ctx
		b := big{new([1 << 20]byte)}
		runtime.AddCleanup(b.p, func(int) { freed <- struct{}{} }, 0)
		return b, nil
	})
	require.NoError(t, err)
	areFreed(t, freed, 1)
	runtime.KeepAlive(kept)
}

// Nor what its function has captured.
func TestContextKeepsNoFunction(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	var kept context.Context
	freed := make(chan struct{}, 1)
	func() {
		args := big{new([1 << 20]byte)}
		runtime.AddCleanup(args.p, func(int) { freed <- struct{}{} }, 0)
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			kept = ctx
			return int(args.p[0]), nil
		})
		require.NoError(t, err)
	}()
	areFreed(t, freed, 1)
	runtime.KeepAlive(kept)
}

// Nor the options of the call.
func TestContextKeepsNoOptions(t *testing.T) {
	g := newGuard(t, resilience.Config{Debug: true})
	var kept context.Context
	freed := make(chan struct{}, 1)
	func() {
		args := big{new([1 << 20]byte)}
		runtime.AddCleanup(args.p, func(int) { freed <- struct{}{} }, 0)
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			kept = ctx
			return 0, nil
		}, resilience.EffectFrom(func() resilience.Effect { return resilience.Effect(args.p[0]) }))
		require.NoError(t, err)
	}()
	areFreed(t, freed, 1)
	runtime.KeepAlive(kept)
}

// A breaker keeps nothing of its last probe.
func TestBreakerKeepsNoProbe(t *testing.T) {
	g := newGuard(t, resilience.Config{Breaker: resilience.BreakerConfig{Failures: 1, Cooldown: 1}})
	fail := func(ctx context.Context) (big, error) { return big{}, resilience.MarkPermanent(errBoom) }
	_, _ = resilience.Do(t.Context(), g, "x", fail)
	for g.Breaker("x").State() == resilience.Open {
		runtime.Gosched()
	}
	freed := make(chan string, 2)
	func() {
		type k struct{}
		req := big{new([1 << 20]byte)}
		runtime.AddCleanup(req.p, func(int) { freed <- "request" }, 0)
		ctx := context.WithValue(t.Context(), k{}, req)
		_, err := resilience.Do(ctx, g, "x", func(ctx context.Context) (big, error) {
			b := big{new([1 << 20]byte)}
			runtime.AddCleanup(b.p, func(int) { freed <- "value" }, 0)
			return b, nil
		})
		require.NoError(t, err)
	}()
	_, _ = resilience.Do(t.Context(), g, "x", func(ctx context.Context) (big, error) { return big{}, nil })
	areFreed(t, freed, 2)
	runtime.KeepAlive(g)
}

// Nothing keeps a call that has returned: no timer either.
func TestNothingKeepsACall(t *testing.T) {
	g := newGuard(t, one(resilience.Tool{Timeout: time.Hour}))
	freed := make(chan struct{}, 1)
	func() {
		type k struct{}
		req := big{new([1 << 20]byte)}
		runtime.AddCleanup(req.p, func(int) { freed <- struct{}{} }, 0)
		_, err := resilience.Do(context.WithValue(t.Context(), k{}, req), g, "x", func(ctx context.Context) (int, error) { return 0, nil })
		require.NoError(t, err)
	}()
	areFreed(t, freed, 1)
}

// A long call keeps nothing of those that no longer wait for its end.
func TestContextKeepsNoChildren(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
		freed := make(chan struct{}, 1)
		func() {
			child := big{new([1 << 20]byte)}
			runtime.AddCleanup(child.p, func(int) { freed <- struct{}{} }, 0)
			stop := context.AfterFunc(ctx, func() { child.p[0] = 1 })
			assert.True(t, stop())
		}()
		areFreed(t, freed, 1)
		return 0, nil
	})
	require.NoError(t, err)
}
