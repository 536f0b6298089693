// Package programs makes random programs of calls, and holds a guard against its nine promises while it runs them.
package programs

import (
	"time"

	"github.com/seed8d1e2389/resilience"
	"pgregory.net/rapid"
)

// This file is the language of the programs, and draws them. A program is data, which rapid can simplify. Values are
// drawn in the order of their simplicity, since rapid simplifies towards the first one.

// seconds are the unit of a program's durations. Zero mostly means that there is none.
type seconds int

func (s seconds) time() time.Duration { return time.Duration(s) * time.Second }

// A program is a guard, and what happens to it. Its clients never act at the same moment: the first one acts a turn
// after each full second, the second two turns, and so on.
type program struct {
	breakers     []breaker
	tools        []tool
	maxAbandoned int
	clients      [][]call
	looks        []seconds // after each other: Health and the breakers are compared with what has happened
}

const turn = 10 * time.Millisecond

type breaker struct {
	failures int
	cooldown seconds
}

type tool struct {
	effect     resilience.Effect
	timeout    seconds
	maxTimeout seconds
	retries    int // MaxRetries
	elapsed    seconds
	breaker    int
}

// A call is made by a client, some seconds after the one before, or by a tool.
type call struct {
	after    seconds
	tool     int
	timeout  seconds // the option
	waits    bool    // the option WaitForTool
	behind   bool    // an adapter, as are all calls within it: a failure of which nothing is known counts nowhere
	caller   string  // what the caller does: one of callerKinds; empty: it stays
	patience seconds
	attempts []script // the last one applies to all further attempts
}

var callerKinds = []string{"cancels", "brings a deadline", "has left"}

// A script is what an attempt does: some steps, and an ending, which is empty for a success and otherwise a name in
// endings.
type script struct {
	steps  []step
	ending string
}

type step struct {
	kind  string // one of stepKinds
	time  seconds
	calls []call // one, if the step makes a call
}

// The steps. While it works, a tool respects its context, and returns the error of that.
const (
	stepWork     = "work"
	stepHang     = "hang"     // ignores the context
	stepOutlast  = "outlast"  // works until the context ends, and then does the next step
	stepProgress = "progress" // ReportProgress
	stepPause    = "pause"
	stepResume   = "resume"
	stepGood     = "good answer" // ReportBackend
	stepTrouble  = "trouble"
	stepRejected = "rejection"
	stepTry      = "try" // makes a call, and goes on whatever comes of it
	stepCall     = "call"
)

var stepKinds = []string{
	stepWork, stepHang, stepOutlast, stepProgress, stepPause, stepResume, stepGood, stepTrouble, stepRejected,
	stepTry, stepCall,
}

func from[T any](t *rapid.T, label string, values ...T) T {
	return rapid.SampledFrom(values).Draw(t, label)
}

func between(t *rapid.T, label string, least, most int) int {
	return rapid.IntRange(least, most).Draw(t, label)
}

func secs(t *rapid.T, label string, least, most int) seconds {
	return seconds(between(t, label, least, most))
}

// seldom returns one of n values, and mostly the zero value.
func seldom[T any](t *rapid.T, label string, n int, draw func() T) (value T) {
	if between(t, label+"?", 0, n) == n {
		value = draw()
	}
	return value
}

var programs = rapid.Custom(func(t *rapid.T) (p program) {
	p.maxAbandoned = from(t, "maxAbandoned", 64, 1, 2)
	for range between(t, "breakers", 1, 2) {
		p.breakers = append(p.breakers, breaker{from(t, "failures", 2, 1, 3, 5), secs(t, "cooldown", 3, 12)})
	}
	for range between(t, "tools", 1, 3) {
		p.tools = append(p.tools, drawTool(t, len(p.breakers)))
	}
	for range between(t, "clients", 1, 4) {
		var calls []call
		for range between(t, "calls", 1, 6) {
			calls = append(calls, drawCall(t, &p, 0))
		}
		p.clients = append(p.clients, calls)
	}
	for range between(t, "looks", 0, 4) {
		p.looks = append(p.looks, secs(t, "look after", 1, 15))
	}
	return p
})

func drawTool(t *rapid.T, breakers int) tool {
	x := tool{
		effect: from(t, "effect", resilience.ReadOnly, resilience.NonIdempotent, resilience.EffectUnknown,
			resilience.Idempotent),
		timeout: secs(t, "timeout", 3, 20),
		retries: from(t, "retries", -1, 2, 1, 3),
		elapsed: from[seconds](t, "elapsed", -1, 0, 12),
		breaker: between(t, "breaker", 0, breakers-1),
	}
	x.maxTimeout = seldom(t, "maxTimeout", 1, func() seconds { return x.timeout + secs(t, "more", 1, 30) })
	return x
}

const maxDepth = 2 // of calls within calls

func drawCall(t *rapid.T, p *program, depth int) call {
	c := call{tool: between(t, "tool", 0, len(p.tools)-1)}
	if depth == 0 {
		c.after = secs(t, "after", 0, 12)
	}
	c.timeout = seldom(t, "Timeout", 6, func() seconds { return secs(t, "Timeout", 1, 30) })
	c.behind = seldom(t, "behind", 3, func() bool { return true })
	c.waits = seldom(t, "waits", 6, func() bool { return true })
	if c.caller = seldom(t, "caller", 3, func() string { return from(t, "caller", callerKinds...) }); c.caller != "" {
		c.patience = secs(t, "patience", 1, 20)
	}
	for range between(t, "attempts", 1, 3) {
		c.attempts = append(c.attempts, drawScript(t, p, depth))
	}
	return c
}

func drawScript(t *rapid.T, p *program, depth int) (s script) {
	kinds := stepKinds
	if depth == maxDepth {
		kinds = kinds[:len(kinds)-2]
	}
	for range between(t, "steps", 0, 4) {
		x := step{kind: from(t, "step", kinds...)}
		switch x.kind {
		case stepWork:
			x.time = secs(t, "work", 1, 12)
		case stepHang:
			x.time = secs(t, "hang", 1, 40)
		case stepOutlast:
			x.time = 100
		case stepCall, stepTry:
			x.calls = []call{drawCall(t, p, depth+1)}
		}
		s.steps = append(s.steps, x)
	}
	if between(t, "fails", 0, 2) > 0 {
		s.ending = rapid.SampledFrom(endings).Draw(t, "ending").name
	}
	return s
}
