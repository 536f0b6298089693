package programs

import (
	"github.com/seed8d1e2389/resilience"
	"pgregory.net/rapid"
)

// This file draws programs. Values come in the order of their simplicity, since rapid simplifies towards the first one.

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

var programs = rapid.Custom(drawProgram)

func drawProgram(t *rapid.T) (p program) {
	p.maxAbandoned = from(t, "maxAbandoned", 64, 1, 2)
	for range between(t, "breakers", 1, 2) {
		p.breakers = append(p.breakers, drawBreaker(t))
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
	for range between(t, "orders", 0, 6) {
		p.operator = append(p.operator, order{
			after:   secs(t, "after", 1, 15),
			what:    from(t, "what", "look", "look", "trip", "reset", "isolate", "reset"),
			breaker: between(t, "breaker", 0, len(p.breakers)-1),
			time:    secs(t, "time", 0, 8),
		})
	}
	p.closes = seldom(t, "closes", 7, func() seconds { return secs(t, "closes at", 1, 60) })
	return p
}

func drawBreaker(t *rapid.T) breaker {
	b := breaker{failures: from(t, "failures", 2, 1, 3, 5), cooldown: secs(t, "cooldown", 3, 12)}
	b.probe = seldom(t, "probe", 2, func() string { return from(t, "probe", probeKinds...) })
	b.back = secs(t, "back", 0, 60)
	return b
}

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
	x.attemptTimeout = seldom(t, "attemptTimeout", 2, func() seconds { return secs(t, "attemptTimeout", 1, 8) })
	x.maxInFlight = seldom(t, "maxInFlight", 3, func() int { return between(t, "maxInFlight", 1, 2) })
	x.cooperative = seldom(t, "cooperative", 4, func() bool { return true })
	return x
}

const maxDepth = 2 // of calls within calls

func drawCall(t *rapid.T, p *program, depth int) call {
	c := call{tool: between(t, "tool", 0, len(p.tools)-1)}
	if depth == 0 {
		c.after = secs(t, "after", 0, 12)
	} else {
		c.detached = seldom(t, "detached", 5, func() bool { return true })
	}
	c.key = seldom(t, "key", 4, func() string { return from(t, "key", "a", "b") })
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
	for range between(t, "steps", 0, 4) {
		kinds := []string{stepWork, stepWork, stepWork, stepHang, stepOutlast, stepProgress, stepProgress, stepPause,
			stepResume, stepGood, stepTrouble, stepRejected}
		if depth < maxDepth {
			kinds = append(kinds, stepCall, stepTry)
		}
		x := step{kind: from(t, "step", kinds...)}
		switch x.kind {
		case stepWork:
			x.time = secs(t, "work", 1, 12)
		case stepHang:
			x.time = secs(t, "hang", 1, 40)
		case stepOutlast:
			x.time = 100
		case stepCall, stepTry:
			c := drawCall(t, p, depth+1)
			x.call = &c
		}
		s.steps = append(s.steps, x)
	}
	if between(t, "fails", 0, 2) > 0 {
		s.ending = rapid.SampledFrom(endings).Draw(t, "ending").name
	}
	return s
}
