package main

import (
	"context"
	"net"
)

// A network connects the servers with their backend, the only host on it.
type network interface {
	// listen returns a listener for the backend, at the same address every time.
	listen() (net.Listener, error)

	// dial connects to the backend. It is an http.Transport's DialContext, and ignores
	// the address. If the backend doesn't listen, the connection is refused.
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
