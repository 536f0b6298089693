package resilience

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// A keyName is the name of the breaker of a key: keys below different breakers differ.
type keyName struct {
	base *Breaker
	key  string
}

// breakerOf returns the breaker for calls of a tool with these options: the tool's own if they have no
// key, if the tool is isolated, or if there is no room.
func (g *Guard) breakerOf(s *toolState, o *options) *Breaker {
	own, key := s.breaker, o.key
	if keyOf := o.request.BreakerKey; key == "" && keyOf != nil {
		key = ask(g, "Request.BreakerKey", "", keyOf)
	}
	if key == "" || s == g.others || own.isolated() {
		return own
	}

	n := keyName{own, clip(strings.ToValidUTF8(key, "\uFFFD"))}
	if b := g.keyed.get(n); b != nil {
		return b
	}
	n.key = strings.Clone(n.key) // it may be a part of a long message
	create := func() *Breaker { return g.newBreaker(own.name, n.key, own.cfg) }
	return cmp.Or(g.keyed.add(n, create, func(b *Breaker) bool { return b.State() == StateClosed }), own)
}

// KeyHealth is the state of the breaker of a [BreakerKey], as in [Health].
type KeyHealth struct {
	Key                 string
	State               State
	RetryAfter          time.Duration
	ConsecutiveFailures int
}

// MarshalJSON uses the names of [Health], with retryAfter in seconds.
func (h KeyHealth) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Key                 string `json:"key"`
		State               State  `json:"state"`
		RetryAfter          int64  `json:"retryAfter,omitempty"`
		ConsecutiveFailures int    `json:"consecutiveFailures"`
	}{h.Key, h.State, wholeSeconds(h.RetryAfter), h.ConsecutiveFailures})
}

// unhealthyKeys returns, for each breaker, the health of its keys that aren't closed or have failures.
func (g *Guard) unhealthyKeys() map[*Breaker][]KeyHealth {
	unhealthy := make(map[*Breaker][]KeyHealth)
	for n, b := range g.keyed.all() {
		if !b.healthy() {
			h := KeyHealth{n.key, b.State(), b.RetryAfter(), b.Failures()}
			unhealthy[n.base] = append(unhealthy[n.base], h)
		}
	}
	for _, all := range unhealthy {
		slices.SortFunc(all, func(a, b KeyHealth) int { return strings.Compare(a.Key, b.Key) })
	}
	return unhealthy
}

// Breakers returns all breakers, including those of keys, sorted by name.
func (g *Guard) Breakers() []*Breaker {
	all := slices.Collect(maps.Values(g.keyed.all()))
	for _, s := range g.states() {
		all = append(all, s.breaker)
	}
	slices.SortFunc(all, func(a, b *Breaker) int { return strings.Compare(a.name, b.name) })
	return slices.Compact(all) // tools may share one
}
