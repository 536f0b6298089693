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

// Retry is how often and how soon a failed call is tried again. A guard makes no retries if the last call that its
// breaker counted has failed.
type Retry struct {
	MaxRetries int // that may follow the first attempt; 0 means 3; negative none, for a client that retries by itself

	// Backoff computes the delays. Here a zero Base means 100ms, and a zero Max 1s, or a longer Base. An error that
	// asks for a longer delay than Max isn't retried, and neither is a rate limit whose end isn't known.
	Backoff Backoff

	// MaxElapsed is how long after the beginning of a call its last retry may start, except for one retry at once if
	// the first attempt loses its connection. Zero means 5s, and negative at any time.
	MaxElapsed time.Duration

	OnRetry func(attempt int, delay time.Duration, err error) // before each delay; counts from 1; nil in a guard
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

// next decides what follows the n-th attempt, whose error m may be repeated: another one after the
// delay, if ok and if there is time for it. exhausted means that the retries are used up, which the error should say. A
// connection that has broken late is tried once more, at once.
func (r *Retry) next(n int, m *meaning, start time.Time) (delay time.Duration, ok, exhausted bool) {
	if n > r.MaxRetries {
		return 0, false, n > 1 && m.weight != weightDeclined
	}

	delay = max(r.Backoff.Delay(n-1), m.retryAfter)
	late := r.MaxElapsed >= 0 && time.Since(start)+delay > r.MaxElapsed
	if late && n == 1 && m.retryAfter == 0 && m.isLost() {
		return 0, true, false
	}
	soon := m.retryAfter <= r.Backoff.Max && (m.code != CodeRateLimited || m.retryAfter > 0)
	return delay, soon && !late, false
}

// fits reports whether any of the time that ctx has is left after a wait of d. During a wait
// there is no progress that could restart a timeout.
func fits(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	if ok && d >= time.Until(deadline) {
		return false
	}

	for a := guardedAttempt(ctx); a != nil && !a.over.Load(); a = a.outer.guarded() {
		if last, limited := a.scope.Deadline(); limited && (!ok || deadline.After(last)) {
			return true // ctx has the values of the call, but not its end: see context.WithoutCancel
		}
		if d >= a.scope.left() {
			return false
		}
	}
	return true
}

// sleep waits for d or for the end of ctx. Both may come together: then ctx has ended, and no attempt is
// made for a caller that has left.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return // under the race detector, a bubble's timer must not be due at once
	}

	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Attempt returns the number of the attempt that ctx belongs to, from 1 on.
func Attempt(ctx context.Context) int {
	if n, ok := ctx.Value(attemptKey{}).(int); ok {
		return n
	}
	return 1
}

// WithRetry calls fn on this goroutine until it succeeds, fails with an error that isn't ClassTransient (see
// [Classify]), or has been retried r.MaxRetries times. It repeats fn even if that may have had an effect. Between
// attempts it waits for the delay of r.Backoff, or a longer RetryAfter of the error.
//
// It returns the value of the last attempt, and fn's own error if no retry was made or no further one was possible.
// After the last of several attempts the error is RETRY_EXHAUSTED, and if ctx ends between attempts it is CANCELED or
// TIMEOUT; both wrap fn's last error. A panic isn't retried and becomes TOOL_FAILED around a [*PanicError]. An invalid
// Backoff is VALIDATION_ERROR.
func WithRetry[T any](ctx context.Context, r Retry, fn func(context.Context) (T, error)) (value T, err error) {
	if e := checkFunc(ctx, "", fn == nil); e != nil {
		return value, e
	}
	if errs := r.check(); len(errs) > 0 {
		return value, validationError("", "Retry: %v", errors.Join(errs...))
	}
	if e := endOf(ctx, ""); e != nil {
		return value, e
	}

	r = r.withDefaults()
	start, acted := time.Now(), false
	var last error
	for n := 1; ; n++ {
		value, err = protect(context.WithValue(ctx, attemptKey{}, n), fn)
		if err == nil {
			return value, nil
		}

		m := meaningOf(err)
		if m.noEffect && acted {
			err = &repeated{err}
			m.err, m.noEffect = err, false
		}
		if isCrash(err) {
			e := crashError("", err).(*Error)
			e.addCause(last)
			return value, e
		}
		if m.countedClass() != ClassTransient || ctx.Err() != nil {
			return value, err
		}

		delay, ok, exhausted := r.next(n, &m, start)
		switch {
		case exhausted:
			return value, m.exhausted("", n)
		case !ok || !fits(ctx, delay):
			return value, err
		}
		acted, last = acted || !m.noEffect, err

		r.notify(n, delay, err)
		sleep(ctx, delay)
		if e := endOf(ctx, ""); e != nil {
			e.addCause(err)
			return value, e
		}
	}
}

// notify calls OnRetry, whose panic must not fail the call.
func (r *Retry) notify(n int, delay time.Duration, err error) {
	if r.OnRetry == nil {
		return
	}
	_ = recovered(func() error { r.OnRetry(n, delay, err); return nil })
}

// retry waits until the next attempt may be made, or finishes the call if none may. A retry needs a failure that may be
// repeated, a tool that may, a call that is no probe, a Retry that has one left, time, and a backend for which retries
// still help.
func (c *call) retry(f *failure) (again bool) {
	may := f.mayBeRepeated() && (!c.acted || c.effect().repeatable()) && !c.current.ticket.isProbe()
	r, n := c.state.Retry, c.current.number
	var delay time.Duration
	var exhausted bool
	if may {
		delay, may, exhausted = r.next(n, &f.meaning, c.start)
	}
	if exhausted {
		c.finish(f.exhausted(c.tool, n), f.outcome)
		return false
	}
	if !may || !c.fits(delay) || !c.retriesHelp() || c.guard.overloaded(c.state) {
		c.finish(c.errorOf(f), f.outcome)
		return false
	}

	c.notifyRetry(n, delay, f.err)
	sleep(c.scope.Context, delay)
	if end := c.scope.endIfDue(); end != nil {
		c.cutOff(end, f)
		return false
	}
	if c.scope.changes.Load() > 0 || c.scope.asked.Load() {
		c.acted = true // a goroutine of the failed attempt has done that since
	}
	if c.acted && !c.effect().repeatable() || !c.isAdmitted() {
		c.finish(c.errorOf(f), f.outcome)
		return false
	}
	return true
}

// fits reports whether any of the call's time is left after delay.
func (c *call) fits(delay time.Duration) bool {
	return delay < c.scope.left() && fits(c.scope.Context, delay)
}

// isAdmitted reports whether the breakers would still admit the call.
func (c *call) isAdmitted() bool {
	return c.breaker.phase.Load().state == StateClosed && !c.state.breaker.isolated()
}

// retriesHelp reports whether the breaker is closed without failures. While calls in a row fail, retries only multiply
// the requests to a backend that is down.
func (c *call) retriesHelp() bool { return c.isAdmitted() && c.breaker.Failures() == 0 }
