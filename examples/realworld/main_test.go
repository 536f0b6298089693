package main

import (
	"context"
	"flag"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the table in README.md")

// memory is a network within a synctest bubble. Its connections are pipes.
type memory struct{ listener *pipeListener }

func (m *memory) listen() (net.Listener, error) {
	m.listener = &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	return m.listener, nil
}

func (m *memory) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case m.listener.conns <- server:
		return client, nil
	case <-m.listener.closed:
		refused := os.NewSyscallError("connect", syscall.ECONNREFUSED)
		return nil, &net.OpError{Op: "dial", Net: network, Addr: m.listener.Addr(), Err: refused}
	case <-ctx.Done():
		return nil, ctx.Err()
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

func (*pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80} }

// TestTable compares the table in README.md with a run in fake time.
func TestTable(t *testing.T) {
	var rows []row
	synctest.Test(t, func(t *testing.T) {
		var err error
		newNetwork := func() network { return &memory{} }
		rows, err = run(t.Context(), newNetwork, limits{tool: 30 * time.Second, agent: time.Minute})
		require.NoError(t, err)
	})
	require.NoError(t, check(rows))

	var b strings.Builder
	require.NoError(t, table(&b, rows))
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	before, _, found := strings.Cut(string(readme), "| client |")
	require.True(t, found, "README.md has no table")
	want := before + b.String()
	if *update {
		require.NoError(t, os.WriteFile("README.md", []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(readme), "go test -run TestTable -update rewrites the table")
}
