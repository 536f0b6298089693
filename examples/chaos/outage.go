package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A mode is what the backend does with a request.
type mode int

const (
	answers mode = iota
	slow         // answers, but takes slowdown times as long
	hangs        // doesn't answer until the client has left
	dead         // there is no backend: connections are refused
)

const slowdown = 8

// A phase is a part of the outage.
type phase struct {
	name     string
	mode     mode
	from, to time.Duration // since the start
}

// outage returns the phases one after the other.
func outage(cfg config) []phase {
	phases := []phase{
		{"healthy", answers, 0, cfg.healthy},
		{"slow", slow, 0, cfg.slow},
		{"hangs", hangs, 0, cfg.hang},
		{"dead", dead, 0, cfg.dead},
		{"back", answers, 0, cfg.back},
	}
	at := time.Duration(0)
	for i := range phases {
		phases[i].from, phases[i].to = at, at+phases[i].to
		at = phases[i].to
	}
	return phases
}

// A call is what an agent shall do, whichever server it talks to.
type call struct {
	agent   int
	at      time.Duration // since the start
	latency time.Duration // that of the backend while it is healthy
}

// schedule returns all calls, by time. It depends on nothing but cfg, so that both
// servers are asked the same, and a seed gives the same load again.
func schedule(cfg config) []call {
	phases := outage(cfg)
	end := phases[len(phases)-1].to
	var calls []call
	for agent := range cfg.agents {
		chance := rand.New(rand.NewPCG(cfg.seed, uint64(agent))) // its own, so that more agents change nothing for the others
		pause := float64(time.Second) / cfg.rate
		at := time.Duration(chance.Float64() * pause)
		for at < end {
			// Log-normal, as latencies are; of slow ones about every seventh is above the limit.
			latency := float64(cfg.limit) / 12 * math.Exp(0.4*chance.NormFloat64())
			calls = append(calls, call{agent, at, time.Duration(latency)})
			at += time.Duration((0.5 + chance.Float64()) * pause)
		}
	}
	slices.SortStableFunc(calls, func(a, b call) int { return cmp.Compare(a.at, b.at) })
	return calls
}

// A backend is an HTTP server that can hang and be stopped, and comes back at the same
// address. GET /who/n is the request of who's server for the call of that number.
type backend struct {
	calls  []call
	broken func(error) // told if it can't go on

	mu      sync.Mutex // guards what follows
	mode    mode
	addr    string
	server  *http.Server
	traffic map[string]*traffic // by who
}

// Traffic is what reached a backend.
type traffic struct {
	requests, open, mostOpen int
}

func (b *backend) url() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return "http://" + b.addr
}

// live takes the backend through the phases.
func (b *backend) live(ctx context.Context, start time.Time, phases []phase) {
	for _, p := range phases {
		if !sleepUntil(ctx, start.Add(p.from)) {
			return
		}
		if err := b.set(p.mode); err != nil {
			b.broken(err)
			return
		}
	}
}

// set starts and stops the server as the mode demands.
func (b *backend) set(m mode) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mode = m
	if m == dead {
		if b.server != nil {
			_ = b.server.Close() // also resets what hangs, as a process that dies does
			b.server = nil
		}
		return nil
	}
	if b.server != nil {
		return nil
	}
	addr := b.addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("backend: %w", err)
	}
	b.addr = listener.Addr().String()
	b.server = &http.Server{Handler: b, ReadHeaderTimeout: time.Second}
	go func(server *http.Server) {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			b.broken(fmt.Errorf("backend: %w", err))
		}
	}(b.server)
	return nil
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who := strings.Trim(path.Dir(r.URL.Path), "/")
	n, err := strconv.Atoi(path.Base(r.URL.Path))
	if err != nil || n < 0 || n >= len(b.calls) {
		http.NotFound(w, r)
		return
	}
	m := b.enter(who)
	defer b.leave(who)
	latency := b.calls[n].latency
	switch m {
	case slow:
		latency *= slowdown
	case hangs:
		<-r.Context().Done()
		return
	}
	if sleepUntil(r.Context(), time.Now().Add(latency)) {
		fmt.Fprintln(w, "All is well")
	}
}

// enter counts a request, and tells what to do with it.
func (b *backend) enter(who string) mode {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.traffic[who]
	if t == nil {
		t = &traffic{}
		b.traffic[who] = t
	}
	t.requests++
	t.open++
	t.mostOpen = max(t.mostOpen, t.open)
	return b.mode
}

func (b *backend) leave(who string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.traffic[who].open--
}

func (b *backend) reached(who string) traffic {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.traffic[who]; t != nil {
		return *t
	}
	return traffic{}
}

// sleepUntil reports false if ctx ended before t.
func sleepUntil(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
