package resilience

import (
	"strings"
	"sync/atomic"
	"time"
)

// These bound the memory for tools that aren't listed in the Config, since their names come
// from agents.
const (
	maxUnlisted = 1024
	maxNameLen  = 256
	othersName  = "(others)"
)

// A toolState is what a guard keeps for one tool.
type toolState struct {
	name        string
	listed      bool // in the Config
	timeout     time.Duration
	maxTimeout  time.Duration // at least timeout
	effect      Effect
	cooperative bool
	retry       Retry
	breaker     *Breaker

	inFlight  atomic.Int64
	abandoned abandonedCount
	lastErr   atomic.Pointer[Error]
	used      atomic.Bool // false if it was only asked for
}

// newState returns the state of a tool. The caller must store it. A tool that isn't listed
// shares no breaker: its name may be made up, and equal that of a backend.
func (g *Guard) newState(name string, t Tool, listed bool) *toolState {
	retry := g.cfg.Retry
	if t.Retry != nil {
		retry = t.Retry.withDefaults()
	}

	breakerName := t.Breaker
	if breakerName == "" {
		breakerName = name
	}
	breaker := g.breakers[breakerName]
	if breaker == nil || !listed {
		breaker = NewBreaker(breakerName, g.cfg.Breaker)
		breaker.observers = g.observers
	}

	timeout := t.timeout(name, g.timeouts)
	return &toolState{
		name:        name,
		listed:      listed,
		timeout:     timeout,
		maxTimeout:  max(timeout, t.MaxTimeout),
		effect:      t.Effect,
		cooperative: t.Cooperative,
		retry:       retry,
		breaker:     breaker,
	}
}

// stateOf returns the state of a tool. A tool that isn't listed gets its own state at its
// first call, as long as there is room and it isn't to share that of the others.
func (g *Guard) stateOf(name string, shared bool) *toolState {
	if s := g.listed[name]; s != nil {
		return s
	}
	if shared {
		return g.others
	}
	if s, ok := g.unlisted.Load(name); ok {
		return s.(*toolState)
	}
	if len(name) > maxNameLen || g.unlistedCount.Load() == maxUnlisted { // usual once it is full
		return g.others
	}

	g.growing.Lock()
	defer g.growing.Unlock()
	if s, ok := g.unlisted.Load(name); ok {
		return s.(*toolState)
	}
	if g.unlistedCount.Load() == maxUnlisted {
		return g.others
	}
	g.unlistedCount.Add(1)
	s := g.newState(strings.Clone(name), Tool{Effect: g.cfg.Effect}, false)
	g.unlisted.Store(s.name, s)
	return s
}

// shortName cuts the name of a tool that isn't listed, since it may be made up, and reaches logs,
// traces and agents.
func (g *Guard) shortName(name string) string {
	if len(name) <= maxNameLen || g.listed[name] != nil {
		return name
	}

	if name = clip(name); g.listed[name] != nil {
		return othersName
	}
	return name
}

// clip cuts text from a client to maxNameLen bytes and an ellipsis, so that two that are cut differ
// from any that isn't.
func clip(s string) string {
	if len(s) <= maxNameLen {
		return s
	}

	return strings.ToValidUTF8(s[:maxNameLen], "") + "…"
}
