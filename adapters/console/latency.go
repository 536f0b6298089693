package console

import (
	"slices"
	"time"
)

// latencies is a histogram by bounds. The last bin has no bound.
type latencies [len(bounds) + 1]uint32

// bounds are the upper bounds of the bins: four in a decade, from 1ms to 100s.
var bounds = func() (b [21]time.Duration) {
	decade := time.Millisecond
	for i := range b {
		b[i] = decade * []time.Duration{10, 18, 32, 56}[i%4] / 10
		if i%4 == 3 {
			decade *= 10
		}
	}
	return b
}()

func (l *latencies) add(d time.Duration) {
	bin, _ := slices.BinarySearch(bounds[:], d)
	l[bin]++
}

// quantile returns the bound of the bin of a quantile in seconds, zero if there were no calls.
func (l *latencies) quantile(q float64) float64 {
	var total float64
	for _, n := range l {
		total += float64(n)
	}
	if total == 0 {
		return 0
	}

	rank := q * total
	for i, bound := range bounds {
		if rank -= float64(l[i]); rank <= 0 {
			return bound.Seconds()
		}
	}
	return bounds[len(bounds)-1].Seconds() // or more
}
