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

// A connectorModel is a model of a connector that has no timers and no goroutines: tick makes
// the changes that time alone brings.
type connectorModel struct {
	maxAttempts         int // zero means any number
	dialTimeout, stable time.Duration
	backoff             resilience.Backoff

	state    resilience.ConnectionState
	dialling bool
	at       time.Time // since when it is up or dialling, or else the time of the next dial
	attempts int       // that have failed in a row
	delays   int       // since the last stable connection
	since    time.Time // when that was lost
	dials    int
	made     int // connections, numbered from 1
}

func (m *connectorModel) dial(at time.Time) {
	m.dialling, m.at = true, at
	m.dials++
}

func (m *connectorModel) down(at time.Time) {
	m.dialling = false
	if m.maxAttempts > 0 && m.attempts >= m.maxAttempts {
		m.state = resilience.ConnectionExhausted
		return
	}

	m.state = resilience.ConnectionDown
	m.at = at.Add(min(m.backoff.Delay(m.delays), max(at.Sub(m.since), m.backoff.Base)))
	m.delays++
}

func (m *connectorModel) answer(ok bool) {
	m.dialling = false
	if ok {
		m.made++
		m.state, m.at, m.attempts = resilience.ConnectionUp, time.Now(), 0
		return
	}

	m.attempts++
	m.down(time.Now())
}

// tick makes all changes that have become due since it was last called.
func (m *connectorModel) tick() {
	for m.state == resilience.ConnectionDown {
		due := m.at
		if m.dialling {
			due = due.Add(m.dialTimeout)
		}
		if due.After(time.Now()) {
			return
		}

		if m.dialling {
			m.attempts++
			m.down(due)
		} else {
			m.dial(due)
		}
	}
}

func (m *connectorModel) lost() {
	if time.Since(m.at) >= m.stable {
		m.delays, m.since = 0, time.Now()
	}
	m.down(time.Now())
}

func (m *connectorModel) reconnect() {
	if m.state != resilience.ConnectionDown && m.state != resilience.ConnectionExhausted {
		return
	}

	m.attempts, m.delays, m.since = 0, 0, time.Now()
	if !m.dialling {
		m.state = resilience.ConnectionDown
		m.dial(time.Now())
	}
}

// A backend answers each dial with the next verdict, whether it succeeds.
type backend struct {
	verdicts chan bool

	mu       sync.Mutex
	dials    int
	dialling int
	made     int         // connections, numbered from 1
	closed   map[int]int // how often each of them was closed
	check    error       // of a connection that is suspect
}

func newBackend() *backend {
	return &backend{verdicts: make(chan bool), closed: make(map[int]int)}
}

