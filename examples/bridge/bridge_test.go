package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"runtime"
	"strings"
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

// patience is how long a test waits for an event that must happen, on any machine.
const patience = 2 * time.Minute

// A bridge is connected to a peer on one side and to an agent on the other.
type bridge struct {
	t       *testing.T
	browser *browser
	session *mcp.ClientSession
}

// quick returns settings for tests that don't depend on time.
func quick(p *peer) settings {
	return settings{
		page:     devtools.Config{Browser: p.URL, Prefix: p.URL, Ping: time.Hour},
		backoff:  resilience.Backoff{Base: 5 * time.Millisecond, Max: 20 * time.Millisecond},
		timeout:  patience,
		patience: patience,
	}
}

func newBridge(t *testing.T, s settings) *bridge {
	log := slog.New(slog.DiscardHandler)
	b := &bridge{t: t, browser: connect(s, log)}
	guard, err := newGuard(s.timeout, log)
	require.NoError(t, err)

	serverSide, clientSide := mcp.NewInMemoryTransports()
	server, err := newServer(guard, b.browser).Connect(ctx, serverSide, nil)
	require.NoError(t, err)
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	b.session, err = client.Connect(ctx, clientSide, nil)
	require.NoError(t, err)

	t.Cleanup(func() {
		_ = b.session.Close()
		_ = server.Wait()
		_ = b.browser.Close()
		requireNoGoroutines(t)
	})
	return b
}

// up waits until the connection is up.
func (b *bridge) up() *bridge {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := b.browser.connection.Wait(ctx)
	require.NoError(b.t, err)
	return b
}

// An answer is what an agent reads. The code is empty for success.
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

// callIn calls a tool with a context of the agent's own. If that ends, the answer is only the
// message of the error.
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

// requireNoGoroutines waits until the bridge and its WebSockets have left no goroutine behind.
func requireNoGoroutines(t *testing.T) {
	var stacks string
	running := func() bool {
		buf := make([]byte, 1<<20)
		stacks = string(buf[:runtime.Stack(buf, true)])
		return strings.Contains(stacks, "/bridge/devtools.") || strings.Contains(stacks, "bridge.(*browser)") ||
			strings.Contains(stacks, "resilience.(*Connector")
	}

	for deadline := time.Now().Add(patience); running(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("there are goroutines left:\n%s", stacks)
		}
	}
}

func TestRunRejectsBadDurations(t *testing.T) {
	for name, change := range map[string]func(*settings){
		"no timeout":      func(s *settings) { s.timeout = 0 },
		"no patience":     func(s *settings) { s.patience = 0 },
		"negative ping":   func(s *settings) { s.page.Ping = -1 },
		"no backoff":      func(s *settings) { s.backoff.Base = 0 },
		"falling backoff": func(s *settings) { s.backoff.Max = s.backoff.Base - 1 },
	} {
		s := settings{
			page:     devtools.Config{Ping: time.Second},
			backoff:  resilience.Backoff{Base: time.Second, Max: time.Minute},
			timeout:  time.Minute,
			patience: time.Minute,
		}
		change(&s)
		assert.ErrorContains(t, run(ctx, s), "all durations must be positive", name)
	}
}

func TestToolsReturnWhatThePageAnswers(t *testing.T) {
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

// An odd answer of the browser's is no reason to drop the connection.
func TestOddAnswersKeepTheConnection(t *testing.T) {
	exception := func(description string) script { return always(thrown(description)) }
	for name, tc := range map[string]struct {
		answer  script
		code    resilience.Code
		message string // a part of it
		text    string
	}{
		"exception": {
			exception("TypeError: x is no function\n    at <anonymous>:1:34"),
			resilience.CodeValidation, "The page threw TypeError: x is no function", "",
		},
		"bare exception": {
			always(object{"exceptionDetails": object{"text": "Uncaught"}}),
			resilience.CodeValidation, "The page threw Uncaught", "",
		},
		"long exception": {exception(strings.Repeat("é", 1000)), resilience.CodeValidation, "é…", ""},
		"refusal": {func(ws *websocket.Conn, r request) {
			sendRaw(ws, object{"id": r.id, "error": object{"code": -32000, "message": "Target crashed"}})
		}, resilience.CodeToolFailed, "The browser refused: Target crashed", ""},
		"other type":      {always(value(5)), resilience.CodeToolFailed, "Tool 'title' failed", ""},
		"other structure": {always([]int{1}), resilience.CodeToolFailed, "Tool 'title' failed", ""},
		"no result": {func(ws *websocket.Conn, r request) {
			sendRaw(ws, object{"id": r.id})
		}, resilience.CodeToolFailed, "Tool 'title' failed", ""},
		"undefined": {always(object{"result": object{"type": "undefined"}}), "", "", ""},
		"other ids": {func(ws *websocket.Conn, r request) {
			sendRaw(ws, object{"method": "Page.loadEventFired", "params": object{}})
			send(ws, 0, value("none"))
			send(ws, -1, value("none"))
			send(ws, r.id+1, value("not asked yet"))
			send(ws, r.id, value("right"))
			send(ws, r.id, value("again"))
		}, "", "", "right"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, tc.answer)
			b := newBridge(t, quick(p)).up()
			for range 2 {
				got := b.call("title", "")
				assert.Equal(t, tc.code, got.Code)
				assert.Contains(t, got.Message, tc.message)
				assert.Less(t, len(got.Message), 400)
				assert.Equal(t, tc.text, got.Text)
			}
			assert.Equal(t, 1, p.connections())
		})
	}
}
