package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
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

func TestConnectorBacksOffBetweenDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDialer(refused)
		newConnector(t, d, linkConfig{})

		time.Sleep(300 * time.Second)

		s := time.Second
		want := []time.Duration{s / 2, s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s, 60 * s}
		assert.Equal(t, want, d.gaps())
	})
}

func TestConnectorBacksOffWithFullJitterByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []resilience.ConnectionChange
		c := resilience.NewConnector(newDialer(refused).dial, linkConfig{
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
		assert.Greater(t, len(distinct), 60)
	})
}

func TestConnectorRestartsTheBackoffAfterAStableConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConnector(t, newDialer(), linkConfig{Stable: 30 * time.Second})

		var gaps []time.Duration
		for _, lasts := range []time.Duration{0, time.Second, 29 * time.Second, 0, 30 * time.Second, 0, 0} {
			conn := mustWait(t, c)
			time.Sleep(lasts)
			lost := time.Now()
			c.ReportLost(conn, nil)
			mustWait(t, c)
			gaps = append(gaps, time.Since(lost))
		}

		s := time.Second
		assert.Equal(t, []time.Duration{s / 2, s, 2 * s, 4 * s, s / 2, s, 2 * s}, gaps)
	})
}

func TestConnectorStableIsAMinuteAndDialTimeout30sByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []resilience.ConnectionChange
		c := newConnector(t, newDialer(acceptedAfter(time.Hour), accepted), linkConfig{
			Observers: onChange(func(e resilience.ConnectionChange) { changes = append(changes, e) }),
		})
		start := time.Now()

		for _, lasts := range []time.Duration{59 * time.Second, time.Minute, 0} {
			conn := mustWait(t, c)
			time.Sleep(lasts)
			c.ReportLost(conn, nil)
		}
		synctest.Wait()

		assert.Equal(t, start.Add(30*time.Second), changes[0].Time)
		assert.ErrorIs(t, changes[0].Err, context.DeadlineExceeded)
		var delays []time.Duration
		for _, e := range changes {
			if e.State == resilience.ConnectionDown {
				delays = append(delays, e.NextDial)
				assert.Error(t, e.Err)
			}
		}
		s := time.Second
		assert.Equal(t, []time.Duration{s / 2, s, s / 2, s}, delays)

		_ = c.Close()
		time.Sleep(2 * time.Hour)
	})
}

func TestConnectorCountsFailedDialsInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConnector(t, newDialer(refused, accepted, refused, accepted), linkConfig{MaxAttempts: 2})
		for range 2 {
			c.ReportLost(mustWait(t, c), errBoom)
		}
		mustWait(t, c)
	})
}

func TestConnectorDialsAgainAfterABadDial(t *testing.T) {
	for name, bad := range map[string]dialStep{
		"respects its context": untilCanceled,
		"ignores its context":  acceptedAfter(time.Hour),
		"panics":               func(context.Context) error { panic(errBoom) },
		"calls Goexit":         func(context.Context) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDialer(bad, accepted)
				c := newConnector(t, d, linkConfig{DialTimeout: time.Second})
				_, err := c.Get(t.Context())
				assert.ErrorIs(t, err, resilience.CodeConnectionLost)

				start := time.Now()
				conn := mustWait(t, c)
				assert.LessOrEqual(t, time.Since(start), 1500*time.Millisecond)

				time.Sleep(2 * time.Hour)
				synctest.Wait()
				for _, l := range d.made {
					if l != conn {
						assert.EqualValues(t, 1, l.closed.Load(), "it came too late")
					}
				}
				assert.Zero(t, conn.closed.Load())
			})
		})
	}
}

func TestConnectorBoundsAbandonedDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDialer(acceptedAfter(24 * time.Hour))
		c := newConnector(t, d, linkConfig{DialTimeout: time.Second})

		time.Sleep(12 * time.Hour)
		assert.Equal(t, 4, d.dials())
		_, err := c.Get(t.Context())
		assert.ErrorContains(t, errors.Unwrap(err), "earlier dials still hang")

		time.Sleep(13 * time.Hour)
		assert.Equal(t, 8, d.dials(), "the first four have returned")
		time.Sleep(24 * time.Hour)
		assert.Equal(t, 12, d.dials())

		require.NoError(t, c.Close())
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		for _, l := range d.made {
			assert.EqualValues(t, 1, l.closed.Load())
		}
	})
}

