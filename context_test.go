package resilience_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The limit of an outer call, which a Cooperative inner one notices late.
func TestNestedOuterLimit(t *testing.T) {
	for _, coop := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := resilience.Config{Tools: map[string]resilience.Tool{
				"outer": {Timeout: 10 * time.Millisecond, MaxTimeout: time.Second},
				"inner": {Timeout: 50 * time.Millisecond, Cooperative: coop},
			}}
			cfg.Breaker.Failures = 1
			g := newGuard(t, cfg)
			_, err := resilience.Do(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
				return resilience.Do(ctx, g, "inner", func(context.Context) (int, error) {
					time.Sleep(100 * time.Millisecond)
					return 0, errBoom
				})
			})
			assert.ErrorIs(t, err, resilience.CodeTimeout)
			time.Sleep(time.Second)
			assert.Equal(t, resilience.Closed, g.Breaker("inner").State(), "cooperative %v", coop)
		})
	}
}

func TestDeadlineCause(t *testing.T) {
	for _, coop := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := one(resilience.Tool{Cooperative: coop, Timeout: 50 * time.Millisecond})
			g := newGuard(t, cfg)
			boom := errors.New("boom")
			ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, boom)
			defer cancel()
			_, err := resilience.Do(ctx, g, "x", func(context.Context) (int, error) {
				time.Sleep(100 * time.Millisecond)
				return 0, errBoom
			})
			assert.ErrorIs(t, err, resilience.CodeTimeout)
			assert.ErrorIs(t, err, boom, "cooperative %v", coop)
			time.Sleep(time.Second)
		})
	}
}

// The parent's own deadline has the parent's cause.
func TestParentFirst(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			boom := errors.New("boom")
			g := newGuard(t, one(resilience.Tool{}))
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, boom)
			defer cancel()
			_, err := resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
			assert.ErrorIs(t, err, boom)
		})
	}
}

// A parent that has a deadline and doesn't keep it.
func TestDeadlineThatIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, one(resilience.Tool{Timeout: 10 * time.Second, MaxTimeout: 30 * time.Second}))
		start := time.Now()
		_, err := resilience.Do(deadlineOnly{t.Context(), start.Add(12 * time.Second)}, g, "x", func(ctx context.Context) (int, error) {
			time.Sleep(9 * time.Second)
			resilience.Progress(ctx)
			time.Sleep(time.Hour)
			return 0, nil
		})
		assert.ErrorIs(t, err, resilience.CodeTimeout)
		assert.Equal(t, 12*time.Second+time.Millisecond, time.Since(start))
		time.Sleep(2 * time.Hour)
	})
}

func TestDeadlineOfTheParent(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 59*time.Second)
	defer cancel()
	_, err := resilience.Do(ctx, newGuard(t, one(resilience.Tool{})), "x", func(c context.Context) (int, error) {
		want, _ := ctx.Deadline()
		got, _ := c.Deadline()
		assert.True(t, want.Equal(got))
		return 0, nil
	})
	require.NoError(t, err)
}

func TestDeadlineInTheYearOne(t *testing.T) {
	for _, obs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := one(resilience.Tool{Timeout: time.Second})
			if obs {
				cfg.Observers = []resilience.Observer{{Start: func(ctx context.Context, e resilience.CallStart) context.Context {
					time.Sleep(time.Millisecond * 5)
					return nil
				}}}
			}
			g := newGuard(t, cfg)
			start := time.Now()
			_, _ = resilience.Do(yearOne{t.Context()}, g, "x", func(ctx context.Context) (int, error) {
				time.Sleep(10000 * time.Hour)
				return 0, nil
			})
			assert.Less(t, time.Since(start), 2*time.Second)
			time.Sleep(20000 * time.Hour)
		})
	}
}

func TestHugeLimits(t *testing.T) {
	for _, lim := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 / 2} {
		synctest.Test(t, func(t *testing.T) {
			cfg := one(resilience.Tool{Timeout: lim, MaxTimeout: math.MaxInt64})
			cfg.AttemptTimeout = lim
			cfg.Breaker.Cooldown = lim
			cfg.Breaker.ProbeTimeout = lim
			cfg.Breaker.Failures = 1
			g := newGuard(t, cfg)
			time.Sleep(time.Hour)
			_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				_, ok := ctx.Deadline()
				assert.True(t, ok)
				time.Sleep(time.Hour)
				resilience.Progress(ctx)
				resume := resilience.Pause(ctx)
				_, ok = ctx.Deadline()
				assert.True(t, ok)
				time.Sleep(time.Hour)
				resilience.Progress(ctx)
				resume()
				resilience.Progress(ctx)
				_, ok = ctx.Deadline()
				assert.True(t, ok)
				c2, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				<-c2.Done()
				assert.NoError(t, ctx.Err())
				_, err := resilience.WithTimeout(ctx, "y", lim, func(context.Context) (int, error) { time.Sleep(time.Hour); return 0, nil })
				assert.NoError(t, err)
				return 0, resilience.MarkPermanent(errBoom)
			})
			assert.ErrorIs(t, err, resilience.CodeToolFailed)
			time.Sleep(time.Hour)
			assert.Equal(t, resilience.Open, g.Breaker("x").State())
			assert.Positive(t, g.Breaker("x").RetryAfter())
		})
	}
}

