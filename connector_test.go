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

// A dialer makes links, by a script of what happens at each dial: nil is success. After
// the script it repeats its last line.
type dialer struct {
	script []func(context.Context) error

	mu    sync.Mutex
	at    []time.Time
	made  []*link
	under int // dials under way
	most  int
}

func (d *dialer) dial(ctx context.Context) (*link, error) {
	d.mu.Lock()
	n := len(d.at)
	d.at = append(d.at, time.Now())
	d.under++
	d.most = max(d.most, d.under)
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.under--
	}()
	if len(d.script) > 0 {
		if step := d.script[min(n, len(d.script)-1)]; step != nil {
			if err := step(ctx); err != nil {
				return nil, err
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l := &link{id: len(d.made)}
	d.made = append(d.made, l)
	return l, nil
}

// gaps are the times between dials.
func (d *dialer) gaps() (gaps []time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.at[1:] {
		gaps = append(gaps, d.at[i+1].Sub(d.at[i]))
	}
	return gaps
}

func (d *dialer) dials() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.at)
}

var errRefused = &net.OpError{Op: "dial", Err: errors.New("refused")}

func refused(context.Context) error { return errRefused }

type linkConfig = resilience.ConnectorConfig[*link]

// onChange is an observer that calls f for each change of a connection.
func onChange(f func(resilience.ConnectionChange)) []resilience.Observer {
	return []resilience.Observer{{Connection: f}}
}

// even has delays of 500ms, 1s, 2s … 60s.
var even = resilience.Backoff{Jitter: resilience.NoJitter}

// connector returns a connector whose first dial is over.
func connector(t *testing.T, d *dialer, cfg linkConfig) *resilience.Connector[*link] {
	if cfg.Backoff == (resilience.Backoff{}) {
		cfg.Backoff = even
	}
	c := resilience.NewConnector(d.dial, cfg)
	t.Cleanup(func() { _ = c.Close() })
	synctest.Wait()
	return c
}

func TestConnectorComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dialer{}
		c := connector(t, d, linkConfig{})
		first, err := c.Get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, resilience.ConnectionUp, c.State())
		time.Sleep(time.Hour)

		c.ReportLost(first, io.ErrUnexpectedEOF)
		_, err = c.Get(t.Context())
		var e *resilience.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, resilience.CodeConnectionLost, e.Code)
		assert.Equal(t, "Connection lost: connection closed by the other side", e.Message)
		assert.Equal(t, 500*time.Millisecond, e.RetryAfter)
		assert.True(t, e.Retryable)
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
		assert.Equal(t, resilience.ConnectionDown, c.State())

		second, err := c.Wait(t.Context())
		require.NoError(t, err)
		assert.NotSame(t, first, second)
		assert.Equal(t, []time.Duration{time.Hour + 500*time.Millisecond}, d.gaps())
		assert.EqualValues(t, 1, first.closed.Load())
		assert.EqualError(t, c.Close(), "closing 1")
		assert.EqualValues(t, 1, second.closed.Load())
	})
}

// Delays grow to 60s, begin anew once a connection has lasted, and don't if it hasn't.
func TestConnectorBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dialer{script: []func(context.Context) error{refused}}
		connector(t, d, linkConfig{})
		time.Sleep(300 * time.Second)
		s := time.Second
		assert.Equal(t, []time.Duration{s / 2, s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s, 60 * s}, d.gaps())
	})
}

func TestConnectorFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dialer{}
		c := connector(t, d, linkConfig{Stable: time.Minute})
		var gaps []time.Duration
		for _, lasts := range []time.Duration{0, time.Second, 59 * time.Second, 0, time.Minute, 0, 0} {
			conn, err := c.Wait(t.Context())
			require.NoError(t, err)
			time.Sleep(lasts)
			lost := time.Now()
			c.ReportLost(conn, nil)
			_, err = c.Wait(t.Context())
			require.NoError(t, err)
			gaps = append(gaps, time.Since(lost))
		}
		ms := time.Millisecond
		assert.Equal(t, []time.Duration{500 * ms, 1000 * ms, 2000 * ms, 4000 * ms, 500 * ms, 1000 * ms, 2000 * ms}, gaps)
	})
}

func TestConnectorDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []resilience.ConnectionChange
		d := &dialer{script: []func(context.Context) error{refused}}
		c := resilience.NewConnector(d.dial, linkConfig{
			Observers: onChange(func(e resilience.ConnectionChange) { changes = append(changes, e) }),
		})
		defer c.Close()
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Greater(t, len(changes), 60)
		distinct := make(map[time.Duration]bool)
		for i, e := range changes {
			assert.Equal(t, "connection", e.Connection)
			assert.Equal(t, i+1, e.Attempts)
			assert.LessOrEqual(t, e.NextDial, min(time.Minute, 500*time.Millisecond<<min(i, 10)))
			distinct[e.NextDial] = true
		}
		assert.Greater(t, len(distinct), 60, "full jitter")
	})
}

func TestConnectorIsExhausted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dialer{script: []func(context.Context) error{refused, refused, refused, refused, refused, nil}}
		var changes []resilience.ConnectionState
		c := connector(t, d, linkConfig{
			MaxAttempts: 3,
			Observers:   onChange(func(e resilience.ConnectionChange) { changes = append(changes, e.State) }),
		})
		_, err := c.Wait(t.Context())
		assert.ErrorIs(t, err, resilience.CodeRetryExhausted)
		assert.ErrorIs(t, err, errRefused)
		_, again := c.Get(t.Context())
		assert.Equal(t, err.Error(), again.Error())
		assert.Equal(t, "RETRY_EXHAUSTED: Connection lost: 3 attempts to connect have failed", err.Error())
		assert.Equal(t, resilience.ClassPermanent, resilience.Classify(err))
		time.Sleep(time.Hour)
		assert.Equal(t, 3, d.dials())
		assert.Equal(t, resilience.ConnectionExhausted, c.State())

		c.Reconnect()
		c.Reconnect()
		synctest.Wait()
		assert.Equal(t, 4, d.dials(), "at once, and once")
		_, err = c.Get(t.Context())
		assert.ErrorIs(t, err, resilience.CodeConnectionLost)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		assert.Equal(t, 5, d.dials(), "the backoff has begun anew")
		conn, err := c.Wait(t.Context())
		require.NoError(t, err)
		c.Reconnect()
		same, err := c.Get(t.Context())
		require.NoError(t, err)
		assert.Same(t, conn, same)
		down, up, exhausted := resilience.ConnectionDown, resilience.ConnectionUp, resilience.ConnectionExhausted
		synctest.Wait()
		assert.Equal(t, []resilience.ConnectionState{down, down, exhausted, down, down, down, up}, changes)
	})
}

// A success begins the count of attempts anew, also one that doesn't last.
func TestConnectorCountsFailuresInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dialer{script: []func(context.Context) error{refused, nil, refused, nil}}
		c := connector(t, d, linkConfig{MaxAttempts: 2})
		for range 2 {
			conn, err := c.Wait(t.Context())
			require.NoError(t, err)
			c.ReportLost(conn, errBoom)
		}
		_, err := c.Wait(t.Context())
		require.NoError(t, err)
	})
}

func TestConnectorReconnectWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dialer{script: []func(context.Context) error{refused, refused, refused, refused, func(context.Context) error { time.Sleep(5 * time.Second); return nil }}}
		c := connector(t, d, linkConfig{})
		time.Sleep(3600 * time.Millisecond) // three dials were made, the fourth is at 3.5s
		synctest.Wait()
		require.Equal(t, 4, d.dials())
		for range 100 {
			c.Reconnect()
		}
		synctest.Wait()
		assert.Equal(t, 5, d.dials())
		conn, err := c.Wait(t.Context())
		require.NoError(t, err)
		require.NotNil(t, conn)
		assert.Equal(t, 1, d.most)
		require.NoError(t, errors.Unwrap(c.Close()))
		c.Reconnect()
		time.Sleep(time.Minute)
		assert.Equal(t, 5, d.dials())
	})
}

