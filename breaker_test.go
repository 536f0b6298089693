package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// report makes a call that ends with err, and reports whether it was let through.
func report(b *resilience.Breaker, err error) bool {
	done, rejected := b.Allow()
	if rejected != nil {
		return false
	}
	done(err)
	return true
}

// open makes b open, from closed.
func open(t *testing.T, b *resilience.Breaker) {
	t.Helper()
	for range 5 {
		require.True(t, report(b, errBoom))
	}
	require.Equal(t, resilience.StateOpen, b.State())
}

func TestBreakerLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []string
		var b *resilience.Breaker
		b = resilience.NewBreaker("db", resilience.BreakerConfig{OnChange: func(name string, from, to resilience.State) {
			changes = append(changes, fmt.Sprintf("%s: %v to %v", name, from, to))
			b.State() // must not deadlock
			b.RetryAfter()
		}})
		assert.Equal(t, "db", b.Name())
		assert.Equal(t, resilience.StateClosed, b.State())
		assert.Zero(t, b.RetryAfter())

		for range 4 {
			report(b, errBoom)
		}
		report(b, nil) // a success starts the count again
		for range 4 {
			report(b, errBoom)
		}
		assert.Equal(t, resilience.StateClosed, b.State())
		report(b, errBoom)
		assert.Equal(t, resilience.StateOpen, b.State())
		assert.Equal(t, 30*time.Second, b.RetryAfter())

		time.Sleep(10 * time.Second)
		_, err := b.Allow()
		assert.EqualError(t, err, "CIRCUIT_OPEN: Circuit breaker open due to repeated failures. Will retry in 20 seconds.")
		var e *resilience.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, 20*time.Second, e.RetryAfter)
		assert.Equal(t, "db", e.Tool)

		time.Sleep(20 * time.Second) // gobreaker is still open at that very instant
		assert.Equal(t, resilience.StateOpen, b.State())
		assert.Positive(t, b.RetryAfter())
		time.Sleep(b.RetryAfter())
		assert.Equal(t, resilience.StateHalfOpen, b.State())
		assert.Zero(t, b.RetryAfter())

		probe, err := b.Allow()
		require.NoError(t, err)
		_, err = b.Allow()
		require.ErrorAs(t, err, &e)
		assert.Equal(t, resilience.CodeCircuitOpen, e.Code)
		assert.Equal(t, time.Second, e.RetryAfter, "while a probe runs")
		probe(errBoom)
		assert.Equal(t, 30*time.Second, b.RetryAfter())

		time.Sleep(30*time.Second + 1)
		require.True(t, report(b, nil))
		assert.Equal(t, resilience.StateClosed, b.State(), "one success closes it")
		synctest.Wait()
		assert.Equal(t, []string{
			"db: closed to open", "db: open to half-open", "db: half-open to open",
			"db: open to half-open", "db: half-open to closed",
		}, changes)
	})
}

func TestBreakerConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("", resilience.BreakerConfig{
			Failures: 2, Cooldown: time.Second,
			Classify: func(err error) resilience.Class {
				if errors.Is(err, io.EOF) {
					return resilience.ClassInvalid
				}
				panic("no idea") // counts
			},
		})
		for range 10 {
			report(b, io.EOF)
		}
		report(b, errBoom)
		assert.Equal(t, resilience.StateClosed, b.State())
		report(b, io.EOF) // neutral: the count goes on
		report(b, errBoom)
		assert.Equal(t, resilience.StateOpen, b.State())
		assert.Equal(t, time.Second, b.RetryAfter())
	})
	assert.PanicsWithValue(t, "resilience: NewBreaker: Failures is -1: it must not be negative (0 is the default)\n"+
		"Cooldown is -1s: it must not be negative (0 is the default)\nProbeTimeout is -2s: it must not be negative (0 is the default)",
		func() {
			resilience.NewBreaker("x", resilience.BreakerConfig{Failures: -1, Cooldown: -time.Second, ProbeTimeout: -2 * time.Second})
		})
	assert.Equal(t, []string{"closed", "half-open", "open", "State(9)"}, []string{
		resilience.StateClosed.String(), resilience.StateHalfOpen.String(), resilience.StateOpen.String(), resilience.State(9).String()})
	assert.Equal(t, `"half-open"`, jsonOf(t, resilience.StateHalfOpen))
}

