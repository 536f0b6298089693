package resilience

import (
	"cmp"
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

	attemptTimeout time.Duration // zero means none
	maxInFlight    int64         // zero means any number

	usage
	running   atomic.Int64 // calls, if maxInFlight bounds them
	abandoned abandonedCount
	lastErr   atomic.Pointer[Error]
	used      atomic.Bool // false if it was only asked for
	found     atomic.Bool // a call has come to the tool, so its name isn't made up
}

// newState returns the state of a tool. The caller must store it. A tool that isn't listed
// shares no breaker: its name may be made up, and equal that of a backend.
func (g *Guard) newState(name string, t Tool, listed bool) *toolState {
	attemptTimeout := max(cmp.Or(t.AttemptTimeout, g.cfg.AttemptTimeout), 0)
	retry := g.cfg.Retry
	if t.Retry != nil {
		retry = *t.Retry
	}
	if retry.MaxElapsed == 0 {
		retry.MaxElapsed = add(defaultElapsed, attemptTimeout) // so that an attempt that hangs leaves time for another
	}

	breakerName := t.Breaker
	if breakerName == "" {
		breakerName = name
	}
	breaker := g.breakers[breakerName]
	if breaker == nil || !listed {
		cfg := g.cfg.Breaker
		if listed {
			cfg = g.cfg.Breakers[breakerName].or(cfg)
		}
		breaker = NewBreaker(breakerName, cfg)
		breaker.guard = g
		if name != othersName || listed {
			breaker.shared.id = fleetID(keyBase{listed, breakerName}, "")
		}
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
		retry:       retry.withDefaults(),
		breaker:     breaker,

		attemptTimeout: attemptTimeout,
		maxInFlight:    int64(t.MaxInFlight),
	}
}

// enter returns the state of a tool, which the caller must leave. A tool that isn't listed gets its own
// state at its first call, as long as there is room and it isn't to share that of the others.
func (g *Guard) enter(name string, shared bool) *toolState {
	s := g.listed[name]
	if s == nil && !shared && name != othersName && len(name) <= maxNameLen {
		if own, ok := g.unlisted.enter(name, func() entry { return g.newUnlisted(name) }).(*toolState); ok {
			return own
		}
	}
	if s == nil {
		s = g.others
	}
	s.enter()
	return s
}

// newUnlisted returns the state of a tool for the table of those that aren't listed.
func (g *Guard) newUnlisted(name string) *toolState {
	s := g.newState(strings.Clone(name), Tool{Effect: g.cfg.Effect}, false)
	s.label = g.unlisted.label(s.name)
	s.breaker.label = s.label // which it doesn't share
	return s
}

func (s *toolState) tableName() any { return s.name }
func (s *toolState) uses() *usage   { return &s.usage }
func (s *toolState) added()         { s.breaker.adopt() }
func (s *toolState) drop()          { s.breaker.stopProbe() } // which it doesn't share

// forgettable reports whether a state without calls may be forgotten: never while its breaker rejects calls.
func (s *toolState) forgettable(failing bool) bool {
	return s.abandoned.all.Load() == 0 && s.breaker.forgettable(failing)
}

// admit reports whether no more calls of the tool run than may, with one more. The caller must call release
// if it does.
func (s *toolState) admit() bool {
	for {
		n := s.running.Load()
		if n >= s.maxInFlight {
			return false
		}
		if s.running.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (s *toolState) release() { s.running.Add(-1) }

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
