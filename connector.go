package resilience

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"
)

// ConnectorConfig configures a [Connector]. Functions that panic have failed.
type ConnectorConfig[C any] struct {
	Name        string        // in events and logs; empty means "connection"
	Backoff     Backoff       // the delays between dials; zero means 500ms to 60s with full jitter
	MaxAttempts int           // failed dials in a row, after which only [Connector.Reconnect] dials; 0 means any
	DialTimeout time.Duration // of a single dial, which has failed if it exceeds that; 0 means 30s
	Stable      time.Duration // how long a connection must last to restart the backoff; 0 means the longest delay
	Close       func(C) error // called once for each connection; nil means its Close method, if it is an io.Closer

	// Watch waits until the connection is broken, in a loop that reads for example, and returns the reason, which may
	// be nil. It is called once for each connection, and must return soon after that is closed. Nil means that only
	// [Conn.Lost] and [Conn.Suspect] report losses.
	Watch func(C) error

	Check        func(context.Context, C) error // pings a suspect connection, still in use; nil means that it is lost
	CheckTimeout time.Duration                  // of a single Check, which has failed if it exceeds that; 0 means 10s
	Observers    []Observer                     // receive every change of the connection, see [Observer.Connection]
	Log          *slog.Logger                   // for warnings about observers; nil means slog.Default()
}

func (c ConnectorConfig[C]) check() error {
	var errs fieldErrors
	notNegative(&errs, "DialTimeout", c.DialTimeout, "the default")
	notNegative(&errs, "Stable", c.Stable, "the default")
	notNegative(&errs, "CheckTimeout", c.CheckTimeout, "the default")
	notNegative(&errs, "MaxAttempts", c.MaxAttempts, "any number")
	errs = append(errs, c.Backoff.check()...)
	return errors.Join(errs...)
}

func (c ConnectorConfig[C]) withDefaults() ConnectorConfig[C] {
	c.Name = cmp.Or(c.Name, "connection")
	c.Backoff = c.Backoff.withDefaults(defaultBase, defaultMax)
	c.DialTimeout = cmp.Or(c.DialTimeout, 30*time.Second)
	c.Stable = cmp.Or(c.Stable, c.Backoff.Max)
	c.CheckTimeout = cmp.Or(c.CheckTimeout, 10*time.Second)
	if c.Close == nil {
		c.Close = func(conn C) error {
			if closer, ok := any(conn).(io.Closer); ok {
				return closer.Close()
			}
			return nil
		}
	}
	return c
}

// ConnectionState is the state of a [Connector].
type ConnectionState string

const (
	ConnectionDown      ConnectionState = "down"      // there is no connection: it is being dialed, or will be
	ConnectionUp        ConnectionState = "up"        // there is a connection
	ConnectionExhausted ConnectionState = "exhausted" // MaxAttempts dials in a row have failed; Reconnect dials
	ConnectionClosed    ConnectionState = "closed"    // the connector was closed, for good
)

// A Connector keeps a connection up, such as a WebSocket or a session with another server. It makes one dial at a time,
// with backoff, and any number of callers share the connection. Create one with [NewConnector], in a test inside the
// testing/synctest bubble. All methods are safe for concurrent use.
type Connector[C any] struct {
	cfg       ConnectorConfig[C]
	dial      func(context.Context) (C, error)
	warner    *warner
	observers []*observer
	ctx       context.Context // ends when the connector is closed
	cancel    context.CancelFunc

	mu      sync.Mutex       // guards the fields below; never held while user code runs
	current *Conn[C]         // nil unless the state is ConnectionUp
	last    ConnectionChange // has the state, and why and since when there is no connection
	turn    int              // counts the changes: a dial that began before the last one is late
	changed chan struct{}    // closed at the next change
	delays  int              // since the backoff was restarted
	since   time.Time        // when that was
	running int              // calls of user code that have a goroutine of their own
}