// A connection that drops as soon as it is up would otherwise leave a goroutine with each dial.
func TestConnectorBoundsFunctionsThatHangForLostConnections(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg  func(hang func()) linkConfig
		want string
	}{
		"Close": {
			func(hang func()) linkConfig {
				return linkConfig{Close: func(l *link) error { hang(); return l.Close() }}
			},
			"too many lost connections are still being closed",
		},
		"Watch": {
			func(hang func()) linkConfig { return linkConfig{Watch: func(*link) error { hang(); return nil }} },
			"Watch still runs for too many lost connections",
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			var hanging atomic.Int64
			d := newDialer()
			c := newConnector(t, d, tc.cfg(func() {
				assert.LessOrEqual(t, hanging.Add(1), int64(16))
				time.Sleep(time.Hour)
				hanging.Add(-1)
			}))
			drop := func(during time.Duration) {
				for until := time.Now().Add(during); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
					if conn, err := c.Get(t.Context()); err == nil {
						c.ReportLost(conn, nil)
					}
				}
			}

			drop(50 * time.Minute)
			assert.Equal(t, 16, d.dials())
			_, err := c.Get(t.Context())
			assert.ErrorContains(t, errors.Unwrap(err), tc.want)

			drop(2 * time.Hour)
			assert.Greater(t, d.dials(), 32, "the first have returned")

			_ = c.Close()
			time.Sleep(2 * time.Hour)
			for _, l := range d.made {
				assert.EqualValues(t, 1, l.closed.Load())
			}
		})
	}
}

func TestConnectorEndsTheContextOfADialAndClosesNothingIfItFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended context.Context
		var closed atomic.Int32
		d := newDialer(
			func(context.Context) error { time.Sleep(time.Minute); return errBoom }, // abandoned
			func(ctx context.Context) error { ended = ctx; return errBoom },
			func(ctx context.Context) error { <-ctx.Done(); return errBoom }, // ended by Close
		)
		c := newConnector(t, d, linkConfig{
			DialTimeout: time.Second,
			Close:       func(*link) error { closed.Add(1); return nil },
		})

		time.Sleep(2500 * time.Millisecond) // dials start at 0s, 1.5s and 2.5s
		synctest.Wait()
		require.Equal(t, 3, d.dials())
		assert.ErrorIs(t, ended.Err(), context.Canceled)

		_ = c.Close()
		time.Sleep(time.Hour)
		assert.Zero(t, closed.Load())
	})
}

// What a dial returns with an error is no connection, whatever it is.
func TestConnectorIgnoresTheValueOfADialThatFailed(t *testing.T) {
	for name, value := range map[string]any{"a connection": &link{}, "what doesn't equal itself": []int{1}} {
		runInBubble(t, name, func(t *testing.T) {
			closed := 0
			c := resilience.NewConnector(func(context.Context) (any, error) { return value, errBoom },
				resilience.ConnectorConfig[any]{Close: func(any) error { closed++; return nil }})
			synctest.Wait()

			_, err := c.Get(t.Context())
			assert.ErrorIs(t, err, errBoom)
			_ = c.Close()
			synctest.Wait()
			assert.Zero(t, closed)
		})
	}
}

func TestConnectorTellsADialWhichConnectionHasExceededItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		newConnector(t, newDialer(func(ctx context.Context) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return cause
		}), linkConfig{Name: "browser", DialTimeout: time.Second, MaxAttempts: 1})
		time.Sleep(time.Second)
		synctest.Wait()

		var e *resilience.Error
		require.ErrorAs(t, cause, &e)
		assert.Equal(t, resilience.CodeTimeout, e.Code)
		assert.Equal(t, "browser", e.Tool)
	})
}

