package resilience_test

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests named TestPeers… are scenarios from the test suites of other libraries. docs/peers.md names the
// source of each, and says what the other library does and why ours may differ.

// play makes a call for each letter of calls, one after the other. It requires that f, s and i are admitted and
// that x is rejected. Of the admitted calls, f fails, s succeeds, and i is a mistake of the caller's. At w a cooldown
// passes, and the breaker rejects calls until its end.
func play(t *testing.T, b *resilience.Breaker, calls string) {
	t.Helper()
	outcomes := map[rune]error{'f': errBoom, 's': nil, 'i': resilience.MarkInvalid(errBoom)}
	for n, letter := range calls {
		switch letter {
		case 'w':
			require.Equal(t, 30*time.Second, b.RetryAfter(), "cooldown %d of %s", n, calls)
			time.Sleep(30*time.Second - 1)
			require.False(t, report(b, nil), "just before the end of cooldown %d of %s", n, calls)
			time.Sleep(time.Nanosecond)
		case 'x':
			require.False(t, report(b, nil), "call %d of %s must be rejected", n, calls)
		default:
			require.True(t, report(b, outcomes[letter]), "call %d of %s must be admitted", n, calls)
		}
	}
}

func TestPeersBreaker(t *testing.T) {
	const closed, open, halfOpen = resilience.StateClosed, resilience.StateOpen, resilience.StateHalfOpen
	for name, tc := range map[string]struct {
		failures int // that open the breaker
		calls    string
		want     resilience.State
	}{
		"failures in a row open it":           {4, "ffffxxx", open},
		"a success starts the count again":    {3, "fsfffx", open},
		"every other call fails":              {2, strings.Repeat("sf", 20), closed},
		"three of five calls fail":            {5, "fffss", closed},
		"a success follows three failures":    {4, "fffsfff", closed},
		"three failures follow a success":     {3, "sfffx", open},
		"mistakes of callers":                 {1, strings.Repeat("i", 100), closed},
		"a mistake between failures":          {2, "fifx", open},
		"a probe succeeds":                    {4, "ffffxwsffffx", open},
		"a probe fails":                       {4, "ffffxwfx", open},
		"one success is enough":               {4, "ffffxwssf", closed},
		"probes that are mistakes of callers": {1, "fwiiii", halfOpen},
		"a probe after mistakes of callers":   {1, "fwiiiis", closed},
		"it opens again and again":            {1, strings.Repeat("fw", 10), halfOpen},
	} {
		runInBubble(t, name, func(t *testing.T) {
			b := resilience.NewBreaker("x", resilience.BreakerConfig{Failures: tc.failures})
			play(t, b, tc.calls)
			assert.Equal(t, tc.want, b.State())
		})
	}
}

func TestPeersSlowSuccessesDontOpenTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{Timeout: time.Minute})
		cfg.Breaker.Failures = 1
		g := newGuard(t, cfg)
		for range 10 {
			_, err := resilience.Do(t.Context(), g, "x", hang(time.Minute-1))
			require.NoError(t, err)
		}
		assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
	})
}

func TestPeersLateReportsChangeNothing(t *testing.T) {
	makeProbed := func(b *resilience.Breaker) { b.Trip(time.Second); time.Sleep(time.Second) }
	for name, enter := range map[string]func(*resilience.Breaker){
		"open":      func(b *resilience.Breaker) { b.Trip(time.Hour) },
		"half-open": func(b *resilience.Breaker) { makeProbed(b); _, _ = b.Allow() },
		"isolated":  func(b *resilience.Breaker) { b.Isolate("maintenance") },
		"closed":    func(b *resilience.Breaker) { b.Trip(time.Second); b.Reset() },
	} {
		for outcome, err := range map[string]error{"success": nil, "failure": errBoom, "neutral": context.Canceled} {
			for call, begin := range map[string]func(*resilience.Breaker){
				"call": func(*resilience.Breaker) {}, "probe": makeProbed,
			} {
				runInBubble(t, name+" "+outcome+" "+call, func(t *testing.T) {
					b := resilience.NewBreaker("x", resilience.BreakerConfig{Failures: 1})
					begin(b)
					late := admit(t, b)
					enter(b)
					state, left, failures := b.State(), b.RetryAfter(), b.Failures()

					late(err)
					assert.Equal(t, state, b.State())
					assert.Equal(t, left, b.RetryAfter())
					assert.Equal(t, failures, b.Failures())
					assert.Equal(t, state == resilience.StateClosed, report(b, nil))
				})
			}
		}
	}
}

func TestPeersRejectionDoesNotTellTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{})
		cfg.Breaker.Failures = 1
		g := newGuard(t, cfg)
		require.ErrorIs(t, resilience.Run(t.Context(), g, "x", failing(9, errBoom)).Err, errBoom)

		rejected := resilience.Run(t.Context(), g, "x", notCalled(t)).Err
		assert.Equal(t, resilience.CodeCircuitOpen, rejected.Code)
		assert.NotErrorIs(t, rejected, errBoom)
		assert.ErrorIs(t, g.Health()[0].LastError, errBoom, "for the operator")
	})
}

func TestPeersOneChangeIsReportedForManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []resilience.State
		b := resilience.NewBreaker("x", resilience.BreakerConfig{
			OnChange: func(_ string, _, to resilience.State) { changes = append(changes, to) },
		})
		for _, change := range []func(){b.Reset, func() { b.Trip(0) }, b.Reset, func() { b.Isolate("r") }, b.Reset} {
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(change)
			}
			wg.Wait()
		}

		synctest.Wait()
		assert.Equal(t, []resilience.State{
			resilience.StateOpen, resilience.StateClosed, resilience.StateIsolated, resilience.StateClosed,
		}, changes)
	})
}

func TestPeersChangesArriveInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last := resilience.StateClosed
		changes := 0
		b := resilience.NewBreaker("x", resilience.BreakerConfig{
			Failures: 1, Cooldown: time.Nanosecond,
			OnChange: func(_ string, from, to resilience.State) {
				assert.Equal(t, last, from)
				assert.NotEqual(t, from, to)
				last = to
				changes++
			},
		})
		var wg sync.WaitGroup
		for caller := range 8 {
			wg.Go(func() {
				for n := range 200 {
					report(b, []error{errBoom, nil}[(caller+n)%2])
					time.Sleep(time.Nanosecond)
				}
			})
		}
		wg.Wait()
		b.Reset()

		synctest.Wait()
		assert.Equal(t, resilience.StateClosed, last)
		assert.Greater(t, changes, 1)
	})
}

func TestPeersBreakerWithoutCallsIsHalfOpenUnnoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []resilience.State
		b := resilience.NewBreaker("x", resilience.BreakerConfig{
			OnChange: func(_ string, _, to resilience.State) { changes = append(changes, to) },
		})
		before := goroutines(modulePath)
		trip(t, b)
		time.Sleep(time.Hour)
		assert.Equal(t, resilience.StateHalfOpen, b.State())
		synctest.Wait()
		assert.Equal(t, []resilience.State{resilience.StateOpen}, changes)
		assert.LessOrEqual(t, goroutines(modulePath), before, "no goroutine waits for the end of a cooldown")

		play(t, b, "s")
		synctest.Wait()
		assert.Equal(t, []resilience.State{
			resilience.StateOpen, resilience.StateHalfOpen, resilience.StateClosed,
		}, changes)
	})
}

func TestPeersOpenBreakerComesBeforeTheLimitOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{MaxInFlight: 1})
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = resilience.Do(t.Context(), g, "x", hang(time.Second))
		}()
		synctest.Wait()
		require.ErrorIs(t, resilience.Run(t.Context(), g, "x", notCalled(t)).Err, resilience.CodeOverloaded)
		g.Breaker("x").Trip(0)
		assert.ErrorIs(t, resilience.Run(t.Context(), g, "x", notCalled(t)).Err, resilience.CodeCircuitOpen)
		<-done
	})
}

