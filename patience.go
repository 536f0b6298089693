package resilience

import (
	"runtime"
	"sync/atomic"
	"time"
)

// A call waits for code that is neither its tool nor its caller, such as an observer's Start, for
// maxTicks ticks. A tick takes tickTime and a turn behind all goroutines that want to run, so that
// neither a process that stands still nor one with too much to do uses up the time: what stalls that
// code stalls the ticks, too. On a starved machine, the thread of that code may wait while that of the ticks
// runs: of ticks that come late, only one in lateTicks counts. A Connector waits so for the methods of an error
// that says why a connection is lost.
const (
	maxTicks  = 10
	tickTime  = 10 * time.Millisecond
	lateTicks = 5

	// maxAsides is how many functions that have taken too long may still run before no further ones
	// are called.
	maxAsides = 64
)

// A patience is the time that a call has for several functions, one after the other. The zero value is all
// of it.
type patience struct {
	timer  *time.Timer // goes on between the functions, as many short ones take long, too
	set    time.Time   // when the timer was
	passed int         // of maxTicks * lateTicks, while a function ran
}

// await waits until done is closed and returns -1, or returns the number of the step that takes too
// long. step returns the number of the step under way, or -1 if none has begun. Each step has patience
// of its own, except the first one, 0. leave is called before await returns a step, and reports whether
// that is still under way.
func (p *patience) await(done <-chan struct{}, step func() int, leave func(n int) bool) int {
	if p.timer == nil {
		p.timer, p.set = time.NewTimer(tickTime), time.Now()
	}
	for current := 0; ; p.again() {
		select {
		case <-done:
			return -1
		case <-p.timer.C:
			runtime.Gosched()
		}

		switch n := step(); n {
		case -1:
		case current:
			p.passed += p.weight()
		default:
			current, p.passed = n, 0
		}
		if p.passed >= maxTicks*lateTicks && leave(current) {
			return current
		}
	}
}

// again begins another tick.
func (p *patience) again() {
	p.set = time.Now()
	p.timer.Reset(tickTime)
}

// weight returns how much of a tick has passed.
func (p *patience) weight() int {
	if time.Since(p.set) < 2*tickTime {
		return lateTicks
	}
	return 1
}

// aside calls f on a goroutine of its own, because f calls methods of values that aren't ours, and
// reports whether f has come to an end. If f takes too long, it runs on, counted by stillRunning, and
// what it writes must not be read. Its panic is recovered.
func aside(stillRunning *atomic.Int32, f func()) bool { return new(patience).aside(stillRunning, f) }

// printAside returns the text that print returns, which aside calls, and reports whether print has come to an end.
func printAside(aside func(f func()) bool, print func() string) (_ string, ended bool) {
	text := unprintable
	if !aside(func() { text = print() }) {
		return unprintable, false
	}
	return text, true
}

// aside is aside for one of several functions.
func (p *patience) aside(stillRunning *atomic.Int32, f func()) bool {
	if stillRunning.Load() >= maxAsides {
		return false
	}

	var state, step atomic.Int32
	step.Store(-1)
	done := make(chan struct{})
	go func() {
		defer func() {
			_ = recover()
			if !state.CompareAndSwap(running, finished) {
				stillRunning.Add(-1)
			}
			close(done)
		}()
		step.Store(0)
		f()
	}()

	left := p.await(done, func() int { return int(step.Load()) }, func(int) bool {
		stillRunning.Add(1) // before the goroutine can see that it is abandoned
		if state.CompareAndSwap(running, abandoned) {
			return true
		}
		stillRunning.Add(-1)
		return false
	})
	return left < 0
}
