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
	defaultElapsed   = 5 * time.Second
)

// Retry is how often and how soon a failed call is tried again. The zero value makes 3
// retries after the first attempt, with full jitter and ceilings from 100ms to 1s, and none that
// would start later than 5s after the call. A Retry is a plain value, which may be copied and shared.
type Retry struct {
	// MaxRetries is how many attempts may follow the first one. Zero means 3. If it is
	// negative, nothing is retried, which is right where the backend's client retries by itself.
	MaxRetries int

	// Backoff computes the delays. Here a zero Base means 100ms, and a zero Max means 1s, or
	// Base if that is longer. See [Backoff] for what it must be.
	Backoff Backoff

	// MaxElapsed is how long after the beginning of a call its last retry may start, since
	// retries are for failures that come quickly. Zero means 5s, in a guard after the AttemptTimeout that a
	// tool may have. Negative means at any time.
	MaxElapsed time.Duration

	// Classify returns what an error means. It is called concurrently and never with nil. The error may
	// be wrapped together with what the tool's backend has said: ask it by errors.Is and errors.As. If
	// it panics, the error is ClassTransient. Nil means the package's Classify.
	Classify func(error) Class

	// OnRetry is called before each delay, with the number of the attempt that failed,
	// counted from 1, the delay and the attempt's error. It is called concurrently, on the
	// goroutine of the call, which it must not delay, nor end by runtime.Goexit. A panic in it is
	// recovered. Nil means that nothing is called.
	OnRetry func(attempt int, delay time.Duration, err error)
}

func (r Retry) withDefaults() Retry {
	if r.MaxRetries == 0 {
		r.MaxRetries = defaultRetries
	}
	if r.MaxElapsed == 0 {
		r.MaxElapsed = defaultElapsed
	}
	r.Backoff = r.Backoff.withDefaults(defaultRetryBase, defaultRetryMax)
	return r
}

func (r Retry) check() []error { return r.Backoff.check() }

// delay returns how long to wait after the n-th attempt, whose error asks to wait at least so long, and
// whether to wait at all. elapsed is the time since the beginning of the call.
func (r Retry) delay(n int, asked, elapsed time.Duration) (delay time.Duration, ok bool) {
	delay = max(r.Backoff.Delay(n-1), asked)
	return delay, asked <= r.Backoff.Max && (r.MaxElapsed < 0 || delay <= r.MaxElapsed-elapsed)
}

// fits reports whether any of the time that ctx has is left after a wait of d. During a wait
// there is no progress that could restart a timeout.
func fits(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	if ok && d >= time.Until(deadline) {
		return false
	}

	for c := innermost(ctx); c != nil; c = c.outer() {
		if last, _ := c.Deadline(); !ok || deadline.After(last) || c.over() && ctx.Err() == nil {
			return true // ctx has the values of the call, but not its end: see context.WithoutCancel
		}
		if d >= c.left() {
			return false
		}
	}
	return true
}

// notify calls OnRetry, whose panic must not fail the call.
func (r Retry) notify(n int, delay time.Duration, err error) {
	if r.OnRetry == nil {
		return
	}

	defer func() { _ = recover() }()
	r.OnRetry(n, delay, err)
}

// sleep waits for d or for the end of ctx. Both may come together: then ctx has ended, and no attempt is
// made for a caller that has left.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return // under the race detector, the runtime may crash if a bubble's timer is due at once
	}

	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Attempt returns the number of the attempt to which ctx belongs, counted from 1. Outside of
// [WithRetry] and of a [Guard] it is 1.
func Attempt(ctx context.Context) int {
	if n, ok := ctx.Value(attemptKey{}).(int); ok {
		return n
	}

	return 1
}

// WithRetry calls fn on this goroutine until it succeeds, fails with an error that isn't
// ClassTransient, or has been retried r.MaxRetries times. It repeats every transient failure,
// whether or not fn has had an effect: the caller asks for it. (A [Guard] knows its tools
// better.)
//
// Between attempts it waits as r.Backoff says, and at least as long as the error asks for: an
// [*Error] by its RetryAfter, any other error by a method RetryAfter() time.Duration. An error that asks
// for more than r.Backoff.Max ends the call at once, and so does a delay that doesn't fit into
// r.MaxElapsed or into the deadline of ctx.
//
// It returns the value of the last attempt. Its error is fn's own, unchanged, if no retry was
// made or if further ones were ruled out, by the error's class or for lack of time. (If the
// error says that nothing was done, and an earlier attempt may have done something, it is
// wrapped.) After the last of several attempts the error is RETRY_EXHAUSTED, and if ctx ends
// between attempts it is CANCELED or TIMEOUT; both wrap fn's last error. A panic of fn isn't
// retried and becomes TOOL_FAILED around a [*PanicError] and the error of the attempt before.
//
// A context that has already ended is CANCELED or TIMEOUT, a nil fn is TOOL_NOT_FOUND, and a Backoff
// that isn't valid is VALIDATION_ERROR; fn isn't called then. A nil ctx panics.
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

	r, start := r.withDefaults(), time.Now()
	noEffect := true // of the attempts so far
	var last error   // of them
	for n := 1; ; n++ {
		value, err = protect(context.WithValue(ctx, attemptKey{}, n), fn)
		if err == nil {
			return value, nil
		}

		d := diagnose(err, r.Classify)
		if d.noEffect && !noEffect {
			err, d.err = &repeated{err}, &repeated{d.err}
		}

		delay, ok := r.delay(n, d.retryAfter, time.Since(start))
		switch {
		case d.class != ClassTransient || endedAbove(ctx) != nil:
			if isCrash(err) {
				return value, crashError("", err).(*Error).withCause(last)
			}
			return value, err
		case n > 1 && n > r.MaxRetries:
			e := d.exhausted("", n)
			e.derives(&d)
			e.seal()
			return value, e
		case n > r.MaxRetries || !ok || !fits(ctx, delay):
			return value, err
		}
		noEffect, last = noEffect && d.noEffect, d.err

		r.notify(n, delay, d.err)
		sleep(ctx, delay)
		if e := endOf(ctx, ""); e != nil {
			return value, e.withCause(d.err)
		}
	}
}
