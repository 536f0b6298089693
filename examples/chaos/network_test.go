package main

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// memory is a network within a synctest bubble. Its connections are pipes.
type memory struct {
	latest atomic.Pointer[pipeListener]
}

func (m *memory) listen() (net.Listener, error) {
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	m.latest.Store(l)
	return l, nil
}

func (m *memory) dial(_ context.Context, network, _ string) (net.Conn, error) {
	l := m.latest.Load()
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		refused := os.NewSyscallError("connect", syscall.ECONNREFUSED)
		return nil, &net.OpError{Op: "dial", Net: network, Addr: l.Addr(), Err: refused}
	}
}

type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (*pipeListener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "tcp" }
func (pipeAddr) String() string  { return "backend" }

// The network in memory behaves like the real one, as far as the outage depends on it.
func TestNetworksRefuseConnectionsUnlessTheBackendListens(t *testing.T) {
	for name, network := range map[string]network{"loopback": &loopback{}, "memory": &memory{}} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second listener is the backend that is back
				listener, err := network.listen()
				require.NoError(t, err)
				go func() {
					conn, err := listener.Accept()
					if assert.NoError(t, err) {
						assert.NoError(t, conn.Close())
					}
				}()

				conn, err := network.dial(t.Context(), "tcp", "ignored:80")
				require.NoError(t, err)
				_, err = conn.Read(make([]byte, 1))
				assert.Equal(t, io.EOF, err, "the peer closed the connection")
				require.NoError(t, conn.Close())

				require.NoError(t, listener.Close())
				_, err = network.dial(t.Context(), "tcp", "ignored:80")
				var op *net.OpError
				require.ErrorAs(t, err, &op)
				assert.Equal(t, []string{"dial", "tcp"}, []string{op.Op, op.Net})
				assert.ErrorIs(t, err, syscall.ECONNREFUSED)
			}
		})
	}
}
