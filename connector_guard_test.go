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

// Tools that use a connector, under a guard.

func TestConnectorErrorIsRetriedIfTheNextDialComesBeforeTheTimeout(t *testing.T) {
	for name, tc := range map[string]struct {
		timeout  time.Duration
		attempts int
		duration time.Duration
		code     resilience.Code
	}{
		"before the timeout": {
			timeout: time.Minute, attempts: 2, duration: 4 * time.Second,
		},
		"not before the timeout": {
			timeout: 4 * time.Second, attempts: 1, duration: 0, code: resilience.CodeConnectionLost,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDialer(refused)
				c := newConnector(t, d, linkConfig{})
				time.Sleep(3500 * time.Millisecond) // the fifth dial comes 4s later
				synctest.Wait()
				require.Equal(t, 4, d.dials())
				d.acceptAll()

				g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent, Timeout: tc.timeout})
				r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					if resilience.Attempt(ctx) > 1 {
						synctest.Wait() // for the dial, which starts at the same instant
					}
					conn, err := c.Get(ctx)
					if err != nil {
						return 0, err
					}
					return conn.id, nil
				})

				assert.Equal(t, tc.attempts, r.Attempts)
				assert.Equal(t, tc.duration, r.Duration)
				if tc.code == "" {
					assert.Nil(t, r.Err)
					return
				}
				require.ErrorIs(t, r.Err, tc.code)
				assert.Equal(t, 4*time.Second, r.Err.RetryAfter)
				assert.Equal(t, "x", r.Err.Tool)
				assert.True(t, r.Err.Retryable, "the tool has had no effect")
			})
		})
	}
}

// That holds for any cause, not only for the error of a refused dial.
func TestConnectorErrorMeansThatTheToolHadNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := func(context.Context) error { return errBoom }
		c := newConnector(t, newDialer(failed, accepted), linkConfig{})
		g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})

		r := resilience.Run(t.Context(), g, "x", c.Get)

		assert.Greater(t, r.Attempts, 1)
		assert.Nil(t, r.Err)
	})
}

func TestConnectorErrorIsReturnedWhenRetriesAreExhausted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConnector(t, newDialer(refused), linkConfig{})
		g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})

		r := resilience.Run(t.Context(), g, "x", c.Get)

		assert.Equal(t, 4, r.Attempts)
		assert.Equal(t, resilience.CodeConnectionLost, r.Err.Code)
		assert.True(t, r.Err.Retryable)
		assert.Positive(t, r.Err.RetryAfter)
	})
}

func TestConnectorLossDuringACallIsRetriedByEffect(t *testing.T) {
	for name, tc := range map[string]struct {
		effect   resilience.Effect
		attempts int
	}{
		"read-only":      {resilience.ReadOnly, 2},
		"non-idempotent": {resilience.NonIdempotent, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConnector(t, newDialer(), linkConfig{})
				g := guardWith(t, resilience.Tool{Effect: tc.effect})

				r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					conn, err := c.Wait(ctx)
					if err != nil || resilience.Attempt(ctx) > 1 {
						return 0, err
					}
					c.ReportLost(conn, net.ErrClosed)
					return 0, net.ErrClosed
				})

				assert.Equal(t, tc.attempts, r.Attempts)
				if tc.attempts == 1 {
					assert.ErrorIs(t, r.Err, resilience.CodeConnectionLost)
					assert.False(t, r.Err.Retryable)
				}
			})
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
			_, err := resilience.Do(t.Context(), g, "x", c.Get)
			e := requireLost(t, err)
			assert.True(t, e.Retryable)
			assert.Positive(t, e.RetryAfter)

			_, err = resilience.WithBreaker(t.Context(), b, c.Get)
			require.ErrorIs(t, err, resilience.CodeConnectionLost)
		}
		assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
		assert.Equal(t, resilience.StateClosed, b.State())
		assert.Nil(t, g.Health()[0].LastError)

		d.acceptAll()
		time.Sleep(time.Minute)
		_, err := resilience.Do(t.Context(), g, "x", c.Get)
		assert.NoError(t, err)
	})
}

func TestConnectorErrorThatAToolPanicsWithIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConnector(t, newDialer(refused), linkConfig{})
		g := guardWith(t, resilience.Tool{})

		for range 5 {
			_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				_, err := c.Get(ctx)
				panic(err)
			})
			require.ErrorIs(t, err, resilience.CodeToolFailed)
		}

		assert.Equal(t, resilience.StateOpen, g.Breaker("x").State())
	})
}

