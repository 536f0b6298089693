package resilience_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// errOwn is a tool's error that doesn't show whose fault the failure is.
var errOwn = errors.New("something went wrong")

// errDial is the error of a connection that was refused, so that no request was sent.
var errDial = &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}

// roundTrips answers requests without a network.
type roundTrips func(*http.Request) (*http.Response, error)

func (f roundTrips) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// answering returns a RoundTripper that answers with a status and headers, given in pairs.
func answering(status int, headers ...string) http.RoundTripper {
	return roundTrips(func(req *http.Request) (*http.Response, error) {
		res := &http.Response{StatusCode: status, Header: make(http.Header), Body: http.NoBody, Request: req}
		for pair := range slices.Chunk(headers, 2) {
			res.Header.Add(pair[0], pair[1])
		}
		return res, nil
	})
}

// broken returns a RoundTripper that fails.
func broken(err error) http.RoundTripper {
	return roundTrips(func(*http.Request) (*http.Response, error) { return nil, err })
}

// clientOf returns a client whose requests are answered without a network, through Transport.
func clientOf(via roundTrips) *http.Client { return &http.Client{Transport: resilience.Transport(via)} }

// unanswered waits for the end of the request.
func unanswered(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// sending returns a tool that sends a request and fails with errOwn, whatever the answer is.
func sending(method string, via http.RoundTripper) toolFunc {
	client := &http.Client{Transport: resilience.Transport(via)}
	return func(ctx context.Context) (int, error) {
		if res, err := send(ctx, client, method, "http://backend.example/x"); err == nil {
			res.Body.Close()
		}
		return 0, errOwn
	}
}

// send sends a request. That of a POST has a body.
func send(ctx context.Context, client *http.Client, method, url string) (*http.Response, error) {
	var body io.Reader
	if method == "POST" {
		body = strings.NewReader("{}")
	}
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, err
	}
	return client.Do(req)
}

// after returns a tool that does something first, and then fails.
func after(first toolFunc, err error) toolFunc {
	return func(ctx context.Context) (int, error) {
		_, _ = first(ctx)
		return 0, err
	}
}

// runNonIdempotent calls a tool that isn't repeated unless it certainly had no effect.
func runNonIdempotent(t *testing.T, tool toolFunc) resilience.Result[int] {
	t.Helper()
	return resilience.Run(t.Context(), guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent}), "x", tool)
}

// runBehindAdapter calls a tool once, as an adapter does. It returns the error and the failures of the breaker.
func runBehindAdapter(t *testing.T, tool toolFunc) (*resilience.Error, int) {
	t.Helper()
	g := guardWith(t, once)
	r := resilience.Run(t.Context(), g, "x", tool, behindAdapter)
	require.NotNil(t, r.Err)
	return r.Err, g.Breaker("x").Failures()
}

