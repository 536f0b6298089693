package resilience

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// BreakerKey gives the calls with this key a breaker of their own, below the tool's, for a tool that stands before
// several backends: data sources, clusters, tenants, or hosts that agents choose, each of which may be down. One that
// fails then doesn't shut the tool for the others; attempts that ignore their context count for the whole tool (see
// Config.MaxAbandoned). Tools that share a Breaker share those of its keys. The breaker is configured as the tool's
// own, and its name is that name, a slash and the key.
//
// The key is cut to 256 bytes and "…" if it is longer, and what isn't UTF-8 is replaced. It appears in errors, logs
// and metrics, so it must not be a secret. An empty key, the default, means the tool's own breaker.
//
// A guard keeps at most 1,024 such breakers. For a further one it forgets one that rejects no calls and that no
// call uses, preferably without failures, the oldest before others; but none that a [Fleet] has isolated and Reset has
// closed for this guard. If it soon finds none, the call counts on no breaker, so that many bad keys don't shut the
// tool either; the tool's own rejects it while it is open or isolated.
func BreakerKey(key string) Option { return func(o *options) { o.key = key } }

// breakerKey returns the key of a call's breaker, "" if it has none.
func (o *options) breakerKey() string {
	if o.key != "" || o.keyOf == nil {
		return o.key
	}
	return ask(o.keyOf)
}

// keyKey is the key of a breaker's key in the context of its Probe.
type keyKey struct{}

// BreakerKeyOf returns the key of the breaker whose BreakerConfig.Probe has the context, "" if there is none.
func BreakerKeyOf(ctx context.Context) string {
	key, _ := ctx.Value(keyKey{}).(string)
	return key
}

// A keyBase is the breaker that keys are below. That of a tool which isn't listed may be forgotten and made again.
type keyBase struct {
	listed bool
	name   string
}

// A keyName is the name of a breaker of a key: keys below different breakers differ.
type keyName struct {
	base keyBase
	key  string
}

// A keyedBreaker is the breaker of a key.
type keyedBreaker struct {
	usage
	*Breaker
}

func (k *keyedBreaker) tableName() any { return k.of }
func (k *keyedBreaker) uses() *usage   { return &k.usage }
func (k *keyedBreaker) added()         { k.adopt() }
func (k *keyedBreaker) drop()          { k.stopProbe() }

func (s *toolState) keyBase() keyBase { return keyBase{s.listed, s.breaker.name} }

// enterKey returns the breaker of a key of a tool, which the caller must leave, or nil if there is no room.
func (g *Guard) enterKey(s *toolState, key string) *keyedBreaker {
	name := keyName{s.keyBase(), clip(strings.ToValidUTF8(key, "\uFFFD"))}
	k, _ := g.keyed.enter(name, func() entry {
		name.key = strings.Clone(name.key)
		b := newBreaker(name.base.name+"/"+name.key, s.breaker.cfg)
		b.guard, b.of, b.unlabeled = g, name, !g.keyed.label(b.name)
		return &keyedBreaker{Breaker: b}
	}).(*keyedBreaker)
	return k
}

// KeyHealth is the state of the breaker of a key, see [BreakerKey]. Its fields are those of [Health].
type KeyHealth struct {
	Key                 string
	State               State
	RetryAfter          time.Duration
	ConsecutiveFailures int
}

// MarshalJSON returns an object with the keys key, state, retryAfter and consecutiveFailures, as in Health.
func (h KeyHealth) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Key                 string `json:"key"`
		State               State  `json:"state"`
		RetryAfter          int64  `json:"retryAfter,omitempty"`
		ConsecutiveFailures int    `json:"consecutiveFailures"`
	}{h.Key, h.State, wholeSeconds(h.RetryAfter), h.ConsecutiveFailures})
}

// keysInTrouble returns the health of the keys below each breaker, but for those that have no failures.
func (g *Guard) keysInTrouble() map[keyBase][]KeyHealth {
	keys := make(map[keyBase][]KeyHealth)
	for _, k := range g.keyed.all() {
		k := k.(*keyedBreaker)
		if !k.resting() {
			h := KeyHealth{k.of.key, k.State(), k.RetryAfter(), k.Failures()}
			keys[k.of.base] = append(keys[k.of.base], h)
		}
	}

	for _, all := range keys {
		slices.SortFunc(all, func(a, b KeyHealth) int { return strings.Compare(a.Key, b.Key) })
	}
	return keys
}

// Breakers returns all breakers that the guard has now: those of listed tools, those of other tools that were
// called, and those of keys, sorted by name. Those of tools and keys that are no longer needed may be
// forgotten, and are then replaced by new ones.
func (g *Guard) Breakers() []*Breaker {
	var all []*Breaker
	for _, b := range g.breakers {
		all = append(all, b)
	}
	for _, s := range g.unlisted.all() {
		all = append(all, s.(*toolState).breaker)
	}
	for _, k := range g.keyed.all() {
		all = append(all, k.(*keyedBreaker).Breaker)
	}
	if g.others.used.Load() {
		all = append(all, g.others.breaker)
	}

	slices.SortStableFunc(all, func(a, b *Breaker) int { return cmp.Compare(a.name, b.name) })
	return all
}
