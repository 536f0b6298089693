package redisfleet

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// patience is how long the fleet is waited for, which no call does.
const patience = 500 * time.Millisecond

// An engine is the [resilience.Fleet] of a member: it takes results to the store, and what the store says to the
// member's breakers. What it misses, because a message is lost or the store can't be reached, the next sync mends.
type engine struct {
	store  store
	id     string // of the member, in the store
	quorum int
	member *resilience.FleetMember

	first chan struct{} // closed after the first sync that succeeds or is refused
	whole chan struct{} // closed after the first sync that succeeds of a member that hears messages
	wake  chan struct{} // asks for a sync now

	renewed time.Time // when leases were; used by run, and by leave once run has ended

	hanging atomic.Int64 // calls of the store that still run though their context has ended

	mu      sync.Mutex // guards what follows; held while changes are applied, so that they are in order
	hears   bool       // messages, now or before
	clock   serverClock
	known   memory // of which the member has seen all; zero if it may have missed something
	learned        // of the store
	untold         // to the store
	health  Health
	refused error // why Join fails

	foreign  string    // another memory that a message was of: if it is the next one, the next sync says so
	hurried  time.Time // when such a message has asked for a sync
	reported time.Time // when the store was told of the last results
}

// errLeft is the error of a member's health once it has left, whatever the store says from then on.
var errLeft = errors.New("the member has left the fleet")

// learned is what a member has learned of a memory of the store.
type learned struct {
	since    string  // the memory that versions are of
	newest   int64   // of its versions
	before   lineage // the memories before it
	span     span    // what messages have told in a row since the member may have missed something
	versions map[string]version
	breakers map[string]entry // those that aren't closed, have failures, or haven't been read yet
}

// A span is the versions of a memory after this one, up to the last.
type span struct{ after, last int64 }

// with returns the span with another version, or that one alone if it isn't the next one.
func (s span) with(version int64) span {
	if version != s.last+1 {
		s.after = version - 1
	}
	s.last = version
	return s
}

// version is what a member has applied last of a breaker.
type version struct {
	number    int64
	time      time.Time // of the change: what is done next by hand is later
	recovered time.Time // when a probe has closed it last
}

// untold is what the store may not have heard of the member.
type untold struct {
	agreed  time.Time            // until when it has heard of the member's changes
	behind  bool                 // it has missed some since
	cleared map[string]time.Time // when a success has ended the failures of a breaker until then
}

// nothing is what a member has learned of a memory at first.
func nothing(since string) learned {
	return learned{since: since, versions: make(map[string]version), breakers: make(map[string]entry)}
}

// inherit lets the next sync end the isolations that an earlier membership has left, unless the store has them, too.
func (e *engine) inherit() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range e.member.Breakers() {
		if b.State == resilience.StateIsolated {
			e.breakers[b.ID] = entry{ID: b.ID, State: "isolated"}
		}
	}
}

func newEngine(s store, id string, cfg Config) *engine {
	quorum := cfg.Quorum
	if quorum == 0 {
		quorum = defaultQuorum
	}
	return &engine{
		store: s, id: id, quorum: quorum,
		first: make(chan struct{}), whole: make(chan struct{}), wake: make(chan struct{}, 1),
		learned: nothing(""), health: Health{Namespace: cfg.Namespace},
		untold: untold{behind: true, cleared: make(map[string]time.Time)},
	}
}

// Lease implements [resilience.Fleet]. Without an answer, the member decides by itself.
func (e *engine) Lease(
	ctx context.Context, b resilience.FleetBreaker, cause resilience.Cause,
) (granted bool, wait time.Duration) {
	if !e.connected() {
		return true, 0
	}
	reply, err := e.store.lease(ctx, b, cause)
	if err != nil {
		return true, 0
	}
	return reply.Granted, duration(reply.Wait)
}

// told applies the reply to a command of this time that may have changed a breaker.
func (e *engine) told(x entry, asked time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x.Since != e.since {
		e.resync()
		return
	}
	e.apply(x, asked)
}

// heard applies a message. One of the member itself says what the reply says, unless that is lost: then the breaker's
// state is news, but older than what the member has found out since.
func (e *engine) heard(x entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x.Since != e.since {
		if x.Since != e.foreign && time.Since(e.hurried) >= heartbeat {
			e.foreign, e.hurried = x.Since, time.Now()
			e.resync()
		}
		return
	}
	asked := time.Now()
	if x.By == e.id {
		asked = e.reported
	}
	if x.By == e.id && x.State == e.breakers[x.ID].State || e.apply(x, asked) {
		e.saw(x.Version) // also if it was no news
		e.span = e.span.with(x.Version)
		e.knows(e.known)
	}
}

// knows notes that the member has seen all of this memory, and therefore also what it has heard from there on without a
// gap. e.mu must be held.
func (e *engine) knows(known memory) {
	if known.Since == e.since && known.Version >= e.span.after {
		known.Version = max(known.Version, e.span.last)
	}
	e.known = known
}

// doubts notes that the member may have missed something, so that the next sync reads all. e.mu must be held.
func (e *engine) doubts() { e.known, e.span = memory{}, span{} }

