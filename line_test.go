package resilience_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

// 64 callers share eight slots, in the order in which they came.
func TestCallsWaitInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{MaxInFlight: 8, MaxWait: 30 * time.Second})
		var mu sync.Mutex
		var order []int
		var calls sync.WaitGroup
		for i := range 64 {
			calls.Go(func() {
				_, err := resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) {
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
					time.Sleep(time.Second + time.Duration(i)*time.Millisecond)
					return 1, nil
				})
				assert.NoError(t, err)
			})
			synctest.Wait()
		}
		assert.True(t, g.Health()[0].Available, "a call waits")
		start := time.Now()
		calls.Wait()
		assert.Equal(t, 8*time.Second, time.Since(start).Truncate(time.Second))
		assert.IsIncreasing(t, order)
		assert.Zero(t, g.Health()[0].InFlight)
	})
}

// One call runs for ten seconds, another one waits for its slot, and then comes a third.
func TestCallInLine(t *testing.T) {
	const s = time.Second
	stays := withTimeout(time.Hour)
	for name, tc := range map[string]struct {
		wait   time.Duration
		leave  caller
		option resilience.Option
		trip   bool
		took   time.Duration
		code   resilience.Code
	}{
		"gets a slot":   {wait: 20 * s, leave: stays, took: 12 * s},
		"waits in vain": {wait: 5 * s, leave: stays, took: 5 * s, code: resilience.CodeOverloaded},
		"has little time": {
			wait: 20 * s, leave: stays, option: resilience.Timeout(6 * s), took: 3 * s, code: resilience.CodeOverloaded,
		},
		"leaves":         {wait: 20 * s, leave: leavingAfter(3 * s), took: 3 * s, code: resilience.CodeCanceled},
		"has a deadline": {wait: 20 * s, leave: withTimeout(4 * s), took: 4 * s, code: resilience.CodeTimeout},
		"is rejected":    {wait: 20 * s, leave: stays, trip: true, code: resilience.CodeCircuitOpen},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{MaxInFlight: 1, MaxWait: tc.wait})
			running := 0 // no two are at once
			alone := func(d time.Duration) toolFunc {
				return func(context.Context) (int, error) {
					running++
					assert.Equal(t, 1, running)
					time.Sleep(d)
					running--
					return 1, nil
				}
			}
			for _, d := range []time.Duration{10 * s, s} { // one runs, and the other is in line before this one
				go resilience.Run(t.Context(), g, "x", alone(d))
				synctest.Wait()
			}
			if tc.trip {
				g.Breaker("x").Trip(0)
			}

			ctx, cancel := tc.leave(t.Context())
			defer cancel()
			r := resilience.Run(ctx, g, "x", alone(s), tc.option)
			assert.Equal(t, tc.took, r.Duration)
			assert.Equal(t, tc.code == "", r.Err == nil && r.Attempts == 1)
			assert.True(t, r.Err == nil || r.Err.Code == tc.code && r.Attempts == 0, r.Err)
			time.Sleep(time.Hour)
			assert.Zero(t, g.Health()[0].InFlight)
			assert.Equal(t, tc.trip, g.Health()[0].ConsecutiveFailures > 0)
		})
	}
}

// Calls whose backend hangs keep those behind them waiting. That they lack this time doesn't excuse it.
func TestTimeoutsAfterWaitsOpenTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Timeout: 20 * time.Second, MaxInFlight: 1, MaxWait: 10 * time.Second})
		for range 6 {
			go resilience.Run(t.Context(), g, "x", untilDone)
			time.Sleep(12 * time.Second)
		}
		assert.Equal(t, resilience.StateOpen, g.Breaker("x").State())
		time.Sleep(time.Hour)
	})
}
