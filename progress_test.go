package resilience_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

// works for d and reports progress every so often.
func works(d, every time.Duration) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		type key struct{}
		ctx = context.WithValue(ctx, key{}, 1) // as a tool may have done
		for end := time.Now().Add(d); time.Now().Before(end); {
			select {
			case <-time.After(every):
				resilience.Progress(ctx)
			case <-ctx.Done():
				return "part", context.Cause(ctx)
			}
		}
		return "done", nil
	}
}

func TestProgress(t *testing.T) {
	const s = time.Second
	long := resilience.Tool{Timeout: 10 * s, MaxTimeout: 60 * s}
	for name, tc := range map[string]struct {
		tool    resilience.Tool
		fn      func(context.Context) (string, error)
		opt     resilience.Option
		caller  time.Duration
		attempt time.Duration
		took    time.Duration
		message string // "": success
		counts  int
	}{
		"in time":               {tool: long, fn: works(50*s, 9*s), took: 54 * s},
		"too slow":              {tool: long, fn: works(50*s, 11*s), took: 10 * s, message: "Tool 'x' exceeded timeout of 10s", counts: 1},
		"for ever":              {tool: long, fn: works(time.Hour, 9*s), took: 60 * s, message: "Tool 'x' exceeded timeout of 60s", counts: 1},
		"no MaxTimeout":         {tool: resilience.Tool{Timeout: 10 * s}, fn: works(50*s, 9*s), took: 10 * s, message: "Tool 'x' exceeded timeout of 10s", counts: 1},
		"the caller's deadline": {tool: long, fn: works(50*s, 9*s), caller: 30 * s, took: 30 * s, message: "Tool 'x' exceeded timeout of 30s"},
		"a shorter wish":        {tool: long, fn: works(20*s, 2*s), opt: resilience.Limit(3 * s), took: 20 * s},
		"a shorter wish, too slow": {tool: long, fn: works(20*s, 4*s), opt: resilience.Limit(3 * s), took: 3 * s,
			message: "Tool 'x' exceeded timeout of 3s"},
		"a wish, no MaxTimeout": {tool: resilience.Tool{Timeout: 10 * s}, fn: works(20*s, 2*s), opt: resilience.Limit(3 * s), took: 3 * s,
			message: "Tool 'x' exceeded timeout of 3s"},
		"an attempt's limit":     {tool: long, fn: works(50*s, 4*s), attempt: 5 * s, took: 52 * s},
		"an attempt's, too slow": {tool: long, fn: works(50*s, 6*s), attempt: 5 * s, took: 5 * s, message: "Tool 'x' exceeded timeout of 5s", counts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := one(tc.tool)
				cfg.AttemptTimeout = tc.attempt
				g := newGuard(t, cfg)
				ctx := t.Context()
				if tc.caller > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.caller)
					defer cancel()
				}
				r := resilience.Run(ctx, g, "x", tc.fn, tc.opt)
				assert.Equal(t, tc.took, r.Duration)
				if tc.message == "" {
					assert.Nil(t, r.Err)
				} else if assert.NotNil(t, r.Err) {
					assert.Equal(t, tc.message, r.Err.Message)
					assert.Equal(t, resilience.CodeTimeout, r.Err.Code)
				}
				assert.Equal(t, tc.counts, g.Health()[0].ConsecutiveFailures)
				synctest.Wait()
			})
		})
	}
}

// What a tool hands on to its backend must outlast the progress that it reports.
func TestProgressDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, one(resilience.Tool{Timeout: 10 * time.Second, MaxTimeout: time.Minute}))
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			deadline, _ := ctx.Deadline()
			assert.Equal(t, time.Minute, time.Until(deadline))
			// But a wait, in which there is no progress, must fit into the limit itself.
			_, err := resilience.WithRetry(ctx, steady, failing(9, waitError{20 * time.Second}))
			assert.Equal(t, waitError{20 * time.Second}, err)
			return 0, nil
		})
		assert.NoError(t, err)
	})
}

// Progress of a tool that is called by a tool is progress of both.
func TestProgressNests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := resilience.Tool{Timeout: 10 * time.Second, MaxTimeout: time.Minute}
		g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"outer": long, "inner": long}})
		value, err := resilience.Do(t.Context(), g, "outer", func(ctx context.Context) (string, error) {
			return resilience.Do(ctx, g, "inner", works(40*time.Second, 9*time.Second))
		})
		assert.NoError(t, err)
		assert.Equal(t, "done", value)
	})
}

