package resilience

import (
	"strings"
	"sync/atomic"
	"time"
)

// A toolState is what a guard keeps for one tool.
type toolState struct {
	name        string
	label       string // for observers
	listed      bool   // in the Config
	timeout     time.Duration
	maxTimeout  time.Duration // at least timeout
	effect      Effect
	cooperative bool
	retry       Retry
	breaker     *Breaker

	calls     atomic.Int64 // that haven't returned; negative once the state is forgotten
	abandoned abandonedCount
	lastErr   atomic.Pointer[Error]
	used      atomic.Bool // false if it was only asked for
	kept      atomic.Bool // the breaker was asked for, so it must remain that of the tool
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
		label:       name,
		listed:      listed,
		timeout:     timeout,
		maxTimeout:  max(timeout, t.MaxTimeout),
		effect:      t.Effect,
		cooperative: t.Cooperative,
		retry:       retry,
		breaker:     breaker,
	}
}

// enter returns the state of a tool, which the caller must leave. A tool that isn't listed gets its own
// state at its first call, as long as there is room and it isn't to share that of the others.
func (g *Guard) enter(name string, shared bool) *toolState {
	s := g.listed[name]
	if s == nil && !shared && name != othersName && len(name) <= maxNameLen {
		if own := g.unlisted.enter(name, g.newUnlisted); own != nil {
			return own
		}
	}
	if s == nil {
		s = g.others
	}
	s.enter()
	return s
}

func (g *Guard) newUnlisted(name string) *toolState {
	return g.newState(name, Tool{Effect: g.cfg.Effect}, false)
}

// setLabel sets the label of a new state, and of its breaker, which it doesn't share.
func (s *toolState) setLabel(label string) { s.label, s.breaker.label = label, label }

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
