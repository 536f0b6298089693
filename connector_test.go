package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A link is a connection that counts how often it was closed.
type link struct {
	id     int
	closed atomic.Int32
}

func (l *link) Close() error {
	l.closed.Add(1)
	return fmt.Errorf("closing %d", l.id)
}

// A dialStep is what happens during a dial. If it returns nil, the dial returns a new link.
type dialStep = func(context.Context) error

func accepted(context.Context) error { return nil }

var errRefused = &net.OpError{Op: "dial", Err: errors.New("refused")}

func refused(context.Context) error { return errRefused }

// acceptedAfter returns a step that ignores its context.
func acceptedAfter(d time.Duration) dialStep {
	return func(context.Context) error { time.Sleep(d); return nil }
}

func untilCanceled(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// A dialer makes links. Each dial runs the next step of the script, and the last step again when
// the script is over. Without a script, all dials are accepted.
type dialer struct {
	mu     sync.Mutex
	script []dialStep
	starts []time.Time // of all dials
	made   []*link
}

func newDialer(script ...dialStep) *dialer { return &dialer{script: script} }

func (d *dialer) dial(ctx context.Context) (*link, error) {
	if err := d.start()(ctx); err != nil {
		return nil, err
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	l := &link{id: len(d.made)}
	d.made = append(d.made, l)
	return l, nil
}

// start counts a dial and returns its step.
func (d *dialer) start() dialStep {
	d.mu.Lock()
	defer d.mu.Unlock()

	n := len(d.starts)
	d.starts = append(d.starts, time.Now())
	if len(d.script) == 0 {
		return accepted
	}
	return d.script[min(n, len(d.script)-1)]
}

// acceptAll replaces the script.
func (d *dialer) acceptAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.script = nil
}

// gaps returns the times between dials.
func (d *dialer) gaps() (gaps []time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.starts[1:] {
		gaps = append(gaps, d.starts[i+1].Sub(d.starts[i]))
	}
	return gaps
}

// links returns all links made.
func (d *dialer) links() []*link {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.made)
}

func (d *dialer) dials() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.starts)
}

type linkConfig = resilience.ConnectorConfig[*link]

// even waits 500ms, 1s, 2s, and so on up to 60s between dials, without jitter.
var even = resilience.Backoff{Jitter: resilience.NoJitter}

// newConnector returns a connector, in a bubble, whose first dial has returned or blocks.
func newConnector(t *testing.T, d *dialer, cfg linkConfig) *resilience.Connector[*link] {
	if cfg.Backoff == (resilience.Backoff{}) {
		cfg.Backoff = even
	}
	c := resilience.NewConnector(d.dial, cfg)
	t.Cleanup(func() { _ = c.Close() })
	synctest.Wait()
	return c
}

// onChange returns observers that call f for each change of a connection.
func onChange(f func(resilience.ConnectionChange)) []resilience.Observer {
	return []resilience.Observer{{Connection: f}}
}

// mustGet returns the connection, which must be up.
func mustGet[C any](t *testing.T, c *resilience.Connector[C]) *resilience.Conn[C] {
	t.Helper()
	conn, err := c.Get(t.Context())
	require.NoError(t, err)
	return conn
}

// mustWait returns the connection once it is up.
func mustWait[C any](t *testing.T, c *resilience.Connector[C]) *resilience.Conn[C] {
	t.Helper()
	conn, err := c.Wait(t.Context())
	require.NoError(t, err)
	return conn
}

// valueOf returns a function that returns the value of the connection that get returns.
func valueOf[C any](
	get func(context.Context) (*resilience.Conn[C], error),
) func(context.Context) (C, error) {
	return func(ctx context.Context) (value C, err error) {
		conn, err := get(ctx)
		if err != nil {
			return value, err
		}
		return conn.Value(), nil
	}
}

// requireLost requires that err is a CONNECTION_LOST and returns it.
func requireLost(t *testing.T, err error) *resilience.Error {
	t.Helper()
	var e *resilience.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, resilience.CodeConnectionLost, e.Code)
	return e
}

