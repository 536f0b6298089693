package console_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/console"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slowly reads so many bytes in 100ms.
type slowly struct {
	net.Conn
	most int // zero means all
}

func (s *slowly) Read(b []byte) (int, error) {
	if s.most > 0 {
		time.Sleep(100 * time.Millisecond)
		b = b[:min(len(b), s.most)]
	}
	return s.Conn.Read(b)
}

// withHistory calls n tools every ten seconds, for ten minutes.
func (f *fixture) withHistory(n int) {
	for range 60 {
		for i := range n {
			f.call(fmt.Sprintf("some_tool_of_a_server_%d", i), 1, 0, nil)
		}
		f.flush()
		time.Sleep(10 * time.Second)
	}
}

// A reader to whom an event was long in sending has all rows afterwards.
func TestSlowReaderMissesNoRows(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const name = "some_tool_of_a_server_0"
		f := newFixture(t, resilience.Config{}, console.Config{})
		_, p := f.serve()
		f.withHistory(100)
		ctx, stop := context.WithCancel(t.Context())
		defer time.Sleep(time.Second) // until no call is made any more
		defer stop()
		go func() {
			for ctx.Err() == nil {
				f.call(name, 1, 0, nil)
				time.Sleep(time.Second)
			}
		}()

		conn := &slowly{p.dial(), 512}
		defer conn.Close()
		_, err := io.WriteString(conn, "GET /api/events HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		r := &reader{f.T, conn, res, bufio.NewReader(res.Body)}

		start := time.Now()
		seen := make(map[float64]float64) // calls that succeeded, by the start of the step
		for n := range 5 {
			_, d := r.next()
			if n == 0 {
				assert.Greater(t, time.Since(start), 30*time.Second)
				conn.most = 0
			}
			if x := slices.IndexFunc(d.Tools, func(x tool) bool { return x.Tool == name }); x >= 0 {
				for _, row := range d.Tools[x].History {
					seen[row[0]] = row[1]
				}
			}
		}
		for _, row := range f.health().tool(t, name).History {
			assert.InDelta(t, row[1], seen[row[0]], 1, "in the ten seconds from %v", row[0]) // one may have come meanwhile
		}
	})
}

func TestCloseEndsAStreamThatIsBeingSent(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t, resilience.Config{}, console.Config{})
		server, p := f.serve()
		f.withHistory(300)
		conn := &slowly{p.dial(), 4096}
		defer time.Sleep(time.Second) // until nobody reads any more
		defer conn.Close()
		_, err := io.WriteString(conn, "GET /api/events HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		go func() { _, _ = io.Copy(io.Discard, conn) }()

		time.Sleep(time.Second)
		start := time.Now()
		require.NoError(t, server.Shutdown(t.Context())) // calls Close
		assert.Less(t, time.Since(start), 5*time.Second)
	})
}

// A snapshot of many busy tools may take longer than ten seconds.
func TestReaderThatIsSlowButSteadyStays(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t, resilience.Config{}, console.Config{})
		_, p := f.serve()
		f.withHistory(300)
		whole := f.do(http.MethodGet, "/api/health", "").Body.Len()
		conn := p.dial()
		defer conn.Close()
		_, err := io.WriteString(conn, "GET /api/events HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)

		start := time.Now()
		for taken, buffer := 0, make([]byte, 4096); taken < whole; {
			n, err := conn.Read(buffer)
			taken += n
			require.NoError(t, err, "after %s", time.Since(start))
			time.Sleep(100 * time.Millisecond)
		}
		assert.Greater(t, time.Since(start), 15*time.Second)
	})
}
