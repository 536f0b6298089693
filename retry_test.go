package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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
	none := resilience.Retry{MaxRetries: -1}
	permanent := resilience.Retry{Classify: func(error) resilience.Class { return resilience.ClassPermanent }}
	short := resilience.Backoff{Jitter: resilience.NoJitter} // up to a second
	exhausted := []error{resilience.CodeRetryExhausted, errBoom}
	for name, tc := range map[string]struct {
		retry    resilience.Retry // with what else is zero as in steady
		fn       toolFunc
		attempts int
		is       []error
		err      error // exactly, if is has none
		took     time.Duration
	}{
		"success at once": {fn: succeed, attempts: 1},
		"success at last": {fn: failing(3, errBoom), attempts: 4, took: 700 * time.Millisecond},
		"no success":      {fn: failing(9, errBoom), attempts: 4, is: exhausted, took: 700 * time.Millisecond},
		"no retries":      {retry: none, fn: failing(9, errBoom), attempts: 1, err: errBoom},
		"one retry": {
			retry: resilience.Retry{MaxRetries: 1}, fn: failing(9, errBoom),
			attempts: 2, is: exhausted, took: 100 * time.Millisecond,
		},
		"many retries": { // whose delay is capped
			retry: resilience.Retry{MaxRetries: 6, Backoff: short}, fn: failing(9, errBoom),
			attempts: 7, is: exhausted, took: 3500 * time.Millisecond,
		},
		"the last one begins in time": {
			retry: resilience.Retry{MaxElapsed: 700 * time.Millisecond}, fn: failing(3, errBoom),
			attempts: 4, took: 700 * time.Millisecond,
		},
		"the last one would begin too late": {
			retry: resilience.Retry{MaxElapsed: 699 * time.Millisecond}, fn: failing(3, errBoom),
			attempts: 3, err: errBoom, took: 300 * time.Millisecond,
		},
		"a delay that is longer than any": {
			retry: resilience.Retry{Backoff: short}, fn: failing(1, waitError{1001 * time.Millisecond}),
			attempts: 1, err: waitError{1001 * time.Millisecond},
		},
		"the longest delay": {
			retry: resilience.Retry{Backoff: short}, fn: failing(1, waitError{time.Second}),
			attempts: 2, took: time.Second,
		},
		"permanent failure": {
			fn: failing(9, resilience.MarkPermanent(errBoom)), attempts: 1, err: resilience.MarkPermanent(errBoom),
		},
		"invalid arguments": {
			fn: failing(9, resilience.MarkInvalid(errBoom)), attempts: 1, err: resilience.MarkInvalid(errBoom),
		},
		"canceled": {fn: failing(9, context.Canceled), attempts: 1, err: context.Canceled},
		"panic":    {fn: panicking(io.EOF), is: []error{resilience.CodeToolFailed, io.EOF}},
		"panic, after an error": {
			fn: func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) == 1 {
					return 0, errBoom
				}
				panic(io.EOF)
			},
			took: 100 * time.Millisecond, is: []error{resilience.CodeToolFailed, io.EOF, errBoom},
		},
		"a longer delay":  {fn: failing(1, waitError{time.Minute}), attempts: 2, took: time.Minute},
		"a shorter delay": {fn: failing(1, waitError{time.Millisecond}), attempts: 2, took: 100 * time.Millisecond},
		"delay of an Error": {
			fn: failing(1, resilience.CircuitOpenError("db", time.Minute)), attempts: 2, took: time.Minute,
		},
		"its own Classify": {retry: permanent, fn: failing(9, errBoom), attempts: 1, err: errBoom},
		"Classify panics": {
			retry: resilience.Retry{Classify: func(error) resilience.Class { panic("c") }},
			fn:    failing(3, errBoom), attempts: 4, took: 700 * time.Millisecond,
		},
		"OnRetry panics": {
			retry: resilience.Retry{OnRetry: func(int, time.Duration, error) { panic("c") }},
			fn:    failing(3, errBoom), attempts: 4, took: 700 * time.Millisecond,
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

func TestWithRetryNeedNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := resilience.Retry{Backoff: resilience.Backoff{Base: 1, Max: 1}}

		start := time.Now()
		value, err := resilience.WithRetry(t.Context(), r, failing(2, errBoom))

		assert.Less(t, time.Since(start), time.Microsecond)
		assert.Equal(t, 3, value)
		assert.NoError(t, err)
	})
}

func TestWithRetryWaitsWithJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var delays []time.Duration
		r := resilience.Retry{MaxRetries: 200, MaxElapsed: -1}
		r.OnRetry = func(attempt int, delay time.Duration, err error) {
			assert.Equal(t, len(delays)+1, attempt)
			assert.Equal(t, errBoom, err)
			delays = append(delays, delay)
		}

		_, err := resilience.WithRetry(t.Context(), r, failing(999, errBoom))

		assert.EqualError(t, err, "RETRY_EXHAUSTED: The tool failed after 201 attempts")
		require.Len(t, delays, 200)
		assert.LessOrEqual(t, delays[0], 100*time.Millisecond)
		longest := slices.Max(delays)
		assert.LessOrEqual(t, longest, time.Second)
		assert.Greater(t, longest, 900*time.Millisecond)
	})
}

func TestWithRetryNeverSleepsIntoADeadline(t *testing.T) {
	for name, tc := range map[string]struct {
		timeout  time.Duration
		err      error
		attempts int
		took     time.Duration
	}{
		"no room for a retry":     {100 * time.Millisecond, errBoom, 1, 0},
		"room for one retry":      {101 * time.Millisecond, errBoom, 2, 100 * time.Millisecond},
		"no room for the third":   {700 * time.Millisecond, errBoom, 3, 300 * time.Millisecond},
		"the error asks for more": {30 * time.Second, waitError{time.Minute}, 1, 0},
	} {
		runInBubble(t, name, func(t *testing.T) {
			start := time.Now()
			value, err := resilience.WithRetry(contextWithin(t, tc.timeout), steady, failing(9, tc.err))

			assert.Equal(t, tc.took, time.Since(start))
			assert.Equal(t, tc.attempts, value)
			assert.Equal(t, tc.err, err, "the last cause, unchanged")
		})
	}
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

		called := false
		_, err = resilience.WithRetry(ctx, steady, func(context.Context) (int, error) {
			called = true
			return 0, nil
		})
		assert.ErrorIs(t, err, resilience.CodeCanceled)
		assert.False(t, called, "never on a context that has ended")
	})
}

func TestWithRetryReturnsTheErrorOfTheAttemptDuringWhichTheCallerLeaves(t *testing.T) {
	for name, last := range map[string]int{"the first attempt": 1, "the last attempt": 4} {
		runInBubble(t, name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()

			_, err := resilience.WithRetry(ctx, steady, func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) == last {
					cancel()
				}
				return 0, errBoom
			})

			assert.Equal(t, errBoom, err)
		})
	}
}

func TestWithRetryMakesNoAttemptOnceBothTheDelayAndTheContextHaveEnded(t *testing.T) {
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		r := resilience.Retry{
			Backoff: resilience.Backoff{Base: 1, Max: 1},
			OnRetry: func(int, time.Duration, error) { cancel() },
		}

		value, err := resilience.WithRetry(ctx, r, failing(9, errBoom))

		require.Equal(t, 1, value, "not called again for a caller that has left")
		require.ErrorIs(t, err, resilience.CodeCanceled)
		require.ErrorIs(t, err, errBoom)
	}
}

func TestWithRetryFailsIfItsBackoffIsInvalid(t *testing.T) {
	for name, tc := range map[string]struct {
		backoff resilience.Backoff
		want    string
	}{
		"negative base": {
			backoff: resilience.Backoff{Base: -1},
			want:    "Base is -1ns: it must not be negative (0 is the default)",
		},
		"negative maximum": {
			backoff: resilience.Backoff{Max: -1},
			want:    "Max is -1ns: it must not be negative (0 is the default)",
		},
		"maximum under base": {
			backoff: resilience.Backoff{Base: 2, Max: 1},
			want:    "Max is 1ns: it must not be under Base, 2ns",
		},
		"unknown jitter": {
			backoff: resilience.Backoff{Jitter: 7},
			want:    "Jitter is 7: it must be FullJitter, SmallJitter or NoJitter",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := resilience.WithRetry(t.Context(), resilience.Retry{Backoff: tc.backoff}, notCalled(t))

			assert.EqualError(t, err, "VALIDATION_ERROR: Retry: Backoff."+tc.want)
		})
	}
}

func TestWithRetryNeedsAFunctionAndAContext(t *testing.T) {
	_, err := resilience.WithRetry[int](t.Context(), resilience.Retry{}, nil)
	assert.EqualError(t, err, "TOOL_NOT_FOUND: The tool not found: its function is nil")
	assert.PanicsWithValue(t, "resilience: nil context", func() {
		_, _ = resilience.WithRetry(noContext, steady, notCalled(t))
	})
}

func TestAttemptIsTheFirstOutsideOfACall(t *testing.T) {
	assert.Equal(t, 1, resilience.Attempt(t.Context()))
}

func TestPrimitivesNestInAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{})

		_, err := resilience.WithRetry(t.Context(), steady, func(ctx context.Context) (int, error) {
			return resilience.WithBreaker(ctx, b, func(ctx context.Context) (int, error) {
				return resilience.WithTimeout(ctx, "x", time.Second, hang(time.Hour))
			})
		})
		assert.ErrorIs(t, err, resilience.CodeRetryExhausted)
		assert.ErrorIs(t, err, resilience.CodeTimeout)

		start := time.Now()
		const timeout = 1500 * time.Millisecond
		_, err = resilience.WithTimeout(t.Context(), "x", timeout, func(ctx context.Context) (int, error) {
			return resilience.WithRetry(ctx, steady, func(ctx context.Context) (int, error) {
				return resilience.WithBreaker(ctx, b, untilDone)
			})
		})
		assert.ErrorIs(t, err, resilience.CodeTimeout)
		assert.Equal(t, timeout, time.Since(start))

		synctest.Wait()
		assert.Equal(t, resilience.StateOpen, b.State(), "its fifth failure")
		time.Sleep(time.Hour)
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

// A job that continues after the call has the call's values, but not its end. It may have one of its own.
func TestADetachedJobIsNotBoundByTheTimeoutOfItsCall(t *testing.T) {
	for name, end := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"no end": context.WithCancel,
		"a later end": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Hour)
		},
	} {
		runInBubble(t, name, func(t *testing.T) { testDetachedJob(t, end) })
	}
}

func testDetachedJob(t *testing.T, end func(context.Context) (context.Context, context.CancelFunc)) {
	g := guardWith(t, resilience.Tool{Timeout: 10 * time.Second})
	result := make(chan error, 1)
	_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
		background, cancel := end(context.WithoutCancel(ctx))
		go func() {
			defer cancel()
			retry := resilience.Retry{MaxElapsed: -1, Backoff: resilience.Backoff{
				Base: time.Minute, Max: time.Minute, Jitter: resilience.NoJitter,
			}}
			_, err := resilience.WithRetry(background, retry, failing(1, errBoom))
			result <- err
		}()
		time.Sleep(time.Second)
		return 0, nil
	})
	require.NoError(t, err)
	assert.NoError(t, <-result, "a delay of a minute fits")
}

// Once a call has ended, it limits no job that goes on, also if its tool might have gone on for longer.
func TestADetachedJobIsNotBoundByACallThatHasEnded(t *testing.T) {
	slow := resilience.Backoff{Base: 20 * time.Second, Max: 20 * time.Second, Jitter: resilience.NoJitter}
	for name, tool := range map[string]resilience.Tool{
		"a tool":                  {Timeout: 10 * time.Second, MaxTimeout: time.Hour},
		"with a timeout for each": {Timeout: 10 * time.Second, MaxTimeout: time.Hour, AttemptTimeout: 9 * time.Second},
	} {
		for end, took := range map[string]time.Duration{"returned": time.Second, "timed out": time.Hour} {
			runInBubble(t, name+", "+end, func(t *testing.T) {
				g := guardWith(t, tool)
				dials := 0
				c := resilience.NewConnector(func(context.Context) (int, error) {
					if dials++; dials == 1 {
						return 0, errBoom
					}
					return 0, nil
				}, resilience.ConnectorConfig[int]{Backoff: slow})
				defer c.Close()
				jobs := make(chan error, 2)
				_, _ = resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					background, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute)
					t.Cleanup(cancel)
					time.AfterFunc(15*time.Second, func() {
						_, err := c.Wait(background)
						jobs <- err
						retry := resilience.Retry{MaxElapsed: -1, Backoff: slow}
						_, err = resilience.WithRetry(background, retry, failing(1, errBoom))
						jobs <- err
					})
					return hang(took)(ctx)
				})
				assert.NoError(t, <-jobs, "Wait")
				assert.NoError(t, <-jobs, "WithRetry")
				time.Sleep(took)
			})
		}
	}
}

// Promise 8: a refused second attempt says nothing about the first.
func TestWithRetryInsideAToolHidesNoEarlierEffect(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for name, tc := range map[string]struct {
		first error
		calls int
	}{
		"the first had an effect": {first: errBoom, calls: 1},
		"none had an effect":      {first: refused, calls: 4},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent, Timeout: time.Minute})
			calls := 0
			_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				calls++
				short, cancel := context.WithTimeout(ctx, 250*time.Millisecond) // enough for two retries
				defer cancel()
				retry := resilience.Retry{Backoff: resilience.Backoff{
					Base: 100 * time.Millisecond, Max: 100 * time.Millisecond, Jitter: resilience.NoJitter,
				}}
				return resilience.WithRetry(short, retry, func(ctx context.Context) (int, error) {
					if resilience.Attempt(ctx) == 1 {
						return 0, tc.first
					}
					return 0, refused
				})
			})
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
			assert.Equal(t, tc.calls, calls)
		})
	}
}

