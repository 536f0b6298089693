package resilience

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// ConnectorConfig configures a [Connector]. Every field has a default, so the zero value is valid.
type ConnectorConfig[C comparable] struct {
	// Name is the connection's name in events and logs, and the Tool of the [context.Cause] that ends a dial.
	// The errors of Get and Wait don't have it; a guard fills in the name of the tool. An empty name means
	// "connection".
	Name string

	// Backoff determines the delays between dials. Its zero value means 500ms to 60s with full
	// jitter. See [Backoff] for what it must be.
	Backoff Backoff

	// MaxAttempts is how many dials in a row may fail before the connector stops dialing. It then
	// remains exhausted until [Connector.Reconnect] is called. Zero means that it never stops.
	// It must not be negative.
	MaxAttempts int

	// DialTimeout is the timeout of a single dial. A dial that exceeds it has failed, and a
	// connection that it returns later is closed, unless it equals the current one. A dial that
	// ignores its context may therefore still be running when the next one starts; while four of them
	// are running, every further dial fails without being made. Zero means 30s. It must not be
	// negative.
	DialTimeout time.Duration

	// Stable is how long a connection must last for the backoff to restart when it is lost. Without
	// it, a connection that drops as soon as it is up would be dialed in a tight loop. Zero means
	// the longest delay of Backoff. It must not be negative.
	Stable time.Duration

	// Close closes a connection that is no longer needed. It is called exactly once for each
	// connection that was dialed, either by Connector.Close, which waits for it, or on a goroutine of
	// its own. A panic in it is recovered. The next connection is dialed meanwhile, but while sixteen
	// calls of Close are running, every further dial fails without being made. Nil means the
	// connection's own Close method, if it is an io.Closer.
	Close func(C) error

	// Watch waits until the connection is broken and returns the reason, which may be nil. It may be
	// a loop that reads, for example. It is called once for each connection that comes up, on a
	// goroutine of its own, and must return soon after that connection is closed: while sixteen calls
	// for lost connections are running, every further dial fails without being made. If it panics,
	// the connection is lost. If Watch is nil, losses are noticed only through
	// [Connector.ReportLost].
	Watch func(C) error

	// Observers are notified of every change of the connection, see [Observer.Connection].
	Observers []Observer

	// Log receives warnings about observers that panic or fall behind. Nil means slog.Default().
	Log *slog.Logger
}

func (c ConnectorConfig[C]) check() error {
	var errs fieldErrors
	errs.notNegative("DialTimeout", c.DialTimeout)
	errs.notNegative("Stable", c.Stable)
	errs = append(errs, c.Backoff.check()...)
	if c.MaxAttempts < 0 {
		errs = append(errs, fmt.Errorf("MaxAttempts is %d: it must not be negative (0 is any number)", c.MaxAttempts))
	}
	return errors.Join(errs...)
}

func (c ConnectorConfig[C]) withDefaults() ConnectorConfig[C] {
	if c.Name == "" {
		c.Name = "connection"
	}
	if c.Close == nil {
		c.Close = closeIfCloser
	}

	c.Backoff = c.Backoff.withDefaults(defaultBase, defaultMax)
	if c.DialTimeout == 0 {
		c.DialTimeout = defaultDialTimeout
	}
	if c.Stable == 0 {
		c.Stable = c.Backoff.Max
	}
	return c
}