// A dial that hangs, panics or exits has failed; what a hung one brings later is closed.
func TestConnectorBadDials(t *testing.T) {
	for name, step := range map[string]func(context.Context) error{
		"hangs, obeys": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"hangs":        func(context.Context) error { time.Sleep(time.Hour); return nil },
		"panics":       func(context.Context) error { panic(errBoom) },
		"exits":        func(context.Context) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &dialer{script: []func(context.Context) error{step, nil}}
				c := connector(t, d, linkConfig{DialTimeout: time.Second})
				_, err := c.Get(t.Context())
				assert.ErrorIs(t, err, resilience.CodeConnectionLost)
				begin := time.Now()
				conn, err := c.Wait(t.Context())
				require.NoError(t, err)
				assert.LessOrEqual(t, time.Since(begin), 1500*time.Millisecond)
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				for _, l := range d.made {
					if l != conn {
						assert.EqualValues(t, 1, l.closed.Load())
					}
				}
				assert.Zero(t, conn.closed.Load())
			})
		})
	}
}

func TestConnectorManyHungDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dialer{script: []func(context.Context) error{func(context.Context) error { time.Sleep(24 * time.Hour); return nil }}}
		c := connector(t, d, linkConfig{DialTimeout: time.Second})
		time.Sleep(12 * time.Hour)
		assert.Equal(t, 4, d.dials(), "they are capped")
		_, err := c.Get(t.Context())
		assert.ErrorContains(t, errors.Unwrap(err), "earlier dials still hang")
		time.Sleep(13 * time.Hour)
		assert.Greater(t, d.dials(), 4, "and made again when they have returned")
		require.NoError(t, errors.Unwrap(c.Close()))
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		for _, l := range d.made {
			assert.EqualValues(t, 1, l.closed.Load())
		}
	})
}

// However many report the same loss, and however late: one redial.
func TestConnectorManyReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dialer{}
		c := connector(t, d, linkConfig{})
		old, err := c.Get(t.Context())
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				c.ReportLost(old, errBoom)
				_, err := c.Wait(t.Context())
				assert.NoError(t, err)
				c.ReportLost(old, errBoom)
			})
		}
		wg.Wait()
		assert.Equal(t, 2, d.dials())
		conn, err := c.Get(t.Context())
		require.NoError(t, err)
		c.ReportLost(nil, errBoom)
		c.ReportLost(&link{}, errBoom)
		assert.Equal(t, resilience.ConnectionUp, c.State())
		assert.Zero(t, conn.closed.Load())
		assert.EqualValues(t, 1, old.closed.Load())
	})
}

func TestConnectorClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dialer{script: []func(context.Context) error{func(context.Context) error { time.Sleep(10 * time.Second); return nil }}}
		c := connector(t, d, linkConfig{})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
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
		require.NoError(t, c.Close(), "while it dials")
		require.NoError(t, c.Close())
		wg.Wait()
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
	synctest.Test(t, func(t *testing.T) {
		d := &dialer{script: []func(context.Context) error{refused}}
		c := connector(t, d, linkConfig{})
		require.NoError(t, c.Close(), "while it waits")
		time.Sleep(time.Hour)
		assert.Equal(t, 1, d.dials())
	})
}

// Close is called by Close functions and panics like anybody's.
func TestConnectorCloseFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Int32
		d := &dialer{}
		c := connector(t, d, linkConfig{Close: func(*link) error { closed.Add(1); panic("p") }})
		conn, err := c.Get(t.Context())
		require.NoError(t, err)
		c.ReportLost(conn, nil)
		_, err = c.Wait(t.Context())
		require.NoError(t, err)
		var p *resilience.PanicError
		assert.ErrorAs(t, c.Close(), &p)
		assert.EqualValues(t, 2, closed.Load())
		assert.Zero(t, conn.closed.Load())
	})
	c := resilience.NewConnector(func(context.Context) (int, error) { return 1, nil }, resilience.ConnectorConfig[int]{})
	_, err := c.Wait(t.Context())
	require.NoError(t, err)
	assert.NoError(t, c.Close(), "nothing to close")
}

func TestConnectorWaitObeysItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dialer{script: []func(context.Context) error{refused}}
		c := connector(t, d, linkConfig{})
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		begin := time.Now()
		_, err := c.Wait(ctx)
		// At 3.5s the fourth dial has failed, and the next comes after 4s more.
		assert.ErrorIs(t, err, resilience.CodeConnectionLost)
		assert.ErrorIs(t, err, errRefused)
		assert.Equal(t, 3500*time.Millisecond, time.Since(begin))
		hung := connector(t, &dialer{script: []func(context.Context) error{func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}}, linkConfig{})
		_, err = hung.Wait(ctx)
		assert.ErrorIs(t, err, resilience.CodeTimeout)
		assert.Equal(t, 7*time.Second, time.Since(begin))
		gone, leave := context.WithCancelCause(t.Context())
		leave(errBoom)
		_, err = c.Wait(gone)
		assert.ErrorIs(t, err, resilience.CodeCanceled)
		assert.ErrorIs(t, err, errBoom)
		_, err = c.Get(gone)
		assert.ErrorIs(t, err, resilience.CodeCanceled)
	})
}

// Observers and the log receive all changes in order, also if one of them panics.
func TestConnectorChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out := textLog(0)
		var panics, observed []resilience.ConnectionChange
		d := &dialer{script: []func(context.Context) error{refused, nil, refused}}
		c := connector(t, d, linkConfig{
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
		begin := time.Now()
		conn, err := c.Wait(t.Context())
		require.NoError(t, err)
		c.ReportLost(conn, errBoom)
		_, err = c.Wait(t.Context())
		require.Error(t, err)
		_ = c.Close()
		require.NoError(t, c.Flush(t.Context()))
		synctest.Wait()
		ms := time.Millisecond
		want := []resilience.ConnectionChange{
			{State: resilience.ConnectionDown, Time: begin, Attempts: 1, Err: errRefused, NextDial: 500 * ms},
			{State: resilience.ConnectionUp, Time: begin.Add(500 * ms), Attempts: 1},
			{State: resilience.ConnectionDown, Time: begin.Add(500 * ms), Err: errBoom, NextDial: 1000 * ms},
			{State: resilience.ConnectionDown, Time: begin.Add(1500 * ms), Attempts: 1, Err: errRefused, NextDial: 2000 * ms},
			{State: resilience.ConnectionExhausted, Time: begin.Add(3500 * ms), Attempts: 2, Err: errRefused},
			{State: resilience.ConnectionClosed, Time: begin.Add(3500 * ms), Attempts: 2, Err: panics[5].Err},
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

// With a guard: CONNECTION_LOST with the time of the next dial, and retried, for any tool,
// if that fits into the timeout.
func TestConnectorWithAGuard(t *testing.T) {
	for name, tc := range map[string]struct {
		timeout  time.Duration
		attempts int
		code     resilience.Code
		took     time.Duration
	}{
		"fits":    {time.Minute, 2, "", 4 * time.Second},
		"no room": {4 * time.Second, 1, resilience.CodeConnectionLost, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &dialer{script: []func(context.Context) error{refused, refused, refused, refused, nil}}
				c := connector(t, d, linkConfig{})
				time.Sleep(3500 * time.Millisecond) // the next dial, of the fifth, comes after 4s more
				synctest.Wait()
				require.Equal(t, 4, d.dials())
				d.mu.Lock()
				d.script = []func(context.Context) error{nil}
				d.mu.Unlock()
				g := newGuard(t, one(resilience.Tool{Effect: resilience.NonIdempotent, Timeout: tc.timeout}))
				r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					if resilience.Attempt(ctx) > 1 {
						synctest.Wait() // the dial takes no time, but a moment
					}
					conn, err := c.Get(ctx)
					if err != nil {
						return 0, err
					}
					return conn.id, nil
				})
				assert.Equal(t, tc.attempts, r.Attempts)
				assert.Equal(t, tc.took, r.Duration)
				if tc.code == "" {
					assert.Nil(t, r.Err)
					return
				}
				require.ErrorIs(t, r.Err, tc.code)
				assert.Equal(t, 4*time.Second, r.Err.RetryAfter)
				assert.Equal(t, "x", r.Err.Tool)
				assert.True(t, r.Err.Retryable, "nothing was done")
			})
		})
	}
}