func TestProgressElsewhere(t *testing.T) {
	resilience.Progress(t.Context()) // nothing happens
	var kept context.Context
	g := newGuard(t, one(resilience.Tool{Timeout: time.Minute, MaxTimeout: time.Hour}))
	_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) { kept = ctx; return 0, nil })
	assert.NoError(t, err)
	resilience.Progress(kept)
	assert.Equal(t, context.Canceled, kept.Err(), "after the end nothing begins anew")
}

// asks waits for its user so long, after and before it works.
func asks(before, wait, after time.Duration) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		for _, step := range []struct {
			d     time.Duration
			pause bool
		}{{before, false}, {wait, true}, {after, false}} {
			resume := func() {}
			if step.pause {
				resume = resilience.Pause(ctx)
				defer resilience.Pause(ctx)() // overlaps, and ends at once
			}
			select {
			case <-time.After(step.d):
			case <-ctx.Done():
				return "part", context.Cause(ctx)
			}
			resume()
			resume()
		}
		return "done", nil
	}
}

func TestPause(t *testing.T) {
	const s = time.Second
	tool := resilience.Tool{Timeout: 10 * s}
	for name, tc := range map[string]struct {
		tool    resilience.Tool
		fn      func(context.Context) (string, error)
		caller  time.Duration
		attempt time.Duration
		took    time.Duration
		message string // "": success
	}{
		"the user takes an hour":     {tool: tool, fn: asks(9*s, time.Hour, 9*s), took: time.Hour + 18*s},
		"the tool takes long before": {tool: tool, fn: asks(11*s, s, s), took: 10 * s, message: "Tool 'x' exceeded timeout of 10s"},
		"the caller has no time":     {tool: tool, fn: asks(s, time.Hour, s), caller: 60 * s, took: 60 * s, message: "Tool 'x' exceeded timeout of 60s"},
		"an attempt":                 {tool: tool, fn: asks(4*s, time.Hour, 4*s), attempt: 5 * s, took: time.Hour + 8*s},
		"a MaxTimeout":               {tool: resilience.Tool{Timeout: 10 * s, MaxTimeout: 20 * s}, fn: asks(9*s, time.Hour, 9*s), took: time.Hour + 18*s},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := one(tc.tool)
				cfg.AttemptTimeout = tc.attempt
				ctx := t.Context()
				if tc.caller > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.caller)
					defer cancel()
				}
				r := resilience.Run(ctx, newGuard(t, cfg), "x", tc.fn)
				assert.Equal(t, tc.took, r.Duration)
				if tc.message == "" {
					assert.Nil(t, r.Err)
				} else if assert.NotNil(t, r.Err) {
					assert.Equal(t, tc.message, r.Err.Message)
				}
				time.Sleep(2 * time.Hour)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		// All of the limit is there again afterwards.
		g0 := newGuard(t, one(tool))
		_, err0 := resilience.Do(t.Context(), g0, "x", asks(9*s, 100*s, 9*s))
		assert.NoError(t, err0)

		// What takes long after the user has answered is hung after all, and a caller who
		// leaves is obeyed at once.
		g := newGuard(t, one(tool))
		start := time.Now()
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			resume := resilience.Pause(ctx)
			time.Sleep(time.Hour)
			resume()
			<-ctx.Done()
			return 0, ctx.Err()
		})
		assert.ErrorIs(t, err, resilience.CodeTimeout)
		assert.Equal(t, time.Hour+10*s, time.Since(start))

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(60*s, cancel)
		start = time.Now()
		_, err = resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) {
			defer resilience.Pause(ctx)()
			<-ctx.Done()
			return 0, ctx.Err()
		})
		assert.ErrorIs(t, err, resilience.CodeCanceled)
		assert.Equal(t, 60*s, time.Since(start))
	})
	resilience.Pause(t.Context())() // elsewhere nothing happens
}