// What the tool itself has said is certain only if it speaks for all that was done.
func TestPromise8MarkOfAPartDoesNotSpeakForWhatWasReported(t *testing.T) {
	noEffect := resilience.MarkTransient(errors.New("no effect"))
	for name, fail := range map[string]toolFunc{
		"joined": func(context.Context) (int, error) { return 0, errors.Join(errBoom, noEffect) },
		"timeout": func(context.Context) (int, error) {
			return 0, &resilience.Error{Code: resilience.CodeTimeout, Err: noEffect}
		},
		"retried": func(ctx context.Context) (int, error) {
			return resilience.WithRetry(ctx, resilience.Retry{Backoff: resilience.Backoff{Base: 1, Max: 1}},
				func(ctx context.Context) (int, error) {
					if resilience.Attempt(ctx) == 1 {
						return 0, errBoom
					}
					return 0, resilience.MarkTransient(waitError{2}) // longer than Max
				})
		},
	} {
		for _, reports := range []bool{false, true} {
			runInBubble(t, fmt.Sprint(name, " ", reports), func(t *testing.T) {
				r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent}), "x",
					func(ctx context.Context) (int, error) {
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

// Without an AttemptTimeout the attempts share their context, but not their number.
func TestAttemptIsThatOfItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		later := make(chan int, 1)
		_, err := resilience.Do(t.Context(), guardWith(t, resilience.Tool{Effect: resilience.ReadOnly}), "x",
			func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) == 1 {
					go func() { time.Sleep(time.Second); later <- resilience.Attempt(ctx) }()
					return 0, errBoom
				}
				child, cancel := context.WithCancel(ctx) // without a goroutine
				defer cancel()
				assert.Zero(t, goroutines("context"))
				time.Sleep(2 * time.Second)
				return resilience.Attempt(child), nil
			})
		require.NoError(t, err)
		assert.Equal(t, 1, <-later)
	})
}

func TestRetryThatDoesNotFitIntoMaxTimeoutIsNotMade(t *testing.T) {
	for name, tc := range map[string]struct {
		works    time.Duration // and reports progress each second
		attempts int
	}{
		"it fits":         {works: 9 * time.Second, attempts: 2},
		"it doesn't":      {works: 11 * time.Second, attempts: 1},
		"it just doesn't": {works: 10 * time.Second, attempts: 1},
	} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := configWith(resilience.Tool{
				Effect: resilience.ReadOnly, Timeout: 15 * time.Second, MaxTimeout: 20 * time.Second,
			})
			cfg.Retry.Backoff = tenSecondsApart
			r := resilience.Run(t.Context(), newGuard(t, cfg), "x", func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) == 2 {
					return 2, nil
				}
				for range tc.works / time.Second {
					time.Sleep(time.Second)
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

func TestAttemptWithinWithTimeoutIsThatOfTheCallAroundIt(t *testing.T) {
	attemptWithin := func(ctx context.Context) int {
		n, err := resilience.WithTimeout(ctx, "y", time.Minute, func(ctx context.Context) (int, error) {
			return resilience.Attempt(ctx), nil
		})
		assert.NoError(t, err)
		return n
	}
	assert.Equal(t, 1, attemptWithin(t.Context()), "without a call around it")

	var within []int
	retry := resilience.Retry{Backoff: resilience.Backoff{Base: 1, Max: 1}}
	_, err := resilience.WithRetry(t.Context(), retry, func(ctx context.Context) (int, error) {
		within = append(within, attemptWithin(ctx))
		return failing(2, errBoom)(ctx)
	})
	assert.NoError(t, err)
	assert.Equal(t, []int{1, 2, 3}, within)

	within = nil
	cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly, Retry: &retry})
	_, err = resilience.Do(t.Context(), newGuard(t, cfg), "x", func(ctx context.Context) (int, error) {
		within = append(within, attemptWithin(ctx))
		return failing(2, errBoom)(ctx)
	})
	assert.NoError(t, err)
	assert.Equal(t, []int{1, 2, 3}, within)
}

// A retry that could only begin as the timeout ends would replace the tool's error by a TIMEOUT.
func TestNoRetryWaitsForTheEndOfATimeoutThatProgressCouldRestart(t *testing.T) {
	for name, tc := range map[string]struct {
		timeout  time.Duration
		attempts int
	}{
		"just as long as the wait": {time.Second, 1},
		"longer than one wait":     {time.Second + 1, 2},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := newGuard(t, configWith(resilience.Tool{
				Effect: resilience.ReadOnly, Timeout: tc.timeout, MaxTimeout: time.Minute,
			}))
			busy := &resilience.Error{Code: "BUSY", Retryable: true, RetryAfter: time.Second}
			r := resilience.Run(t.Context(), g, "x", failing(9, busy))
			assert.Equal(t, tc.attempts, r.Attempts)
			assert.Equal(t, resilience.Code("BUSY"), r.Err.Code, "rather than TIMEOUT")
			assert.Equal(t, time.Duration(tc.attempts-1)*time.Second, r.Duration)
		})
	}
}