// "If all attempts end with it": one that has done something is no rejection, whatever comes after it.
func TestErrorOfGetAfterAnotherFailureIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := func(context.Context) (int, error) { return 0, errBoom }
		c := resilience.NewConnector(dial, resilience.ConnectorConfig[int]{
			Backoff: resilience.Backoff{Base: time.Second, Max: time.Second},
		})
		defer c.Close()
		synctest.Wait()
		cfg := configWith(resilience.Tool{Effect: resilience.Idempotent})
		cfg.Tools["outer"] = resilience.Tool{Effect: resilience.NonIdempotent}
		g := newGuard(t, cfg)
		inner := func(ctx context.Context) (int, error) {
			if resilience.Attempt(ctx) == 1 {
				return 0, errBoom
			}
			return c.Get(ctx)
		}

		r := resilience.Run(t.Context(), g, "x", inner)
		assert.Equal(t, resilience.CodeRetryExhausted, r.Err.Code)
		assert.Equal(t, 1, g.Health()[1].ConsecutiveFailures)

		r = resilience.Run(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
			return resilience.Do(ctx, g, "x", inner)
		})
		assert.Equal(t, 1, r.Attempts)
		assert.False(t, r.Err.Retryable)
	})
}

// The connection came back, and then the tool hung: that is the tool's failure.
func TestHangAfterAnErrorOfGetIsCounted(t *testing.T) {
	for name, attemptTimeout := range map[string]time.Duration{"call": 0, "attempts": 5 * time.Second} {
		runInBubble(t, name, func(t *testing.T) {
			dial := func(context.Context) (int, error) { return 0, errBoom }
			c := resilience.NewConnector(dial, resilience.ConnectorConfig[int]{
				Backoff: resilience.Backoff{Base: time.Second, Max: time.Second},
			})
			defer c.Close()
			synctest.Wait()
			cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly, Timeout: 10 * time.Second})
			cfg.AttemptTimeout = attemptTimeout
			g := newGuard(t, cfg)

			_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) == 1 {
					return c.Get(ctx)
				}
				time.Sleep(time.Hour)
				return 0, nil
			})
			assert.Error(t, err)
			assert.Equal(t, 1, g.Health()[0].ConsecutiveFailures)
			time.Sleep(2 * time.Hour)
		})
	}
}

// Words for an exhausted Connector need no caution: it has done nothing but dial. It is one that a guard neither
// retries nor calls transient after the Connector was closed, however the tool has wrapped that.
func TestErrorOfAConnectorThatGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConnector(t, newDialer(refused), linkConfig{MaxAttempts: 1})
		synctest.Wait()
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
		assert.Equal(t, resilience.ClassPermanent, resilience.Classify(r.Err))
		assert.Equal(t, 1, r.Attempts)
	})
}

// The error of Get counts as little when the context has ended that the tool has given to it, as in a race.
func TestErrorOfGetWithAContextThatHasEnded(t *testing.T) {
	get := func(c *resilience.Connector[int], ctx context.Context) (int, error) { return c.Get(ctx) }
	wait := func(c *resilience.Connector[int], ctx context.Context) (int, error) { return c.Wait(ctx) }
	for name, tc := range map[string]struct {
		of       func(*resilience.Connector[int], context.Context) (int, error)
		timeout  time.Duration
		failures int
	}{
		"Get, canceled":  {get, 0, 0},
		"Wait, canceled": {wait, 0, 0},
		"Get, too late":  {get, time.Second, 0},
		"Wait, too late": {wait, time.Second, 1}, // as documented
	} {
		runInBubble(t, name, func(t *testing.T) {
			dial := func(context.Context) (int, error) {
				return 0, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
			}
			c := resilience.NewConnector(dial, resilience.ConnectorConfig[int]{
				Backoff: resilience.Backoff{Base: time.Hour, Max: time.Hour},
			})
			defer c.Close()
			synctest.Wait()
			g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				var err error
				for _, cause := range []error{nil, errBoom} {
					ctx, cancel := context.WithCancelCause(ctx)
					if tc.timeout > 0 {
						var end context.CancelFunc
						ctx, end = context.WithTimeoutCause(ctx, tc.timeout, cause)
						defer end()
						time.Sleep(2 * tc.timeout)
					}
					cancel(cause)
					_, got := tc.of(c, ctx)
					err = errors.Join(err, got, resilience.AsError("x", fmt.Errorf("browser: %w", got)))
				}
				return 0, err
			}, resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral}))
			assert.Equal(t, tc.failures, g.Health()[0].ConsecutiveFailures)
			assert.Equal(t, tc.failures == 0, r.Err.Retryable)
		})
	}
}