// An attempt that was given up on steers the call no longer.
func TestProgressOfAnAbandonedAttempt(t *testing.T) {
	const s = time.Second
	for name, zombie := range map[string]func(context.Context){
		"pauses":     func(ctx context.Context) { time.Sleep(2 * s); resilience.Pause(ctx) },
		"has paused": func(ctx context.Context) { resilience.Pause(ctx); time.Sleep(100 * s) },
		"reports progress": func(ctx context.Context) {
			for range 100 {
				time.Sleep(s / 2)
				if ctx.Err() != nil {
					resilience.Progress(ctx)
				}
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg := one(resilience.Tool{Effect: resilience.ReadOnly, Timeout: 3 * s, MaxTimeout: time.Hour})
			cfg.AttemptTimeout = s
			ctx, cancel := context.WithTimeout(t.Context(), 30*s)
			defer cancel()
			r := resilience.Run(ctx, newGuard(t, cfg), "x", func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) == 1 {
					zombie(ctx)
				}
				time.Sleep(200 * s)
				return 0, nil
			})
			assert.NotNil(t, r.Err)
			if name == "has paused" { // a pause of an attempt that goes on: only its caller ends it
				assert.Equal(t, 30*s, r.Duration)
			} else {
				assert.Equal(t, 3*s, r.Duration, name)
			}
			time.Sleep(time.Hour)
		})
	}
}

// Without MaxTimeout progress restarts nothing, an attempt's limit neither.
func TestProgressOfAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := one(resilience.Tool{})
		cfg.AttemptTimeout = time.Second
		r := resilience.Run(t.Context(), newGuard(t, cfg), "x", works(10*time.Second, time.Second/2))
		assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
		assert.Equal(t, time.Second, r.Duration)
		synctest.Wait()
	})
}

// A pause of the outer call is one of the inner call too, though it began before.
func TestPauseAroundAnInnerCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"outer": {Timeout: 10 * time.Second}, "inner": {Timeout: time.Minute}}})
		value, err := resilience.Do(t.Context(), g, "outer", func(outer context.Context) (string, error) {
			time.AfterFunc(5*time.Second, func() {
				resume := resilience.Pause(outer)
				time.AfterFunc(40*time.Second, resume)
			})
			return resilience.Do(outer, g, "inner", hang(50*time.Second))
		})
		assert.NoError(t, err)
		assert.Equal(t, "late", value)
	})
}

// A probe whose user thinks isn't lost.
func TestPauseOfAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, one(resilience.Tool{}))
		open(t, g.Breaker("x"))
		time.Sleep(31 * time.Second)
		go func() {
			_, _ = resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				resume := resilience.Pause(ctx)
				time.Sleep(10 * time.Minute)
				resume()
				time.Sleep(time.Second)
				return 0, nil
			})
		}()
		time.Sleep(9 * time.Minute)
		_, err := resilience.Do(t.Context(), g, "x", failing(0, nil))
		assert.ErrorIs(t, err, resilience.CodeCircuitOpen)
		time.Sleep(2 * time.Minute)
		assert.Equal(t, resilience.Closed, g.Breaker("x").State())
	})
}

func TestShared(t *testing.T) {
	g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"listed": {}}})
	for _, tool := range []string{"a", "b", "listed"} {
		_, err := resilience.Do(t.Context(), g, tool, failing(0, nil), resilience.Shared())
		assert.NoError(t, err)
	}
	h := g.Health()
	assert.Len(t, h, 2)
	assert.Equal(t, "(others)", h[0].Tool)
	assert.Equal(t, "listed", h[1].Tool)
}

// A pause adds what it took to MaxTimeout, and no more.
func TestPauseAddsWhatItTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, one(resilience.Tool{Timeout: 10 * time.Second, MaxTimeout: 30 * time.Second}))
		start := time.Now()
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			time.Sleep(9 * time.Second)
			resume := resilience.Pause(ctx)
			time.Sleep(100 * time.Second)
			resilience.Progress(ctx) // nothing while it is paused
			resume()
			for ctx.Err() == nil {
				time.Sleep(time.Second)
				resilience.Progress(ctx)
			}
			return 0, ctx.Err()
		})
		assert.ErrorIs(t, err, resilience.CodeTimeout)
		assert.Equal(t, 130*time.Second, time.Since(start))
	})
}

// Progress while paused ends no pause.
func TestProgressWhilePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, one(resilience.Tool{Timeout: 10 * time.Second, MaxTimeout: 30 * time.Second}))
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			defer resilience.Pause(ctx)()
			resilience.Progress(ctx)
			time.Sleep(time.Hour)
			return 0, ctx.Err()
		})
		assert.NoError(t, err)
	})
}

func TestPauseWithAHugeMaximum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, one(resilience.Tool{Timeout: 10 * time.Second, MaxTimeout: math.MaxInt64}))
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			resume := resilience.Pause(ctx)
			time.Sleep(time.Hour)
			resume()
			for range 3 {
				time.Sleep(9 * time.Second)
				resilience.Progress(ctx)
			}
			return 0, ctx.Err()
		})
		assert.NoError(t, err)
	})
}