func TestTransportTellsWhoseFaultAFailureIs(t *testing.T) {
	const read, write = resilience.ReadOnly, resilience.NonIdempotent
	const left, reset = "X-RateLimit-Remaining", "X-RateLimit-Reset"
	type want struct {
		code       resilience.Code
		attempts   int
		counted    bool
		retryAfter time.Duration
	}
	failed := want{resilience.CodeToolFailed, 1, true, 0}
	limited := want{resilience.CodeRateLimited, 1, false, 0}
	minute := want{resilience.CodeRateLimited, 1, false, time.Minute}
	second := want{resilience.CodeRateLimited, 4, false, time.Second}
	later := want{resilience.CodeToolFailed, 1, true, 7 * time.Second}
	lost := want{resilience.CodeConnectionLost, 1, true, 0}
	timeout := want{resilience.CodeTimeout, 1, true, 0}
	exhausted := want{resilience.CodeRetryExhausted, 4, true, 0}
	rejected := want{resilience.CodeValidation, 1, false, 0}
	own := want{resilience.CodeToolFailed, 1, false, 0}
	noHost, noAnswer := &net.DNSError{Err: "no such host", IsNotFound: true}, &net.DNSError{Err: "server misbehaving"}

	type request struct {
		effect resilience.Effect
		method string
		via    http.RoundTripper
		want   want
	}
	requests := map[string]request{
		"423 to a write":                {write, "POST", answering(423), own},
		"429 to a write":                {write, "POST", answering(429), limited},
		"a rate limit for a write":      {write, "POST", answering(403, left, "0"), limited},
		"429 with a delay":              {read, "GET", answering(429, "Retry-After", "60"), minute},
		"429 to a write, with a delay":  {write, "POST", answering(429, "Retry-After", "60"), minute},
		"429 with a short delay":        {write, "POST", answering(429, "Retry-After", "1"), second},
		"a limit that is exhausted now": {read, "GET", answering(200, left, "0", reset, "60"), minute},
		"404, the last before a limit":  {read, "GET", answering(404, "X-RateLimit-Remaining", "0"), rejected},
		"a job that was accepted":       {read, "GET", answering(202, "Retry-After", "60"), own},
		"a limit that isn't":            {read, "GET", answering(200, left, "1", reset, "60"), own},
		"500 to a write":                {write, "POST", answering(500), failed},
		"503 to a write, with a delay":  {write, "POST", answering(503, "Retry-After", "7"), later},
		"no answer":                     {read, "GET", broken(io.ErrUnexpectedEOF), exhausted},
		"no answer to a write":          {write, "POST", broken(io.ErrUnexpectedEOF), lost},
		"closed, to a write":            {write, "POST", broken(io.EOF), lost},
		"closed, wrapped by the base":   {read, "GET", broken(fmt.Errorf("x: %w", io.EOF)), exhausted},
		"no answer to a write, wrapped": {write, "POST", broken(fmt.Errorf("x: %w", io.ErrUnexpectedEOF)), lost},
		"refused":                       {write, "POST", broken(errDial), exhausted},
		"a dial that breaks off":        {write, "DELETE", broken(&net.OpError{Op: "dial", Err: io.EOF}), exhausted},
		"no such host":                  {write, "POST", broken(&net.OpError{Op: "dial", Err: noHost}), own},
		"a lookup without an answer":    {write, "POST", broken(&net.OpError{Op: "dial", Err: noAnswer}), exhausted},
		"a timeout of the client":       {write, "POST", broken(resilience.TimeoutError("y", time.Second)), timeout},
		"a header that can't be sent":   {read, "GET", broken(errors.New("invalid header field value")), own},
		"an error that is marked":       {read, "GET", broken(resilience.MarkInvalid(io.EOF)), own},
		"an error with a status":        {read, "GET", broken(statusError(404)), own},
		"the request's own end":         {read, "GET", broken(context.Canceled), own},
	}
	for status, want := range map[int]want{
		200: own, 408: own,
		400: rejected, 401: rejected, 403: rejected, 404: rejected, 422: rejected, 501: rejected, 505: rejected,
		429: limited, 500: exhausted, 502: exhausted, 503: exhausted, 504: exhausted,
	} {
		requests[fmt.Sprint(status)] = request{read, "GET", answering(status), want}
	}

	for name, tc := range requests {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Effect: tc.effect})
			r := resilience.Run(t.Context(), g, "x", sending(tc.method, tc.via), behindAdapter)

			got := want{r.Err.Code, r.Attempts, g.Health()[0].ConsecutiveFailures == 1, r.Err.RetryAfter}
			assert.Equal(t, tc.want, got)
			assert.ErrorIs(t, r.Err, errOwn)
			assert.Equal(t, tc.want.counted || tc.want.code == resilience.CodeRateLimited, r.Err.HasGuidance())
		})
	}
}

// GitHub's secondary limits show nowhere but in the body, which the tool reads as it is.
func TestTransportReadsTheBodyOfA403(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for text, want := range map[string]resilience.Code{
		`{"message": "You have exceeded a secondary Rate Limit."}`: resilience.CodeRateLimited,
		`{"message": "Resource not accessible"}`:                   resilience.CodeValidation,
		long + "rate limit":                                        resilience.CodeValidation,
		"":                                                         resilience.CodeValidation,
	} {
		client := clientOf(func(req *http.Request) (*http.Response, error) {
			res := &http.Response{StatusCode: 403, Request: req}
			if text != "" { // a RoundTripper of a test may leave the body out
				res.Body = io.NopCloser(strings.NewReader(text))
			}
			return res, nil
		})
		r := runNonIdempotent(t, func(ctx context.Context) (int, error) {
			res, err := send(ctx, client, "POST", "http://x")
			require.NoError(t, err)
			body, err := io.ReadAll(res.Body)
			assert.NoError(t, err)
			assert.Equal(t, text, string(body))
			return 0, errOwn
		})
		assert.Equal(t, want, r.Err.Code)
		assert.Equal(t, want == resilience.CodeRateLimited, r.Err.Retryable)
	}
}

