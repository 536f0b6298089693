package resilience

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Health is the state of one tool, as [Guard.Health] returns it.
type Health struct {
	Tool   string
	Listed bool // whether the Config lists the tool; agents may have made up the names of others

	// Available is false while calls are sure to be rejected, because the breaker is open or isolated, too
	// many calls of the tool run, too many abandoned attempts are still running after the tool's own
	// timeout, or the guard is closed. A call with a BreakerKey has another breaker than this one, which may be
	// open: see Keys.
	Available bool

	Breaker    string        // the name of the tool's breaker, which other tools may share
	State      State         // the state of the breaker
	RetryAfter time.Duration // until the backend is asked again, see [Breaker.RetryAfter]; 0 unless it is open

	// ConsecutiveFailures is how many calls in a row have failed, as the breaker counts them. While
	// the breaker isn't closed, it counts those that opened it and the probes that failed since.
	ConsecutiveFailures int

	// Keys are those breakers of keys below the tool's that aren't closed, or have failures, by key. Tools
	// that share a breaker share them. See [BreakerKey].
	Keys []KeyHealth

	InFlight  int    // calls that haven't returned yet
	Abandoned int    // attempts that were abandoned and are still running
	LastError *Error // the last failure that a breaker counted, without Details; nil if none
}

// MarshalJSON returns an object with the keys tool, available, breaker, state, retryAfter,
// consecutiveFailures, keys, inFlight, abandoned and lastError. The value of retryAfter is in whole seconds,
// rounded up. It is omitted unless the breaker is open, and so are keys and lastError if there are none. Listed
// isn't part of it.
func (h Health) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Tool                string      `json:"tool"`
		Available           bool        `json:"available"`
		Breaker             string      `json:"breaker"`
		State               State       `json:"state"`
		RetryAfter          int64       `json:"retryAfter,omitempty"`
		ConsecutiveFailures int         `json:"consecutiveFailures"`
		Keys                []KeyHealth `json:"keys,omitempty"`
		InFlight            int         `json:"inFlight"`
		Abandoned           int         `json:"abandoned"`
		LastError           *Error      `json:"lastError,omitempty"`
	}{
		h.Tool, h.Available, h.Breaker, h.State, wholeSeconds(h.RetryAfter),
		h.ConsecutiveFailures, h.Keys, h.InFlight, h.Abandoned, h.LastError,
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
	keys := g.keysInTrouble()
	for _, t := range g.states() {
		if t.listed || t.used.Load() {
			all = append(all, g.health(t, slices.Clone(keys[t.keyBase()])))
		}
	}

	slices.SortFunc(all, func(a, b Health) int { return strings.Compare(a.Tool, b.Tool) })
	return all
}

// states returns the states of all tools, in no order.
func (g *Guard) states() []*toolState {
	all := []*toolState{g.others}
	for _, t := range g.listed {
		all = append(all, t)
	}
	for _, t := range g.unlisted.all() {
		all = append(all, t.(*toolState))
	}
	return all
}

func (g *Guard) health(t *toolState, keys []KeyHealth) Health {
	state := t.breaker.State()
	last := t.lastErr.Load()
	if last != nil {
		last = last.clone() // the caller may change it
	}

	rejects := state == StateOpen || state == StateIsolated
	full := t.maxInFlight > 0 && t.running.Load() >= t.maxInFlight
	return Health{
		Tool:                t.name,
		Listed:              t.listed,
		Available:           !rejects && !full && !g.overloaded(t, false) && !g.Closed(),
		Breaker:             t.breaker.name,
		State:               state,
		RetryAfter:          t.breaker.RetryAfter(),
		ConsecutiveFailures: t.breaker.Failures(),
		Keys:                keys,
		InFlight:            t.inFlight(),
		Abandoned:           int(t.abandoned.all.Load()),
		LastError:           last,
	}
}