// Loss during a call follows the tool's effect, as any other failure does.
func TestConnectorLossDuringACall(t *testing.T) {
	for effect, attempts := range map[resilience.Effect]int{resilience.ReadOnly: 2, resilience.NonIdempotent: 1} {
		synctest.Test(t, func(t *testing.T) {
			d := &dialer{}
			c := connector(t, d, linkConfig{})
			g := newGuard(t, one(resilience.Tool{Effect: effect}))
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				conn, err := c.Wait(ctx)
				if err != nil || resilience.Attempt(ctx) > 1 {
					return 0, err
				}
				c.ReportLost(conn, net.ErrClosed)
				return 0, net.ErrClosed
			})
			assert.Equal(t, attempts, r.Attempts)
			if attempts == 1 {
				assert.ErrorIs(t, r.Err, resilience.CodeConnectionLost)
				assert.False(t, r.Err.Retryable)
			}
		})
	}
}

func TestConnectorGetDoesNotAllocate(t *testing.T) {
	c := resilience.NewConnector(func(context.Context) (*link, error) { return &link{}, nil }, linkConfig{})
	defer c.Close()
	_, err := c.Wait(t.Context())
	require.NoError(t, err)
	ctx := t.Context()
	assert.Zero(t, testing.AllocsPerRun(100, func() { _, _ = c.Get(ctx) }))
}

func TestNewConnectorBadInput(t *testing.T) {
	dial := func(context.Context) (int, error) { return 0, nil }
	type config = resilience.ConnectorConfig[int]
	for want, cfg := range map[string]config{
		"DialTimeout is -1ns: it must not be negative (0 is the default)":     {DialTimeout: -1},
		"Stable is -1s: it must not be negative (0 is the default)":           {Stable: -time.Second},
		"MaxAttempts is -1: it must not be negative (0 is any number)":        {MaxAttempts: -1},
		"Backoff.Base is -1ns: it must not be negative (0 is the default)":    {Backoff: resilience.Backoff{Base: -1}},
		"Backoff.Max is 1s: it must not be under Base, 2s":                    {Backoff: resilience.Backoff{Base: 2 * time.Second, Max: time.Second}},
		"Backoff.Jitter is 9: it must be FullJitter, SmallJitter or NoJitter": {Backoff: resilience.Backoff{Jitter: 9}},
	} {
		assert.PanicsWithValue(t, "resilience: NewConnector: wrong ConnectorConfig: "+want, func() { resilience.NewConnector(dial, cfg) })
	}
	assert.PanicsWithValue(t, "resilience: NewConnector: nil dial", func() { resilience.NewConnector[int](nil, config{}) })
	assert.Equal(t, "exhausted", resilience.ConnectionExhausted.String())
	assert.Equal(t, "ConnectionState(9)", resilience.ConnectionState(9).String())
}

// A dial that ends in success just when the connector is closed.
func TestConnectorDialEndsWithClose(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			ends := make(chan struct{})
			d := &dialer{script: []func(context.Context) error{func(ctx context.Context) error {
				select {
				case <-ctx.Done():
				case <-ends:
				}
				return nil
			}}}
			c := connector(t, d, linkConfig{})
			go close(ends)
			_ = c.Close()
			synctest.Wait()
			require.Len(t, d.made, 1)
			assert.EqualValues(t, 1, d.made[0].closed.Load())
		})
	}
}
