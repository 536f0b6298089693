package resilience_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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

func broken(err error) http.RoundTripper {
	return roundTrips(func(*http.Request) (*http.Response, error) { return nil, err })
}

// errOwn is what a tool makes of any failure: it tells nothing.
var errOwn = errors.New("something went wrong")

// brokenText is what net/http writes of a connection that is of no use any more.
const brokenText = "net/http: HTTP/1.x transport connection broken: %w"

// sending returns a tool that sends a request and fails, whatever the answer is.
func sending(method string, via http.RoundTripper) toolFunc {
	client := &http.Client{Transport: resilience.Transport(via)}
	return func(ctx context.Context) (int, error) {
		var body io.Reader
		if method == "POST" {
			body = strings.NewReader("{}")
		}
		req, err := http.NewRequestWithContext(ctx, method, "http://backend.example/x", body)
		if err != nil {
			return 0, err
		}
		if res, err := client.Do(req); err == nil {
			res.Body.Close()
		}
		return 0, errOwn
	}
}

func TestTransportTellsWhoseFaultAFailureIs(t *testing.T) {
	const read, write = resilience.ReadOnly, resilience.NonIdempotent
	type want struct {
		code       resilience.Code
		attempts   int
		counted    bool
		retryAfter time.Duration
	}
	failed := want{resilience.CodeToolFailed, 1, true, 0}
	asked := func(d time.Duration) want { return want{resilience.CodeToolFailed, 1, true, d} }
	lost := want{resilience.CodeConnectionLost, 1, true, 0}
	exhausted := want{resilience.CodeRetryExhausted, 4, true, 0}
	timeout := want{resilience.CodeTimeout, 1, true, 0}
	rejected := want{resilience.CodeValidation, 1, false, 0}
	own := want{resilience.CodeToolFailed, 1, false, 0}
	date := func(d time.Duration) string {
		return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(d).Format(http.TimeFormat)
	}

	for name, tc := range map[string]struct {
		effect resilience.Effect
		method string
		via    http.RoundTripper
		want   want
	}{
		"200":                  {read, "GET", answering(200), own},
		"304":                  {read, "GET", answering(304), own},
		"400":                  {read, "GET", answering(400), rejected},
		"401":                  {read, "GET", answering(401), rejected},
		"408":                  {read, "GET", answering(408), own},
		"423":                  {write, "POST", answering(423), own},
		"425":                  {write, "POST", answering(425, "Retry-After", "7"), own},
		"403":                  {read, "GET", answering(403), rejected},
		"404":                  {read, "GET", answering(404), rejected},
		"422":                  {write, "POST", answering(422), rejected},
		"501":                  {read, "GET", answering(501), rejected},
		"500":                  {read, "GET", answering(500), exhausted},
		"502":                  {read, "GET", answering(502), exhausted},
		"503":                  {read, "GET", answering(503), exhausted},
		"504":                  {read, "GET", answering(504), exhausted},
		"500 to a write":       {write, "POST", answering(500), failed},
		"429":                  {read, "GET", answering(429), exhausted},
		"429 to a write":       {write, "POST", answering(429), exhausted},
		"429, a minute":        {read, "GET", answering(429, "Retry-After", "60"), asked(time.Minute)},
		"429, to come back at": {read, "GET", answering(429, "Retry-After", date(time.Hour)), asked(time.Hour)},
		"429, by the server's day": {
			read, "GET", answering(429, "Retry-After", date(49*time.Hour), "Date", date(48*time.Hour)), asked(time.Hour),
		},
		"503, seven seconds": {write, "POST", answering(503, "Retry-After", "7"), failed},
		"403, Retry-After":   {read, "GET", answering(403, "Retry-After", "20"), asked(20 * time.Second)},
		"403, a limit that is exhausted": {
			resilience.ReadOnly, "GET",
			answering(403, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "946684820"), asked(20 * time.Second),
		},
		"403, a limit that isn't": {
			read, "GET", answering(403, "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "946684820"), rejected,
		},
		"429, RateLimit-Reset": {
			read, "GET", answering(429, "RateLimit-Remaining", "0", "RateLimit-Reset", "30"), asked(30 * time.Second),
		},
		"429, RateLimit": {read, "GET", answering(429, "RateLimit", `"default";r=0;t=30`), asked(30 * time.Second)},
		"429, older RateLimit": {
			read, "GET", answering(429, "RateLimit", "limit=9, remaining=0, reset=30"), asked(30 * time.Second),
		},
		"403, a second RateLimit": {
			read, "GET", answering(403, "RateLimit", `"burst";r=5;t=1`, "RateLimit", `"daily";r=0;t=30`), asked(30 * time.Second),
		},
		"429, RateLimit without a time": {read, "GET", answering(429, "RateLimit", `"default";r=0`), exhausted},
		"429, X-Rate-Limit-Reset": {
			read, "GET", answering(429, "X-Rate-Limit-Remaining", "0", "X-Rate-Limit-Reset", "30"), asked(30 * time.Second),
		},
		"403, to come back at": {read, "GET", answering(403, "Retry-After", date(time.Hour)), asked(time.Hour)},
		"403, at once":         {read, "GET", answering(403, "Retry-After", "0"), exhausted},
		"403, nonsense":        {read, "GET", answering(403, "Retry-After", "soon"), rejected},
		"429, nonsense":        {read, "GET", answering(429, "Retry-After", "soon"), exhausted},
		"429, a negative time": {read, "GET", answering(429, "Retry-After", "-5"), exhausted},
		"429, for ever":        {read, "GET", answering(429, "Retry-After", "1e300"), exhausted},
		"429, in the past":     {read, "GET", answering(429, "Retry-After", date(-time.Hour)), exhausted},
		"no answer":            {read, "GET", broken(io.ErrUnexpectedEOF), exhausted},
		"no answer to a write": {write, "POST", broken(io.ErrUnexpectedEOF), lost},
		"closed, to a write":   {write, "POST", broken(io.EOF), lost},
		"refused":              {write, "POST", broken(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), exhausted},
		"429, several limits": {
			read, "GET", answering(429, "RateLimit", `"burst";r=0;t=30, "hour";r=0;t=90, "daily";r=9;t=3600`), asked(90 * time.Second),
		},
		"no answer, which the base wraps": {read, "GET", broken(fmt.Errorf("x: %w", io.ErrUnexpectedEOF)), exhausted},
		"closed, which the base wraps":    {read, "GET", broken(fmt.Errorf("x: %w", io.EOF)), exhausted},
		"no answer to a write, wrapped":   {write, "POST", broken(fmt.Errorf("x: %w", io.ErrUnexpectedEOF)), lost},
		"a body that is shorter than it says": {
			write, "POST", broken(fmt.Errorf(brokenText, errors.New("http: ContentLength=9 with Body length 5"))), own,
		},
		"what breaks off is marked":            {read, "GET", broken(resilience.MarkInvalid(io.EOF)), own},
		"what breaks off at the request's end": {read, "GET", broken(errors.Join(context.Canceled, io.EOF)), own},
		"what breaks off in time":              {write, "GET", broken(errors.Join(context.DeadlineExceeded, io.EOF)), timeout},
		"closed while it was idle":             {write, "POST", broken(errors.New("http: server closed idle connection")), lost},
		"a connection of HTTP/2 that is lost":  {write, "POST", broken(errors.New("http2: client connection lost")), lost},
		"a timeout of the client":              {write, "POST", broken(resilience.TimeoutError("y", time.Second)), timeout},
		"neither an answer nor an error":       {read, "GET", broken(nil), own},
		"600":                                  {read, "GET", answering(600), exhausted},
		"a header of no meaning":               {read, "GET", broken(errors.New(`net/http: invalid header field value for "Token"`)), own},
		"an address of no meaning": {
			read, "GET", broken(&net.OpError{Op: "dial", Err: &net.AddrError{Err: "invalid port", Addr: "x:99999"}}), own,
		},
		"an error that is marked":  {read, "GET", broken(resilience.MarkInvalid(errBoom)), own},
		"an error that is neutral": {read, "GET", broken(resilience.MarkNeutral(io.EOF)), own},
		"an error with a status":   {read, "GET", broken(statusError(404)), own},
		"the request's own end":    {read, "GET", broken(context.Canceled), own},
		"a host that doesn't exist": {
			write, "POST", broken(&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", IsNotFound: true}}), own,
		},
		"a look-up without an answer": {
			write, "POST", broken(&net.OpError{Op: "dial", Err: &net.DNSError{Err: "server misbehaving"}}), exhausted,
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {Effect: tc.effect}}})
			r := resilience.Run(t.Context(), g, "x", sending(tc.method, tc.via),
				resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral}))

			got := want{r.Err.Code, r.Attempts, g.Health()[0].ConsecutiveFailures == 1, r.Err.RetryAfter}
			assert.Equal(t, tc.want, got)
			assert.ErrorIs(t, r.Err, errOwn)
			assert.Equal(t, tc.want.counted, r.Err.HasGuidance())
		})
	}
}

