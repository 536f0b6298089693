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

const (
	defaultDialTimeout = 30 * time.Second

	// maxHungDials caps the dials that were given up on and still run.
	maxHungDials = 4
)

// ConnectorConfig configures a [Connector]. The zero value is all defaults.
type ConnectorConfig[C comparable] struct {
	// Name is for errors, events and logs. "": "connection".
	Name string

	// Backoff gives the delays between dials. Zero fields: 500ms to 60s with full jitter.
	// Negative durations are not allowed.
	Backoff Backoff

	// MaxAttempts is how many dials in a row may fail before the connection is given up
	// until [Connector.Reconnect]. 0: any number. Negative: not allowed.
	MaxAttempts int

	// DialTimeout limits one dial. One that is still under way then has failed; a
	// connection that it brings later is closed. 0: 30s. Negative: not allowed.
	DialTimeout time.Duration

	// Stable is how long a connection must last for the backoff to begin anew when it is
	// lost, so that one that drops as soon as it is up is not dialled in a loop. 0: the
	// longest delay of Backoff. Negative: not allowed.
	Stable time.Duration

	// Close closes a connection that is of no more use: exactly once for each that dial
	// returned, on a goroutine of its own or on that of Connector.Close. A panic in it is
	// recovered. nil: its Close method, if it is an io.Closer.
	Close func(C) error

	// OnChange is told of each change, in order and one at a time, on a goroutine of its
	// own: it may use the connector. A panic in it is recovered. One that blocks isn't told
	// of changes beyond the next 1,024. nil: nobody is told.
	OnChange func(ConnectionChange)

	// Observers are told of each change too, see [Observer.Connection].
	Observers []Observer

	// Log is where the connector says that an observer panics or is too slow. nil:
	// slog.Default().
	Log *slog.Logger
}

func (c ConnectorConfig[C]) check() error {
	errs := append(notNegative("DialTimeout", c.DialTimeout, "Stable", c.Stable), c.Backoff.check()...)
	if c.MaxAttempts < 0 {
		errs = append(errs, fmt.Errorf("MaxAttempts is %d: it must not be negative (0 is any number)", c.MaxAttempts))
	}
	return errors.Join(errs...)
}

// ConnectionState is the state of a [Connector].
type ConnectionState uint8

