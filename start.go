package resilience

import (
	"context"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxStarts is how many calls of one observer's Start may run at the same time, so that one that
	// hangs doesn't collect goroutines.
	maxStarts = 64

	// startPoll is how often a further call looks whether there is room for it.
	startPoll = time.Millisecond
)

// startsHang is what the log says of an observer whose Start takes longer.
const startsHang = "an observer's Start takes too long: events are lost until it returns"

// starts are the Starts of several observers for one call. They run one after the other, on a
// goroutine of their own, so that the call can go on without one that hangs.
type starts struct {
	event CallStart
	all   []*observer
	done  chan struct{}

	mu    sync.Mutex    // guards what follows; never held while user code runs
	begun bool          // the goroutine runs
	ended int           // how many observers have had their turn
	left  bool          // the call has gone on without the rest
	seen  callObservers // the result so far
}

// startAll calls the Starts of all observers. It returns those that have seen the call, with the
// context that they have made of ctx.
func startAll(ctx context.Context, e CallStart, all []*observer) callObservers {
	seen := callObservers{started: make([]*observer, 0, len(all)), ctx: ctx}
	for len(all) > 0 {
		if all[0].Start == nil { // the usual case, which needs no goroutine
			seen.started = append(seen.started, all[0])
			all = all[1:]
			continue
		}

		s := &starts{event: e, all: all, done: make(chan struct{}), seen: seen}
		go s.run()
		all = all[s.wait():]
		seen = s.seen
	}
	return seen
}

// wait returns how many observers have had their turn, once all have or the last of them hangs.
func (s *starts) wait() int {
	if n := new(patience).await(s.done, s.turn, s.leave); n >= 0 {
		return n + 1
	}
	return len(s.all)
}

// turn returns the number of the observer whose turn it is, from 0, or -1 if none has begun.
func (s *starts) turn() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun {
		return -1
	}
	return s.ended
}

// leave abandons the Start of the observer n, unless it has returned by now.
func (s *starts) leave(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != n {
		return false
	}

	s.left = true
	s.all[n].hanging.Add(1)
	s.all[n].lose(startsHang)
	return true
}

// run gives the observers their turns. If a Start ends the goroutine, another one goes on.
func (s *starts) run() {
	over := false
	defer func() {
		if !over {
			go s.run()
		}
	}()

	for o, ctx := s.next(); o != nil; o, ctx = s.next() {
		s.call(o, ctx)
	}
	over = true
}

// next returns the observer whose turn it is and the context for it, or nil if there is none.
func (s *starts) next() (*observer, context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = true
	if s.left || s.ended == len(s.all) {
		return nil, nil
	}

	return s.all[s.ended], s.seen.ctx
}

// call gives an observer its turn.
func (s *starts) call(o *observer, ctx context.Context) {
	var started context.Context
	ok := o.Start == nil
	defer func() {
		if p := recover(); p != nil {
			o.warnings.panicked(p, debug.Stack())
		}
		s.end(o, started, ok)
	}()

	if !ok && s.enter(o) {
		defer o.starting.Add(-1)
		started = o.startContext(ctx, s.event)
		ok = true
	}
}

// enter waits for room for another Start of o. It reports whether there is, and o isn't known to hang.
func (s *starts) enter(o *observer) bool {
	for o.hanging.Load() == 0 {
		if o.starting.Add(1) <= maxStarts {
			return true
		}
		o.starting.Add(-1)
		time.Sleep(startPoll)
		if s.hasLeft() {
			return false
		}
	}
	o.lose(startsHang)
	return false
}

func (s *starts) hasLeft() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left
}

// end ends the turn of o. If ok, the observer has seen the call. Its context may be nil.
func (s *starts) end(o *observer, started context.Context, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left {
		o.hanging.Add(-1)
		o.look()
		return
	}

	if ok {
		s.seen.started = append(s.seen.started, o)
	}
	if started != nil {
		s.seen.ctx = started
	}
	s.ended++
	if s.ended == len(s.all) {
		close(s.done)
	}
}

// startContext returns the context for the call that Start makes of ctx, or nil if Start returns nil.
func (o *observer) startContext(ctx context.Context, e CallStart) context.Context {
	base := &startContext{ctx}
	started := o.Start(base, e)
	switch {
	case started == nil:
		return nil
	case addsValues(started, base):
		return started // the usual case
	default:
		return valuesContext{ctx, context.WithoutCancel(started), new(atomic.Int32)}
	}
}

// A startContext is what Start gets, so that it can be found in what Start returns.
type startContext struct{ context.Context }

// addsValues reports whether ctx is base with values that context.WithValue has added. Any other context
// may have an end of its own. Done may be the caller's method, whose panic isn't the observer's.
func addsValues(ctx context.Context, base *startContext) bool {
	done := ask(base.Done)
	for ctx != nil && ask(ctx.Done) == done {
		if ctx == base {
			return true
		}
		ctx = embedded(ctx)
	}
	return false
}

// A valuesContext is the caller's context with values of another one: an observer may add values to
// a call's context, but may not end it.
type valuesContext struct {
	context.Context
	values  context.Context
	hanging *atomic.Int32 // questions to values that have taken too long, and still run
}

func (c valuesContext) Value(key any) any {
	if v := c.value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

// value asks a context that an observer may have made, and whose method may do anything. While one question hangs,
// there are no values.
func (c valuesContext) value(key any) any {
	var found any
	asked := func() { found = ask(func() any { return c.values.Value(key) }) }
	if c.hanging.Load() > 0 || !aside(c.hanging, asked) {
		return nil
	}
	return found
}
