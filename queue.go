package resilience

import (
	"context"
	"slices"
	"sync"
	"time"
)

// maxQueued bounds the memory of a queue whose current function blocks.
const maxQueued = 1024

// A queue runs user code that must not delay its caller: in order and one function at a time. A function that blocks
// delays those behind it in the same queue. One that panics or calls runtime.Goexit doesn't affect the others.
//
// A queue uses no channel, because a channel belongs to the synctest bubble in which it was made, and a guard may be
// used in several bubbles.
type queue struct {
	mu      sync.Mutex // never held while user code runs
	pending []func()   // the first one is running
	done    int        // how many have run
}

// add appends f and reports whether there was room for it. It never blocks.
func (q *queue) add(f func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()

	if len(q.pending) > maxQueued {
		return false
	}
	q.pending = append(q.pending, f)
	if len(q.pending) == 1 {
		go q.run(f)
	}
	return true
}

// run calls f and starts the next function on a goroutine of its own, because f may end this one.
func (q *queue) run(f func()) {
	defer func() {
		_ = recover()
		q.mu.Lock()
		defer q.mu.Unlock()
		q.done++
		if q.pending = slices.Delete(q.pending, 0, 1); len(q.pending) > 0 {
			go q.run(q.pending[0])
		}
	}()
	f()
}

// flush waits until every function that is in the queue now has run. It returns the error of ctx if that ends first.
func (q *queue) flush(ctx context.Context) error {
	q.mu.Lock()
	last := q.done + len(q.pending)
	q.mu.Unlock()

	return poll(ctx, func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.done >= last
	})
}

// poll waits until done returns true. It returns the error of ctx if that ends first. A channel to be woken by would
// belong to a synctest bubble.
func poll(ctx context.Context, done func() bool) error {
	for delay := time.Millisecond; !done(); delay = min(2*delay, 100*time.Millisecond) {
		if err := ctx.Err(); err != nil {
			return err
		}
		sleep(ctx, delay)
	}
	return nil
}
