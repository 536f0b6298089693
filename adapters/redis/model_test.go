package redisfleet

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// life is that of a breaker, since it was mentioned last, or up to an hour before.
const life = keep + time.Hour

// A model is what fleet.lua does, in Go, for tests in fake time: without a server, a network or bytes.
type model struct {
	mu        sync.Mutex
	now       func() time.Time // the server's clock, which may differ from the members', and be set back
	clock     modelClock
	memories  int // how many there were
	since     int // which this one is
	of        memory
	before    []string // the memories that this one comes after; nil if no member has been heard of in it
	version   int64
	members   map[string]time.Time // when one was heard of last
	awake     time.Time            // when one was heard of, and no other
	breakers  map[string]*modelBreaker
	configs   map[string]time.Time
	listeners map[*modelStore]listener
	commands  map[string]int // how many it has executed, by operation
}

// A modelClock never goes back.
type modelClock struct {
	last  time.Time     // what it was at the last command
	ahead time.Duration // of the server's
}

type modelBreaker struct {
	entry
	row         int64           // the version with which the first of its failures was counted
	by          map[string]bool // whose failures are in the row
	failed      map[string]turn // the members whose call was a probe in vain
	probed      map[string]turn // and those who have asked for a Probe; due is until when they ask for the next
	probes      int             // how many were
	last        time.Time       // when the last failure was
	succeeded   time.Time       // when a member with some of them had succeeded last before its own
	at, probeAt time.Time
	opened      time.Time // since when Probes that fail may put calls off
	lease       string
	prober      string    // whose Probe was the last one, unless it has failed
	hangs       time.Time // until when that may hang
	reset       time.Time // when it was reset by hand; zero if it wasn't
	blind       time.Time // until when an opening means that Probes can't see what is wrong
	recovered   time.Time // when a probe has succeeded last
	remembered  time.Time // until when that is
	isolated    time.Time // when it was isolated
	leased      time.Time
	until       time.Time
	vain        time.Duration // how long all leases were that have ended without a result since the last one
	expires     time.Time     // when it is forgotten, unless it is read before
}

// A turn is which of the probes that were in vain was the last one of a member, and when a call may be the next one.
type turn struct {
	nth int
	due time.Time
}

func newModel() *model {
	m := &model{now: time.Now, listeners: make(map[*modelStore]listener), commands: make(map[string]int)}
	m.flush()
	return m
}

// flush forgets everything, as FLUSHALL and the loss of a disk do.
func (m *model) flush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.memories++
	m.since, m.of, m.version, m.before = m.memories, memory{}, 0, nil
	m.members, m.awake, m.clock = make(map[string]time.Time), time.Time{}, modelClock{}
	m.breakers = make(map[string]*modelBreaker)
	m.configs = make(map[string]time.Time)
}

// snapshot returns a function that sets the breakers back to what they are now, as a failover to an older replica does.
func (m *model) snapshot() (restore func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	since, of, before, version, clock, breakers := m.since, m.of, m.before, m.version, m.clock, m.clone()
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.since, m.of, m.before, m.version, m.clock, m.breakers = since, of, before, version, clock, breakers
		breakers = m.clone() // for another time
	}
}

func (m *model) clone() map[string]*modelBreaker {
	all := make(map[string]*modelBreaker)
	for id, b := range m.breakers {
		clone := *b
		clone.by, clone.failed, clone.probed = maps.Clone(b.by), maps.Clone(b.failed), maps.Clone(b.probed)
		all[id] = &clone
	}
	return all
}

// memory returns which one it is, and its version.
func (m *model) memory() (since int, version int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.since, m.version
}

// breaker returns a breaker for a test.
func (m *model) breaker(id string) entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view(id, "test")
}

// executed returns how many commands there were since it was asked last, by operation.
func (m *model) executed() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.commands
	m.commands = make(map[string]int)
	return before
}

// time returns the fleet's time.
func (m *model) time() time.Time {
	now := m.now().Add(m.clock.ahead)
	if now.Before(m.clock.last) {
		return m.clock.last
	}
	return now
}

// expire forgets what nobody has mentioned for long.
func (m *model) expire() {
	maps.DeleteFunc(m.breakers, func(_ string, b *modelBreaker) bool { return b.expires.Before(m.time()) })
}

// present reports whether a member was heard of lately.
func (m *model) present(member string) bool {
	heard, ok := m.members[member]
	return ok && !heard.Before(m.time().Add(-absence))
}

// heard returns how many members were heard of lately.
func (m *model) heard() (n int) {
	for member := range m.members {
		if m.present(member) {
			n++
		}
	}
	return n
}

// live returns how many members there are.
func (m *model) live() (n int) { return max(m.heard(), 1) }

// alive says that the member is.
func (m *model) alive(me string) {
	maps.DeleteFunc(m.members, func(_ string, heard time.Time) bool { return m.time().Sub(heard) > 10*time.Minute })
	if m.heard() == 0 {
		m.awake = m.time()
	}
	m.members[me] = m.time()
	m.clock.last = m.time()
	m.clock.ahead = m.clock.last.Sub(m.now())
}

// needed returns how many members must have seen failures to open a breaker.
func (m *model) needed(quorum int) int {
	if m.time().Sub(m.awake) < absence {
		return quorum
	}
	return min(quorum, len(m.members))
}

