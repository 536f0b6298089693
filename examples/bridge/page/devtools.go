package main

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/coder/websocket"
)

const path = "/devtools/page/1"

// newDevtools returns a handler that serves the DevTools of a browser with one page.
func newDevtools(s *site) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /json/list", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode([]map[string]string{{
			"type": "page", "url": s.url, "title": s.title, "webSocketDebuggerUrl": "ws://" + r.Host + path,
		}})
	})

	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return // Accept has answered the client
		}
		defer ws.CloseNow()
		serve(r.Context(), ws, s)
	})
	return mux
}

type request struct {
	ID     int64  `json:"id"`
	Method string `json:"method"`
	Params struct {
		Expression string `json:"expression"`
	} `json:"params"`
}

// serve answers the requests on a connection. It continues to read while the page is busy, so
// that pings are answered, as they are in a real browser.
func serve(ctx context.Context, ws *websocket.Conn, s *site) {
	ctx, cancel := context.WithCancel(ctx)
	requests := make(chan request, 64)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for r := range requests {
			if ctx.Err() != nil {
				continue // the client has left
			}
			answer, _ := json.Marshal(reply(r, s)) // strings and booleans can be marshaled
			if err := ws.Write(ctx, websocket.MessageText, answer); err != nil {
				cancel()
			}
		}
	}()
	defer func() {
		cancel()
		close(requests)
		<-answered
	}()

	for {
		_, data, err := ws.Read(ctx)
		if err != nil {
			return
		}
		var r request
		if err := json.Unmarshal(data, &r); err != nil {
			return
		}
		select {
		case requests <- r:
		case <-ctx.Done():
			return
		}
	}
}

// An object is a JSON object.
type object = map[string]any

// reply returns the answer to a request.
func reply(r request, s *site) object {
	if r.Method != "Runtime.evaluate" {
		return object{"id": r.ID, "error": object{"code": -32601, "message": "'" + r.Method + "' wasn't found"}}
	}

	value, thrown := s.evaluate(r.Params.Expression)
	if thrown != nil {
		exception := object{"type": "object", "subtype": "error", "description": thrown.Error()}
		details := object{"text": "Uncaught", "exception": exception}
		return object{"id": r.ID, "result": object{"result": exception, "exceptionDetails": details}}
	}
	return object{"id": r.ID, "result": object{"result": object{"value": value}}}
}

// unquote returns the value of a string literal.
func unquote(quoted string) (s string, err error) {
	err = json.Unmarshal([]byte(quoted), &s)
	return s, err
}
