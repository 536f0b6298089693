package resilience_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPromise6ACallerWhoGoesAwayIsNoFailure(t *testing.T) {
	for name, fn := range map[string]func(context.Context) (int, error){
		"obeys":             func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() },
		"hangs":             hangInt,
		"fails otherwise":   func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, syscall.ECONNREFUSED },
		"says it timed out": func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, context.DeadlineExceeded },
		"panics":            func(ctx context.Context) (int, error) { <-ctx.Done(); panic("p") },
		"waits for a retry": failing(99, waitError{30 * time.Second}),
		"says TIMEOUT":      func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, resilience.TimeoutError("inner", 1) },
		"says it in a wrap": func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, fmt.Errorf("x: %w", resilience.TimeoutError("inner", 1))
		},
		"fails transiently":  func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, resilience.MarkTransient(errBoom) },
		"fails for ever too": func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, resilience.MarkPermanent(errBoom) },
	} {
		for _, cooperative := range []bool{false, true} {
			if cooperative && name == "hangs" {
				continue
			}
			t.Run(fmt.Sprintf("%s, cooperative %v", name, cooperative), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := newGuard(t, one(resilience.Tool{Effect: resilience.ReadOnly, Cooperative: cooperative}))
					var attempts atomic.Int64
					for range 10 {
						ctx, cancel := context.WithCancel(t.Context())
						time.AfterFunc(10*time.Second, cancel)
						r := resilience.Run(ctx, g, "x", func(ctx context.Context) (int, error) { attempts.Add(1); return fn(ctx) })
						require.ErrorIs(t, r.Err, resilience.CodeCanceled)
						require.Equal(t, resilience.CodeCanceled, r.Err.Code)
						require.False(t, r.Err.Retryable)
						require.Equal(t, 10*time.Second, r.Duration)
					}
					assert.EqualValues(t, 10, attempts.Load(), "never retried")
					assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
					assert.Zero(t, g.Health()[0].ConsecutiveFailures)
					assert.Nil(t, g.Health()[0].LastError)
					time.Sleep(time.Hour)
				})
			})
		}
	}
}

// A tool may hear of its caller's leaving before the guard does.
func TestPromise6AToolThatHearsOfItFirst(t *testing.T) {
	for _, cooperative := range []bool{false, true} {
		g := newGuard(t, one(resilience.Tool{Effect: resilience.ReadOnly, Cooperative: cooperative}))
		for range 300 {
			ctx, cancel := context.WithCancel(t.Context())
			go cancel()
			_, err := resilience.Do(ctx, g, "x", func(context.Context) (int, error) { <-ctx.Done(); return 0, errBoom })
			require.ErrorIs(t, err, resilience.CodeCanceled)

			another, leave := context.WithCancel(t.Context())
			_, err = resilience.Do(another, g, "x", func(ctx context.Context) (int, error) {
				leave()
				assert.Equal(t, context.Canceled, ctx.Err(), "at once, as with the standard library's")
				return 0, syscall.ECONNRESET
			})
			require.ErrorIs(t, err, resilience.CodeCanceled)
		}
		assert.Zero(t, g.Health()[0].ConsecutiveFailures)
	}
}

// A connection with the call's deadline fails at the very moment of its end.
// A Cooperative tool that doesn't look at its context: nobody hears of the caller's leaving
// when it happens.
func TestPromise6ACallerWhoLeftUnnoticed(t *testing.T) {
	for _, attemptTimeout := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			cfg := one(resilience.Tool{Cooperative: true, Timeout: 2 * time.Second})
			cfg.AttemptTimeout = attemptTimeout
			cfg.Breaker.Failures = 1
			g := newGuard(t, cfg)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			_, err := resilience.Do(ctx, g, "x", func(context.Context) (int, error) {
				time.Sleep(3 * time.Second)
				return 0, errBoom
			})
			assert.ErrorIs(t, err, resilience.CodeCanceled)
			assert.ErrorIs(t, err, errBoom)
			assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
		})
	}
}

func TestPromise6ADeadlineThatAConnectionKeeps(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			read := func(ctx context.Context) (int, error) {
				deadline, _ := ctx.Deadline()
				time.Sleep(time.Until(deadline))
				return 0, os.ErrDeadlineExceeded
			}
			g := newGuard(t, one(resilience.Tool{}))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := resilience.Do(ctx, g, "x", read)
			require.ErrorIs(t, err, resilience.CodeTimeout)
			require.Zero(t, g.Health()[0].ConsecutiveFailures, "the caller's deadline")
			_, err = resilience.Do(t.Context(), g, "x", read)
			require.ErrorIs(t, err, resilience.CodeTimeout)
			require.Equal(t, 1, g.Health()[0].ConsecutiveFailures, "the tool's own timeout")
		})
	}
}

// Neither does a deadline count that its context doesn't keep or doesn't tell, nor the
// tool's own words after the caller has left.
func TestPromise6OddCallers(t *testing.T) {
	own := func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, &resilience.Error{Code: "BUSY"} }
	for name, caller := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"not kept": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return brokenDeadline{ctx, time.Now().Add(time.Second)}, func() {}
		},
		"not told": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			return secretDeadline{ctx}, cancel
		},
		"deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		},
		"cancel": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		},
	} {
		for _, cooperative := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				g := newGuard(t, one(resilience.Tool{Cooperative: cooperative}))
				for _, fn := range []func(context.Context) (int, error){own, func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, errBoom }} {
					ctx, cancel := caller(t.Context())
					start := time.Now()
					_, err := resilience.Do(ctx, g, "x", fn)
					assert.Error(t, err)
					assert.InDelta(t, time.Second, time.Since(start), float64(time.Millisecond), name)
					assert.Zero(t, g.Health()[0].ConsecutiveFailures, name)
					cancel()
				}
				synctest.Wait()
			})
		}
	}
}
