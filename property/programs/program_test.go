// Package programs makes random programs of calls, and holds a guard against its nine promises while it runs them.
package programs

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// This file is the language of the programs. A program is data: rapid can simplify it, and it prints as a text that
// tells what happens.

// seconds are the unit of a program's durations. Zero mostly means that there is none.
type seconds int

func (s seconds) time() time.Duration { return time.Duration(s) * time.Second }

// A program is a guard, and what happens to it. Its clients, its operator and its Probes never act at the same
// moment: the first client acts a turn after each full second, the second two turns, and so on.
type program struct {
	breakers     []breaker
	tools        []tool
	maxAbandoned int
	clients      [][]call
	operator     []order
	closes       seconds // when the guard is closed
}

const turn = 10 * time.Millisecond

type breaker struct {
	failures int
	cooldown seconds
	probe    string  // what its Probe does while the backend is down; empty: there is none
	back     seconds // when the backend is up, for the Probe
}

// What a Probe does while the backend is down.
var probeKinds = []string{"fails", "says nothing", "panics", "hangs", "hangs, ignoring its context"}

type tool struct {
	effect         resilience.Effect
	timeout        seconds
	maxTimeout     seconds
	attemptTimeout seconds
	retries        int // MaxRetries
	elapsed        seconds
	maxInFlight    int
	cooperative    bool
	breaker        int
}

// A call is made by a client, some seconds after the one before, or by a tool.
type call struct {
	after    seconds
	tool     int
	key      string
	timeout  seconds // the option
	waits    bool    // the option WaitForTool
	detached bool    // by a tool: it doesn't end with the call around it
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
	kind string // one of stepKinds
	time seconds
	call *call
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

// An order is what the operator does. A look compares Health with what has happened.
type order struct {
	after   seconds
	what    string // look, isolate, trip or reset
	breaker int
	time    seconds // of a trip
}

func (p program) GoString() string {
	var b strings.Builder
	b.WriteByte('\n')
	for i, x := range p.breakers {
		fmt.Fprintf(&b, "\tbreaker %d opens after %d failures for %ds%s\n", i, x.failures, x.cooldown,
			when(x.probe != "", ", its Probe %s until %ds", x.probe, x.back))
	}
	for i, x := range p.tools {
		fmt.Fprintf(&b, "\ttool %d: %s\n", i, x)
	}
	fmt.Fprintf(&b, "\tat most %d abandoned\n", p.maxAbandoned)
	for i, calls := range p.clients {
		fmt.Fprintf(&b, "\tclient %d:\n", i)
		for _, c := range calls {
			fmt.Fprintf(&b, "\t\t%s\n", c)
		}
	}
	for _, o := range p.operator {
		fmt.Fprintf(&b, "\toperator: after %ds %s breaker %d%s\n", o.after, o.what, o.breaker,
			when(o.what == "trip", " for %ds", o.time))
	}
	return b.String() + when(p.closes > 0, "\tthe guard is closed at %ds\n", p.closes)
}

func (t tool) String() string {
	return fmt.Sprintf("%s, %ds%s%s, %d retries%s, breaker %d%s%s", t.effect, t.timeout,
		when(t.maxTimeout > 0, " up to %ds", t.maxTimeout),
		when(t.attemptTimeout > 0, ", attempts %ds", t.attemptTimeout),
		t.retries, when(t.elapsed > 0, " within %ds", t.elapsed), t.breaker,
		when(t.maxInFlight > 0, ", %d in flight", t.maxInFlight), when(t.cooperative, ", cooperative"))
}

func (c call) String() string {
	var scripts []string
	for _, s := range c.attempts {
		scripts = append(scripts, s.String())
	}
	return fmt.Sprintf("after %ds tool %d%s%s%s%s%s { %s }", c.after, c.tool, when(c.key != "", " key %s", c.key),
		when(c.timeout > 0, " Timeout(%ds)", c.timeout), when(c.waits, " WaitForTool"), when(c.detached, " detached"),
		when(c.behind, " behind an adapter")+when(c.caller != "", ", whose caller %s (%ds)", c.caller, c.patience), strings.Join(scripts, " | "))
}

func (s script) String() string {
	var steps []string
	for _, x := range s.steps {
		switch {
		case x.call != nil:
			steps = append(steps, x.kind+" "+x.call.String())
		case x.time > 0:
			steps = append(steps, fmt.Sprintf("%s %ds", x.kind, x.time))
		default:
			steps = append(steps, x.kind)
		}
	}
	if s.ending != "" {
		steps = append(steps, s.ending)
	}
	return strings.Join(steps, "; ")
}

func when(yes bool, format string, args ...any) string {
	if !yes {
		return ""
	}
	return fmt.Sprintf(format, args...)
}
