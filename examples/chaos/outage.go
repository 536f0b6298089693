package main

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// A config describes the outage, and what the servers and their clients do about it.
type config struct {
	seed              uint64
	agents            int
	every             time.Duration // between an agent's calls, on average
	clientTimeout     time.Duration // after which the agents' clients give up on a call
	timeout, cooldown time.Duration // of the guards
	probeInterval     time.Duration
	phases            []phase // in order, without gaps
}

// newConfig returns the config of docs/chaos.svg, with all durations divided by speed.
func newConfig(seed uint64, speed int) config {
	scaled := func(d time.Duration) time.Duration { return d / time.Duration(speed) }
	cfg := config{
		seed:          seed,
		agents:        8,
		every:         scaled(10 * time.Second),
		clientTimeout: scaled(time.Minute),
		timeout:       scaled(10 * time.Second),
		cooldown:      scaled(30 * time.Second),
		probeInterval: scaled(time.Second),
	}

	at := time.Duration(0)
	for _, p := range []struct {
		name   string
		mode   mode
		length time.Duration
	}{
		{"healthy", answers, time.Minute},
		{"slow", slow, time.Minute},
		{"hangs", hangs, 2 * time.Minute},
		{"dead", dead, 2 * time.Minute},
		{"back", answers, 2 * time.Minute},
	} {
		next := at + scaled(p.length)
		cfg.phases = append(cfg.phases, phase{p.name, p.mode, at, next})
		at = next
	}
	return cfg
}

// A phase is a part of the outage.
type phase struct {
	name     string
	mode     mode
	from, to time.Duration // since the start
}

// A mode is what the backend does with a request.
type mode int

const (
	answers mode = iota
	slow         // answers, but takes slowdown times as long
	hangs        // doesn't answer until the client has left
	dead         // doesn't listen: connections are refused
)

const slowdown = 8

// end returns how long the whole outage lasts.
func (cfg config) end() time.Duration { return cfg.phases[len(cfg.phases)-1].to }

// down returns from when to when the backend answers no call.
func (cfg config) down() (from, to time.Duration) {
	for _, p := range cfg.phases {
		switch p.mode {
		case hangs:
			from = p.from
		case dead:
			to = p.to
		}
	}
	return from, to
}

// A call is what an agent asks of each server.
type call struct {
	agent   int
	at      time.Duration // since the start
	latency time.Duration // of the backend while it is healthy
}

// schedule returns all calls, ordered by time. All servers receive the same calls, and the same seed gives the same
// calls again.
func schedule(cfg config) (calls []call) {
	for agent := range cfg.agents {
		rng := rand.New(rand.NewPCG(cfg.seed, uint64(agent)))
		every := float64(cfg.every)

		at := micros(rng.Float64() * every)
		for at < cfg.end() {
			// Latencies are log-normal. About one in seven slow ones exceeds the timeout.
			latency := micros(float64(cfg.timeout) / 12 * math.Exp(0.4*rng.NormFloat64()))
			calls = append(calls, call{agent, at, latency})
			at += micros((0.5 + rng.Float64()) * every)
		}
	}
	slices.SortStableFunc(calls, func(a, b call) int { return cmp.Compare(a.at, b.at) })
	return calls
}

// micros returns nanoseconds as a duration of whole microseconds: the last digits of a float64 differ between
// architectures.
func micros(nanoseconds float64) time.Duration {
	return time.Duration(nanoseconds).Round(time.Microsecond)
}
