package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBreakerOpensProbesAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []string
		var b *resilience.Breaker
		b = resilience.NewBreaker("db", resilience.BreakerConfig{
			OnChange: func(name string, from, to resilience.State) {
				changes = append(changes, fmt.Sprintf("%s: %v to %v", name, from, to))
				b.State() // must not deadlock
				b.RetryAfter()
			},
		})
		assert.Equal(t, "db", b.Name())
		assert.Equal(t, resilience.StateClosed, b.State())
		assert.Zero(t, b.RetryAfter())

		for range 4 {
			report(b, errBoom)
		}
		report(b, nil) // a success restarts the count
		for range 4 {
			report(b, errBoom)
		}
		assert.Equal(t, resilience.StateClosed, b.State())
		report(b, errBoom)
		assert.Equal(t, resilience.StateOpen, b.State())
		assert.Equal(t, 30*time.Second, b.RetryAfter())

		time.Sleep(10 * time.Second)
		_, err := b.Allow()
		assert.EqualError(t, err,
			"CIRCUIT_OPEN: Circuit breaker open due to repeated failures. Calls are rejected for 20 more seconds.")
		var e *resilience.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, 20*time.Second, e.RetryAfter)
		assert.Equal(t, "db", e.Tool)

		time.Sleep(20*time.Second - 1)
		assert.Equal(t, resilience.StateOpen, b.State())
		assert.Equal(t, time.Duration(1), b.RetryAfter())
		time.Sleep(b.RetryAfter())
		assert.Equal(t, resilience.StateHalfOpen, b.State())
		assert.Zero(t, b.RetryAfter())

		probe, err := b.Allow()
		require.NoError(t, err)
		_, err = b.Allow()
		require.ErrorAs(t, err, &e)
		assert.Equal(t, resilience.CodeCircuitOpen, e.Code)
		assert.Equal(t, time.Second, e.RetryAfter, "while a probe runs")
		probe(errBoom)
		assert.Equal(t, 30*time.Second, b.RetryAfter())

		time.Sleep(30*time.Second + 1)
		require.True(t, report(b, nil))
		assert.Equal(t, resilience.StateClosed, b.State(), "one success closes it")
		synctest.Wait()
		assert.Equal(t, []string{
			"db: closed to open", "db: open to half-open", "db: half-open to open",
			"db: open to half-open", "db: half-open to closed",
		}, changes)
	})
}

func TestBreakerCountsByItsOwnClassify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("", resilience.BreakerConfig{
			Failures: 2, Cooldown: time.Second,
			Classify: func(err error) resilience.Class {
				if errors.Is(err, io.EOF) {
					return resilience.ClassInvalid
				}
				panic("no idea") // counts
			},
		})

		for range 10 {
			report(b, io.EOF)
		}
		report(b, errBoom)
		assert.Equal(t, resilience.StateClosed, b.State())
		report(b, io.EOF) // neutral: the count goes on
		report(b, errBoom)
		assert.Equal(t, resilience.StateOpen, b.State())
		assert.Equal(t, time.Second, b.RetryAfter())
	})
}

func TestNewBreakerPanicsIfItsConfigIsInvalid(t *testing.T) {
	const want = "resilience: NewBreaker: Failures is -1: it must not be negative (0 is the default)\n" +
		"Cooldown is -1s: it must not be negative (0 is the default)\n" +
		"ProbeTimeout is -2s: it must not be negative (0 is the default)"

	assert.PanicsWithValue(t, want, func() {
		resilience.NewBreaker("x", resilience.BreakerConfig{
			Failures: -1, Cooldown: -time.Second, ProbeTimeout: -2 * time.Second,
		})
	})
}

func TestStateHasAName(t *testing.T) {
	for state, want := range map[resilience.State]string{
		resilience.StateClosed:   "closed",
		resilience.StateHalfOpen: "half-open",
		resilience.StateOpen:     "open",
		resilience.StateIsolated: "isolated",
		resilience.State(9):      "State(9)",
	} {
		assert.Equal(t, want, state.String())
	}
	assert.Equal(t, `"half-open"`, jsonOf(t, resilience.StateHalfOpen))
}

func TestBreakerGoesOnWhateverItsCallbackDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var received []resilience.State
		block := make(chan struct{})
		b := resilience.NewBreaker("x", resilience.BreakerConfig{
			Failures: 1, Cooldown: time.Second,
			OnChange: func(_ string, _, to resilience.State) {
				received = append(received, to)
				switch len(received) {
				case 1:
					panic("callback")
				case 2:
					runtime.Goexit()
				case 3:
					<-block
				}
			},
		})

		for range 3 {
			report(b, errBoom)
			time.Sleep(2 * time.Second)
			require.Equal(t, resilience.StateHalfOpen, b.State())
		}
		report(b, nil)
		assert.Equal(t, resilience.StateClosed, b.State(), "a callback that blocks holds up nothing")

		close(block)
		synctest.Wait()
		assert.Equal(t, []resilience.State{
			resilience.StateOpen, resilience.StateHalfOpen,
			resilience.StateOpen, resilience.StateHalfOpen,
			resilience.StateOpen, resilience.StateHalfOpen,
			resilience.StateClosed,
		}, received)
	})
}

func TestRejectionSaysHowLongToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("b", resilience.BreakerConfig{Failures: 1})
		require.True(t, report(b, errBoom))

		_, err := b.Allow()
		assert.ErrorContains(t, err, "30 more seconds")
		time.Sleep(20 * time.Second)
		_, err = b.Allow()
		assert.ErrorContains(t, err, "10 more seconds")

		time.Sleep(10*time.Second - 1)
		_, err = b.Allow()
		assert.Equal(t, time.Duration(1), resilience.AsError("", err).RetryAfter)
		assert.Equal(t, resilience.StateOpen, b.State())
		time.Sleep(time.Nanosecond)
		_, err = b.Allow()
		assert.NoError(t, err)
	})
}

var packageBreaker = resilience.NewBreaker("package", resilience.BreakerConfig{Failures: 1})

// The clock of a bubble is years behind, so that a breaker that was opened outside has cooled down.
func TestBreakerThatWasOpenedOutsideOfABubbleWorksInOne(t *testing.T) {
	b := resilience.NewBreaker("x", resilience.BreakerConfig{})
	trip(t, b)
	synctest.Test(t, func(t *testing.T) {
		assert.Equal(t, resilience.StateHalfOpen, b.State())
		assert.True(t, report(b, nil))
	})
}

// The clock of each bubble says something else.
func TestBreakerThatIsAPackageVariableWorksInBubbles(t *testing.T) {
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			report(packageBreaker, errBoom)
			assert.Equal(t, 30*time.Second, packageBreaker.RetryAfter())
			_, err := packageBreaker.Allow()
			assert.Equal(t, 30*time.Second, resilience.AsError("", err).RetryAfter)

			time.Sleep(31 * time.Second)
			require.True(t, report(packageBreaker, nil))
		})
	}
}

func TestWithBreakerReturnsWhatItsFunctionReturnsUnlessItIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{})
		value, err := resilience.WithBreaker(t.Context(), b, succeed)
		assert.Equal(t, 1, value)
		assert.NoError(t, err)

		fail := func(context.Context) (string, error) { return "v", errBoom } // another type, the same breaker
		for range 4 {
			value, err := resilience.WithBreaker(t.Context(), b, fail)
			assert.Equal(t, "v", value)
			assert.Equal(t, errBoom, err, "unchanged")
		}
		_, err = resilience.WithBreaker(t.Context(), b, panicking(io.EOF))
		assert.ErrorIs(t, err, resilience.CodeToolFailed)
		assert.ErrorIs(t, err, io.EOF)
		_, err = resilience.WithBreaker(t.Context(), b, fail)
		assert.ErrorIs(t, err, resilience.CodeCircuitOpen)

		time.Sleep(31 * time.Second)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = resilience.WithBreaker(t.Context(), b, exit)
		}()
		<-done
		assert.Equal(t, resilience.StateOpen, b.State(), "the probe failed")
	})
}

func TestWithBreakerDoesNotCountACallerThatLeaves(t *testing.T) {
	b := resilience.NewBreaker("x", resilience.BreakerConfig{})
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := resilience.WithBreaker(ctx, b, func(context.Context) (int, error) { cancel(); return 0, errBoom })
		assert.Equal(t, errBoom, err)
		_, err = resilience.WithBreaker(ctx, b, notCalled(t))
		assert.ErrorIs(t, err, resilience.CodeCanceled)
	}
	assert.Equal(t, resilience.StateClosed, b.State())
}

func TestWithBreakerNeedsAFunctionABreakerAndAContext(t *testing.T) {
	b := resilience.NewBreaker("x", resilience.BreakerConfig{})
	_, err := resilience.WithBreaker[int](t.Context(), b, nil)
	assert.ErrorIs(t, err, resilience.CodeToolNotFound)
	assert.PanicsWithValue(t, "resilience: nil *Breaker", func() {
		_, _ = resilience.WithBreaker(t.Context(), nil, notCalled(t))
	})
	assert.PanicsWithValue(t, "resilience: nil context", func() {
		_, _ = resilience.WithBreaker(noContext, b, notCalled(t))
	})
}

