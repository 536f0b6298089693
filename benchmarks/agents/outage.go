package agents

import (
	"math/rand/v2"
	"time"
)

// A mode is what a backend does with requests.
type mode int

const (
	healthy mode = iota
	slow         // answers, but takes slowdown times as long
	hanging      // accepts requests, performs half of them, and doesn't answer
	dead         // doesn't listen: connections are refused, and those that are open break
	limited      // answers 429 with a Retry-After
	lossy        // performs requests, and loses half of the replies
	modes
)

// The parameters of an outage. All durations are drawn from even distributions.
const (
	troubles      = 25 * time.Minute // after the trouble that is the last to be drawn before, a backend stays healthy
	minHealthy    = time.Minute
	maxHealthy    = 3 * time.Minute
	minTrouble    = 30 * time.Second
	maxTrouble    = 3 * time.Minute
	slowdown      = 60
	latencyMedian = 300 * time.Millisecond // of a healthy backend; log-normal
	latencySpread = 0.5
	limitWindow   = 15 * time.Second // the Retry-After of a 429
)

// A phase is a time in which a backend is in one mode.
type phase struct {
	mode mode
	from time.Duration // since the start
}

// outage returns the phases of a backend: it is healthy, then in some kind of trouble, then healthy again,
// and so on. It depends on nothing but the seed and the backend.
func outage(seed, backend uint64) (phases []phase) {
	rng := rand.New(rand.NewPCG(seed, backend))
	at := time.Duration(0)
	for at < troubles {
		phases = append(phases, phase{healthy, at})
		at += between(rng, minHealthy, maxHealthy)
		phases = append(phases, phase{slow + mode(rng.IntN(int(modes-slow))), at})
		at += between(rng, minTrouble, maxTrouble)
	}
	return append(phases, phase{healthy, at})
}

// between draws a duration.
func between(rng *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(rng.Int64N(int64(high-low)))
}

// phaseAt returns the mode at a time, and when it ends, or never if it doesn't.
func phaseAt(phases []phase, at time.Duration) (m mode, end time.Duration) {
	end = never
	for i, p := range phases {
		if p.from <= at {
			m, end = p.mode, never
			if i+1 < len(phases) {
				end = phases[i+1].from
			}
		}
	}
	return m, end
}

// diesAfter returns when the backend dies next, or never.
func diesAfter(phases []phase, at time.Duration) time.Duration {
	for _, p := range phases {
		if p.mode == dead && p.from >= at {
			return p.from
		}
	}
	return never
}

const never = time.Duration(1<<63 - 1)
