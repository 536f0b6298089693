package resilience

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Health is the state of one tool, as [Guard.Health] returns it.
type Health struct {
	Tool      string `json:"tool"`
	Listed    bool   `json:"-"`         // whether the Config lists the tool; agents may have made up other names
	Available bool   `json:"available"` // false while calls are sure to be rejected, except with a BreakerKey: see Keys

	Breaker             string        `json:"breaker"`             // its name; other tools may share the breaker
	State               State         `json:"state"`               // the state of the breaker
	RetryAfter          time.Duration `json:"-"`                   // see [Breaker.RetryAfter]
	ConsecutiveFailures int           `json:"consecutiveFailures"` // see [Breaker.Failures]
	Keys                []KeyHealth   `json:"keys,omitempty"`      // that aren't closed or have failures

	InFlight      int       `json:"inFlight"`               // calls that haven't returned, and aren't held
	Abandoned     int       `json:"abandoned"`              // attempts that were abandoned and are still running
	LastError     *Error    `json:"lastError,omitempty"`    // counted by a breaker, without Details; nil if none was
	LastErrorTime time.Time `json:"lastErrorTime,omitzero"` // when that call ended
}

// A countedError is the last one of a tool.
type countedError struct {
	err Error // without Details
	at  time.Time
}

// noteError keeps the error of a call that the breaker has counted.
func (s *toolState) noteError(e *Error) {
	kept := &countedError{*e, time.Now()}
	kept.err.Details = nil
	s.lastErr.Store(kept)
}

// MarshalJSON adds retryAfter, in seconds, rounded up, if the breaker is open.
func (h Health) MarshalJSON() ([]byte, error) {
	type plain Health // without this method
	return json.Marshal(struct {
		plain
		RetryAfter int64 `json:"retryAfter,omitempty"`
	}{plain(h), wholeSeconds(h.RetryAfter)})
}

// Health returns the states of all tools that have one, sorted by name. A tool in the Config always has one, and
// another tool gets one with its first call, up to 1,024 of them. Further tools, and names that an agent has made up
// (see Request.Unknown), share the state "(others)".
func (g *Guard) Health() []Health {
	var all []Health
	keys := g.unhealthyKeys()
	for _, s := range g.states() {
		all = append(all, g.health(s, keys[s.breaker]))
	}

	slices.SortFunc(all, func(a, b Health) int { return strings.Compare(a.Tool, b.Tool) })
	return all
}

func (g *Guard) health(s *toolState, keys []KeyHealth) Health {
	h := Health{
		Tool:                s.name,
		Listed:              s.listed,
		Breaker:             s.breaker.name,
		State:               s.breaker.State(),
		RetryAfter:          s.breaker.RetryAfter(),
		ConsecutiveFailures: s.breaker.Failures(),
		Keys:                slices.Clone(keys),
		InFlight:            int(s.inFlight.Load()),
		Abandoned:           int(s.abandoned.Load()),
	}
	if last := s.lastErr.Load(); last != nil {
		h.LastError, h.LastErrorTime = last.err.clone(), last.at // the caller may change it
	}

	rejects := h.State == StateOpen || h.State == StateIsolated
	full := s.MaxInFlight > 0 && s.MaxWait == 0 && h.InFlight >= s.MaxInFlight
	h.Available = !rejects && !full && !g.overloaded(s) && !g.Closed()
	return h
}
