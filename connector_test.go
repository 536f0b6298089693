package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

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
	mu           sync.Mutex
	script       []dialStep
	starts       []time.Time // of all dials
	made         []*link
	underWay     int // dials that haven't returned
	mostUnderWay int
}

func newDialer(script ...dialStep) *dialer { return &dialer{script: script} }

func (d *dialer) dial(ctx context.Context) (*link, error) {
	step := d.start()
	defer d.end()
	if err := step(ctx); err != nil {
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
	d.underWay++
	d.mostUnderWay = max(d.mostUnderWay, d.underWay)
	if len(d.script) == 0 {
		return accepted
	}
	return d.script[min(n, len(d.script)-1)]
}

func (d *dialer) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.underWay--
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
func mustGet(t *testing.T, c *resilience.Connector[*link]) *link {
	t.Helper()
	conn, err := c.Get(t.Context())
	require.NoError(t, err)
	return conn
}

// mustWait returns the connection once it is up.
func mustWait[C comparable](t *testing.T, c *resilience.Connector[C]) C {
	t.Helper()
	conn, err := c.Wait(t.Context())
	require.NoError(t, err)
	return conn
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
	for name, tc := range map[string]struct {
		cfg  config
		want string
	}{
		"negative DialTimeout": {
			cfg:  config{DialTimeout: -1},
			want: "DialTimeout is -1ns: it must not be negative (0 is the default)",
		},
		"negative Stable": {
			cfg:  config{Stable: -time.Second},
			want: "Stable is -1s: it must not be negative (0 is the default)",
		},
		"negative MaxAttempts": {
			cfg:  config{MaxAttempts: -1},
			want: "MaxAttempts is -1: it must not be negative (0 is any number)",
		},
		"negative Backoff.Base": {
			cfg:  config{Backoff: resilience.Backoff{Base: -1}},
			want: "Backoff.Base is -1ns: it must not be negative (0 is the default)",
		},
		"Backoff.Max under Backoff.Base": {
			cfg:  config{Backoff: resilience.Backoff{Base: 2 * time.Second, Max: time.Second}},
			want: "Backoff.Max is 1s: it must not be under Base, 2s",
		},
		"unknown Backoff.Jitter": {
			cfg:  config{Backoff: resilience.Backoff{Jitter: 9}},
			want: "Backoff.Jitter is 9: it must be FullJitter, SmallJitter or NoJitter",
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := "resilience: NewConnector: wrong ConnectorConfig: " + tc.want
			assert.PanicsWithValue(t, want, func() { resilience.NewConnector(dial, tc.cfg) })
		})
	}

	assert.PanicsWithValue(t, "resilience: NewConnector: nil dial", func() {
		resilience.NewConnector[int](nil, config{})
	})
}

func TestConnectionStateHasAName(t *testing.T) {
	assert.Equal(t, "exhausted", resilience.ConnectionExhausted.String())
	assert.Equal(t, "ConnectionState(9)", resilience.ConnectionState(9).String())
}

func TestConnectorDialsAgainAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDialer()
		c := newConnector(t, d, linkConfig{})
		first := mustGet(t, c)
		assert.Equal(t, resilience.ConnectionUp, c.State())
		time.Sleep(time.Hour)

		c.ReportLost(first, io.ErrUnexpectedEOF)
		_, err := c.Get(t.Context())
		e := requireLost(t, err)
		assert.Equal(t, "Connection lost: connection closed by the other side", e.Message)
		assert.Equal(t, 500*time.Millisecond, e.RetryAfter)
		assert.True(t, e.Retryable)
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
		assert.Equal(t, resilience.ConnectionDown, c.State())

		second := mustWait(t, c)
		assert.NotSame(t, first, second)
		assert.Equal(t, []time.Duration{time.Hour + 500*time.Millisecond}, d.gaps())
		assert.EqualValues(t, 1, first.closed.Load())

		assert.EqualError(t, c.Close(), "closing 1")
		assert.EqualValues(t, 1, second.closed.Load())
	})
}

