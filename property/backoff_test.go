package property

import (
	"math"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	"pgregory.net/rapid"
)

func TestBackoffDelayIsWithinItsJitter(t *testing.T) {
	jitters := []resilience.Jitter{resilience.FullJitter, resilience.SmallJitter, resilience.NoJitter}
	rapid.Check(t, func(r *rapid.T) {
		b := resilience.Backoff{
			Base:   time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(r, "base")),
			Max:    time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(r, "max")),
			Jitter: rapid.SampledFrom(jitters).Draw(r, "jitter"),
		}
		attempt := rapid.Int().Draw(r, "attempt")

		// This computes the ceiling once more, in numbers that can't overflow.
		ceiling := math.Min(float64(b.Max), float64(b.Base)*math.Pow(2, math.Max(0, float64(attempt))))
		low, high := ceiling, ceiling
		switch b.Jitter {
		case resilience.FullJitter:
			low = 0
		case resilience.SmallJitter:
			low, high = ceiling*0.85-20, math.Min(ceiling*1.15+20, float64(b.Max))
		}

		if d := float64(b.Delay(attempt)); d < low*(1-1e-9) || d > high*(1+1e-9) {
			r.Fatalf("delay %v outside of [%v, %v]", d, low, high)
		}
	})
}
