package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/examples/bridge/devtools"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The agent receives CONNECTION_LOST, and the browser is reconnected.
func TestABrokenConnectionIsReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		answer script
		cause  error
	}{
		"dropped": {drop, io.ErrUnexpectedEOF},
		"closed": {func(ws *websocket.Conn, _ request) {
			_ = ws.Close(websocket.StatusGoingAway, "the tab was closed")
		}, nil},
		"garbage":   {func(ws *websocket.Conn, _ request) { sendRaw(ws, "<html>") }, nil},
		"odd id":    {func(ws *websocket.Conn, _ request) { sendRaw(ws, `{"id":"1"}`) }, nil},
		"no object": {func(ws *websocket.Conn, _ request) { sendRaw(ws, `[]`) }, nil},
		"huge": {func(ws *websocket.Conn, r request) {
			send(ws, r.id, value(strings.Repeat("x", 2<<20)))
		}, websocket.ErrMessageTooBig},
		"incomplete": {sendIncomplete, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, func(ws *websocket.Conn, r request) {
				if r.conn == 1 {
					tc.answer(ws, r)
				} else {
					send(ws, r.id, value("Shop"))
				}
			})
			b := newBridge(t, quick(p)).up()
			conn, err := b.browser.now(ctx)
			require.NoError(t, err)
			page := conn.Value()

			got := b.call("title", "")
			assert.Equal(t, resilience.CodeConnectionLost, got.Code)
			assert.True(t, got.Retryable)
			assert.Contains(t, got.Suggestion, "Ensure that the browser is running")

			assert.Error(t, page.Err())
			if tc.cause != nil {
				assert.ErrorIs(t, page.Err(), tc.cause)
			}

			assert.Equal(t, "Shop", b.up().call("title", "").Text)
			assert.Equal(t, 2, p.connections())
		})
	}
}

// sendIncomplete sends the beginning of a message and then drops the connection.
func sendIncomplete(ws *websocket.Conn, _ request) {
	w, err := ws.Writer(ctx, websocket.MessageText)
	if err == nil {
		_, _ = w.Write([]byte(strings.Repeat(" ", 10_000))) // more than is buffered
		_ = ws.CloseNow()
	}
}

func TestAReadLostInFlightIsRetried(t *testing.T) {
	p := newPeer(t, func(ws *websocket.Conn, r request) {
		if r.conn == 1 {
			drop(ws, r)
		} else {
			send(ws, r.id, value("7 left"))
		}
	})
	assert.Equal(t, "7 left", newBridge(t, quick(p)).call("text", "#stock").Text)
	assert.Equal(t, 2, p.asked())
}

func TestAClickLostInFlightIsNotRetried(t *testing.T) {
	p := newPeer(t, drop)
	got := newBridge(t, quick(p)).call("click", "#buy")
	assert.Equal(t, resilience.CodeConnectionLost, got.Code)
	assert.False(t, got.Retryable)
	assert.Positive(t, got.RetryAfter, "until the agent can check")
	assert.Contains(t, got.Suggestion, "It may have taken effect: check that in ")
	assert.Equal(t, 1, p.asked())
}

// However much time there is, a request that kills the browser isn't retried forever.
func TestADeadlyRequestIsRetriedThreeTimes(t *testing.T) {
	p := newPeer(t, drop)
	got := newBridge(t, quick(p)).call("text", "#deadly")
	assert.Equal(t, resilience.CodeRetryExhausted, got.Code)
	assert.True(t, got.Retryable, "later")
	assert.Equal(t, 4, p.asked())
}

// title doesn't wait for the browser, the other tools wait in vain, and all of them say when to
// call again.
func TestWithoutABrowserToolsSayWhenToCallAgain(t *testing.T) {
	for name, list := range map[string]http.HandlerFunc{
		"no page":    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "[]") },
		"no list":    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"no browser": func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) },
		"an error": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no", http.StatusInternalServerError)
		},
		"not a WebSocket": func(w http.ResponseWriter, r *http.Request) {
			_ = json.NewEncoder(w).Encode([]map[string]string{{
				"type": "page", "url": "http://" + r.Host, "webSocketDebuggerUrl": "ws://" + r.Host + "/json/list",
			}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, drop)
			p.onList = list
			s := quick(p)
			s.patience = 10 * time.Millisecond
			b := newBridge(t, s)
			for _, tool := range []string{"title", "text", "click"} {
				got := b.call(tool, "#x")
				assert.Equal(t, resilience.CodeConnectionLost, got.Code, tool)
				assert.True(t, got.Retryable, tool)
				assert.Equal(t, 1, got.RetryAfter, tool)
				assert.NotContains(t, got.Suggestion, "check", tool)
			}
			assert.Zero(t, p.connections())
		})
	}
}

