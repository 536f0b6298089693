package property

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"pgregory.net/rapid"
)

// A connection is a model of a connector, with the clock in its own hands: it knows when
// something happens, and never does anything by itself.
type connection struct {
	max                 int
	dialTimeout, stable time.Duration
	backoff             resilience.Backoff

	state            resilience.ConnectionState
	dialling, early  bool      // early: what is being dialled has been reported lost
	at               time.Time // up since, dialling since, or the next dial
	attempts, delays int
	dials, made      int
}

func (c *connection) dial(at time.Time) {
	c.dialling, c.early, c.at = true, false, at
	c.dials++
}

func (c *connection) down(at time.Time) {
	c.dialling = false
	if c.max > 0 && c.attempts >= c.max {
		c.state = resilience.ConnectionExhausted
		return
	}
	c.state = resilience.ConnectionDown
	c.at = at.Add(c.backoff.Delay(c.delays))
	c.delays++
}

func (c *connection) answer(ok bool) {
	c.dialling = false
	if ok {
		c.made++
	}
	if ok && !c.early {
		c.state, c.at, c.attempts = resilience.ConnectionUp, time.Now(), 0
		return
	}
	c.attempts++
	c.down(time.Now())
}

// tick lets happen what has been due since.
func (c *connection) tick() {
	for c.state == resilience.ConnectionDown {
		due := c.at
		if c.dialling {
			due = due.Add(c.dialTimeout)
		}
		if due.After(time.Now()) {
			return
		}
		if c.dialling {
			c.attempts++
			c.down(due)
		} else {
			c.dial(due)
		}
	}
}

func (c *connection) lost() {
	if time.Since(c.at) >= c.stable {
		c.delays = 0
	}
	c.down(time.Now())
}

func (c *connection) reconnect() {
	if c.state != resilience.ConnectionDown && c.state != resilience.ConnectionExhausted {
		return
	}
	c.attempts, c.delays = 0, 0
	if !c.dialling {
		c.state = resilience.ConnectionDown
		c.dial(time.Now())
	}
}

// A backend answers dials when it is told to.
type backend struct {
	verdicts chan bool

	mu     sync.Mutex
	dials  int
	under  int
	made   int
	closed map[int]int
}

func (b *backend) dial(ctx context.Context) (int, error) {
	b.mu.Lock()
	b.dials++
	if b.under++; b.under > 1 {
		panic("two dials at a time")
	}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.under--
		b.mu.Unlock()
	}()
	select {
	case ok := <-b.verdicts:
		if !ok {
			return 0, errors.New("refused")
		}
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.made++
	return b.made, nil
}

func (b *backend) close(conn int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed[conn]++
	return nil
}

func TestConnectorModel(t *testing.T) {
	bubble(t, func(r *rapid.T) {
		seconds := func(name string, low, high int) time.Duration {
			return time.Duration(rapid.IntRange(low, high).Draw(r, name)) * time.Second
		}
		m := &connection{
			max: rapid.SampledFrom([]int{0, 2, 4}).Draw(r, "max attempts"), dialTimeout: seconds("dial timeout", 5, 20), stable: seconds("stable", 1, 10),
			backoff: resilience.Backoff{Base: time.Second, Max: 8 * time.Second, Jitter: resilience.NoJitter},
		}
		b := &backend{verdicts: make(chan bool), closed: make(map[int]int)}
		last := resilience.ConnectionDown // that was told; under b.mu
		c := resilience.NewConnector(b.dial, resilience.ConnectorConfig[int]{
			Backoff: m.backoff, MaxAttempts: m.max, DialTimeout: m.dialTimeout, Stable: m.stable, Close: b.close,
			Observers: []resilience.Observer{{Connection: func(e resilience.ConnectionChange) {
				b.mu.Lock()
				defer b.mu.Unlock()
				last = e.State
			}}},
		})
		defer c.Close()
		m.dial(time.Now())
		r.Repeat(map[string]func(*rapid.T){
			"answer": func(r *rapid.T) {
				if ok := rapid.IntRange(0, 2).Draw(r, "ok") > 0; m.dialling {
					b.verdicts <- ok
					m.answer(ok)
				}
			},
			"lost": func(r *rapid.T) {
				conn := m.made // the current one, if there is one
				if rapid.IntRange(0, 3).Draw(r, "stale") == 0 {
					conn = rapid.IntRange(0, m.made+1).Draw(r, "connection")
				}
				for range rapid.IntRange(1, 3).Draw(r, "times") {
					c.ReportLost(conn, errors.New("lost"))
				}
				switch {
				case m.state == resilience.ConnectionUp && conn == m.made:
					m.lost()
				case m.dialling && conn == m.made+1:
					m.early = true
				}
			},
			"sleep": func(r *rapid.T) {
				time.Sleep(time.Duration(rapid.IntRange(0, 20_000).Draw(r, "milliseconds")) * time.Millisecond)
			},
			"reconnect": func(*rapid.T) { c.Reconnect(); m.reconnect() },
			"close": func(r *rapid.T) {
				if rapid.IntRange(0, 50).Draw(r, "really") == 50 {
					_ = c.Close()
					m.state, m.dialling = resilience.ConnectionClosed, false
				}
			},
			"": func(r *rapid.T) {
				synctest.Wait()
				m.tick()
				if err := agree(m, b, c); err != nil {
					r.Fatalf("%v\nmodel: %+v", err, *m)
				}
				b.mu.Lock()
				defer b.mu.Unlock()
				if last != m.state {
					r.Fatalf("the last change told is to %v: %v", last, m.state)
				}
			},
		})
	})
}

// agree compares all that can be seen with the model.
func agree(m *connection, b *backend, c *resilience.Connector[int]) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.State() != m.state || b.dials != m.dials || b.made != m.made || (b.under == 1) != m.dialling {
		return fmt.Errorf("state %v, %d dials, %d of them under way, %d made", c.State(), b.dials, b.under, b.made)
	}
	for conn := 1; conn <= b.made; conn++ {
		current := m.state == resilience.ConnectionUp && conn == m.made
		if want := map[bool]int{true: 0, false: 1}[current]; b.closed[conn] != want {
			return fmt.Errorf("connection %d was closed %d times", conn, b.closed[conn])
		}
	}
	conn, err := c.Get(context.Background())
	var e *resilience.Error
	errors.As(err, &e)
	switch m.state {
	case resilience.ConnectionUp:
		if err != nil || conn != m.made {
			return fmt.Errorf("Get: %v, %v", conn, err)
		}
	case resilience.ConnectionDown:
		want := 100 * time.Millisecond
		if !m.dialling {
			want = time.Until(m.at)
		}
		if e == nil || e.Code != resilience.CodeConnectionLost || e.RetryAfter != want || !e.Retryable {
			return fmt.Errorf("Get: %v after %v, not %v", err, e.RetryAfter, want)
		}
	case resilience.ConnectionExhausted:
		if e == nil || e.Code != resilience.CodeRetryExhausted {
			return fmt.Errorf("Get: %v", err)
		}
	case resilience.ConnectionClosed:
		if e == nil || e.Code != resilience.CodeConnectionLost || e.Retryable {
			return fmt.Errorf("Get: %v", err)
		}
	}
	return nil
}