func TestConnectorGetDoesNotAllocate(t *testing.T) {
	c := resilience.NewConnector(newDialer().dial, linkConfig{})
	defer c.Close()
	mustWait(t, c)

	ctx := t.Context()
	assert.Zero(t, testing.AllocsPerRun(100, func() { _, _ = c.Get(ctx) }))
}

// How long the dial will take isn't known.
func TestConnectorSuggests100msWhileADialIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConnector(t, newDialer(refused, acceptedAfter(time.Second)), linkConfig{})

		c.Reconnect()
		_, err := c.Get(t.Context())

		assert.Equal(t, 100*time.Millisecond, requireLost(t, err).RetryAfter)
		time.Sleep(time.Minute)
	})
}

func TestConnectorWaitRespectsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConnector(t, newDialer(refused), linkConfig{})
		hung := newConnector(t, newDialer(untilCanceled), linkConfig{})
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		start := time.Now()

		// The fourth dial fails at 3.5s, and the next one would come at 7.5s.
		_, err := c.Wait(ctx)
		assert.ErrorIs(t, err, resilience.CodeConnectionLost)
		assert.ErrorIs(t, err, errRefused)
		assert.Equal(t, 3500*time.Millisecond, time.Since(start))

		_, err = hung.Wait(ctx)
		assert.ErrorIs(t, err, resilience.CodeTimeout)
		assert.Equal(t, 7*time.Second, time.Since(start))

		canceled, leave := context.WithCancelCause(t.Context())
		leave(errBoom)
		_, err = c.Wait(canceled)
		assert.ErrorIs(t, err, resilience.CodeCanceled)
		assert.ErrorIs(t, err, errBoom)
		_, err = c.Get(canceled)
		assert.ErrorIs(t, err, resilience.CodeCanceled)
	})
}

// The methods of a context may take their time, in which the connection may come up.
func TestConnectorWaitSeesAChangeWhileItsContextIsAsked(t *testing.T) {
	for _, method := range contextMethods {
		runInBubble(t, method, func(t *testing.T) {
			c := newConnector(t, newDialer(refused, accepted), linkConfig{})
			ctx := &calledContext{Context: contextWithin(t, time.Hour), method: method, call: func() { time.Sleep(time.Second) }}

			conn, err := c.Wait(ctx)

			require.NoError(t, err)
			assert.Same(t, mustGet(t, c), conn)
		})
	}
}

// In that time a dial may fail, too, and the next one come too late.
func TestConnectorWaitSeesAFailedDialWhileItsContextIsAsked(t *testing.T) {
	for _, method := range contextMethods {
		runInBubble(t, method, func(t *testing.T) {
			refusedLate := func(context.Context) error { time.Sleep(time.Second / 2); return errRefused }
			c := newConnector(t, newDialer(refusedLate), linkConfig{Backoff: resilience.Backoff{Base: time.Hour, Max: time.Hour, Jitter: resilience.NoJitter}})
			ctx := &calledContext{Context: contextWithin(t, time.Minute), method: method, call: func() { time.Sleep(time.Second) }}

			_, err := c.Wait(ctx)

			assert.ErrorIs(t, err, resilience.CodeConnectionLost)
			assert.NotErrorIs(t, err, resilience.CodeTimeout)
		})
	}
}

// Only the end of a context counts: a deadline is a reason not to wait for a later dial.
func TestConnectorWaitsForADialUnderWayUntilItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConnector(t, newDialer(acceptedAfter(time.Second)), linkConfig{})
		ctx, cancel := withUnkeptTimeout(0)(t.Context())
		defer cancel()

		_, err := c.Wait(ctx)

		assert.NoError(t, err)
	})
}

// Callers may ask at any time, also just when the connection comes up.
func TestConnectorGetReturnsAConnectionOrAnError(t *testing.T) {
	for range 300 {
		c := resilience.NewConnector(func(context.Context) (int, error) { return 1, nil }, resilience.ConnectorConfig[int]{})
		for {
			conn, err := c.Get(t.Context())
			if err == nil {
				require.Equal(t, 1, conn)
				break
			}
			require.ErrorIs(t, err, resilience.CodeConnectionLost)
		}
		_ = c.Close()
	}
}

// A doneWithoutErr is a context that breaks its promise to say why it is done.
type doneWithoutErr struct{ context.Context }