// What can't be a time to wait leaves it to the headers of a rate limit.
func TestTransportReadsARateLimitIfRetryAfterIsNonsense(t *testing.T) {
	for _, nonsense := range []string{"", "soon", "-5", "NaN", "1e300", "9223372036.854775807"} {
		runInBubble(t, nonsense, func(t *testing.T) {
			via := answering(429, "Retry-After", nonsense, "RateLimit-Remaining", "0", "RateLimit-Reset", "30")
			r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{}), "x", sending("GET", via))
			assert.Equal(t, 30*time.Second, r.Err.RetryAfter)
		})
	}
}

// A request that changes something and may have reached the backend stands in the way of a retry, whatever
// the last one says.
func TestEarlierRequestOfTheAttemptMayHaveChangedSomething(t *testing.T) {
	refused := broken(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	for name, tc := range map[string]struct {
		first    toolFunc
		attempts int
	}{
		"it read":                      {sending("GET", answering(200)), 4},
		"it wrote":                     {sending("POST", answering(200)), 1},
		"it wrote, without an answer":  {sending("POST", broken(io.EOF)), 1},
		"it wrote, and was canceled":   {sending("POST", broken(context.Canceled)), 1},
		"it read, and was canceled":    {sending("GET", broken(context.Canceled)), 4},
		"it was redirected":            {sending("POST", answering(399)), 1},
		"it was rejected":              {sending("POST", answering(400)), 4},
		"it was rejected otherwise":    {sending("POST", answering(498)), 4},
		"its client was said to leave": {sending("POST", answering(499)), 1},
		"it took too long":             {sending("POST", answering(408)), 1},
		"it wrote, and failed":         {sending("POST", answering(500)), 1},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
			second := sending("POST", refused)
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				_, _ = tc.first(ctx)
				return second(ctx)
			})
			assert.Equal(t, tc.attempts, r.Attempts)
		})
	}
}

// What the tool says outright stands, and so does trouble that its error tells of after a good answer.
func TestToolKnowsBetterThanTheWire(t *testing.T) {
	mistake := &resilience.Error{Code: resilience.CodeValidation, Message: "m"}
	for name, tc := range map[string]struct {
		status  int
		err     error
		code    resilience.Code
		counted bool
	}{
		"an Error of its own":        {503, mistake, resilience.CodeValidation, false},
		"a mark":                     {404, resilience.MarkPermanent(errOwn), resilience.CodeToolFailed, true},
		"the connection broke":       {200, syscall.ECONNRESET, resilience.CodeConnectionLost, true},
		"another backend":            {200, sqlError("57P01"), resilience.CodeToolFailed, true},
		"a file that isn't there":    {503, syscall.ENOENT, resilience.CodeToolFailed, true},
		"its own panic":              {404, nil, resilience.CodeToolFailed, true},
		"it only knows what it made": {404, errOwn, resilience.CodeValidation, false},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{})
			send := sending("POST", answering(tc.status))
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				_, _ = send(ctx)
				if tc.err == nil {
					panic("p")
				}
				return 0, tc.err
			})
			assert.Equal(t, tc.code, r.Err.Code)
			assert.Equal(t, tc.counted, g.Health()[0].ConsecutiveFailures == 1)
		})
	}
}