// NewConnector returns a connector and starts its first dial. The context that dial receives ends when dial returns, so
// the connection must not depend on it. If dial returns an [*Error] with a RetryAfter, unwrapped, the next dial waits
// for that time, but for an hour at most. NewConnector panics if dial is nil or cfg is invalid. Close the connector
// when it is no longer needed.
func NewConnector[C any](dial func(context.Context) (C, error), cfg ConnectorConfig[C]) *Connector[C] {
	if dial == nil {
		panic("resilience: NewConnector: nil dial")
	}
	if err := cfg.check(); err != nil {
		panic(fmt.Sprintf("resilience: NewConnector: wrong ConnectorConfig: %v", err))
	}

	c := &Connector[C]{
		cfg:     cfg.withDefaults(),
		dial:    dial,
		warner:  &warner{log: cfg.Log},
		since:   time.Now(),
		last:    ConnectionChange{State: ConnectionDown, Time: time.Now(), Err: errNotYet},
		changed: make(chan struct{}),
	}
	c.observers = newObservers(cfg.Observers, c.warner)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.startDial()
	return c
}

// Get returns the connection without waiting. If there is none, the error is an [*Error] that wraps the reason:
// CONNECTION_LOST with the time until the next dial as RetryAfter (100ms while a dial is under way), CONNECTION_LOST
// that isn't retryable if the connector is closed, RETRY_EXHAUSTED if it is exhausted, and CANCELED or TIMEOUT if ctx
// has ended.
//
// A [Guard] assumes that a tool which returns this error has had no effect: it retries any such tool if the next dial
// comes soon enough, and doesn't count the error. A tool that has had an effect by then must use [MarkPermanent].
func (c *Connector[C]) Get(ctx context.Context) (*Conn[C], error) {
	conn, last, _ := c.snapshot()
	if conn != nil {
		return conn, nil
	}
	return nil, missing(ctx, last)
}

// Wait returns the connection as soon as it is up, or CANCELED or TIMEOUT if ctx ends first. If the connector is
// exhausted or closed, or if ctx will end before the next dial, it returns the error of Get at once. Every error is an
// [*Error]. If a tool waits until its timeout, its breaker counts that.
func (c *Connector[C]) Wait(ctx context.Context) (*Conn[C], error) {
	for {
		conn, last, changed := c.snapshot()
		switch {
		case conn != nil:
			return conn, nil
		case ctx.Err() != nil, last.State != ConnectionDown, !fits(ctx, last.untilDial()):
			return nil, missing(ctx, last)
		}

		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// snapshot returns the connection, if it is up, or else the last change, and what the next one closes.
func (c *Connector[C]) snapshot() (conn *Conn[C], last ConnectionChange, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current, c.last, c.changed
}

// Reconnect dials at once if the connection is down or exhausted, unless a dial is under way, and restarts the backoff
// and the count of attempts.
func (c *Connector[C]) Reconnect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.State == ConnectionUp || c.last.State == ConnectionClosed {
		return
	}

	c.delays, c.since, c.last.Attempts = 0, time.Now(), 0
	if c.last.State == ConnectionExhausted || c.last.untilDial() > 0 {
		c.change(ConnectionDown, c.last.Err, 0)
		c.startDial()
	}
}

// State returns the current state.
func (c *Connector[C]) State() ConnectionState {
	_, last, _ := c.snapshot()
	return last.State
}

// Close closes the connection, if it is up, and returns the error of doing so. It cancels a dial that is under way.
// From then on, Get and Wait return CONNECTION_LOST. A second Close does nothing and returns nil.
func (c *Connector[C]) Close() error {
	defer c.cancel()
	c.mu.Lock()
	conn := c.current
	if c.last.State != ConnectionClosed {
		c.change(ConnectionClosed, errClosed, 0)
	}
	c.mu.Unlock()

	if conn == nil {
		return nil
	}
	return recovered(func() error { return c.cfg.Close(conn.value) })
}

// Flush is like [Guard.Flush], for the observers of the connector.
func (c *Connector[C]) Flush(ctx context.Context) error { return flushAll(ctx, c.warner, c.observers) }
