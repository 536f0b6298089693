package console_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience/adapters/console"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A pipe is a listener in memory, for a server in a synctest bubble.
type pipe chan net.Conn

func (p pipe) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipe) Close() error   { close(p); return nil }
func (p pipe) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// dial returns a connection, whose writes wait for reads: nothing is buffered on the way.
func (p pipe) dial() net.Conn {
	ours, theirs := net.Pipe()
	p <- theirs
	return ours
}

// serve serves the console until the test ends. The server's timeouts are shorter than streams.
func (f *fixture) serve() (*http.Server, pipe) {
	listener := make(pipe)
	server := &http.Server{
		Handler: f.handler, ReadTimeout: 2 * time.Second, WriteTimeout: 2 * time.Second, IdleTimeout: time.Second,
	}
	server.RegisterOnShutdown(f.console.Close)
	go func() { _ = server.Serve(listener) }() // until Close
	f.Cleanup(func() { _ = server.Close() })
	return server, listener
}

// A reader reads the events of a stream.
type reader struct {
	*testing.T
	conn net.Conn
	res  *http.Response
	text *bufio.Reader
}

func (f *fixture) stream(p pipe) *reader {
	f.Helper()
	conn := p.dial()
	f.Cleanup(func() { _ = conn.Close() })
	_, err := io.WriteString(conn, "GET /api/events HTTP/1.1\r\nHost: x\r\nLast-Event-ID: 7\r\n\r\n")
	require.NoError(f, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(f, err)
	return &reader{f.T, conn, res, bufio.NewReader(res.Body)}
}

// next returns the next event.
func (r *reader) next() (name string, d document) {
	r.Helper()
	name, d, err := r.read()
	require.NoError(r, err)
	return name, d
}

func (r *reader) read() (name string, d document, err error) {
	for {
		line, err := r.text.ReadString('\n')
		if err != nil {
			return "", d, err
		}
		if text, ok := strings.CutPrefix(line, "event: "); ok {
			name = strings.TrimSpace(text)
		}
		if text, ok := strings.CutPrefix(line, "data: "); ok {
			require.NoError(r, json.Unmarshal([]byte(text), &d))
		}
		if line == "\n" {
			return name, d, nil
		}
	}
}

func TestEventsAreASnapshotAndWhatChanges(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t, tools("a", "b"), console.Config{})
		_, p := f.serve()
		f.call("b", 1, 0, nil)
		f.flush()
		r := f.stream(p)
		assert.Equal(t, "text/event-stream", r.res.Header.Get("Content-Type"))
		name, d := r.next()
		assert.Equal(t, "snapshot", name, "also after a Last-Event-ID")
		assert.Len(t, d.Tools, 2)
		assert.Len(t, d.Breakers, 2)

		f.call("a", 6, 0, errBoom)
		start := time.Now()
		name, d = r.next()
		assert.Equal(t, "update", name)
		assert.LessOrEqual(t, time.Since(start), time.Second)
		require.Len(t, d.Tools, 1, "those that have changed")
		assert.Equal(t, "open", d.Tools[0].State)
		assert.Equal(t, minute{Failed: 5, Rejected: 1}, clean(d.Tools[0].LastMinute))
		require.Len(t, d.Changes, 1)
		assert.Equal(t, change{Number: 1, Breaker: "a", From: "closed", To: "open", Cause: "calls"}, d.Changes[0])

		_, d = r.next()
		require.Len(t, d.Breakers, 1, "the countdown")
		assert.Equal(t, 28, d.Breakers[0].RetryAfter)
		assert.Empty(t, d.Changes)
	})
}

func TestHeartbeatsComeInTime(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t, tools("a"), console.Config{})
		_, p := f.serve()
		r := f.stream(p)
		r.next()
		for range 100 { // far beyond the timeouts of the server
			start := time.Now()
			name, d := r.next()
			assert.Equal(t, "update", name)
			assert.Empty(t, d.Tools)
			assert.Equal(t, 5*time.Second, time.Since(start))
		}
	})
}

// A guard that is closed while the page is open stays on the page, which says so.
func TestEventsTellThatTheGuardIsClosed(t *testing.T) {
	for _, names := range [][]string{{}, {"a"}} {
		inBubble(t, func(t *testing.T) {
			f := newFixture(t, tools(names...), console.Config{})
			_, p := f.serve()
			r := f.stream(p)
			_, d := r.next()
			assert.False(t, d.Closed)
			_, err := f.guard.Close(t.Context())
			require.NoError(t, err)
			start := time.Now()
			_, d = r.next()
			assert.LessOrEqual(t, time.Since(start), time.Second)
			assert.True(t, d.Closed)
			for _, x := range d.Tools {
				assert.False(t, x.Available)
			}
			assert.Len(t, d.Tools, len(names))
		})
	}
}

// 10,000 changes in a second are one event, and no reader that is slow holds up calls, observers or readers.
func TestManyChangesAreFewEvents(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t, tools("a", "b"), console.Config{})
		_, p := f.serve()
		slow, fast := f.stream(p), f.stream(p)
		fast.next()
		for i := range 5000 {
			f.guard.Breaker("a").Trip(0)
			f.guard.Breaker("a").Reset()
			if i%100 == 0 {
				f.flush() // an observer has room for 1,024 events
			}
		}
		f.flush()

		_, d := fast.next()
		require.Len(t, d.Changes, 200)
		assert.Equal(t, 10000, d.Changes[199].Number)
		slow.next()
	})
}

