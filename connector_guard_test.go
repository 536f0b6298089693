package resilience_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Tools that use a connector, under a guard.

func failedDial(context.Context) error { return errBoom }

// A tool that has no connection has had no effect, whatever the dial failed with, so any tool is retried.
func TestConnectorErrorIsRetriedIfTheNextDialComesBeforeTheTimeout(t *testing.T) {
	for name, tc := range map[string]struct {
		timeout  time.Duration
		attempts int
		duration time.Duration
	}{
		"before the timeout":     {time.Minute, 2, 4 * time.Second},
		"not before the timeout": {4 * time.Second, 1, 0},
	} {
		runInBubble(t, name, func(t *testing.T) {
			d := newDialer(failedDial)
			c := newConnector(t, d, linkConfig{})
			time.Sleep(4 * time.Second) // the next dial comes 4s later
			synctest.Wait()
			require.Equal(t, 5, d.dials())
			d.acceptAll()

			g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent, Timeout: tc.timeout})
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (*link, error) {
				synctest.Wait() // for the dial, which starts at the same instant as the second attempt
				return valueOf(c.Get)(ctx)
			})

			assert.Equal(t, tc.attempts, r.Attempts)
			assert.Equal(t, tc.duration, r.Duration)
			if tc.attempts == 2 {
				assert.Nil(t, r.Err)
				return
			}
			require.ErrorIs(t, r.Err, lost)
			assert.Equal(t, 4*time.Second, r.Err.RetryAfter)
			assert.Equal(t, "x", r.Err.Tool)
			assert.True(t, r.Err.Retryable, "the tool has had no effect")
		})
	}
}

// An open breaker would reject calls when the connection is back.
func TestConnectorErrorIsNotCountedByBreakers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDialer(refused)
		c := newConnector(t, d, linkConfig{})
		g := guardWith(t, resilience.Tool{Timeout: time.Second})
		b := resilience.NewBreaker("b", resilience.BreakerConfig{Failures: 1})

		for range 20 {
			_, err := resilience.Do(t.Context(), g, "x", valueOf(c.Get))
			e := requireLost(t, err)
			assert.True(t, e.Retryable)
			assert.Positive(t, e.RetryAfter)

			_, err = resilience.WithBreaker(t.Context(), b, valueOf(c.Get))
			require.ErrorIs(t, err, resilience.CodeConnectionLost)
		}
		assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
		assert.Equal(t, resilience.StateClosed, b.State())

		d.acceptAll()
		time.Sleep(time.Minute)
		_, err := resilience.Do(t.Context(), g, "x", valueOf(c.Get))
		assert.NoError(t, err)
	})
}

// A tool that waits for its whole timeout is slow, and a breaker spares others the same wait. One whose caller leaves
// isn't.
func TestWaitForAConnectionIsCountedIfItExceedsTheTimeout(t *testing.T) {
	for name, tc := range map[string]struct {
		leaves   time.Duration
		code     resilience.Code
		failures int
	}{
		"the caller stays":  {time.Hour, resilience.CodeTimeout, 1},
		"the caller leaves": {time.Second, resilience.CodeCanceled, 0},
	} {
		runInBubble(t, name, func(t *testing.T) {
			c := newConnector(t, newDialer(untilCanceled), linkConfig{})
			g := guardWith(t, resilience.Tool{Timeout: 10 * time.Second})
			ctx, cancel := leavingAfter(tc.leaves)(t.Context())
			defer cancel()

			_, err := resilience.Do(ctx, g, "x", valueOf(c.Wait))
			assert.ErrorIs(t, err, tc.code)
			assert.Equal(t, tc.failures, g.Health()[0].ConsecutiveFailures)
		})
	}

	runInBubble(t, "a deadline of the tool's own", func(t *testing.T) {
		c := newConnector(t, newDialer(untilCanceled), linkConfig{})
		g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
		r := resilience.Run(t.Context(), g, "x", func(context.Context) (*link, error) {
			return valueOf(c.Wait)(contextWithin(t, time.Second))
		})
		assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
		assert.Equal(t, 1, r.Attempts)
		assert.Equal(t, 1, g.Health()[0].ConsecutiveFailures)
	})
}

// The agent reads the words for an exhausted connector, without caution: the tool has done nothing.
func TestErrorOfAConnectorThatGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConnector(t, newDialer(refused), linkConfig{MaxAttempts: 1})
		cfg := configWith(resilience.Tool{Effect: resilience.NonIdempotent})
		cfg.Suggestions = map[resilience.Code]string{resilience.CodeRetryExhausted: "Tell the user."}
		get := func(ctx context.Context) (int, error) {
			_, err := c.Get(ctx)
			return 0, fmt.Errorf("browser: %w", err)
		}
		r := resilience.Run(t.Context(), newGuard(t, cfg), "x", get)
		assert.Equal(t, resilience.CodeRetryExhausted, r.Err.Code)
		assert.Equal(t, "Tell the user.", r.Err.Suggestion)
		assert.False(t, r.Err.Retryable)

		require.NoError(t, c.Close())
		r = resilience.Run(t.Context(), guardWith(t, resilience.Tool{Effect: resilience.ReadOnly}), "x", get)
		assert.Equal(t, resilience.CodeConnectionLost, r.Err.Code)
		assert.Equal(t, 1, r.Attempts)
		assert.False(t, r.Err.Retryable)
	})
}
