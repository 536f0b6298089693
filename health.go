package resilience

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Health is the state of one tool, as [Guard.Health] returns it.
type Health struct {
	Tool string

	// Available is false while calls are sure to be rejected, because the breaker is open or because
	// too many abandoned attempts of the tool are still running after the tool's own timeout.
	Available bool

	Breaker    string        // the name of the tool's breaker, which other tools may share
	State      State         // the state of the breaker
	RetryAfter time.Duration // until the breaker lets a probe through; 0 unless it is open

	// ConsecutiveFailures is how many calls in a row have failed, as the breaker counts them. While
	// the breaker isn't closed, it counts those that opened it and the probes that failed since.
	ConsecutiveFailures int

	InFlight  int    // calls that haven't returned yet
	Abandoned int    // attempts that were abandoned and are still running
	LastError *Error // the last failure that the breaker counted, without Details; nil if none
}

// MarshalJSON returns an object with the keys tool, available, breaker, state, retryAfter,
// consecutiveFailures, inFlight, abandoned and lastError. The value of retryAfter is in whole seconds,
// rounded up. It is omitted unless the breaker is open, and lastError is omitted if there is none.
func (h Health) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Tool                string `json:"tool"`
		Available           bool   `json:"available"`
		Breaker             string `json:"breaker"`
		State               State  `json:"state"`
		RetryAfter          int64  `json:"retryAfter,omitempty"`
		ConsecutiveFailures int    `json:"consecutiveFailures"`
		InFlight            int    `json:"inFlight"`
		Abandoned           int    `json:"abandoned"`
		LastError           *Error `json:"lastError,omitempty"`
	}{
		h.Tool, h.Available, h.Breaker, h.State, wholeSeconds(h.RetryAfter),
		h.ConsecutiveFailures, h.InFlight, h.Abandoned, h.LastError,
	})
}

// Health returns the state of every tool that is listed in the Config or was called, sorted by name.
// A guard keeps the state of at most 1,024 tools that aren't listed. For a further one it forgets a
// state that isn't needed: no call is under way and no abandoned attempt still runs, the breaker isn't
// open, and [Guard.Breaker] hasn't returned it. States of tools that haven't failed lately are
// forgotten first, the oldest before others. If none is found, the further tools share a single state,
// whose name is "(others)".
//
// Each value is correct by itself. While calls are under way, the values need not be those of one
// instant.
func (g *Guard) Health() []Health {
	var all []Health
	for _, t := range g.listed {
		all = append(all, g.health(t))
	}

	g.unlisted.byName.Range(func(_, t any) bool {
		if t := t.(*toolState); t.used.Load() {
			all = append(all, g.health(t))
		}
		return true
	})
	if g.others.used.Load() {
		all = append(all, g.health(g.others))
	}

	slices.SortFunc(all, func(a, b Health) int { return strings.Compare(a.Tool, b.Tool) })
	return all
}

func (g *Guard) health(t *toolState) Health {
	state := t.breaker.State()
	last := t.lastErr.Load()
	if last != nil {
		last = last.clone() // the caller may change it
	}

	return Health{
		Tool:                t.name,
		Available:           state != StateOpen && !g.overloaded(t, false),
		Breaker:             t.breaker.name,
		State:               state,
		RetryAfter:          t.breaker.RetryAfter(),
		ConsecutiveFailures: t.breaker.consecutiveFailures(),
		InFlight:            t.inFlight(),
		Abandoned:           int(t.abandoned.all.Load()),
		LastError:           last,
	}
}
