package redisfleet

import (
	"slices"
	"time"
)

// Health is the state of a member, as [Fleet.Health] returns it.
type Health struct {
	Namespace string
	Connected bool      // whether Redis answers; if not, or after Leave, the member's breakers decide alone
	Since     time.Time // when Connected changed last; zero before Redis was asked
	Error     error     // why the member isn't connected; nil if it is
	Members   int       // how many members Redis has heard of within three seconds, when it was last asked

	// Differences has a line for each breaker of a listed tool that another member configures differently, found within
	// a minute of its start. Failures, Cooldown, and the ProbeInterval of those with a Probe are compared. The fleet
	// then opens the breaker as the member has it whose call fails, and probes it as the member that does so.
	Differences []string
}

// Health returns the state of the member. Guard.Health returns that of its tools.
func (f *Fleet) Health() Health {
	e := f.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.health
	h.Differences = slices.Clone(h.Differences)
	return h
}

// differ notes differences, and warns of new ones.
func (e *engine) differ(all []string) {
	e.mu.Lock()
	before := e.health.Differences
	e.health.Differences = all
	e.mu.Unlock()
	for _, d := range all {
		if !slices.Contains(before, d) {
			e.member.Warn("members of the fleet configure a breaker differently", "difference", d)
		}
	}
}