// Done asked for only after the end.
func TestDoneAfterTheEnd(t *testing.T) {
	g := newGuard(t, one(resilience.Tool{}))
	var kept context.Context
	_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) { kept = ctx; return 0, nil })
	require.NoError(t, err)
	select {
	case <-kept.Done():
	default:
		t.Error("Done isn't closed")
	}
	child, cancel := context.WithCancel(kept)
	defer cancel()
	assert.Error(t, child.Err())
}

// An attempt's context ends with it.
func TestAttemptContextEnds(t *testing.T) {
	cfg := one(resilience.Tool{Effect: resilience.ReadOnly})
	cfg.AttemptTimeout = time.Minute
	g := newGuard(t, cfg)
	var first context.Context
	_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
		if resilience.Attempt(ctx) == 1 {
			first = ctx
			return 0, errBoom
		}
		assert.Error(t, first.Err())
		return 0, nil
	})
	require.NoError(t, err)
}

// Goexit has no value, not even that of the attempt before.
func TestGoexitHasNoValue(t *testing.T) {
	cfg := one(resilience.Tool{Effect: resilience.ReadOnly})
	g := newGuard(t, cfg)
	v, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
		if resilience.Attempt(ctx) == 1 {
			return 7, errBoom
		}
		runtime.Goexit()
		return 0, nil
	})
	require.ErrorIs(t, err, resilience.ErrGoexit)
	assert.Zero(t, v)
}

// Too many earlier calls still run: the probe's slot is given back.
func TestOverloadedProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := one(resilience.Tool{Timeout: time.Second})
		cfg.MaxAbandoned = 1
		cfg.Breaker = resilience.BreakerConfig{Failures: 1, Cooldown: time.Second}
		g := newGuard(t, cfg)
		_, err := resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) { time.Sleep(time.Minute); return 0, nil })
		require.ErrorIs(t, err, resilience.CodeTimeout)
		time.Sleep(2 * time.Second)
		ok := func(context.Context) (int, error) { return 0, nil }
		_, err = resilience.Do(t.Context(), g, "x", ok)
		require.ErrorIs(t, err, resilience.CodeOverloaded)
		time.Sleep(time.Minute)
		_, err = resilience.Do(t.Context(), g, "x", ok)
		assert.NoError(t, err)
	})
}

// Errors that are shared aren't changed: run with -race too.
func TestSharedErrorsAreNotChanged(t *testing.T) {
	shared := &resilience.Error{Code: resilience.CodeToolFailed, Tool: "own", Message: "m", Suggestion: "Try again. If it fails again, change the request or use another tool.", Retryable: true, Details: map[string]any{"k": "v"}}
	timeout := resilience.TimeoutError("own", time.Second)
	wrapped := errors.Join(shared, errBoom)
	var nilErr *resilience.Error
	cfg := one(resilience.Tool{Effect: resilience.NonIdempotent})
	cfg.Suggestions = map[resilience.Code]string{resilience.CodeToolFailed: "S", resilience.CodeTimeout: "T", resilience.CodeCanceled: "C"}
	cfg.Breaker.Failures = 1 << 30
	cfg.Retry.MaxRetries = -1
	g := newGuard(t, cfg)
	before, beforeT := *shared, *timeout
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for _, e := range []error{shared, timeout, wrapped, nilErr, resilience.MarkTransient(shared)} {
				var opts []resilience.Option
				if i%2 == 0 {
					opts = append(opts, resilience.Debug())
				}
				_, err := resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) { return 0, e }, opts...)
				got := err.(*resilience.Error)
				if e != error(nilErr) {
					assert.ErrorIs(t, err, e)
				}
				got.Message, got.Details = "changed", map[string]any{"x": i} // it is this call's own
				_ = g.Health()[0].LastError.Message
			}
		})
	}
	wg.Wait()
	assert.Equal(t, before, *shared)
	assert.Equal(t, beforeT, *timeout)
}

// The cause of a context isn't changed either.
func TestCauseIsNotChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := one(resilience.Tool{Effect: resilience.NonIdempotent, Timeout: time.Second})
		cfg.Suggestions = map[resilience.Code]string{resilience.CodeTimeout: "T"}
		g := newGuard(t, cfg)
		var cause *resilience.Error
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			cause = context.Cause(ctx).(*resilience.Error)
			return 0, context.Cause(ctx)
		}, resilience.Debug())
		synctest.Wait()
		got := err.(*resilience.Error)
		assert.NotSame(t, got, cause)
		assert.Nil(t, cause.Details)
		assert.True(t, cause.Retryable)
		assert.False(t, got.Retryable)
		assert.ErrorIs(t, err, cause)
	})
}