// A container that is stopped has no name any more. A name that was never known may be an agent's mistake.
func TestTransportKnowsHostsThatHaveAnswered(t *testing.T) {
	noHost := &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", IsNotFound: true}}
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		client := clientOf(func(req *http.Request) (*http.Response, error) {
			if down.Load() {
				return nil, noHost
			}
			return answering(200).RoundTrip(req)
		})
		g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
		run := func(url string) resilience.Result[int] {
			return resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				_, err := send(ctx, client, "POST", url)
				return 0, err
			}, behindAdapter)
		}

		require.Nil(t, run("http://backend:80/x").Err)
		down.Store(true)
		assert.Equal(t, 1, run("http://typo/x").Attempts)
		assert.Zero(t, g.Breaker("x").Failures())
		r := run("http://backend:81/y")
		assert.Equal(t, 4, r.Attempts)
		assert.Equal(t, "Tool 'x' failed after 4 attempts: host not found", r.Err.Message)
		assert.Equal(t, 1, g.Breaker("x").Failures())
	})
}

// A client that retries by itself hides why until the timeout.
func TestTimeoutNamesTheLastAttempt(t *testing.T) {
	for name, tc := range map[string]struct {
		via       http.RoundTripper
		message   string
		retryable bool
	}{
		"refused": {broken(errDial), "; the last attempt: connection refused", true},
		"lost":    {broken(io.EOF), "; the last attempt: connection closed by the other side", false},
		"500":     {answering(500), "", false},
	} {
		runInBubble(t, name, func(t *testing.T) {
			client := &http.Client{Transport: resilience.Transport(tc.via)}
			r := runNonIdempotent(t, func(ctx context.Context) (int, error) {
				for ctx.Err() == nil {
					_, _ = send(ctx, client, "POST", "http://x")
					time.Sleep(7 * time.Second)
				}
				return 0, ctx.Err()
			})
			assert.Equal(t, resilience.CodeTimeout, r.Err.Code)
			assert.Equal(t, "Tool 'x' exceeded timeout of 60s"+tc.message, r.Err.Message)
			assert.Equal(t, tc.retryable, r.Err.Retryable)
			time.Sleep(time.Minute) // the tool notices its end late
		})
	}
}

func TestTransportReadsHowLongToWait(t *testing.T) {
	date := func(d time.Duration) string {
		return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(d).Format(http.TimeFormat) // when bubbles begin
	}
	const seconds30, rejected = 30 * time.Second, -1
	for _, tc := range []struct {
		want    time.Duration
		status  int
		headers []string
	}{
		{seconds30, 403, []string{"Retry-After", "30"}},
		{time.Hour, 429, []string{"Retry-After", date(time.Hour)}},
		{rejected, 403, []string{"Retry-After", "soon"}},
		{rejected, 403, []string{"Age", "0"}},
		{time.Hour, 429, []string{"Retry-After", strings.Replace(date(time.Hour), "GMT", "+0000", 1)}},
		{seconds30, 429, []string{"Retry-After", "946684830"}},
		{seconds30, 429, []string{"Retry-After", "946684830000"}},
		{0, 429, []string{"Retry-After", "90000"}}, // more than a day
		{0, 429, []string{"Retry-After", "-5"}},
		{0, 429, []string{"Retry-After", "1e300"}},
		{seconds30, 429, []string{"Retry-After", "soon", "RateLimit", `"a";r=0;t=30`}},
		{seconds30, 403, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "946684830"}},
		{seconds30, 403, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "946684830000"}},
		{seconds30, 403, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "2000-01-01T00:00:30Z"}},
		{time.Minute, 429, []string{"X-RateLimit-Remaining-Requests", "0", "X-RateLimit-Reset-Requests", "1m0s"}},
		{rejected, 403, []string{"X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "946684830"}},
		{seconds30, 429, []string{"RateLimit-Remaining", "0", "RateLimit-Reset", "30"}},
		{seconds30, 429, []string{"X-Rate-Limit-Remaining", "0", "X-Rate-Limit-Reset", "30"}},
		{seconds30, 429, []string{"RateLimit", "limit=9, remaining=0, reset=30"}},
		{time.Minute, 429, []string{"RateLimit", `"burst";r=0;t=30, "hour";r=0;t=60, "daily";r=9;t=3600`}},
		{seconds30, 403, []string{"RateLimit", `"a";r=5;t=1`, "RateLimit", `"b";r=0;t=30`}},
	} {
		runInBubble(t, fmt.Sprint(tc.status, tc.headers), func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly, Retry: &resilience.Retry{MaxRetries: -1}})
			r := resilience.Run(t.Context(), g, "x", sending("GET", answering(tc.status, tc.headers...)))
			assert.Equal(t, tc.want == rejected, r.Err.Code == resilience.CodeValidation)
			assert.Equal(t, max(tc.want, 0), r.Err.RetryAfter)
		})
	}
}

