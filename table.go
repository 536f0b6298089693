package resilience

import (
	"math"
	"sync"
	"sync/atomic"
)

// These bound the memory for names that come from agents.
const (
	maxEntries = 1024
	maxNameLen = 256
	othersName = "(others)"

	// maxLooks is how many entries are looked at to find one that may be forgotten, so that made-up names
	// don't make calls slow.
	maxLooks = 32
)

// A table keeps an entry for each of a bounded number of names. A full table forgets an entry for a new one, the
// oldest first. What is forgotten gets a new entry when it is called again. It is safe for concurrent use.
type table struct {
	byName sync.Map // of entries

	mu      sync.Mutex // guards what follows; held while byName changes, and by no call that finds its entry
	entries []entry
	next    int // the index of the entry that is looked at next, once the table is full

	// labels holds the names that are labels. It only grows, as metrics do: they keep each label that
	// they have ever seen.
	labels map[string]struct{}
}

// An entry is what a table keeps: the state of a tool, or a breaker of one of its keys.
type entry interface {
	tableName() any
	uses() *usage

	// added is called when others can find the entry in the table.
	added()

	// forgettable reports whether an entry that isn't used may be forgotten. One that holds failures may be
	// only if failing is true.
	forgettable(failing bool) bool

	// drop is called when the entry is forgotten.
	drop()
}

// A usage counts the calls that use an entry.
type usage struct {
	calls atomic.Int64 // negative once the entry is forgotten
	kept  atomic.Bool  // it must not be forgotten
}

// forgotten is so far below zero that calls which come too late don't count it up to zero.
const forgotten = math.MinInt64 / 2

// enter keeps an entry from being forgotten until leave is called. It reports false if that has happened
// already.
func (u *usage) enter() bool { return u.calls.Add(1) > 0 }

func (u *usage) leave() { u.calls.Add(-1) }

// inFlight returns how many calls have entered and haven't left.
func (u *usage) inFlight() int { return int(max(u.calls.Load(), 0)) }

// get returns the entry of a name, or nil. It may be forgotten at any time.
func (t *table) get(name any) entry {
	e, _ := t.byName.Load(name)
	found, _ := e.(entry)
	return found
}

// all returns all entries.
func (t *table) all() (entries []entry) {
	t.byName.Range(func(_, e any) bool {
		entries = append(entries, e.(entry))
		return true
	})
	return entries
}

// enter returns the entry of a name, which the caller must leave. It makes one if there is none, and
// returns nil if there is no room. create is called with t.mu held.
func (t *table) enter(name any, create func() entry) entry {
	if e := t.get(name); e != nil && e.uses().enter() {
		return e
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.get(name) // again, because another call may have added it
	if e == nil {
		i := t.room()
		if i < 0 {
			return nil
		}
		e = create()
		t.entries[i] = e
		t.byName.Store(e.tableName(), e)
		e.added()
	}
	e.uses().enter() // it is in the table, so it hasn't been forgotten
	return e
}

// room returns the index for another entry, or -1. It prefers to forget one that holds nothing over one that
// holds failures. t.mu must be held.
func (t *table) room() int {
	if len(t.entries) < maxEntries {
		t.entries = append(t.entries, nil)
		return len(t.entries) - 1
	}

	failing := -1
	for range maxLooks {
		i := t.next
		t.next = (i + 1) % len(t.entries)
		if t.forget(i, false) {
			return i
		}
		if failing < 0 && t.mayForget(i, true) {
			failing = i
		}
	}
	if failing >= 0 && t.forget(failing, true) {
		return failing
	}
	return -1
}

// forget forgets an entry if nothing needs it. t.mu must be held.
func (t *table) forget(i int, failing bool) bool {
	u := t.entries[i].uses()
	if !u.calls.CompareAndSwap(0, forgotten) {
		return false
	}
	if !t.mayForget(i, failing) { // only now, because no call can change that any more
		u.calls.Store(0)
		return false
	}

	t.byName.Delete(t.entries[i].tableName())
	t.entries[i].drop()
	return true
}

func (t *table) mayForget(i int, failing bool) bool {
	e := t.entries[i]
	return !e.uses().kept.Load() && e.forgettable(failing)
}

// label reports whether a name may be a label, because there is room for it. t.mu must be held.
func (t *table) label(name string) bool {
	if _, ok := t.labels[name]; !ok {
		if len(t.labels) == maxEntries {
			return false
		}
		if t.labels == nil {
			t.labels = make(map[string]struct{})
		}
		t.labels[name] = struct{}{}
	}
	return true
}