// A document that was stored in part, or was itself an argument, reads like an answer that breaks off. Only the
// connection tells the difference.
func TestOnlyAnAnswerThatBreaksOffIsTheBackendsFault(t *testing.T) {
	const part = `{"items": [1, 2`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if trailer, ok := strings.CutPrefix(r.URL.Path, "/trailer/"); ok {
			conn, _, err := http.NewResponseController(w).Hijack()
			assert.NoError(t, err)
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Sum\r\n\r\n2\r\n{}\r\n0\r\n"+trailer)
			_ = conn.Close()
			return
		}
		if r.URL.Path != "/" {
			w.Header().Set("Content-Length", "1000")
		}
		if r.URL.Path == "/mistaken" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, part)
		if r.URL.Path == "/hanging" {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	client := &http.Client{Transport: resilience.Transport(nil)}
	impatient := &http.Client{Transport: resilience.Transport(nil), Timeout: 50 * time.Millisecond}
	decode := func(r io.Reader) error {
		var v any
		return json.NewDecoder(r).Decode(&v)
	}
	get := func(ctx context.Context, path string) *http.Response {
		req, _ := http.NewRequestWithContext(ctx, "POST", server.URL+path, strings.NewReader("{}"))
		res, err := client.Do(req)
		assert.NoError(t, err)
		return res
	}

	for name, tc := range map[string]struct {
		tool func(context.Context) error
		want string
	}{
		"the answer breaks off": {func(ctx context.Context) error {
			return decode(get(ctx, "/broken").Body)
		}, "trouble"},
		"the answer breaks off, in other words": {func(ctx context.Context) error {
			return fmt.Errorf("decoding: %v", decode(get(ctx, "/broken").Body))
		}, "trouble"},
		"the answer breaks off behind its last chunk": {func(ctx context.Context) error {
			_, err := io.ReadAll(get(ctx, "/trailer/").Body)
			return fmt.Errorf("reading: %v", err)
		}, "trouble"},
		"the answer breaks off in its trailer": {func(ctx context.Context) error {
			_, err := io.ReadAll(get(ctx, "/trailer/Sum:").Body)
			return fmt.Errorf("reading: %v", err)
		}, "trouble"},
		"the answer hangs": {func(ctx context.Context) error {
			req, _ := http.NewRequestWithContext(ctx, "GET", server.URL+"/hanging", nil)
			res, err := impatient.Do(req)
			if err == nil {
				_, err = io.ReadAll(res.Body)
			}
			return fmt.Errorf("reading: %v", err)
		}, "trouble"},
		"the tool closes it": {func(ctx context.Context) error {
			body := get(ctx, "/hanging").Body
			_, _ = io.ReadFull(body, make([]byte, len(part)))
			go body.Close()
			_, _ = io.ReadAll(body)
			return errOwn
		}, "nothing"},
		"the document does": {func(ctx context.Context) error { return decode(get(ctx, "/").Body) }, "nothing"},
		"an argument does": {func(ctx context.Context) error {
			get(ctx, "/").Body.Close()
			return decode(strings.NewReader(part))
		}, "nothing"},
		"the tool doesn't read on": {func(ctx context.Context) error {
			body := get(ctx, "/broken").Body
			_, _ = io.ReadFull(body, make([]byte, len(part)))
			body.Close()
			_, _ = body.Read(make([]byte, 1))
			return errOwn
		}, "nothing"},
		"the caller has less time": {func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			body := get(ctx, "/broken").Body
			cancel()
			_, _ = io.ReadAll(body)
			return errOwn
		}, "nothing"},
		"it is read on after another answer": {func(ctx context.Context) error {
			res := get(ctx, "/broken")
			_, _ = io.ReadAll(res.Body)
			get(ctx, "/").Body.Close()
			_, _ = io.Copy(io.Discard, res.Body)
			return errOwn
		}, "nothing"},
		"the answer names a mistake, and breaks off": {func(ctx context.Context) error {
			_, _ = io.ReadAll(get(ctx, "/mistaken").Body)
			return errOwn
		}, "rejected"},
		"another answer is complete": {func(ctx context.Context) error {
			_, _ = io.ReadAll(get(ctx, "/broken").Body)
			get(ctx, "/").Body.Close()
			return errOwn
		}, "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}})
			neutral := resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral})
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) { return 0, tc.tool(ctx) }, neutral)
			assert.Equal(t, tc.want, judgment(g, r.Err))
			if strings.HasPrefix(name, "the answer breaks off") {
				assert.Equal(t, "Connection lost: connection closed by the other side", r.Err.Message)
			}
		})
	}
}

// A badBody fails as its error says, and when it is closed, too.
type badBody struct{ error }

func (b badBody) Read([]byte) (int, error) { return 0, b.error }
func (b badBody) Close() error             { return b.error }

// What is read of an answer can't have been refused, and the body of the request has nothing to do with it.
func TestPromise8AnswerThatBreaksOffWasGiven(t *testing.T) {
	for name, err := range map[string]error{
		"like a dial": &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
		"wrapped":     fmt.Errorf("x: %w", io.ErrUnexpectedEOF),
	} {
		g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
		client := &http.Client{Transport: resilience.Transport(roundTrips(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: badBody{err}}, nil
		}))}
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			for range 2 {
				req, _ := http.NewRequestWithContext(ctx, "POST", "http://x", strings.NewReader("{}"))
				res, failure := client.Do(req)
				if !assert.NoError(t, failure) {
					break
				}
				_, failure = res.Body.Read(nil)
				assert.ErrorIs(t, failure, err)
				assert.ErrorIs(t, res.Body.Close(), err)
			}
			return 0, errOwn
		})
		assert.Equal(t, 1, r.Attempts, name)
		assert.Equal(t, resilience.CodeConnectionLost, r.Err.Code, name)
	}
}

// Each attempt is judged by its own reports, and an abandoned one by none.
func TestReportsBelongToTheirAttempt(t *testing.T) {
	for name, attemptTimeout := range map[string]time.Duration{"alone": 0, "with an AttemptTimeout": time.Second} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly})
			cfg.AttemptTimeout = attemptTimeout
			g := newGuard(t, cfg)
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) == 1 {
					resilience.ReportBackend(ctx, resilience.MarkInvalid(errBoom))
					resilience.ReportBackend(ctx, errBoom) // the last report decides
					resilience.ReportBackend(ctx, context.Canceled)
					go func() {
						time.Sleep(50 * time.Millisecond)
						resilience.ReportBackend(ctx, errBoom)
					}()
				} else {
					resilience.ReportBackend(ctx, nil)
				}
				return 0, errOwn
			})
			assert.Equal(t, 2, r.Attempts)
			assert.False(t, r.Err.HasGuidance(), "after a good answer, the failure is the tool's own")
			assert.Zero(t, g.Health()[0].ConsecutiveFailures)
		})
	}
}

