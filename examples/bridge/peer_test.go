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

// A request is what a bridge sends.
type request struct {
	conn       int // the number of its connection, from 1
	id         int64
	expression string
}

// A script answers a request, or does what a browser shouldn't.
type script func(ws *websocket.Conn, r request)

// A peer takes the part of a browser, in this process.
type peer struct {
	*httptest.Server
	onRequest script
	onList    http.HandlerFunc                            // nil: a list with the one page
	onReady   script                                      // nil: the page is
	onConnect func(ws *websocket.Conn, n int) (deaf bool) // a deaf peer reads nothing, so it answers no ping either

	mu       sync.Mutex
	conns    int
	requests []request // but for those whether the page is ready
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
	n := p.conns
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
		if strings.HasPrefix(m.Params.Expression, "document.readyState") {
			if p.onReady != nil {
				p.onReady(ws, request{n, m.ID, m.Params.Expression})
				continue
			}
			send(ws, m.ID, value(true))
			if p.onConnect != nil && p.onConnect(ws, n) {
				<-r.Context().Done()
				return
			}
			continue
		}
		got := request{n, m.ID, m.Params.Expression}
		p.mu.Lock()
		p.requests = append(p.requests, got)
		p.mu.Unlock()
		p.onRequest(ws, got)
	}
}

func (p *peer) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns
}

func (p *peer) asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.requests)
}

type object = map[string]any

// value is the result that says that an expression has a value.
func value(v any) object { return object{"result": object{"value": v}} }

func thrown(description string) object {
	return object{
		"result":           object{"type": "object", "subtype": "error"},
		"exceptionDetails": object{"text": "Uncaught", "exception": object{"description": description}},
	}
}

func send(ws *websocket.Conn, id int64, result any) {
	sendRaw(ws, object{"id": id, "result": result})
}

func sendRaw(ws *websocket.Conn, v any) {
	text, ok := v.(string)
	if !ok {
		b, _ := json.Marshal(v) // it is made of what can be marshaled
		text = string(b)
	}
	_ = ws.Write(ctx, websocket.MessageText, []byte(text)) // the bridge may have left
}

func always(result any) script {
	return func(ws *websocket.Conn, r request) { send(ws, r.id, result) }
}
