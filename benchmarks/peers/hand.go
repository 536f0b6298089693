package peers

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/eapache/go-resiliency/breaker"
	"github.com/eapache/go-resiliency/deadline"
	"github.com/eapache/go-resiliency/retrier"
	"github.com/sony/gobreaker/v2"
)

// newHand composes the stack that people write by hand: gobreaker, a context with a timeout,
// a goroutine that runs backoff's loop, and a select.
func newHand(s Settings) Do {
	return forEach(s, func(s Settings) Do {
		cb := newCircuitBreaker(s)
		return func(ctx context.Context, _ string, fn Tool) (string, error) {
			return cb.Execute(func() (string, error) {
				return within(ctx, s.Timeout, func(ctx context.Context) (string, error) {
					return backoff.RetryWithData(func() (string, error) {
						return fn(ctx)
					}, policy(ctx, s))
				})
			})
		}
	})
}

// policy returns the delays of one call. They hold state that calls can't share.
func policy(ctx context.Context, s Settings) backoff.BackOff {
	var delays backoff.BackOff = &backoff.ZeroBackOff{}
	if s.Delay > 0 {
		delays = backoff.NewExponentialBackOff(
			backoff.WithInitialInterval(s.Delay),
			backoff.WithMaxInterval(s.maxDelay()),
		)
	}

	return backoff.WithContext(backoff.WithMaxRetries(delays, uint64(s.Retries)), ctx)
}

// within calls fn on a goroutine and returns when fn returns or when the timeout has passed,
// whichever is first.
func within(ctx context.Context, timeout time.Duration, fn Tool) (string, error) {
	type result struct {
		value string
		err   error
	}

	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	results := make(chan result, 1)
	go func() {
		value, err := fn(ctx)
		results <- result{value, err}
	}()

	select {
	case r := <-results:
		return r.value, r.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func newCircuitBreaker(s Settings) *gobreaker.CircuitBreaker[string] {
	return gobreaker.NewCircuitBreaker[string](gobreaker.Settings{
		Timeout: s.Cooldown,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return c.ConsecutiveFailures >= uint32(s.Failures)
		},
	})
}

// newGobreaker uses a breaker and nothing else.
func newGobreaker(s Settings) Do {
	return forEach(s, func(s Settings) Do {
		cb := newCircuitBreaker(s)
		return func(ctx context.Context, _ string, fn Tool) (string, error) {
			return cb.Execute(func() (string, error) { return fn(ctx) })
		}
	})
}

// newResiliency composes go-resiliency's breaker, deadline and retrier. Its deadline takes no
// context, so the tool's context is canceled when the deadline returns. If the caller's
// context ends, the call ends only if the tool respects that.
func newResiliency(s Settings) Do {
	return forEach(s, func(s Settings) Do {
		b := breaker.New(s.Failures, 1, s.Cooldown)
		d := deadline.New(s.Timeout)
		r := retrier.New(retrier.LimitedExponentialBackoff(s.Retries, s.Delay, s.maxDelay()), nil)
		r.SetJitter(0.5)

		return func(ctx context.Context, _ string, fn Tool) (string, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()

			var value string
			err := b.Run(func() error {
				return d.Run(func(<-chan struct{}) error {
					return r.RunCtx(ctx, func(ctx context.Context) (err error) {
						value, err = fn(ctx)
						return err
					})
				})
			})
			if err != nil {
				return "", err // an abandoned tool may still write to value
			}
			return value, nil
		}
	})
}
