package resilience

import (
	"context"
	"sync"
	"time"
)

// maxQueued bounds the memory of a queue whose current function blocks.
const maxQueued = 1024

// A queue runs user code that must not delay its caller: in order, one function at a time, on a
// goroutine that exists only while there is work. A function that blocks delays those behind it in
// the same queue. One that panics or calls runtime.Goexit doesn't affect the others.
//
// A queue uses no channel, because a channel belongs to the synctest bubble in which it was made,
// and a guard may be used in several bubbles.
type queue struct {
	mu      sync.Mutex // never held while user code runs
	pending []func()   // not started yet
	active  bool       // whether the goroutine exists
	started int        // how many functions were ever started
}

// add appends f and reports whether there was room for it. It never blocks.
func (q *queue) add(f func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()

	if len(q.pending) >= maxQueued {
		return false
	}
	q.pending = append(q.pending, f)
	if !q.active {
		q.active = true
		go q.work()
	}
	return true
}

// work runs the functions of the queue. If one of them ends the goroutine, another takes over.
func (q *queue) work() {
	done := false
	defer func() {
		if !done {
			_ = recover()
			go q.work()
		}
	}()

	for f := q.next(); f != nil; f = q.next() {
		f()
	}
	done = true
}

// next removes the first function from the queue. If there is none, it returns nil and the goroutine
// must end.
func (q *queue) next() func() {
	q.mu.Lock()
	defer q.mu.Unlock()

	if len(q.pending) == 0 {
		q.pending, q.active = nil, false
		return nil
	}
	f := q.pending[0]
	q.pending[0] = nil
	q.pending = q.pending[1:]
	q.started++
	return f
}

// empty reports whether no function is waiting. The last one may still be running.
func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.pending) == 0
}

// flush waits until every function that is in the queue now has run, or until ctx ends. It polls,
// because being woken would take a channel.
func (q *queue) flush(ctx context.Context) error {
	q.mu.Lock()
	last := q.started + len(q.pending)
	q.mu.Unlock()

	for delay := time.Millisecond; !q.finished(last); delay = min(2*delay, 100*time.Millisecond) {
		sleep(ctx, delay)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// finished reports whether the first n functions that were ever added have run.
func (q *queue) finished(n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.active || q.started > n
}
