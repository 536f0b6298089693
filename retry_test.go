package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWithRetryRetriesTransientFailures(t *testing.T) {
	const ms = time.Millisecond
	tooLong, rejected := waitError{1001 * ms}, resilience.CircuitOpenError("db", time.Minute)
	permanent, invalid := resilience.MarkPermanent(errBoom), resilience.MarkInvalid(errBoom)
	short := resilience.Backoff{Jitter: resilience.NoJitter} // up to a second
	exhausted := []error{resilience.CodeRetryExhausted, errBoom}
	for name, tc := range map[string]struct {
		retry    resilience.Retry // its zero Backoff and MaxElapsed are those of steady
		fn       toolFunc
		attempts int
		is       []error
		err      error // exactly, if is has none
		took     time.Duration
	}{
		"success at once":   {fn: succeed, attempts: 1},
		"success at last":   {fn: failing(3, errBoom), attempts: 4, took: 700 * ms},
		"no success":        {fn: failing(9, errBoom), attempts: 4, is: exhausted, took: 700 * ms},
		"permanent failure": {fn: failing(9, permanent), attempts: 1, err: permanent},
		"invalid arguments": {fn: failing(9, invalid), attempts: 1, err: invalid},
		"canceled":          {fn: failing(9, context.Canceled), attempts: 1, err: context.Canceled},
		"panic":             {fn: panicking(io.EOF), is: []error{resilience.CodeToolFailed, io.EOF}},
		"a longer delay":    {fn: failing(1, waitError{time.Minute}), attempts: 2, took: time.Minute},
		"a shorter delay":   {fn: failing(1, waitError{ms}), attempts: 2, took: 100 * ms},
		"delay of an Error": {fn: failing(1, rejected), attempts: 2, took: time.Minute},
		"one retry": {
			retry: resilience.Retry{MaxRetries: 1}, fn: failing(9, errBoom), attempts: 2, is: exhausted, took: 100 * ms,
		},
		"many retries with a capped delay": {
			retry: resilience.Retry{MaxRetries: 6, Backoff: short}, fn: failing(9, errBoom),
			attempts: 7, is: exhausted, took: 3500 * ms,
		},
		"a delay that is longer than any": {
			retry: resilience.Retry{Backoff: short}, fn: failing(1, tooLong), attempts: 1, err: tooLong,
		},
		"the last one begins in time": {
			retry: resilience.Retry{MaxElapsed: 700 * ms}, fn: failing(3, errBoom), attempts: 4, took: 700 * ms,
		},
		"the last one would begin too late": {
			retry: resilience.Retry{MaxElapsed: 699 * ms}, fn: failing(3, errBoom),
			attempts: 3, err: errBoom, took: 300 * ms,
		},
		"the time ends during an attempt": {
			retry: resilience.Retry{MaxElapsed: 100 * ms}, fn: failingAfter(120*ms, errBoom),
			err: errBoom, took: 120 * ms,
		},
		"panic, after an error": {
			fn: func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) == 1 {
					return 0, errBoom
				}
				panic(io.EOF)
			},
			took: 100 * ms, is: []error{resilience.CodeToolFailed, io.EOF, errBoom},
		},
		"OnRetry panics": {
			retry: resilience.Retry{OnRetry: func(int, time.Duration, error) { panic("c") }},
			fn:    failing(3, errBoom), attempts: 4, took: 700 * ms,
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			if tc.retry.Backoff == (resilience.Backoff{}) {
				tc.retry.Backoff = steady.Backoff
			}
			if tc.retry.MaxElapsed == 0 {
				tc.retry.MaxElapsed = steady.MaxElapsed
			}

			start := time.Now()
			value, err := resilience.WithRetry(t.Context(), tc.retry, tc.fn)

			assert.Equal(t, tc.took, time.Since(start))
			assert.Equal(t, tc.attempts, value, "the last attempt's value")
			for _, target := range tc.is {
				assert.ErrorIs(t, err, target)
			}
			if tc.is == nil {
				assert.Equal(t, tc.err, err, "unchanged")
			}
		})
	}
}

func TestWithRetryWaitsWithJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var delays []time.Duration
		r := resilience.Retry{MaxRetries: 200, MaxElapsed: -1}
		r.OnRetry = func(_ int, delay time.Duration, _ error) { delays = append(delays, delay) }

		_, err := resilience.WithRetry(t.Context(), r, failing(999, errBoom))

		assert.EqualError(t, err, "RETRY_EXHAUSTED: The tool failed after 201 attempts")
		require.Len(t, delays, 200)
		assert.LessOrEqual(t, delays[0], 100*time.Millisecond)
		longest := slices.Max(delays)
		assert.LessOrEqual(t, longest, time.Second)
		assert.Greater(t, longest, 900*time.Millisecond)
	})
}

func TestRetriesBeginWithinFiveSeconds(t *testing.T) {
	for delay, want := range map[time.Duration]int{5 * time.Second: 2, 5*time.Second + 1: 1} {
		runInBubble(t, delay.String(), func(t *testing.T) {
			r := resilience.Retry{Backoff: resilience.Backoff{Base: delay, Jitter: resilience.NoJitter}}
			attempts, _ := resilience.WithRetry(t.Context(), r, failing(1, errBoom))
			assert.Equal(t, want, attempts)
		})
	}
}

// Progress restarts the timeout, but not the MaxTimeout. A TIMEOUT must not replace the tool's own error.
func TestRetryThatDoesNotFitIsNotMade(t *testing.T) {
	const second = time.Second
	for name, tc := range map[string]struct {
		timeout, max, works time.Duration // the tool works in steps of a second
		attempts            int
	}{
		"it fits into MaxTimeout":   {15 * second, 20 * second, 9 * second, 2},
		"it just doesn't":           {15 * second, 20 * second, 10 * second, 1},
		"it doesn't":                {15 * second, 20 * second, 11 * second, 1},
		"it fits into Timeout":      {10*second + 1, time.Minute, 0, 2},
		"it is as long as the wait": {10 * second, time.Minute, 0, 1},
	} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly, Timeout: tc.timeout, MaxTimeout: tc.max})
			cfg.Retry.Backoff = tenSecondsApart
			r := resilience.Run(t.Context(), newGuard(t, cfg), "x", func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) == 2 {
					return 2, nil
				}
				for range tc.works / second {
					time.Sleep(second)
					resilience.ReportProgress(ctx)
				}
				return 0, errBoom
			})
			assert.Equal(t, tc.attempts, r.Attempts)
			if tc.attempts == 1 {
				assert.ErrorIs(t, r.Err, errBoom)
				assert.Equal(t, tc.works, r.Duration, "it ends at once")
			}
		})
	}
}

// Nobody reports progress during the delay, so it must fit into the Timeout of the call around it.
func TestPromise9DelayThatDoesNotFitIntoTheCallAround(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for timeout, want := range map[time.Duration]int{10*time.Second + 1: 2, 10 * time.Second: 1} {
			x := resilience.Tool{Timeout: timeout, MaxTimeout: time.Minute}
			r, _ := runTool(t, x, func(ctx context.Context) (int, error) {
				retry := resilience.Retry{MaxElapsed: -1, Backoff: tenSecondsApart}
				attempts, _ := resilience.WithRetry(ctx, retry, failing(1, errBoom))
				return attempts, nil
			})
			assert.Equal(t, want, r.Value, timeout)
			assert.Equal(t, time.Duration(want-1)*10*time.Second, r.Duration, timeout)
		}
	})
}

func TestWithRetryEndsIfTheCallerLeavesDuringADelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errGone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(250*time.Millisecond, func() { cancel(errGone) })

		start := time.Now()
		value, err := resilience.WithRetry(ctx, steady, failing(9, errBoom))
		assert.Equal(t, 250*time.Millisecond, time.Since(start))
		assert.Equal(t, 2, value)
		for _, target := range []error{resilience.CodeCanceled, context.Canceled, errGone, errBoom} {
			assert.ErrorIs(t, err, target)
		}
		assert.NotErrorIs(t, err, resilience.CodeTimeout)
	})
}

// The delay and the context may end at the same moment.
func TestWithRetryMakesNoAttemptForACallerThatHasLeft(t *testing.T) {
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		r := resilience.Retry{Backoff: noDelay, OnRetry: func(int, time.Duration, error) { cancel() }}
		value, err := resilience.WithRetry(ctx, r, failing(9, errBoom))

		require.Equal(t, 1, value)
		require.ErrorIs(t, err, resilience.CodeCanceled)
		require.ErrorIs(t, err, errBoom)
	}
}

