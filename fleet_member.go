package resilience

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// maxKnown bounds what a member remembers of breakers that it doesn't have.
const maxKnown = 4096

// A FleetMember is the part of a guard in a [Fleet]. Its methods are safe for concurrent use.
type FleetMember struct {
	guard   *Guard
	name    string
	fleet   Fleet
	reports queue
	hanging atomic.Int64 // calls of Lease that run

	mu     sync.Mutex             // guards what follows; held while a breaker's is locked, never the other way round
	known  map[string]FleetChange // the breakers of the fleet that aren't closed, or have failures
	alone  error                  // why the fleet can't be reached; nil if it can
	untold []FleetResult          // wait for Report
}

// JoinFleet makes the guard a member of a fleet, under the name that logs and observers read. The guard then shares
// what its breakers find out, and learns of the other members', but for the breaker that tools without a state of
// their own share. Only calls, Probes and the fleet's own changes are shared: Isolate, Trip and Reset of a Breaker
// concern this guard alone. It is an error if f is nil, or if the guard is a member of a fleet already. What an
// earlier fleet has isolated stays isolated until this one says that it is closed. If the guard joins the same fleet
// again, by its name, what its operator has reset isn't isolated by what the fleet has done before, and the member is
// as connected as it was.
//
// A program calls this only for a Fleet of its own; others have a function for it.
func (g *Guard) JoinFleet(name string, f Fleet) (*FleetMember, error) {
	if f == nil {
		return nil, errors.New("resilience: JoinFleet: the Fleet is nil")
	}

	m := &FleetMember{guard: g, name: name, fleet: f, known: make(map[string]FleetChange)}
	if !g.member.CompareAndSwap(nil, m) {
		return nil, errors.New("resilience: JoinFleet: the guard is a member of another fleet: it must leave that first")
	}
	last := g.lastFleet.Swap(m)
	again := last != nil && last.name == name
	if again {
		m.setAlone(last.isAlone()) // as observers have heard last
	}
	for _, b := range g.Breakers() {
		b.join(again)
	}
	return m, nil
}

// isAlone returns why the fleet can't be reached, nil if it can.
func (m *FleetMember) isAlone() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.alone
}

func (m *FleetMember) setAlone(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.alone = err
}

// Leave ends the membership: the breakers stay as they are, and decide alone from now on. It waits until the Fleet
// has received all results so far, so Report must not call it. If ctx ends first, it returns the error of ctx.
func (m *FleetMember) Leave(ctx context.Context) error {
	m.guard.member.CompareAndSwap(m, nil)
	return m.reports.flush(ctx)
}

// report lets the fleet receive a result, together with others that wait, and reports whether there was room for it.
func (m *FleetMember) report(r FleetResult) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.untold) == maxQueued {
		m.untold[maxQueued-1].Lost = true
		return false
	}
	m.untold = append(m.untold, r)
	m.reports.add(m.tell) // or there are others, the last of which takes r, too
	return true
}

// tell reports what waits, unless an earlier call has.
func (m *FleetMember) tell() {
	m.mu.Lock()
	results := m.untold
	m.untold = nil
	m.mu.Unlock()
	if len(results) > 0 {
		m.fleet.Report(results)
	}
}

// Breakers returns the breakers that the member shares, those of listed tools at least, in no order.
func (m *FleetMember) Breakers() []FleetBreaker {
	var all []FleetBreaker
	for _, b := range m.guard.Breakers() {
		if b.isShareable() {
			all = append(all, b.fleetView())
		}
	}
	return all
}

// Breaker returns the breaker with an ID, and false if the guard has none now.
func (m *FleetMember) Breaker(id string) (b FleetBreaker, ok bool) {
	if own := m.guard.fleetBreaker(id); own != nil {
		return own.fleetView(), true
	}
	return b, false
}

// Warn writes a warning to Config.Log, with pairs of keys and values as those of slog. It doesn't wait for the log.
func (m *FleetMember) Warn(msg string, args ...any) {
	m.guard.warner.warn(msg, append(slices.Clone(args), "fleet", m.name)...)
}

// Connected says whether the fleet can be reached: err is nil if it can, and otherwise why not. Observers receive a
// [ConnectionChange] with the name of the fleet when that changes, and the log a line. The member of a fleet that the
// guard hasn't been in before is connected at first.
func (m *FleetMember) Connected(err error) {
	m.mu.Lock()
	defer m.mu.Unlock() // observers and the log are told in order, and have queues
	changed := (err == nil) != (m.alone == nil)
	m.alone = err
	if !changed {
		return
	}

	e := ConnectionChange{Connection: m.name, State: ConnectionUp, Time: time.Now(), Err: err}
	if err != nil {
		e.State = ConnectionDown
		m.Warn("the fleet can't be reached: breakers decide alone", "error", err)
	} else {
		m.Warn("the fleet can be reached again")
	}
	for _, o := range m.guard.observers {
		o.connection(e)
	}
}

// Apply tells the member of a change, and reports whether it has been applied, now or for a breaker that the guard
// will have. It hasn't if the member has left, knows more (see FleetChange.Time), or remembers 4,096 breakers already
// that it doesn't have, or if c.State is StateHalfOpen. Changes of a breaker must be applied in their order; applying
// the last one again does no harm.
func (m *FleetMember) Apply(c FleetChange) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.guard.member.Load() != m || c.State == StateHalfOpen {
		return false
	}

	remembered := m.remember(c) // also if the breaker knows more: a later one of its name doesn't
	if b := m.guard.fleetBreaker(c.Breaker); b != nil {
		return b.apply(c)
	}
	return remembered
}

// remember notes a change for a breaker that the guard doesn't have yet, or makes again after it has forgotten it. It
// reports false if there is no room. m.mu must be held.
func (m *FleetMember) remember(c FleetChange) bool {
	_, known := m.known[c.Breaker]
	switch {
	case c.State == StateClosed && c.Failures == 0:
		delete(m.known, c.Breaker)
	case known || len(m.known) < maxKnown:
		m.known[c.Breaker] = c
	default:
		return false
	}
	return true
}
