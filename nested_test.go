package resilience_test

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shareNeo4j is a guard whose tools outer and inner share a breaker. Nothing is retried.
func shareNeo4j(t *testing.T) *resilience.Guard {
	return newGuard(t, resilience.Config{
		Tools: map[string]resilience.Tool{"outer": {Breaker: "neo4j"}, "inner": {Breaker: "neo4j"}},
		Retry: resilience.Retry{MaxRetries: -1},
	})
}

// A nesting calls fn on the breaker of shareNeo4j.
type nesting func(context.Context, *resilience.Guard, toolFunc) (int, error)

func callInner(ctx context.Context, g *resilience.Guard, fn toolFunc) (int, error) {
	return resilience.Do(ctx, g, "inner", fn)
}

func callOuter(ctx context.Context, g *resilience.Guard, fn toolFunc) (int, error) {
	return resilience.Do(ctx, g, "outer", fn)
}

func withBreaker(ctx context.Context, g *resilience.Guard, fn toolFunc) (int, error) {
	return resilience.WithBreaker(ctx, g.Breaker("inner"), fn)
}

func withoutContext(_ context.Context, g *resilience.Guard, fn toolFunc) (int, error) {
	return callInner(context.Background(), g, fn)
}

func byAllow(ctx context.Context, g *resilience.Guard, fn toolFunc) (int, error) {
	done, err := g.Breaker("inner").Allow()
	if err != nil {
		return 0, err
	}

	n, err := fn(ctx)
	done(err)
	return n, err
}

func callNested(t *testing.T, g *resilience.Guard, outer, inner nesting, fn toolFunc) error {
	_, err := outer(t.Context(), g, func(ctx context.Context) (int, error) { return inner(ctx, g, fn) })
	return err
}

func TestNestedCallsOnOneBreakerCountOnce(t *testing.T) {
	for name, tc := range map[string]struct{ outer, inner nesting }{
		"a tool within another":        {callOuter, callInner},
		"a tool that is guarded twice": {callInner, callInner},
		"WithBreaker, twice":           {withBreaker, withBreaker},
		"WithBreaker within a tool":    {callOuter, withBreaker},
		"a tool within WithBreaker":    {withBreaker, callInner},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := shareNeo4j(t)
			b := g.Breaker("inner")
			call := func(fn toolFunc) error { return callNested(t, g, tc.outer, tc.inner, fn) }
			for n := range 5 {
				require.Equal(t, n, b.Failures())
				require.ErrorIs(t, call(failing(9, errBoom)), errBoom)
			}
			require.Equal(t, resilience.StateOpen, b.State())

			time.Sleep(30 * time.Second)
			require.NoError(t, call(succeed), "the probe doesn't reject itself")
			assert.Equal(t, resilience.StateClosed, b.State())
		})
	}
}

// Nothing tells these calls that they are within a call on the same breaker, which is the probe.
func TestPromise2NestedCallsThatCannotKnow(t *testing.T) {
	outers := map[string]nesting{"Allow": byAllow, "WithBreaker": withBreaker, "Do": callOuter}
	for innerName, inner := range map[string]nesting{"Allow": byAllow, "another context": withoutContext} {
		for outerName, outer := range outers {
			runInBubble(t, innerName+" within "+outerName, func(t *testing.T) {
				g := shareNeo4j(t)
				b := g.Breaker("inner")
				call := func(fn toolFunc) error { return callNested(t, g, outer, inner, fn) }
				makeHalfOpen(t, b)
				require.ErrorIs(t, call(failing(9, errBoom)), resilience.CodeCircuitOpen)
				require.ErrorIs(t, call(failing(9, errBoom)), errBoom)
				require.Equal(t, resilience.StateOpen, b.State())

				time.Sleep(30 * time.Second)
				if call(succeed) != nil {
					require.NoError(t, call(succeed))
				}
				assert.Equal(t, resilience.StateClosed, b.State())
			})
		}
	}
}

