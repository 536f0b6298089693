package console

import (
	"sync"
	"sync/atomic"
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

	printTime   = time.Second
	maxPrinting = 16 // causes that took longer, and that are still being printed
)

// calls counts the calls of each tool, by label: a guard gives out at most 1,024 labels besides those of
// listed tools, which bounds the memory. Each takes about 7 KB.
type calls struct {
	mu       sync.Mutex
	tools    map[string]*track
	printing atomic.Int32 // causes
}

// A track is what happened to a tool in the last minutes.
type track struct {
	slots  [steps]slot // by number of the step, modulo steps
	failed failure     // the last one that a breaker has counted
}

// A slot counts the calls that ended in one step of time.
type slot struct {
	number    int64 // of the step, since 1970
	succeeded uint32
	failed    uint32
	rejected  uint32
	other     uint32
	latency   latencies // of those that succeeded or failed
}

// A failure is the last one of a tool that a breaker has counted.
type failure struct {
	code    resilience.Code
	message string
	time    time.Time
	cause   string // empty unless causes are shown
}

// record counts a call. It runs on the goroutine of the observer.
func (c *calls) record(e resilience.CallEnd) {
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
	switch outcomeOf(e) {
	case succeeded:
		s.succeeded++
		s.latency.add(e.Duration)
	case failed:
		s.failed++
		s.latency.add(e.Duration)
	case rejected:
		s.rejected++
	case other:
		s.other++
	}
	if e.Counted {
		t.failed = failure{code: e.Err.Code, message: cut(e.Err.Message, maxMessage), time: e.Time}
	}
}

// explain keeps the scrubbed text of the cause of a failure that was just recorded.
func (c *calls) explain(e resilience.CallEnd, scrub func(string) string) {
	if !e.Counted || e.Err.Err == nil {
		return
	}
	cause, ok := c.print(e.Err.Err, scrub) // not under the lock
	if !ok {
		return
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.tools[e.Label].failed.cause = cause
}

// print returns the text of a tool's error, if its methods return it soon. One that blocks must not hold up the events
// of all tools.
func (c *calls) print(err error, scrub func(string) string) (text string, ok bool) {
	if c.printing.Load() >= maxPrinting {
		return "", false
	}

	printed := make(chan string, 1)
	c.printing.Add(1)
	go func() {
		defer func() {
			_ = recover()
			c.printing.Add(-1)
			close(printed)
		}()
		printed <- cut(scrub(err.Error()), maxCause)
	}()
	late := time.NewTimer(printTime)
	defer late.Stop()
	select {
	case text, ok = <-printed:
		return text, ok
	case <-late.C:
		return "", false
	}
}

// An outcome is what a call counts as.
type outcome int

const (
	succeeded outcome = iota
	failed
	rejected // before it reached the tool
	other    // the caller left or made a mistake, or the call isn't finished
)

func outcomeOf(e resilience.CallEnd) outcome {
	switch {
	case e.Unfinished:
		return other
	case e.Err == nil:
		return succeeded
	}

	switch e.Err.Code {
	case resilience.CodeCircuitOpen, resilience.CodeOverloaded, resilience.CodeShuttingDown:
		if e.Attempts == 0 {
			return rejected
		}
	case resilience.CodeCanceled, resilience.CodeValidation, resilience.CodeToolNotFound:
		return other
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
	failed failure
}

// of returns the record of a label at a time. It has no rows if there were no calls.
func (c *calls) of(label string, now time.Time) (r record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tools[label]
	if t == nil {
		return r
	}

	r.failed = t.failed
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
	s.succeeded += o.succeeded
	s.failed += o.failed
	s.rejected += o.rejected
	s.other += o.other
	for i, n := range o.latency {
		s.latency[i] += n
	}
}
