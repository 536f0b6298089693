package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// A network connects the servers with their backend, the only host on it.
type network interface {
	// listen returns a listener for the backend, at the same address every time.
	listen() (net.Listener, error)

	// dial connects to the backend. It is an http.Transport's DialContext, and ignores the address. If the backend
	// doesn't listen, the connection is refused.
	dial(ctx context.Context, network, addr string) (net.Conn, error)
}

// loopback is a network over real TCP.
type loopback struct {
	addr string // set by the first listen, which must return before the first dial
}

func (l *loopback) listen() (net.Listener, error) {
	if l.addr != "" {
		return net.Listen("tcp", l.addr)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		l.addr = listener.Addr().String()
	}
	return listener, err
}

func (l *loopback) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", l.addr)
}

// A backend is an HTTP server that can slow down, hang, die and come back. The path of a request is the number of the
// call, or healthPath.
type backend struct {
	network network
	calls   []call

	mu     sync.Mutex // guards what follows
	mode   mode
	server *http.Server // nil while the backend is dead
}

const healthPath = "/healthz" // answers at once if the backend answers at all

// live takes the backend through the phases.
func (b *backend) live(ctx context.Context, start time.Time, phases []phase) error {
	for _, p := range phases {
		if !sleepUntil(ctx, start.Add(p.from)) {
			return ctx.Err()
		}
		if err := b.set(p.mode); err != nil {
			return err
		}
	}
	return nil
}

// set changes the mode, and starts or stops the server if the new mode needs it.
func (b *backend) set(m mode) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mode = m

	switch {
	case m == dead && b.server != nil:
		_ = b.server.Close() // closes connections in use, too, as the end of a process does
		b.server = nil
	case m != dead && b.server == nil:
		listener, err := b.network.listen()
		if err != nil {
			return fmt.Errorf("backend: %w", err)
		}
		b.server = &http.Server{Handler: b}
		go func(server *http.Server) { _ = server.Serve(listener) }(b.server) // until Close
	}
	return nil
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	m := b.mode
	b.mu.Unlock()
	if m == hangs {
		<-r.Context().Done()
		return
	}
	if r.URL.Path == healthPath {
		return
	}

	n, err := strconv.Atoi(r.URL.Path[1:])
	if err != nil || n < 0 || n >= len(b.calls) {
		http.NotFound(w, r)
		return
	}
	latency := b.calls[n].latency
	if m == slow {
		latency *= slowdown
	}
	if sleepUntil(r.Context(), time.Now().Add(latency)) {
		fmt.Fprintln(w, "All is well")
	}
}

// sleepUntil waits until t. It returns false if ctx ends before that.
func sleepUntil(ctx context.Context, t time.Time) bool {
	select {
	case <-time.After(time.Until(t)):
		return true
	case <-ctx.Done():
		return false
	}
}
