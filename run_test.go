package resilience_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// In real time, and with a tool that would hang for ever.
func TestToolThatNeverReturnsIsAbandoned(t *testing.T) {
	g := guardWith(t, resilience.Tool{Timeout: 5 * time.Millisecond})
	release := make(chan struct{})

	_, err := resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) { <-release; return 0, nil })

	assert.ErrorIs(t, err, resilience.CodeTimeout)
	assert.Equal(t, 1, g.Health()[0].Abandoned)
	close(release)
	waitForAbandoned(t, g)
}

// A tool that returns at the very moment of its timeout either has answered or is abandoned,
// never both: it would be counted as still running for ever.
func TestToolThatReturnsAtItsTimeoutHasAnsweredOrIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 5000
		g := newGuard(t, resilience.Config{
			Breaker:      resilience.BreakerConfig{Failures: 1 << 30},
			MaxAbandoned: 1 << 30,
		})

		var wg sync.WaitGroup
		var returned, answered, timedOut atomic.Int64
		for range calls {
			wg.Go(func() {
				value, err := resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) {
					time.Sleep(60 * time.Second)
					returned.Add(1)
					return 1, nil
				})
				switch {
				case value == 1 && err == nil:
					answered.Add(1)
				case value == 0 && errors.Is(err, resilience.CodeTimeout):
					timedOut.Add(1)
				default:
					t.Errorf("neither or both: %d, %v", value, err)
				}
			})
		}
		wg.Wait()
		synctest.Wait()

		assert.EqualValues(t, calls, answered.Load()+timedOut.Load())
		assert.EqualValues(t, calls, returned.Load())
		assert.Zero(t, g.Health()[0].Abandoned)
	})
}

func TestTimeoutThatEndsBeforeTheToolBeginsHasOneOutcome(t *testing.T) {
	cfg := configWith(resilience.Tool{Timeout: 1})
	cfg.Breaker.Failures = math.MaxInt32
	cfg.MaxAbandoned = math.MaxInt32 // a tool may take longer to begin than until it is abandoned
	g := newGuard(t, cfg)

	hasOneOutcome := func(value int, err error) {
		t.Helper()
		if err != nil {
			require.ErrorIs(t, err, resilience.CodeTimeout)
		} else {
			require.Equal(t, 1, value)
		}
	}
	for range 2000 {
		hasOneOutcome(resilience.Do(t.Context(), g, "x", succeed))
		hasOneOutcome(resilience.WithTimeout(t.Context(), "x", 1, succeed))
	}
}

func TestCooperativeToolRunsOnTheGoroutineOfItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Cooperative: true})
		before := goroutines(modulePath)

		count, err := resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) {
			return goroutines(modulePath), nil
		})

		assert.NoError(t, err)
		assert.LessOrEqual(t, count, before)
	})
}

func TestCooperativeToolMayAnswerAfterItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Cooperative: true})

		value, err := resilience.Do(t.Context(), g, "x", hang(2*time.Minute))

		assert.NoError(t, err, "late, but an answer is better than none")
		assert.Equal(t, lateValue, value)
	})
}

// A payload is large enough for it to matter who keeps it.
type payload struct{ bytes *[1 << 20]byte }

type payloadKey struct{}

// newPayload returns a payload that sends to freed once the garbage collector has found it.
func newPayload(freed chan<- struct{}) payload {
	p := payload{new([1 << 20]byte)}
	runtime.AddCleanup(p.bytes, func(int) { freed <- struct{}{} }, 0)
	return p
}

// waitUntilFreed waits until the garbage collector has found that many payloads.
func waitUntilFreed(t *testing.T, freed chan struct{}, payloads int) {
	t.Helper()
	assert.Eventually(t, func() bool {
		runtime.GC()
		return len(freed) == payloads
	}, 2*time.Minute, time.Millisecond)
}

// A tool that keeps its context keeps no more than that.
func TestContextKeepsNoValue(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	freed := make(chan struct{}, 1)
	var kept context.Context

	_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (payload, error) {
		kept = ctx
		return newPayload(freed), nil
	})

	require.NoError(t, err)
	waitUntilFreed(t, freed, 1)
	runtime.KeepAlive(kept)
}

func TestContextKeepsNoFunction(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	freed := make(chan struct{}, 1)
	var kept context.Context

	func() {
		captured := newPayload(freed)
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			kept = ctx
			return int(captured.bytes[0]), nil
		})
		require.NoError(t, err)
	}()

	waitUntilFreed(t, freed, 1)
	runtime.KeepAlive(kept)
}

func TestContextKeepsNoOptions(t *testing.T) {
	g := newGuard(t, resilience.Config{Debug: true})
	freed := make(chan struct{}, 1)
	var kept context.Context

	func() {
		captured := newPayload(freed)
		request := resilience.Request{
			Effect: func(time.Duration) resilience.Effect { return resilience.Effect(captured.bytes[0]) },
		}
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			kept = ctx
			return 0, nil
		}, resilience.ForRequest(request))
		require.NoError(t, err)
	}()

	waitUntilFreed(t, freed, 1)
	runtime.KeepAlive(kept)
}

func TestContextKeepsNoChildThatHasEnded(t *testing.T) {
	g := newGuard(t, resilience.Config{})

	_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
		freed := make(chan struct{}, 1)
		func() {
			child := newPayload(freed)
			stop := context.AfterFunc(ctx, func() { child.bytes[0] = 1 })
			assert.True(t, stop())
		}()
		waitUntilFreed(t, freed, 1)
		return 0, nil
	})

	require.NoError(t, err)
}

func TestBreakerKeepsNothingOfItsLastProbe(t *testing.T) {
	g := newGuard(t, resilience.Config{Breaker: resilience.BreakerConfig{Failures: 1, Cooldown: 1}})
	_, _ = resilience.Do(t.Context(), g, "x", failing(9, resilience.MarkPermanent(errBoom)))
	for g.Breaker("x").State() == resilience.StateOpen {
		runtime.Gosched()
	}
	freed := make(chan struct{}, 2)

	func() {
		ctx := context.WithValue(t.Context(), payloadKey{}, newPayload(freed))
		_, err := resilience.Do(ctx, g, "x", func(context.Context) (payload, error) {
			return newPayload(freed), nil
		})
		require.NoError(t, err)
	}()
	_, _ = resilience.Do(t.Context(), g, "x", succeed)

	waitUntilFreed(t, freed, 2)
	runtime.KeepAlive(g)
}

// Not even a timer keeps it.
func TestNothingKeepsACallThatHasReturned(t *testing.T) {
	g := guardWith(t, resilience.Tool{Timeout: time.Hour})
	freed := make(chan struct{}, 1)

	func() {
		ctx := context.WithValue(t.Context(), payloadKey{}, newPayload(freed))
		_, err := resilience.Do(ctx, g, "x", succeed)
		require.NoError(t, err)
	}()

	waitUntilFreed(t, freed, 1)
}
