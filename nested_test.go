package resilience_test

import (
	"context"
	"errors"
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

// nested makes a call of outer whose tool calls inner.
func nested(ctx context.Context, g *resilience.Guard, outer string, fn func(context.Context) (int, error)) error {
	_, err := resilience.Do(ctx, g, outer, func(ctx context.Context) (int, error) {
		return resilience.Do(ctx, g, "inner", fn)
	})
	return err
}

func TestNestedCallsOnOneBreakerCountOnce(t *testing.T) {
	for _, outer := range []string{"outer", "inner"} { // inner: one tool that is guarded twice
		t.Run(outer, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := shareNeo4j(t)
				b := g.Breaker("inner")
				for n := range 5 {
					require.Equal(t, resilience.StateClosed, b.State(), "after %d calls", n)
					require.ErrorIs(t, nested(t.Context(), g, outer, failing(9, errBoom)), errBoom)
				}
				require.Equal(t, resilience.StateOpen, b.State())

				time.Sleep(31 * time.Second)
				require.NoError(t, nested(t.Context(), g, outer, failing(0, nil)), "the probe doesn't reject itself")
				assert.Equal(t, resilience.StateClosed, b.State())
			})
		})
	}
}

func TestNestedPrimitivesOnOneBreakerCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("b", resilience.BreakerConfig{})
		call := func(fn func(context.Context) (int, error)) error {
			_, err := resilience.WithBreaker(t.Context(), b, func(ctx context.Context) (int, error) {
				return resilience.WithBreaker(ctx, b, fn)
			})
			return err
		}
		for range 5 {
			require.Equal(t, resilience.StateClosed, b.State())
			require.ErrorIs(t, call(failing(9, errBoom)), errBoom)
		}
		require.Equal(t, resilience.StateOpen, b.State())

		time.Sleep(31 * time.Second)
		require.NoError(t, call(failing(0, nil)))
		assert.Equal(t, resilience.StateClosed, b.State())
	})
}

// Nothing tells these calls that they are within a call on the same breaker, which is the probe.
func TestPromise2NestedCallsThatCannotKnow(t *testing.T) {
	type calls func(context.Context, *resilience.Guard, toolFunc) (int, error)
	within := map[string]calls{
		"Allow": func(ctx context.Context, g *resilience.Guard, fn toolFunc) (int, error) {
			done, err := g.Breaker("inner").Allow()
			if err != nil {
				return 0, err
			}
			n, err := fn(ctx)
			done(err)
			return n, err
		},
		"another context": func(_ context.Context, g *resilience.Guard, fn toolFunc) (int, error) {
			return resilience.Do(context.Background(), g, "inner", fn)
		},
	}
	around := map[string]calls{
		"Allow": within["Allow"],
		"WithBreaker": func(ctx context.Context, g *resilience.Guard, fn toolFunc) (int, error) {
			return resilience.WithBreaker(ctx, g.Breaker("inner"), fn)
		},
		"Do": func(ctx context.Context, g *resilience.Guard, fn toolFunc) (int, error) {
			return resilience.Do(ctx, g, "outer", fn)
		},
	}
	for innerName, inner := range within {
		for outerName, outer := range around {
			runInBubble(t, innerName+" within "+outerName, func(t *testing.T) {
				g := shareNeo4j(t)
				b := g.Breaker("inner")
				call := func(fn toolFunc) error {
					_, err := outer(t.Context(), g, func(ctx context.Context) (int, error) { return inner(ctx, g, fn) })
					return err
				}
				trip(t, b)
				time.Sleep(31 * time.Second)

				require.ErrorIs(t, call(failing(9, errBoom)), resilience.CodeCircuitOpen)
				require.ErrorIs(t, call(failing(9, errBoom)), errBoom)
				require.Equal(t, resilience.StateOpen, b.State())
				time.Sleep(31 * time.Second)
				require.NoError(t, call(succeed))
				assert.Equal(t, resilience.StateClosed, b.State())
			})
		}
	}
}

