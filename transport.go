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

// Transport returns a RoundTripper that passes requests and answers through base untouched, and reports the backend's
// answers to the guarded call that the request's context belongs to, as [ReportBackend] does. Requests with another
// context aren't reported. A nil base is http.DefaultTransport. The RoundTripper is safe for concurrent use if base is.
//
//	client := &http.Client{Transport: resilience.Transport(nil)}
//
// Trouble is a lost connection, a timeout, an answer that breaks off, a status from 500 except 501 and 505, a 429,
// and a 403 with Retry-After or an exhausted rate limit. Their headers determine how long to wait. The statuses
// 408, 423 and 425 are ignored, and other statuses from 400 reject the request.
//
// GET, HEAD, OPTIONS and TRACE change nothing, and neither do requests with an answer from 400 to 498 except 408.
// A tool of any [Effect] is retried if its last request would have changed something and was refused, because the
// connection was refused or a rate limit is exhausted (a 429, or a 403 as above).
func Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport{base}
}

type transport struct{ base http.RoundTripper }

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, safe := req.Context(), slices.Contains(safeMethods, req.Method)
	r := newRequest(ctx, !safe)
	if r.by == nil {
		return t.base.RoundTrip(req)
	}

	res, err := t.base.RoundTrip(req)
	var v *verdict
	if err != nil {
		v = readFailure(ctx, err)
	} else {
		v = readAnswer(res)
	}
	if v != nil && (safe || isReplayed(req)) { // it proves nothing about writes, or about the tries before it
		v.noEffect = false
	}
	r.end(v)

	switch {
	case err != nil:
	case res.StatusCode == http.StatusSwitchingProtocols:
		newRequest(ctx, true) // from here on, the connection isn't seen
	case res.Body != nil && res.Body != http.NoBody && v.class == ClassNeutral:
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
		if v := readFailure(b.ctx, err); v != nil {
			v.noEffect = false
			b.request.end(v)
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

// readFailure returns the verdict on the error of a request, nil if it is no answer. Once the context has ended, the
// error may be the context's cause, which can be anything.
func readFailure(ctx context.Context, err error) *verdict {
	if ctx.Err() != nil {
		return readVerdict(ctx.Err())
	}
	if at, ok := ctx.Deadline(); ok && time.Until(at) <= 0 {
		return readVerdict(context.DeadlineExceeded) // a timer of the http.Client's own was faster than ctx
	}

	m := meaningOf(err)
	if m.weight == weightUnknown && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		m.trouble(closed) // no answer
	}
	if m.lost == "" {
		return nil // it may be about the request, such as a header that can't be sent
	}
	return m.verdict()
}

// readAnswer returns the verdict on an answer.
func readAnswer(res *http.Response) *verdict {
	after, limited := retryAfter(res.Header)
	m := meaning{weight: weightUnknown, class: ClassNeutral}
	m.addStatus(res.StatusCode)
	switch {
	case res.StatusCode == http.StatusForbidden && limited, m.weight == weightTrouble:
		m.trouble("")
		m.retryAfter = after
	case m.silent:
		m.class = ClassInvalid
	}

	v := m.verdict()
	v.noEffect = res.StatusCode >= 400 && res.StatusCode < 499 && res.StatusCode != http.StatusRequestTimeout
	return v
}