// Close sees to it that no dial follows, except for one that is about to begin, whose context has ended then.
func TestConnectorMakesNoDialAfterClose(t *testing.T) {
	const rounds = 100
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that the goroutine of the first dial usually begins after Close
	late := 0
	for range rounds {
		synctest.Test(t, func(t *testing.T) {
			var closed atomic.Bool
			c := resilience.NewConnector(func(ctx context.Context) (int, error) {
				if closed.Load() {
					late++
					assert.Error(t, ctx.Err())
				}
				return 0, errBoom
			}, resilience.ConnectorConfig[int]{})
			_ = c.Close()
			closed.Store(true)
			synctest.Wait()
		})
	}
	assert.Less(t, late, rounds/2)
}

func TestConnectorDialsOncePerLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDialer()
		c := newConnector(t, d, linkConfig{})
		old := mustGet(t, c)

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
		conn := mustGet(t, c)
		c.ReportLost(nil, errBoom)
		c.ReportLost(&link{}, errBoom)
		assert.Equal(t, resilience.ConnectionUp, c.State())
		assert.Zero(t, conn.closed.Load())
		assert.EqualValues(t, 1, old.closed.Load())
	})
}

// A goroutine that a dial has started may find the connection broken before the dial returns it.
func TestConnectorDialsAgainAfterALossDuringTheDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *resilience.Connector[*link]
		assigned := make(chan struct{})
		dials := 0
		c = resilience.NewConnector(func(context.Context) (*link, error) {
			<-assigned
			l := &link{id: dials}
			if dials++; dials == 1 {
				c.ReportLost(l, errBoom)
			}
			c.ReportLost(&link{}, errors.New("of another connection"))
			return l, nil
		}, linkConfig{Backoff: even})
		defer c.Close()
		close(assigned)
		synctest.Wait()

		_, err := c.Get(t.Context())
		require.ErrorIs(t, err, errBoom)
		assert.Equal(t, 1, mustWait(t, c).id)
		time.Sleep(time.Hour)
		assert.Equal(t, 2, dials)
	})
}

// A dial may return a connection again that was lost before.
func TestConnectorIgnoresWhatWasReportedBeforeTheDial(t *testing.T) {
	fails := func(context.Context) error { time.Sleep(time.Second); return errBoom }
	for name, tc := range map[string]struct {
		after time.Duration // the loss, after which the next dial begins in 500ms
		dials []dialStep
	}{
		"between dials":          {0, []dialStep{accepted, accepted}},
		"during an earlier dial": {time.Second, []dialStep{accepted, fails, accepted}},
	} {
		runInBubble(t, name, func(t *testing.T) {
			shared, d := &link{}, newDialer(tc.dials...)
			c := resilience.NewConnector(func(ctx context.Context) (*link, error) {
				_, err := d.dial(ctx)
				return shared, err
			}, linkConfig{Backoff: even})
			defer c.Close()
			c.ReportLost(mustWait(t, c), errBoom)

			time.Sleep(tc.after)
			c.ReportLost(shared, errBoom)

			assert.Same(t, shared, mustWait(t, c))
			assert.Equal(t, len(tc.dials), d.dials())
		})
	}
}

// Any number of other connections may be reported meanwhile. The last sixteen are remembered.
func TestConnectorBoundsTheLossesThatItRemembersDuringADial(t *testing.T) {
	for name, tc := range map[string]struct {
		reports, dialed int
		want            resilience.ConnectionState
	}{
		"among the last sixteen of 1000": {1000, 984, resilience.ConnectionDown},
		"earlier than those":             {1000, 983, resilience.ConnectionUp},
		"among the last sixteen of 999":  {999, 983, resilience.ConnectionDown},
	} {
		runInBubble(t, name, func(t *testing.T) {
			release := make(chan struct{})
			c := resilience.NewConnector(func(context.Context) (int, error) {
				<-release
				return tc.dialed, nil
			}, resilience.ConnectorConfig[int]{Backoff: even})
			defer c.Close()
			synctest.Wait()

			for conn := range tc.reports {
				c.ReportLost(conn, errBoom)
			}
			for range 1000 {
				c.ReportLost(tc.reports-1, errBoom) // by each call that used it
			}
			close(release)
			synctest.Wait()

			assert.Equal(t, tc.want, c.State())
		})
	}
}