// subscribed is called when messages may have been lost.
func (e *engine) subscribed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hears = true
	e.resync()
}

// isHearing reports whether the member hears messages, or has.
func (e *engine) isHearing() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hears
}

// crashed is called when the client has crashed while messages were awaited, but not for each time in a row.
func (e *engine) crashed(err error) {
	e.member.Warn("the client of Redis has crashed, and messages are awaited again", "error", err)
}

// resync asks for all breakers. e.mu must be held.
func (e *engine) resync() {
	e.doubts()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// apply applies what the store said when it was asked at this time, or later, unless it has said something newer
// since. What it says again is no news, unless the member's breaker has closed since, other than by its operator, or what
// it said before was lost, and this has its version; and as long as it has failures, it wants to hear of a success. It
// reports false if the member knows more. e.mu must be held.
func (e *engine) apply(x entry, asked time.Time) bool {
	c, last := x.change(asked), e.versions[x.ID]
	if x.Version < last.number || x.Asks && e.hasRecovered(x.ID, last.time) {
		return true
	}
	if x.Version == last.number && !last.time.IsZero() {
		b, _ := e.member.Breaker(x.ID)
		closed := c.State == resilience.StateOpen && b.State == resilience.StateClosed && b.Cause != resilience.CauseManual
		another := x.State != "closed" && x.State != e.breakers[x.ID].State
		if !closed && !another && c.Failures == 0 {
			return true
		}
	}
	if c.Cause == resilience.CauseManual && !c.Time.After(last.time) {
		c.Time = last.time.Add(1)
	}

	e.saw(x.Version)
	if !e.member.Apply(c) {
		if _, has := e.member.Breaker(x.ID); !has {
			return true // there is no room for what it may have later, until all is read again
		}
		e.doubts()
		return false
	}
	if x.State == "closed" && c.Cause != resilience.CauseManual && e.breakers[x.ID].State == "open" {
		last.recovered = c.Time
	}
	e.versions[x.ID] = version{x.Version, c.Time, last.recovered}
	x.made, x.came, x.Since = c.Time, time.Now(), e.since
	if x.State == "closed" && x.Failures == 0 {
		delete(e.breakers, x.ID)
	} else {
		e.breakers[x.ID] = x
	}
	return true
}

// hasRecovered reports whether the member's own calls or Probe have closed a breaker since then, of which the store may
// not have heard.
func (e *engine) hasRecovered(id string, since time.Time) bool {
	b, has := e.member.Breaker(id)
	return has && b.State == resilience.StateClosed && b.Cause != resilience.CauseManual && b.Changed.After(since)
}

// saw notes that the store has had this version of its memory. e.mu must be held.
func (e *engine) saw(version int64) {
	e.newest = max(e.newest, version)
	e.store.saw(memory{e.since, e.newest})
}

// heardOf returns the IDs of the fleet's breakers that aren't closed, or have failures.
func (e *engine) heardOf() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Keys(e.breakers))
}

func (e *engine) connected() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.health.Connected
}

// lost notes that the store can't be reached.
func (e *engine) lost(err error) {
	e.mu.Lock()
	if e.health.Error == errLeft {
		e.mu.Unlock()
		return
	}
	if e.health.Connected || e.health.Since.IsZero() {
		e.health.Connected, e.health.Since = false, time.Now()
	}
	e.health.Error = err
	e.doubts()
	e.mu.Unlock()
	e.member.Connected(err)
}

// found notes that the store has answered what was asked at this time, and how many members it knows. If it has missed
// results meanwhile, it asks for another sync.
func (e *engine) found(asked time.Time, members int) {
	e.mu.Lock()
	if e.health.Error == errLeft {
		e.mu.Unlock()
		return
	}
	if !e.health.Connected {
		e.health.Connected, e.health.Since = true, time.Now()
	}
	e.health.Error, e.health.Members = nil, members
	if e.behind {
		e.resync()
	} else {
		e.agreed = asked
	}
	e.mu.Unlock()
	e.member.Connected(nil)
}

// ready waits until the member knows what the store does, and has heard of all changes since. It returns why the store
// refuses the member.
func (e *engine) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 4*patience)
	defer cancel()
	select {
	case <-e.first:
	case <-ctx.Done():
	}

	e.mu.Lock()
	refused := e.refused
	e.mu.Unlock()
	if refused == nil {
		select {
		case <-e.whole:
		case <-ctx.Done():
		}
	}
	return refused
}

// leave tells the store what it hasn't heard of the member, and that the member leaves. If the store could not be
// reached before, it is no error that it still can't.
func (e *engine) leave(ctx context.Context) error {
	connected := e.connected()
	err := e.catchUp(ctx)
	if err == nil {
		_, err = bounded(ctx, &e.hanging, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, e.store.leave(ctx)
		})
	}
	if !connected && ctx.Err() == nil {
		return nil
	}
	return err
}

// hasLeft notes that the member has left.
func (e *engine) hasLeft() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.health.Error != errLeft {
		e.health = Health{Namespace: e.health.Namespace, Since: time.Now(), Error: errLeft}
	}
}