func TestPeersClassifySaysThatTimeoutsDontCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{Timeout: time.Second})
		cfg.Breaker.Failures = 1
		cfg.Classify = func(err error) resilience.Class {
			if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, resilience.CodeTimeout) {
				return resilience.ClassInvalid
			}
			return resilience.Classify(err)
		}
		g := newGuard(t, cfg)
		for range 3 {
			_, err := resilience.Do(t.Context(), g, "x", untilDone)
			require.Error(t, err)
			require.NotErrorIs(t, err, resilience.CodeCircuitOpen)
		}
	})
}

func TestPeersProbeIsNotLostIfClassifyPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, classifying(once, func(error) resilience.Class { panic("classify") }))
		makeHalfOpen(t, g.Breaker("x"))
		_, err := resilience.Do(t.Context(), g, "x", failing(9, errBoom))
		require.ErrorIs(t, err, errBoom)
		assert.Equal(t, resilience.StateOpen, g.Breaker("x").State(), "the probe has failed")
		time.Sleep(30 * time.Second)
		mustSucceed(t, g)
		assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
	})
}

// noDelay retries at once.
var noDelay = resilience.Backoff{Base: 1, Max: 1, Jitter: resilience.NoJitter}

func TestPeersRetry(t *testing.T) {
	permanent, errLast := resilience.MarkPermanent(errBoom), errors.New("last")
	for name, tc := range map[string]struct {
		max       int // retries
		fn        toolFunc
		attempts  int
		err       error
		exhausted bool // otherwise the error is unchanged
	}{
		"the first attempt is no retry": {5, failing(99, errBoom), 6, errBoom, true},
		"-1 is no retry":                {-1, failing(99, errBoom), 1, errBoom, false},
		"any number":                    {math.MaxInt, failing(50, errBoom), 51, nil, false},
		"the last retry succeeds":       {0, failing(3, errBoom), 4, nil, false},
		"one more would succeed":        {0, failing(4, errBoom), 4, errBoom, true},
		"a permanent failure then":      {0, failingThen(2, errBoom, permanent), 3, permanent, false},
		"a permanent failure at last":   {0, failingThen(3, errBoom, permanent), 4, permanent, false},
		"a permanent failure too late":  {0, failingThen(4, errBoom, permanent), 4, errBoom, true},
		"the last failure is the cause": {0, failingThen(2, errBoom, errLast), 4, errLast, true},
		"a value like -1":               {0, func(context.Context) (int, error) { return -1, nil }, 1, nil, false},
	} {
		runInBubble(t, name, func(t *testing.T) {
			attempts := 0
			r := resilience.Retry{MaxRetries: tc.max, Backoff: noDelay}
			_, err := resilience.WithRetry(t.Context(), r, func(ctx context.Context) (int, error) {
				attempts++
				return tc.fn(ctx)
			})

			assert.Equal(t, tc.attempts, attempts)
			assert.ErrorIs(t, err, tc.err)
			assert.Equal(t, tc.exhausted, errors.Is(err, resilience.CodeRetryExhausted))
			if !tc.exhausted {
				assert.Equal(t, tc.err, err)
			}
		})
	}
}

func TestPeersDelaysDoubleUpToTheirMaximum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		var delays []time.Duration
		r := resilience.Retry{
			MaxRetries: 6,
			Backoff:    resilience.Backoff{Base: ms, Max: 10 * ms, Jitter: resilience.NoJitter},
			OnRetry: func(attempt int, delay time.Duration, err error) {
				assert.Equal(t, errBoom, err)
				delays = append(delays, delay)
				assert.Len(t, delays, attempt, "counted from 1")
			},
		}
		start := time.Now()
		_, err := resilience.WithRetry(t.Context(), r, failing(99, errBoom))
		assert.ErrorIs(t, err, resilience.CodeRetryExhausted)
		assert.Equal(t, []time.Duration{ms, 2 * ms, 4 * ms, 8 * ms, 10 * ms, 10 * ms}, delays)
		assert.Equal(t, 35*ms, time.Since(start))
	})
}

