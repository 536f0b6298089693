package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/examples/bridge/devtools"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var ctx = context.Background()

// soon is when something that is bound to happen has happened, on any machine.
const soon = 2 * time.Minute

// A bridge is one that is connected to a peer on one side and to an agent on the other.
type bridge struct {
	t       *testing.T
	browser *browser
	session *mcp.ClientSession
}

// quick are settings for tests of what doesn't depend on time.
func quick(p *peer) settings {
	return settings{
		page:     devtools.Config{Browser: p.URL, Prefix: p.URL, Ping: time.Hour},
		backoff:  resilience.Backoff{Base: 5 * time.Millisecond, Max: 20 * time.Millisecond},
		limit:    soon,
		patience: soon,
	}
}

func newBridge(t *testing.T, s settings) *bridge {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	b := &bridge{t: t, browser: connect(s, log)}
	guard, err := newGuard(s.limit, log)
	require.NoError(t, err)
	serverSide, clientSide := mcp.NewInMemoryTransports()
	server, err := newServer(guard, b.browser).Connect(ctx, serverSide, nil)
	require.NoError(t, err)
	b.session, err = mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil).Connect(ctx, clientSide, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = b.session.Close()
		_ = server.Wait()
		_ = b.browser.Close()
		noGoroutines(t)
	})
	return b
}

// up waits until there is a connection.
func (b *bridge) up() *bridge {
	limited, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	_, err := b.browser.connection.Wait(limited)
	require.NoError(b.t, err)
	return b
}

// An answer is what an agent reads.
type answer struct {
	Text       string
	Clicked    bool
	Code       resilience.Code
	Message    string
	Suggestion string
	Retryable  bool
	RetryAfter int
}

func (b *bridge) call(tool, selector string) answer { return b.callIn(ctx, tool, selector) }

func (b *bridge) callIn(ctx context.Context, tool, selector string) (got answer) {
	args := map[string]any{}
	if tool != "title" {
		args["selector"] = selector
	}
	res, err := b.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return answer{Message: err.Error()}
	}
	from := res.StructuredContent
	if res.IsError {
		from = res.Meta[resilience.MetaError]
	}
	text, err := json.Marshal(from)
	require.NoError(b.t, err)
	require.NoError(b.t, json.Unmarshal(text, &got))
	return got
}

// noGoroutines fails the test if one of the bridge's or of its WebSockets' is left.
func noGoroutines(t *testing.T) {
	var stacks string
	ours := func() bool {
		buf := make([]byte, 1<<20)
		stacks = string(buf[:runtime.Stack(buf, true)])
		return strings.Contains(stacks, "/bridge/devtools.") || strings.Contains(stacks, "bridge.(*browser)") ||
			strings.Contains(stacks, "resilience.(*Connector")
	}
	for deadline := time.Now().Add(soon); ours(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("there are goroutines left:\n%s", stacks)
		}
	}
}

func drop(ws *websocket.Conn, _ request) { _ = ws.CloseNow() }

func TestTools(t *testing.T) {
	p := newPeer(t, func(ws *websocket.Conn, r request) {
		switch {
		case r.expression == "document.title":
			send(ws, r.id, value("Shop"))
		case strings.Contains(r.expression, `"none"`):
			send(ws, r.id, value(nil))
		case strings.Contains(r.expression, "click"):
			send(ws, r.id, value(true))
		default:
			send(ws, r.id, value(r.expression))
		}
	})
	b := newBridge(t, quick(p))
	assert.True(t, b.call("click", "#buy").Clicked)
	assert.Equal(t, "Shop", b.call("title", "").Text)
	assert.Contains(t, b.call("text", `a[title="\"]`).Text, `(document.querySelector("a[title=\"\\\"]"))`)
	for _, tool := range []string{"text", "click"} {
		got := b.call(tool, "none")
		assert.Equal(t, resilience.CodeValidation, got.Code)
		assert.Equal(t, `The page has no element that matches "none"`, got.Message)
	}
}

