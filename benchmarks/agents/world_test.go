package agents

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestOutages(t *testing.T) {
	seen := map[mode]bool{}
	for seed := range uint64(20) {
		phases := outage(seed, 1)
		assert.Equal(t, phases, outage(seed, 1))
		assert.NotEqual(t, phases, outage(seed, 2))
		for i, p := range phases {
			seen[p.mode] = true
			assert.Equal(t, i%2 == 0, p.mode == healthy)
			low, high := minHealthy, maxHealthy
			if p.mode != healthy {
				low, high = minTrouble, maxTrouble
			}
			if i+1 < len(phases) {
				lasts := phases[i+1].from - p.from
				assert.True(t, lasts >= low && lasts < high, "%v", p)
			}
		}
		last := phases[len(phases)-1]
		assert.Equal(t, healthy, last.mode)
		assert.True(t, last.from >= troubles && last.from < troubles+maxHealthy+maxTrouble, last)
	}
	assert.Len(t, seen, int(modes))
}

func TestPhases(t *testing.T) {
	phases := []phase{{healthy, 0}, {dead, 10}, {healthy, 20}}
	for at, want := range map[time.Duration]struct {
		mode       mode
		end, death time.Duration
	}{
		0: {healthy, 10, 10}, 9: {healthy, 10, 10},
		10: {dead, 20, 10}, 19: {dead, 20, never}, 99: {healthy, never, never},
	} {
		m, end := phaseAt(phases, at)
		assert.Equal(t, want.mode, m, at)
		assert.Equal(t, want.end, end, at)
		assert.Equal(t, want.death, diesAfter(phases, at), at)
	}
}

// TestFates draws many fates of requests that arrive after a minute.
func TestFates(t *testing.T) {
	const now, ms, n = time.Minute, time.Millisecond, 2000
	for name, test := range map[string]struct {
		mode                    mode
		end, death              time.Duration
		performed, replies      float64 // how many of them, from 0 to 1
		soonest, latest, median time.Duration
	}{
		"healthy":               {healthy, never, never, 1, 1, 0, never, latencyMedian},
		"slow":                  {slow, never, never, 1, 1, 0, never, slowdown * latencyMedian},
		"lossy":                 {lossy, never, never, 1, 0.5, 0, never, latencyMedian},
		"limited":               {limited, never, never, 0, 1, 0, never, latencyMedian},
		"hanging":               {hanging, now + time.Hour, never, 0.5, 0, time.Hour, time.Hour + ms, time.Hour + ms/2},
		"hanging, for a moment": {hanging, now + 1, never, 0, 0, 1, ms + 1, ms / 2},
		"dies at once":          {healthy, never, now + 1, 0, 0, 1, ms + 1, ms / 2},
		"dies later":            {healthy, never, now + time.Hour, 1, 1, 0, never, latencyMedian},
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			performed, replies, early := 0.0, 0.0, 0.0
			for range n {
				f := fateOf(test.mode, now, test.end, test.death, rng)
				took := f.until - now
				assert.True(t, took >= test.soonest && took <= test.latest, took)
				assert.True(t, f.effect == never || f.effect > now && f.effect <= f.until, f)
				if f.effect < never {
					performed++
				}
				if f.failure == nil {
					replies++
				}
				if took <= test.median {
					early++
				}
			}
			assert.InDelta(t, test.performed, performed/n, 0.05)
			assert.InDelta(t, test.replies, replies/n, 0.05)
			assert.InDelta(t, 0.5, early/n, 0.05)
		})
	}
}

// Each write counts once as what has become of it.
func TestAccount(t *testing.T) {
	w := newWorld(1)
	tasks := []*task{
		{id: "once", append: true, wrote: true, end: completed, given: 1, ended: 3},
		{id: "twice", append: true, wrote: true, end: completed, ended: 1},
		{id: "again", wrote: true, end: completed, ended: 3}, // the board doesn't mind
		{id: "lost", append: true, wrote: true, end: abandoned},
		{id: "unknown", append: true, wrote: true, end: expired},
		{id: "unwritten", end: abandoned},
	}
	for _, i := range []int{0, 1, 1, 2, 2, 4} {
		w.write(tasks[i].path(), time.Hour)
	}
	workers := []*worker{
		{tasks: tasks[:3], calls: 3, wasted: 1, silence: 5, read: 7},
		{tasks: tasks[3:], calls: 2, silence: 4, read: 1},
	}
	assert.Equal(t, result{
		Tasks: 6, Completed: 3, Abandoned: 2, Expired: 1, Took: []time.Duration{1, 2, 3},
		Once: 3, Twice: 1, Lost: 1, Unwritten: 1, Unknown: 1, Calls: 5, Wasted: 1, Silence: 5, Read: 8,
	}, account(w, workers))
}

func TestSamples(t *testing.T) {
	var runs []result
	for n := range 11 {
		runs = append(runs, result{Calls: 10 * n})
	}
	calls := metric{value: func(r result) float64 { return float64(r.Calls) }}
	assert.Equal(t, sample{50, 10, 90}, sampleOf(calls, runs))
	assert.Equal(t, "50 (10–90)", sampleOf(calls, runs).String())
	for f, want := range map[float64]string{
		0: "0", 0.05: "0.05", 1.5: "1.5", 39.94: "39.9", 40: "40", 100: "100", 123.4: "123",
		0.004: "0.004", 9.999: "9.999", 39.96: "39.96", 99.96: "99.96", // not none, and not all
	} {
		assert.Equal(t, want, number(f))
	}
}