func TestNewConnectorPanicsWithInvalidInput(t *testing.T) {
	type config = resilience.ConnectorConfig[int]
	dial := func(context.Context) (int, error) { return 0, nil }
	for want, cfg := range map[string]config{
		"DialTimeout is -1ns: it must not be negative (0 is the default)":  {DialTimeout: -1},
		"Stable is -1s: it must not be negative (0 is the default)":        {Stable: -time.Second},
		"CheckTimeout is -1ns: it must not be negative (0 is the default)": {CheckTimeout: -1},
		"MaxAttempts is -1: it must not be negative (0 is any number)":     {MaxAttempts: -1},
		"Backoff.Jitter is 9: it must be FullJitter, SmallJitter or NoJitter": {
			Backoff: resilience.Backoff{Jitter: 9},
		},
	} {
		want = "resilience: NewConnector: wrong ConnectorConfig: " + want
		assert.PanicsWithValue(t, want, func() { resilience.NewConnector(dial, cfg) })
	}

	assert.PanicsWithValue(t, "resilience: NewConnector: nil dial", func() {
		resilience.NewConnector[int](nil, config{})
	})
}

func TestConnectorDialsAgainAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDialer()
		c := newConnector(t, d, linkConfig{})
		first := mustGet(t, c)
		assert.Same(t, first, mustWait(t, c))
		assert.Equal(t, resilience.ConnectionUp, c.State())
		time.Sleep(time.Hour)

		first.Lost(io.ErrUnexpectedEOF)
		_, err := c.Get(t.Context())
		e := requireLost(t, err)
		assert.Equal(t, "Connection lost: connection closed by the other side", e.Message)
		assert.Equal(t, 500*time.Millisecond, e.RetryAfter)
		assert.True(t, e.Retryable)
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
		assert.Equal(t, resilience.ConnectionDown, c.State())

		second := mustWait(t, c)
		assert.Equal(t, []time.Duration{time.Hour + 500*time.Millisecond}, d.gaps())
		assert.EqualValues(t, 1, first.Value().closed.Load())

		assert.EqualError(t, c.Close(), "closing 1")
		assert.EqualValues(t, 1, second.Value().closed.Load())
	})
}

// Any number of users may report the loss of a connection, also when the next one is up. It needn't be comparable.
func TestConnectorDialsOncePerLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int32
		c := resilience.NewConnector(func(context.Context) ([]string, error) {
			dials.Add(1)
			return []string{"same"}, nil
		}, resilience.ConnectorConfig[[]string]{})
		defer c.Close()

		old := mustWait(t, c)
		var users sync.WaitGroup
		for range 1000 {
			users.Go(func() {
				old.Lost(errBoom)
				_, err := c.Wait(t.Context())
				assert.NoError(t, err)
				old.Suspect(errBoom)
			})
		}
		users.Wait()
		mustGet(t, c)
		assert.EqualValues(t, 2, dials.Load())
	})
}

