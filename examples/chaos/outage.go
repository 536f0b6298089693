package main

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// A mode is what the backend does with a request.
type mode int

const (
	answers mode = iota
	slow         // answers, but takes slowdown times as long
	hangs        // doesn't answer until the client has left
	dead         // doesn't listen: connections are refused
)

const slowdown = 8

// A phase is a part of the outage.
type phase struct {
	name     string
	mode     mode
	from, to time.Duration // since the start
}

// outage returns the phases in order, without gaps.
func outage(cfg config) []phase {
	phases := []phase{
		{name: "healthy", mode: answers, to: cfg.healthy},
		{name: "slow", mode: slow, to: cfg.slow},
		{name: "hangs", mode: hangs, to: cfg.hang},
		{name: "dead", mode: dead, to: cfg.dead},
		{name: "back", mode: answers, to: cfg.back},
	}

	at := time.Duration(0)
	for i := range phases {
		phases[i].from, phases[i].to = at, at+phases[i].to
		at = phases[i].to
	}
	return phases
}

// length returns how long the whole outage lasts.
func length(cfg config) time.Duration {
	phases := outage(cfg)
	return phases[len(phases)-1].to
}

// A call is what an agent asks of each server.
type call struct {
	agent   int
	at      time.Duration // since the start
	latency time.Duration // of the backend while it is healthy
}

// schedule returns all calls, ordered by time. It depends on nothing but cfg, so both
// servers receive the same calls, and the same seed gives the same calls again.
func schedule(cfg config) []call {
	end := length(cfg)
	var calls []call
	for agent := range cfg.agents {
		// Each agent has its own generator, so adding an agent doesn't change the others' calls.
		rng := rand.New(rand.NewPCG(cfg.seed, uint64(agent)))
		every := float64(cfg.every)

		at := micros(rng.Float64() * every)
		for at < end {
			// Latencies are log-normal. About one in seven slow ones exceeds the timeout.
			latency := micros(float64(cfg.timeout) / 12 * math.Exp(0.4*rng.NormFloat64()))
			calls = append(calls, call{agent, at, latency})
			at += micros((0.5 + rng.Float64()) * every)
		}
	}

	slices.SortStableFunc(calls, func(a, b call) int { return cmp.Compare(a.at, b.at) })
	return calls
}

// micros returns nanoseconds as a duration of whole microseconds: the last digits of a
// float64 differ between architectures.
func micros(nanoseconds float64) time.Duration {
	return time.Duration(nanoseconds).Round(time.Microsecond)
}
