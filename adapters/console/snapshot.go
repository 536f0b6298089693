package console

import (
	"reflect"
	"time"
)

// A snapshot is a document that all readers share. It isn't modified.
type snapshot struct {
	document
	tools    map[string]tool // by name, with those rows of their history only that may still change
	breakers map[string]breaker
}

// An update is what has changed between two snapshots.
type update struct {
	heading
	Tools    []tool    `json:"tools,omitempty"` // whose history has only the rows that may have changed
	Breakers []breaker `json:"breakers,omitempty"`
	Gone     []string  `json:"gone,omitempty"` // breakers
	Changes  []change  `json:"changes,omitempty"`
	closed   bool      // whether that has changed
}

// snapshot returns one that is younger than half an interval, so that the guard's work doesn't grow with the
// number of readers.
func (c *Console) snapshot() *snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.latest; s != nil && time.Since(s.Time) < interval/2 {
		return s
	}

	s := &snapshot{document: c.document(), tools: make(map[string]tool), breakers: make(map[string]breaker)}
	for _, t := range s.document.Tools {
		t.History = latest(t.History, s.Time)
		s.tools[t.Tool] = t
	}
	for _, b := range s.document.Breakers {
		s.breakers[b.Breaker] = b
	}
	c.latest = s
	return s
}

// latest returns the rows of the step at a time, of the one before, and of later ones.
func latest(rows []row, now time.Time) []row {
	first := len(rows)
	for first > 0 && rows[first-1].start > now.Add(-2*step).Unix() {
		first--
	}
	return rows[first:]
}

// since returns what has changed since an earlier snapshot.
func (s *snapshot) since(old *snapshot) update {
	u := update{heading: s.heading, closed: s.Closed != old.Closed}
	for _, t := range s.document.Tools {
		was, ok := old.tools[t.Tool]
		if ok { // the reader has the rest
			t.History = latest(t.History, old.Time)
		}
		if !reflect.DeepEqual(t, was) {
			u.Tools = append(u.Tools, t)
		}
	}
	for _, b := range s.document.Breakers {
		if was, ok := old.breakers[b.Breaker]; !ok || !reflect.DeepEqual(b, was) {
			u.Breakers = append(u.Breakers, b)
		}
	}

	for name := range old.breakers {
		if _, ok := s.breakers[name]; !ok {
			u.Gone = append(u.Gone, name)
		}
	}

	last := uint64(0)
	if n := len(old.Changes); n > 0 {
		last = old.Changes[n-1].Number
	}
	for _, change := range s.Changes {
		if change.Number > last {
			u.Changes = append(u.Changes, change)
		}
	}
	return u
}

func (u *update) isEmpty() bool {
	return len(u.Tools) == 0 && len(u.Breakers) == 0 && len(u.Changes) == 0 && !u.closed &&
		len(u.Gone) == 0
}
