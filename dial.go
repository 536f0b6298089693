package resilience

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

const (
	defaultDialTimeout = 30 * time.Second

	// maxAbandonedDials bounds the dials of a connector that exceeded their timeout and still run.
	maxAbandonedDials = 4

	// maxLingering bounds the calls of Close, and those of Watch, for connections that were lost. It
	// leaves room for a Close that takes a minute, in which the backoff allows about eight dials.
	maxLingering = 16

	// maxReports bounds the connections whose losses are remembered during a dial.
	maxReports = 16

	// retryWhileDialing is what Get suggests as RetryAfter while a dial is under way. How long the
	// dial will take isn't known.
	retryWhileDialing = 100 * time.Millisecond
)

// connect makes one dial and enters the state that follows from its outcome.
func (c *Connector[C]) connect() {
	c.mu.Lock()
	c.schedule.timer = nil
	if c.state == ConnectionClosed {
		c.closeUnused()
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()

	conn, err := c.dialer.dialOnce()
	l, lost := c.dialer.lossOf(err), err != nil // before the lock, as it calls methods of err

	c.mu.Lock()
	defer c.mu.Unlock()
	if !lost {
		l, lost = c.reportOf(conn)
	}
	c.reported = nil

	switch {
	case c.state == ConnectionClosed:
	case lost:
		c.schedule.attempts++
		c.down(l)
	default:
		c.up(conn)
	}
	if err == nil {
		c.returned = append(c.returned, conn)
	}
	c.closeUnused()
}

// late receives what an abandoned dial returns. While another dial is under way, that may yet return the
// same connection.
func (c *Connector[C]) late(conn C) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.returned = append(c.returned, conn)
	if !c.dialing() {
		c.closeUnused()
	}
}

// closeUnused closes each connection that dials have returned, unless it is the current one. It requires
// that c.mu is held.
func (c *Connector[C]) closeUnused() {
	current := c.current.Load()
	for i, conn := range c.returned {
		same := func(other C) bool { return equal(other, conn) }
		if current != nil && same(*current) || slices.ContainsFunc(c.returned[:i], same) {
			continue
		}
		c.dialer.discard(conn)
	}
	c.returned = nil
}

// dialing reports whether a dial is under way. It separates the two halves of ConnectionDown: either
// the schedule has a timer, which starts the next dial, or a dial is being made. It requires that
// c.mu is held.
func (c *Connector[C]) dialing() bool {
	return c.state == ConnectionDown && c.schedule.timer == nil
}

// A report says that a connection is lost.
type report[C comparable] struct {
	conn C
	loss loss
}

// remember keeps a report until the current dial has returned. The last reports are kept, because
// those of the connection that is being dialed come late. If such a report is lost all the same, that
// connection comes up and is reported again, by Watch or by the next call that uses it. It requires
// that c.mu is held.
func (c *Connector[C]) remember(r report[C]) {
	c.reported = slices.DeleteFunc(c.reported, func(old report[C]) bool { return equal(old.conn, r.conn) })
	if len(c.reported) == maxReports {
		c.reported = slices.Delete(c.reported, 0, 1)
	}
	c.reported = append(c.reported, r)
}

// reportOf returns what was reported of conn during the current dial. It requires that c.mu is held.
func (c *Connector[C]) reportOf(conn C) (l loss, lost bool) {
	for _, r := range c.reported {
		if equal(r.conn, conn) {
			return r.loss, true
		}
	}
	return loss{}, false
}

// up makes conn the current connection. It requires that c.mu is held.
func (c *Connector[C]) up(conn C) {
	c.current.Store(&conn)
	c.change(ConnectionUp, nil, 0)
	c.schedule.attempts, c.loss = 0, loss{}
	if c.cfg.Watch != nil {
		c.dialer.watching.Add(1)
		go c.watch(conn)
	}
}

// down schedules the next dial, unless all attempts are used up. It requires that c.mu is held.
func (c *Connector[C]) down(l loss) {
	c.loss = l
	if c.cfg.MaxAttempts > 0 && c.schedule.attempts >= c.cfg.MaxAttempts {
		c.change(ConnectionExhausted, l.err, 0)
		return
	}

	delay := c.cfg.Backoff.Delay(c.schedule.delays)
	c.schedule.delays++
	c.schedule.start(delay, c.connect)
	c.change(ConnectionDown, l.err, delay)
}

// change enters a state, wakes Wait and notifies the observers. It requires that c.mu is held.
func (c *Connector[C]) change(to ConnectionState, err error, delay time.Duration) {
	e := ConnectionChange{
		Connection: c.cfg.Name,
		State:      to,
		Time:       time.Now(),
		Attempts:   c.schedule.attempts,
		Err:        err,
		NextDial:   delay,
	}
	c.state, c.since = to, e.Time
	c.changes++

	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
	for _, o := range c.observers {
		o.connection(e)
	}
}

// nextChange returns a channel that the next change closes, or nil if the last one isn't this one any more. It is
// made only for a Wait that waits, since it belongs to the synctest bubble of that Wait.
func (c *Connector[C]) nextChange(last int) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changes != last {
		return nil
	}

	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

// watch reports the loss that Watch returns.
func (c *Connector[C]) watch(conn C) {
	err := ErrGoexit // unless Watch returns or panics
	defer func() {
		c.dialer.watching.Add(-1)
		c.ReportLost(conn, err)
	}()
	err = recovered(func() error { return c.cfg.Watch(conn) })
}