const (
	ConnectionDown      ConnectionState = iota // lost, or not there yet: it is being dialled, or will be
	ConnectionUp                               // there
	ConnectionExhausted                        // given up until Reconnect
	ConnectionClosed                           // for good, by Connector.Close
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

// ConnectionChange says that a connection came up, was lost, could not be dialled, was
// given up or was closed.
type ConnectionChange struct {
	Connection string // the connector's name
	State      ConnectionState
	Time       time.Time
	Attempts   int           // dials that failed in a row
	Err        error         // why it is down: what Lost was told or the dial returned
	NextDial   time.Duration // until the next dial; 0 unless the state is ConnectionDown
}

// A Connector keeps one connection (a WebSocket, a session with another server) up: it
// dials, hands the connection to whoever asks, and dials again when it is told that the
// connection is lost. At most one dial is under way, and after a loss or a failed dial it
// waits as its Backoff says. While the connection is up there is no goroutine. Make one
// with [NewConnector]; all methods are safe for concurrent use.
type Connector[C comparable] struct {
	dial func(context.Context) (C, error)
	cfg  ConnectorConfig[C]

	current atomic.Pointer[C] // nil unless it is up; written under mu
	hung    atomic.Int64      // dials that were given up on and still run
	cancel  context.CancelFunc
	ctx     context.Context // of all dials

	mu       sync.Mutex // never held while user code runs
	state    ConnectionState
	since    time.Time     // of the state
	attempts int           // dials that failed in a row
	delays   int           // since a connection last lasted
	last     error         // why it is down
	timer    *time.Timer   // of the next dial; nil while one is under way
	next     time.Time     // when it comes
	changed  chan struct{} // closed at a change that Wait waits for; nil if nobody does

	lane      lane // of OnChange
	observers []*observer
}

// NewConnector returns a connector that is dialling already. The context that dial gets
// ends when dial returns: it limits the dial, not the connection. A dial that panics or
// calls runtime.Goexit has failed. NewConnector panics if dial is nil or a field of cfg is
// not allowed. Close the connector when it is no longer needed.
func NewConnector[C comparable](dial func(context.Context) (C, error), cfg ConnectorConfig[C]) *Connector[C] {
	if dial == nil {
		panic("resilience: NewConnector: nil dial")
	}
	if err := cfg.check(); err != nil {
		panic(fmt.Sprintf("resilience: NewConnector: wrong ConnectorConfig: %v", err))
	}
	if cfg.Name == "" {
		cfg.Name = "connection"
	}
	cfg.Backoff = cfg.Backoff.withDefaults(defaultBase, defaultMax)
	if cfg.DialTimeout == 0 {
		cfg.DialTimeout = defaultDialTimeout
	}
	if cfg.Stable == 0 {
		cfg.Stable = cfg.Backoff.Max
	}
	c := &Connector[C]{dial: dial, cfg: cfg, since: time.Now(), observers: newObservers(cfg.Observers, cfg.Log)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	go c.connect()
	return c
}

// Get returns the connection, at once: if it isn't up, it returns CONNECTION_LOST, with
// the time until the next dial as RetryAfter (a second while one is under way), or
// RETRY_EXHAUSTED after MaxAttempts. Such a call certainly had no effect: a [Guard] repeats
// it for any tool, if the next dial comes within the call's limit. The cause is that of the
// loss or of the last dial. While the connection is up, Get doesn't look at ctx.
func (c *Connector[C]) Get(ctx context.Context) (C, error) {
	if conn := c.current.Load(); conn != nil {
		return *conn, nil
	}
	var none C
	if e := endOf(ctx, ""); e != nil {
		return none, e
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.current.Load(); conn != nil {
		return *conn, nil
	}
	return none, c.why()
}

// Wait returns the connection as soon as it is up. It returns CANCELED or TIMEOUT if ctx
// ends first, RETRY_EXHAUSTED at once if the connection has been given up, and
// CONNECTION_LOST if the connector is closed.
func (c *Connector[C]) Wait(ctx context.Context) (C, error) {
	var none C
	for {
		if conn := c.current.Load(); conn != nil {
			return *conn, nil
		}
		changed, last, err := c.waiting()
		if err != nil {
			return none, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return none, endOf(ctx, "").withCause(last)
		}
	}
}

// waiting returns what to wait for and what went wrong last, or why waiting is in vain.
func (c *Connector[C]) waiting() (changed chan struct{}, last, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.state {
	case ConnectionUp: // since a moment ago
		changed = make(chan struct{})
		close(changed)
		return changed, nil, nil
	case ConnectionDown:
		if c.changed == nil {
			c.changed = make(chan struct{})
		}
		return c.changed, c.last, nil
	}
	return nil, nil, c.why()
}

// Lost says that conn is broken, and why; err may be nil. Whoever notices it says so, any
// number of times: unless conn is the connection that is up now, nothing happens. It
// doesn't wait until conn is closed.
func (c *Connector[C]) Lost(conn C, err error) {
	current := c.current.Load()
	if current == nil || *current != conn {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current.Load() != current {
		return
	}
	c.current.Store(nil)
	go c.discard(conn)
	if time.Since(c.since) >= c.cfg.Stable {
		c.delays = 0
	}
	if err == nil {
		err = errLost
	}
	c.down(err)
}

// Reconnect dials now, and lets backoff and attempts begin anew, if the connection is not
// up: also if it was given up.
func (c *Connector[C]) Reconnect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != ConnectionDown && c.state != ConnectionExhausted {
		return
	}
	c.attempts, c.delays = 0, 0
	if c.state == ConnectionDown && (c.timer == nil || !c.timer.Stop()) {
		return // a dial is under way, or about to be
	}
	c.timer = nil
	c.change(ConnectionDown, c.last, 0)
	go c.connect()
}

// State returns the state as of now.
func (c *Connector[C]) State() ConnectionState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Close closes the connection, if it is up, and returns what that returns. A dial under
// way is cancelled, and what it still brings is closed. Whoever waits gets CONNECTION_LOST,
// as does everyone from now on. A second Close does nothing and returns nil.
func (c *Connector[C]) Close() error {
	c.cancel()
	c.mu.Lock()
	if c.state == ConnectionClosed {
		c.mu.Unlock()
		return nil
	}
	conn := c.current.Swap(nil)
	if c.timer != nil {
		c.timer.Stop()
	}
	c.change(ConnectionClosed, errClosed, 0)
	c.mu.Unlock()
	if conn == nil {
		return nil
	}
	return c.discard(*conn)
}

// Flush waits until all observers have been told of everything, as [Guard.Flush] does.
func (c *Connector[C]) Flush(ctx context.Context) error { return flushAll(ctx, c.observers) }

var (
	errNotYet = errors.New("resilience: the first dial is under way")
	errLost   = errors.New("resilience: the connection was reported lost")
	errClosed = errors.New("resilience: the connector is closed")
	errHung   = errors.New("resilience: too many earlier dials still hang")
)

// why returns the error of whoever asks while it isn't up. It requires that c.mu is held.
func (c *Connector[C]) why() error {
	switch c.state {
	case ConnectionExhausted:
		e := RetryExhaustedError("", c.attempts, MarkTransient(c.last))
		e.Message = fmt.Sprintf("Connection lost: %d attempts to connect have failed", c.attempts)
		return e
	case ConnectionClosed:
		e := ConnectionLostError("closed for good")
		e.Retryable, e.Suggestion, e.Err = false, suggestions[CodeRetryExhausted], errClosed
		return MarkPermanent(e)
	}
	cause := c.last
	reason := reasonOf(cause)
	if cause == nil {
		cause, reason = errNotYet, "not connected yet"
	}
	e := ConnectionLostError(reason)
	e.Err = MarkTransient(cause) // whatever it was: this call has not been made
	e.RetryAfter = time.Second
	if c.timer != nil {
		e.RetryAfter = max(time.Until(c.next), 1)
	}
	return e
}

// reasonOf is lostReason for errors whose methods may panic.
func reasonOf(err error) (reason string) {
	defer func() { _ = recover() }()
	return lostReason(err)
}

// connect makes one dial.
func (c *Connector[C]) connect() {
	c.mu.Lock()
	c.timer = nil
	if c.state != ConnectionDown {
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()

	conn, err := c.dialOnce()

	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state == ConnectionClosed:
		if err == nil {
			go c.discard(conn)
		}
	case err != nil:
		c.attempts++
		c.down(err)
	default:
		c.current.Store(&conn)
		c.attempts, c.last = 0, nil
		c.change(ConnectionUp, nil, 0)
	}
}

// dialOnce limits a dial, and closes what one that was given up on brings later.
func (c *Connector[C]) dialOnce() (C, error) {
	var none C
	if c.hung.Load() >= maxHungDials {
		return none, errHung
	}
	ctx := limitedContext(c.ctx, c.cfg.Name, c.cfg.DialTimeout, c.cfg.DialTimeout, true)
	defer ctx.stop()
	var late C // belongs to the goroutine of the dial
	conn, err, answered := enforce(ctx, &c.hung, func(err error) {
		if err == nil {
			_ = c.discard(late)
		}
	}, func(ctx context.Context) (C, error) {
		conn, err := c.dial(ctx)
		late = conn
		return conn, err
	})
	if !answered {
		return none, fmt.Errorf("resilience: the dial gave no answer within %s: %w", c.cfg.DialTimeout, context.DeadlineExceeded)
	}
	return conn, err
}

// down schedules the next dial, if there is to be one. It requires that c.mu is held.
func (c *Connector[C]) down(err error) {
	c.last = err
	if c.cfg.MaxAttempts > 0 && c.attempts >= c.cfg.MaxAttempts {
		c.change(ConnectionExhausted, err, 0)
		return
	}
	delay := c.cfg.Backoff.Delay(c.delays)
	c.delays++
	c.next = time.Now().Add(delay)
	c.timer = time.AfterFunc(delay, c.connect)
	c.change(ConnectionDown, err, delay)
}

// change requires that c.mu is held.
func (c *Connector[C]) change(to ConnectionState, err error, delay time.Duration) {
	e := ConnectionChange{Connection: c.cfg.Name, State: to, Time: time.Now(), Attempts: c.attempts, Err: err, NextDial: delay}
	c.state, c.since = to, e.Time
	if c.changed != nil && to != ConnectionDown {
		close(c.changed)
		c.changed = nil
	}
	if f := c.cfg.OnChange; f != nil {
		c.lane.add(func() { f(e) })
	}
	for _, o := range c.observers {
		if o.Connection != nil {
			o.tell(func() { o.Connection(e) })
		}
	}
}

// discard closes a connection that nobody will get any more.
func (c *Connector[C]) discard(conn C) error {
	_, err := protect(context.Background(), func(context.Context) (struct{}, error) {
		if c.cfg.Close != nil {
			return struct{}{}, c.cfg.Close(conn)
		}
		if closer, ok := any(conn).(io.Closer); ok {
			return struct{}{}, closer.Close()
		}
		return struct{}{}, nil
	})
	return err
}
