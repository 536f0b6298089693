package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A backend is an HTTP server that can slow down, hang, die and come back. The path of a
// request is /server/n, the name of the MCP server that sent it and the number of the call,
// or healthPath.
type backend struct {
	network network
	calls   []call
	fail    func(error) // ends the run if the backend can't continue

	mu      sync.Mutex // guards what follows
	mode    mode
	server  *http.Server
	traffic map[string]*traffic // by MCP server
}

const healthPath = "/healthz" // answers at once if the backend answers at all

// Traffic counts the requests by calls of one MCP server that reached the backend.
type traffic struct {
	requests, open, mostOpen int
}

// live takes the backend through the phases.
func (b *backend) live(ctx context.Context, start time.Time, phases []phase) {
	for _, p := range phases {
		if !sleepUntil(ctx, start.Add(p.from)) {
			return
		}
		if err := b.set(p.mode); err != nil {
			b.fail(err)
			return
		}
	}
}

// set changes the mode, and starts or stops the server if the new mode needs it.
func (b *backend) set(m mode) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mode = m

	if m == dead {
		if b.server != nil {
			_ = b.server.Close() // closes connections in use, too, as the end of a process does
			b.server = nil
		}
		return nil
	}
	if b.server != nil {
		return nil
	}

	listener, err := b.network.listen()
	if err != nil {
		return fmt.Errorf("backend: %w", err)
	}
	b.server = &http.Server{Handler: b}
	go func(server *http.Server) {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			b.fail(fmt.Errorf("backend: %w", err))
		}
	}(b.server)
	return nil
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == healthPath {
		if b.current() == hangs {
			<-r.Context().Done()
		}
		return
	}

	server := strings.Trim(path.Dir(r.URL.Path), "/")
	n, err := strconv.Atoi(path.Base(r.URL.Path))
	if err != nil || n < 0 || n >= len(b.calls) {
		http.NotFound(w, r)
		return
	}

	m := b.enter(server)
	defer b.leave(server)

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

func (b *backend) current() mode {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mode
}

// enter counts a request and returns the mode that applies to it.
func (b *backend) enter(server string) mode {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.traffic[server]
	if t == nil {
		t = &traffic{}
		b.traffic[server] = t
	}

	t.requests++
	t.open++
	t.mostOpen = max(t.mostOpen, t.open)
	return b.mode
}

func (b *backend) leave(server string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.traffic[server].open--
}

// reached returns what reached the backend from an MCP server.
func (b *backend) reached(server string) traffic {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.traffic[server]; t != nil {
		return *t
	}
	return traffic{}
}

// sleepUntil waits until t. It returns false if ctx ends before that.
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