func (doneWithoutErr) Err() error { return nil }

func TestConnectorEveryErrorIsAnErrorWithItsCode(t *testing.T) {
	const (
		canceled  = resilience.CodeCanceled
		timeout   = resilience.CodeTimeout
		lost      = resilience.CodeConnectionLost
		exhausted = resilience.CodeRetryExhausted
	)
	hangs := acceptedAfter(time.Hour)
	closed := func(c *resilience.Connector[*link]) { _ = c.Close() }
	for name, tc := range map[string]struct {
		script      []dialStep
		maxAttempts int
		then        func(*resilience.Connector[*link])

		get  resilience.Code // with a context that has not ended
		wait resilience.Code // with one that ends in 100ms by its deadline
		left resilience.Code // with one that is canceled in 100ms
		loss error           // that every error wraps
	}{
		"the first dial is under way": {
			script: []dialStep{hangs},
			get:    lost, wait: timeout, left: canceled,
		},
		"between dials": {
			script: []dialStep{refused},
			get:    lost, wait: lost, left: canceled,
			loss: errRefused,
		},
		"a later dial is under way": {
			script: []dialStep{refused, hangs},
			then:   (*resilience.Connector[*link]).Reconnect,
			get:    lost, wait: timeout, left: canceled,
			loss: errRefused,
		},
		"exhausted": {
			script: []dialStep{refused}, maxAttempts: 1,
			get: exhausted, wait: exhausted, left: exhausted,
			loss: errRefused,
		},
		"closed while it was up": {then: closed, get: lost, wait: lost, left: lost},
		"closed during a dial":   {script: []dialStep{hangs}, then: closed, get: lost, wait: lost, left: lost},
		"closed between dials":   {script: []dialStep{refused}, then: closed, get: lost, wait: lost, left: lost},
		"closed after it had been exhausted": {
			script: []dialStep{refused}, maxAttempts: 1, then: closed,
			get: lost, wait: lost, left: lost,
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			c := newConnector(t, newDialer(tc.script...), linkConfig{MaxAttempts: tc.maxAttempts})
			if tc.then != nil {
				tc.then(c)
				synctest.Wait()
			}
			check := func(code resilience.Code, err error) {
				t.Helper()
				e, ok := err.(*resilience.Error)
				require.True(t, ok, "%T", err)
				assert.Equal(t, code, e.Code)
				for cause := err; cause != nil; cause = errors.Unwrap(cause) {
					assert.NotEmpty(t, cause.Error())
				}
				if tc.loss != nil {
					assert.ErrorIs(t, err, tc.loss)
				}
			}

			for _, call := range []func(context.Context) (*link, error){c.Get, c.Wait} {
				gone, late := endedContexts(t)
				_, err := call(gone)
				check(canceled, err)
				_, err = call(late)
				check(timeout, err)
			}
			_, err := c.Get(doneWithoutErr{t.Context()})
			check(tc.get, err)
			_, err = c.Wait(contextWithin(t, 100*time.Millisecond))
			check(tc.wait, err)
			for _, hide := range []bool{false, true} {
				ctx, cancel := leavingAfter(100 * time.Millisecond)(t.Context())
				defer cancel()
				if hide {
					ctx = doneWithoutErr{ctx}
				}
				_, err = c.Wait(ctx)
				check(tc.left, err)
			}

			_ = c.Close()
			time.Sleep(2 * time.Hour)
		})
	}
}

func TestConnectorIsExhaustedUntilReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var states []resilience.ConnectionState
		d := newDialer(refused, refused, refused, refused, refused, accepted)
		c := newConnector(t, d, linkConfig{
			MaxAttempts: 3,
			Observers:   onChange(func(e resilience.ConnectionChange) { states = append(states, e.State) }),
		})

		_, err := c.Wait(t.Context())
		assert.ErrorIs(t, err, resilience.CodeRetryExhausted)
		assert.ErrorIs(t, err, errRefused)
		assert.EqualError(t, err, "RETRY_EXHAUSTED: Connection lost: 3 attempts to connect have failed")
		assert.Equal(t, resilience.ClassPermanent, resilience.Classify(err))
		_, again := c.Get(t.Context())
		assert.EqualError(t, again, err.Error())
		time.Sleep(time.Hour)
		assert.Equal(t, 3, d.dials())
		assert.Equal(t, resilience.ConnectionExhausted, c.State())

		c.Reconnect()
		c.Reconnect()
		synctest.Wait()
		assert.Equal(t, 4, d.dials(), "one dial, at once")
		_, err = c.Get(t.Context())
		assert.ErrorIs(t, err, resilience.CodeConnectionLost)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		assert.Equal(t, 5, d.dials(), "the backoff has restarted")

		conn := mustWait(t, c)
		c.Reconnect()
		assert.Same(t, conn, mustGet(t, c))
		synctest.Wait()
		down, up, exhausted := resilience.ConnectionDown, resilience.ConnectionUp, resilience.ConnectionExhausted
		assert.Equal(t, []resilience.ConnectionState{down, down, exhausted, down, down, down, up}, states)
	})
}

func TestConnectorIsExhaustedAfterOneAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConnector(t, newDialer(refused), linkConfig{MaxAttempts: 1})
		_, err := c.Get(t.Context())
		assert.EqualError(t, err, "RETRY_EXHAUSTED: Connection lost: the attempt to connect has failed")
	})
}

func TestConnectorReconnectStartsOneDialAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDialer(refused, refused, refused, refused, acceptedAfter(5*time.Second))
		c := newConnector(t, d, linkConfig{})
		time.Sleep(3600 * time.Millisecond) // the fourth dial was at 3.5s
		synctest.Wait()
		require.Equal(t, 4, d.dials())

		for range 100 {
			c.Reconnect()
		}
		synctest.Wait()
		assert.Equal(t, 5, d.dials())
		require.NotNil(t, mustWait(t, c))
		assert.Equal(t, 1, d.mostUnderWay)

		assert.EqualError(t, c.Close(), "closing 0")
		c.Reconnect()
		time.Sleep(time.Minute)
		assert.Equal(t, 5, d.dials(), "not when it is closed")
	})
}

func TestConnectorCloseEndsWaitsAndTheDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDialer(acceptedAfter(10 * time.Second))
		c := newConnector(t, d, linkConfig{})
		var waits sync.WaitGroup
		for range 10 {
			waits.Go(func() {
				_, err := c.Wait(t.Context())
				var e *resilience.Error
				if assert.ErrorAs(t, err, &e) {
					assert.Equal(t, resilience.CodeConnectionLost, e.Code)
					assert.False(t, e.Retryable)
					assert.Equal(t, resilience.ClassPermanent, resilience.Classify(err))
				}
			})
		}
		time.Sleep(time.Second)

		require.NoError(t, c.Close())
		require.NoError(t, c.Close())
		waits.Wait()
		assert.Equal(t, resilience.ConnectionClosed, c.State())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, d.made, 1)
		assert.EqualValues(t, 1, d.made[0].closed.Load())

		_, err := c.Get(t.Context())
		assert.ErrorIs(t, err, resilience.CodeConnectionLost)
		c.ReportLost(d.made[0], errBoom)
		c.Reconnect()
		time.Sleep(time.Hour)
		assert.Equal(t, 1, d.dials())
	})
}

func TestConnectorCloseCancelsTheNextDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDialer(refused)
		c := newConnector(t, d, linkConfig{})
		require.NoError(t, c.Close())
		time.Sleep(time.Hour)
		assert.Equal(t, 1, d.dials())
	})
}

func TestConnectorIsForgottenOnceItIsClosed(t *testing.T) {
	failed := make(chan struct{})
	c := resilience.NewConnector(newDialer(refused).dial, linkConfig{
		Backoff: resilience.Backoff{Base: time.Hour, Max: time.Hour, Jitter: resilience.NoJitter},
		Observers: onChange(func(e resilience.ConnectionChange) {
			if e.State == resilience.ConnectionDown {
				close(failed)
			}
		}),
	})
	<-failed
	_ = c.Close()
	require.NoError(t, c.Flush(t.Context()))

	forgotten := weak.Make(c)
	c = nil
	assert.Eventually(t, func() bool { runtime.GC(); return forgotten.Value() == nil }, time.Minute, time.Millisecond)
}

func TestConnectorFlushEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		c := newConnector(t, newDialer(), linkConfig{Observers: onChange(func(resilience.ConnectionChange) { <-release })})
		assert.ErrorIs(t, c.Flush(contextWithin(t, time.Second)), context.DeadlineExceeded)
	})
}

func TestConnectorCallsTheCloseFunctionAndRecoversItsPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Int32
		c := newConnector(t, newDialer(), linkConfig{
			Close: func(*link) error { closed.Add(1); panic("p") },
		})
		conn := mustGet(t, c)
		c.ReportLost(conn, nil)
		mustWait(t, c)

		var p *resilience.PanicError
		assert.ErrorAs(t, c.Close(), &p)
		assert.EqualValues(t, 2, closed.Load())
		assert.Zero(t, conn.closed.Load(), "its own Close method isn't called")
	})
}

func TestConnectorCloseAcceptsAConnectionThatIsNoCloser(t *testing.T) {
	dial := func(context.Context) (int, error) { return 1, nil }
	c := resilience.NewConnector(dial, resilience.ConnectorConfig[int]{})
	mustWait(t, c)
	assert.NoError(t, c.Close())
}

func TestConnectorReportLostDoesNotWaitForClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, done := make(chan struct{}), make(chan struct{})
		c := newConnector(t, newDialer(), linkConfig{
			Close: func(*link) error { <-release; return nil },
		})
		conn := mustGet(t, c)

		go func() { defer close(done); c.ReportLost(conn, io.EOF) }()
		synctest.Wait()

		select {
		case <-done:
		default:
			t.Error("ReportLost waits for Close")
		}
		close(release)
		mustWait(t, c)
	})
}

func TestConnectorReportsASecondCloseToNoObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		c := newConnector(t, newDialer(), linkConfig{Observers: onChange(func(resilience.ConnectionChange) { n++ })})
		_ = c.Close()
		assert.NoError(t, c.Close())
		synctest.Wait()
		assert.Equal(t, 2, n, "up and closed")
	})
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

		c.ReportLost(mustWait(t, c), errBoom)
		_, err := c.Wait(t.Context())
		require.Error(t, err)
		_ = c.Close()
		require.NoError(t, c.Flush(t.Context()))
		synctest.Wait()

		require.Len(t, panics, 6)
		errClosed := panics[5].Err
		assert.EqualError(t, errClosed, "resilience: the connector is closed")
		ms := time.Millisecond
		down, up := resilience.ConnectionDown, resilience.ConnectionUp
		exhausted, closed := resilience.ConnectionExhausted, resilience.ConnectionClosed
		want := []resilience.ConnectionChange{
			{State: down, Time: start, Attempts: 1, Err: errRefused, NextDial: 500 * ms},
			{State: up, Time: start.Add(500 * ms), Attempts: 1},
			{State: down, Time: start.Add(500 * ms), Err: errBoom, NextDial: 1000 * ms},
			{State: down, Time: start.Add(1500 * ms), Attempts: 1, Err: errRefused, NextDial: 2000 * ms},
			{State: exhausted, Time: start.Add(3500 * ms), Attempts: 2, Err: errRefused},
			{State: closed, Time: start.Add(3500 * ms), Attempts: 2, Err: errClosed},
		}
		for i := range want {
			want[i].Connection = "browser"
		}
		assert.Equal(t, want, panics)
		assert.Equal(t, want, observed)
		assert.Equal(t, `level=WARN msg="connection down" connection=browser attempts=1 error="dial: refused" next=500ms
level=INFO msg="connection up" connection=browser attempts=1
level=WARN msg="connection down" connection=browser attempts=0 error="boom at 10.0.0.7 with password hunter2" next=1s
level=WARN msg="connection down" connection=browser attempts=1 error="dial: refused" next=2s
level=ERROR msg="connection exhausted" connection=browser attempts=2 error="dial: refused"
level=INFO msg="connection closed" connection=browser attempts=2
`, out.String())
	})
}
