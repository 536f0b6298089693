package redisfleet

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// An interleaving is a fleet of a few members to which anything happens, in an order that rapid chooses.
type interleaving struct {
	store   *model
	members []*member
	probes  bool         // whether breakers have a Probe
	broken  atomic.Bool  // the backend
	probing atomic.Int64 // calls of open or half-open breakers that the backend hasn't answered yet
	alone   bool         // whether a member may be without a lease, because the store was away
	back    func()       // sets the store back to what it was, as a failover does
	older   int          // the memory that the store has gone back to
	wish    wish
}

// A member is one server of an interleaving.
type member struct {
	guard    *resilience.Guard
	fleet    *Fleet
	store    *modelStore
	joined   time.Time
	troubled bool // it has a fault
	stale    bool // it may know an older memory of the store
}

const interleavedCooldown = 10 * time.Second

func (i *interleaving) join(name string) {
	m := &member{store: i.store.store(name), joined: time.Now()}
	breaker := resilience.BreakerConfig{Failures: 3, Cooldown: interleavedCooldown}
	if i.probes {
		breaker.Probe, breaker.ProbeInterval = i.probe, 4*time.Second
	}
	m.guard = resilience.Must(resilience.New(resilience.Config{
		Breaker: breaker,
		Retry:   resilience.Retry{MaxRetries: -1}, Tools: map[string]resilience.Tool{"search": {}},
		Log: slog.New(slog.DiscardHandler),
	}))
	var err error
	m.fleet, err = join(context.Background(), m.store, name, m.guard, Config{Namespace: "test"})
	if err != nil {
		panic(err)
	}
	i.members = append(i.members, m)
	synctest.Wait()
}

// leave ends a member, which says so, or dies.
func (i *interleaving) leave(m *member, dies bool) {
	m.store.down.Store(dies)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = m.fleet.Leave(ctx)
	for n, other := range i.members {
		if other == m {
			i.members = append(i.members[:n], i.members[n+1:]...)
			return
		}
	}
}

// call makes a call that the backend answers after some time.
func (i *interleaving) call(m *member, takes time.Duration) error {
	_, err := resilience.Do(context.Background(), m.guard, "search", func(context.Context) (int, error) {
		if m.guard.Breaker("search").State() != resilience.StateClosed {
			i.probing.Add(1)
			defer i.probing.Add(-1)
		}
		time.Sleep(takes)
		if i.broken.Load() {
			return 0, errBackend
		}
		return 0, nil
	})
	return err
}

// probe is the Probe of each member, for which the backend takes a second.
func (i *interleaving) probe(context.Context) error {
	i.probing.Add(1)
	defer i.probing.Add(-1)
	time.Sleep(time.Second)
	if i.broken.Load() {
		return errBackend
	}
	return nil
}

// check holds after each step.
func (i *interleaving) check(r *rapid.T) {
	synctest.Wait()
	if n := i.probing.Load(); n > 1 && !i.alone {
		r.Fatalf("%d probes at once", n)
	}
	for _, m := range i.members {
		if after := m.guard.Breaker("search").RetryAfter(); after > interleavedCooldown {
			r.Fatalf("%s is open for %v, which is longer than a cooldown", m.store.me, after)
		}
	}
}

// recover ends all trouble. All members must be in service again, and agree, within two cooldowns and what it takes to
// hear of them.
func (i *interleaving) recover(r *rapid.T) {
	i.broken.Store(false)
	for _, m := range i.members {
		m.store.down.Store(false)
		m.store.mend()
	}
	time.Sleep(time.Minute) // until all calls have ended
	if i.isOlder() {
		return // those who know better were away while others wrote as much
	}
	i.agree(r)
	_ = i.members[0].fleet.Reset(context.Background(), "search")
	for range 2*interleavedCooldown/time.Second + 5 {
		for _, m := range i.members {
			_ = i.call(m, 0)
		}
		time.Sleep(time.Second)
	}
	for _, m := range i.members {
		if err := i.call(m, 0); err != nil {
			r.Fatalf("%s is wedged: %v", m.store.me, err)
		}
	}
}