// However the tool words the rejection of what it has called, and however deeply calls are within each other.
func TestPromise2NestedCallsWithoutTheirContextDoNotWedge(t *testing.T) {
	lost := func(g *resilience.Guard, tool string, fn toolFunc) toolFunc {
		return func(context.Context) (int, error) { return resilience.Do(context.Background(), g, tool, fn) }
	}
	for name, tc := range map[string]struct {
		failures int // of probes, before one succeeds
		tool     func(*resilience.Guard) toolFunc
	}{
		"its error": {1, func(g *resilience.Guard) toolFunc { return lost(g, "inner", succeed) }},
		"an error of its own": {1, func(g *resilience.Guard) toolFunc {
			return func(ctx context.Context) (int, error) {
				if _, err := lost(g, "inner", succeed)(ctx); err != nil {
					return 0, &resilience.Error{Message: "The graph can't be read", Err: err}
				}
				return 1, nil
			}
		}},
		"a panic": {1, func(g *resilience.Guard) toolFunc {
			return func(ctx context.Context) (int, error) {
				if _, err := lost(g, "inner", succeed)(ctx); err != nil {
					panic(errors.Join(errBoom, err))
				}
				return 1, nil
			}
		}},
		"its error before another": {1, func(g *resilience.Guard) toolFunc {
			return func(ctx context.Context) (int, error) {
				if _, err := lost(g, "inner", succeed)(ctx); err != nil {
					return 0, errors.Join(err, errBoom)
				}
				return 1, nil
			}
		}},
		"its error after another": {1, func(g *resilience.Guard) toolFunc {
			return func(ctx context.Context) (int, error) {
				if _, err := lost(g, "inner", succeed)(ctx); err != nil {
					return 0, errors.Join(errBoom, err)
				}
				return 1, nil
			}
		}},
		"its text": {10, func(g *resilience.Guard) toolFunc {
			return func(ctx context.Context) (int, error) {
				if _, err := lost(g, "inner", succeed)(ctx); err != nil {
					return 0, errors.New(err.Error())
				}
				return 1, nil
			}
		}},
		"a mistake": {1, func(g *resilience.Guard) toolFunc {
			return func(ctx context.Context) (int, error) {
				if _, err := lost(g, "inner", succeed)(ctx); err != nil {
					return 0, resilience.MarkInvalid(errBoom)
				}
				return 1, nil
			}
		}},
		"retries": {1, func(g *resilience.Guard) toolFunc {
			return func(ctx context.Context) (int, error) {
				return resilience.WithRetry(ctx, resilience.Retry{}, lost(g, "inner", succeed))
			}
		}},
		"two levels": {2, func(g *resilience.Guard) toolFunc { return lost(g, "inner", lost(g, "inner", succeed)) }},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := shareNeo4j(t)
			trip(t, g.Breaker("outer"))
			for range tc.failures {
				time.Sleep(31 * time.Second)
				_, err := resilience.Do(t.Context(), g, "outer", tc.tool(g))
				require.Error(t, err)
			}
			time.Sleep(31 * time.Second)
			_, err := resilience.Do(t.Context(), g, "outer", tc.tool(g))
			require.NoError(t, err)
		})
	}
}

// A call within that has done nothing, however often, stands in nobody's way.
func TestNestedCallThatWasRefusedEachTimeHasChangedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{Effect: resilience.NonIdempotent})
		cfg.Tools["inner"] = resilience.Tool{Effect: resilience.NonIdempotent}
		outer, inner := newGuard(t, cfg), newGuard(t, cfg)
		r := resilience.Run(t.Context(), outer, "x", func(ctx context.Context) (int, error) {
			r := resilience.Run(ctx, inner, "inner", failing(9, resilience.MarkTransient(errBoom)))
			assert.Equal(t, resilience.CodeRetryExhausted, r.Err.Code)
			return 0, resilience.MarkInvalid(errBoom)
		})
		assert.NotEqual(t, suggestCheck, r.Err.Suggestion)
	})
}

// What a call within has done isn't repeated, because another one was refused.
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

func TestAnInnerRejectionIsNeitherRetriedNorCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{
			Tools: map[string]resilience.Tool{"outer": {Effect: resilience.ReadOnly}, "inner": {}},
		})
		trip(t, g.Breaker("inner"))
		for range 10 {
			r := resilience.Run(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
				return resilience.Do(ctx, g, "inner", succeed)
			})
			require.ErrorIs(t, r.Err, resilience.CodeCircuitOpen)
			require.Equal(t, 1, r.Attempts)
			require.Zero(t, r.Duration)
		}
		assert.Equal(t, resilience.StateClosed, g.Breaker("outer").State())
	})
}

// A rejection of the last attempt doesn't speak for an earlier one that has failed.
func TestAnInnerRejectionAfterAFailureIsAFailure(t *testing.T) {
	for _, rejection := range []error{
		resilience.CircuitOpenError("inner", time.Second),
		&resilience.Error{Code: resilience.CodeOverloaded},
	} {
		for name, tc := range map[string]struct {
			first    error
			failures int
		}{
			"failure":   {errBoom, 1},
			"rejection": {resilience.MarkTransient(rejection), 0},
			"transient": {resilience.MarkTransient(errBoom), 1},
		} {
			runInBubble(t, name, func(t *testing.T) {
				g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly})
				r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					if resilience.Attempt(ctx) == 1 {
						return 0, tc.first
					}
					return 0, rejection
				})
				assert.ErrorIs(t, r.Err, rejection)
				assert.Equal(t, tc.failures, g.Health()[0].ConsecutiveFailures)
			})
		}
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

