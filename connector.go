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

// ConnectorConfig configures a [Connector]. Every field has a default, so the zero value is valid. Functions that
// panic or call runtime.Goexit have failed. Durations and MaxAttempts must not be negative.
type ConnectorConfig[C any] struct {
	// Name is the connection's name in events and logs, and the Tool of the [context.Cause] that ends a dial or a
	// check. An empty name means "connection".
	Name string

	// Backoff computes the delays between dials. Its zero value means 500ms to 60s with full jitter. No delay is
	// longer than the connection has been down, or than Base.
	Backoff Backoff

	// MaxAttempts is how many dials in a row may fail before the connector is exhausted. It then makes no dial until
	// [Connector.Reconnect] is called. Zero means that it never stops.
	MaxAttempts int

	// DialTimeout is the timeout of a single dial. A dial that exceeds it has failed, and a connection that it returns
	// later is closed. It may therefore still be running when the next dial starts. Zero means 30s.
	DialTimeout time.Duration

	// Stable is how long a connection must last for the backoff to restart when it is lost. Without it, a connection
	// that drops as soon as it is up would be dialed in a tight loop. Zero means the longest delay of Backoff.
	Stable time.Duration

	// Close closes a connection. It is called exactly once for each connection that was dialed, either by
	// Connector.Close, which waits for it, or on a goroutine of its own while the next connection is dialed. Nil means
	// the connection's own Close method, if it is an io.Closer.
	Close func(C) error

	// Watch waits until the connection is broken and returns the reason, which may be nil. It may be a loop that reads,
	// for example. It is called once for each connection, on a goroutine of its own, and must return soon after the
	// connection is closed. Nil means that only [Conn.Lost] and [Conn.Suspect] report losses.
	Watch func(C) error

	// Check asks whether the connection still works, by a ping for example. [Conn.Suspect] has it called, on a
	// goroutine of its own, once at a time for each connection and while others use that. An error means that the
	// connection is lost. Nil means that a suspect connection is lost, unchecked.
	Check func(context.Context, C) error

	// CheckTimeout is the timeout of a single Check, which has failed if it exceeds it. Zero means 10s.
	CheckTimeout time.Duration

	// Observers are notified of every change of the connection, see [Observer.Connection].
	Observers []Observer

	// Log receives warnings about observers that panic or fall behind. Nil means slog.Default().
	Log *slog.Logger
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
type ConnectionState uint8

const (
	ConnectionDown      ConnectionState = iota // there is no connection: it is being dialed, or will be
	ConnectionUp                               // there is a connection
	ConnectionExhausted                        // MaxAttempts dials in a row have failed; Reconnect makes the next one
	ConnectionClosed                           // the connector was closed, for good
)

// String returns "down", "up", "exhausted" or "closed".
func (s ConnectionState) String() string { return nameOf(s, "down", "up", "exhausted", "closed") }

// A Connector keeps a connection up, such as a WebSocket or a session with another server. It dials, hands the
// connection to any number of callers, and dials again, with backoff, when the connection is lost. It makes one dial at
// a time. Create one with [NewConnector]. All methods are safe for concurrent use.
//
// Functions that hang are bounded: while 16 abandoned dials and calls of Close, Watch and Check for lost connections
// are still running, every further dial fails without being made.
//
// A Connector has timers. It therefore belongs to the testing/synctest bubble in which it was made, or to none, and a
// test makes one for itself.
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
// for that time, but for an hour at most.
//
// NewConnector panics if dial is nil or cfg is invalid. Close the connector when it is no longer needed.
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
		last:    ConnectionChange{Time: time.Now(), Err: errNotYet},
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
//
//   - CANCELED or TIMEOUT, if ctx has ended. While the connection is up, Get ignores ctx.
//   - CONNECTION_LOST, if the connection is down. Its RetryAfter is the time until the next dial, or 100ms while a dial
//     is under way.
//   - RETRY_EXHAUSTED that isn't retryable, if the connector is exhausted.
//   - CONNECTION_LOST that isn't retryable, if the connector is closed.
//
// A [Guard] assumes that a tool which returns the error of Get has had no effect. It retries any such tool if the next
// dial comes soon enough, and its breaker doesn't count the error. A tool that has had an effect by then must mark the
// error with [MarkPermanent].
func (c *Connector[C]) Get(ctx context.Context) (*Conn[C], error) {
	conn, last, _ := c.snapshot()
	if conn != nil {
		return conn, nil
	}
	return nil, missing(ctx, last)
}

// Wait returns the connection as soon as it is up. It returns CANCELED or TIMEOUT if ctx ends first. If the connector
// is exhausted or closed, or if ctx will end before the next dial, Wait returns the error of Get at once. Every error
// is an [*Error].
//
// A tool that waits until its timeout has exceeded it, which a breaker counts: otherwise each call would wait for as
// long. While that breaker is open, calls are rejected even if the connection is back; a [BreakerConfig.Probe] that
// calls Get closes it earlier.
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

// Reconnect dials at once if the connection is down or exhausted, and restarts the backoff and the count of attempts.
// If a dial is under way, Reconnect doesn't start another one. It does nothing if the connection is up or the connector
// is closed.
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

// Close closes the connection, if it is up, and returns the error of doing so. It cancels a dial that is under way, and
// a connection that the dial returns all the same is closed. From then on, Get and Wait return CONNECTION_LOST, even to
// callers that are already waiting. A second Close does nothing and returns nil.
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

// Flush waits until the observers have received every change so far. It behaves like [Guard.Flush].
func (c *Connector[C]) Flush(ctx context.Context) error { return flushAll(ctx, c.warner, c.observers) }