// A server or a proxy that dies may have begun its answer.
func TestAnswersThatBreakOffAreTheBackends(t *testing.T) {
	for name, answer := range map[string]string{
		"nothing":            "",
		"a part of the line": "HTTP/1.1 200 O",
		"a part of a header": "HTTP/1.1 200 OK\r\nX: y\r\n",
		"a first answer":     "HTTP/1.1 100 Continue\r\n\r\n",
		"a part of the body": "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"items\": [1, 2",
		"a part of a chunk":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadAll(r.Body) // or the connection would be reset
				conn, _, err := http.NewResponseController(w).Hijack()
				if assert.NoError(t, err) {
					_, _ = io.WriteString(conn, answer)
					_ = conn.Close()
				}
			}))
			defer server.Close()
			client := &http.Client{Transport: resilience.Transport(server.Client().Transport)}

			e, failures := runBehindAdapter(t, func(ctx context.Context) (int, error) {
				res, err := send(ctx, client, "POST", server.URL)
				if err == nil {
					_, err = io.ReadAll(res.Body)
					res.Body.Close()
				}
				return 0, fmt.Errorf("search: %v", err)
			})
			assert.Equal(t, resilience.CodeConnectionLost, e.Code)
			assert.Equal(t, "Connection lost: connection closed by the other side", e.Message)
			assert.Equal(t, 1, failures)
		})
	}
}

// A document that was stored in part, or is itself an argument, reads like an answer that breaks off. Only the
// connection shows the difference.
func TestOnlyAnAnswerThatBreaksOffIsTheBackendsFault(t *testing.T) {
	const part = `{"items": [1, 2`
	ends := map[string]error{"/whole": io.EOF, "/hanging": context.DeadlineExceeded}
	client := clientOf(func(req *http.Request) (*http.Response, error) {
		res := &http.Response{StatusCode: 200, Request: req}
		if req.URL.Path == "/mistaken" {
			res.StatusCode = 404
		}
		end := cmp.Or(ends[req.URL.Path], io.ErrUnexpectedEOF)
		res.Body = io.NopCloser(io.MultiReader(strings.NewReader(part), iotest.ErrReader(end)))
		return res, nil
	})
	decode := func(r io.Reader) error { return json.NewDecoder(r).Decode(new(any)) }

	type getter func(path string) io.ReadCloser
	for name, tc := range map[string]struct {
		tool    func(get getter) error
		code    resilience.Code
		counted bool
	}{
		"the answer breaks off":       {func(get getter) error { return decode(get("/broken")) }, lost, true},
		"the answer hangs":            {func(get getter) error { return decode(get("/hanging")) }, timedOut, true},
		"the document breaks off":     {func(get getter) error { return decode(get("/whole")) }, failed, false},
		"a rejection that breaks off": {func(get getter) error { return decode(get("/mistaken")) }, invalid, false},
		"an argument breaks off": {func(get getter) error {
			get("/whole").Close()
			return decode(strings.NewReader(part))
		}, failed, false},
		"the tool doesn't read on": {func(get getter) error {
			body := get("/broken")
			body.Close()
			return decode(body)
		}, failed, false},
		"another answer is complete": {func(get getter) error {
			err := decode(get("/broken"))
			get("/whole").Close()
			return err
		}, failed, false},
	} {
		runInBubble(t, name, func(t *testing.T) {
			e, failures := runBehindAdapter(t, func(ctx context.Context) (int, error) {
				return 0, tc.tool(func(path string) io.ReadCloser {
					res, err := send(ctx, client, "GET", "http://backend.example"+path)
					require.NoError(t, err)
					return res.Body
				})
			})
			assert.Equal(t, tc.code, e.Code)
			assert.Equal(t, tc.counted, failures == 1)
		})
	}
}

