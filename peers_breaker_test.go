package resilience_test

import (
	"context"
	"errors"
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
		cfg := configWith(resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}})
		cfg.Classify = func(error) resilience.Class { panic("classify") }
		g := newGuard(t, cfg)
		makeHalfOpen(t, g.Breaker("x"))
		_, err := resilience.Do(t.Context(), g, "x", failing(9, errBoom))
		require.ErrorIs(t, err, errBoom)
		assert.Equal(t, resilience.StateOpen, g.Breaker("x").State(), "the probe has failed")
		time.Sleep(30 * time.Second)
		mustSucceed(t, g)
		assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
	})
}
