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

// newHand is the stack that people write by hand: gobreaker, a context with a timeout,
// a goroutine, backoff's loop in it, and a select.
func newHand(s Settings) System {
	return forEach(s, func(s Settings) Do {
		cb := newCircuitBreaker(s)
		return func(ctx context.Context, _ string, fn Tool) (string, error) {
			return cb.Execute(func() (string, error) {
				return within(ctx, s.Limit, func(ctx context.Context) (string, error) {
					return backoff.RetryWithData(func() (string, error) {
						return fn(ctx)
					}, policy(ctx, s))
				})
			})
		}
	})
}

// policy is made for each call: one can't be shared between calls.
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

// within calls fn on a goroutine and returns when it does or at the limit.
func within(ctx context.Context, limit time.Duration, fn Tool) (string, error) {
	type outcome struct {
		value string
		err   error
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	result := make(chan outcome, 1)
	go func() {
		value, err := fn(ctx)
		result <- outcome{value, err}
	}()
	select {
	case o := <-result:
		return o.value, o.err
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

// newGobreaker is a breaker and nothing else.
func newGobreaker(s Settings) System {
	return forEach(s, func(s Settings) Do {
		cb := newCircuitBreaker(s)
		return func(ctx context.Context, _ string, fn Tool) (string, error) {
			return cb.Execute(func() (string, error) { return fn(ctx) })
		}
	})
}

// newResiliency composes go-resiliency's breaker, deadline and retrier. Its deadline
// knows no context; here the tool's ends when the deadline returns. The end of the
// caller's context ends the call only if the tool heeds it.
func newResiliency(s Settings) System {
	return forEach(s, func(s Settings) Do {
		b := breaker.New(s.Failures, 1, s.Cooldown)
		d := deadline.New(s.Limit)
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
				return "", err // value may yet be written, by a tool that was given up on
			}
			return value, nil
		}
	})
}