func TestPeersCallerThatHasLeftIsNotRetried(t *testing.T) {
	for leaveIn, tc := range map[int]struct { // the attempt in which the caller leaves, 0 before the first
		attempts int
		want     error
	}{
		0: {0, resilience.CodeCanceled},
		1: {1, errBoom},
		4: {4, errBoom}, // the last attempt
	} {
		runInBubble(t, strconv.Itoa(leaveIn), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if leaveIn == 0 {
				cancel()
			}

			attempts := 0
			_, err := resilience.WithRetry(ctx, steady, func(ctx context.Context) (int, error) {
				if attempts++; attempts == leaveIn {
					cancel()
				}
				return 0, errBoom
			})
			assert.Equal(t, tc.attempts, attempts)
			assert.ErrorIs(t, err, tc.want)
			assert.Equal(t, tc.want == resilience.CodeCanceled, errors.Is(err, resilience.CodeCanceled))
			assert.NotErrorIs(t, err, resilience.CodeRetryExhausted)
		})
	}
}

func TestPeersNestedRetriesDoNotMultiply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		_, err := resilience.WithRetry(t.Context(), resilience.Retry{MaxRetries: 10, Backoff: noDelay},
			func(ctx context.Context) (int, error) {
				return resilience.WithRetry(ctx, resilience.Retry{MaxRetries: 1, Backoff: noDelay},
					func(context.Context) (int, error) { calls++; return 0, errBoom })
			})
		assert.Equal(t, 2, calls, "what was retried in vain isn't retried again")
		assert.ErrorIs(t, err, resilience.CodeRetryExhausted)
		assert.ErrorIs(t, err, errBoom)
	})
}

func TestPeersRetriesAroundABreaker(t *testing.T) {
	cooldown := time.Second
	for name, tc := range map[string]struct {
		retry    resilience.Retry
		failures int // of the function
		opened   bool
		calls    int // of the function
		took     time.Duration
		want     error
	}{
		"each attempt counts": {
			resilience.Retry{MaxRetries: 9, Backoff: noDelay}, 99, false, 4, 4, resilience.CodeCircuitOpen,
		},
		"too few attempts to open it": {
			resilience.Retry{MaxRetries: 2, Backoff: noDelay}, 99, false, 3, 2, resilience.CodeRetryExhausted,
		},
		"one retry once it is half-open": {resilience.Retry{MaxRetries: 1}, 0, true, 1, cooldown, nil},
		"a cooldown that is longer than Max": {
			resilience.Retry{Backoff: resilience.Backoff{Max: cooldown - 1}}, 0, true, 0, 0, resilience.CodeCircuitOpen,
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			b := resilience.NewBreaker("x", resilience.BreakerConfig{Failures: 4, Cooldown: cooldown})
			if tc.opened {
				b.Trip(0)
			}
			start, calls := time.Now(), 0
			_, err := resilience.WithRetry(t.Context(), tc.retry, func(ctx context.Context) (int, error) {
				return resilience.WithBreaker(ctx, b, func(ctx context.Context) (int, error) {
					calls++
					return failing(tc.failures, errBoom)(ctx)
				})
			})
			assert.Equal(t, tc.calls, calls)
			assert.Equal(t, tc.took, time.Since(start))
			assert.ErrorIs(t, err, tc.want)
		})
	}
}

// failingAfter ignores its context for d, and then fails with err.
func failingAfter(d time.Duration, err error) toolFunc {
	return func(context.Context) (int, error) { time.Sleep(d); return 0, err }
}

func TestPeersShorterOfNestedTimeoutsEndsTheCall(t *testing.T) {
	for name, tc := range map[string]struct {
		outer, inner time.Duration
		want         string
	}{
		"the inner one": {2 * time.Second, time.Second, "TIMEOUT: Tool 'inner' exceeded timeout of 1s"},
		"the outer one": {time.Second, 2 * time.Second, "TIMEOUT: Tool 'outer' exceeded timeout of 1s"},
	} {
		runInBubble(t, name, func(t *testing.T) {
			start := time.Now()
			_, err := resilience.WithTimeout(t.Context(), "outer", tc.outer, func(ctx context.Context) (int, error) {
				return resilience.WithTimeout(ctx, "inner", tc.inner, untilDone)
			})
			assert.EqualError(t, err, tc.want)
			assert.Equal(t, min(tc.outer, tc.inner), time.Since(start))
		})
	}
}

