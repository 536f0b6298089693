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
			assert.Less(t, max(got/want, want/got), 1.83, "%v of %d: %v instead of %v", q, len(all), got, want)
		}
	}
}

func TestQuantilesOfExtremes(t *testing.T) {
	var none, short, long, negative latencies
	assert.Zero(t, none.quantile(0.5))
	short.add(time.Nanosecond)
	assert.Equal(t, 0.0005, short.quantile(0.5))
	long.add(math.MaxInt64)
	assert.Equal(t, 100.0, long.quantile(0.95), "or more")
	negative.add(-time.Second) // the clock was set back
	assert.Equal(t, 0.00095, negative.quantile(0.95))
}
