// Package peers puts everything that is compared behind one signature, so that a
// benchmark and its test run the same code. Each peer is used as its documentation
// recommends: what can be made once is made once, and what takes a context gets the
// caller's.
package peers

import (
	"context"
	"slices"
	"strconv"
	"time"
)

// A Tool is the function that a peer calls.
type Tool func(context.Context) (string, error)

// Do calls fn as the named tool.
type Do func(ctx context.Context, tool string, fn Tool) (string, error)

// Settings configure a peer. In a benchmark, all peers have the same ones.
type Settings struct {
	Tools    []string
	Timeout  time.Duration // of the whole call, including its retries
	Failures int           // how many consecutive failures open the breaker
	Cooldown time.Duration // how long the breaker stays open
	Retries  int           // how many attempts may follow the first one
	Delay    time.Duration // before the first retry; zero means none
}

// Default returns the guard's own defaults, for one tool.
func Default() Settings {
	return Settings{
		Tools:    []string{"tool"},
		Timeout:  60 * time.Second,
		Failures: 5,
		Cooldown: 30 * time.Second,
		Retries:  3,
		Delay:    100 * time.Millisecond,
	}
}

// ToolNames returns n names.
func ToolNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = "tool-" + strconv.Itoa(i)
	}
	return names
}

// maxDelay returns the longest delay before a retry.
func (s Settings) maxDelay() time.Duration { return 10 * s.Delay }

// A Peer is one of the implementations that are compared.
type Peer struct {
	Name string
	New  func(Settings) Do

	TimesOut bool // ends a call at its timeout if the tool respects its context
	Enforces bool // ends a call at its timeout even if the tool ignores its context
	Breaks   bool // has a circuit breaker
	Retries  bool // retries failed calls
}

// These are the names of peers that others are measured against.
const (
	Failsafe       = "failsafe"
	FloorBare      = "floor-bare"
	FloorTimeout   = "floor-timeout"
	FloorGoroutine = "floor-goroutine"
	Duties         = "duties"
	DutiesCoop     = "duties-coop"
)

// List holds all peers, in the order in which their figures are printed.
var List = []Peer{
	{Name: "guard", New: newGuard(false), TimesOut: true, Enforces: true, Breaks: true, Retries: true},
	{Name: "guard-coop", New: newGuard(true), TimesOut: true, Breaks: true, Retries: true},
	{Name: Failsafe, New: newFailsafe, TimesOut: true, Breaks: true, Retries: true},
	{Name: "failsafe-call", New: newFailsafeCall, TimesOut: true, Breaks: true, Retries: true},
	{Name: "hand", New: newHand, TimesOut: true, Enforces: true, Breaks: true, Retries: true},
	{Name: "resiliency", New: newResiliency, TimesOut: true, Enforces: true, Breaks: true, Retries: true},
	{Name: "gobreaker", New: newGobreaker, Breaks: true},
	{Name: FloorGoroutine, New: newFloorGoroutine, TimesOut: true, Enforces: true, Retries: true},
	{Name: FloorTimeout, New: newFloorTimeout, TimesOut: true, Retries: true},
	{Name: FloorBare, New: newFloorBare, Retries: true},
}

// Minimal holds what the guard is measured against beside List: see newDuties.
var Minimal = []Peer{
	{Name: Duties, New: newDuties(true), TimesOut: true, Enforces: true, Breaks: true},
	{Name: DutiesCoop, New: newDuties(false), TimesOut: true, Breaks: true},
}

// Few holds the peers of the cases that have many variants: those that have a timeout, and
// the floor of each kind.
var Few = Only("guard", "guard-coop", Failsafe, "hand", FloorGoroutine, FloorTimeout)

// Only returns the peers with the given names, in the order of List.
func Only(names ...string) (some []Peer) {
	for _, p := range slices.Concat(List, Minimal) {
		if slices.Contains(names, p.Name) {
			some = append(some, p)
		}
	}
	return some
}

// forEach returns a Do that has a Do of its own for every tool. A single tool needs no map: a program that has only one
// wouldn't use one either.
func forEach(s Settings, newDo func(Settings) Do) Do {
	if len(s.Tools) == 1 {
		return newDo(s)
	}

	dos := make(map[string]Do, len(s.Tools))
	for _, tool := range s.Tools {
		dos[tool] = newDo(s)
	}
	return func(ctx context.Context, tool string, fn Tool) (string, error) {
		return dos[tool](ctx, tool, fn)
	}
}