// What a call has counted doesn't count for the calls around it, which may have done without.
func TestReportEndsAtTheInnermostGuardedCall(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	neutral := resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral})
	r := resilience.Run(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
		_, _ = resilience.Do(ctx, g, "inner", func(ctx context.Context) (int, error) {
			return resilience.WithTimeout(ctx, "its own", time.Second, func(ctx context.Context) (int, error) {
				resilience.ReportBackend(ctx, statusError(503))
				return 0, errOwn
			})
		})
		return 0, errOwn
	}, neutral)
	assert.False(t, r.Err.HasGuidance())
	for _, h := range g.Health() {
		assert.Equal(t, h.Tool == "inner", h.ConsecutiveFailures == 1, h.Tool)
	}
}

// Promise 8: what may have changed something isn't repeated, wherever in the call it was done.
func TestPromise8RequestThatMayHaveChangedSomething(t *testing.T) {
	refused := sending("POST", broken(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}))
	wrote := sending("POST", answering(200))
	noAnswer := sending("POST", roundTrips(func(req *http.Request) (*http.Response, error) {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}))
	g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})

	for name, tool := range map[string]func(ctx context.Context, effects *int) error{
		"after a look-up": func(ctx context.Context, effects *int) error {
			_, _ = sending("GET", answering(404))(ctx)
			*effects++
			return io.ErrUnexpectedEOF
		},
		"after a look-up that was refused": func(ctx context.Context, effects *int) error {
			_, _ = sending("GET", broken(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}))(ctx)
			*effects++
			return fmt.Errorf("insert: %w", context.DeadlineExceeded)
		},
		"after a write that was refused": func(ctx context.Context, effects *int) error {
			_, _ = refused(ctx)
			*effects++
			return fmt.Errorf("insert: %w", context.DeadlineExceeded)
		},
		"after 429": func(ctx context.Context, effects *int) error {
			_, _ = sending("GET", answering(429))(ctx)
			*effects++
			return errOwn
		},
		"before an error that was wrapped in ours": func(ctx context.Context, effects *int) error {
			_, _ = wrote(ctx)
			*effects++
			return resilience.AsError("x", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
		},
		"in an inner call": func(ctx context.Context, effects *int) error {
			_, err := resilience.Do(ctx, g, "inner", func(ctx context.Context) (int, error) {
				_, _ = wrote(ctx)
				*effects++
				return 0, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
			}, resilience.ForRequest(resilience.Request{Effect: func() resilience.Effect { return resilience.NonIdempotent }}))
			return err
		},
		"in an inner call that has timed out": func(ctx context.Context, effects *int) error {
			*effects++
			_, _ = resilience.WithTimeout(ctx, "primary", time.Second, noAnswer)
			_, err := refused(ctx)
			return err
		},
		"in a request under way": func(ctx context.Context, effects *int) error {
			*effects++
			go func() { _, _ = noAnswer(ctx) }()
			time.Sleep(time.Millisecond)
			_, err := refused(ctx)
			return err
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			effects := 0
			g = guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				return 0, tool(ctx, &effects)
			})
			assert.Equal(t, 1, effects)
			assert.False(t, r.Err.Retryable)
			time.Sleep(time.Hour)
		})
	}
}

// A proxy or a server may hang up while a connection is still being made, before the request was sent.
func TestDialThatBreaksOffIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, broke := range []error{io.EOF, io.ErrUnexpectedEOF} {
			tool := sending("DELETE", broken(&net.OpError{Op: "dial", Net: "tcp", Err: broke}))
			r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent}), "x", tool)
			assert.Equal(t, resilience.CodeRetryExhausted, r.Err.Code)
			assert.Equal(t, 4, r.Attempts)
		}
	})
}

// With such a header, net/http sends a request again by itself, which is seen as one: only its last try was refused.
func TestPromise8RequestThatIsReplayedMayHaveBeenSent(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for name, via := range map[string]http.RoundTripper{"refused": broken(refused), "429": answering(429)} {
		for header, attempts := range map[string]int{"Idempotency-Key": 1, "X-Idempotency-Key": 1, "X-Request-Id": 4} {
			for _, value := range [][]string{{"k"}, nil} { // net/http doesn't send one without a value, but replays all the same
				runInBubble(t, fmt.Sprint(name, header, value), func(t *testing.T) {
					client := &http.Client{Transport: resilience.Transport(via)}
					r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent}), "x",
						func(ctx context.Context) (int, error) {
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

// A tool that knows better says so.
func TestMarkStandsAgainstWhatWasReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
		wrote := sending("POST", answering(200))
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			_, _ = wrote(ctx)
			return 0, resilience.MarkTransient(errOwn)
		})
		assert.Equal(t, 4, r.Attempts)
	})
}

// Without an AttemptTimeout, a request of an attempt that is over may still be answered.
func TestAnswerToAnEarlierAttemptCountsForNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := sending("GET", roundTrips(func(req *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return answering(200).RoundTrip(req)
		}))
		g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly})
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			if resilience.Attempt(ctx) == 1 {
				go func() { _, _ = late(ctx) }()
				time.Sleep(time.Millisecond)
			} else {
				time.Sleep(5 * time.Second)
			}
			return 0, errOwn
		})
		assert.Equal(t, 4, r.Attempts)
		assert.Equal(t, 1, g.Health()[0].ConsecutiveFailures)
	})
}

func TestReportOutsideOfACallDoesNothing(t *testing.T) {
	assert.NotPanics(t, func() {
		resilience.ReportBackend(t.Context(), errBoom)
		resilience.ReportBackend(t.Context(), panickingStatus{})
	})
	res, err := resilience.Transport(answering(503)).RoundTrip(httptest.NewRequest("GET", "/", nil))
	require.NoError(t, err)
	assert.Equal(t, 503, res.StatusCode)
}

// Classify fields receive what the backend has said with the error.
func TestClassifyFieldsSeeWhatTheBackendSaid(t *testing.T) {
	var seen []resilience.Class
	classify := func(err error) resilience.Class {
		assert.ErrorIs(t, err, errOwn)
		assert.EqualError(t, err, errOwn.Error())
		seen = append(seen, resilience.Classify(err))
		return resilience.Classify(err)
	}
	g := newGuard(t, resilience.Config{Breaker: resilience.BreakerConfig{Classify: classify}})
	_, err := resilience.Do(t.Context(), g, "x", sending("GET", answering(404)))
	assert.ErrorIs(t, err, errOwn)
	assert.Equal(t, []resilience.Class{resilience.ClassInvalid}, seen)
}

