package resilience

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Transport returns a RoundTripper that passes requests and answers through base untouched (the Body of a request and
// of a good answer are wrapped, to see whether they break off), and reports what the backend says to the guarded call
// that the request's context belongs to, as [ReportBackend] does:
//
//	client := &http.Client{Transport: resilience.Transport(nil)}
//
// What it reads of an answer:
//
//   - An error of base that tells of a lost connection or a timeout is no answer, and neither is a header that
//     breaks off or is garbled. Any other error says nothing, such as one about a header that can't be sent, about a
//     host that doesn't exist, or of a Body of the request that can't be read to its end.
//   - The statuses from 500 (but for 501 and 505), 429, and 403 with a Retry-After or an exhausted rate
//     limit, mean trouble. The time to wait is that of Retry-After, in seconds or as a date, or until an
//     exhausted rate limit is reset, by the headers X-RateLimit-Reset, X-Rate-Limit-Reset or RateLimit-Reset (a
//     time since the epoch, or seconds) or RateLimit (its t).
//   - The statuses 408, 423 and 425 say nothing: the same request may be accepted later, and agents can bring them
//     about.
//   - The other statuses from 400 reject the request, as do 501 and 505.
//   - Any other answer is a good one, unless it breaks off, or hangs until the request's end, while its Body is read.
//
// A tool of any [Effect] whose error tells nothing is retried if its last request would have changed
// something and was refused: the connection was, or the status is 429, unless an Idempotency-Key lets net/http send the
// request again by itself. A tool that isn't idempotent is never retried if another request of the attempt may have
// changed something, unless it says by [MarkTransient] that none has: GET, HEAD, OPTIONS and TRACE change nothing,
// unless the answer is 101, and neither do requests that are answered with a status from 400 to 499, but for 408 and
// 499: the server has given these up, which it may have begun to serve.
//
// A server that passes on the token of each user gives each a breaker by [BreakerKey], or the rate limit of one would
// shut the tool for all.
//
// A request that wasn't made with the context of the call, or one derived from it, isn't seen. A nil base
// is http.DefaultTransport. The returned RoundTripper is safe for concurrent use if base is, and has the
// method CloseIdleConnections, which calls that of base, if it has one.
func Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport{base}
}

type transport struct{ base http.RoundTripper }

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if innermost(req.Context()) == nil {
		return t.base.RoundTrip(req)
	}

	ctx, safe := req.Context(), isSafe(req.Method)
	r := newRequest(ctx, !safe)
	sent := watch(req)
	res, err := t.base.RoundTrip(sent.Request)
	v := sent.verdict(res, err)
	switch {
	case v == nil:
	case safe:
		v.refused = false // it isn't what would change something
	case isReplayed(req):
		v.refused, v.noEffect = false, false // this may only be the last of several tries
	}
	r.end(v)
	switch {
	case res == nil || err != nil:
	case res.StatusCode == http.StatusSwitchingProtocols:
		newRequest(ctx, true) // what follows on the connection isn't seen
	case res.Body != nil && res.Body != http.NoBody && v.class == ClassNeutral:
		res.Body = &body{ReadCloser: res.Body, answers: sent, request: r}
	}
	return res, err
}

// CloseIdleConnections is what http.Client.CloseIdleConnections looks for.
func (t *transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// A body is that of an answer. Whether it breaks off is known only here: of a document that was stored in part, its
// reader says the same, unless that is net/http itself, which unpacks it.
type body struct {
	io.ReadCloser
	answers *outgoing
	request request
	silent  atomic.Bool // the tool has closed it, or it has been reported
}

// Read reports an answer that breaks off, as verdict does what there is no answer to, unless the tool has closed it.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && !b.silent.Swap(true) {
		if v := b.answers.verdict(nil, err); v != nil {
			v.silent, v.noEffect, v.refused = false, false, false
			b.request.end(v)
		}
	}
	return n, err
}

func (b *body) Close() error {
	b.silent.Store(true)
	return b.ReadCloser.Close()
}

// An outgoing request is one whose body is watched.
type outgoing struct {
	*http.Request
	broken atomic.Bool // reading its body has failed
}

// watch returns the request with a body that notes whether reading it fails: of a document of an agent's that is cut
// off, its reader may say the same as of an answer that is.
func watch(req *http.Request) *outgoing {
	o := &outgoing{Request: req}
	if req.Body == nil || req.Body == http.NoBody {
		return o
	}

	o.Request = req.WithContext(req.Context()) // a RoundTripper must not change the request
	o.Body = &watchedBody{req.Body, o}
	if req.GetBody != nil {
		o.GetBody = func() (io.ReadCloser, error) {
			b, err := req.GetBody()
			if err != nil || b == nil || b == http.NoBody {
				return b, err
			}
			return &watchedBody{b, o}, nil
		}
	}
	return o
}

type watchedBody struct {
	io.ReadCloser
	of *outgoing
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.of.broken.Store(true)
	}
	return n, err
}

