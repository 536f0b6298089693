package resilience_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCloseWaitsForCallsInFlightAndTheirObservers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Int32
		cfg := configWith(resilience.Tool{})
		cfg.Observers = []resilience.Observer{{End: func(context.Context, resilience.CallEnd) {
			time.Sleep(time.Second) // it is slow
			ended.Add(1)
		}}}
		g := newGuard(t, cfg)
		answers := make(chan error, 2)
		for _, tool := range []string{"x", "unlisted"} {
			go func() {
				_, err := resilience.Do(t.Context(), g, tool, func(ctx context.Context) (int, error) {
					time.Sleep(10 * time.Second)
					// A tool in the middle of its work goes on, also to undo it after its caller has left.
					return resilience.Do(context.WithoutCancel(ctx), g, "inner", succeed)
				})
				answers <- err
			}()
		}
		synctest.Wait()

		assert.False(t, g.Closed())
		start := time.Now()
		n, err := g.Close(t.Context())
		assert.True(t, g.Closed())
		assert.Zero(t, n)
		assert.NoError(t, err)
		took := time.Since(start)
		assert.InDelta(t, 14*time.Second, took, float64(time.Second), "10s for the calls, 4s for their ends")
		assert.NoError(t, <-answers)
		assert.NoError(t, <-answers)
		assert.EqualValues(t, 4, ended.Load())

		for _, tool := range []string{"x", "unlisted", "new"} {
			r := resilience.Run(t.Context(), g, tool, notCalled(t))
			assert.Equal(t, resilience.CodeShuttingDown, r.Err.Code)
			assert.Equal(t, "The server is shutting down", r.Err.Message)
			assert.True(t, r.Err.Retryable)
		}
		for _, h := range g.Health() {
			assert.Zero(t, h.ConsecutiveFailures, h.Tool)
			assert.False(t, h.Available, h.Tool)
		}
		_, err = g.Close(t.Context())
		assert.NoError(t, err, "a second time")
	})
}

func TestCloseReturnsHowManyCallsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Timeout: time.Hour})
		var returned sync.WaitGroup
		for range 3 {
			returned.Go(func() { _, _ = resilience.Do(t.Context(), g, "x", hang(time.Minute)) })
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		n, err := g.Close(ctx)
		assert.Equal(t, 3, n)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.InDelta(t, 10*time.Second, time.Since(start), float64(time.Second))

		returned.Wait()
		n, err = g.Close(t.Context())
		assert.Zero(t, n)
		assert.NoError(t, err)
	})
}

// Abandoned attempts may run for ever.
func TestCloseDoesNotWaitForAbandonedAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Timeout: time.Second})
		_, err := resilience.Do(t.Context(), g, "x", hang(time.Hour))
		require.ErrorIs(t, err, resilience.CodeTimeout)
		n, err := g.Close(t.Context())
		assert.Zero(t, n)
		assert.NoError(t, err)
		time.Sleep(time.Hour)
	})
}

// A job that continues after its call has returned isn't a call in flight.
func TestCloseRejectsCallsOfAJobThatACallHasLeftBehind(t *testing.T) {
	g := guardWith(t, resilience.Tool{})
	var left context.Context
	_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
		left = ctx
		closing, cancel := context.WithCancel(ctx)
		cancel()
		n, err := g.Close(closing)
		assert.Equal(t, 1, n)
		assert.ErrorIs(t, err, context.Canceled)
		return resilience.WithTimeout(ctx, "part", time.Second, func(ctx context.Context) (int, error) {
			return resilience.Do(ctx, g, "y", succeed)
		})
	})
	require.NoError(t, err)
	_, err = resilience.Do(context.WithoutCancel(left), g, "y", notCalled(t))
	assert.ErrorIs(t, err, resilience.CodeShuttingDown)
}

// However calls and Close interleave, each call is either rejected or has ended when Close returns, and clients that go
// on calling don't keep Close from returning.
func TestCloseMissesNoCall(t *testing.T) {
	for range 100 {
		g := guardWith(t, resilience.Tool{})
		var running, calls atomic.Int32
		var stop atomic.Bool
		var clients sync.WaitGroup
		work := func(context.Context) (int, error) {
			calls.Add(1)
			running.Add(1)
			defer running.Add(-1)
			runtime.Gosched()
			return 0, nil
		}
		for range 8 {
			clients.Go(func() {
				for !stop.Load() {
					if _, err := resilience.Do(t.Context(), g, "x", work); err != nil {
						assert.ErrorIs(t, err, resilience.CodeShuttingDown)
					}
				}
			})
		}
		for calls.Load() < 16 {
			runtime.Gosched()
		}

		n, err := g.Close(contextWithin(t, time.Minute))
		assert.NoError(t, err)
		assert.Zero(t, n)
		assert.Zero(t, running.Load())
		before := calls.Load()
		stop.Store(true)
		clients.Wait()
		assert.Equal(t, before, calls.Load())
	}
}
