package main

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A shop is the server of the page. It runs in this process, so it knows what a browser did before
// it was killed.
type shop struct {
	listener net.Listener
	server   *http.Server

	mu     sync.Mutex
	orders int
	held   *hold // nil if there is none
}

// A hold delays the response to a request, which still has its effect.
type hold struct {
	request  string        // method and path
	reached  chan struct{} // closed when the request has come
	released chan struct{} // closed by release
	release  func()
}

func openShop() (*shop, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}

	s := &shop{listener: listener}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.page)
	mux.HandleFunc("GET /text/orders", func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, r, strconv.Itoa(s.orderCount()))
	})
	mux.HandleFunc("GET /text/stock", func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, r, "7 left")
	})
	mux.HandleFunc("POST /click/buy", func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, r, strconv.Itoa(s.order()))
	})
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = s.server.Serve(listener) }() // until close
	return s, nil
}

func (s *shop) url() string { return "http://" + s.listener.Addr().String() + "/" }

func (s *shop) close() { _ = s.server.Close() }

func (s *shop) order() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders++
	return s.orders
}

func (s *shop) orderCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.orders
}

// hold delays the response to the next such request until the hold is released or the client has
// left.
func (s *shop) hold(request string) *hold {
	h := &hold{request: request, reached: make(chan struct{}), released: make(chan struct{})}
	h.release = sync.OnceFunc(func() { close(h.released) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = h
	return h
}

func (h *hold) isReached() bool {
	select {
	case <-h.reached:
		return true
	default:
		return false
	}
}

// answer sends the text, once no hold delays the response.
func (s *shop) answer(w http.ResponseWriter, r *http.Request, text string) {
	s.mu.Lock()
	h := s.held
	if h != nil && h.request == r.Method+" "+r.URL.Path {
		s.held = nil
	} else {
		h = nil
	}
	s.mu.Unlock()

	if h != nil {
		close(h.reached)
		select {
		case <-h.released:
		case <-r.Context().Done():
			return
		}
	}
	fmt.Fprint(w, text)
}

const pageHTML = `<!doctype html>
<title>Shop</title>
<p>Orders: <span id="orders">$ORDERS</span>, stock: <span id="stock"></span></p>
<button id="buy">Buy</button>
<script>
	const ask = (method, path) => {
		const request = new XMLHttpRequest()
		request.open(method, path, false)
		request.send()
		return request.responseText
	}
	const find = id => document.getElementById(id)
	find("buy").onclick = () => { find("orders").textContent = ask("POST", "/click/buy") }
	Object.defineProperty(find("stock"), "innerText", { get: () => ask("GET", "/text/stock") })
</script>
`

// page serves the page to a real browser. Its elements send the same requests as those of
// examples/bridge/page, and block the page until the shop answers.
func (s *shop) page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprint(w, strings.ReplaceAll(pageHTML, "$ORDERS", strconv.Itoa(s.orderCount())))
}
