package resilience

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

// Transport returns a RoundTripper that passes requests and answers through base, or http.DefaultTransport if base is
// nil, untouched. It reports the backend's answers with the request's context, as [ReportBackend] does.
//
// Trouble is a lost connection, a timeout, an answer that breaks off, and a status from 500 except 501 and 505. A rate
// limit is a 429, or a 403 whose headers or body speak of one; the headers determine how long to wait. The statuses
// 408, 423 and 425 are ignored, and others from 400 are rejections.
//
// GET, HEAD, OPTIONS and TRACE change nothing, and neither do requests with an answer from 400 to 498 except 408. A
// tool of any [Effect] is retried if its last write never began: there was no connection, or a rate limit.
func Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport{base: base}
}

type transport struct {
	base  http.RoundTripper
	hosts table[string, bool] // that have answered: if one of them isn't found, that is trouble
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, safe := req.Context(), slices.Contains(safeMethods, req.Method)
	r := newRequest(ctx, !safe)
	if r.by == nil {
		return t.base.RoundTrip(req)
	}

	res, err := t.base.RoundTrip(req)
	var answer *meaning
	host := req.URL.Hostname()
	if answered := t.hosts.get(host); err != nil {
		answer = readFailure(ctx, err, answered)
	} else {
		answer = readAnswer(res)
		if !answered {
			t.hosts.add(host, func() bool { return true }, nil)
		}
	}
	if answer != nil && (safe || isReplayed(req)) { // it proves nothing about writes, or about the tries before it
		answer.noEffect = false
	}
	r.end(answer)

	switch {
	case err != nil:
	case res.StatusCode == http.StatusSwitchingProtocols:
		newRequest(ctx, true) // from here on, the connection isn't seen
	case res.Body != nil && res.Body != http.NoBody && answer.class == ClassNeutral:
		res.Body = &body{ReadCloser: res.Body, ctx: ctx, request: r}
	}
	return res, err
}

// CloseIdleConnections is the method that http.Client.CloseIdleConnections looks for.
func (t *transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// A body reports an answer that breaks off while it is read, unless the tool has closed it.
type body struct {
	io.ReadCloser
	ctx     context.Context
	request request
	silent  atomic.Bool // closed, or reported
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && !b.silent.Swap(true) {
		if m := readFailure(b.ctx, err, true); m != nil {
			m.noEffect = false
			b.request.end(m)
		}
	}
	return n, err
}

func (b *body) Close() error {
	b.silent.Store(true)
	return b.ReadCloser.Close()
}

// safeMethods change nothing (RFC 9110, section 9.2.1).
var safeMethods = []string{"", "GET", "HEAD", "OPTIONS", "TRACE"}

// isReplayed reports whether net/http itself may send an unsafe request twice, because a reused connection was lost.
func isReplayed(req *http.Request) bool {
	_, key := req.Header["Idempotency-Key"]
	_, other := req.Header["X-Idempotency-Key"]
	return key || other
}

// readFailure returns the meaning of the error of a request, nil if it is no answer. Once the context has ended, the
// error may be the context's cause, which can be anything. A host that has answered before exists.
func readFailure(ctx context.Context, err error, answered bool) *meaning {
	if ctx.Err() != nil {
		return readReport(ctx.Err())
	}
	if at, ok := ctx.Deadline(); ok && time.Until(at) <= 0 {
		return readReport(context.DeadlineExceeded) // a timer of the http.Client's own was faster than ctx
	}

	m := meaningOf(err)
	switch {
	case m.reason == hostNotFound && answered:
		m.trouble("", "")
	case m.weight == weightUnknown && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
		m.trouble(CodeConnectionLost, closedByPeer) // no answer
	case m.code == "" && !m.noEffect:
		return nil // it may be about the request, such as a header that can't be sent
	}
	return &m
}

// readAnswer returns the meaning of an answer. A good answer may exhaust a rate limit. That explains a failure of the
// tool if nothing else does.
func readAnswer(res *http.Response) *meaning {
	after, limited := retryAfter(res.Header)
	m := meaning{weight: weightUnknown, class: ClassNeutral}
	m.addStatus(res.StatusCode)
	if res.StatusCode == http.StatusForbidden && (limited || saysLimited(res)) {
		m.limit()
	}
	if m.ambiguous {
		m.class = ClassInvalid
	}
	if limited && res.StatusCode < 400 && res.Header.Get("Retry-After") == "" { // which is for polling there
		m.code, m.reason = CodeRateLimited, rateLimit
	}

	m.retryAfter = after
	m.noEffect = res.StatusCode >= 400 && res.StatusCode < 499 && res.StatusCode != http.StatusRequestTimeout
	return &m
}
