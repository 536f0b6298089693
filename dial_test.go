package resilience_test

import (
	"context"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestConnectorBacksOffBetweenDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDialer(refused)
		newConnector(t, d, linkConfig{})

		time.Sleep(300 * time.Second)

		s := time.Second
		want := []time.Duration{s / 2, s / 2, s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s, 60 * s}
		assert.Equal(t, want, d.gaps())
	})
}

// A connection that drops as soon as it is up isn't dialed in a tight loop.
func TestConnectorRestartsTheBackoffAfterAStableConnection(t *testing.T) {
	const s = time.Second
	type times = []time.Duration
	for name, tc := range map[string]struct {
		stable      time.Duration
		lasts, gaps times
	}{
		"30s":     {30 * s, times{0, s, 29 * s, 0, 30 * s, 0, 0}, times{s / 2, s, 2 * s, 4 * s, s / 2, s / 2, s}},
		"default": {0, times{0, 59 * s, 60 * s, 0}, times{s / 2, s, s / 2, s / 2}},
	} {
		runInBubble(t, name, func(t *testing.T) {
			c := newConnector(t, newDialer(), linkConfig{Stable: tc.stable})
			var gaps []time.Duration
			for _, lasts := range tc.lasts {
				conn := mustWait(t, c)
				time.Sleep(lasts)
				lost := time.Now()
				conn.Lost(nil)
				mustWait(t, c)
				gaps = append(gaps, time.Since(lost))
			}
			assert.Equal(t, tc.gaps, gaps)
		})
	}
}

// asking returns a dial that fails, and whose server asks to wait.
func asking(d time.Duration) dialStep {
	return func(context.Context) error { return &resilience.Error{RetryAfter: d, Err: errBoom} }
}

func TestConnectorDialsAgainAfterABadDial(t *testing.T) {
	const ms = time.Millisecond
	exits := func(context.Context) error { runtime.Goexit(); return nil }
	for name, tc := range map[string]struct {
		dial dialStep
		next time.Duration // after the beginning
		want error
	}{
		"respects its context": {untilCanceled, 30500 * ms, context.DeadlineExceeded},
		"ignores its context":  {acceptedAfter(time.Hour), 30500 * ms, context.DeadlineExceeded},
		"fails":                {refused, 500 * ms, errRefused},
		"asks to wait":         {asking(time.Minute), time.Minute, errBoom},
		"asks to come at once": {asking(1), 500 * ms, errBoom},
		"asks for too long":    {asking(1000 * time.Hour), time.Hour, errBoom},
		"panics":               {func(context.Context) error { panic(errBoom) }, 500 * ms, errBoom},
		"calls Goexit":         {exits, 500 * ms, resilience.ErrGoexit},
	} {
		runInBubble(t, name, func(t *testing.T) {
			start := time.Now()
			d := newDialer(tc.dial, accepted)
			c := newConnector(t, d, linkConfig{})
			time.Sleep(tc.next - 1)
			_, err := c.Get(t.Context())
			assert.ErrorIs(t, err, tc.want)
			conn := mustWait(t, c)
			assert.Equal(t, tc.next, time.Since(start))

			time.Sleep(2 * time.Hour)
			assert.Same(t, conn, mustGet(t, c))
			for _, l := range d.links() {
				assert.Equal(t, l != conn.Value(), l.closed.Load() == 1, "what came too late is closed")
			}
		})
	}
}

func TestContextOfADialEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dialed context.Context
		var cause error
		c := newConnector(t, newDialer(
			func(ctx context.Context) error { <-ctx.Done(); cause = context.Cause(ctx); return cause },
			func(ctx context.Context) error { dialed = ctx; return nil },
		), linkConfig{Name: "browser", DialTimeout: time.Second})
		mustWait(t, c)

		assert.ErrorIs(t, dialed.Err(), context.Canceled)
		var e *resilience.Error
		require.ErrorAs(t, cause, &e)
		assert.Equal(t, resilience.CodeTimeout, e.Code)
		assert.Equal(t, "browser", e.Tool)
	})
}

// Functions that hang don't collect goroutines.
func TestConnectorBoundsFunctionsThatHang(t *testing.T) {
	for name, use := range map[string]func(cfg *linkConfig, d *dialer, hang func()){
		"dial": func(cfg *linkConfig, d *dialer, hang func()) {
			cfg.DialTimeout = time.Second
			d.script = []dialStep{func(context.Context) error { hang(); return nil }}
		},
		"Close": func(cfg *linkConfig, _ *dialer, hang func()) {
			cfg.Close = func(l *link) error { hang(); return l.Close() }
		},
		"Watch": func(cfg *linkConfig, _ *dialer, hang func()) {
			cfg.Watch = func(*link) error { hang(); return nil }
		},
		"Check": func(cfg *linkConfig, _ *dialer, hang func()) {
			cfg.Check = func(context.Context, *link) error { hang(); return nil }
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			var hanging atomic.Int64
			d, cfg := newDialer(), linkConfig{}
			use(&cfg, d, func() {
				assert.LessOrEqual(t, hanging.Add(1), int64(16))
				time.Sleep(time.Hour)
				hanging.Add(-1)
			})
			c := newConnector(t, d, cfg)
			drop := func(during time.Duration) {
				for until := time.Now().Add(during); time.Now().Before(until); time.Sleep(time.Second) {
					if conn, err := c.Get(t.Context()); err == nil {
						conn.Suspect(errBoom)
						conn.Lost(errBoom)
					}
				}
			}

			drop(50 * time.Minute)
			assert.Equal(t, 16, d.dials())
			_, err := c.Get(t.Context())
			assert.ErrorContains(t, requireLost(t, err).Err, "still hang")

			drop(2 * time.Hour)
			assert.Greater(t, d.dials(), 32, "the first have returned")

			_ = c.Close()
			time.Sleep(2 * time.Hour)
			for _, l := range d.links() {
				assert.EqualValues(t, 1, l.closed.Load())
			}
		})
	}
}

