package resilience_test

import (
	"context"
	"errors"
	"io"
	"math"
	"runtime"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDoAttemptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := one(resilience.Tool{Effect: resilience.ReadOnly})
		cfg.AttemptTimeout = 10 * time.Second
		g := newGuard(t, cfg)
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (string, error) {
			if resilience.Attempt(ctx) < 3 {
				time.Sleep(time.Hour)
			}
			return "v", nil
		})
		assert.Nil(t, r.Err)
		assert.Equal(t, "v", r.Value)
		assert.Equal(t, 3, r.Attempts)
		assert.Equal(t, 20300*time.Millisecond, r.Duration)
		assert.Equal(t, 2, g.Health()[0].Abandoned)

		r = resilience.Run(t.Context(), g, "x", obey)
		assert.ErrorIs(t, r.Err, resilience.CodeRetryExhausted)
		assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
		assert.Equal(t, 4, r.Attempts)
		assert.Equal(t, 40700*time.Millisecond, r.Duration)

		// An attempt that is cut off may have had an effect.
		g = newGuard(t, resilience.Config{AttemptTimeout: time.Second})
		r = resilience.Run(t.Context(), g, "y", obey)
		assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
		assert.Equal(t, 1, r.Attempts)
		assert.Equal(t, "Tool 'y' exceeded timeout of 1s", r.Err.Message)

		// The call's timeout ends the last attempt.
		cfg.AttemptTimeout = 50 * time.Second
		g = newGuard(t, cfg)
		r = resilience.Run(t.Context(), g, "x", obey)
		assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
		assert.Equal(t, 2, r.Attempts)
		assert.Equal(t, "Tool 'x' exceeded timeout of 60s", r.Err.Message)
		time.Sleep(time.Hour)
	})
}

func TestDoOverloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := resilience.Config{MaxAbandoned: 3, Breaker: resilience.BreakerConfig{Failures: 100}}
		g := newGuard(t, cfg)
		for i := range 3 {
			_, err := resilience.Do(t.Context(), g, "x", hang(time.Hour))
			require.ErrorIs(t, err, resilience.CodeTimeout, "call %d", i)
		}
		start := time.Now()
		r := resilience.Run(t.Context(), g, "x", hang(time.Hour))
		assert.ErrorIs(t, r.Err, resilience.CodeOverloaded)
		assert.Equal(t, "too many earlier calls of tool 'x' still run", r.Err.Message)
		assert.True(t, r.Err.Retryable)
		assert.Zero(t, r.Attempts)
		assert.Equal(t, start, time.Now())
		assert.Equal(t, 3, g.Health()[0].Abandoned)
		assert.Equal(t, 3, g.Health()[0].ConsecutiveFailures, "a call that was turned away isn't counted")
		assert.Zero(t, g.Health()[0].InFlight)

		_, err := resilience.Do(t.Context(), g, "y", failing(0, nil))
		assert.NoError(t, err, "each tool has its own")
		time.Sleep(time.Hour)
		_, err = resilience.Do(t.Context(), g, "x", failing(0, nil))
		assert.NoError(t, err, "they have returned")
		assert.Zero(t, g.Health()[0].Abandoned)

		// Retries of attempts that hang don't go over it either.
		cfg.MaxAbandoned, cfg.AttemptTimeout = 2, time.Second
		cfg.Tools = map[string]resilience.Tool{"x": {Effect: resilience.ReadOnly}}
		g = newGuard(t, cfg)
		r = resilience.Run(t.Context(), g, "x", hang(time.Hour))
		assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
		assert.Equal(t, 2, r.Attempts)
		time.Sleep(time.Hour)
	})
}

func TestDoCooperative(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, one(resilience.Tool{Cooperative: true}))
		before := goroutines(self)
		count, err := resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) { return goroutines(self), nil })
		assert.NoError(t, err)
		assert.LessOrEqual(t, count, before, "it runs on the caller's")

		_, err = resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) { panic(io.EOF) })
		assert.ErrorIs(t, err, resilience.CodeToolFailed)
		assert.ErrorIs(t, err, io.EOF)

		value, err := resilience.Do(t.Context(), g, "x", hang(2*time.Minute))
		assert.NoError(t, err, "late, but an answer is better than none")
		assert.Equal(t, "late", value)

		_, err = resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, &resilience.Error{Code: "BUSY", Message: "The index is being built"}
		})
		assert.ErrorIs(t, err, resilience.Code("BUSY"), "its own words stand after the end")

		exited := make(chan struct{})
		go func() {
			defer close(exited)
			_, _ = resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) { runtime.Goexit(); return 0, nil })
		}()
		<-exited
		h := g.Health()[0]
		assert.Zero(t, h.InFlight)
		assert.ErrorIs(t, h.LastError, resilience.ErrGoexit)
	})
}

// Own words that come after the caller's end stand too, but aren't counted.
func TestDoOwnWordsAfterTheCallersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, one(resilience.Tool{Cooperative: true}))
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, &resilience.Error{Code: "BUSY"}
		}, resilience.Timeout(time.Second))
		assert.ErrorIs(t, err, resilience.Code("BUSY"))
		assert.Zero(t, g.Health()[0].ConsecutiveFailures)
	})
}