func TestWithRetryChecksItsArguments(t *testing.T) {
	for want, backoff := range map[string]resilience.Backoff{
		"Base is -1ns: it must not be negative (0 is the default)":    {Base: -1},
		"Max is -1ns: it must not be negative (0 is the default)":     {Max: -1},
		"Max is 1ns: it must not be under Base, 2ns":                  {Base: 2, Max: 1},
		"Jitter is 7: it must be FullJitter, SmallJitter or NoJitter": {Jitter: 7},
	} {
		_, err := resilience.WithRetry(t.Context(), resilience.Retry{Backoff: backoff}, notCalled(t))
		assert.EqualError(t, err, "VALIDATION_ERROR: Retry: Backoff."+want)
	}

	_, err := resilience.WithRetry[int](t.Context(), resilience.Retry{}, nil)
	assert.EqualError(t, err, "TOOL_NOT_FOUND: The tool not found: its function is nil")
	assert.PanicsWithValue(t, "resilience: nil context", func() {
		_, _ = resilience.WithRetry(noContext, steady, notCalled(t))
	})
}

// A job that continues after the call has the call's values, but not its end. It may have one of its own.
func TestADetachedJobIsNotBoundByTheTimeoutOfItsCall(t *testing.T) {
	for name, end := range map[string]caller{"no end": context.WithCancel, "a later end": withTimeout(time.Hour)} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Timeout: 10 * time.Second})
			result := make(chan error, 1)
			_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				background, cancel := end(context.WithoutCancel(ctx))
				go func() {
					defer cancel()
					retry := resilience.Retry{MaxElapsed: -1, Backoff: tenSecondsApart}
					_, err := resilience.WithRetry(background, retry, failing(1, errBoom))
					result <- err
				}()
				time.Sleep(time.Second)
				return 0, nil
			})
			require.NoError(t, err)
			assert.NoError(t, <-result, "a delay of ten seconds fits")
		})
	}
}

func TestAttemptIsThatOfItsContext(t *testing.T) {
	assert.Equal(t, 1, resilience.Attempt(t.Context()), "outside of a call")

	synctest.Test(t, func(t *testing.T) {
		var within []int
		tool := func(ctx context.Context) (int, error) {
			n, err := resilience.WithTimeout(ctx, "y", time.Minute, func(ctx context.Context) (int, error) {
				return resilience.Attempt(ctx), nil
			})
			assert.NoError(t, err)
			within = append(within, n)
			time.AfterFunc(3*time.Second, func() { // during a later attempt
				assert.Equal(t, n, resilience.Attempt(ctx))
			})
			time.Sleep(2 * time.Second)
			return failing(2, errBoom)(ctx)
		}
		_, err := resilience.WithRetry(t.Context(), steady, tool)
		assert.NoError(t, err)
		_, err = resilience.Do(t.Context(), guardWith(t, resilience.Tool{Effect: resilience.ReadOnly}), "x", tool)
		assert.NoError(t, err)
		assert.Equal(t, []int{1, 2, 3, 1, 2, 3}, within)
		time.Sleep(time.Minute)
	})
}

// Promise 8: a refused second attempt doesn't show that the first one had no effect.
func TestWithRetryInsideAToolHidesNoEarlierEffect(t *testing.T) {
	for name, tc := range map[string]struct {
		first error
		calls int
	}{
		"the first had an effect": {first: errBoom, calls: 1},
		"none had an effect":      {first: errDial, calls: 4},
	} {
		runInBubble(t, name, func(t *testing.T) {
			calls := 0
			retry := resilience.Retry{Backoff: resilience.Backoff{
				Base: 100 * time.Millisecond, Max: 100 * time.Millisecond, Jitter: resilience.NoJitter,
			}}
			r := runNonIdempotent(t, func(ctx context.Context) (int, error) {
				calls++
				short, cancel := context.WithTimeout(ctx, 250*time.Millisecond) // enough for two retries
				defer cancel()
				return resilience.WithRetry(short, retry, failingThen(1, tc.first, errDial))
			})
			require.ErrorIs(t, r.Err, syscall.ECONNREFUSED)
			assert.Equal(t, tc.calls, calls)
		})
	}
}