func TestConnectorDialFailsIfItReturnsWhatDoesNotEqualItself(t *testing.T) {
	type holder struct{ value any }
	for name, bad := range map[string]any{
		"a slice":             []string{"x"},
		"a slice in a struct": holder{[]string{"x"}},
		"a NaN":               holder{math.NaN()},
	} {
		runInBubble(t, name, func(t *testing.T) {
			dials, closed := 0, 0
			c := resilience.NewConnector(func(context.Context) (any, error) {
				if dials++; dials == 1 {
					return bad, nil
				}
				return holder{1}, nil
			}, resilience.ConnectorConfig[any]{
				Backoff: even,
				Close:   func(any) error { closed++; return nil },
				Watch:   func(any) error { time.Sleep(time.Minute); return errBoom },
			})
			defer c.Close()

			c.ReportLost(bad, errBoom)
			synctest.Wait()
			_, err := c.Get(t.Context())
			assert.ErrorIs(t, err, resilience.CodeConnectionLost)
			want := fmt.Sprintf("resilience: the dial returned a %T that doesn't equal itself", bad)
			assert.EqualError(t, errors.Unwrap(err), want)
			assert.Equal(t, 1, closed)

			assert.Equal(t, holder{1}, mustWait(t, c))
			c.ReportLost(bad, errBoom)
			assert.Equal(t, resilience.ConnectionUp, c.State())
			time.Sleep(time.Minute)
			synctest.Wait()
			assert.Equal(t, resilience.ConnectionDown, c.State(), "Watch still notices a loss")
		})
	}
}

func TestConnectorWatchNoticesALoss(t *testing.T) {
	for name, tc := range map[string]struct {
		watch func() error
		cause error
	}{
		"with a reason":    {func() error { return errBoom }, errBoom},
		"without a reason": {func() error { return nil }, nil},
		"panics":           {func() error { panic(errBoom) }, errBoom},
		"calls Goexit":     {func() error { runtime.Goexit(); return nil }, resilience.ErrGoexit},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				watched := make(chan *link, 10)
				c := newConnector(t, newDialer(), linkConfig{Watch: func(l *link) error {
					watched <- l
					time.Sleep(time.Minute)
					return tc.watch()
				}})
				first := mustGet(t, c)
				assert.Same(t, first, <-watched)

				time.Sleep(time.Minute)
				synctest.Wait()
				_, err := c.Get(t.Context())
				require.ErrorIs(t, err, resilience.CodeConnectionLost)
				if tc.cause != nil {
					require.ErrorIs(t, err, tc.cause)
				}

				second := mustWait(t, c)
				assert.Same(t, second, <-watched)
				c.ReportLost(second, nil)
				third := mustWait(t, c)
				time.Sleep(59 * time.Second) // the second Watch has returned, the third hasn't
				synctest.Wait()
				assert.Same(t, third, mustGet(t, c))
				assert.Len(t, watched, 1)

				_ = c.Close()
				time.Sleep(time.Hour)
				assert.Len(t, watched, 1)
			})
		})
	}
}

func TestConnectorErrorNamesTheReasonOfTheLoss(t *testing.T) {
	closedTab := resilience.ConnectionLostError("the tab was closed")
	for name, tc := range map[string]struct {
		cause error
		want  string
	}{
		"no cause":          {nil, "Connection lost"},
		"unknown":           {errors.New("10.0.0.7"), "Connection lost"},
		"EOF":               {io.EOF, "Connection lost: connection closed by the other side"},
		"a message":         {closedTab, "Connection lost: the tab was closed"},
		"a wrapped message": {fmt.Errorf("page: %w", closedTab), "Connection lost: the tab was closed"},
		"another code":      {&resilience.Error{Message: "secret"}, "Connection lost"},
		"deadline":          {context.DeadlineExceeded, "Connection lost: network timeout"},
		"typed nil":         {(*typedNil)(nil), "Connection lost"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConnector(t, newDialer(), linkConfig{})
				c.ReportLost(mustGet(t, c), tc.cause)
				_, err := c.Get(t.Context())
				assert.Equal(t, tc.want, requireLost(t, err).Message)
			})
		})
	}
}