// What a browser may answer that isn't what was asked for.
func TestOddAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		answer  script
		code    resilience.Code
		message string // a part of it
	}{
		"exception":      {always(thrown("TypeError: x is no function\n    at <anonymous>:1:34")), resilience.CodeValidation, "The page threw TypeError: x is no function"},
		"bare exception": {always(object{"exceptionDetails": object{"text": "Uncaught"}}), resilience.CodeValidation, "The page threw Uncaught"},
		"long exception": {always(thrown(strings.Repeat("é", 1000))), resilience.CodeValidation, "é…"},
		"refusal": {func(ws *websocket.Conn, r request) {
			sendRaw(ws, object{"id": r.id, "error": object{"code": -32000, "message": "Target crashed"}})
		}, resilience.CodeToolFailed, "The browser refused: Target crashed"},
		"other type":      {always(value(5)), resilience.CodeToolFailed, "Tool 'title' failed"},
		"other structure": {always([]int{1}), resilience.CodeToolFailed, "Tool 'title' failed"},
		"no result":       {func(ws *websocket.Conn, r request) { sendRaw(ws, object{"id": r.id}) }, resilience.CodeToolFailed, "Tool 'title' failed"},
		"undefined":       {always(object{"result": object{"type": "undefined"}}), "", ""},
		"other ids": {func(ws *websocket.Conn, r request) {
			sendRaw(ws, object{"method": "Page.loadEventFired", "params": object{}})
			send(ws, 0, value("none"))
			send(ws, -1, value("none"))
			send(ws, r.id+1, value("not asked yet"))
			send(ws, r.id, value("right"))
			send(ws, r.id, value("again"))
		}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, tc.answer)
			b := newBridge(t, quick(p)).up()
			for range 2 {
				got := b.call("title", "")
				assert.Equal(t, tc.code, got.Code)
				assert.Contains(t, got.Message, tc.message)
				assert.Less(t, len(got.Message), 400)
			}
			assert.Equal(t, 1, p.connections(), "none of this is a reason to leave")
		})
	}
}

// What no connection survives. The agent is told, and a new one is made.
func TestConnectionLost(t *testing.T) {
	for name, tc := range map[string]struct {
		answer script
		cause  error
	}{
		"dropped":    {drop, io.ErrUnexpectedEOF},
		"goodbye":    {func(ws *websocket.Conn, _ request) { _ = ws.Close(websocket.StatusGoingAway, "the tab was closed") }, nil},
		"garbage":    {func(ws *websocket.Conn, _ request) { sendRaw(ws, "<html>") }, nil},
		"odd id":     {func(ws *websocket.Conn, _ request) { sendRaw(ws, `{"id":"1"}`) }, nil},
		"no object":  {func(ws *websocket.Conn, _ request) { sendRaw(ws, `[]`) }, nil},
		"huge":       {func(ws *websocket.Conn, r request) { send(ws, r.id, value(strings.Repeat("x", 2<<20))) }, websocket.ErrMessageTooBig},
		"no end yet": {func(ws *websocket.Conn, r request) { half(ws) }, nil},
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
			page, err := b.browser.now(ctx)
			require.NoError(t, err)
			got := b.call("title", "")
			assert.Equal(t, resilience.CodeConnectionLost, got.Code)
			assert.True(t, got.Retryable)
			assert.Contains(t, got.Suggestion, "Ensure that the browser is running")
			assert.Error(t, page.Err())
			if tc.cause != nil {
				assert.ErrorIs(t, page.Err(), tc.cause)
			}
			assert.Equal(t, "Shop", b.up().call("title", "").Text, "it came back by itself")
			assert.Equal(t, 2, p.connections())
		})
	}
}

// half sends the beginning of a message and then hangs up.
func half(ws *websocket.Conn) {
	w, err := ws.Writer(ctx, websocket.MessageText)
	if err == nil {
		_, _ = w.Write([]byte(strings.Repeat(" ", 10_000))) // more than is buffered
		_ = ws.CloseNow()
	}
}

