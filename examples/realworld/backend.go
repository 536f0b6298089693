package main

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// A behavior is what a backend does with each request.
type behavior struct {
	status  int // zero: none of the answers below
	html    bool
	headers func() map[string]string // nil: none
	empty   bool                     // 200, without any data

	hangs, breaks, refuses bool
}

var (
	well    = behavior{status: 200}
	empty   = behavior{status: 200, empty: true}
	hangs   = behavior{hangs: true}
	breaks  = behavior{breaks: true}
	refuses = behavior{refuses: true}
	badGate = behavior{status: 502, html: true}

	tooMany = behavior{status: 429, headers: func() map[string]string {
		return map[string]string{"Retry-After": strconv.Itoa(int(wait.Seconds()))}
	}}
	limited = behavior{status: 403, headers: func() map[string]string {
		return map[string]string{
			"X-RateLimit-Limit": "5000", "X-RateLimit-Remaining": "0",
			"X-RateLimit-Reset": strconv.FormatInt(time.Now().Add(wait).Unix(), 10),
		}
	}}
)

// wait is how long a backend asks to wait, if it does: longer than any agent waits for a call.
const wait = 2 * time.Minute

func answers(status int) behavior { return behavior{status: status} }

// An api writes the bodies of an HTTP API's answers.
type api interface {
	good(*http.Request) string
	empty() string
	bad(status int) string
}

// A backend is an HTTP server of an API.
type backend struct {
	api api
	behavior
}

// start makes the backend listen until stop is called. One that refuses connections has only had an
// address.
func (b *backend) start(n network) (stop func(), err error) {
	listener, err := n.listen()
	if err != nil {
		return nil, err
	}
	if b.refuses {
		return func() {}, listener.Close()
	}

	server := &http.Server{Handler: b}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // until it is closed
	}()
	return func() { _ = server.Close(); <-done }, nil
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // only then the server notices that the client leaves
	switch {
	case b.hangs:
		<-r.Context().Done()
		return
	case b.breaks:
		panic(http.ErrAbortHandler)
	}

	body, contentType := b.api.bad(b.status), "application/json"
	switch {
	case b.empty:
		body = b.api.empty()
	case b.status == 200:
		body = b.api.good(r)
	case b.html:
		body, contentType = "<html><body><h1>Bad Gateway</h1></body></html>", "text/html"
	}
	w.Header().Set("Content-Type", contentType)
	if b.headers != nil {
		for name, value := range b.headers() {
			w.Header().Set(name, value)
		}
	}
	w.WriteHeader(b.status)
	fmt.Fprintln(w, body)
}

// A counter counts the requests that a client library makes, including those that are refused.
type counter struct {
	http.Transport
	requests atomic.Int64
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	return c.Transport.RoundTrip(r)
}