func TestConnectorErrorSaysThatTheFirstDialIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConnector(t, newDialer(acceptedAfter(time.Hour)), linkConfig{})
		_, err := c.Get(t.Context())
		assert.EqualError(t, err, "CONNECTION_LOST: Connection lost: not connected yet")
		_ = c.Close()
		time.Sleep(2 * time.Hour)
	})
}

type callingError struct{ f func() }

func (callingError) Error() string   { return "e" }
func (e callingError) Unwrap() error { e.f(); return nil }

func TestConnectorCallsMethodsOfErrorsWithoutItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConnector(t, newDialer(), linkConfig{})
		c.ReportLost(mustGet(t, c), callingError{func() { c.State() }})
		_, err := c.Get(t.Context())
		assert.ErrorIs(t, err, resilience.CodeConnectionLost)
	})
}

func TestConnectorClosesEachConnectionOnce(t *testing.T) {
	for range 10 {
		synctest.Test(t, func(t *testing.T) {
			d := newDialer()
			c := newConnector(t, d, linkConfig{Backoff: resilience.Backoff{Base: 1, Max: 1}})

			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					for range 300 {
						conn, err := c.Wait(t.Context())
						if !assert.NoError(t, err) {
							return
						}
						c.ReportLost(conn, nil)
						if i%2 == 0 {
							c.Reconnect() // a dial that races with the other reports, as timers can't in a bubble
						}
					}
				})
			}
			wg.Wait()
			_ = c.Close()
			synctest.Wait()

			for _, l := range d.made {
				require.EqualValues(t, 1, l.closed.Load())
			}
		})
	}
}

// Several dials may return the same connection, for example by singleflight.
func TestConnectorKeepsTheConnectionThatALateDialReturnsToo(t *testing.T) {
	const timeout, delay = time.Second, time.Second / 2
	for name, tc := range map[string]struct {
		late   time.Duration // when the first dial returns
		second dialStep
		closed int32 // how often the connection has been closed before Close
		down   bool
	}{
		"once it is current":            {late: time.Minute, second: accepted},
		"before the second dial begins": {late: timeout + delay/2, second: accepted, closed: 1},
		"before the second dial returns": {
			late:   timeout + delay + 1,
			second: acceptedAfter(delay),
		},
		"together with the second dial": {late: timeout + 2*delay, second: acceptedAfter(delay)},
		"before the second dial fails": {
			late:   timeout + delay + 1,
			second: func(context.Context) error { time.Sleep(delay); return errBoom },
			closed: 1, down: true,
		},
	} {
		for range 20 {
			runInBubble(t, name, func(t *testing.T) {
				shared, d := &link{}, newDialer(acceptedAfter(tc.late), tc.second, untilCanceled)
				c := resilience.NewConnector(func(ctx context.Context) (*link, error) {
					if _, err := d.dial(ctx); err != nil {
						return nil, err
					}
					return shared, nil
				}, linkConfig{DialTimeout: timeout, Backoff: even})

				time.Sleep(time.Hour)
				assert.Equal(t, tc.closed, shared.closed.Load())
				_, err := c.Get(t.Context())
				assert.Equal(t, tc.down, err != nil)
				_ = c.Close()
				synctest.Wait()
				if err == nil {
					assert.Equal(t, tc.closed+1, shared.closed.Load())
				}
			})
		}
	}
}