func TestConnectorEveryErrorIsAnErrorWithItsCode(t *testing.T) {
	const canceled = resilience.CodeCanceled
	hangs := acceptedAfter(time.Hour)
	closed := func(c *resilience.Connector[*link]) { _ = c.Close() }
	for name, tc := range map[string]struct {
		script      []dialStep
		maxAttempts int
		then        func(*resilience.Connector[*link])

		get        resilience.Code
		message    string
		retryAfter time.Duration
		wait       resilience.Code // with a context that ends in 100ms by its deadline
		left       resilience.Code // with one that is canceled in 100ms
		loss       error           // that every error wraps
	}{
		"the first dial is under way": {
			script: []dialStep{hangs}, wait: timedOut, left: canceled,
			get: lost, message: "Not connected yet", retryAfter: 100 * time.Millisecond,
		},
		"between dials": {
			script: []dialStep{refused}, wait: lost, left: canceled, loss: errRefused,
			get: lost, message: "Connection lost: network error", retryAfter: 500 * time.Millisecond,
		},
		"a later dial is under way": {
			script: []dialStep{refused, hangs}, then: (*resilience.Connector[*link]).Reconnect,
			get: lost, message: "Connection lost: network error", retryAfter: 100 * time.Millisecond,
			wait: timedOut, left: canceled, loss: errRefused,
		},
		"exhausted": {
			script: []dialStep{refused}, maxAttempts: 1, wait: exhausted, left: exhausted, loss: errRefused,
			get: exhausted, message: "Connection lost: 1 attempt to connect failed",
		},
		"closed": {then: closed, get: lost, message: "Connection lost: closed for good", wait: lost, left: lost},
	} {
		runInBubble(t, name, func(t *testing.T) {
			c := newConnector(t, newDialer(tc.script...), linkConfig{MaxAttempts: tc.maxAttempts})
			if tc.then != nil {
				tc.then(c)
				synctest.Wait()
			}
			check := func(code resilience.Code, err error) *resilience.Error {
				t.Helper()
				e, ok := err.(*resilience.Error)
				require.True(t, ok, "%T", err)
				assert.Equal(t, code, e.Code)
				if tc.loss != nil {
					assert.ErrorIs(t, err, tc.loss)
				}
				return e
			}

			_, err := c.Get(t.Context())
			e := check(tc.get, err)
			assert.Equal(t, tc.message, e.Message)
			assert.Equal(t, tc.retryAfter, e.RetryAfter)
			assert.Equal(t, tc.retryAfter > 0, e.Retryable)
			assert.Equal(t, tc.retryAfter == 0, resilience.Classify(err) == resilience.ClassPermanent)

			gone, late := endedContexts(t)
			for _, call := range []func(context.Context) (*resilience.Conn[*link], error){c.Get, c.Wait} {
				_, err = call(gone)
				check(canceled, err)
				_, err = call(late)
				check(timedOut, err)
			}
			_, err = c.Wait(contextWithin(t, 100*time.Millisecond))
			check(tc.wait, err)
			leaving, cancel := leavingAfter(100 * time.Millisecond)(t.Context())
			defer cancel()
			_, err = c.Wait(leaving)
			check(tc.left, err)

			_ = c.Close()
			time.Sleep(2 * time.Hour)
		})
	}
}

// Agents read why the connection was lost, but no text of errors that weren't written for them.
func TestConnectorErrorNamesTheReasonOfTheLoss(t *testing.T) {
	closedTab := resilience.ConnectionLostError("the tab was closed")
	for name, tc := range map[string]struct {
		cause error
		want  string
	}{
		"no cause":     {nil, "Connection lost"},
		"unknown":      {errBoom, "Connection lost"},
		"EOF":          {io.EOF, "Connection lost: connection closed by the other side"},
		"a message":    {closedTab, "Connection lost: the tab was closed"},
		"another code": {&resilience.Error{Message: "secret"}, "Connection lost"},
	} {
		runInBubble(t, name, func(t *testing.T) {
			c := newConnector(t, newDialer(), linkConfig{})
			mustGet(t, c).Lost(tc.cause)
			_, err := c.Get(t.Context())
			assert.Equal(t, tc.want, requireLost(t, err).Message)
		})
	}
}

func TestConnectorIsExhaustedUntilReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusedLate := func(context.Context) error { time.Sleep(time.Second); return errRefused }
		d := newDialer(refused, refused, refused, refusedLate, accepted)
		c := newConnector(t, d, linkConfig{MaxAttempts: 3})

		_, err := c.Wait(t.Context())
		assert.EqualError(t, err, "RETRY_EXHAUSTED: Connection lost: 3 attempts to connect failed")
		time.Sleep(time.Hour)
		assert.Equal(t, 3, d.dials())
		assert.Equal(t, resilience.ConnectionExhausted, c.State())

		for range 100 {
			c.Reconnect()
		}
		synctest.Wait()
		assert.Equal(t, 4, d.dials(), "one dial, at once")
		time.Sleep(1400 * time.Millisecond)
		assert.Equal(t, resilience.ConnectionDown, c.State(), "the count of attempts has restarted")
		assert.Equal(t, 4, d.dials())
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		assert.Equal(t, 5, d.dials(), "the backoff has restarted")

		conn := mustWait(t, c)
		c.Reconnect()
		assert.Same(t, conn, mustGet(t, c))
	})
}

