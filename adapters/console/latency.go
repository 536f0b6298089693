package console

import (
	"math"
	"sort"
	"time"
)

// latencies is a histogram. Its bounds grow by a quarter of a decade, from 1ms to 100s, so that what it
// returns is at most a factor of 1.8 beside the truth, and usually much less.
type latencies [len(bounds) + 1]uint32

// bounds are the upper bounds of all bins but the last, in seconds.
var bounds = func() (b [21]float64) {
	for i := range b {
		b[i] = 0.001 * math.Pow(10, float64(i)/4)
	}
	return b
}()

func (l *latencies) add(d time.Duration) { l[sort.SearchFloat64s(bounds[:], d.Seconds())]++ }

// quantile returns an estimate in seconds, with two significant digits, zero if there were no calls.
func (l *latencies) quantile(q float64) float64 {
	var total float64
	for _, n := range l {
		total += float64(n)
	}
	if total == 0 {
		return 0
	}

	rank := q * total
	for i, n := range l {
		if rank > float64(n) {
			rank -= float64(n)
			continue
		}
		return round(between(i, rank/float64(n)))
	}
	return bounds[len(bounds)-1]
}

// between returns the time at a fraction of a bin.
func between(bin int, fraction float64) float64 {
	switch bin {
	case 0:
		return bounds[0] * fraction
	case len(bounds):
		return bounds[len(bounds)-1] // or more
	}
	return bounds[bin-1] * math.Pow(bounds[bin]/bounds[bin-1], fraction)
}

// round keeps two significant digits.
func round(seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	scale := math.Pow(10, 1-math.Floor(math.Log10(seconds)))
	return math.Round(seconds*scale) / scale
}
