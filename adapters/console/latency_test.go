package console

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The documentation says how far an estimate may be beside the truth.
func TestQuantilesAreWithinAFactor(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var l latencies
		var all []float64
		middle := math.Pow(10, 5*random.Float64()-3) // from 1ms to 100s
		for range 1 + random.IntN(500) {
			seconds := min(max(middle*math.Exp(random.NormFloat64()), 0.001), 99)
			all = append(all, seconds)
			l.add(time.Duration(seconds * float64(time.Second)))
		}

		slices.Sort(all)
		for _, q := range []float64{0.5, 0.95} {
			want := all[int(math.Ceil(q*float64(len(all))))-1]
			got := l.quantile(q)
			assert.GreaterOrEqual(t, got, want)
			assert.Less(t, got/want, 1.81, "%v of %d: %v instead of %v", q, len(all), got, want)
		}
	}
}

func TestQuantilesOfExtremes(t *testing.T) {
	for d, want := range map[time.Duration]float64{
		-time.Second: 0.001, 0: 0.001, time.Millisecond: 0.001, time.Millisecond + 1: 0.0018, 99 * time.Second: 100,
		100 * time.Second: 100, math.MaxInt64: 100,
	} {
		var l latencies
		assert.Zero(t, l.quantile(0.5))
		l.add(d)
		assert.Equal(t, want, l.quantile(0.5), d)
	}
}
