package console

import (
	"sync"
	"time"

	"github.com/seed8d1e2389/resilience"
)

const (
	step  = 10 * time.Second
	steps = 60 // that are kept: ten minutes

	// lastSteps are those of the last minute, of which the latest isn't over.
	lastSteps = 6

	maxCause   = 300 // bytes
	maxMessage = 1024
)

// calls counts the calls of each tool, by label: a guard gives out at most 1,024 labels besides those of
// listed tools, which bounds the memory. Each takes about 7 KB.
type calls struct {
	mu    sync.Mutex
	tools map[string]*track
}

// A track is what happened to a tool in the last minutes.
type track struct {
	slots [steps]slot // by number of the step, modulo steps
	cause string      // of the last failure that a breaker has counted; empty unless causes are shown
}

// A slot counts the calls that ended in one step of time.
type slot struct {
	number  int64 // of the step, since 1970
	calls   [outcomes]uint32
	latency latencies // of those that succeeded or failed
}

// record counts a call, and keeps the cause of a failure that a breaker has counted. It runs on the goroutine of the
// observer.
func (c *calls) record(e resilience.CallEnd, cause string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tools[e.Label]
	if t == nil {
		if c.tools == nil {
			c.tools = make(map[string]*track)
		}
		t = new(track)
		c.tools[e.Label] = t
	}

	s := t.at(stepOf(e.Time))
	o := outcomeOf(e)
	s.calls[o]++
	if o == succeeded || o == failed {
		s.latency.add(e.Duration)
	}
	if e.Counted {
		t.cause = cause
	}
}

// An outcome is what a call counts as.
type outcome int

const (
	succeeded outcome = iota
	failed
	rejected // before it reached the tool
	other    // the caller left or made a mistake, or the call isn't finished
	outcomes // their number
)

func outcomeOf(e resilience.CallEnd) outcome {
	switch {
	case e.Unfinished:
		return other
	case e.Err == nil:
		return succeeded
	}

	switch e.Err.Code {
	case resilience.CodeCanceled, resilience.CodeValidation, resilience.CodeToolNotFound:
		return other
	}
	if e.Attempts == 0 {
		return rejected
	}
	return failed
}

func stepOf(t time.Time) int64 { return max(t.Unix(), 0) / int64(step/time.Second) }

// at returns the slot of a step, which replaces that of another one: an older one, or a later one if the clock was
// set back.
func (t *track) at(number int64) *slot {
	s := &t.slots[number%steps]
	if s.number != number {
		*s = slot{number: number}
	}
	return s
}

// A record is what the page shows of a tool's calls.
type record struct {
	rows   []row
	minute minute
	cause  string
}

// of returns the record of a label at a time. It has no rows if there were no calls.
func (c *calls) of(label string, now time.Time) record {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := record{rows: []row{}} // in JSON, none is an array too
	t := c.tools[label]
	if t == nil {
		return r
	}

	r.cause = t.cause
	last := stepOf(now)
	var total slot
	for n := max(last-steps+1, 0); n <= last; n++ {
		s := &t.slots[n%steps]
		if s.number != n {
			continue
		}
		r.rows = append(r.rows, s.row())
		if n > last-lastSteps {
			total.merge(s)
		}
	}
	r.minute = total.minute()
	return r
}

func (s *slot) merge(o *slot) {
	for i, n := range o.calls {
		s.calls[i] += n
	}
	for i, n := range o.latency {
		s.latency[i] += n
	}
}
