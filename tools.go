package resilience

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxNames   = 1024       // that come from agents, in a table
	maxNameLen = 256        // bytes, above which a name from an agent is cut
	othersName = "(others)" // of the state that tools without a state of their own share
)

// A toolState is the state of one tool. Its Tool has all defaults filled in.
type toolState struct {
	Tool
	name    string
	listed  bool // in the Config
	breaker *Breaker

	inFlight  atomic.Int64 // calls
	line      line
	abandoned atomic.Int64 // attempts that still run
	overdue   atomic.Int64 // abandoned attempts that have exceeded the tool's own timeout
	lastErr   atomic.Pointer[countedError]

	reported    atomic.Bool  // a report of the backend has come
	unexplained atomic.Int32 // failures, see noteUnexplained
}

// newState returns the state of a tool.
func (g *Guard) newState(name string, t Tool, b *Breaker) *toolState {
	t.Timeout = t.timeout(name, g.cfg.Timeouts)
	t.MaxTimeout = max(t.Timeout, t.MaxTimeout)
	retry := cmp.Or(t.Retry, &g.cfg.Retry).withDefaults()
	t.Retry = &retry
	return &toolState{Tool: t, name: name, breaker: b}
}

// newUnlisted returns the state of a tool that isn't listed. It shares no breaker, because an agent may have made
// up its name, and the name may be a backend's.
func (g *Guard) newUnlisted(name string) *toolState {
	return g.newState(name, Tool{Effect: g.cfg.Effect}, g.newBreaker(name, "", &g.cfg.Breaker))
}

// newBreaker returns a breaker whose changes the observers receive, or the breaker of a key below it.
func (g *Guard) newBreaker(name, key string, cfg *BreakerConfig) *Breaker {
	label := name
	if key != "" {
		name += "/" + key
	}

	b := newBreaker(name, cfg)
	b.guard, b.key = g, key
	b.onChange = func(e BreakerChange) {
		e.Label = label
		for _, o := range g.observers {
			o.breaker(e)
		}
	}
	return b
}

// known returns the state of a tool, nil if it has none of its own.
func (g *Guard) known(name string) *toolState {
	if s := g.listed[name]; s != nil {
		return s
	}
	return g.unlisted.get(name)
}

// state returns the state of a tool, which may be the one of all others. A tool that isn't listed gets its own if it
// exists, and if there is room for it.
func (g *Guard) state(name string, exists bool) *toolState {
	s := g.known(name)
	if s == nil && exists && name != othersName && len(name) <= maxNameLen {
		name = strings.Clone(name) // it may be a part of a long message
		s = g.unlisted.add(name, func() *toolState { return g.newUnlisted(name) }, nil)
	}
	if s == nil {
		g.shared.Store(true)
		s = g.others
	}
	return s
}

// states returns the states of all tools, in no order. The one of all others is left out if it was never used.
func (g *Guard) states() []*toolState {
	all := slices.AppendSeq(slices.Collect(maps.Values(g.listed)), maps.Values(g.unlisted.all()))
	if g.shared.Load() {
		all = append(all, g.others)
	}
	return all
}

// overloaded reports whether too many abandoned attempts of the tool still run.
func (g *Guard) overloaded(s *toolState) bool { return s.overdue.Load() >= int64(g.cfg.MaxAbandoned) }

// countAbandoned counts an abandoned attempt. It counts against MaxAbandoned after grace, when the tool's own timeout
// has passed, so no caller can shut the tool for others by leaving early. release must be called once the attempt has
// returned.
func (s *toolState) countAbandoned(grace time.Duration) (release func()) {
	s.abandoned.Add(1)
	stop := func() bool { return false }
	if grace > 0 {
		stop = time.AfterFunc(grace, func() { s.overdue.Add(1) }).Stop
	} else {
		s.overdue.Add(1)
	}

	return func() {
		if !stop() {
			s.overdue.Add(-1)
		}
		s.abandoned.Add(-1)
	}
}

// shortName cuts the name of a tool that isn't listed. An agent may have made it up, and it reaches logs, traces
// and other agents.
func (g *Guard) shortName(name string) string {
	if len(name) > maxNameLen && g.listed[name] == nil {
		return clip(name)
	}
	return name
}

// clip cuts text from a client to maxNameLen bytes and an ellipsis.
func clip(s string) string {
	if len(s) <= maxNameLen {
		return s
	}
	return strings.ToValidUTF8(s[:maxNameLen], "") + "…"
}

// A table has up to maxNames values, whose names may come from agents. The zero value is empty and safe for
// concurrent use.
type table[K comparable, V any] struct {
	mu     sync.RWMutex
	byName map[K]V
	names  []K // the oldest first
}

// get returns the value of a name, or the zero value.
func (t *table[K, V]) get(name K) V {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byName[name]
}

// add returns the value of a name, and creates it if necessary. In a full table it replaces the oldest value that may
// go. If no value may go, or mayGo is nil, add returns the zero value.
func (t *table[K, V]) add(name K, create func() V, mayGo func(V) bool) (v V) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v, ok := t.byName[name]; ok {
		return v
	}

	if len(t.names) == maxNames {
		i := slices.IndexFunc(t.names, func(n K) bool { return mayGo != nil && mayGo(t.byName[n]) })
		if i < 0 {
			return v
		}
		delete(t.byName, t.names[i])
		t.names = slices.Delete(t.names, i, i+1)
	}
	if t.byName == nil {
		t.byName = make(map[K]V)
	}
	v = create()
	t.byName[name] = v
	t.names = append(t.names, name)
	return v
}

// remove removes a name.
func (t *table[K, V]) remove(name K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byName, name)
	t.names = slices.DeleteFunc(t.names, func(n K) bool { return n == name })
}

// all returns a copy of the table.
func (t *table[K, V]) all() map[K]V {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return maps.Clone(t.byName)
}
