package resilience

import (
	"context"
	"sync"
	"time"
)

// A lane runs user code that nobody must wait for: in order, one function at a time, on a
// goroutine that lives only while there are any. One that blocks holds up what comes after
// it in this lane; one that panics or calls runtime.Goexit doesn't even do that.
//
// It has no channel: a channel belongs to the synctest bubble that it was made in, and a
// guard may be used in several.
type queue struct {
	mu      sync.Mutex // never held while user code runs
	waiting []func()
	working bool
	taken   int // how many have been run, with what runs now
}

// maxWaiting bounds the memory of a lane that is held up.
const maxWaiting = 1024

// add reports whether there was room for f.
func (l *queue) add(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) >= maxWaiting {
		return false
	}
	l.waiting = append(l.waiting, f)
	if !l.working {
		l.working = true
		go l.work()
	}
	return true
}

func (l *queue) work() {
	done := false
	defer func() {
		if !done {
			_ = recover()
			go l.work()
		}
	}()
	for f := l.next(); f != nil; f = l.next() {
		f()
	}
	done = true
}

// next returns nil when the goroutine is no longer needed.
func (l *queue) next() func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.waiting, l.working = nil, false
		return nil
	}
	f := l.waiting[0]
	l.waiting[0] = nil
	l.waiting = l.waiting[1:]
	l.taken++
	return f
}

// empty reports whether nothing waits behind what runs now.
func (l *queue) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) == 0
}

// flush returns when all that waits now has run, or ctx ends. It looks again and again: to
// be woken, it would need a channel.
func (l *queue) flush(ctx context.Context) error {
	l.mu.Lock()
	last := l.taken + len(l.waiting)
	l.mu.Unlock()
	for delay := time.Millisecond; ; delay = min(2*delay, 100*time.Millisecond) {
		l.mu.Lock()
		done := !l.working || l.taken > last
		l.mu.Unlock()
		if done {
			return nil
		}
		if !sleep(ctx, delay) {
			return ctx.Err()
		}
	}
}