func TestBreakerDoneCountsOnce(t *testing.T) {
	b := resilience.NewBreaker("x", resilience.BreakerConfig{})
	done, err := b.Allow()
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { done(errBoom) })
	}
	wg.Wait()
	assert.Equal(t, resilience.StateClosed, b.State(), "one call is one failure, however often it is reported")
	done(nil)
	for range 4 {
		report(b, errBoom)
	}
	assert.Equal(t, resilience.StateOpen, b.State(), "the first report counts, the later success doesn't")
}

func TestBreakerDropsResultsOfAnEarlierState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{})
		early, err := b.Allow()
		require.NoError(t, err)
		open(t, b)
		time.Sleep(31 * time.Second)
		probe, err := b.Allow()
		require.NoError(t, err)
		early(nil)
		assert.Equal(t, resilience.StateHalfOpen, b.State())
		early(errBoom)
		assert.Equal(t, resilience.StateHalfOpen, b.State())
		probe(nil)
		assert.Equal(t, resilience.StateClosed, b.State())
	})
}

func TestBreakerNeutralProbeGivesItsSlotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{})
		open(t, b)
		time.Sleep(31 * time.Second)
		for _, err := range []error{context.Canceled, resilience.MarkInvalid(errBoom)} {
			require.True(t, report(b, err))
			assert.Equal(t, resilience.StateHalfOpen, b.State())
		}
		require.True(t, report(b, nil))
		assert.Equal(t, resilience.StateClosed, b.State())
	})
}

func TestBreakerLostProbe(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg  resilience.BreakerConfig
		wait time.Duration
	}{
		"default": {resilience.BreakerConfig{}, 2 * time.Minute},
		"own":     {resilience.BreakerConfig{ProbeTimeout: time.Hour}, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := resilience.NewBreaker("x", tc.cfg)
				open(t, b)
				time.Sleep(31 * time.Second)
				lost, err := b.Allow()
				require.NoError(t, err)
				time.Sleep(tc.wait)
				require.False(t, report(b, nil), "the probe may still report")
				time.Sleep(time.Nanosecond)
				_, err = b.Allow()
				var e *resilience.Error
				require.ErrorAs(t, err, &e)
				assert.Equal(t, 30*time.Second, e.RetryAfter, "it has failed, and the cooldown begins")
				time.Sleep(31 * time.Second)
				lost(errBoom) // too late
				require.True(t, report(b, nil))
				assert.Equal(t, resilience.StateClosed, b.State())
			})
		})
	}
}

// A callback may do anything: the breaker goes on, and so do the reports.
func TestBreakerBadCallbacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []resilience.State
		block := make(chan struct{})
		b := resilience.NewBreaker("x", resilience.BreakerConfig{Failures: 1, Cooldown: time.Second, OnChange: func(_ string, _, to resilience.State) {
			told = append(told, to)
			switch len(told) {
			case 1:
				panic("callback")
			case 2:
				runtime.Goexit()
			case 3:
				<-block
			}
		}})
		for range 3 {
			report(b, errBoom)
			time.Sleep(2 * time.Second)
			require.Equal(t, resilience.StateHalfOpen, b.State())
		}
		report(b, nil)
		assert.Equal(t, resilience.StateClosed, b.State(), "a callback that blocks holds up nothing")
		close(block)
		synctest.Wait()
		assert.Equal(t, []resilience.State{resilience.StateOpen, resilience.StateHalfOpen, resilience.StateOpen, resilience.StateHalfOpen,
			resilience.StateOpen, resilience.StateHalfOpen, resilience.StateClosed}, told)
	})
}

func TestWithBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{})
		value, err := resilience.WithBreaker(t.Context(), b, func(context.Context) (int, error) { return 1, nil })
		assert.Equal(t, 1, value)
		assert.NoError(t, err)

		failing := func(context.Context) (string, error) { return "v", errBoom } // another type, the same breaker
		for range 4 {
			value, err := resilience.WithBreaker(t.Context(), b, failing)
			assert.Equal(t, "v", value)
			assert.Equal(t, errBoom, err, "unchanged")
		}
		_, err = resilience.WithBreaker(t.Context(), b, func(context.Context) (int, error) { panic(io.EOF) })
		assert.ErrorIs(t, err, resilience.CodeToolFailed)
		assert.ErrorIs(t, err, io.EOF)
		_, err = resilience.WithBreaker(t.Context(), b, failing)
		assert.ErrorIs(t, err, resilience.CodeCircuitOpen)

		time.Sleep(31 * time.Second)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = resilience.WithBreaker(t.Context(), b, func(context.Context) (int, error) { runtime.Goexit(); return 0, nil })
		}()
		<-done
		assert.Equal(t, resilience.StateOpen, b.State(), "the probe failed")
	})
}

func TestWithBreakerOfACallerWhoLeaves(t *testing.T) {
	b := resilience.NewBreaker("x", resilience.BreakerConfig{})
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := resilience.WithBreaker(ctx, b, func(context.Context) (int, error) { cancel(); return 0, errBoom })
		assert.Equal(t, errBoom, err)
		_, err = resilience.WithBreaker(ctx, b, func(context.Context) (int, error) { panic("not called") })
		assert.ErrorIs(t, err, resilience.CodeCanceled)
	}
	assert.Equal(t, resilience.StateClosed, b.State())
}

func TestWithBreakerRefuses(t *testing.T) {
	b := resilience.NewBreaker("x", resilience.BreakerConfig{})
	_, err := resilience.WithBreaker[int](t.Context(), b, nil)
	assert.ErrorIs(t, err, resilience.CodeToolNotFound)
	assert.PanicsWithValue(t, "resilience: nil *Breaker", func() { _, _ = resilience.WithBreaker(t.Context(), nil, obey) })
	assert.PanicsWithValue(t, "resilience: nil context", func() { _, _ = resilience.WithBreaker(noContext, b, obey) })
}

// However many calls come at once to a breaker whose cooldown has passed, one is
// the probe.
func TestBreakerLetsOneProbeThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{})
		for range 20 {
			open(t, b)
			time.Sleep(31 * time.Second)
			probes := make(chan func(error), 100)
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					if done, err := b.Allow(); err == nil {
						probes <- done
					}
				})
			}
			wg.Wait()
			require.Len(t, probes, 1)
			(<-probes)(nil)
			require.Equal(t, resilience.StateClosed, b.State())
		}
	})
}

var packageBreaker = resilience.NewBreaker("package", resilience.BreakerConfig{Failures: 1})

// A breaker that is a package variable is used in bubbles, where the clock says something
// else each time.
func TestBreakerInBubbles(t *testing.T) {
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			report(packageBreaker, errBoom)
			assert.Equal(t, 30*time.Second, packageBreaker.RetryAfter())
			_, err := packageBreaker.Allow()
			assert.Equal(t, 30*time.Second, resilience.AsError("", err).RetryAfter)
			time.Sleep(31 * time.Second)
			done, err := packageBreaker.Allow()
			require.NoError(t, err)
			done(nil)
		})
	}
}

func TestBreakerMessageCountsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("b", resilience.BreakerConfig{Failures: 1})
		done, _ := b.Allow()
		done(errBoom)
		_, err := b.Allow()
		assert.ErrorContains(t, err, "30 seconds")
		time.Sleep(20 * time.Second)
		_, err = b.Allow()
		assert.ErrorContains(t, err, "10 seconds")
		time.Sleep(10 * time.Second) // gobreaker is still open at that instant
		_, err = b.Allow()
		assert.Equal(t, time.Duration(1), resilience.AsError("", err).RetryAfter)
		assert.Equal(t, resilience.StateOpen, b.State())
		time.Sleep(time.Nanosecond)
		_, err = b.Allow()
		assert.NoError(t, err)
	})
}