// A client's own timeout is trouble of the backend. A hang isn't retried.
func TestTimeoutOfAnHTTPClientIsTheBackends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := clientOf(unanswered)
		client.Timeout = 10 * time.Second
		g := newGuard(t, resilience.Config{Effect: resilience.ReadOnly})
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			_, err := send(ctx, client, "GET", "http://backend.example")
			return 0, err
		})
		assert.Equal(t, 10*time.Second, r.Duration)
		assert.Equal(t, resilience.CodeTimeout, r.Err.Code)
		assert.Equal(t, 1, g.Health()[0].ConsecutiveFailures)
	})
}

// A connection that is upgraded, and an answer without a body, pass as they are.
func TestTransportTouchesNothing(t *testing.T) {
	for status, body := range map[int]io.ReadCloser{101: struct{ net.Conn }{}, 200: http.NoBody} {
		answer := &http.Response{StatusCode: status, Body: body}
		transport := clientOf(func(*http.Request) (*http.Response, error) { return answer, nil }).Transport
		g := guardWith(t, resilience.Tool{})
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			res, err := transport.RoundTrip(httptest.NewRequestWithContext(ctx, "GET", "/", nil))
			assert.Same(t, answer, res)
			assert.Equal(t, body, res.Body)
			return 1, err
		})
		assert.NoError(t, err)
	}
}

type closer struct {
	http.RoundTripper
	closed bool
}

func (c *closer) CloseIdleConnections() { c.closed = true }

func TestTransportClosesIdleConnectionsOfItsBase(t *testing.T) {
	base := &closer{}
	(&http.Client{Transport: resilience.Transport(base)}).CloseIdleConnections()
	assert.True(t, base.closed)
}

// A write that may have reached the backend prevents a retry, whatever the answer to the last request is.
func TestEarlierRequestOfTheAttemptMayHaveChangedSomething(t *testing.T) {
	for name, tc := range map[string]struct {
		first    toolFunc
		attempts int
	}{
		"it read":                      {sending("GET", answering(200)), 4},
		"it wrote":                     {sending("POST", answering(200)), 1},
		"it wrote, without an answer":  {sending("POST", broken(io.EOF)), 1},
		"it wrote, and was canceled":   {sending("POST", broken(context.Canceled)), 1},
		"it read, and was canceled":    {sending("GET", broken(context.Canceled)), 4},
		"it upgraded the connection":   {sending("GET", answering(101)), 1}, // whose use isn't seen
		"it was redirected":            {sending("POST", answering(399)), 1},
		"it was rejected":              {sending("POST", answering(400)), 4},
		"it was rejected otherwise":    {sending("POST", answering(498)), 4},
		"its client was said to leave": {sending("POST", answering(499)), 1},
		"it took too long":             {sending("POST", answering(408)), 1},
		"it wrote, and failed":         {sending("POST", answering(500)), 1},
	} {
		runInBubble(t, name, func(t *testing.T) {
			r := runNonIdempotent(t, func(ctx context.Context) (int, error) {
				_, _ = tc.first(ctx)
				return sending("POST", broken(errDial))(ctx)
			})
			assert.Equal(t, tc.attempts, r.Attempts)
		})
	}
}

// A request of a safe method has changed nothing, whatever has become of the call.
func TestOnlySomeMethodsMayHaveTakenEffect(t *testing.T) {
	for method, want := range map[string]string{
		"GET": suggestChange, "HEAD": suggestChange, "OPTIONS": suggestChange, "TRACE": suggestChange,
		"POST": suggestCheck, "PUT": suggestCheck, "PATCH": suggestCheck, "DELETE": suggestCheck, "get": suggestCheck,
	} {
		t.Run(method, func(t *testing.T) {
			r := runNonIdempotent(t, after(sending(method, answering(200)), resilience.MarkPermanent(errBoom)))
			assert.Equal(t, want, r.Err.Suggestion)
		})
	}
}

// An answer that has begun can't have been refused, whatever the error of its body looks like.
func TestPromise8AnswerThatBreaksOffWasGiven(t *testing.T) {
	for name, err := range map[string]error{
		"like a dial": errDial, "wrapped": fmt.Errorf("x: %w", io.ErrUnexpectedEOF),
	} {
		client := clientOf(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: io.NopCloser(iotest.ErrReader(err))}, nil
		})
		r := runNonIdempotent(t, func(ctx context.Context) (int, error) {
			for range 2 {
				res, failure := send(ctx, client, "POST", "http://x")
				if !assert.NoError(t, failure) {
					break
				}
				_, failure = res.Body.Read(nil)
				assert.ErrorIs(t, failure, err)
				assert.NoError(t, res.Body.Close())
			}
			return 0, errOwn
		})
		assert.Equal(t, 1, r.Attempts, name)
		assert.Equal(t, resilience.CodeConnectionLost, r.Err.Code, name)
	}
}