func (b *backend) dial(ctx context.Context) (int, error) {
	b.mu.Lock()
	b.dials++
	if b.dialling++; b.dialling > 1 {
		panic("two dials at a time")
	}
	b.mu.Unlock()

	defer func() {
		b.mu.Lock()
		b.dialling--
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

// A connectorTest is a connector, its model and its backend. Its methods are what rapid may do
// to them.
type connectorTest struct {
	model     *connectorModel
	connector *resilience.Connector[int]
	backend   *backend
	conns     map[int]*resilience.Conn[int] // that Get has returned, by their numbers
	notified  resilience.ConnectionState    // of which the observer was notified last; under backend.mu
}

func newConnectorTest(r *rapid.T) *connectorTest {
	seconds := func(name string, low, high int) time.Duration {
		return time.Duration(rapid.IntRange(low, high).Draw(r, name)) * time.Second
	}
	m := &connectorModel{
		state:       resilience.ConnectionDown,
		maxAttempts: rapid.SampledFrom([]int{0, 2, 4}).Draw(r, "max attempts"),
		dialTimeout: seconds("dial timeout", 5, 20),
		stable:      seconds("stable", 1, 10),
		since:       time.Now(),
		backoff:     resilience.Backoff{Base: time.Second, Max: 8 * time.Second, Jitter: resilience.NoJitter},
	}

	test := &connectorTest{model: m, backend: newBackend(), notified: resilience.ConnectionDown}
	test.conns = make(map[int]*resilience.Conn[int])
	test.connector = resilience.NewConnector(test.backend.dial, resilience.ConnectorConfig[int]{
		Backoff:     m.backoff,
		MaxAttempts: m.maxAttempts,
		DialTimeout: m.dialTimeout,
		Stable:      m.stable,
		Close:       test.backend.close,
		Check:       func(context.Context, int) error { return test.backend.check },
		Observers:   []resilience.Observer{{Connection: test.observe}},
	})
	m.dial(time.Now())
	return test
}

func (test *connectorTest) observe(e resilience.ConnectionChange) {
	test.backend.mu.Lock()
	defer test.backend.mu.Unlock()
	test.notified = e.State
}

// answer ends the current dial, if there is one.
func (test *connectorTest) answer(r *rapid.T) {
	if ok := rapid.IntRange(0, 2).Draw(r, "ok") > 0; test.model.dialling {
		test.backend.verdicts <- ok
		test.model.answer(ok)
	}
}

// lost reports a connection lost, or suspect, most often the current one.
func (test *connectorTest) lost(r *rapid.T) {
	m := test.model
	if m.made == 0 {
		return
	}
	n := m.made
	if rapid.IntRange(0, 3).Draw(r, "stale") == 0 {
		n = rapid.IntRange(1, m.made).Draw(r, "connection")
	}

	conn, lost := test.conns[n], true
	if rapid.Bool().Draw(r, "certain") {
		conn.Lost(errors.New("lost"))
		conn.Lost(nil)
	} else {
		lost, test.backend.check = false, nil
		if rapid.Bool().Draw(r, "broken") {
			lost, test.backend.check = true, errors.New("no answer")
		}
		conn.Suspect(errors.New("suspect"))
		synctest.Wait()
	}
	if lost && n == m.made && m.state == resilience.ConnectionUp {
		m.lost()
	}
}

func (test *connectorTest) sleep(r *rapid.T) {
	time.Sleep(time.Duration(rapid.IntRange(0, 20_000).Draw(r, "milliseconds")) * time.Millisecond)
}

func (test *connectorTest) reconnect(*rapid.T) {
	test.connector.Reconnect()
	test.model.reconnect()
}

// close rarely closes the connector, since nothing happens after that.
func (test *connectorTest) close(r *rapid.T) {
	if rapid.IntRange(0, 50).Draw(r, "really") == 50 {
		_ = test.connector.Close()
		test.model.state, test.model.dialling = resilience.ConnectionClosed, false
	}
}

// check compares everything that can be seen of the connector with the model.
func (test *connectorTest) check(r *rapid.T) {
	synctest.Wait()
	test.model.tick()

	test.backend.mu.Lock()
	defer test.backend.mu.Unlock()
	if err := errors.Join(test.compareConnections(), test.compareGet()); err != nil {
		r.Fatalf("%v\nmodel: %+v", err, *test.model)
	}
	if test.notified != test.model.state {
		r.Fatalf("the observer was last notified of %v, the state is %v", test.notified, test.model.state)
	}
}

// compareConnections compares the state, the dials and which connections are open.
// backend.mu must be held.
func (test *connectorTest) compareConnections() error {
	m, b, state := test.model, test.backend, test.connector.State()
	if state != m.state || b.dials != m.dials || b.made != m.made || (b.dialling == 1) != m.dialling {
		return fmt.Errorf("state %v, %d dials, %d of them under way, %d made", state, b.dials, b.dialling, b.made)
	}

	for conn := 1; conn <= b.made; conn++ {
		want := 1
		if m.state == resilience.ConnectionUp && conn == m.made {
			want = 0
		}
		if b.closed[conn] != want {
			return fmt.Errorf("connection %d was closed %d times", conn, b.closed[conn])
		}
	}
	return nil
}

// compareGet compares the result of Get.
func (test *connectorTest) compareGet() error {
	m := test.model
	conn, err := test.connector.Get(context.Background())
	if m.state == resilience.ConnectionUp {
		if err != nil || conn.Value() != m.made {
			return fmt.Errorf("Get: %v", err)
		}
		test.conns[m.made] = conn
		return nil
	}

	var e *resilience.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("Get: %v", err)
	}
	switch m.state {
	case resilience.ConnectionDown:
		want := 100 * time.Millisecond
		if !m.dialling {
			want = time.Until(m.at)
		}
		if e.Code != resilience.CodeConnectionLost || e.RetryAfter != want || !e.Retryable {
			return fmt.Errorf("Get: %v after %v, not %v", err, e.RetryAfter, want)
		}
	case resilience.ConnectionExhausted:
		if e.Code != resilience.CodeRetryExhausted {
			return fmt.Errorf("Get: %v", err)
		}
	case resilience.ConnectionClosed:
		if e.Code != resilience.CodeConnectionLost || e.Retryable {
			return fmt.Errorf("Get: %v", err)
		}
	}
	return nil
}

func TestConnectorBehavesLikeItsModel(t *testing.T) {
	checkInBubble(t, func(r *rapid.T) {
		test := newConnectorTest(r)
		defer test.connector.Close()

		r.Repeat(map[string]func(*rapid.T){
			"answer":    test.answer,
			"lost":      test.lost,
			"sleep":     test.sleep,
			"reconnect": test.reconnect,
			"close":     test.close,
			"":          test.check,
		})
	})
}