var operations = []string{
	"sync", "list", "read", "failure", "success", "recovered", "lease", "renew", "isolate", "reset", "restore", "reclose", "compare",
}

func TestInterleavings(t *testing.T) { checkInBubbles(t, interleave) }

// checkInBubbles checks a property in fake time.
func checkInBubbles(t *testing.T, property func(*rapid.T)) {
	if testing.Short() { // as for each mutant, whose failures aren't repeated
		require.NoError(t, flag.Set("rapid.nofailfile", "true"))
	}
	rapid.Check(t, func(r *rapid.T) {
		var failure any
		synctest.Test(t, func(*testing.T) {
			defer func() { failure = recover() }()
			property(r)
		})
		if failure != nil {
			panic(failure)
		}
	})
}

func interleave(r *rapid.T) {
	i := &interleaving{store: newModel(), wish: wish{known: true}, probes: rapid.Bool().Draw(r, "probes")}
	joined := 0
	joinNext := func() {
		joined++
		i.join(fmt.Sprint("member-", joined))
	}
	for range 3 {
		joinNext()
	}
	draw := func(r *rapid.T) *member { return i.members[rapid.IntRange(0, len(i.members)-1).Draw(r, "member")] }
	defer func() {
		time.Sleep(time.Minute)
		for len(i.members) > 0 {
			i.leave(i.members[0], false)
		}
	}()

	r.Repeat(map[string]func(*rapid.T){
		"call": func(r *rapid.T) { _ = i.call(draw(r), 0) },
		"long call": func(r *rapid.T) {
			m, takes := draw(r), time.Duration(rapid.IntRange(1, 20).Draw(r, "takes"))*time.Second
			go func() { _ = i.call(m, takes) }()
		},
		"backend":     func(*rapid.T) { i.broken.Store(!i.broken.Load()) },
		"time passes": func(r *rapid.T) { time.Sleep(time.Duration(rapid.IntRange(1, 8000).Draw(r, "ms")) * time.Millisecond) },
		"store": func(r *rapid.T) {
			m := draw(r)
			m.store.down.Store(!m.store.down.Load())
			i.alone, i.wish.calm = true, time.Now()
		},
		"flush": func(*rapid.T) {
			i.forgets()
			i.store.flush()
			i.back = nil
		},
		"replica falls behind": func(*rapid.T) { i.back = i.store.snapshot() },
		"failover": func(r *rapid.T) {
			if i.back == nil {
				r.Skip("no replica")
			}
			i.failover()
		},
		"isolate": func(r *rapid.T) { i.operate(draw(r), resilience.StateIsolated) },
		"reset":   func(r *rapid.T) { i.operate(draw(r), resilience.StateClosed) },
		"fault": func(r *rapid.T) {
			m, op := draw(r), rapid.SampledFrom(operations).Draw(r, "operation")
			switch rapid.IntRange(0, 2).Draw(r, "fault") {
			case 0:
				m.store.refuse(errLost, op)
			case 1:
				m.store.loseReplies(op)
			case 2:
				m.store.delayOnce(op, hearsay)
			}
			i.alone, i.wish.calm, m.troubled = true, time.Now(), true
		},
		"mend": func(r *rapid.T) {
			m := draw(r)
			m.store.mend()
			m.troubled = false
			i.wish.calm = time.Now()
		},
		"join": func(r *rapid.T) {
			if len(i.members) > 5 {
				r.Skip("enough members")
			}
			joinNext()
		},
		"leave": func(r *rapid.T) {
			if len(i.members) < 2 {
				r.Skip("the last member")
			}
			i.wish.known = i.wish.known && time.Since(i.wish.calm) > hearsay
			i.leave(draw(r), rapid.Bool().Draw(r, "dies"))
			i.alone = true // its probe may be under way
		},
		"": i.check,
	})
	i.recover(r)
}
