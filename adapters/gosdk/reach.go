package gosdk

import (
	"context"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
)

// A reach is how far the HTTP requests of one attempt have come. There may be several: the SDK makes one for
// each round of a call in which the server asks for something, and net/http follows redirects.
type reach struct {
	began     atomic.Bool // a request has asked for a connection
	connected atomic.Bool // a request has had a connection
	resumed   atomic.Bool // an answer has broken off, and is asked for again
}

// watch returns a context with which net/http reports requests to r.
func (r *reach) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { r.began.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { r.connected.Store(true) },
		WroteHeaderField: func(key string, _ []string) {
			if strings.EqualFold(key, "Last-Event-ID") {
				r.resumed.Store(true)
			}
		},
	})
}

// isNone reports whether certainly nothing was sent. A transport that reports no requests may have sent some.
func (r *reach) isNone() bool { return r.began.Load() && !r.connected.Load() }