// The answer passes untouched, with its stream, its trailers and what it upgrades to.
func TestTransportTouchesNothing(t *testing.T) {
	transportTouchesNothing(t, t.Context())
	_, err := resilience.Do(t.Context(), guardWith(t, resilience.Tool{Cooperative: true}), "x", func(ctx context.Context) (int, error) {
		transportTouchesNothing(t, ctx)
		return 1, nil
	})
	assert.NoError(t, err)

	via := map[string]*http.Response{
		"no body at all": {StatusCode: 200},
		"no body":        {StatusCode: 200, Body: http.NoBody},
		"nothing":        nil,
	}
	for name, want := range via {
		for _, failure := range []error{nil, errBoom} {
			base := roundTrips(func(*http.Request) (*http.Response, error) { return want, failure })
			_, err := resilience.Do(t.Context(), guardWith(t, resilience.Tool{}), "x", func(ctx context.Context) (int, error) {
				req, _ := http.NewRequestWithContext(ctx, "GET", "http://x", nil)
				got, err := resilience.Transport(base).RoundTrip(req)
				assert.Same(t, want, got, name)
				assert.Equal(t, failure, err, name)
				if want != nil && want.Body != nil {
					assert.Equal(t, http.NoBody, got.Body)
				}
				return 1, nil
			})
			assert.NoError(t, err, name)
		}
	}
}

func transportTouchesNothing(t *testing.T, ctx context.Context) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Upgrade") != "" {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "echo")
			w.WriteHeader(http.StatusSwitchingProtocols)
			conn, rw, err := http.NewResponseController(w).Hijack()
			if assert.NoError(t, err) {
				line, _ := rw.ReadString('\n')
				_, _ = io.WriteString(conn, line)
				conn.Close()
			}
			return
		}
		w.Header().Set("Trailer", "Sum")
		body, _ := io.ReadAll(req.Body)
		_, _ = w.Write(body)
		w.Header().Set("Sum", "7")
	}))
	defer server.Close()
	base := &http.Transport{}
	client := &http.Client{Transport: resilience.Transport(base)}
	defer client.CloseIdleConnections()

	req, err := http.NewRequestWithContext(ctx, "POST", server.URL, strings.NewReader("hello"))
	require.NoError(t, err)
	res, err := client.Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	res.Body.Close()
	assert.Equal(t, "hello", string(body))
	assert.Equal(t, "7", res.Trailer.Get("Sum"))

	req, err = http.NewRequestWithContext(ctx, "GET", server.URL, nil)
	require.NoError(t, err)
	req.Header = maps.Clone(http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}})
	res, err = client.Do(req)
	require.NoError(t, err)
	stream, ok := res.Body.(io.ReadWriteCloser)
	require.True(t, ok, "%T", res.Body)
	_, err = io.WriteString(stream, "ping\n")
	require.NoError(t, err)
	echo, err := io.ReadAll(stream)
	require.NoError(t, err)
	assert.Equal(t, "ping\n", string(echo))
	stream.Close()
}

type closer struct {
	http.RoundTripper
	closed int
}

func (c *closer) CloseIdleConnections() { c.closed++ }

func TestTransportClosesIdleConnectionsOfItsBase(t *testing.T) {
	base := &closer{}
	client := &http.Client{Transport: resilience.Transport(base)}
	client.CloseIdleConnections()
	assert.Equal(t, 1, base.closed)
	(&http.Client{Transport: resilience.Transport(answering(200))}).CloseIdleConnections()
}

// A client's own timeout is trouble of the backend.
func TestTimeoutOfAnHTTPClientIsTheBackends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := roundTrips(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		})
		client := &http.Client{Transport: resilience.Transport(hangs), Timeout: 10 * time.Second}
		g := newGuard(t, resilience.Config{Effect: resilience.ReadOnly})
		start := time.Now()
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			req, err := http.NewRequestWithContext(ctx, "GET", "http://backend.example/x", nil)
			assert.NoError(t, err)
			_, err = client.Do(req)
			return 0, err
		})
		assert.Equal(t, 10*time.Second, time.Since(start), "a hang isn't retried")
		assert.Equal(t, 1, r.Attempts)
		assert.Equal(t, resilience.CodeTimeout, r.Err.Code)
		assert.Equal(t, 1, g.Health()[0].ConsecutiveFailures)
	})
}

// Some clients wait by themselves, as a backend asks, until the tool's timeout.
func TestTimeoutOfAToolThatWaitsAsItsBackendAsks(t *testing.T) {
	for effect, after := range map[resilience.Effect]time.Duration{
		resilience.ReadOnly:      time.Hour,
		resilience.NonIdempotent: 0, // it isn't to be repeated
	} {
		runInBubble(t, effect.String(), func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Effect: effect})
			send := sending("GET", answering(429, "Retry-After", "3600"))
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				_, _ = send(ctx)
				<-ctx.Done()
				return 0, ctx.Err()
			})
			assert.Equal(t, resilience.CodeTimeout, r.Err.Code)
			assert.Equal(t, after, r.Err.RetryAfter)
			assert.Equal(t, 1, g.Health()[0].ConsecutiveFailures)
		})
	}
}

// What a backend asks for is for the next call, which a caller who leaves doesn't want.
func TestCallerWhoLeavesIsNotAskedToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := leavingAfter(time.Second)(t.Context())
		defer cancel()
		r := resilience.Run(ctx, guardWith(t, resilience.Tool{Effect: resilience.ReadOnly}), "x",
			func(ctx context.Context) (int, error) {
				resilience.ReportBackend(ctx, waitError{time.Minute})
				return untilDone(ctx)
			})
		assert.Equal(t, resilience.CodeCanceled, r.Err.Code)
		assert.Zero(t, r.Err.RetryAfter)
	})
}