func TestCrashIsAFailureAlsoOnceTheCallerHasLeft(t *testing.T) {
	for name, tc := range map[string]struct {
		fn   toolFunc
		want int
	}{"an error": {failing(9, errBoom), 0}, "a panic": {panicking("p"), 1}} {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{})
		ctx, cancel := context.WithCancel(t.Context())
		_, err := resilience.WithBreaker(ctx, b, func(ctx context.Context) (int, error) {
			cancel()
			return tc.fn(ctx)
		})
		assert.Error(t, err, name)
		assert.Equal(t, tc.want, b.Failures(), name)
	}
}

func TestWithBreakerInsideOfItsOwnCallReturnsWhatItsFunctionReturns(t *testing.T) {
	b := resilience.NewBreaker("x", resilience.BreakerConfig{})
	value, err := resilience.WithBreaker(t.Context(), b, func(ctx context.Context) (int, error) {
		return resilience.WithBreaker(ctx, b, func(context.Context) (int, error) { return 7, errBoom })
	})
	assert.Equal(t, 7, value)
	assert.Equal(t, errBoom, err)
}

// What has succeeded counts, whoever has left meanwhile.
func TestProbeOfWithBreakerThatSucceedsAfterItsCallerHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{})
		trip(t, b)
		time.Sleep(30 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		_, err := resilience.WithBreaker(ctx, b, func(context.Context) (int, error) { cancel(); return 1, nil })
		assert.NoError(t, err)
		assert.Equal(t, resilience.StateClosed, b.State())
	})
}

// A probe that has stood in the way of others and crashes has failed like any other: the next one keeps its slot.
func TestProbeOfWithBreakerThatCallsGoexitIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{})
		trip(t, b)
		time.Sleep(30 * time.Second)
		go resilience.WithBreaker(t.Context(), b, func(ctx context.Context) (int, error) {
			assert.False(t, report(b, nil), "another call")
			return exit(ctx)
		})
		time.Sleep(time.Minute)
		_, err := b.Allow()
		require.NoError(t, err)
		assert.False(t, report(b, nil))
	})
}

// What a half-open breaker has learned of its callers doesn't outlast its recovery.
func TestBreakerThatHasClosedStartsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{})
		probe := func() func(error) {
			b.Trip(time.Second)
			time.Sleep(time.Second)
			done, err := b.Allow()
			require.NoError(t, err)
			return done
		}
		done := probe()
		require.False(t, report(b, nil), "another call")
		done(context.Canceled)
		done, err := b.Allow() // it leaves the slot
		require.NoError(t, err)
		require.True(t, report(b, nil))
		require.Equal(t, resilience.StateClosed, b.State())
		done(nil)

		require.True(t, report(b, errBoom))
		assert.Equal(t, resilience.StateClosed, b.State(), "it takes five failures again")
		probe()
		assert.False(t, report(b, nil), "the probe keeps its slot")
	})
}

// While a call is the probe, nobody knows when it ends.
func TestRejectionDuringAProbeOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{})
		trip(t, b)
		time.Sleep(30 * time.Second)
		done, err := b.Allow()
		require.NoError(t, err)
		_, err = b.Allow()
		assert.ErrorContains(t, err, "Its backend is being asked; call again in 1 second.")
		done(nil)
	})
}

// A rejection says whether the backend is being asked as it is now.
func TestRejectionKnowsWhetherProbeIsCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const asked = "Its backend is being asked"
		b := resilience.NewBreaker("x", resilience.BreakerConfig{Probe: func(context.Context) error { return nil }})
		rejection := func() *resilience.Error {
			_, err := b.Allow()
			var e *resilience.Error
			require.ErrorAs(t, err, &e)
			return e
		}

		trip(t, b)
		first := rejection()
		assert.Contains(t, first.Message, asked)
		time.Sleep(6 * time.Second)
		require.Equal(t, resilience.StateClosed, b.State())
		trip(t, b) // so soon that Probe isn't called
		time.Sleep(30*time.Second - first.RetryAfter)
		again := rejection()
		assert.Equal(t, first.RetryAfter, again.RetryAfter)
		assert.NotContains(t, again.Message, asked)

		b.Reset()
		time.Sleep(time.Minute)
		b.Trip(time.Minute)
		time.Sleep(6 * time.Second)
		require.Equal(t, resilience.StateClosed, b.State())
		trip(t, b)
		opened := time.Now()
		time.Sleep(15 * time.Second)
		first = rejection()
		assert.NotContains(t, first.Message, asked)
		b.Trip(time.Hour) // which is probed
		again = rejection()
		assert.Equal(t, time.Since(opened), again.RetryAfter)
		assert.Equal(t, first.RetryAfter, again.RetryAfter)
		assert.Contains(t, again.Message, asked)
		b.Reset()
	})
}
