package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
)

// A request is one that the bridge sent.
type request struct {
	conn       int // the number of its connection, counted from 1
	id         int64
	expression string
}

// A script answers a request, or does something else with the connection.
type script func(ws *websocket.Conn, r request)

// A peer takes the part of a browser, in this process.
type peer struct {
	*httptest.Server
	onRequest script
	onList    http.HandlerFunc // answers with the list of pages; nil means a list with the page
	onReady   script           // answers whether the page is ready; nil means that it is

	// onConnect is called once the peer has answered that the page is ready. A deaf peer then reads
	// nothing more, so it answers no pings either.
	onConnect func(ws *websocket.Conn, conn int) (deaf bool)

	mu       sync.Mutex
	conns    int
	requests []request // those that onRequest receives
}

func newPeer(t *testing.T, s script) *peer {
	p := &peer{onRequest: s}
	p.Server = httptest.NewServer(p)
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

func (p *peer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/json/list" && p.onList != nil:
		p.onList(w, r)
	case r.URL.Path == "/json/list":
		_ = json.NewEncoder(w).Encode([]map[string]string{
			{"type": "service_worker", "url": p.URL, "webSocketDebuggerUrl": "ws://127.0.0.1:1/"},
			{"type": "page", "url": "chrome://newtab/", "webSocketDebuggerUrl": "ws://127.0.0.1:1/"},
			{"type": "page", "url": p.URL, "webSocketDebuggerUrl": "ws://" + r.Host + "/page"},
		})
	default:
		ws, err := websocket.Accept(w, r, nil)
		if err == nil {
			p.serve(ws, r)
		}
	}
}

func (p *peer) serve(ws *websocket.Conn, r *http.Request) {
	defer ws.CloseNow()
	p.mu.Lock()
	p.conns++
	conn := p.conns
	p.mu.Unlock()

	for {
		_, data, err := ws.Read(r.Context())
		if err != nil {
			return
		}
		var m struct {
			ID     int64
			Params struct{ Expression string }
		}
		if err := json.Unmarshal(data, &m); err != nil {
			return
		}

		got := request{conn, m.ID, m.Params.Expression}
		switch {
		case !strings.HasPrefix(got.expression, "document.readyState"):
			p.mu.Lock()
			p.requests = append(p.requests, got)
			p.mu.Unlock()
			p.onRequest(ws, got)
		case p.onReady != nil:
			p.onReady(ws, got)
		default:
			send(ws, m.ID, value(true))
			if p.onConnect != nil && p.onConnect(ws, conn) {
				<-r.Context().Done()
				return
			}
		}
	}
}

// connections returns how many connections there have been.
func (p *peer) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns
}

// asked returns how many requests onRequest has received.
func (p *peer) asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.requests)
}

type object = map[string]any

// value returns the result of an expression with that value.
func value(v any) object { return object{"result": object{"value": v}} }

// thrown returns the result of an expression that threw.
func thrown(description string) object {
	return object{
		"result":           object{"type": "object", "subtype": "error"},
		"exceptionDetails": object{"text": "Uncaught", "exception": object{"description": description}},
	}
}

func send(ws *websocket.Conn, id int64, result any) {
	sendRaw(ws, object{"id": id, "result": result})
}

// sendRaw sends a string as it is, and anything else as JSON.
func sendRaw(ws *websocket.Conn, v any) {
	text, ok := v.(string)
	if !ok {
		b, _ := json.Marshal(v) // the tests only send what can be marshaled
		text = string(b)
	}
	_ = ws.Write(ctx, websocket.MessageText, []byte(text)) // the bridge may have left
}

// always answers every request with the same result.
func always(result any) script {
	return func(ws *websocket.Conn, r request) { send(ws, r.id, result) }
}

func drop(ws *websocket.Conn, _ request) { _ = ws.CloseNow() }
