// Package peers puts everything that is compared behind one signature, so that a
// benchmark and a test of it run the same code. Each peer is used as its documentation
// says: what can be made once is made once, what takes a context is given the caller's.
package peers

import (
	"context"
	"sync"
	"time"
)

// Tool is what is called.
type Tool func(context.Context) (string, error)

// Do calls fn as the named tool.
type Do func(ctx context.Context, tool string, fn Tool) (string, error)

// All calls fns side by side as the named tool, waits for all of them and returns how
// many failed.
type All func(ctx context.Context, tool string, fns []Tool) (failed int)

// System is a peer that is set up.
type System struct {
	Do  Do
	All All
}

// Settings are the same for all peers.
type Settings struct {
	Tools        []string
	Limit        time.Duration // for the whole call, however often it is tried
	Failures     int           // consecutive ones, which open the breaker
	Cooldown     time.Duration // how long it stays open
	Retries      int           // after the first attempt
	Delay        time.Duration // before the first retry; 0: none
	MaxAbandoned int           // only the guard has it; 0: its default
}

// Default is the guard's own default, for one tool.
func Default() Settings {
	return Settings{
		Tools:    []string{"tool"},
		Limit:    60 * time.Second,
		Failures: 5,
		Cooldown: 30 * time.Second,
		Retries:  3,
		Delay:    100 * time.Millisecond,
	}
}

// maxDelay is where all delays end.
func (s Settings) maxDelay() time.Duration { return 10 * s.Delay }

// Peer is one of those that are compared.
type Peer struct {
	Name string
	New  func(Settings) System

	Limits   bool // ends a call at its limit if the tool looks at its context
	Enforces bool // and if it doesn't
	Breaks   bool // has a breaker
	Retries  bool // tries again
}

// Names of peers that others are measured against.
const (
	Failsafe       = "failsafe"
	FloorBare      = "floor-bare"
	FloorTimeout   = "floor-timeout"
	FloorGoroutine = "floor-goroutine"
)

// List is all of them, in the order of their figures.
var List = []Peer{
	{Name: "guard", New: newGuard(false), Limits: true, Enforces: true, Breaks: true, Retries: true},
	{Name: "guard-coop", New: newGuard(true), Limits: true, Breaks: true, Retries: true},
	{Name: Failsafe, New: newFailsafe, Limits: true, Breaks: true, Retries: true},
	{Name: "failsafe-call", New: newFailsafeCall, Limits: true, Breaks: true, Retries: true},
	{Name: "hand", New: newHand, Limits: true, Enforces: true, Breaks: true, Retries: true},
	{Name: "resiliency", New: newResiliency, Limits: true, Enforces: true, Breaks: true, Retries: true},
	{Name: "gobreaker", New: newGobreaker, Breaks: true},
	{Name: FloorGoroutine, New: newFloorGoroutine, Limits: true, Enforces: true, Retries: true},
	{Name: FloorTimeout, New: newFloorTimeout, Limits: true, Retries: true},
	{Name: FloorBare, New: newFloorBare, Retries: true},
}

// Few are those of the cases that are run often: they limit a call, or are the floor of
// one that does.
var Few = Only("guard", "guard-coop", Failsafe, "hand", FloorGoroutine, FloorTimeout)

// Only returns those with the given names.
func Only(names ...string) (some []Peer) {
	for _, p := range List {
		for _, name := range names {
			if p.Name == name {
				some = append(some, p)
			}
		}
	}
	return some
}

// forEach makes a System of what newDo makes for each tool. One tool needs no map, and
// a program that has only one wouldn't write one.
func forEach(s Settings, newDo func(Settings) Do) System {
	if len(s.Tools) == 1 {
		return sideBySide(newDo(s))
	}
	dos := make(map[string]Do, len(s.Tools))
	for _, tool := range s.Tools {
		dos[tool] = newDo(s)
	}
	return sideBySide(func(ctx context.Context, tool string, fn Tool) (string, error) {
		return dos[tool](ctx, tool, fn)
	})
}

// sideBySide adds the All that people write by hand.
func sideBySide(do Do) System {
	type result struct {
		value string
		err   error
	}
	all := func(ctx context.Context, tool string, fns []Tool) (failed int) {
		results := make([]result, len(fns))
		var wg sync.WaitGroup
		for i, fn := range fns {
			wg.Go(func() {
				results[i].value, results[i].err = do(ctx, tool, fn)
			})
		}
		wg.Wait()
		for _, r := range results {
			if r.err != nil {
				failed++
			}
		}
		return failed
	}
	return System{Do: do, All: all}
}