func TestAReaderThatDoesNotReadIsDropped(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t, tools("a"), console.Config{MaxStreams: 1})
		_, p := f.serve()
		r := f.stream(p)
		r.next()
		assert.Equal(t, http.StatusServiceUnavailable, f.stream(p).res.StatusCode)

		time.Sleep(20 * time.Second) // it doesn't read its heartbeat
		_, _, err := r.read()
		assert.Error(t, err)
		other := f.stream(p)
		assert.Equal(t, http.StatusOK, other.res.StatusCode, "there is room again")
	})
}

func TestReadersAreLimited(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t, tools("a"), console.Config{})
		_, p := f.serve()
		var all []*reader
		for range 32 {
			all = append(all, f.stream(p))
			require.Equal(t, http.StatusOK, all[len(all)-1].res.StatusCode)
		}
		refused := f.stream(p)
		assert.Equal(t, http.StatusServiceUnavailable, refused.res.StatusCode)
		assert.Equal(t, "5", refused.res.Header.Get("Retry-After"))
		body, err := io.ReadAll(refused.res.Body)
		require.NoError(t, err)
		assert.JSONEq(t, `{"error": "there are 32 readers already"}`, string(body))

		_ = all[0].conn.Close()
		synctest.Wait()
		assert.Equal(t, http.StatusOK, f.stream(p).res.StatusCode, "one has left")
	})
}

// The bubble would not end if a reader that has left, or the console, kept a goroutine.
func TestReadersThatLeaveLeaveNoGoroutine(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t, tools("a"), console.Config{MaxStreams: 4})
		for range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			w := &recorder{header: make(http.Header)}
			done := make(chan struct{})
			go func() {
				defer close(done)
				r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "/api/events", nil)
				f.handler.ServeHTTP(w, r)
			}()
			time.Sleep(time.Second)
			cancel()
			<-done
			assert.Contains(t, w.text.String(), "event: snapshot")
		}
	})
}

// A recorder is a ResponseWriter that streams.
type recorder struct {
	header   http.Header
	text     strings.Builder
	err      error // of writes
	flush    func() error
	deadline func(time.Time) error
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(int)             {}
func (r *recorder) Write(b []byte) (int, error) { r.text.Write(b); return len(b), r.err }

func (r *recorder) FlushError() error {
	if r.flush == nil {
		return nil
	}
	return r.flush()
}

func (r *recorder) SetWriteDeadline(t time.Time) error {
	if r.deadline == nil {
		return nil
	}
	return r.deadline(t)
}

func TestAWriteThatFailsEndsTheStream(t *testing.T) {
	gone := errors.New("gone")
	for name, w := range map[string]*recorder{
		"a write": {err: gone},
		"a flush": {flush: func() error { return gone }},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				f := newFixture(t, tools("a"), console.Config{})
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "/api/events", nil)
				w.header = make(http.Header)
				f.handler.ServeHTTP(w, r)
			})
		})
	}
}

func TestToolWithoutNewCallsIsNotSentAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t, tools("x"), console.Config{})
		_, p := f.serve()
		f.call("x", 1, 0, nil)
		f.flush()
		time.Sleep(3 * time.Minute)
		r := f.stream(p)
		_, d := r.next()
		assert.Len(t, d.tool(t, "x").History, 1)
		_, d = r.next()
		assert.Empty(t, d.Tools)
	})
}

// Without a deadline, a reader that doesn't read would keep its stream for ever.
func TestEachEventHasADeadline(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t, tools("a"), console.Config{})
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "/api/events", nil)
		var left []time.Duration
		f.handler.ServeHTTP(&recorder{header: make(http.Header), deadline: func(at time.Time) error {
			left = append(left, time.Until(at))
			if len(left) == 4 {
				return errors.New("gone")
			}
			return nil
		}}, r)
		assert.Equal(t, slices.Repeat([]time.Duration{10 * time.Second}, 4), left)
	})
}

func TestHeartbeatsComeInTimeThoughSendingTakesSome(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t, tools("a"), console.Config{})
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "/api/events", nil)
		start := time.Now()
		var sent []time.Duration
		f.handler.ServeHTTP(&recorder{header: make(http.Header), flush: func() error {
			time.Sleep(time.Millisecond)
			sent = append(sent, time.Since(start).Truncate(time.Second))
			if len(sent) == 4 {
				return errors.New("gone")
			}
			return nil
		}}, r)
		assert.Equal(t, []time.Duration{0, 5 * time.Second, 10 * time.Second, 15 * time.Second}, sent)
	})
}

func TestEventsNeedDeadlines(t *testing.T) {
	f := newFixture(t, tools("a"), console.Config{})
	w := f.do(http.MethodGet, "/api/events", "")
	assert.Equal(t, http.StatusInternalServerError, w.Code)
	assert.Contains(t, w.Body.String(), "Unwrap")
	assert.Equal(t, http.StatusOK, f.do(http.MethodHead, "/api/events", "").Code)
}

func TestShutdownEndsStreams(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t, tools("a"), console.Config{})
		server, p := f.serve()
		r := f.stream(p)
		r.next()
		ended := make(chan error, 1)
		go func() {
			_, _, err := r.read()
			ended <- err
		}()

		start := time.Now()
		require.NoError(t, server.Shutdown(t.Context()))
		assert.Less(t, time.Since(start), time.Second)
		assert.Error(t, <-ended)

		f.console.Close()
		w := f.do(http.MethodGet, "/api/events", "")
		assert.Equal(t, http.StatusServiceUnavailable, w.Code)
		assert.JSONEq(t, `{"error": "the console is closed"}`, w.Body.String())
		assert.Equal(t, http.StatusOK, f.do(http.MethodGet, "/api/health", "").Code)
	})
}