func TestConnectorWatchNoticesALoss(t *testing.T) {
	for name, tc := range map[string]struct {
		watch func() error
		cause error
	}{
		"with a reason":    {func() error { return errBoom }, errBoom},
		"without a reason": {func() error { return nil }, resilience.CodeConnectionLost},
		"panics":           {func() error { panic(errBoom) }, errBoom},
		"calls Goexit":     {func() error { runtime.Goexit(); return nil }, resilience.ErrGoexit},
	} {
		runInBubble(t, name, func(t *testing.T) {
			watched := make(chan *link, 10)
			c := newConnector(t, newDialer(), linkConfig{Watch: func(l *link) error {
				watched <- l
				time.Sleep(time.Minute)
				return tc.watch()
			}})
			first := mustGet(t, c)
			time.Sleep(time.Minute)
			synctest.Wait()
			_, err := c.Get(t.Context())
			require.ErrorIs(t, err, tc.cause)

			second := mustWait(t, c)
			second.Lost(nil)
			third := mustWait(t, c)
			time.Sleep(59 * time.Second) // the second Watch has returned, the third hasn't
			synctest.Wait()
			assert.Same(t, third, mustGet(t, c))
			for _, conn := range []*resilience.Conn[*link]{first, second, third} {
				assert.Same(t, conn.Value(), <-watched)
			}

			_ = c.Close()
			time.Sleep(time.Hour)
			assert.Empty(t, watched)
		})
	}
}

func TestSuspectConnectionIsChecked(t *testing.T) {
	const s = time.Second
	takes := func(d time.Duration, err error) dialStep {
		return func(context.Context) error { time.Sleep(d); return err }
	}
	for name, tc := range map[string]struct {
		check dialStep
		lost  time.Duration // after which the connection is lost; negative if it isn't
		cause error
	}{
		"works":                {takes(9*s, nil), -1, nil},
		"fails":                {takes(s, io.EOF), s, io.EOF},
		"respects its context": {untilCanceled, 10 * s, context.DeadlineExceeded},
		"ignores its context":  {takes(time.Hour, nil), 10 * s, context.DeadlineExceeded},
		"panics":               {func(context.Context) error { panic(io.EOF) }, 0, io.EOF},
		"calls Goexit":         {func(context.Context) error { runtime.Goexit(); return nil }, 0, resilience.ErrGoexit},
		"no Check":             {nil, 0, errBoom},
	} {
		runInBubble(t, name, func(t *testing.T) {
			var cfg linkConfig
			if tc.check != nil {
				cfg.Check = func(ctx context.Context, _ *link) error { return tc.check(ctx) }
			}
			c := newConnector(t, newDialer(), cfg)
			conn, start := mustGet(t, c), time.Now()
			conn.Suspect(errBoom)
			assert.Zero(t, time.Since(start), "Suspect returns at once")
			if tc.lost < 0 {
				time.Sleep(time.Hour)
				assert.Same(t, conn, mustGet(t, c))
				return
			}

			if tc.lost > 0 {
				time.Sleep(tc.lost - 1)
				assert.Same(t, conn, mustGet(t, c))
				time.Sleep(time.Nanosecond)
			}
			synctest.Wait()
			_, err := c.Get(t.Context())
			requireLost(t, err)
			assert.ErrorIs(t, err, tc.cause)
			assert.ErrorIs(t, err, errBoom)
			mustWait(t, c)
			time.Sleep(2 * time.Hour)
			assert.EqualValues(t, 1, conn.Value().closed.Load())
		})
	}
}

func TestSuspectConnectionHasOneCheckAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		checks := make(chan *link, 1000)
		c := newConnector(t, newDialer(), linkConfig{
			CheckTimeout: time.Minute,
			Check: func(ctx context.Context, l *link) error {
				checks <- l
				time.Sleep(30 * time.Second)
				return ctx.Err()
			},
		})
		conn := mustGet(t, c)
		for range 100 {
			conn.Suspect(nil)
		}
		time.Sleep(31 * time.Second)
		assert.Len(t, checks, 1)
		conn.Suspect(nil)
		synctest.Wait()
		assert.Len(t, checks, 2)

		conn.Lost(nil)
		next := mustWait(t, c)
		next.Suspect(nil)
		conn.Suspect(nil)
		synctest.Wait()
		assert.Len(t, checks, 3)
		time.Sleep(time.Hour)
		assert.Same(t, next, mustGet(t, c))
	})
}

// No function of the program runs under the lock, and none that panics stops the connector.
func TestConnectorCallsFunctionsWithoutItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *resilience.Connector[*link]
		assigned, calls := make(chan struct{}), atomic.Int64{}
		call := func() error { <-assigned; c.State(); c.Reconnect(); calls.Add(1); return errBoom }
		c = resilience.NewConnector(func(context.Context) (*link, error) {
			_ = call()
			return &link{}, nil
		}, linkConfig{
			Close:     func(*link) error { panic(call()) },
			Watch:     func(*link) error { time.Sleep(time.Minute); return call() },
			Check:     func(context.Context, *link) error { return call() },
			Observers: onChange(func(resilience.ConnectionChange) { _ = call() }),
		})
		close(assigned)
		mustWait(t, c).Suspect(errBoom)
		time.Sleep(time.Hour + time.Second) // a connection is lost at each full minute
		mustWait(t, c)
		assert.ErrorIs(t, c.Close(), errBoom)
		time.Sleep(time.Hour)
		assert.Greater(t, calls.Load(), int64(100))
	})
}
