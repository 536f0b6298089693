package redisfleet

import (
	"context"
	"time"

	"github.com/seed8d1e2389/resilience"
	"pgregory.net/rapid"
)

// A wish is what the operator has made of the fleet.
type wish struct {
	state resilience.State // closed or isolated
	known bool             // false after an error, or if those who knew it are gone
	at    time.Time
	calm  time.Time // when the last trouble was, in which members may have missed something
}

const hearsay = 5 * time.Second // until all have heard of a change who can

// operate isolates or resets the breaker for all.
func (i *interleaving) operate(m *member, state resilience.State) {
	if time.Since(i.wish.calm) < 2*hearsay {
		time.Sleep(2 * hearsay) // a late command may be under way
	}
	var err error
	if state == resilience.StateIsolated {
		err = m.fleet.Isolate(context.Background(), "search", "")
	} else {
		err = m.fleet.Reset(context.Background(), "search")
	}
	stale := false
	for _, m := range i.members {
		stale = stale || m.stale
	}
	i.wish.state, i.wish.known, i.wish.at = state, err == nil && !stale, time.Now()
	time.Sleep(time.Millisecond) // an operator does one thing at a time
	if err != nil {
		i.wish.calm = time.Now()
	}
}

// forgets says that the store loses its memory, or a part of it. A member must be there that knows the rest.
func (i *interleaving) forgets() {
	knows := false
	for _, m := range i.members {
		i.wish.known = i.wish.known && !m.store.down.Load() // it may not have heard of it
		heard := i.wish.state == resilience.StateIsolated || m.joined.Before(i.wish.at)
		knows = knows || heard && !m.troubled
		m.stale = m.stale || m.troubled || m.store.down.Load()
	}
	now := time.Now()
	i.wish.known = i.wish.known && knows && now.Sub(i.wish.at) > hearsay && now.Sub(i.wish.calm) > hearsay
	i.wish.calm = now
	i.alone = true
}

// failover sets the store back, after an outage that all members notice.
func (i *interleaving) failover() {
	i.forgets()
	var cut []*member
	for _, m := range i.members {
		if !m.store.down.Swap(true) {
			cut = append(cut, m)
		}
	}
	time.Sleep(2 * time.Second)
	_, newest := i.store.memory()
	i.back()
	if since, version := i.store.memory(); version < newest {
		i.older = since
	}
	for _, m := range cut {
		m.store.down.Store(false)
	}
	i.wish.calm = time.Now()
}

// isOlder reports whether nobody has noticed yet that the store has gone back to an older memory.
func (i *interleaving) isOlder() bool {
	since, _ := i.store.memory()
	return since == i.older
}

// agree checks that all members are as the store has it, and as the operator wants it.
func (i *interleaving) agree(r *rapid.T) {
	isolated := i.store.breaker("listed/search").State == "isolated"
	if i.wish.known && isolated != (i.wish.state == resilience.StateIsolated) {
		r.Fatalf("isolated: %v; the operator wants it to be %v", isolated, i.wish.state)
	}
	for _, m := range i.members {
		if here := m.guard.Breaker("search").State() == resilience.StateIsolated; here != isolated {
			r.Fatalf("isolated: %v; for %s: %v", isolated, m.store.me, here)
		}
	}
}