func TestConnectorCloseEndsWaitsAndDials(t *testing.T) {
	for name, tc := range map[string]struct {
		dial dialStep
		made int
	}{
		"during a dial":                          {untilCanceled, 0},
		"during a dial that ignores its context": {acceptedAfter(10 * time.Second), 1},
		"between dials":                          {func(context.Context) error { return errBoom }, 0},
	} {
		runInBubble(t, name, func(t *testing.T) {
			d := newDialer(tc.dial)
			c := newConnector(t, d, linkConfig{})
			var waits sync.WaitGroup
			for range 10 {
				waits.Go(func() {
					_, err := c.Wait(t.Context())
					assert.ErrorIs(t, err, resilience.CodeConnectionLost)
				})
			}
			synctest.Wait()

			require.NoError(t, c.Close())
			waits.Wait()
			assert.Equal(t, resilience.ConnectionClosed, c.State())
			c.Reconnect()
			time.Sleep(time.Hour)
			assert.Equal(t, 1, d.dials())
			require.Len(t, d.links(), tc.made)
			for _, l := range d.links() {
				assert.EqualValues(t, 1, l.closed.Load())
			}
		})
	}
}

func TestConnectorObserversReceiveAllChangesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out := textLog(0)
		var panics, observed []resilience.ConnectionChange
		c := newConnector(t, newDialer(refused, accepted, refused), linkConfig{
			Name:        "browser",
			MaxAttempts: 2,
			Log:         slog.New(slog.DiscardHandler),
			Observers: []resilience.Observer{
				{Connection: func(e resilience.ConnectionChange) { panics = append(panics, e); panic("p") }},
				resilience.LogObserver(log),
				{Connection: func(e resilience.ConnectionChange) { observed = append(observed, e) }},
				{},
			},
		})
		start := time.Now()

		mustWait(t, c).Lost(errBoom)
		_, err := c.Wait(t.Context())
		require.Error(t, err)
		c.Reconnect()
		synctest.Wait() // for the dial
		_ = c.Close()
		_ = c.Close()
		require.NoError(t, c.Flush(t.Context()))

		require.Len(t, panics, 8)
		errClosed := panics[7].Err
		assert.EqualError(t, errClosed, "resilience: the connector is closed")
		ms := time.Millisecond
		down, up := resilience.ConnectionDown, resilience.ConnectionUp
		exhausted, closed := resilience.ConnectionExhausted, resilience.ConnectionClosed
		want := []resilience.ConnectionChange{
			{State: down, Time: start, Attempts: 1, Err: errRefused, NextDial: 500 * ms},
			{State: up, Time: start.Add(500 * ms), Attempts: 1},
			{State: down, Time: start.Add(500 * ms), Err: errBoom, NextDial: 500 * ms},
			{State: down, Time: start.Add(1000 * ms), Attempts: 1, Err: errRefused, NextDial: 1000 * ms},
			{State: exhausted, Time: start.Add(2000 * ms), Attempts: 2, Err: errRefused},
			{State: down, Time: start.Add(2000 * ms), Err: errRefused},
			{State: down, Time: start.Add(2000 * ms), Attempts: 1, Err: errRefused, NextDial: 500 * ms},
			{State: closed, Time: start.Add(2000 * ms), Attempts: 1, Err: errClosed},
		}
		for i := range want {
			want[i].Connection = "browser"
		}
		assert.Equal(t, want, panics)
		assert.Equal(t, want, observed)
		assert.Contains(t, out.String(), `level=INFO msg="connection up" connection=browser attempts=1
level=WARN msg="connection down" connection=browser attempts=0 error="boom at 10.0.0.7 with password hunter2" next=500ms
`)
	})
}
