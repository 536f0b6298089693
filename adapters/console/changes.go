package console

import (
	"sync"
	"time"

	"github.com/seed8d1e2389/resilience"
)

const (
	maxChanges = 200

	// maxSince is more than a guard has breakers, unless thousands are listed in its Config.
	maxSince = 4096
)

// A change of a breaker's state, in the JSON of changes.
type change struct {
	Number  uint64           `json:"number"` // counted from 1
	Time    time.Time        `json:"time"`
	Breaker string           `json:"breaker"`
	From    resilience.State `json:"from"`
	To      resilience.State `json:"to"`
	Cause   resilience.Cause `json:"cause"`
	Reason  string           `json:"reason,omitempty"`
}

// changes keeps the last changes, and what each breaker that isn't closed was brought to that by.
type changes struct {
	mu    sync.Mutex
	total uint64
	ring  [maxChanges]change // by number, modulo its length

	// since has the changes by which breakers ceased to be closed. A guard may forget a breaker without a
	// change, so its size is bounded by itself.
	since map[string]*change
}

// record keeps a change. It runs on the goroutine of the observer.
func (c *changes) record(e resilience.BreakerChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total++
	n := &change{c.total, e.Time, e.Breaker, e.From, e.To, e.Cause, e.Reason}
	c.ring[c.total%maxChanges] = *n

	switch {
	case e.To == resilience.StateClosed:
		delete(c.since, e.Breaker)
	case e.From == resilience.StateClosed:
		if c.since == nil || len(c.since) >= maxSince {
			c.since = make(map[string]*change)
		}
		c.since[e.Breaker] = n
	}
}

// list returns the changes that are kept, the oldest first.
func (c *changes) list() []change {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := []change{}
	for n := c.total - min(c.total, maxChanges) + 1; n <= c.total; n++ {
		all = append(all, c.ring[n%maxChanges])
	}
	return all
}

// of returns the change by which a breaker ceased to be closed, nil if it isn't known.
func (c *changes) of(breaker string) *change {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.since[breaker]
}
