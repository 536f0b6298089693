package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync/atomic"
)

// A backend is an HTTP server that can hang, be stopped, and be started again at the same
// address.
type backend struct {
	addr    string
	server  *http.Server
	hanging atomic.Bool
}

func (b *backend) url() string { return "http://" + b.addr }

// start starts the backend. When start returns, the backend accepts connections.
func (b *backend) start() error {
	listener, err := b.listen()
	if err != nil {
		return err
	}
	b.addr = listener.Addr().String()
	b.hanging.Store(false)

	server := &http.Server{Handler: b, ReadHeaderTimeout: patience}
	b.server = server
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintln(os.Stderr, "demo: backend:", err)
		}
	}()
	return nil
}

// listen listens at the backend's address. The first call chooses one that stays free while the
// backend is stopped: its port is below those that systems give to outgoing connections.
func (b *backend) listen() (listener net.Listener, err error) {
	if b.addr != "" {
		return net.Listen("tcp", b.addr)
	}
	for range 100 {
		listener, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 12000+rand.IntN(18000)))
		if err == nil {
			return listener, nil
		}
	}
	return nil, err
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if b.hanging.Load() {
		<-r.Context().Done() // until the client has left
		return
	}
	fmt.Fprintln(w, `{"headline":"All is well"}`)
}

func (b *backend) hang() { b.hanging.Store(true) }

func (b *backend) stop() { _ = b.server.Close() }
