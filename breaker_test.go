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
