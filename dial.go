package resilience

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// maxRunning bounds the goroutines of functions that hang. It leaves room for a Close and a Watch that take a minute,
// in which the backoff allows about eight dials.
const maxRunning = 16

// maxAsked bounds how long a dial waits because the error of the one before asks for it.
const maxAsked = time.Hour

var (
	errLost    = errors.New("resilience: the connection was reported lost")
	errNotYet  = &Error{Code: CodeConnectionLost, Message: "Not connected yet"}
	errClosed  = errors.New("resilience: the connector is closed")
	errHanging = errors.New("resilience: too many dials, or functions for lost connections, still hang")
)

// A Conn is a connection of a [Connector]. A report about one that the connector has given up does nothing. All methods
// are safe for concurrent use.
type Conn[C any] struct {
	connector *Connector[C]
	value     C
	checking  bool // guarded by connector.mu
}

// Value returns the connection itself.
func (n *Conn[C]) Value() C { return n.value }

// Lost reports that the connection is certainly broken, and why; err may be nil. The connector closes the connection
// and dials again after a delay.
func (n *Conn[C]) Lost(err error) {
	n.connector.mu.Lock()
	defer n.connector.mu.Unlock()
	n.lost(err)
}

// lost implements Lost. It requires that the connector's mu is held.
func (n *Conn[C]) lost(err error) {
	c := n.connector
	if c.current != n {
		return
	}

	c.discard(n)
	if time.Since(c.last.Time) >= c.cfg.Stable {
		c.delays, c.since = 0, time.Now()
	}
	c.down(cmp.Or(err, errLost), 0)
}

// Suspect reports that the connection may be broken, and why; err may be nil. Use it for every failure that leaves that
// open, such as a timeout. Then ConnectorConfig.Check decides. Without a Check, Suspect is Lost.
func (n *Conn[C]) Suspect(err error) {
	c := n.connector
	if c.cfg.Check == nil {
		n.Lost(err)
		return
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != n || n.checking {
		return
	}
	n.checking = true
	check := func(ctx context.Context) error { return c.cfg.Check(ctx, n.value) }
	c.start(c.cfg.CheckTimeout, check, func(failed error) {
		n.checking = false
		if failed != nil {
			n.lost(errors.Join(failed, err))
		}
	})
}

// startDial starts a dial, unless too much of what was started earlier still runs. It requires that c.mu is held.
func (c *Connector[C]) startDial() {
	if c.running >= maxRunning {
		c.down(errHanging, c.last.Attempts+1)
		return
	}

	turn, conn := c.turn, &Conn[C]{connector: c}
	c.start(c.cfg.DialTimeout, func(ctx context.Context) (err error) {
		conn.value, err = c.dial(ctx)
		return err
	}, func(err error) { c.dialed(turn, conn, err) })
}

// dialed enters the state that follows from a dial. It is called twice for an abandoned dial: at its timeout, and when
// it has returned. It requires that c.mu is held.
func (c *Connector[C]) dialed(turn int, conn *Conn[C], err error) {
	switch late := turn != c.turn; {
	case late && err == nil:
		c.discard(conn)
	case late:
	case err != nil:
		c.down(err, c.last.Attempts+1)
	default:
		c.change(ConnectionUp, nil, 0)
		c.current = conn
		if c.cfg.Watch != nil {
			c.start(never, func(context.Context) error { return c.cfg.Watch(conn.value) }, conn.lost)
		}
	}
}

// down schedules the next dial, unless all attempts are used up. It requires that c.mu is held.
func (c *Connector[C]) down(err error, attempts int) {
	c.last.Attempts = attempts
	if c.cfg.MaxAttempts > 0 && attempts >= c.cfg.MaxAttempts {
		c.change(ConnectionExhausted, err, 0)
		return
	}

	delay := c.cfg.Backoff.Delay(c.delays)
	delay = min(delay, max(time.Since(c.since), c.cfg.Backoff.Base)) // so that no outage takes twice its length
	if e, ok := err.(*Error); ok && e != nil {
		delay = max(delay, min(e.RetryAfter, maxAsked))
	}
	c.delays++
	c.change(ConnectionDown, err, delay)
	turn := c.turn
	time.AfterFunc(delay, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if turn == c.turn {
			c.startDial()
		}
	})
}

// change enters a state without a connection, wakes Wait and notifies the observers. Any scheduled dial is dropped. It
// requires that c.mu is held.
func (c *Connector[C]) change(to ConnectionState, err error, delay time.Duration) {
	c.current = nil
	c.turn++
	e := ConnectionChange{c.cfg.Name, to, time.Now(), c.last.Attempts, err, delay}
	c.last = e
	close(c.changed)
	c.changed = make(chan struct{})
	for _, o := range c.observers {
		o.notify(o.Connection != nil, func() { o.Connection(e) })
	}
}

// discard closes a connection that no caller will receive any more. It requires that c.mu is held.
func (c *Connector[C]) discard(conn *Conn[C]) {
	c.start(never, func(context.Context) error { return c.cfg.Close(conn.value) }, func(error) {})
}

// start calls f, which is user code, on a goroutine of its own, and then done. If f exceeds the timeout, done is called
// at the timeout, too. It requires that c.mu is held, and done is called with c.mu held.
func (c *Connector[C]) start(timeout time.Duration, f func(context.Context) error, done func(error)) {
	ctx, cancel := context.WithTimeoutCause(c.ctx, timeout, TimeoutError(c.cfg.Name, timeout))
	stop := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		done(fmt.Errorf("resilience: no answer within %s: %w", timeout, context.DeadlineExceeded))
	})

	c.running++
	go func() {
		err := ErrGoexit // unless f returns or panics
		defer func() {
			stop()
			cancel()
			c.mu.Lock()
			defer c.mu.Unlock()
			c.running--
			done(err)
		}()
		err = recovered(func() error { return f(ctx) })
	}()
}

// untilDial returns the time until the next dial. It isn't positive if that has begun, or won't come.
func (e ConnectionChange) untilDial() time.Duration { return time.Until(e.Time.Add(e.NextDial)) }

// missing returns the error of Get and Wait after the last change of a connector, which has left it without a
// connection.
func missing(ctx context.Context, last ConnectionChange) *Error {
	if e := endOf(ctx, ""); e != nil {
		e.addCause(last.Err)
		return e
	}

	e := ConnectionLostError("closed for good")
	e.Err = &notMade{last.Err}
	switch last.State {
	case ConnectionDown:
		e.Message = lostMessage(last.Err)
		e.RetryAfter = cmp.Or(max(last.untilDial(), 0), 100*time.Millisecond) // how long a dial takes isn't known
		e.suggest(nil)
		return e
	case ConnectionExhausted:
		e.Code, e.Attempts = CodeRetryExhausted, last.Attempts
		e.Message = "Connection lost: " + plural(int64(last.Attempts), "attempt") + " to connect failed"
	}
	e.class = ClassPermanent
	e.Retryable = false
	e.suggest(nil)
	return e
}
