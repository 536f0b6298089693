package resilience

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Health is the state of one tool, as of [Guard.Health]. It marshals to JSON with
// the keys tool, available, breaker, state, retryAfter (whole seconds, left out unless open),
// consecutiveFailures, inFlight, abandoned and lastError.
type Health struct {
	Tool                string
	Available           bool   // a call would not be turned away now: the breaker isn't open, and not too many abandoned ones run
	Breaker             string // the name of its breaker, which other tools may share
	State               State
	RetryAfter          time.Duration // until the breaker lets a probe through; 0 unless open
	ConsecutiveFailures int           // on the breaker; while it isn't closed, those that opened it and the probes that failed since
	InFlight            int           // calls that have not been answered yet
	Abandoned           int           // attempts that were given up on and still run
	LastError           *Error        // the last failure that the breaker counted, without Details; nil: none
}

// MarshalJSON writes what an agent or a load balancer reads.
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
	}{h.Tool, h.Available, h.Breaker, h.State, wholeSeconds(h.RetryAfter), h.ConsecutiveFailures, h.InFlight, h.Abandoned, h.LastError})
}

// Health returns the state of every tool that is listed in the Config or has been
// called, by name. Tools that were called after the 1,024 unlisted ones for which
// there is room stand together as "(others)". Each number is right by itself; while
// calls go on, they need not be of the same instant.
func (g *Guard) Health() []Health {
	var all []Health
	for _, t := range g.listed {
		all = append(all, g.health(t))
	}
	g.unlisted.Range(func(_, t any) bool {
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
	return Health{
		Tool:                t.name,
		Available:           state != StateOpen && !g.overloaded(t),
		Breaker:             t.breaker.name,
		State:               state,
		RetryAfter:          t.breaker.RetryAfter(),
		ConsecutiveFailures: t.breaker.consecutiveFailures(),
		InFlight:            int(t.inFlight.Load()),
		Abandoned:           int(t.abandoned.Load()),
		LastError:           t.lastErr.Load(),
	}
}