// forgetAbsent forgets those who aren't there any more, and returns how many are.
func forgetAbsent[V any](m *model, all map[string]V) int {
	maps.DeleteFunc(all, func(member string, _ V) bool { return !m.present(member) })
	return len(all)
}

// turn returns the turn of a member.
func (b *modelBreaker) turn(member string) turn {
	if t, ok := b.failed[member]; ok {
		return t
	}
	return turn{due: b.at}
}

// owed returns whether there are members who have had no turn since this one, and since when calls of all of them may.
func (m *model) owed(b *modelBreaker, cause resilience.Cause, me string) (some bool, since time.Time) {
	turns := b.failed
	if cause == resilience.CauseProbe {
		turns = b.probed
	}
	mine := turns[me].nth
	if mine == 0 {
		return false, since
	}
	if n := forgetAbsent(m, turns); cause == resilience.CauseCalls && n < m.live() {
		some, since = true, b.at
	}
	for _, t := range turns {
		if t.nth < mine && (cause == resilience.CauseCalls || t.due.After(m.time())) {
			some, since = true, latest(since, t.due)
		}
	}
	return some, since
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// lapse forgets a lease that has ended without a result.
func (b *modelBreaker) lapse(now time.Time) {
	if b.lease == "" || b.until.After(now) {
		return
	}
	b.probes++
	b.failed[b.lease] = turn{b.probes, b.turn(b.lease).due}
	b.vain += b.until.Sub(b.leased)
	b.lease = ""
}

// keptOut returns until when the lease of another member keeps calls of this one from being the probe.
func (b *modelBreaker) keptOut(me string) time.Time {
	switch {
	case b.lease == "" || b.lease == me:
		return time.Time{}
	case b.turn(me).nth >= b.turn(b.lease).nth || b.until.Before(b.leased.Add(absence)):
		return b.until
	}
	return b.leased.Add(absence)
}

func (b *modelBreaker) isAtRest() bool { return b.State == "closed" && b.Failures == 0 }

func (m *model) wasReset(id string) bool {
	b := m.breakers[id]
	return b != nil && m.time().Sub(b.reset) < time.Minute
}

// isBlind reports whether Probes can't see what is wrong if the breaker opens now.
func (m *model) isBlind(id string) bool {
	b := m.breakers[id]
	return b != nil && b.blind.After(m.time())
}

// recovery returns when a probe has closed a breaker last, as far as that is remembered.
func (m *model) recovery(id string) time.Time {
	if b := m.breakers[id]; b != nil && b.remembered.After(m.time()) {
		return b.recovered
	}
	return time.Time{}
}

// closeNow closes a breaker, and keeps for its time what has one.
func (m *model) closeNow(id string) {
	closed := &modelBreaker{entry: entry{State: "closed", Cause: "calls"}}
	if m.wasReset(id) {
		closed.reset = m.breakers[id].reset
	}
	if m.isBlind(id) {
		closed.blind = m.breakers[id].blind
	}
	if !m.recovery(id).IsZero() {
		closed.recovered, closed.remembered = m.breakers[id].recovered, m.breakers[id].remembered
	}
	if m.breakers[id] = closed; closed.reset.IsZero() && closed.blind.IsZero() && closed.remembered.IsZero() {
		delete(m.breakers, id)
	}
}

// recover closes a breaker after a probe that has succeeded at this time.
func (m *model) recover(id string, at time.Time) {
	if b := m.breakers[id]; b != nil && !b.isAtRest() {
		m.closeNow(id)
	}
	if m.breakers[id] == nil {
		m.breakers[id] = &modelBreaker{entry: entry{State: "closed", Cause: "calls"}}
	}
	b := m.breakers[id]
	b.recovered, b.remembered = latest(at, m.recovery(id)), m.time().Add(lately)
}

// view returns a breaker as the member knows it.
func (m *model) view(id, me string) entry {
	e := entry{ID: id, State: "closed", Cause: "calls", Since: fmt.Sprint(m.since), Failed: -1, Opened: -1}
	b := m.breakers[id]
	if b == nil {
		return e
	}
	e.State, e.Failures, e.Cause, e.Reason, e.Version = b.State, b.Failures, b.Cause, b.Reason, b.Version
	at := latest(b.turn(me).due, b.keptOut(me))
	e.Wait = max(at.Sub(m.time()).Milliseconds(), 0)
	if b.State == "open" {
		e.Failed, e.Opened = milliseconds(m.time().Sub(b.last)), milliseconds(m.time().Sub(b.opened))
	}
	if b.Cause == "manual" {
		made := b.reset
		if b.State == "isolated" {
			made = b.isolated
		}
		e.Age = milliseconds(m.time().Sub(made))
	}
	return e
}

// changed notes that a breaker has changed, and tells all members.
func (m *model) changed(id, me string, told func(*entry)) entry {
	m.version++
	if b := m.breakers[id]; b != nil {
		b.Version, b.expires = m.version, m.time().Add(life)
		if b.isAtRest() {
			b.expires = earliest(latest(latest(b.reset.Add(time.Minute), b.blind), b.remembered), b.expires)
		}
	}
	e := m.view(id, me)
	e.Version, e.By = m.version, me
	if told != nil {
		told(&e)
	}
	for s, l := range m.listeners {
		s.send(func() { l.heard(e) })
	}
	return e
}
