package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/seed8d1e2389/resilience"
)

const (
	defaultTitle      = "resilience"
	defaultMaxStreams = 32
)

// Config configures a [Console]. The zero value is all defaults.
type Config struct {
	// Title is the heading of the page, such as the name of the service. Empty means "resilience".
	Title string

	// Authorize reports whether a request may isolate or reset a breaker; false is answered with 403. It is
	// called concurrently, on the goroutine of the request, and a panic in it is answered with 500. Nil means
	// that there are no such routes, so that the console can only be read.
	Authorize func(*http.Request) bool

	// Healthy decides what /healthz answers: 200 if it returns true, and 503 otherwise. It is called
	// concurrently, with [resilience.Guard.Health], on the goroutine of the request, and a panic in it is
	// answered with 500. Nil means false only if the guard is closed. A dead backend is no reason to remove a
	// server: other tools may work, the backend is as dead for other servers, and an agent that reaches no
	// server can't read why.
	Healthy func([]resilience.Health) bool

	// ShowCauses shows the texts of causes beside the last failures, cut to 300 bytes. The texts pass
	// [resilience.Guard.Scrub], and may still contain addresses and what clients have sent. The default is to show
	// only what agents may read.
	ShowCauses bool

	// MaxStreams is how many readers /api/events has at once; a further one is answered with 503. Zero means
	// 32. It must not be negative.
	MaxStreams int

	// Log receives the panics of Authorize and Healthy. Nil means slog.Default() at that time.
	Log *slog.Logger
}

// A Console records what a guard's page shows. Create one with [New] for each guard; the zero value can't be
// used. Its methods are safe for concurrent use. It starts no goroutine: all of its work is done on those of
// the observer and of requests.
type Console struct {
	cfg     Config
	started time.Time
	calls   calls
	changes changes

	streams chan struct{} // holds one element for each reader of events
	closed  chan struct{}
	close   func()

	mu       sync.Mutex // guards what follows
	observed bool       // whether Observer was called
	guard    *resilience.Guard
	latest   *snapshot // nil if there is none
}

// New returns a console with the given configuration, or an error that names the bad field.
func New(cfg Config) (*Console, error) {
	if cfg.MaxStreams < 0 {
		return nil, fmt.Errorf("resilience: console: MaxStreams is %d: it must not be negative (0 is %d)",
			cfg.MaxStreams, defaultMaxStreams)
	}

	cfg.Title = cmp.Or(cfg.Title, defaultTitle)
	cfg.MaxStreams = cmp.Or(cfg.MaxStreams, defaultMaxStreams)
	c := &Console{
		cfg:     cfg,
		started: time.Now(),
		streams: make(chan struct{}, cfg.MaxStreams),
		closed:  make(chan struct{}),
	}
	c.close = sync.OnceFunc(func() { close(c.closed) })
	return c, nil
}

// Observer returns the observer that records rates, latencies and changes, for Config.Observers of the guard
// that [Console.Handler] is given. It has no Start, so that it delays no call.
func (c *Console) Observer() resilience.Observer {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observed = true

	return resilience.Observer{
		End: func(_ context.Context, e resilience.CallEnd) {
			cause := ""
			if c.cfg.ShowCauses && e.Counted && e.Err.Err != nil {
				all := fmt.Sprintf("%+v", e.Err) // with the causes of a call within the call
				cause = cut(c.scrub(strings.TrimPrefix(all, e.Err.Error()+": ")), maxCause)
			}
			c.calls.record(e, cause)
		},
		Breaker: c.changes.record,
	}
}

// scrub is the guard's Scrub, once the guard is known.
func (c *Console) scrub(text string) string {
	c.mu.Lock()
	g := c.guard
	c.mu.Unlock()
	if g == nil {
		return resilience.Scrub(text)
	}
	return g.Scrub(text)
}

// Handler returns the handler of all routes, for the guard that has the console's observer. It may be called
// again for the same guard. It is an error if g is nil, if the console already shows another guard, or if
// Observer wasn't called before, because the page would show no calls then.
func (c *Console) Handler(g *resilience.Guard) (http.Handler, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case g == nil:
		return nil, errors.New("resilience: console: Handler: nil *Guard")
	case !c.observed:
		return nil, errors.New(
			"resilience: console: Handler: the guard's Config.Observers must contain the console's Observer()")
	case c.guard != nil && c.guard != g:
		return nil, errors.New("resilience: console: Handler: the console shows another guard: create one for each")
	}

	c.guard = g
	return c.routes(), nil
}

// Close ends all streams of events, and rejects further ones with 503. The other routes go on. A server's
// Shutdown waits for streams, so let it call Close:
//
//	server.RegisterOnShutdown(page.Close) // page is the Console
//
// Close returns at once, and may be called any number of times. A stream that is being sent ends after ten seconds at
// the latest.
func (c *Console) Close() { c.close() }