// With such a header, net/http sends a request again by itself. Only the last try was refused then.
func TestPromise8RequestThatIsReplayedMayHaveBeenSent(t *testing.T) {
	for name, via := range map[string]http.RoundTripper{
		"refused": broken(errDial), "429": answering(429, "Retry-After", "1"),
	} {
		for header, attempts := range map[string]int{"Idempotency-Key": 1, "X-Idempotency-Key": 1, "X-Request-Id": 4} {
			for _, value := range [][]string{{"k"}, nil} { // nil isn't sent, but has the same effect
				runInBubble(t, fmt.Sprint(name, header, value), func(t *testing.T) {
					client := &http.Client{Transport: resilience.Transport(via)}
					r := runNonIdempotent(t, func(ctx context.Context) (int, error) {
						req, _ := http.NewRequestWithContext(ctx, "POST", "http://x", nil)
						req.Header[header] = value
						_, _ = client.Do(req)
						return 0, errOwn
					})
					assert.Equal(t, attempts, r.Attempts)
				})
			}
		}
	}
}

// The error of a request whose context has ended may be the cause of that end, which is about another request.
func TestPromise8CauseOfAnEndIsNoEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		orders := 0
		client := clientOf(func(req *http.Request) (*http.Response, error) {
			if req.Method == "GET" {
				return nil, errDial
			}
			orders++
			<-req.Context().Done()
			return nil, context.Cause(req.Context())
		})
		runNonIdempotent(t, func(ctx context.Context) (int, error) {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			go func() { _, _ = send(ctx, client, "POST", "http://backend.example") }()
			synctest.Wait()
			_, refused := send(ctx, client, "GET", "http://backend.example")
			cancel(refused) // as errgroup does
			synctest.Wait()
			return 0, refused
		})
		assert.Equal(t, 1, orders)

		e, failures := runBehindAdapter(t, func(ctx context.Context) (int, error) {
			ctx, cancel := context.WithTimeoutCause(ctx, time.Second, errors.New("the index is slow"))
			defer cancel()
			_, err := send(ctx, client, "POST", "http://backend.example")
			return 0, err
		})
		assert.True(t, e.HasGuidance())
		assert.Equal(t, 1, failures)
	})
}

// A client that waits for the end of a rate limit by itself takes all the time of the call. The backend is alive, and
// has done nothing.
func TestTimeoutBecauseOfARateLimitIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &http.Client{Transport: resilience.Transport(answering(429, "Retry-After", "90"))}
		g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			_, _ = send(ctx, client, "POST", "http://x")
			return untilDone(ctx)
		})
		assert.Equal(t, "Tool 'x' exceeded timeout of 60s; the last attempt: rate limit", r.Err.Message)
		assert.Equal(t, "Do not call this tool for 90 seconds; use others.", r.Err.Suggestion)
		assert.Equal(t, 90*time.Second, r.Err.RetryAfter)
		assert.Zero(t, g.Breaker("x").Failures())
	})
}

// A certificate that isn't valid ends a request before it is sent.
func TestPromise8RequestWithoutAHandshakeHadNoEffect(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	e, failures := runBehindAdapter(t, func(ctx context.Context) (int, error) {
		_, err := send(ctx, &http.Client{Transport: resilience.Transport(nil)}, "POST", server.URL)
		return 0, err
	})
	assert.Zero(t, failures)
	assert.Equal(t, suggestChange, e.Suggestion, "and nothing to check")
}

// Within a guarded call and outside of one, the client gets what the server has sent.
func TestTransportPassesAnswersOn(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	defer server.Close()
	client := &http.Client{Transport: resilience.Transport(nil)}
	defer client.CloseIdleConnections()
	echo := func(ctx context.Context) (int, error) {
		res, err := send(ctx, client, "POST", server.URL)
		require.NoError(t, err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		assert.Equal(t, "{}", string(text))
		return 0, err
	}
	_, err := echo(t.Context())
	assert.NoError(t, err)
	assert.Nil(t, resilience.Run(t.Context(), newGuard(t, resilience.Config{}), "x", echo).Err)
}