// A mark of a tool within speaks for the call of that tool, and not for what the tool around it did before.
func TestPromise8AMarkWithinSpeaksForTheCallWithin(t *testing.T) {
	asItIs := func(err error) error { return err }
	for name, tc := range map[string]struct {
		passOn  func(error) error
		charged int
	}{
		"as it is":                    {asItIs, 1},
		"wrapped":                     {func(err error) error { return fmt.Errorf("stock: %w", err) }, 1},
		"marked by the tool itself":   {resilience.MarkTransient, 4},
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
			refuse := func(context.Context) (int, error) { return 0, resilience.MarkTransient(errBoom) }
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

// A call within that was the caller's mistake may have done something before it noticed.
func TestPromise8MistakeWithinMayHaveChangedSomething(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{
			"order":  {Effect: resilience.NonIdempotent},
			"charge": {Effect: resilience.NonIdempotent},
		}})
		charged := 0
		r := resilience.Run(t.Context(), g, "order", func(ctx context.Context) (int, error) {
			_, err := resilience.Do(ctx, g, "charge", func(context.Context) (int, error) {
				charged++
				return 0, resilience.MarkInvalid(errBoom)
			})
			assert.ErrorIs(t, err, resilience.CodeValidation)
			return 0, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		})
		assert.Equal(t, resilience.CodeConnectionLost, r.Err.Code)
		assert.Equal(t, 1, charged)
	})
}

// Whether a failure says anything about the backend doesn't depend on whether the tool makes the request by a call of
// its own, or passes the error through a function of this package.
func TestMistakeWithinACallOpensNoBreakerAroundIt(t *testing.T) {
	answered := func(ctx context.Context) (int, error) {
		resilience.ReportBackend(ctx, nil)
		return 0, errBoom
	}
	unknown := func(context.Context) (int, error) { return 0, errBoom }
	request := resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral})
	for name, tc := range map[string]struct {
		tool    func(*resilience.Guard) toolFunc
		options []resilience.Option
	}{
		"a call": {tool: func(g *resilience.Guard) toolFunc {
			return func(ctx context.Context) (int, error) { return resilience.Do(ctx, g, "inner", answered) }
		}},
		"a call, wrapped, with debug": {tool: func(g *resilience.Guard) toolFunc {
			return func(ctx context.Context) (int, error) {
				n, err := resilience.Do(ctx, g, "inner", answered, resilience.Debug())
				return n, fmt.Errorf("report: %w", err)
			}
		}},
		"a call within a call": {tool: func(g *resilience.Guard) toolFunc {
			return func(ctx context.Context) (int, error) {
				return resilience.Do(ctx, g, "another", func(ctx context.Context) (int, error) {
					return resilience.Do(ctx, g, "inner", answered)
				})
			}
		}},
		"a call of which nothing is known": {tool: func(g *resilience.Guard) toolFunc {
			return func(ctx context.Context) (int, error) { return resilience.Do(ctx, g, "inner", unknown) }
		}, options: []resilience.Option{request}},
		"a call within a call, of which nothing is known": {tool: func(g *resilience.Guard) toolFunc {
			return func(ctx context.Context) (int, error) {
				return resilience.Do(ctx, g, "another", func(ctx context.Context) (int, error) {
					return resilience.WithTimeout(ctx, "part", time.Minute, func(ctx context.Context) (int, error) {
						return resilience.Do(ctx, g, "inner", unknown)
					})
				})
			}
		}, options: []resilience.Option{request}},
		"a call without the caller's end": {tool: func(g *resilience.Guard) toolFunc {
			return func(ctx context.Context) (int, error) {
				return resilience.Do(context.WithoutCancel(ctx), g, "inner", unknown)
			}
		}, options: []resilience.Option{request}},
		"WithRetry": {tool: func(*resilience.Guard) toolFunc {
			return func(ctx context.Context) (int, error) {
				return resilience.WithRetry(ctx, resilience.Retry{}, unknown)
			}
		}, options: []resilience.Option{request}},
		"AsError": {tool: func(*resilience.Guard) toolFunc {
			return func(context.Context) (int, error) { return 0, resilience.AsError("x", errBoom) }
		}, options: []resilience.Option{request}},
		"AsError of WithRetry": {tool: func(*resilience.Guard) toolFunc {
			return func(ctx context.Context) (int, error) {
				_, err := resilience.WithRetry(ctx, resilience.Retry{}, unknown)
				return 0, resilience.AsError("x", fmt.Errorf("report: %w", err))
			}
		}, options: []resilience.Option{request}},
		"AsError, twice": {tool: func(*resilience.Guard) toolFunc {
			return func(context.Context) (int, error) {
				return 0, resilience.AsError("x", resilience.AsError("y", errBoom))
			}
		}, options: []resilience.Option{request}},
	} {
		for _, shared := range []string{"", "backend"} {
			runInBubble(t, name+" "+shared, func(t *testing.T) {
				cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly, Breaker: shared})
				cfg.Tools["inner"], cfg.Tools["another"] = cfg.Tools["x"], cfg.Tools["x"]
				g := newGuard(t, cfg)
				r := resilience.Run(t.Context(), g, "x", tc.tool(g), tc.options...)
				require.ErrorIs(t, r.Err, errBoom)
				assert.Equal(t, 1, r.Attempts)
				for _, h := range g.Health() {
					assert.Zero(t, h.ConsecutiveFailures, h.Tool)
				}
			})
		}
	}
}

