package agents

import (
	"slices"
	"time"
)

// A result is what became of one run.
type result struct {
	Tasks                         int
	Completed, Abandoned, Expired int
	Took                          []time.Duration // of the tasks that were completed, since they were given; ordered

	// Each task's write is one of these: it is there once, it is there twice or more often, the agent tried to write
	// it and it isn't there, or the agent never tried. Writing to the board twice changes nothing, so that is once.
	Once, Twice, Lost, Unwritten int

	Unknown int // writes that are there, of tasks that weren't completed: the agent doesn't know of them

	Calls, Wasted int           // calls that the agents made, and those that failed
	Silence       time.Duration // the longest that an agent waited for an answer
	Unheard       int           // requests of tools to a backend that was dead or hung, with retries
	Probes        int           // requests of Probes to such a backend
	Read          int           // bytes of the text of failures
}

// account sums up what became of a world and its agents.
func account(w *world, workers []*worker) (r result) {
	for _, worker := range workers {
		r.Calls += worker.calls
		r.Wasted += worker.wasted
		r.Silence = max(r.Silence, worker.silence)
		r.Read += worker.read
		for _, t := range worker.tasks {
			r.add(t, w.writes(t.path(), never))
		}
	}

	slices.Sort(r.Took)
	r.Unheard, r.Probes = w.counted()
	return r
}

// add counts a task whose write is in the world so many times.
func (r *result) add(t *task, writes int) {
	r.Tasks++
	switch t.end {
	case completed:
		r.Completed++
		r.Took = append(r.Took, t.ended-t.given)
	case abandoned:
		r.Abandoned++
	case expired:
		r.Expired++
	}

	switch {
	case !t.wrote:
		r.Unwritten++
	case writes == 0:
		r.Lost++
	case writes > 1 && t.append:
		r.Twice++
	default:
		r.Once++
	}
	if writes > 0 && t.end != completed {
		r.Unknown++
	}
}

// path returns where the task's write is.
func (t *task) path() string {
	if t.append {
		return addEntry.path + t.id
	}
	return setStatus.path + t.id
}

// quantile returns the q-quantile of ordered values, which is one of them, or zero if there are none.
func quantile[T any](ordered []T, q float64) (v T) {
	if len(ordered) == 0 {
		return v
	}
	return ordered[int(q*float64(len(ordered)-1)+0.5)]
}

// median returns the mean of the two values in the middle, which are the same of an odd number of values, or zero if
// there are none.
func median(ordered []time.Duration) time.Duration {
	n := len(ordered)
	if n == 0 {
		return 0
	}
	return (ordered[(n-1)/2] + ordered[n/2]) / 2
}