func TestPeersTimeoutWithinRetries(t *testing.T) {
	const ms = time.Millisecond
	retry := resilience.Retry{MaxRetries: 2, Backoff: steady.Backoff} // 100ms and 200ms apart
	hangsTwice := func(ctx context.Context) (int, error) {
		if resilience.Attempt(ctx) <= 2 {
			time.Sleep(time.Hour)
		}
		return 1, nil
	}
	for name, tc := range map[string]struct {
		fn   toolFunc
		took time.Duration
		is   []error
		not  error
	}{
		"attempts that hang":  {hangsTwice, (2*50 + 300) * ms, nil, timedOut},
		"every attempt hangs": {hang(time.Hour), (3*50 + 300) * ms, errs(exhausted, timedOut), errBoom},
		"delays that are longer than the timeout": {
			failing(99, errBoom), 300 * ms, errs(exhausted, errBoom), timedOut,
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			start := time.Now()
			_, err := resilience.WithRetry(t.Context(), retry, func(ctx context.Context) (int, error) {
				return resilience.WithTimeout(ctx, "x", 50*time.Millisecond, tc.fn)
			})
			assert.Equal(t, tc.took, time.Since(start))
			for _, target := range tc.is {
				assert.ErrorIs(t, err, target)
			}
			assert.Equal(t, tc.is == nil, err == nil)
			assert.NotErrorIs(t, err, tc.not)
			time.Sleep(2 * time.Hour)
		})
	}
}

func TestPeersTimeoutAroundRetries(t *testing.T) {
	allTheTime := resilience.Backoff{Base: 150 * time.Millisecond, Jitter: resilience.NoJitter}
	for name, tc := range map[string]struct {
		backoff  resilience.Backoff
		fn       toolFunc
		attempts int
		took     time.Duration
		want     error
		not      error
	}{
		"during an attempt": {
			noDelay, failingAfter(60*time.Millisecond, errBoom),
			3, 150 * time.Millisecond, resilience.CodeTimeout, context.Canceled,
		},
		"a delay is exactly the rest": {allTheTime, failing(99, errBoom), 1, 0, errBoom, timedOut},
		"a delay doesn't fit":         {tenSecondsApart, failing(99, errBoom), 1, 0, errBoom, resilience.CodeTimeout},
	} {
		runInBubble(t, name, func(t *testing.T) {
			const timeout = 150 * time.Millisecond
			start, attempts := time.Now(), make(chan int, 9)
			retry := resilience.Retry{Backoff: tc.backoff, MaxElapsed: -1}
			_, err := resilience.WithTimeout(t.Context(), "x", timeout, func(ctx context.Context) (int, error) {
				return resilience.WithRetry(ctx, retry, func(ctx context.Context) (int, error) {
					attempts <- resilience.Attempt(ctx)
					return tc.fn(ctx)
				})
			})
			assert.Equal(t, tc.took, time.Since(start))
			assert.ErrorIs(t, err, tc.want)
			assert.NotErrorIs(t, err, tc.not)
			time.Sleep(time.Hour)
			assert.Len(t, attempts, tc.attempts, "and none after the timeout")
		})
	}
}

func TestPeersAbandonedCallIsNoCallInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{MaxInFlight: 1})
		ctx, cancel := leavingAfter(time.Second)(t.Context())
		defer cancel()
		require.ErrorIs(t, resilience.Run(ctx, g, "x", hang(time.Hour)).Err, resilience.CodeCanceled)

		assert.Nil(t, resilience.Run(t.Context(), g, "x", succeed).Err)
		assert.Equal(t, 1, g.Health()[0].Abandoned, "which has a limit of its own")
		time.Sleep(time.Hour)
		assert.Zero(t, g.Health()[0].Abandoned)
	})
}