// What has timed out within a call is older than what the backend has said since, and nobody waits any more for an
// abandoned attempt.
func TestReportOfWhatIsOverSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		report := func(ctx context.Context) {
			time.Sleep(5 * time.Second)
			resilience.ReportBackend(ctx, waitError{time.Minute})
		}
		neutral := resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral})

		g := guardWith(t, resilience.Tool{Timeout: time.Minute})
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			_, _ = resilience.WithTimeout(ctx, "inner", time.Second, func(ctx context.Context) (int, error) {
				report(ctx)
				return 0, nil
			})
			_, _ = resilience.WithTimeout(ctx, "inner", time.Second, func(ctx context.Context) (int, error) {
				go report(ctx)
				return 0, nil
			})
			resilience.ReportBackend(ctx, nil)
			time.Sleep(10 * time.Second)
			return 0, errOwn
		}, neutral)
		assert.False(t, r.Err.HasGuidance())
		assert.Zero(t, g.Health()[0].ConsecutiveFailures)

		cfg := configWith(resilience.Tool{Timeout: 7 * time.Second, Effect: resilience.ReadOnly})
		cfg.AttemptTimeout = 3 * time.Second
		r = resilience.Run(t.Context(), newGuard(t, cfg), "x", func(ctx context.Context) (int, error) {
			if resilience.Attempt(ctx) == 1 {
				report(ctx)
			}
			return untilDone(ctx)
		})
		assert.Equal(t, resilience.CodeTimeout, r.Err.Code)
		assert.Zero(t, r.Err.RetryAfter)
	})
}

func TestUnexplainedFailureOfAnAttemptWithATimeoutIsNeutral(t *testing.T) {
	cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly})
	cfg.AttemptTimeout = time.Minute
	g := newGuard(t, cfg)
	r := resilience.Run(t.Context(), g, "x", failing(9, errOwn),
		resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral}))
	assert.Equal(t, 1, r.Attempts)
	assert.Zero(t, g.Health()[0].ConsecutiveFailures)
}

// The error of a request whose context has ended may be the cause of that, which is about another request.
func TestPromise8CauseOfAnEndIsNoEvidence(t *testing.T) {
	var orders atomic.Int32
	received := make(chan struct{}, 9)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		orders.Add(1)
		received <- struct{}{}
		<-r.Context().Done()
	}))
	defer server.Close()
	client := &http.Client{Transport: resilience.Transport(nil)}
	send := func(ctx context.Context, method, url string) error {
		req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader("order"))
		if assert.NoError(t, err) {
			_, err = client.Do(req)
		}
		return err
	}

	resilience.Run(t.Context(), guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent}), "x",
		func(ctx context.Context) (int, error) {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			ordered := make(chan error)
			go func() { ordered <- send(ctx, "POST", server.URL) }()
			<-received
			refused := send(ctx, "GET", "http://127.0.0.1:1/stock")
			cancel(refused) // as errgroup does
			<-ordered
			return 0, refused
		})
	assert.EqualValues(t, 1, orders.Load())

	g := guardWith(t, resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}})
	r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Millisecond, errors.New("the index is slow"))
		defer cancel()
		return 0, send(ctx, "POST", server.URL)
	}, resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral}))
	assert.True(t, r.Err.HasGuidance())
	assert.Equal(t, 1, g.Health()[0].ConsecutiveFailures)
}

// What is sent over an upgraded connection isn't seen.
func TestPromise8UpgradedConnectionMayChangeSomething(t *testing.T) {
	upgraded, refused := sending("GET", answering(101)), sending("GET", broken(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}))
	r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent}), "x",
		func(ctx context.Context) (int, error) {
			_, _ = upgraded(ctx)
			_, _ = refused(ctx)
			return 0, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		})
	assert.Equal(t, 1, r.Attempts)
}

// Both protocols tell of a server that breaks off.
func TestAnswersThatBreakOffAreTheBackends(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"before the header": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"in the body": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %t", name, http2), func(t *testing.T) {
				server := httptest.NewUnstartedServer(handler)
				server.EnableHTTP2 = http2
				server.StartTLS()
				defer server.Close()
				client := server.Client()
				client.Transport = resilience.Transport(client.Transport)

				g := guardWith(t, resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}})
				r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					req, err := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
					assert.NoError(t, err)
					res, err := client.Do(req)
					if err != nil {
						return 0, err
					}
					defer res.Body.Close()
					_, err = io.ReadAll(res.Body)
					return 0, err
				}, resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral}))
				assert.Equal(t, resilience.CodeConnectionLost, r.Err.Code)
				assert.Equal(t, 1, g.Health()[0].ConsecutiveFailures)
			})
		}
	}
}

// What an agent has sent may be cut off, and whoever unpacks it while it is sent on says what net/http says of an answer
// that breaks off. A server that does break off is noticed all the same.
func TestBodyOfARequestThatBreaksOffIsNoTroubleOfTheBackend(t *testing.T) {
	const cut = "aGVsbG8gd29ybGQhaGVsbG8gd29ybGQha"
	wrapping := func(base http.RoundTripper) http.RoundTripper { // one with words of its own
		return resilience.Transport(roundTrips(func(req *http.Request) (*http.Response, error) {
			res, err := base.RoundTrip(req)
			if err != nil {
				err = fmt.Errorf("upstream: %w", err)
			}
			return res, err
		}))
	}
	for _, http2 := range []bool{false, true} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			if err == nil && r.Header.Get("Break") != "" {
				panic(http.ErrAbortHandler)
			}
		}))
		server.EnableHTTP2 = http2
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		defer server.Close()

		for name, tc := range map[string]struct {
			content string
			again   bool // net/http can send the body again
			breaks  bool
			via     func(http.RoundTripper) http.RoundTripper
			counted bool
		}{
			"cut off":                     {cut, false, false, resilience.Transport, false},
			"cut off, without Transport":  {cut, false, false, nil, false},
			"cut off, with GetBody":       {cut, true, false, resilience.Transport, false},
			"cut off, and wrapped":        {cut, false, false, wrapping, false},
			"whole":                       {cut[:32], false, true, resilience.Transport, true},
			"whole, with GetBody":         {cut[:32], true, true, resilience.Transport, true},
			"whole, and wrapped":          {cut[:32], false, true, wrapping, true},
			"whole, which nothing breaks": {cut[:32], true, false, resilience.Transport, false},
		} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %t", name, http2), func(t *testing.T) {
				client := *server.Client()
				if tc.via != nil {
					client.Transport = tc.via(client.Transport)
				}
				body := func() (io.ReadCloser, error) {
					return io.NopCloser(base64.NewDecoder(base64.StdEncoding, strings.NewReader(tc.content))), nil
				}
				g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
				r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					content, _ := body()
					req, err := http.NewRequestWithContext(ctx, "POST", server.URL, content)
					assert.NoError(t, err)
					if tc.again {
						req.GetBody = body
					}
					if tc.breaks {
						req.Header.Set("Break", "1")
					}
					res, err := client.Do(req)
					if err != nil {
						return 0, err
					}
					return 0, res.Body.Close()
				}, resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral}))
				assert.Equal(t, 1, r.Attempts)
				assert.Equal(t, tc.counted, g.Health()[0].ConsecutiveFailures == 1, "%v", r.Err)
				assert.Equal(t, tc.content == cut || tc.breaks, r.Err != nil)
			})
		}
	}
}

