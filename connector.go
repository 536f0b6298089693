package resilience

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	defaultDialTimeout = 30 * time.Second

	// maxHungDials caps the dials that were given up on and still run.
	maxHungDials = 4
)

// A Connector keeps one connection (a WebSocket, a session with another server) up: it
// dials, hands the connection to whoever asks, and dials again when it is told that the
// connection is lost. At most one dial is under way, but for those that go on after they
// were given up on, and after a loss or a failed dial it waits as its Backoff says. While
// the connection is up there is no goroutine but that of Watch. Make one with
// [NewConnector]; all methods are safe for concurrent use.
//
// C is best a pointer: connections that are equal are one to it, and a C that can't be
// compared (an interface with a slice in it) makes Lost panic.
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
	last     loss          // why it is down
	early    map[C]loss    // what was said to be lost while a dial is under way, which may bring it
	timer    *time.Timer   // of the next dial; nil while one is under way
	next     time.Time     // when it comes
	changed  chan struct{} // closed at a change that Wait waits for; nil if nobody does

	lane      queue // of OnChange
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
	c.last = loss{errNotYet, ConnectionLostError("not connected yet").Message}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	go c.connect()
	return c
}

// Get returns the connection, at once: if it isn't up, it returns CONNECTION_LOST, with
// the time until the next dial as RetryAfter (100ms while one is under way), or
// RETRY_EXHAUSTED after MaxAttempts. The cause is that of the loss or of the last dial. While
// the connection is up, Get doesn't look at ctx.
//
// A call that ends with such an error had no effect, or else says so with [MarkPermanent]:
// a [Guard] repeats it for any tool, if the next dial comes within the call's limit. No
// breaker counts it, as the connector turns calls away by itself and knows better when to
// come back; and if all attempts end so, the call still ends with CONNECTION_LOST and the
// time of the next dial.
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
// ends first, and at once what Get does if waiting is in vain: if the connection has been
// given up, the connector is closed, or ctx will end before the next dial.
func (c *Connector[C]) Wait(ctx context.Context) (C, error) {
	var none C
	for {
		if conn := c.current.Load(); conn != nil {
			return *conn, nil
		}
		changed, last, err := c.waiting(ctx)
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
func (c *Connector[C]) waiting(ctx context.Context) (changed chan struct{}, last, err error) {
	c.mu.Lock()
	delay := time.Duration(0)
	if c.timer != nil {
		delay = time.Until(c.next)
	}
	c.mu.Unlock() // ctx may be anybody's
	inTime := delay <= 0 || ctx.Err() != nil || fits(ctx, delay)

	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state == ConnectionUp: // since a moment ago
		changed = make(chan struct{})
		close(changed)
		return changed, nil, nil
	case c.state == ConnectionDown && inTime:
		if c.changed == nil {
			c.changed = make(chan struct{})
		}
		return c.changed, c.last.err, nil
	}
	return nil, nil, c.why()
}

// Lost says that conn is broken, and why; err may be nil. Whoever notices it says so, any
// number of times: unless conn is the connection that is up now, or is just being dialled,
// nothing happens. It doesn't wait until conn is closed.
func (c *Connector[C]) Lost(conn C, err error) {
	if err == nil {
		err = errLost
	}
	l := lossOf(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	current := c.current.Load()
	switch {
	case current != nil && *current == conn:
		c.current.Store(nil)
		go c.discard(conn)
		if time.Since(c.since) >= c.cfg.Stable {
			c.delays = 0
		}
		c.down(l)
	case c.state == ConnectionDown && c.timer == nil:
		if c.early == nil {
			c.early = make(map[C]loss)
		}
		c.early[conn] = l
	}
}

// watch reports what Watch finds out.
func (c *Connector[C]) watch(conn C) {
	err := ErrGoexit
	defer func() { c.Lost(conn, err) }()
	_, err = protect(context.Background(), func(context.Context) (struct{}, error) { return struct{}{}, c.cfg.Watch(conn) })
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
	c.change(ConnectionDown, c.last.err, 0)
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
	defer c.cancel() // after all is said: a dial that it ends is no news
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
		e := RetryExhaustedError("", c.attempts, &notMade{c.last.err})
		e.Message = fmt.Sprintf("Connection lost: %d attempts to connect have failed", c.attempts)
		if c.attempts == 1 {
			e.Message = "Connection lost: the attempt to connect has failed"
		}
		return e
	case ConnectionClosed:
		e := ConnectionLostError("closed for good")
		e.Retryable, e.Suggestion, e.Err = false, suggestions[CodeRetryExhausted], &notMade{errClosed}
		return MarkPermanent(e)
	}
	e := ConnectionLostError("")
	e.Message, e.Err = c.last.words, &notMade{c.last.err}
	e.RetryAfter = 100 * time.Millisecond
	if c.timer != nil {
		e.RetryAfter = max(time.Until(c.next), 1)
	}
	return e
}

// A loss is why a connection is down, and what an agent reads of that.
type loss struct {
	err   error
	words string
}

// lossOf takes the words of an *Error in err, or our own. It calls methods of err, which
// are a program's: not under a lock.
func lossOf(err error) (l loss) {
	l = loss{err, ConnectionLostError("").Message}
	defer func() { _ = recover() }()
	var own *Error
	switch {
	case errors.As(err, &own) && own.Code == CodeConnectionLost && own.Message != "":
		l.words = own.Message
	case errors.Is(err, io.EOF):
		l.words = ConnectionLostError("connection closed by the other side").Message
	default:
		l.words = ConnectionLostError(lostReason(err)).Message
	}
	return l
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
	failed, lost := lossOf(err), err != nil

	c.mu.Lock()
	defer c.mu.Unlock()
	if !lost && len(c.early) > 0 {
		failed, lost = c.early[conn]
	}
	c.early = nil
	if err == nil && (lost || c.state == ConnectionClosed) {
		go c.discard(conn)
	}
	switch {
	case c.state == ConnectionClosed:
	case lost:
		c.attempts++
		c.down(failed)
	default:
		c.current.Store(&conn)
		c.change(ConnectionUp, nil, 0)
		c.attempts, c.last = 0, loss{}
		if c.cfg.Watch != nil {
			go c.watch(conn)
		}
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
func (c *Connector[C]) down(l loss) {
	c.last = l
	if c.cfg.MaxAttempts > 0 && c.attempts >= c.cfg.MaxAttempts {
		c.change(ConnectionExhausted, l.err, 0)
		return
	}
	delay := c.cfg.Backoff.Delay(c.delays)
	c.delays++
	c.next = time.Now().Add(delay)
	c.timer = time.AfterFunc(delay, c.connect)
	c.change(ConnectionDown, l.err, delay)
}

// change requires that c.mu is held.
func (c *Connector[C]) change(to ConnectionState, err error, delay time.Duration) {
	e := ConnectionChange{Connection: c.cfg.Name, State: to, Time: time.Now(), Attempts: c.attempts, Err: err, NextDial: delay}
	c.state, c.since = to, e.Time
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
	if f := c.cfg.OnChange; f != nil {
		c.lane.add(func() { f(e) })
	}
	for _, o := range c.observers {
		o.connection(e)
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
