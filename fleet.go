package resilience

import (
	"context"
	"net/url"
	"strings"
	"time"
)

// A Fleet connects the breakers of a [Guard] with those of other processes that have the same backends, so that they
// share what each of them finds out. The nested module adapters/redis has one; [Guard.JoinFleet] connects a guard
// with any other. A Fleet carries messages, and keeps what its members have to agree on:
//
//   - How many calls in a row have failed, over all members: each failure adds one, and a success anywhere sets it to
//     zero. It opens the breaker of all members when there are as many as one of them would take, and enough members
//     have seen some of them.
//   - Until when an open breaker rejects calls, and which member then sends the one probe.
//   - What was isolated by hand.
//
// The guard's own breakers decide every call. They open and recover by themselves while the Fleet has nothing to
// say, so a Fleet that can't be reached does no harm.
//
// The methods of a Fleet may block and panic: no call waits for Report, and one that could be the probe waits for
// Lease for at most 100ms, and at most for a tenth of its timeout.
type Fleet interface {
	// Report receives what a member's calls and Probes have told of a backend, in order, on a goroutine of its own.
	// While it blocks, up to 1,024 results wait, which it receives together next, and further ones are lost, see
	// FleetResult.Lost. Successes are reported only if they are the first after failures, of the member's own or that
	// the fleet has, see FleetChange, or after a success that was lost.
	Report(results []FleetResult)

	// Lease asks whether this member may send the next probe of an open breaker, with CauseCalls for one by a call and
	// with CauseProbe for one by BreakerConfig.Probe. If not, the breaker rejects calls for the time to wait, and at
	// least for 100ms, before it asks again; but without any change from the fleet, calls don't wait longer than ten
	// Cooldowns since the first refusal, and Probes no longer than that, or three ProbeIntervals if these are more. A
	// Fleet that doesn't know grants it. Lease is called concurrently. If ctx ends before it returns, the member
	// decides by itself, and keeps to its own Cooldown, also if the fleet has wanted a probe sooner.
	Lease(ctx context.Context, b FleetBreaker, cause Cause) (granted bool, wait time.Duration)
}

// FleetBreaker is a member's breaker as its [Fleet] knows it.
type FleetBreaker struct {
	// ID is what breakers of different members that belong together have in common. It consists of the name of the
	// breaker, its key if it has one (see BreakerKey), and whether the Config lists its tool, and is printable.
	ID string

	Name       string        // of the breaker, as Breaker.Name
	State      State         // the member's own
	RetryAfter time.Duration // while it is open: until a call may be the probe; zero or less if one may be now
	Changed    time.Time     // when the member's own calls, Probe or operator last changed the state; may be zero
	Cause      Cause         // of that change
	Failures   int           // in a row, as in Breaker.Failures
	Succeeded  time.Time     // when a call of the member has succeeded last; zero if none has since the guard has joined a fleet
	Probing    bool          // whether a call is the probe now

	// Config is the breaker's own, with its defaults.
	Config BreakerConfig
}

// FleetResult is what a call or a Probe of a member has told of a backend.
type FleetResult struct {
	Breaker FleetBreaker
	Success bool
	Probe   bool  // of a breaker that wasn't closed; otherwise of a call while it was
	Cause   Cause // CauseCalls or CauseProbe
	Time    time.Time
	Lost    bool // whether results after this one were lost

	// RetryAfter is how long no member should call its Probe, from Time on: a failed one has asked for that. It is at
	// most a Cooldown, and zero or negative if it isn't known.
	RetryAfter time.Duration
}

// FleetChange tells a member of a breaker of the fleet.
type FleetChange struct {
	Breaker    string        // the ID, of a breaker that the member may not have yet
	State      State         // StateClosed, StateOpen or StateIsolated; the breaker of a fleet is never half-open
	RetryAfter time.Duration // while it is open: until a call of any member may be the probe; zero or less: now
	Failures   int           // while it is closed: those of all members; if positive, the next success is reported
	Cause      Cause         // why it has changed: CauseCalls, CauseProbe or CauseManual
	Reason     string        // that was given to isolate it

	// Time is when the fleet was asked, or this message arrived, by the member's clock, or for a change by hand when
	// that was made. If the breaker was changed by the member's own calls or by hand since, they know more, and
	// the change isn't applied; but an isolation is, unless the member's operator has reset it since.
	Time time.Time
}

// fleetID returns the FleetBreaker.ID of a breaker that a fleet may share.
func (b *Breaker) fleetID() string {
	id := "unlisted/"
	if b.of.base.listed {
		id = "listed/"
	}
	id += url.PathEscape(b.of.base.name)
	if b.of.key != "" {
		id += "/" + url.PathEscape(b.of.key)
	}
	return id
}

// fleetBreaker returns the breaker with an ID, nil if the guard has none now.
func (g *Guard) fleetBreaker(id string) *Breaker {
	parts := strings.Split(id, "/")
	if len(parts) < 2 || len(parts) > 3 {
		return nil
	}

	base := keyBase{listed: parts[0] == "listed"}
	if !base.listed && parts[0] != "unlisted" {
		return nil
	}
	base.name, _ = url.PathUnescape(parts[1]) // empty if it can't be, as no name and no key is
	if len(parts) == 3 {
		key, _ := url.PathUnescape(parts[2])
		if k, ok := g.keyed.get(keyName{base, key}).(*keyedBreaker); ok {
			return k.Breaker
		}
		return nil
	}
	if base.listed {
		return g.breakers[base.name]
	}
	if s, ok := g.unlisted.get(base.name).(*toolState); ok {
		return s.breaker
	}
	return nil
}

// fleetView returns the breaker as its fleet knows it.
func (b *Breaker) fleetView() FleetBreaker {
	v := FleetBreaker{ID: b.fleetID(), Name: b.name, State: b.State(), Failures: b.Failures(), Config: *b.cfg}
	if v.State == StateOpen {
		v.RetryAfter = b.untilProbe()
	}

	if at := b.succeeded.Load(); at > 0 {
		v.Succeeded = b.guard.made.Add(time.Duration(at))
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if trouble := b.trouble; trouble != nil {
		v.Changed, v.Cause = trouble.shared.changed, trouble.shared.cause
		v.Probing = b.hasProbe() && trouble.overdue.left() >= 0
	}
	return v
}
