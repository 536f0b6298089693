package resilience_test

import (
	"math"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

func TestBackoffDoublesUpToItsMaximum(t *testing.T) {
	const ms, s, huge = time.Millisecond, time.Second, time.Duration(math.MaxInt64)
	type delays = []time.Duration
	for name, tc := range map[string]struct {
		backoff resilience.Backoff
		want    delays // by attempt, from 0
	}{
		"default": {
			resilience.Backoff{},
			delays{500 * ms, 1 * s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s},
		},
		"its own":            {resilience.Backoff{Base: ms, Max: 5 * ms}, delays{ms, 2 * ms, 4 * ms, 5 * ms}},
		"an odd maximum":     {resilience.Backoff{Base: 2, Max: 5}, delays{2, 4, 5, 5}},
		"long base":          {resilience.Backoff{Base: 90 * s}, delays{90 * s, 90 * s}},
		"longest base":       {resilience.Backoff{Base: huge, Max: huge}, delays{huge, huge}},
		"negative base":      {resilience.Backoff{Base: -1}, delays{0, 0}},
		"short maximum":      {resilience.Backoff{Max: 100 * ms}, delays{100 * ms, 100 * ms}},
		"maximum under base": {resilience.Backoff{Base: 2 * s, Max: s}, delays{s, s}},
		"negative maximum":   {resilience.Backoff{Max: -1}, delays{0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.backoff.Jitter = resilience.NoJitter
			first, last := tc.want[0], tc.want[len(tc.want)-1]

			for attempt, want := range tc.want {
				assert.Equal(t, want, tc.backoff.Delay(attempt), "attempt %d", attempt)
			}
			for _, attempt := range []int{62, 63, 64, 65, 1000, math.MaxInt} {
				assert.Equal(t, last, tc.backoff.Delay(attempt), "attempt %d", attempt)
			}
			for _, attempt := range []int{-1, math.MinInt} {
				assert.Equal(t, first, tc.backoff.Delay(attempt), "attempt %d", attempt)
			}

			policy := tc.backoff.Policy()
			for range 2 {
				for attempt, want := range tc.want {
					assert.Equal(t, want, policy.NextBackOff(), "attempt %d", attempt)
				}
				policy.Reset()
			}
		})
	}
}

// The bounds always hold. The range is used completely and evenly, except with a chance of less than one in a billion.
func TestBackoffJitterUsesAllOfItsRange(t *testing.T) {
	for name, tc := range map[string]struct {
		jitter    resilience.Jitter
		attempt   int
		low, high time.Duration
	}{
		"full":                   {resilience.FullJitter, 0, 0, 500 * time.Millisecond},
		"full at the maximum":    {resilience.FullJitter, 99, 0, 60 * time.Second},
		"small":                  {resilience.SmallJitter, 1, 850 * time.Millisecond, 1150 * time.Millisecond},
		"small at the maximum":   {resilience.SmallJitter, 99, 51 * time.Second, 60 * time.Second},
		"small near the maximum": {resilience.SmallJitter, 6, 27200 * time.Millisecond, 36800 * time.Millisecond},
		"full if it is unknown":  {resilience.Jitter(99), 0, 0, 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			b := resilience.Backoff{Jitter: tc.jitter}
			lowest, highest, sum := tc.high, tc.low, time.Duration(0)
			const n = 5000
			for range n {
				d := b.Delay(tc.attempt)
				lowest, highest, sum = min(lowest, d), max(highest, d), sum+d
			}

			width := tc.high - tc.low
			assert.GreaterOrEqual(t, lowest, tc.low)
			assert.LessOrEqual(t, highest, tc.high)
			assert.Less(t, lowest, tc.low+width/20)
			assert.Greater(t, highest, tc.high-width/20)
			assert.InDelta(t, float64(tc.low+width/2), float64(sum/n), float64(width)/20)
		})
	}
}

func TestBackoffJitterOfAShortDelay(t *testing.T) {
	for want, b := range map[int]resilience.Backoff{
		2: {Base: 1, Max: 1}, 7: {Base: 20, Max: 1000, Jitter: resilience.SmallJitter}, // 17 to 23
	} {
		drawn := map[time.Duration]bool{}
		for range 1000 {
			drawn[b.Delay(0)] = true
		}
		assert.Len(t, drawn, want)
	}
}

func TestBackoffOfTheShortestAndTheLongestDelays(t *testing.T) {
	for jitter := resilience.FullJitter; jitter <= resilience.NoJitter; jitter++ {
		for _, b := range []resilience.Backoff{{Base: -3, Jitter: jitter}, {Max: -1, Jitter: jitter}} {
			assert.Zero(t, b.Delay(3), "%+v", b)
			assert.Zero(t, b.Delay(62), "%+v", b)
		}
		longest := resilience.Backoff{Base: math.MaxInt64, Max: math.MaxInt64, Jitter: jitter}
		assert.GreaterOrEqual(t, longest.Delay(0), time.Duration(0), "it doesn't overflow")
	}
}