func closeIfCloser[C any](conn C) error {
	if closer, ok := any(conn).(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// ConnectionState is the state of a [Connector].
type ConnectionState uint8

const (
	// ConnectionDown means that there is no connection: it is being dialed, or will be.
	ConnectionDown ConnectionState = iota
	// ConnectionUp means that there is a connection.
	ConnectionUp
	// ConnectionExhausted means that MaxAttempts dials in a row have failed. No further dial is
	// made until Reconnect is called.
	ConnectionExhausted
	// ConnectionClosed means that the connector was closed. This state is final.
	ConnectionClosed
)

// String returns "down", "up", "exhausted" or "closed".
func (s ConnectionState) String() string {
	switch s {
	case ConnectionDown:
		return "down"
	case ConnectionUp:
		return "up"
	case ConnectionExhausted:
		return "exhausted"
	case ConnectionClosed:
		return "closed"
	}
	return fmt.Sprintf("ConnectionState(%d)", uint8(s))
}

// A Connector keeps a connection up, such as a WebSocket or a session with another server. It dials,
// hands the connection to any number of callers, and dials again, with backoff, when the connection
// is lost. Create one with [NewConnector]. All methods are safe for concurrent use.
//
// At most one dial is under way at any time, except for dials that were abandoned at their timeout
// and are still running. While the connection is up, the connector has no goroutine but Watch's and
// those of functions that hang, whose number is bounded.
//
// C is usually a pointer. Connections are compared with ==: two that are equal are the same one to
// the connector. A dial has failed if it returns a value that doesn't equal itself, because an
// interface in it holds something that can't be compared or because it holds a NaN: nothing could
// report its loss.
//
// A Connector has timers. It therefore belongs to the testing/synctest bubble in which it was made, or to
// none, and a test makes one for itself.
type Connector[C comparable] struct {
	cfg       ConnectorConfig[C]
	dialer    *dialer[C]
	observers []*observer

	current atomic.Pointer[C] // the connection; nil unless the state is ConnectionUp; written under mu

	mu       sync.Mutex // guards the fields below; never held while user code runs
	state    ConnectionState
	since    time.Time     // when the state was last changed
	loss     loss          // why the connection isn't up
	schedule schedule      // of the dials
	reported []report[C]   // what was reported lost during the current dial, which may yet return it
	returned []C           // what dials have returned and nobody has closed or uses yet
	changes  int           // how often the state has changed
	changed  chan struct{} // closed at the next change; nil if no Wait is waiting for it
}

// NewConnector returns a connector and starts its first dial. The context that dial receives ends
// when dial returns, so the connection must not depend on it. A dial that panics or calls
// runtime.Goexit has failed.
//
// NewConnector panics if dial is nil or cfg is invalid. Close the connector when it is no longer
// needed.
func NewConnector[C comparable](dial func(context.Context) (C, error), cfg ConnectorConfig[C]) *Connector[C] {
	if dial == nil {
		panic("resilience: NewConnector: nil dial")
	}
	if err := cfg.check(); err != nil {
		panic(fmt.Sprintf("resilience: NewConnector: wrong ConnectorConfig: %v", err))
	}
	cfg = cfg.withDefaults()

	c := &Connector[C]{
		cfg:       cfg,
		dialer:    newDialer(dial, cfg),
		observers: newObservers(cfg.Observers, cfg.Log),
		loss:      loss{errNotYet, ConnectionLostError("not connected yet").Message},
	}
	c.dialer.late = c.late
	go c.connect()
	return c
}

// Get returns the connection without waiting. If there is none, the error is an [*Error]:
//
//   - CANCELED or TIMEOUT, if ctx has ended. While the connection is up, Get ignores ctx.
//   - CONNECTION_LOST, if the connection is down. Its RetryAfter is the time until the next dial, or
//     100ms while a dial is under way.
//   - RETRY_EXHAUSTED that isn't retryable, if the connector is exhausted.
//   - CONNECTION_LOST that isn't retryable, if the connector is closed.
//
// While the connection is down or exhausted, any of these wraps the reported loss or the error of the
// last dial.
//
// A [Guard] assumes that a tool which returns the error of Get has had no effect, and retries any
// such tool if the next dial comes within Retry.Backoff.Max and Retry.MaxElapsed, and before the call's
// timeout. A tool that has had an effect by then
// must mark the error with [MarkPermanent]. Breakers don't count the error, because the connector
// knows better than a breaker when calls are worth making again. If all attempts end with it, the
// call returns it as it is, with the time of the next dial, instead of RETRY_EXHAUSTED.
func (c *Connector[C]) Get(ctx context.Context) (C, error) {
	if conn := c.current.Load(); conn != nil {
		return *conn, nil
	}

	var none C
	conn, missing := c.look()
	if conn != nil {
		return *conn, nil
	}
	if e := endOf(ctx, ""); e != nil {
		return none, missing.endedBy(e)
	}
	return none, missing.err
}

// Wait returns the connection as soon as it is up. It returns CANCELED or TIMEOUT if ctx ends first.
// If the connector is exhausted or closed, or if ctx will end before the next dial, Wait returns the
// error of Get at once. Every error is an [*Error].
//
// A tool that waits until its timeout has exceeded that, which a breaker counts: otherwise each call would wait for as
// long. While the breaker is open, calls are rejected for a Cooldown, also once the connection is back; a
// [BreakerConfig.Probe] that calls Get closes it earlier.
func (c *Connector[C]) Wait(ctx context.Context) (C, error) {
	var none C
	for {
		conn, missing := c.look()
		if conn != nil {
			return *conn, nil
		}

		// The lock isn't held here, because the methods of ctx are the caller's code.
		if e := endOf(ctx, ""); e != nil {
			return none, missing.waitedUntil(e)
		}
		if missing.final || missing.delay > 0 && !fits(ctx, missing.delay) {
			return none, missing.err
		}

		changed := c.nextChange(missing.change)
		if changed == nil { // the state has changed meanwhile
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return none, missing.waitedUntil(endAfterDone(ctx, ""))
		}
	}
}

// ReportLost reports that conn is broken, and why; err may be nil. The connector closes conn on
// another goroutine and dials again after a delay. Every user of the connection may report a loss,
// any number of times: a report is ignored unless conn is the current connection or the one that is
// just being dialed. Don't report an error that only says that the context of one user has ended: others would lose the
// connection. Methods of err may be called on another goroutine, for which ReportLost waits for about 100ms.
func (c *Connector[C]) ReportLost(conn C, err error) {
	if err == nil {
		err = errLost
	}
	l := c.dialer.lossOf(err) // before the lock, as it calls methods of err

	c.mu.Lock()
	defer c.mu.Unlock()
	current := c.current.Load()
	switch {
	case current != nil && equal(*current, conn):
		c.current.Store(nil)
		c.dialer.discard(conn)
		if time.Since(c.since) >= c.cfg.Stable {
			c.schedule.delays = 0
		}
		c.down(l)
	case c.dialing(): // the dial may yet return conn
		c.remember(report[C]{conn, l})
	}
}

// Reconnect dials at once if the connection is down or exhausted, and restarts the backoff and the
// count of attempts. If a dial is under way, Reconnect doesn't start another one. It does nothing if
// the connection is up or the connector is closed.
func (c *Connector[C]) Reconnect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != ConnectionDown && c.state != ConnectionExhausted {
		return
	}

	c.schedule.restart()
	if c.dialing() || !c.schedule.stop() {
		return
	}
	c.change(ConnectionDown, c.loss.err, 0)
	go c.connect()
}

// State returns the current state.
func (c *Connector[C]) State() ConnectionState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Close closes the connection, if it is up, and returns the error of doing so. It cancels a dial that
// is under way, and closes the connection if that dial returns one all the same. From then on, Get and
// Wait return CONNECTION_LOST, also to callers that are already waiting. A second Close does nothing
// and returns nil.
func (c *Connector[C]) Close() error {
	defer c.dialer.cancel() // last, so that a dial that it ends isn't reported as another loss

	c.mu.Lock()
	if c.state == ConnectionClosed {
		c.mu.Unlock()
		return nil
	}
	conn := c.current.Swap(nil)
	c.schedule.stop()
	c.change(ConnectionClosed, errClosed, 0)
	c.mu.Unlock()

	if conn == nil {
		return nil
	}
	return c.dialer.closeNow(*conn)
}

// Flush waits until the observers have received every change so far. It behaves like [Guard.Flush].
func (c *Connector[C]) Flush(ctx context.Context) error { return flushAll(ctx, c.observers) }