// A mark is certain only if it covers everything that was done.
func TestPromise8MarkOfAPartDoesNotSpeakForWhatWasReported(t *testing.T) {
	noEffect := resilience.MarkNoEffect(errors.New("no effect"))
	for name, fail := range map[string]toolFunc{
		"joined":  failing(9, errors.Join(errBoom, noEffect)),
		"timeout": failing(9, &resilience.Error{Code: resilience.CodeTimeout, Err: noEffect}),
		"retried": func(ctx context.Context) (int, error) {
			last := resilience.MarkNoEffect(waitError{2}) // longer than the maximum
			return resilience.WithRetry(ctx, resilience.Retry{Backoff: noDelay}, failingThen(1, errBoom, last))
		},
	} {
		for _, reports := range []bool{false, true} {
			runInBubble(t, fmt.Sprint(name, " ", reports), func(t *testing.T) {
				r := runNonIdempotent(t, func(ctx context.Context) (int, error) {
					if reports {
						resilience.ReportBackend(ctx, nil)
					}
					return fail(ctx)
				})
				assert.Equal(t, 1, r.Attempts)
			})
		}
	}
}

// The first call of an outage makes all its attempts. Then retries have stopped helping.
func TestRetriesStopWhileCallsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly})
		var attempts []int
		for range 5 {
			attempts = append(attempts, resilience.Run(t.Context(), g, "x", failing(9, errBoom)).Attempts)
		}
		assert.Equal(t, []int{4, 1, 1, 1, 1}, attempts)
		assert.Equal(t, resilience.StateOpen, g.Breaker("x").State())

		g.Breaker("x").Reset()
		mustSucceed(t, g)
		assert.Equal(t, 4, resilience.Run(t.Context(), g, "x", failing(9, errBoom)).Attempts)
	})
}

// The failure that opens the breaker says what the next call would hear.
func TestFailureThatOpensTheBreakerTellsToWait(t *testing.T) {
	const avoid = "Do not call this tool for 30 seconds; use others."
	const both = "Do not repeat this call, and do not call this tool for 30 seconds; use others."
	const check = "It may have taken effect: check that in 30 seconds before you call it again."
	for name, tc := range map[string]struct {
		effect resilience.Effect
		err    error
		want   string
	}{
		"read":      {resilience.ReadOnly, errBoom, avoid},
		"write":     {resilience.NonIdempotent, errBoom, check},
		"permanent": {resilience.ReadOnly, resilience.MarkPermanent(errBoom), both},
		"own words": {resilience.ReadOnly, &resilience.Error{Suggestion: "Ask Ann."}, "Ask Ann."},
	} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := configWith(resilience.Tool{Effect: tc.effect})
			cfg.Breaker.Failures, cfg.Retry.MaxRetries = 1, -1
			g := newGuard(t, cfg)
			for range 2 { // the failure that opens it, and a failed probe
				r := resilience.Run(t.Context(), g, "x", failing(9, tc.err))
				assert.Equal(t, tc.want, r.Err.Suggestion)
				assert.Equal(t, 30*time.Second, r.Err.RetryAfter)
				time.Sleep(30 * time.Second)
			}
		})
	}
}

// A call that has lost its connection late, when there is no time for delays, is made once more.
func TestConnectionThatBreaksLateIsTriedOnceMore(t *testing.T) {
	for name, tc := range map[string]struct {
		effect   resilience.Effect
		err      error
		attempts int
	}{
		"lost":    {resilience.ReadOnly, syscall.ECONNRESET, 2},
		"a write": {resilience.NonIdempotent, syscall.ECONNRESET, 1},
		"trouble": {resilience.ReadOnly, errBoom, 1},
		"timeout": {resilience.ReadOnly, context.DeadlineExceeded, 1},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{Effect: tc.effect})
			r := resilience.Run(t.Context(), g, "x", func(context.Context) (int, error) {
				time.Sleep(20 * time.Second)
				return 0, tc.err
			})
			assert.Equal(t, tc.attempts, r.Attempts)
			assert.Equal(t, time.Duration(tc.attempts)*20*time.Second, r.Duration)
		})
	}
}
