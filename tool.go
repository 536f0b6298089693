package resilience

import (
	"cmp"
	"strings"
	"sync/atomic"
	"time"
)

// A toolState is what a guard keeps for one tool.
type toolState struct {
	name           string
	timeout        time.Duration
	maxTimeout     time.Duration // at least timeout
	attemptTimeout time.Duration // zero means none
	maxInFlight    int64         // zero means any number
	retry          *Retry        // which other tools may have, too
	breaker        *Breaker
	listed         bool // in the Config
	cooperative    bool
	effect         Effect

	used      atomic.Bool  // false if it was only asked for
	found     atomic.Bool  // a call has come to the tool, so its name isn't made up
	running   atomic.Int64 // calls, if maxInFlight bounds them
	abandoned abandonedCount
	lastErr   atomic.Pointer[Error]
	usage
}

// newState returns the state of a tool. The caller must store it. A tool that isn't listed
// shares no breaker: its name may be made up, and equal that of a backend.
func (g *Guard) newState(name string, t Tool, listed bool) *toolState {
	breakerName := t.Breaker
	if breakerName == "" {
		breakerName = name
	}
	breaker := g.breakers[breakerName]
	if breaker == nil || !listed {
		breaker = newBreaker(breakerName, g.breakerConfig(breakerName))
		breaker.guard = g
		if name != othersName || listed {
			breaker.of.base = keyBase{listed, breakerName}
		}
	}

	timeout := t.timeout(name, g.timeouts)
	return &toolState{
		name:           name,
		timeout:        timeout,
		maxTimeout:     max(timeout, t.MaxTimeout),
		attemptTimeout: g.attemptTimeout(t),
		maxInFlight:    int64(t.MaxInFlight),
		retry:          g.retryOf(t),
		breaker:        breaker,
		listed:         listed,
		cooperative:    t.Cooperative,
		effect:         t.Effect,
	}
}

// breakerConfig returns the configuration of a tool's breaker, which is that of all others unless it has its own, as
// those of listed tools may.
func (g *Guard) breakerConfig(name string) *BreakerConfig {
	own, ok := g.cfg.Breakers[name]
	if !ok {
		return &g.cfg.Breaker
	}
	own = own.or(g.cfg.Breaker)
	return &own
}

func (g *Guard) attemptTimeout(t Tool) time.Duration {
	return max(cmp.Or(t.AttemptTimeout, g.cfg.AttemptTimeout), 0)
}

// retryOf returns the retries of a tool, which are those of all others unless something sets it apart.
func (g *Guard) retryOf(t Tool) *Retry {
	if g.retry != nil && t.Retry == nil && t.AttemptTimeout == 0 {
		return g.retry
	}

	r := g.cfg.Retry
	if t.Retry != nil {
		r = *t.Retry
	}
	if r.MaxElapsed == 0 {
		r.MaxElapsed = add(defaultElapsed, g.attemptTimeout(t)) // so that an attempt that hangs leaves time for another
	}
	r = r.withDefaults()
	return &r
}

// label returns the name of the tool for observers.
func (s *toolState) label() string {
	if s.listed {
		return s.name
	}
	return s.breaker.label() // which it doesn't share
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
	s.breaker.unlabeled = !g.unlisted.label(s.name)
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
