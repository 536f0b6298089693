package resilience_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestObserverThatBlocksLosesEventsBeyondItsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 3000
		release := make(chan struct{})
		received := 0
		g, log := loggedGuard(t, resilience.Tool{}, resilience.Observer{
			End: func(context.Context, resilience.CallEnd) { <-release; received++ },
		})

		start := time.Now()
		for range calls {
			mustSucceed(t, g)
			synctest.Wait() // for the first event to reach the observer
		}
		assert.Zero(t, time.Since(start))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, g.Flush(ctx), context.DeadlineExceeded)
		assertLogged(t, log, 1, "\n")

		release <- struct{}{}
		synctest.Wait()
		assertLogged(t, log, 0, "an observer has caught up")

		close(release)
		flush(t, g)
		assert.Equal(t, 1+1024, received, "the one that blocked, and as many as may wait for it")
		assertLogged(t, log, 1, "an observer has caught up")
		assertLogged(t, log, 2, "\n")

		before := received
		mustSucceed(t, g)
		flush(t, g)
		assert.Equal(t, before+1, received)
	})
}

// The observer counts without a lock, which the race detector checks.
func TestObserverReceivesOneEventAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var starts atomic.Int64
		ends := 0
		counts := starting(func() { starts.Add(1) })
		counts.End = func(context.Context, resilience.CallEnd) { ends++ }
		g := observedGuard(t, resilience.Tool{}, counts)

		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for range 10 {
					_, err := resilience.Do(t.Context(), g, "x", failing(0, nil))
					assert.NoError(t, err)
				}
				assert.NoError(t, g.Flush(t.Context()))
			})
		}
		wg.Wait()

		assert.Equal(t, 200, ends)
		assert.EqualValues(t, 200, starts.Load())
	})
}

func TestFlushDoesNotWaitForTheEventsOfLaterCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		g := observedGuard(t, resilience.Tool{}, resilience.Observer{
			End: func(context.Context, resilience.CallEnd) { <-release },
		})
		mustSucceed(t, g)
		flushed := make(chan error, 1)
		go func() { flushed <- g.Flush(t.Context()) }()
		synctest.Wait()

		mustSucceed(t, g)
		release <- struct{}{} // the end of the first call
		time.Sleep(time.Second)

		select {
		case err := <-flushed:
			assert.NoError(t, err)
		default:
			t.Error("Flush waits for the end of the second call")
		}
		close(release)
	})
}

func TestFlushAndCloseWaitForEachObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		quick := resilience.Observer{End: func(context.Context, resilience.CallEnd) {}}
		blocks := resilience.Observer{End: func(context.Context, resilience.CallEnd) { <-release }}
		g := observedGuard(t, resilience.Tool{}, quick, blocks, quick)
		mustSucceed(t, g)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		assert.Equal(t, context.DeadlineExceeded, g.Flush(ctx))
		inFlight, err := g.Close(ctx)
		assert.Zero(t, inFlight)
		assert.Equal(t, context.DeadlineExceeded, err)

		close(release)
		assert.NoError(t, g.Flush(t.Context()))
		_, err = g.Close(t.Context())
		assert.NoError(t, err)
	})
}

// A guard that is a package variable may be used in bubbles and outside of them.
func TestFlushInABubbleEndsWithItsContextWhileAnObserverBlocksOutside(t *testing.T) {
	release := make(chan struct{})
	blocked := make(chan struct{}, 100)
	g := observedGuard(t, resilience.Tool{}, resilience.Observer{End: func(context.Context, resilience.CallEnd) {
		blocked <- struct{}{}
		<-release
	}})
	mustSucceed(t, g)
	<-blocked // on a goroutine outside of the bubble

	synctest.Test(t, func(t *testing.T) {
		mustSucceed(t, g)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, g.Flush(ctx), context.DeadlineExceeded)
	})

	close(release)
	require.NoError(t, g.Flush(t.Context()))
	assert.Len(t, blocked, 1)
}
