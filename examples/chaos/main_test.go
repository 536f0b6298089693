package main

import (
	"bytes"
	"context"
	"flag"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite docs/chaos.svg")

// memory is a network within a synctest bubble. Its connections are pipes.
type memory struct {
	latest atomic.Pointer[pipeListener]
}

func (m *memory) listen() (net.Listener, error) {
	l := newPipeListener()
	m.latest.Store(l)
	return l, nil
}

func (m *memory) dial(_ context.Context, network, _ string) (net.Conn, error) {
	l := m.latest.Load()
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.ctx.Done():
		refused := os.NewSyscallError("connect", syscall.ECONNREFUSED)
		return nil, &net.OpError{Op: "dial", Net: network, Addr: l.Addr(), Err: refused}
	}
}

// A pipeListener accepts connections until its context ends.
type pipeListener struct {
	conns chan net.Conn
	ctx   context.Context
	end   context.CancelFunc
}

func newPipeListener() *pipeListener {
	ctx, cancel := context.WithCancel(context.Background())
	return &pipeListener{make(chan net.Conn), ctx, cancel}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error { l.end(); return nil }

func (*pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "backend"} }

// TestPicture compares the figures in docs/performance.md with a run in fake time, apart from the server with a Probe:
// the times between Probes are drawn.
func TestPicture(t *testing.T) {
	out := filepath.Join(t.TempDir(), "chaos.svg")
	if *update {
		out = "../../docs/chaos.svg"
	}
	var stdout bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, run(t.Context(), &memory{}, 1, 1, out, &stdout))
	})
	t.Logf("\n%s", stdout.String())
	var printed []string
	for line := range strings.Lines(stdout.String()) {
		printed = append(printed, strings.Join(strings.Fields(line), " "))
	}

	doc, err := os.ReadFile("../../docs/performance.md")
	require.NoError(t, err)
	head := "| | " + strings.Join(kindNames[:], " | ") + " |\n|---|---|---|---|\n"
	_, figures, _ := strings.Cut(string(doc), head)
	figures, _, _ = strings.Cut(figures, "\n\n")
	require.NotEmpty(t, figures, "the table of docs/performance.md")
	for row := range strings.Lines(figures) {
		columns := strings.Split(strings.Trim(row, "|\n"), "|")
		want := strings.Join(strings.Fields(strings.Join(columns[:3], " ")), " ") + " "
		found := slices.ContainsFunc(printed, func(row string) bool { return strings.HasPrefix(row, want) })
		assert.True(t, found, "the table of docs/performance.md: %s", want)
	}
}

// What docs/performance.md says of every guard, whatever the calls are.
func TestGuardsKeepTheirPromises(t *testing.T) {
	cfg := newConfig(2, 1)
	var all results
	synctest.Test(t, func(t *testing.T) {
		var err error
		all, err = drive(t.Context(), cfg, &memory{})
		require.NoError(t, err)
	})

	require.NotEmpty(t, all[unguarded].made(gaveUp), "there was no outage to speak of")
	for _, k := range []kind{guarded, probing} {
		r := all[k]
		assert.Empty(t, r.made(gaveUp), kindNames[k])
		assert.Empty(t, r.made(failed), kindNames[k])
		assert.LessOrEqual(t, r.latency(1), cfg.timeout, kindNames[k])
		assert.Less(t, r.sentWhileDown(cfg), all[unguarded].sentWhileDown(cfg), kindNames[k])
		require.NotEmpty(t, r.changes, kindNames[k])
		assert.Equal(t, resilience.StateClosed, r.changes[len(r.changes)-1].to, kindNames[k])
	}
	_, back := cfg.down()
	assert.Zero(t, all[probing].failedSince(back+cfg.probeInterval))
	_, ok := all[probing].recovery(cfg)
	assert.True(t, ok)
}

// How the calls end in real time depends on the machine, so the test only looks at the picture's texts.
func TestRealTime(t *testing.T) {
	out := filepath.Join(t.TempDir(), "chaos.svg")
	require.NoError(t, run(t.Context(), &loopback{}, 1, 500, out, io.Discard))
	svg, err := os.ReadFile(out)
	require.NoError(t, err)
	for _, text := range []string{"With the guard and a Probe", "hangs", "clients give up: 120ms", "half-open"} {
		assert.Contains(t, string(svg), text)
	}
	assert.ErrorContains(t, run(t.Context(), &loopback{}, 1, 0, out, io.Discard), "-speed 0")
}
