package redisfleet

import (
	"context"
	"slices"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// actsKept is for how long a member remembers its own changes, whose events may be late.
const actsKept = time.Minute

// A view is what a member knows of the fleet, and what it has to say.
type view struct {
	known   answer
	since   int64 // answer.now of the first one: what operators have reset before was done without this member
	news    map[string]*news
	imposed map[*resilience.Breaker]imposed
	acts    []act
}

func newView() view {
	return view{
		known: answer{breakers: make(map[string]shared), isolated: make(map[string]string)},
		news:  make(map[string]*news),
	}
}

// A news is what a member has to tell of a breaker, in this order.
type news struct {
	byHand    *resilience.BreakerChange // the last one; nil if there is none
	closed    bool                      // the member's probe has succeeded
	succeeded bool
	failures  int // since then
}

// An imposed is what a member has done to a breaker because the fleet says so.
type imposed struct {
	openUntil int64 // shared.OpenUntil of that opening; zero if the fleet's isn't open
	reset     int64 // shared.Reset
	isolated  bool
}

// An act is a change that the member itself has made to a breaker, as the fleet says.
type act struct {
	breaker  string
	from, to time.Time
}

// ended is called at the end of each call.
func (f *Fleet) ended(_ context.Context, e resilience.CallEnd) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.guard == nil || e.Breaker == "" {
		return
	}

	known := f.known.breakers[e.Breaker]
	n := f.news[e.Breaker]
	switch {
	case e.Counted:
		f.tellOf(e.Breaker).failures++
	case e.Err != nil || e.Unfinished || known.OpenUntil > 0:
	case known.Failures > 0 || n != nil && n.failures > 0:
		n = f.tellOf(e.Breaker)
		n.succeeded, n.failures = true, 0
		delete(f.known.breakers, e.Breaker)
	}
}

// changed is called for each change of a breaker of the guard. What an operator does concerns the whole fleet.
func (f *Fleet) changed(e resilience.BreakerChange) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.guard == nil {
		return
	}

	switch {
	case e.Cause == resilience.CauseManual && !f.isOwn(e):
		*f.tellOf(e.Breaker) = news{byHand: &e}
	case e.Cause != resilience.CauseManual && e.To == resilience.StateClosed:
		n := f.tellOf(e.Breaker)
		n.closed, n.failures = true, 0
	default:
		return
	}

	// What is known is out of date by now.
	delete(f.known.breakers, e.Breaker)
	delete(f.known.isolated, e.Breaker)
	if e.To == resilience.StateIsolated {
		f.known.isolated[e.Breaker] = e.Reason
	}
}

// tellOf returns what there is to tell of a breaker, and wakes the loop. f.mu must be held.
func (f *Fleet) tellOf(breaker string) *news {
	n := f.news[breaker]
	if n == nil {
		n = new(news)
		f.news[breaker] = n
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
	return n
}

// follow makes the guard's breakers as the fleet's are: each opening of the fleet opens a breaker once, and only what
// the fleet has opened or isolated is closed with it. f.mu must be held.
func (f *Fleet) follow() {
	a := f.known
	if f.guard == nil || len(a.breakers) == 0 && len(a.isolated) == 0 && len(f.imposed) == 0 {
		return
	}

	next := make(map[*resilience.Breaker]imposed)
	for _, b := range f.guard.Breakers() {
		was := f.imposed[b]
		if n := f.news[b.Name()]; n == nil || n.byHand == nil && !n.closed { // otherwise the member knows more
			was = f.impose(b, was)
		}
		if was != (imposed{}) {
			next[b] = was
		}
	}
	f.imposed = next
}

// impose makes a breaker as the fleet's is, and returns what the fleet has imposed on it then. f.mu must be held.
func (f *Fleet) impose(b *resilience.Breaker, was imposed) imposed {
	s := f.known.breakers[b.Name()]
	reason, isolated := f.known.isolated[b.Name()]

	reset := s.Reset > max(was.reset, f.since)

	own, isIsolated := b.Isolated()
	switch {
	case isolated && (!isIsolated || own != reason):
		f.act(b, func() { b.Isolate(reason) })
	case !isolated && isIsolated && (was.isolated || reset):
		f.act(b, b.Reset)
		was.openUntil = 0
	}

	over := s.OpenUntil == 0 && was.openUntil > 0 || reset
	switch state := b.State(); {
	case isolated:
	case s.OpenUntil > 0 && s.OpenUntil != was.openUntil:
		f.act(b, func() { b.Trip(max(f.known.left(s), time.Millisecond)) })
	case s.OpenUntil > 0 && state == resilience.StateClosed: // it was closed while Redis was away
		f.tellOf(b.Name()).closed = true
	case over && (state == resilience.StateOpen || state == resilience.StateHalfOpen):
		f.act(b, b.Reset)
	}
	return imposed{s.OpenUntil, s.Reset, isolated}
}

// act changes a breaker, so that isOwn recognizes the event. f.mu must be held.
func (f *Fleet) act(b *resilience.Breaker, change func()) {
	from := time.Now()
	change()
	f.acts = slices.DeleteFunc(f.acts, func(a act) bool { return from.Sub(a.to) > actsKept })
	f.acts = append(f.acts, act{b.Name(), from, time.Now()})
}

// isOwn reports whether the member itself has made a change. f.mu must be held.
func (f *Fleet) isOwn(e resilience.BreakerChange) bool {
	return slices.ContainsFunc(f.acts, func(a act) bool {
		return a.breaker == e.Breaker && !e.Time.Before(a.from) && !e.Time.After(a.to)
	})
}