// A call that waits for its retry goes on if its breaker has opened and closed since.
func TestRetryAfterRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := one(resilience.Tool{Effect: resilience.ReadOnly})
		cfg.Retry.Backoff = resilience.Backoff{Base: 10 * time.Second, Max: 10 * time.Second, Jitter: resilience.NoJitter}
		cfg.Breaker = resilience.BreakerConfig{Failures: 1, Cooldown: time.Second}
		g := newGuard(t, cfg)
		b := g.Breaker("x")
		time.AfterFunc(time.Second, func() { done, _ := b.Allow(); done(errBoom) })
		time.AfterFunc(3*time.Second, func() { done, _ := b.Allow(); done(nil) })
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			if resilience.Attempt(ctx) == 1 {
				return 0, errBoom
			}
			return 0, nil
		})
		assert.NoError(t, err)
	})
}

type yearOne struct{ context.Context }

func (yearOne) Deadline() (time.Time, bool) { return time.Time{}, true }

type deadlineOnly struct {
	context.Context
	at time.Time
}

func (c deadlineOnly) Deadline() (time.Time, bool) { return c.at, true }

// A delay between attempts ends with the caller, also if the first attempt's context was
// the one that wanted to know.
func TestDelayEndsWithTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		cfg := one(resilience.Tool{Effect: resilience.ReadOnly})
		cfg.Retry.Backoff = resilience.Backoff{Base: 10 * time.Second, Max: 10 * time.Second, Jitter: resilience.NoJitter}
		cfg.Retry.OnRetry = func(int, time.Duration, error) { <-block }
		g := newGuard(t, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		time.AfterFunc(5*time.Second, func() { close(block) })
		start := time.Now()
		var at time.Duration
		_, err := resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) {
			context.AfterFunc(ctx, func() { at = time.Since(start) })
			return 0, errBoom
		})
		assert.ErrorIs(t, err, resilience.CodeCanceled)
		synctest.Wait()
		assert.Equal(t, time.Second, at)
		assert.Equal(t, 5*time.Second, time.Since(start))
	})
	synctest.Test(t, func(t *testing.T) {
		cfg := one(resilience.Tool{Effect: resilience.ReadOnly})
		cfg.Retry.Backoff = resilience.Backoff{Base: 10 * time.Second, Max: 10 * time.Second, Jitter: resilience.NoJitter}
		g := newGuard(t, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		_, err := resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) { ctx.Done(); return 0, errBoom })
		assert.ErrorIs(t, err, resilience.CodeCanceled)
		assert.Equal(t, time.Second, time.Since(start))
	})
}

// A limit that ends before it has quite begun.
func TestLimitThatEndsAtOnce(t *testing.T) {
	cfg := one(resilience.Tool{Timeout: 1})
	cfg.Breaker.Failures = math.MaxInt32
	cfg.MaxAbandoned = math.MaxInt32 // tools may be slower to begin than to be given up on
	g := newGuard(t, cfg)
	works := func(context.Context) (int, error) { return 1, nil }
	for range 2000 {
		if v, err := resilience.Do(t.Context(), g, "x", works); err != nil {
			require.ErrorIs(t, err, resilience.CodeTimeout)
		} else {
			require.Equal(t, 1, v)
		}
		if v, err := resilience.WithTimeout(t.Context(), "x", 1, works); err != nil {
			require.ErrorIs(t, err, resilience.CodeTimeout)
		} else {
			require.Equal(t, 1, v)
		}
	}
}

// A tool may ask for the cause before anything else has noticed the end, and Go 1.25 looks
// for it without asking Err first.
func TestCauseIsAskedFirst(t *testing.T) {
	causeOfChild := func(ctx context.Context) error { return context.Cause(context.WithValue(ctx, ctxKey("c"), 1)) }
	for name, tc := range map[string]struct {
		cooperative bool
		cause       func(context.Context) error
	}{
		"enforced":             {false, context.Cause},
		"enforced, a child":    {false, causeOfChild},
		"cooperative":          {true, context.Cause},
		"cooperative, a child": {true, causeOfChild},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGuard(t, one(resilience.Tool{Cooperative: tc.cooperative, Timeout: time.Second}))
				seen := make(chan error, 1)
				ctx, cancel := context.WithCancel(t.Context())
				_, _ = resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) {
					cancel()
					seen <- tc.cause(ctx)
					return 0, errBoom
				})
				assert.ErrorIs(t, <-seen, resilience.CodeCanceled)

				_, _ = resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					time.Sleep(time.Second)
					seen <- tc.cause(ctx)
					return 0, errBoom
				})
				assert.ErrorIs(t, <-seen, resilience.CodeTimeout)
			})
		})
	}
}