// Two abandoned dials that return the same connection don't close it twice while another one is under way.
func TestConnectorClosesWhatSeveralLateDialsReturnOnce(t *testing.T) {
	for name, last := range map[string]dialStep{
		"before a dial that hangs":   untilCanceled,
		"before a dial that panics":  func(context.Context) error { time.Sleep(4 * time.Second / 5); panic(errBoom) },
		"after a dial that succeeds": acceptedAfter(time.Second / 2),
	} {
		runInBubble(t, name, func(t *testing.T) {
			first, second := acceptedAfter(4200*time.Millisecond), acceptedAfter(2600*time.Millisecond)
			shared, d := &link{}, newDialer(first, second, last)
			c := resilience.NewConnector(func(ctx context.Context) (*link, error) {
				_, err := d.dial(ctx)
				return shared, err
			}, linkConfig{DialTimeout: time.Second, Backoff: even})

			time.Sleep(4750 * time.Millisecond)
			assert.EqualValues(t, 3, d.dials())
			_ = c.Close()
			time.Sleep(time.Hour)
			assert.EqualValues(t, 1, shared.closed.Load())
		})
	}
}

func TestConnectorClosesTheConnectionOfADialThatEndsDuringClose(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			ends := make(chan struct{})
			d := newDialer(func(ctx context.Context) error {
				select {
				case <-ctx.Done():
				case <-ends:
				}
				return nil
			})
			c := newConnector(t, d, linkConfig{})

			go close(ends)
			_ = c.Close()
			synctest.Wait()

			require.Len(t, d.made, 1)
			assert.EqualValues(t, 1, d.made[0].closed.Load())
		})
	}
}

func TestConnectorClosesTheConnectionOfALateDialBesideReconnectAndClose(t *testing.T) {
	for range 10_000 {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			d := newDialer(func(context.Context) error { <-release; return nil }, untilCanceled)
			c := newConnector(t, d, linkConfig{DialTimeout: time.Second})
			time.Sleep(1200 * time.Millisecond) // the next dial begins at 1.5s

			c.Reconnect()
			close(release)
			runtime.Gosched()
			_ = c.Close()
			synctest.Wait()

			require.Len(t, d.made, 1)
			require.EqualValues(t, 1, d.made[0].closed.Load())
		})
	}
}

func TestConnectorClosesTheConnectionOfADialThatCallsClose(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			var c *resilience.Connector[*link]
			assigned, l := make(chan struct{}), &link{}
			c = resilience.NewConnector(func(context.Context) (*link, error) {
				<-assigned
				_ = c.Close()
				return l, nil
			}, linkConfig{})
			close(assigned)
			synctest.Wait()

			require.EqualValues(t, 1, l.closed.Load())
		})
	}
}

func TestConnectorReportsADialThatCloseEndsAsNoFailure(t *testing.T) {
	for range 2000 {
		started := make(chan struct{})
		changes := make(chan resilience.ConnectionChange, 8)
		c := resilience.NewConnector(func(ctx context.Context) (int, error) {
			close(started)
			<-ctx.Done()
			return 0, ctx.Err()
		}, resilience.ConnectorConfig[int]{
			MaxAttempts: 1,
			Observers:   onChange(func(e resilience.ConnectionChange) { changes <- e }),
		})

		<-started
		_ = c.Close()

		require.Equal(t, resilience.ConnectionClosed, (<-changes).State)
	}
}

// A Wait that has returned leaves no channel of its bubble behind.
func TestConnectorOutlivesABubbleInWhichWaitReturnedAtOnce(t *testing.T) {
	exhausted := make(chan struct{})
	c := resilience.NewConnector(func(context.Context) (*link, error) { return nil, errBoom }, linkConfig{
		MaxAttempts: 1,
		Observers: []resilience.Observer{{Connection: func(e resilience.ConnectionChange) {
			if e.State == resilience.ConnectionExhausted {
				close(exhausted)
			}
		}}},
	})
	<-exhausted
	synctest.Test(t, func(t *testing.T) {
		_, err := c.Wait(t.Context())
		assert.ErrorIs(t, err, resilience.CodeRetryExhausted)
	})
	require.NoError(t, c.Close(), "which is a change")
}

// afterCalls returns a function that calls do, but for the first n times that it is called.
func afterCalls(n int64, do func()) func() {
	var calls atomic.Int64
	return func() {
		if calls.Add(1) > n {
			do()
		}
	}
}

