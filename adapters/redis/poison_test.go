package redisfleet

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"pgregory.net/rapid"
)

// A member whose own network is broken poisons no other, whatever happens to the store and to the other members; but
// for a store that has lost its memory while it can't hear the others.
func TestMemberWhoseNetworkIsBrokenPoisonsNoOther(t *testing.T) { checkInBubbles(t, cutOff) }

func cutOff(r *rapid.T) {
	i := &interleaving{store: newModel()}
	names := []string{"cut off", "a", "b", "c", "d", "e", "f"}
	for range 3 {
		i.join(names[len(i.members)])
	}
	next := len(i.members)

	own, cut := i.members[0], atomic.Bool{}
	defer func() {
		time.Sleep(time.Minute)
		for len(i.members) > 0 {
			i.leave(i.members[0], false)
		}
		time.Sleep(time.Minute) // no time passes once this has returned
	}()

	call := func(m *member) {
		_, _ = resilience.Do(context.Background(), m.guard, "search", func(context.Context) (int, error) {
			if m == own && cut.Load() {
				return 0, errBackend
			}
			return 0, nil
		})
	}
	draw := func(r *rapid.T, least int) *member {
		return i.members[rapid.IntRange(least, len(i.members)-1).Draw(r, "member")]
	}
	allHeard := func(r *rapid.T) { // a store that has lost its memory knows of nobody whom it doesn't hear
		for _, m := range i.members[1:] {
			if m.store.down.Load() || m.troubled {
				r.Skip("a member is out of reach")
			}
		}
	}

	r.Repeat(map[string]func(*rapid.T){
		"call": func(r *rapid.T) { call(draw(r, 0)) },
		"calls of the one": func(*rapid.T) {
			for range 3 {
				call(own)
			}
		},
		"network": func(*rapid.T) { cut.Store(!cut.Load()) },
		"time passes": func(r *rapid.T) {
			time.Sleep(time.Duration(rapid.IntRange(1, 8000).Draw(r, "ms")) * time.Millisecond)
		},
		"store": func(r *rapid.T) {
			m := draw(r, 0)
			m.store.down.Store(!m.store.down.Load())
		},
		"flush": func(r *rapid.T) {
			allHeard(r)
			i.store.flush()
			i.back = nil
			time.Sleep(hearsay)
		},
		"replica falls behind": func(r *rapid.T) {
			allHeard(r)
			i.back = i.store.snapshot()
		},
		"failover": func(r *rapid.T) {
			if i.back == nil {
				r.Skip("no replica")
			}
			allHeard(r)
			i.failover()
			time.Sleep(hearsay)
		},
		"reset":        func(r *rapid.T) { _ = draw(r, 0).fleet.Reset(context.Background(), "search") },
		"reset of one": func(r *rapid.T) { draw(r, 0).guard.Breaker("search").Reset() },
		"fault": func(r *rapid.T) {
			m, op := draw(r, 0), rapid.SampledFrom(operations).Draw(r, "operation")
			switch rapid.IntRange(0, 2).Draw(r, "fault") {
			case 0:
				m.store.refuse(errLost, op)
			case 1:
				m.store.loseReplies(op)
			case 2:
				m.store.delayOnce(op, hearsay)
			}
			m.troubled = true
		},
		"mend": func(r *rapid.T) {
			m := draw(r, 0)
			m.store.mend()
			m.troubled = false
		},
		"join": func(r *rapid.T) {
			if next == len(names) {
				r.Skip("enough members")
			}
			i.join(names[next])
			next++
		},
		"leave": func(r *rapid.T) {
			if len(i.members) < 3 {
				r.Skip("too few members")
			}
			i.leave(draw(r, 1), rapid.Bool().Draw(r, "dies"))
		},
		"": func(r *rapid.T) {
			synctest.Wait()
			for _, m := range i.members[1:] {
				if state := m.guard.Breaker("search").State(); state != resilience.StateClosed {
					r.Fatalf("%s is %s", m.store.me, state)
				}
			}
		},
	})
}