// A server or a proxy that dies may have begun its answer. What the client makes of the rest is no matter, nor whether
// the tool keeps that.
func TestAHeaderThatBreaksOffIsTheBackends(t *testing.T) {
	const closed, garbled = "Connection lost: connection closed by the other side", "Connection lost: no valid answer"
	for header, want := range map[string]string{
		"":                                 closed,
		"HT":                               garbled,
		"HTTP/1.1 2":                       garbled,
		"HTTP/1.1 200 O":                   closed,
		"HTTP/1.1 200 OK\r\nContent-Le":    garbled,
		"HTTP/1.1 200 OK\r\nContent-Len: ": closed,
		"HTTP/1.1 200 OK\r\nX: y\r\n":      closed,
		"HTTP/1.1 100 Continue\r\n\r\n":    closed,
		"SSH-2.0-OpenSSH_9.6\r\n":          garbled,
		"HTTP/1.1 200 OK\r\n X: y\r\n\r\n": garbled,

		"HTTP/1.1 200 OK\r\nContent-Length: abc\r\n\r\n":                                      garbled,
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n":                   garbled,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: foo\r\n\r\n":                                   garbled,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n": garbled,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body) // or the connection would be reset
			conn, _, err := http.NewResponseController(w).Hijack()
			if assert.NoError(t, err) {
				_, _ = io.WriteString(conn, header)
				_ = conn.Close()
			}
		}))
		plain := &http.Transport{DisableKeepAlives: true}
		for name, tool := range map[string]struct {
			via    http.RoundTripper
			direct bool // without a client
			keep   func(error) error
		}{
			"Transport":           {resilience.Transport(plain), false, func(error) error { return errOwn }},
			"Transport, direct":   {resilience.Transport(plain), true, func(error) error { return errOwn }},
			"error":               {plain, false, func(err error) error { return err }},
			"wrapped":             {plain, false, func(err error) error { return fmt.Errorf("search: %w", err) }},
			"Transport, and both": {resilience.Transport(plain), false, func(err error) error { return err }},
		} {
			for _, method := range []string{"GET", "POST"} {
				t.Run(fmt.Sprintf("%q, %s, %s", header, name, method), func(t *testing.T) {
					g := guardWith(t, resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}})
					r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
						req, err := http.NewRequestWithContext(ctx, method, server.URL, strings.NewReader("{}"))
						assert.NoError(t, err)
						if tool.direct {
							_, err = tool.via.RoundTrip(req)
						} else {
							_, err = (&http.Client{Transport: tool.via}).Do(req)
						}
						return 0, tool.keep(err)
					}, resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral}))
					assert.Equal(t, resilience.CodeConnectionLost, r.Err.Code)
					assert.Equal(t, want, r.Err.Message)
					assert.Equal(t, 1, g.Health()[0].ConsecutiveFailures)
				})
			}
		}
		server.Close()
	}
}

// Without an AttemptTimeout the attempts share their context, but not what is reported with it.
func TestReportOfAnEarlierAttemptDecidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly, Retry: &resilience.Retry{MaxRetries: 1}})
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			if resilience.Attempt(ctx) == 1 {
				time.AfterFunc(2*time.Second, func() { resilience.ReportBackend(ctx, errOwn) })
				return 0, resilience.MarkTransient(errOwn)
			}
			time.Sleep(3 * time.Second)
			return 0, errOwn
		}, resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral}))
		assert.Equal(t, 2, r.Attempts)
		assert.Zero(t, g.Health()[0].ConsecutiveFailures)
	})
}

// A goroutine of the first attempt goes on during the delay, and during the second attempt.
func TestPromise8RequestsThatBeginAfterTheAttempt(t *testing.T) {
	write := func(ctx context.Context) { resilience.ReportBackend(ctx, nil) }
	g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
	for name, tc := range map[string]struct {
		after    time.Duration
		write    func(context.Context)
		attempts int
	}{
		"a request during the delay": {10 * time.Millisecond, write, 1},
		"a call during the delay": {10 * time.Millisecond, func(ctx context.Context) {
			_, _ = resilience.Do(ctx, g, "write", succeed)
		}, 1},
		"and the breaker opens":               {10 * time.Millisecond, func(ctx context.Context) { write(ctx); trip(t, g.Breaker("x")) }, 1},
		"a request during the second attempt": {500 * time.Millisecond, write, 2},
		"a look-up":                           {10 * time.Millisecond, func(ctx context.Context) { _, _ = sending("GET", answering(200))(ctx) }, 4},
		"a rejected request":                  {10 * time.Millisecond, func(ctx context.Context) { _, _ = sending("POST", answering(404))(ctx) }, 4},
	} {
		for _, attemptTimeout := range []time.Duration{0, time.Minute} {
			runInBubble(t, fmt.Sprint(name, " ", attemptTimeout), func(t *testing.T) {
				cfg := configWith(resilience.Tool{Effect: resilience.NonIdempotent, AttemptTimeout: attemptTimeout})
				g = newGuard(t, cfg)
				r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					if resilience.Attempt(ctx) == 1 {
						time.AfterFunc(tc.after, func() { tc.write(context.WithoutCancel(ctx)) })
					} else {
						time.Sleep(time.Second)
					}
					return 0, syscall.ECONNREFUSED
				})
				assert.Equal(t, tc.attempts, r.Attempts)
				if tc.attempts < 4 {
					assert.False(t, r.Err.Retryable)
					assert.Equal(t, suggestCheck, r.Err.Suggestion)
				}
			})
		}
	}
}

// What one attempt has done may have been marked as harmless; that mark stands for the next attempt, too.
func TestMarkForgivesTheRequestsOfItsAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
		wrote, refused := sending("POST", answering(500)), sending("POST", broken(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}))
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			if resilience.Attempt(ctx) == 1 {
				_, _ = wrote(ctx)
				return 0, resilience.MarkTransient(errOwn)
			}
			return refused(ctx)
		})
		assert.Equal(t, 4, r.Attempts)
	})
}

