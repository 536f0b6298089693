package resilience

import (
	"strings"
	"sync/atomic"
	"time"
)

// What bounds the memory for tools that aren't listed: their names come from
// agents.
const (
	maxUnlisted = 1024
	maxNameLen  = 256
	othersName  = "(others)"
)

// A tool is what a guard keeps for one tool.
type tool struct {
	name        string
	listed      bool // in the Config
	timeout     time.Duration
	maxTimeout  time.Duration // at least timeout
	effect      Effect
	cooperative bool
	retry       Retry
	breaker     *Breaker

	inFlight     atomic.Int64
	stillRunning atomic.Int64 // goroutines that were given up on
	lastErr      atomic.Pointer[Error]
	used         atomic.Bool
}

// newTool doesn't keep what it makes: that is for New, and for tool.
func (g *Guard) newTool(name string, t Tool) *tool {
	retry := g.cfg.Retry
	if t.Retry != nil {
		retry = t.Retry.withDefaults()
	}
	breaker := t.Breaker
	if breaker == "" {
		breaker = name
	}
	b := g.breakers[breaker]
	if b == nil {
		b = NewBreaker(breaker, g.cfg.Breaker)
		b.observers = g.observers
	}
	timeout := t.timeout(name, g.timeouts)
	return &tool{
		name:        name,
		timeout:     timeout,
		maxTimeout:  max(timeout, t.MaxTimeout),
		effect:      t.Effect,
		cooperative: t.Cooperative,
		retry:       retry,
		breaker:     b,
	}
}

// tool returns the state of a tool. One that isn't listed gets its own at its first
// call, as long as there is room.
func (g *Guard) tool(name string, shared bool) *tool {
	if t := g.listed[name]; t != nil {
		return t
	}
	if shared {
		return g.others
	}
	if t, ok := g.unlisted.Load(name); ok {
		return t.(*tool)
	}
	if len(name) > maxNameLen || g.grown.Load() == maxUnlisted { // the usual case once it is full, without the lock
		return g.others
	}
	g.growing.Lock()
	defer g.growing.Unlock()
	if t, ok := g.unlisted.Load(name); ok {
		return t.(*tool)
	}
	if g.grown.Load() == maxUnlisted {
		return g.others
	}
	g.grown.Add(1)
	t := g.newTool(strings.Clone(name), Tool{Effect: g.cfg.Effect})
	g.unlisted.Store(t.name, t)
	return t
}