// Whatever the methods of an error do that says why a connection is lost, the next one is dialed.
func TestConnectorSurvivesTheMethodsOfErrors(t *testing.T) {
	for name, fail := range map[string]func(t *testing.T, err error) *resilience.Connector[*link]{
		"of the dial": func(t *testing.T, err error) *resilience.Connector[*link] {
			return newConnector(t, newDialer(func(context.Context) error { return err }, accepted), linkConfig{})
		},
		"of Watch": func(t *testing.T, err error) *resilience.Connector[*link] {
			return newConnector(t, newDialer(), linkConfig{Watch: func(l *link) error {
				if l.id == 0 {
					return err
				}
				<-t.Context().Done()
				return nil
			}})
		},
		"that is reported": func(t *testing.T, err error) *resilience.Connector[*link] {
			c := newConnector(t, newDialer(), linkConfig{})
			conn, start := mustWait(t, c), time.Now()
			reported := make(chan bool)
			go func() {
				returned := false
				defer func() { reported <- returned }()
				c.ReportLost(conn, err)
				returned = true
			}()
			assert.True(t, <-reported, "the caller lives on")
			assert.LessOrEqual(t, time.Since(start), 200*time.Millisecond)
			return c
		},
	} {
		for does, do := range map[string]func(release <-chan struct{}){
			"blocks": func(release <-chan struct{}) { <-release },
			"exits":  func(<-chan struct{}) { runtime.Goexit() },
			"panics": func(<-chan struct{}) { panic(errBoom) },
		} {
			for earlier := range int64(3) {
				runInBubble(t, fmt.Sprintf("%s/%s/%d", name, does, earlier), func(t *testing.T) {
					release := make(chan struct{})
					defer close(release)
					methods := errorsThatCall(func() {})
					for method := range methods {
						err := errorsThatCall(afterCalls(earlier, func() { do(release) }))[method]
						c := fail(t, err)
						time.Sleep(time.Minute)
						synctest.Wait()
						_, got := c.Get(t.Context())
						assert.NoError(t, got, method)
						_ = c.Close()
					}
				})
			}
		}
		runInBubble(t, name+"/as nil", func(t *testing.T) {
			c := fail(t, asNilError{})
			time.Sleep(time.Minute)
			mustWait(t, c)
		})
	}
}

func TestConnectorSaysNothingOfAnErrorThatCanNotBeExamined(t *testing.T) {
	for name, unwrap := range map[string]func(release <-chan struct{}){
		"blocks": func(release <-chan struct{}) { <-release },
		"exits":  func(<-chan struct{}) { runtime.Goexit() },
	} {
		runInBubble(t, name, func(t *testing.T) {
			release := make(chan struct{})
			defer close(release)
			var lost []error
			c := newConnector(t, newDialer(accepted, untilCanceled), linkConfig{
				Observers: onChange(func(e resilience.ConnectionChange) { lost = append(lost, e.Err) }),
			})
			c.ReportLost(mustWait(t, c), unwrapError{func() { unwrap(release) }})

			_, err := c.Get(t.Context())
			assert.Equal(t, "Connection lost", requireLost(t, err).Message)
			synctest.Wait()
			require.Len(t, lost, 2)
			assert.ErrorContains(t, lost[1], "can't be examined")
		})
	}
}

// Examinations that hang don't collect goroutines, and what they can't tell no longer delays a report.
func TestConnectorBoundsTheExaminationsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var running atomic.Int64
		c := newConnector(t, newDialer(), linkConfig{})
		conn := mustWait(t, c)
		for range 100 {
			c.ReportLost(conn, unwrapError{func() {
				running.Add(1)
				<-release
			}})
		}
		assert.EqualValues(t, 64, running.Load())

		start := time.Now()
		c.ReportLost(conn, unwrapError{func() {}})
		assert.Zero(t, time.Since(start))

		close(release)
		synctest.Wait()
		conn = mustWait(t, c)
		c.ReportLost(conn, io.EOF)
		_, err := c.Get(t.Context())
		assert.ErrorIs(t, err, io.EOF)
	})
}