// isSafe reports whether requests of the method change nothing (RFC 9110, section 9.2.1).
func isSafe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// isReplayed reports whether net/http sends a request again by itself, though it isn't safe, once a connection that it
// has used before is lost.
func isReplayed(req *http.Request) bool {
	_, key := req.Header["Idempotency-Key"]
	_, other := req.Header["X-Idempotency-Key"]
	return key || other
}

// verdict returns what the outcome of the request says, nil if that is nothing. Once its context has ended, the error
// may be the cause of that, which can be anything. One of its own body says nothing.
func (o *outgoing) verdict(res *http.Response, err error) *verdict {
	switch {
	case err == nil && res == nil:
		return nil
	case err == nil:
		return verdictOf(res)
	}

	ctx := o.Context()
	if end := ctx.Err(); end != nil {
		return readVerdict(end)
	}
	if at, ok := ctx.Deadline(); ok && time.Until(at) <= 0 {
		return readVerdict(context.DeadlineExceeded) // a timer of the http.Client's own was faster than that of ctx
	}
	if o.broken.Load() {
		return nil
	}

	failure := &url.Error{Err: err} // as an http.Client returns it: io.EOF means that there is no answer
	if breaksOff(failure) {
		failure.Err = io.EOF
	}
	v := readVerdict(failure)
	switch {
	case v != nil && v.code == CodeConnectionLost:
		v.silent = !factsOf(failure).surelyLost
		return v
	case v != nil && v.code == CodeTimeout:
		return v
	}
	return nil // it may be about the request, such as a header that can't be sent
}

// verdictOf returns what an answer says.
func verdictOf(res *http.Response) *verdict {
	after, limited := retryAfter(res.Header)
	s := signOfStatus(res.StatusCode)
	if res.StatusCode == http.StatusForbidden && limited {
		s = signTrouble
	}

	v := &verdict{class: ClassNeutral}
	v.noEffect = res.StatusCode >= 400 && res.StatusCode < 499 && res.StatusCode != http.StatusRequestTimeout // see Transport
	v.refused = res.StatusCode == http.StatusTooManyRequests
	switch s {
	case signTimeout:
		v.class, v.code, v.retryAfter = ClassTransient, CodeTimeout, after
	case signTrouble:
		v.class, v.retryAfter = ClassTransient, after
	case signRejected:
		v.class, v.code = ClassInvalid, CodeValidation
	case signSilent:
		v.class, v.silent = ClassInvalid, true
	}
	return v
}

// breaksOff reports whether err, with which a request has failed, means that the answer has broken off, whatever base
// has wrapped that in.
func breaksOff(err error) bool {
	f := factsOf(err)
	return !f.neutral && !f.said && !f.noEffect && f.has(isEOF|isUnexpectedEOF) && !f.has(isCanceled|isDeadlineExceeded)
}

// retryAfter returns how long the headers of an answer ask to wait, zero if they don't tell, and whether
// they ask to wait or say that a rate limit is exhausted.
func retryAfter(h http.Header) (after time.Duration, limited bool) {
	if after := h.Get("Retry-After"); after != "" {
		if d, ok := secondsOf(after); ok {
			return d, true
		}
		if at, err := http.ParseTime(after); err == nil {
			return until(at, h), true
		}
	}

	for _, prefix := range []string{"X-Ratelimit-", "Ratelimit-", "X-Rate-Limit-"} {
		if h.Get(prefix+"Remaining") != "0" {
			continue
		}
		d, _ := secondsOf(h.Get(prefix + "Reset"))
		if d > epoch {
			d = until(time.Unix(0, 0).Add(d), h)
		}
		return d, true
	}
	return rateLimit(strings.Join(h.Values("RateLimit"), ","))
}

// epoch tells a time since 1970 from a time to wait: no limit lasts for decades.
const epoch = 20 * 365 * 24 * time.Hour

// until returns how long it is until at, by the clock of the server if it tells.
func until(at time.Time, h http.Header) time.Duration {
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return max(at.Sub(now), 0)
}

// rateLimit reads the header RateLimit of draft-ietf-httpapi-ratelimit-headers, a list of policies such as
// "name";r=0;t=30, or, in older drafts, limit=10, remaining=0, reset=30. Of several policies that are
// exhausted, the one that lasts longest counts.
func rateLimit(header string) (after time.Duration, exhausted bool) {
	policies := strings.Split(header, ",")
	if strings.Contains(header, "remaining=") {
		policies = []string{strings.ReplaceAll(header, ",", ";")}
	}

	for _, policy := range policies {
		none, reset := false, time.Duration(0)
		for part := range strings.SplitSeq(policy, ";") {
			name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			switch name {
			case "r", "remaining":
				none = value == "0"
			case "t", "reset":
				reset, _ = secondsOf(value)
			}
		}
		if none {
			exhausted, after = true, max(after, reset)
		}
	}
	return after, exhausted
}

// secondsOf reads a number of seconds, which some servers write with a fraction.
func secondsOf(s string) (time.Duration, bool) {
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || !(f >= 0 && f < never.Seconds()) {
		return 0, false
	}
	return time.Duration(f * float64(time.Second)), true
}
