package main

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/coder/websocket"
)

const path = "/devtools/page/1"

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
			return // it has told the client
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

// serve reads on while the page is busy, so that pings are answered: as in a browser, it
// isn't the page that does that.
func serve(ctx context.Context, ws *websocket.Conn, s *site) {
	ctx, cancel := context.WithCancel(ctx)
	requests := make(chan request, 64)
	worker := make(chan struct{})
	go func() {
		defer close(worker)
		for r := range requests {
			if ctx.Err() != nil {
				continue // nobody would read the answer
			}
			answer, _ := json.Marshal(reply(r, s)) // it is made of strings and booleans
			if err := ws.Write(ctx, websocket.MessageText, answer); err != nil {
				cancel()
			}
		}
	}()
	defer func() {
		cancel()
		close(requests)
		<-worker
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

// An object is what the protocol calls an object: JSON.
type object = map[string]any

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

func unquote(quoted string) (s string, err error) {
	err = json.Unmarshal([]byte(quoted), &s)
	return s, err
}
