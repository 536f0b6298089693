package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/console"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A fixture is a guard with a console.
type fixture struct {
	*testing.T
	guard   *resilience.Guard
	console *console.Console
	handler http.Handler
}

func newFixture(t *testing.T, guard resilience.Config, cfg console.Config) *fixture {
	t.Helper()
	c, err := console.New(cfg)
	require.NoError(t, err)
	guard.Observers = append(guard.Observers, c.Observer())
	guard.Retry.MaxRetries = -1
	g, err := resilience.New(guard)
	require.NoError(t, err)
	h, err := c.Handler(g)
	require.NoError(t, err)
	return &fixture{t, g, c, h}
}

// tools returns a Config that lists tools.
func tools(names ...string) resilience.Config {
	cfg := resilience.Config{Tools: make(map[string]resilience.Tool)}
	for _, name := range names {
		cfg.Tools[name] = resilience.Tool{}
	}
	return cfg
}

// allow authorizes all requests.
func allow(*http.Request) bool { return true }

// errBoom is the error of a backend that is down.
var errBoom = resilience.MarkBackend(errors.New("boom at 10.0.0.7, password=hunter2"))

// call makes calls of a tool that take that long and return err.
func (f *fixture) call(tool string, n int, takes time.Duration, err error, opts ...resilience.Option) {
	for range n {
		_, _ = resilience.Do(f.Context(), f.guard, tool, func(context.Context) (int, error) {
			time.Sleep(takes)
			return 0, err
		}, opts...)
	}
}

// flush waits until the console has received all events.
func (f *fixture) flush() {
	f.Helper()
	require.NoError(f, f.guard.Flush(f.Context()))
}

// do makes a request. A body is JSON.
func (f *fixture) do(method, target, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, r)
	return w
}

// A document is what the tests read of /api/health and of events.
type document struct {
	Title    string
	Closed   bool
	Control  bool
	Tools    []tool
	Breakers []breaker
	Changes  []change
	Gone     []string
}

type tool struct {
	Tool, State, Breaker string
	Listed, Available    bool
	LastError            *struct {
		Code, Message, Cause string
		Time                 time.Time
	}
	LastMinute minute
	History    [][]float64
}

type minute struct {
	Succeeded, Failed, Rejected, Other int
	P50, P95                           float64
}

type breaker struct {
	Breaker, Key, State, Reason, Cause string
	RetryAfter, ConsecutiveFailures    int
	Since                              time.Time
	Tools                              []string
}

type change struct {
	Number                           int
	Breaker, From, To, Cause, Reason string
}

// health returns what /api/health says.
func (f *fixture) health() (d document) {
	f.Helper()
	f.flush()
	time.Sleep(time.Second) // documents are shared for half of that
	w := f.do(http.MethodGet, "/api/health", "")
	require.Equal(f, http.StatusOK, w.Code)
	require.NoError(f, json.Unmarshal(w.Body.Bytes(), &d))
	return d
}

func (d document) tool(t *testing.T, name string) tool {
	t.Helper()
	for _, x := range d.Tools {
		if x.Tool == name {
			return x
		}
	}
	require.Fail(t, "there is no such tool", name)
	return tool{}
}

func (d document) breaker(t *testing.T, name string) breaker {
	t.Helper()
	for _, b := range d.Breakers {
		if b.Breaker == name {
			return b
		}
	}
	require.Fail(t, "there is no such breaker", name)
	return breaker{}
}

// inBubble runs a test with fake time.
func inBubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func TestNewRejectsABadConfig(t *testing.T) {
	_, err := console.New(console.Config{MaxStreams: -1})
	assert.EqualError(t, err, "resilience: console: MaxStreams is -1: it must not be negative (0 is 32)")
}

func TestHandlerRejectsWhatItCannotShow(t *testing.T) {
	c, err := console.New(console.Config{})
	require.NoError(t, err)
	deaf := resilience.Must(resilience.New(resilience.Config{}))
	_, err = c.Handler(deaf)
	assert.EqualError(t, err,
		"resilience: console: Handler: the guard's Config.Observers must contain the console's Observer()")

	guard := resilience.Must(resilience.New(resilience.Config{Observers: []resilience.Observer{c.Observer()}}))
	_, err = c.Handler(nil)
	assert.EqualError(t, err, "resilience: console: Handler: nil *Guard")
	_, err = c.Handler(guard)
	require.NoError(t, err)
	_, err = c.Handler(deaf)
	assert.ErrorContains(t, err, "shows another guard")
	_, err = c.Handler(guard)
	assert.NoError(t, err, "a second one for the same guard")
}

func TestTwoConsolesOnOneGuardShowTheSame(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		other, err := console.New(console.Config{})
		require.NoError(t, err)
		cfg := tools("x")
		cfg.Observers = []resilience.Observer{other.Observer()}
		f := newFixture(t, cfg, console.Config{})
		f.call("x", 7, 0, errBoom)

		first := f.health()
		f.handler, err = other.Handler(f.guard)
		require.NoError(t, err)
		second := f.health()
		assert.Equal(t, first.Tools[0].LastMinute, second.Tools[0].LastMinute)
		assert.Equal(t, minute{Failed: 5, Rejected: 2}, clean(first.Tools[0].LastMinute))
		assert.Equal(t, first.Changes, second.Changes)
	})
}

// clean leaves out the latencies.
func clean(m minute) minute {
	m.P50, m.P95 = 0, 0
	return m
}