// A write within a tool isn't repeated because another call was refused later.
func TestPromise8NestedCallsMayHaveChangedSomething(t *testing.T) {
	refuse := failing(9, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	for name, tc := range map[string]struct {
		first    resilience.Tool
		fn       toolFunc
		attempts int
	}{
		"a write":               {resilience.Tool{Effect: resilience.NonIdempotent}, succeed, 1},
		"a write that failed":   {resilience.Tool{Effect: resilience.NonIdempotent}, failing(9, errBoom), 1},
		"an unknown effect":     {resilience.Tool{}, succeed, 1},
		"a look-up":             {resilience.Tool{Effect: resilience.ReadOnly}, succeed, 4},
		"a write that may come": {resilience.Tool{Effect: resilience.Idempotent}, succeed, 4},
		"a refused write":       {resilience.Tool{Effect: resilience.NonIdempotent}, refuse, 4},
		"a write, then a mistake": {
			resilience.Tool{Effect: resilience.NonIdempotent}, failing(9, resilience.MarkInvalid(errBoom)), 1,
		},
		"a write that was cut off": {
			resilience.Tool{Effect: resilience.NonIdempotent, Timeout: time.Second}, untilDone, 1,
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			tc.first.Retry = &resilience.Retry{MaxRetries: -1}
			cfg := configWith(resilience.Tool{Effect: resilience.NonIdempotent})
			cfg.Tools["first"], cfg.Tools["second"] = tc.first, resilience.Tool{Retry: tc.first.Retry}
			g := newGuard(t, cfg)
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				_, _ = resilience.Do(ctx, g, "first", tc.fn)
				return resilience.Do(ctx, g, "second", refuse)
			})
			assert.Equal(t, tc.attempts, r.Attempts)
			assert.Equal(t, tc.attempts > 1, r.Err.Suggestion != suggestCheck)
		})
	}
}

// The first attempt of the inner call was harmless, and the second one wrote and ended its goroutine.
func TestPromise8NestedCallThatCallsGoexitMayHaveChangedSomething(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{Effect: resilience.NonIdempotent})
		cfg.Tools["inner"] = resilience.Tool{Effect: resilience.NonIdempotent, Cooperative: true}
		g := newGuard(t, cfg)
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			resilience.All(ctx, g, resilience.Call[int]{Tool: "inner", Func: func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) == 1 {
					return 0, syscall.ECONNREFUSED
				}
				return exit(ctx)
			}})
			return 0, syscall.ECONNREFUSED
		})
		assert.Equal(t, 1, r.Attempts)
	})
}

// A mark of a tool within speaks for its own call, and not for earlier requests of the tool around it.
func TestPromise8AMarkWithinSpeaksForTheCallWithin(t *testing.T) {
	asItIs := func(err error) error { return err }
	for name, tc := range map[string]struct {
		passOn  func(error) error
		charged int
	}{
		"as it is":                    {asItIs, 1},
		"wrapped":                     {func(err error) error { return fmt.Errorf("stock: %w", err) }, 1},
		"marked by the tool itself":   {resilience.MarkNoEffect, 4},
		"marked as trouble by itself": {resilience.MarkBackend, 1},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{
				"order":  {Effect: resilience.NonIdempotent},
				"charge": {Effect: resilience.NonIdempotent},
				"stock":  {Effect: resilience.ReadOnly, Retry: &resilience.Retry{MaxRetries: -1}},
			}})
			charged := 0
			charge := func(context.Context) (int, error) { charged++; return 0, nil }
			refuse := func(context.Context) (int, error) { return 0, resilience.MarkNoEffect(errBoom) }
			r := resilience.Run(t.Context(), g, "order", func(ctx context.Context) (int, error) {
				if _, err := resilience.Do(ctx, g, "charge", charge); err != nil {
					return 0, err
				}
				_, err := resilience.Do(ctx, g, "stock", refuse)
				return 0, tc.passOn(err)
			})
			assert.Equal(t, tc.charged, charged)
			assert.Equal(t, tc.charged > 1, r.Err.Retryable)
			assert.ErrorIs(t, r.Err, errBoom)
		})
	}
}
