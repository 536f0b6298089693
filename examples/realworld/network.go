package main

import (
	"context"
	"net"
)

// A network connects a server with its backend, the only host on it.
type network interface {
	listen() (net.Listener, error)

	// dial connects to a backend that listens, and is refused by one that doesn't. It is an
	// http.Transport's DialContext, and ignores the address.
	dial(ctx context.Context, network, addr string) (net.Conn, error)
}

// A loopback is a network over real TCP.
type loopback struct{ addr string }

func (l *loopback) listen() (net.Listener, error) {
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
