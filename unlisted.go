package resilience

import (
	"math"
	"strings"
	"sync"
)

// These bound the memory for tools that aren't listed in the Config, since their names come
// from agents.
const (
	maxUnlisted = 1024
	maxNameLen  = 256
	othersName  = "(others)"

	// maxLooks is how many states are looked at to find one that may be forgotten, so that made-up names
	// don't make calls slow.
	maxLooks = 32
)

// unlistedTools holds the states of the tools that aren't listed in the Config. A full table forgets a
// state for a new one, the oldest first. A tool whose state is forgotten gets a new one when it is
// called again. It is safe for concurrent use.
type unlistedTools struct {
	byName sync.Map // of *toolState

	mu     sync.Mutex // guards what follows; held while byName changes, and by no call whose tool has a state
	states []*toolState
	next   int // the index of the state that is looked at next, once the table is full

	// labels holds the names that are labels. It only grows, as metrics do: they keep each label that
	// they have ever seen.
	labels map[string]struct{}
}

// get returns the state of a tool, or nil. The state may be forgotten at any time.
func (u *unlistedTools) get(name string) *toolState {
	s, _ := u.byName.Load(name)
	t, _ := s.(*toolState)
	return t
}

// enter returns the state of a tool, which the caller must leave. It makes one if there is none, and
// returns nil if there is no room.
func (u *unlistedTools) enter(name string, newState func(name string) *toolState) *toolState {
	if s := u.get(name); s != nil && s.enter() {
		return s
	}

	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.get(name) // again, because another call may have added it
	if s == nil {
		i := u.room()
		if i < 0 {
			return nil
		}
		s = newState(strings.Clone(name))
		s.setLabel(u.label(s.name))
		u.states[i] = s
		u.byName.Store(s.name, s)
	}
	s.enter() // it is in the table, so it hasn't been forgotten
	return s
}

// room returns the index for another state, or -1. It prefers to forget a state that holds nothing
// over one whose tool has failed before. u.mu must be held.
func (u *unlistedTools) room() int {
	if len(u.states) < maxUnlisted {
		u.states = append(u.states, nil)
		return len(u.states) - 1
	}

	failing := -1
	for range maxLooks {
		i := u.next
		u.next = (i + 1) % len(u.states)
		if u.forget(i, false) {
			return i
		}
		if failing < 0 && u.states[i].forgettable(true) {
			failing = i
		}
	}
	if failing >= 0 && u.forget(failing, true) {
		return failing
	}
	return -1
}

// forget forgets a state if nothing needs it. u.mu must be held.
func (u *unlistedTools) forget(i int, failing bool) bool {
	s := u.states[i]
	if !s.calls.CompareAndSwap(0, forgotten) {
		return false
	}
	if !s.forgettable(failing) { // only now, because no call can change that any more
		s.calls.Store(0)
		return false
	}

	u.byName.Delete(s.name)
	return true
}

// label returns the label of a tool, its name if there is room for another label. u.mu must be held.
func (u *unlistedTools) label(name string) string {
	if _, ok := u.labels[name]; !ok {
		if len(u.labels) == maxUnlisted {
			return othersName
		}
		if u.labels == nil {
			u.labels = make(map[string]struct{})
		}
		u.labels[name] = struct{}{}
	}
	return name
}

// forgotten is so far below zero that calls which come too late don't count it up to zero.
const forgotten = math.MinInt64 / 2

// enter keeps a state from being forgotten until leave is called. It reports false if that has happened
// already.
func (s *toolState) enter() bool { return s.calls.Add(1) > 0 }

func (s *toolState) leave() { s.calls.Add(-1) }

// inFlight returns how many calls have entered the state and haven't left it.
func (s *toolState) inFlight() int { return int(max(s.calls.Load(), 0)) }

// forgettable reports whether a state without calls may be forgotten. That of a tool that has failed
// may be only if failing is true, and never while its breaker is open.
func (s *toolState) forgettable(failing bool) bool {
	if s.kept.Load() || s.abandoned.all.Load() > 0 {
		return false
	}

	return s.breaker.resting() || failing && !s.breaker.rejects()
}
