package resilience_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

// ending returns an observer with an End.
func ending(end func()) resilience.Observer {
	return resilience.Observer{End: func(context.Context, resilience.CallEnd) { end() }}
}

// An observer's log may block, for example a stdio server's stderr without a reader.
func TestObserverThatBlocksLosesEventsBeyondItsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		received := 0
		g, log := loggedGuard(t, resilience.Tool{}, ending(func() { <-release; received++ }))

		start := time.Now()
		for range 3000 {
			mustSucceed(t, g)
			synctest.Wait() // for the first event to reach the observer
		}
		assert.Zero(t, time.Since(start))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, g.Flush(ctx), context.DeadlineExceeded)
		assert.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())

		close(release)
		flush(t, g)
		assert.Equal(t, 1+1024, received, "the one that blocked, and as many as may wait for it")

		mustSucceed(t, g)
		flush(t, g)
		assert.Equal(t, 1+1024+1, received)
	})
}

func TestLogThatBlocksDelaysNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		cfg := observed(resilience.Tool{}, ending(func() { panic("p") }))
		cfg.Log = slog.New(handlerFunc(func(context.Context, slog.Record) error { <-release; return nil }))
		g := newGuard(t, cfg)

		start := time.Now()
		for range 100 {
			mustSucceed(t, g)
		}
		assert.Zero(t, time.Since(start))
		close(release)
		flush(t, g)
	})
}

func TestFlushDoesNotWaitForTheEventsOfLaterCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		g := observedGuard(t, resilience.Tool{}, ending(func() { <-release }))
		mustSucceed(t, g)
		flushed := make(chan error, 1)
		go func() { flushed <- g.Flush(t.Context()) }()
		synctest.Wait()

		mustSucceed(t, g)
		release <- struct{}{} // the end of the first call
		time.Sleep(time.Second)
		assert.Len(t, flushed, 1)
		assert.NoError(t, <-flushed)
		close(release)
	})
}

func TestFlushAndCloseWaitForEachObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		quick := ending(func() {})
		g := observedGuard(t, resilience.Tool{}, quick, ending(func() { <-release }), quick)
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