func TestAConnectionIsUpOnceThePageIsReady(t *testing.T) {
	p := newPeer(t, always(value("Shop")))
	p.onReady = func(ws *websocket.Conn, r request) {
		switch r.conn {
		case 1:
			send(ws, r.id, value(false))
		case 2:
			drop(ws, r)
		case 3:
			send(ws, r.id, thrown("TypeError: there is no document"))
		default:
			send(ws, r.id, value(true))
		}
	}
	assert.Equal(t, "Shop", newBridge(t, quick(p)).up().call("title", "").Text)
	assert.Equal(t, 4, p.connections())
}

func TestAConnectionThatBreaksAtOnceIsReplacedWithoutACall(t *testing.T) {
	p := newPeer(t, always(value("Shop")))
	p.onConnect = func(ws *websocket.Conn, n int) bool {
		if n <= 20 {
			_ = ws.CloseNow()
		}
		return false
	}
	newBridge(t, quick(p))

	require.Eventually(t, func() bool { return p.connections() == 21 }, patience, time.Millisecond)
}

// Calls to a browser that doesn't react any more end with CONNECTION_LOST, before their timeout.
func TestABrowserThatAnswersNoPingLosesItsConnection(t *testing.T) {
	p := newPeer(t, always(value("Shop")))
	p.onConnect = func(*websocket.Conn, int) bool { return true }
	s := quick(p)
	s.page.Ping = 50 * time.Millisecond
	b := newBridge(t, s)
	conn, err := b.browser.connection.Wait(ctx) // this connection is lost after the first ping
	require.NoError(t, err)
	page := conn.Value()

	got := b.call("title", "")
	assert.Equal(t, resilience.CodeConnectionLost, got.Code)
	<-page.Done()
	assert.ErrorIs(t, page.Err(), context.DeadlineExceeded)
}

func TestAnAgentThatLeavesKeepsTheConnection(t *testing.T) {
	taken := make(chan int64, 1)
	p := newPeer(t, func(ws *websocket.Conn, r request) {
		if r.expression != "document.title" {
			taken <- r.id
			return
		}
		send(ws, <-taken, value("too late"))
		send(ws, r.id, value("Shop"))
	})
	b := newBridge(t, quick(p))

	leaving, leave := context.WithCancel(ctx)
	left := make(chan struct{})
	go func() {
		defer close(left)
		b.callIn(leaving, "text", "#slow")
	}()
	select {
	case id := <-taken:
		taken <- id
	case <-time.After(patience):
		t.Fatal("the page wasn't asked")
	}
	leave()
	<-left

	assert.Equal(t, "Shop", b.call("title", "").Text)
	assert.Equal(t, 1, p.connections())
}

func TestAPageThatHangsOpensTheBreaker(t *testing.T) {
	p := newPeer(t, func(*websocket.Conn, request) {})
	s := quick(p)
	s.timeout = 20 * time.Millisecond
	b := newBridge(t, s).up()

	for range 5 {
		assert.Equal(t, resilience.CodeTimeout, b.call("title", "").Code)
	}
	for _, tool := range []string{"title", "text", "click"} {
		got := b.call(tool, "#x")
		assert.Equal(t, resilience.CodeCircuitOpen, got.Code)
		assert.Positive(t, got.RetryAfter)
	}
	assert.Equal(t, 1, p.connections())
}

func TestAPageEndsOnce(t *testing.T) {
	p := newPeer(t, func(*websocket.Conn, request) {})
	page, err := devtools.Dial(ctx, quick(p).page)
	require.NoError(t, err)

	var calls sync.WaitGroup
	for range 50 {
		calls.Go(func() {
			var v any
			err := page.Evaluate(ctx, "1", &v)
			var lost *devtools.LostError
			assert.ErrorAs(t, err, &lost)
		})
	}
	require.Eventually(t, func() bool { return p.asked() > 0 }, patience, time.Millisecond)
	for range 10 {
		calls.Go(func() { assert.NoError(t, page.Close()) })
	}
	calls.Wait()
	<-page.Done()

	reason := page.Err()
	assert.Error(t, reason)
	assert.NoError(t, page.Close())
	assert.Equal(t, reason, page.Err())

	var v any
	var lost *devtools.LostError
	require.True(t, errors.As(page.Evaluate(ctx, "1", &v), &lost))
	assert.False(t, lost.Sent)
	requireNoGoroutines(t)
}
