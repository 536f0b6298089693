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
	answered  atomic.Bool // an answer has begun
	again     atomic.Bool // a request without a message has asked for a connection after that
	resumed   atomic.Bool // an answer has broken off, and is asked for again

	versions atomic.Int32 // how many requests say which protocol they speak, as those of the older transport for SSE never do
}

// watch returns a context with which net/http reports requests to r.
func (r *reach) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) {
			r.began.Store(true)
			r.again.Store(r.answered.Load())
		},
		GotConn:              func(httptrace.GotConnInfo) { r.connected.Store(true) },
		GotFirstResponseByte: func() { r.answered.Store(true) },
		WroteHeaderField: func(key string, _ []string) {
			switch {
			case strings.EqualFold(key, "Last-Event-ID"):
				r.resumed.Store(true)
			case strings.EqualFold(key, "Mcp-Protocol-Version"):
				r.versions.Add(1)
			case strings.EqualFold(key, "Content-Type"): // another message, or a redirect that is followed
				r.again.Store(false)
				r.resumed.Store(false)
			}
		},
	})
}

// isCutOff reports whether an answer to this attempt may have broken off. One to another ends all calls of the session, if
// the SDK has tried to resume it in vain; this attempt's would then have been asked for again, too.
func (r *reach) isCutOff(tried bool) bool { return !tried || r.again.Load() || !r.began.Load() }

// isNone reports whether certainly nothing was sent. A transport that reports no requests may have sent some.
func (r *reach) isNone() bool { return r.began.Load() && !r.connected.Load() }

// isStreamable reports whether the call has gone by streamable HTTP: there, the end of a connection is never EOF.
func (r *reach) isStreamable() bool { return r.versions.Load() > 0 }

// isLater reports whether a request of MCP has come before the last one, and may have had an effect.
func (r *reach) isLater() bool { return r.versions.Load() > 1 }