// A schedule says when the next dial starts. It is guarded by the mutex of its connector.
type schedule struct {
	attempts int         // dials in a row that have failed
	delays   int         // delays since the backoff was restarted
	timer    *time.Timer // starts the next dial; nil unless one is scheduled
	at       time.Time   // when the timer fires
}

// restart restarts the backoff and the count of attempts.
func (s *schedule) restart() { s.attempts, s.delays = 0, 0 }

// start schedules the next dial.
func (s *schedule) start(delay time.Duration, dial func()) {
	s.at = time.Now().Add(delay)
	s.timer = time.AfterFunc(delay, dial)
}

// stop cancels the next dial. It reports false if that dial is already about to start.
func (s *schedule) stop() bool {
	if s.timer != nil && !s.timer.Stop() {
		return false
	}
	s.timer = nil
	return true
}

// untilDial returns the time until the next dial starts, or 0 if none is scheduled.
func (s *schedule) untilDial() time.Duration {
	if s.timer == nil {
		return 0
	}
	return time.Until(s.at)
}

// A dialer makes dials, each under a timeout, and closes what they return too late. It makes none while
// too much is left of earlier ones, so that functions that hang don't collect goroutines.
type dialer[C comparable] struct {
	name    string // of the connection, for errors
	dial    func(context.Context) (C, error)
	close   func(C) error
	late    func(C) // receives what an abandoned dial returns
	timeout time.Duration

	ctx       context.Context // parent of the context of each dial
	cancel    context.CancelFunc
	abandoned atomic.Int64 // dials that exceeded their timeout and still run
	closing   atomic.Int64 // calls of close that still run
	watching  atomic.Int64 // calls of Watch that still run; when a dial starts, their connections are lost
	asides    atomic.Int32 // examinations of errors that the connector has gone on without, and that still run
}

func newDialer[C comparable](dial func(context.Context) (C, error), cfg ConnectorConfig[C]) *dialer[C] {
	d := &dialer[C]{name: cfg.Name, dial: dial, close: cfg.Close, timeout: cfg.DialTimeout}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// dialOnce makes one dial. It returns by the timeout, whatever the dial does; if an abandoned dial
// returns a connection later, d.late receives it.
func (d *dialer[C]) dialOnce() (C, error) {
	var none C
	if err := d.blocked(); err != nil {
		return none, err
	}

	ctx := newCallContext(d.ctx, d.name, d.timeout, d.timeout, true)
	defer ctx.stop()

	var dialed C // used by the goroutine of the dial only
	late := func(err error) {
		if err == nil {
			d.late(dialed)
		}
	}
	conn, err, answered := enforce(ctx, d.abandon, late, func(ctx context.Context) (C, error) {
		conn, err := d.dial(ctx)
		dialed = conn
		return conn, err
	})
	if !answered && err == nil {
		const format = "resilience: the dial gave no answer within %s: %w"
		return none, fmt.Errorf(format, d.timeout, context.DeadlineExceeded)
	}
	if err == nil && !equal(conn, conn) {
		d.discard(conn)
		return none, fmt.Errorf("resilience: the dial returned a %T that doesn't equal itself", conn)
	}
	return conn, err
}

// equal reports whether a == b. Values that can't be compared aren't equal: C may be an interface type.
func equal[C comparable](a, b C) (yes bool) {
	defer func() { _ = recover() }()
	return a == b
}

// abandon counts a dial that exceeded its timeout until it has returned.
func (d *dialer[C]) abandon() (release func()) {
	d.abandoned.Add(1)
	return func() { d.abandoned.Add(-1) }
}

// blocked returns why no dial may be made, nil if one may.
func (d *dialer[C]) blocked() error {
	switch {
	case d.abandoned.Load() >= maxAbandonedDials:
		return errDialsHang
	case d.closing.Load() >= maxLingering:
		return errClosesHang
	case d.watching.Load() >= maxLingering:
		return errWatchesHang
	}
	return nil
}

// discard closes a connection that no caller will receive any more, on a goroutine of its own.
func (d *dialer[C]) discard(conn C) {
	d.closing.Add(1)
	go func() {
		defer d.closing.Add(-1)
		_ = d.closeNow(conn)
	}()
}

// closeNow closes a connection on this goroutine.
func (d *dialer[C]) closeNow(conn C) error {
	return recovered(func() error { return d.close(conn) })
}

var (
	errNotYet      = errors.New("resilience: the first dial is under way")
	errLost        = errors.New("resilience: the connection was reported lost")
	errClosed      = error(&notMade{errors.New("resilience: the connector is closed")})
	errDialsHang   = errors.New("resilience: too many earlier dials still hang")
	errClosesHang  = errors.New("resilience: too many lost connections are still being closed")
	errWatchesHang = errors.New("resilience: Watch still runs for too many lost connections")
)

// lossOf returns the loss that err means. The methods of err, which it calls aside, may do anything. It
// waits for them, so no lock may be held.
func (d *dialer[C]) lossOf(err error) loss {
	if err == nil {
		return loss{}
	}

	var l loss
	if aside(&d.asides, func() { f := factsOf(err); l = f.loss() }) && l.err != nil {
		return l
	}
	f := facts{err: errUnreadable}
	return f.loss()
}