// What an inner call has counted is the backend's failure for the outer call, too, and so is what the tool's author
// says.
func TestFailureWithinACallCountsForTheCallAroundIt(t *testing.T) {
	request := resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral})
	for name, tool := range map[string]func(*resilience.Guard) toolFunc{
		"a call": func(g *resilience.Guard) toolFunc {
			return func(ctx context.Context) (int, error) {
				return resilience.Do(ctx, g, "inner", func(context.Context) (int, error) { return 0, resilience.MarkBackend(errBoom) })
			}
		},
		"a call with a word of its own": func(g *resilience.Guard) toolFunc {
			counted := resilience.ForRequest(resilience.Request{})
			return func(ctx context.Context) (int, error) {
				return resilience.Do(ctx, g, "inner", func(context.Context) (int, error) { return 0, errBoom }, counted)
			}
		},
		"WithRetry": func(*resilience.Guard) toolFunc {
			return func(ctx context.Context) (int, error) {
				return resilience.WithRetry(ctx, resilience.Retry{}, func(context.Context) (int, error) {
					return 0, context.DeadlineExceeded
				})
			}
		},
		"an own RETRY_EXHAUSTED": func(*resilience.Guard) toolFunc {
			return func(context.Context) (int, error) { return 0, resilience.RetryExhaustedError("x", 3, errBoom) }
		},
		"AsError of an own error": func(*resilience.Guard) toolFunc {
			return func(context.Context) (int, error) {
				return 0, resilience.AsError("x", &resilience.Error{Code: "DOWN", Message: "It is down."})
			}
		},
		"AsError of a mark": func(*resilience.Guard) toolFunc {
			return func(context.Context) (int, error) {
				return 0, resilience.AsError("x", resilience.MarkPermanent(errBoom))
			}
		},
		"AsError of a panic": func(*resilience.Guard) toolFunc {
			return func(context.Context) (int, error) {
				return 0, resilience.AsError("x", &resilience.PanicError{Value: "p"})
			}
		},
		"AsError, marked": func(*resilience.Guard) toolFunc {
			return func(context.Context) (int, error) {
				return 0, resilience.MarkBackend(resilience.AsError("x", errBoom))
			}
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := configWith(resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}})
			cfg.Tools["inner"] = cfg.Tools["x"]
			g := newGuard(t, cfg)
			_, err := resilience.Do(t.Context(), g, "x", tool(g), request)
			require.Error(t, err)
			assert.Equal(t, 1, g.Breaker("x").Failures())
		})
	}
}

// What a tool's work in the background fails with is the agent's as much as before, whichever guard it is made under.
func TestACallAfterTheOneAroundItIsTheAgentsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		behind := resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral})
		outer, inner := newGuard(t, resilience.Config{}), newGuard(t, resilience.Config{})
		var background context.Context
		resilience.Run(t.Context(), outer, "x", func(ctx context.Context) (int, error) {
			background = context.WithoutCancel(ctx)
			return 0, nil
		}, behind)
		for _, err := range []error{errBoom, syscall.ECONNRESET} {
			_, got := resilience.Do(background, inner, "y", failing(9, err))
			require.ErrorIs(t, got, err)
		}
		assert.Equal(t, 1, inner.Breaker("y").Failures(), "what is certain to be the backend's trouble counts")
	})
}
