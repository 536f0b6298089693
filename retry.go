package resilience

import (
	"context"
	"errors"
	"time"
)

const (
	defaultRetries   = 3
	defaultRetryBase = 100 * time.Millisecond
	defaultRetryMax  = time.Second
)

// Retry says how often and how soon to try again. The zero value makes 3 retries
// after the first attempt, with full jitter from 100ms to 1s. A Retry is a plain
// value: copy and share it.
type Retry struct {
	// MaxRetries is how many attempts may follow the first. 0: 3. Negative: none.
	MaxRetries int

	// Backoff gives the delays. A zero Base is 100ms and a zero Max 1s here, or
	// Base if that is longer. Negative durations are not allowed.
	Backoff Backoff

	// Classify says what an error means. nil: the package's Classify. It is called
	// concurrently, and never with nil; if it panics the error is Transient.
	Classify func(error) Class

	// OnRetry is called before each delay with the number of the attempt that
	// failed, from 1, the delay and the attempt's error. It is called concurrently,
	// on the goroutine of the call, which it must not hold up. A panic in it is
	// recovered. nil: nobody is told.
	OnRetry func(attempt int, delay time.Duration, err error)
}

func (r Retry) withDefaults() Retry {
	if r.MaxRetries == 0 {
		r.MaxRetries = defaultRetries
	}
	r.Backoff = r.Backoff.withDefaults(defaultRetryBase, defaultRetryMax)
	return r
}

func (r Retry) check() []error { return r.Backoff.check() }

// delay says how long to wait after the n-th attempt: at least as long as its error
// asks for.
func (r Retry) delay(n int, asked time.Duration) time.Duration {
	return max(r.Backoff.Delay(n-1), asked)
}

// fits reports whether there is anything left of the time ctx has after waiting d.
// During a wait there is no progress that could restart a limit.
func fits(ctx context.Context, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && d >= time.Until(deadline) {
		return false
	}
	for c := innermost(ctx); c != nil; c = innermost(c.parent) {
		if d >= c.left() {
			return false
		}
	}
	return true
}

// notify calls OnRetry, which is not the tool's and must not fail its call.
func (r Retry) notify(n int, delay time.Duration, err error) {
	if r.OnRetry == nil {
		return
	}
	defer func() { _ = recover() }()
	r.OnRetry(n, delay, err)
}

// sleep waits for d and reports whether ctx lasted that long. When both end
// together, ctx decides: no attempt is made for a caller who has left.
func sleep(ctx context.Context, d time.Duration) bool {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// Attempt tells a tool which attempt it is, from 1. Outside [WithRetry] and a
// [Guard] it is 1.
func Attempt(ctx context.Context) int {
	if n, ok := ctx.Value(attemptKey{}).(int); ok {
		return n
	}
	return 1
}

// WithRetry calls fn on this goroutine until it succeeds, fails with an error that
// isn't Transient, or has been retried r.MaxRetries times. It repeats whatever is
// Transient, whether or not fn has had an effect: the caller asked for it. (A [Guard]
// knows its tools better.)
//
// Between attempts it waits as r.Backoff says, and at least as long as the error
// asks for: an [*Error] by its RetryAfter, any other by a method RetryAfter()
// time.Duration. It never sleeps into ctx's deadline: a delay that doesn't fit ends
// the call at once.
//
// It returns the value of the last attempt, and fn's own error unchanged where no
// retry was made or the rest of them wasn't: not Transient, no time left. After the
// last of several attempts the error is RETRY_EXHAUSTED around fn's last one. If
// ctx ends between attempts it is CANCELED or TIMEOUT around fn's last one. A
// panic of fn is not retried; it is TOOL_FAILED around a [*PanicError]. A context
// that has ended already, a nil fn and a negative duration in r are errors too, and
// fn isn't called. A nil ctx panics.
func WithRetry[T any](ctx context.Context, r Retry, fn func(context.Context) (T, error)) (value T, err error) {
	if err := checkFunc(ctx, "", fn == nil); err != nil {
		return value, err
	}
	if errs := r.check(); len(errs) > 0 {
		return value, validationError("", "Retry: %v", errors.Join(errs...))
	}
	if err := endOf(ctx, ""); err != nil {
		return value, err
	}
	r = r.withDefaults()
	for n := 1; ; n++ {
		value, err = protect(context.WithValue(ctx, attemptKey{}, n), fn)
		if err == nil {
			return value, nil
		}
		d := diagnose(err, r.Classify)
		delay := r.delay(n, d.retryAfter)
		switch {
		case d.class != Transient || ctx.Err() != nil:
			return value, crashed("", err)
		case n > 1 && n > r.MaxRetries:
			return value, RetryExhaustedError("", n, err)
		case n > r.MaxRetries || !fits(ctx, delay):
			return value, err
		}
		r.notify(n, delay, err)
		if !sleep(ctx, delay) {
			return value, endOf(ctx, "").withCause(err)
		}
	}
}