// A breaker that opens while a call waits for its retry ends that call.
func TestDoBreakerOpensDuringRetries(t *testing.T) {
	for name, after := range map[string]int{"before the delay": 0, "during the delay": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGuard(t, one(resilience.Tool{Effect: resilience.ReadOnly}))
				r := resilience.Run(t.Context(), g, "x", func(context.Context) (int, error) {
					trip := func() {
						for range 5 {
							report(g.Breaker("x"), io.EOF)
						}
					}
					if after == 0 {
						trip()
					} else {
						time.AfterFunc(50*time.Millisecond, trip)
					}
					return 0, errBoom
				})
				assert.ErrorIs(t, r.Err, resilience.CodeCircuitOpen)
				assert.ErrorIs(t, r.Err, errBoom, "the last cause is kept")
				assert.Equal(t, 1, r.Attempts)
				assert.Equal(t, "x", r.Err.Tool)
				assert.Equal(t, time.Duration(after)*100*time.Millisecond, r.Duration)
			})
		})
	}
}

// The probe of a half-open breaker is a call like any other, retries included.
func TestDoProbeMayBeRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, one(resilience.Tool{Effect: resilience.ReadOnly}))
		open(t, g.Breaker("x"))
		time.Sleep(31 * time.Second)
		r := resilience.Run(t.Context(), g, "x", failing(2, errBoom))
		assert.Nil(t, r.Err)
		assert.Equal(t, 3, r.Attempts)
		assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
	})
}

// A probe may rightly take as long as its tool's timeout.
func TestDoProbeOfASlowTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, one(resilience.Tool{Timeout: time.Hour}))
		open(t, g.Breaker("x"))
		time.Sleep(31 * time.Second)
		go func() { _, _ = resilience.Do(t.Context(), g, "x", hang(time.Hour-1)) }()
		time.Sleep(50 * time.Minute)
		_, err := resilience.Do(t.Context(), g, "x", failing(0, nil))
		assert.ErrorIs(t, err, resilience.CodeCircuitOpen)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
	})
}

// What Classify says on purpose holds.
func TestOwnClassify(t *testing.T) {
	errLeft := errors.New("rpc error: code = Canceled")
	classify := func(err error) resilience.Class {
		if errors.Is(err, errLeft) {
			return resilience.ClassCanceled
		}
		return resilience.ClassTransient
	}
	cfg := one(resilience.Tool{Effect: resilience.ReadOnly})
	cfg.Retry.Classify, cfg.Breaker.Classify = classify, classify
	g := newGuard(t, cfg)
	r := resilience.Run(t.Context(), g, "x", failing(9, errLeft))
	assert.ErrorIs(t, r.Err, resilience.CodeCanceled)
	assert.Equal(t, 1, r.Attempts)
	assert.Zero(t, g.Health()[0].ConsecutiveFailures)

	r = resilience.Run(t.Context(), g, "x", func(context.Context) (int, error) { panic(errLeft) })
	assert.ErrorIs(t, r.Err, resilience.CodeToolFailed, "but a panic is a panic")
	assert.Equal(t, 1, r.Attempts)
	assert.Equal(t, 1, g.Health()[0].ConsecutiveFailures)
}

// Whatever a tool panics with, it says nothing of what was done before.
func TestPanicsAreToolFailures(t *testing.T) {
	for _, value := range []any{io.ErrUnexpectedEOF, context.DeadlineExceeded, syscall.ECONNREFUSED, resilience.TimeoutError("inner", 1), resilience.MarkTransient(errBoom)} {
		r := resilience.Run(t.Context(), newGuard(t, one(resilience.Tool{})), "x", func(context.Context) (int, error) { panic(value) })
		assert.Equal(t, resilience.CodeToolFailed, r.Err.Code, "%v", value)
		assert.Equal(t, 1, r.Attempts, "%v", value)
		assert.False(t, r.Err.Retryable, "%v", value)
		assert.ErrorIs(t, r.Err, value.(error))
	}
}

// An attempt that was given up on keeps its number: it may be part of a key.
func TestAttemptOfAnAbandonedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := one(resilience.Tool{Effect: resilience.ReadOnly})
		cfg.AttemptTimeout = time.Second
		_, err := resilience.Do(t.Context(), newGuard(t, cfg), "x", func(ctx context.Context) (int, error) {
			n := resilience.Attempt(ctx)
			if n == 1 {
				time.Sleep(10 * time.Second)
				assert.Equal(t, 1, resilience.Attempt(ctx))
			}
			return n, nil
		})
		assert.NoError(t, err)
		time.Sleep(time.Hour)
	})
}

// The longest duration there is means no timeout, also where timeouts nest.
func TestLongestLimits(t *testing.T) {
	cfg := one(resilience.Tool{Timeout: math.MaxInt64})
	cfg.AttemptTimeout = math.MaxInt64
	_, err := resilience.Do(t.Context(), newGuard(t, cfg), "x", failing(0, nil))
	assert.NoError(t, err)
	_, err = resilience.WithTimeout(t.Context(), "x", math.MaxInt64-1, func(ctx context.Context) (int, error) {
		return resilience.WithTimeout(ctx, "x", math.MaxInt64, failing(0, nil))
	})
	assert.NoError(t, err)
}