// What may be done twice is.
func TestReadLostInFlight(t *testing.T) {
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

func TestClickLostInFlight(t *testing.T) {
	p := newPeer(t, drop)
	got := newBridge(t, quick(p)).call("click", "#buy")
	assert.Equal(t, resilience.CodeConnectionLost, got.Code)
	assert.False(t, got.Retryable)
	assert.Zero(t, got.RetryAfter)
	assert.Contains(t, got.Suggestion, "check whether it took effect")
	assert.Equal(t, 1, p.asked())
}

// A request that kills the browser isn't repeated for as long as there is time.
func TestDeadlyRequest(t *testing.T) {
	p := newPeer(t, drop)
	got := newBridge(t, quick(p)).call("text", "#deadly")
	assert.Equal(t, resilience.CodeRetryExhausted, got.Code)
	assert.False(t, got.Retryable)
	assert.Equal(t, 4, p.asked())
}

// There is no browser: whoever doesn't wait hears at once, and whoever does when it has
// been in vain. Either is told when to come back.
func TestNoBrowser(t *testing.T) {
	for name, list := range map[string]http.HandlerFunc{
		"no page":    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "[]") },
		"no list":    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"an error":   func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) },
		"no browser": func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) },
		"not a WebSocket": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `[{"type":"page","url":"http://`+r.Host+`","webSocketDebuggerUrl":"ws://`+r.Host+`/json/list"}]`)
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

// What can't be worked with yet is no connection.
func TestPageIsNotReady(t *testing.T) {
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

// A connection that breaks before the connector has it is noticed without any call.
func TestLostAtOnce(t *testing.T) {
	p := newPeer(t, always(value("Shop")))
	p.onConnect = func(ws *websocket.Conn, n int) bool {
		if n <= 20 {
			_ = ws.CloseNow()
		}
		return false
	}
	newBridge(t, quick(p))
	require.Eventually(t, func() bool { return p.connections() == 21 }, soon, time.Millisecond)
}

// A browser that is there but doesn't react any more loses its connection, and the calls on
// it are told so rather than running into their limits.
func TestDeafBrowser(t *testing.T) {
	p := newPeer(t, always(value("Shop")))
	p.onConnect = func(*websocket.Conn, int) bool { return true }
	s := quick(p)
	s.page.Ping = 50 * time.Millisecond
	b := newBridge(t, s)
	page, err := b.browser.connection.Wait(ctx) // it is lost soon
	require.NoError(t, err)
	got := b.call("title", "")
	assert.Equal(t, resilience.CodeConnectionLost, got.Code)
	<-page.Done()
	assert.ErrorIs(t, page.Err(), context.DeadlineExceeded)
}

// A page that is busy is no reason to leave, nor is an agent that does.
func TestAgentLeaves(t *testing.T) {
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
	case <-time.After(soon):
		t.Fatal("the page wasn't asked")
	}
	leave()
	<-left
	assert.Equal(t, "Shop", b.call("title", "").Text)
	assert.Equal(t, 1, p.connections())
}

// Lost connections are the connector's business, however many.
func TestLossesOpenNoBreaker(t *testing.T) {
	p := newPeer(t, drop)
	b := newBridge(t, quick(p))
	for range 10 {
		assert.Equal(t, resilience.CodeConnectionLost, b.up().call("title", "").Code)
	}
}

// A page that hangs is the breaker's.
func TestHangsOpenTheBreaker(t *testing.T) {
	p := newPeer(t, func(*websocket.Conn, request) {})
	s := quick(p)
	s.limit = 20 * time.Millisecond
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

// Whatever happens to a connection happens once.
func TestPageEndsOnce(t *testing.T) {
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
	require.Eventually(t, func() bool { return p.asked() > 0 }, soon, time.Millisecond)
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
	noGoroutines(t)
}