func TestReportOfAnEarlierAttemptSaysNothingOfALaterTimeout(t *testing.T) {
	for name, attemptTimeout := range map[string]time.Duration{"alone": 0, "with an AttemptTimeout": 3 * time.Second} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := configWith(resilience.Tool{Timeout: 5 * time.Second, Effect: resilience.ReadOnly})
			cfg.AttemptTimeout = attemptTimeout
			r := resilience.Run(t.Context(), newGuard(t, cfg), "x", func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) == 1 {
					resilience.ReportBackend(ctx, waitError{3 * time.Second})
					return 0, errOwn
				}
				return untilDone(ctx)
			})
			assert.Equal(t, resilience.CodeTimeout, r.Err.Code)
			assert.Zero(t, r.Err.RetryAfter)
		})
	}
}

// While the error of an attempt is examined, one request turns out to be harmless, and another one begins.
func TestPromise8RequestThatBeginsDuringTheExamination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{Effect: resilience.NonIdempotent})
		cfg.Retry.Classify = func(err error) resilience.Class {
			time.Sleep(20 * time.Millisecond)
			return resilience.Classify(err)
		}
		r := resilience.Run(t.Context(), newGuard(t, cfg), "x", func(ctx context.Context) (int, error) {
			endFirst := resilience.BeginRequest(ctx)
			time.AfterFunc(5*time.Millisecond, func() {
				endFirst(resilience.MarkInvalid(errOwn))
				resilience.BeginRequest(ctx)(nil)
			})
			return 0, resilience.MarkTransient(errOwn)
		})
		assert.Equal(t, 1, r.Attempts)
		assert.Equal(t, suggestCheck, r.Err.Suggestion)
	})
}

// Such a request is in the way of an agent's retry, too.
func TestPromise8SuggestionAfterARequestDuringTheExamination(t *testing.T) {
	for begins, want := range map[bool]string{false: suggestChange, true: suggestCheck} {
		runInBubble(t, fmt.Sprint(begins), func(t *testing.T) {
			cfg := configWith(resilience.Tool{Effect: resilience.NonIdempotent})
			cfg.Retry.Classify = func(error) resilience.Class {
				time.Sleep(20 * time.Millisecond)
				return resilience.ClassPermanent
			}
			r := resilience.Run(t.Context(), newGuard(t, cfg), "x", func(ctx context.Context) (int, error) {
				if begins {
					time.AfterFunc(5*time.Millisecond, func() { resilience.BeginRequest(ctx)(nil) })
				}
				return 0, sqlError("40001") // it was rolled back
			})
			assert.Equal(t, want, r.Err.Suggestion)
		})
	}
}

// A request of a safe method has changed nothing, whatever has become of the call.
func TestOnlySomeMethodsMayHaveTakenEffect(t *testing.T) {
	for method, want := range map[string]string{
		"": suggestChange, "GET": suggestChange, "HEAD": suggestChange, "OPTIONS": suggestChange, "TRACE": suggestChange,
		"POST": suggestCheck, "PUT": suggestCheck, "PATCH": suggestCheck, "DELETE": suggestCheck, "get": suggestCheck,
	} {
		t.Run(method, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
			base := answering(200)
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				req, err := http.NewRequestWithContext(ctx, "GET", "http://backend.example/x", nil)
				assert.NoError(t, err)
				req.Method = method
				res, err := resilience.Transport(base).RoundTrip(req)
				assert.NoError(t, err)
				assert.NoError(t, res.Body.Close())
				return 0, resilience.MarkPermanent(errBoom)
			})
			assert.Equal(t, want, r.Err.Suggestion)
		})
	}
}

// lateContext is past its deadline, which its timer hasn't noticed yet.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Now(), true }

// An http.Client with a Timeout has a timer of its own, whose error has no type, and which may be faster than that of
// the request's context.
func TestTransportKnowsTheTimeoutOfAClient(t *testing.T) {
	canceled := errors.New("net/http: request canceled")
	for name, tc := range map[string]struct {
		late     func(context.Context) context.Context
		failures int
	}{
		"past its deadline":  {func(ctx context.Context) context.Context { return lateContext{ctx} }, 1},
		"before":             {func(ctx context.Context) context.Context { return ctx }, 0},
		"without a deadline": {context.WithoutCancel, 0},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{})
			transport := resilience.Transport(broken(canceled))
			_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				req, err := http.NewRequestWithContext(tc.late(ctx), http.MethodGet, "http://localhost", nil)
				if assert.NoError(t, err) {
					_, err = transport.RoundTrip(req)
					assert.ErrorIs(t, err, canceled)
				}
				return 0, errors.New("the news can't be read")
			}, resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral}))
			assert.Error(t, err)
			assert.Equal(t, tc.failures, g.Breaker("x").Failures())
		})
	}
}

// An answer that has come says more than the end of its request, which may come at the same time.
func TestAnswerCountsThoughTheContextOfItsRequestHasEnded(t *testing.T) {
	late := func(ctx context.Context) (context.Context, context.CancelFunc) { return lateContext{ctx}, func() {} }
	for name, derive := range map[string]caller{"canceled": context.WithCancel, "past its deadline": late} {
		t.Run(name, func(t *testing.T) {
			r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{}), "x", func(ctx context.Context) (int, error) {
				ctx, end := derive(ctx)
				answer := roundTrips(func(req *http.Request) (*http.Response, error) {
					end()
					return answering(404).RoundTrip(req)
				})
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost", nil)
				if assert.NoError(t, err) {
					res, err := resilience.Transport(answer).RoundTrip(req)
					assert.NoError(t, err)
					assert.NoError(t, res.Body.Close())
				}
				return 0, errOwn
			})
			assert.Equal(t, resilience.CodeValidation, r.Err.Code)
		})
	}
}

// Nothing recommends to change a request that is to be repeated as it is.
func TestStatusThatAsksToComeBackIsNoRejection(t *testing.T) {
	for _, status := range []int{408, 423, 425} {
		runInBubble(t, fmt.Sprint(status), func(t *testing.T) {
			r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{}), "x", sending("GET", answering(status)))
			assert.Equal(t, resilience.CodeToolFailed, r.Err.Code)
			assert.True(t, r.Err.Retryable)
			assert.NotContains(t, r.Err.Suggestion, "Do not repeat")
		})
	}
}
