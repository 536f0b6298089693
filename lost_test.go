package resilience_test

import (
	"context"
	"crypto/tls"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/testdata/net/http2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLostConnectionHasAReason(t *testing.T) {
	const closedByOther = "connection closed by the other side"
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for name, tc := range map[string]struct {
		err    error
		class  resilience.Class
		reason string
	}{
		"reset":   {err: fmt.Errorf("read: %w", syscall.ECONNRESET), reason: "connection reset by the other side"},
		"pipe":    {err: &fs.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}, reason: closedByOther},
		"refused": {err: refused, reason: "connection refused"},
		"refused in a URL": {
			err:    &url.Error{Op: "Get", URL: "http://10.0.0.7", Err: refused},
			reason: "connection refused",
		},
		"refused, marked as permanent": {
			err:    resilience.MarkPermanent(refused),
			class:  resilience.ClassPermanent,
			reason: "connection refused",
		},
		"closed":              {err: fmt.Errorf("x: %w", net.ErrClosed), reason: "connection closed"},
		"a driver's, wrapped": {err: fmt.Errorf("query: %w", driver.ErrBadConn), reason: "connection closed"},
		"like a driver's":     {err: badConnLike{}, reason: "connection closed"},
		"unexpected EOF":      {err: io.ErrUnexpectedEOF, reason: closedByOther},
		"EOF of a request":    {err: &url.Error{Op: "Post", URL: "http://x", Err: io.EOF}, reason: closedByOther},
		"closed while idle": {
			err: &url.Error{Op: "Post", Err: errors.New("http: server closed idle connection")}, reason: closedByOther,
		},
		"a header that breaks off": {
			err: &url.Error{Op: "Get", Err: fmt.Errorf(brokenText, io.ErrUnexpectedEOF)}, reason: closedByOther,
		},
		"a header that is missing": {
			err: &url.Error{Op: "Get", Err: fmt.Errorf(brokenText, io.EOF)}, reason: closedByOther,
		},
		"a header that is garbled": {
			err: &url.Error{Op: "Get", Err: fmt.Errorf(brokenText, textproto.ProtocolError("x"))}, reason: "no valid answer",
		},
		"DNS": {err: &net.DNSError{Name: "db.internal", IsNotFound: true}, reason: "host not found"},
		"DNS, wrapped": {
			err: fmt.Errorf("x: %w", &net.DNSError{Name: "db.internal", IsNotFound: true}), reason: "host not found",
		},
		"DNS, after a timeout": {
			err: &net.OpError{Op: "dial", Err: &net.DNSError{
				UnwrapErr: &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded},
			}},
			reason: "the host can't be looked up",
		},
		"DNS in trouble": {
			err: &net.DNSError{Err: "server misbehaving", Name: "db.internal", IsTemporary: true}, reason: "the host can't be looked up",
		},
		"reset of a stream": {err: http2.StreamError{StreamID: 1}, reason: closedByOther},
		"going away":        {err: &http2.GoAwayError{LastStreamID: 1}, reason: closedByOther},
		"garbled frames":    {err: http2.ConnectionError(1), reason: "no valid answer"},
		"network":           {err: &net.OpError{Op: "read", Err: errBoom}, reason: "network error"},
		"network timeout":   {err: &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, reason: "network timeout"},
	} {
		t.Run(name, errorTest{
			err:     tc.err,
			class:   tc.class,
			code:    resilience.CodeConnectionLost,
			message: "Connection lost: " + tc.reason,
		}.check)
	}
}

// badConnLike is what a driver has of its own, as database/sql/driver allows.
type badConnLike struct{}

func (badConnLike) Error() string        { return "the server has gone" }
func (badConnLike) Is(target error) bool { return target == driver.ErrBadConn }

// They implement net.Error, or come from reading, but no connection is gone.
func TestErrorsThatConcernNoConnectionAreFailuresOfTheTool(t *testing.T) {
	_, parseError := url.Parse(invalidURL)
	for name, err := range map[string]error{
		"bare EOF":        io.EOF,
		"EOF of a parser": fmt.Errorf("line 1: %w", io.EOF),
		"a request's own length": &url.Error{Op: "Post", Err: fmt.Errorf(brokenText,
			errors.New("http: ContentLength=9 with Body length 5"))},
		"words of a peer":      &url.Error{Op: "Get", Err: errors.New("Bad Gateway: http2: client connection lost")},
		"words before a break": &url.Error{Op: "Get", Err: fmt.Errorf("%q: "+brokenText, "x", textproto.ProtocolError("x"))},
		"EOF of a body":        &url.Error{Op: "Post", Err: fmt.Errorf("reading: %w", io.EOF)},
		"no cause at all":      &url.Error{Op: "Get"},
		"a nil cause":          &url.Error{Op: "Get", Err: fmt.Errorf(brokenText, error(nil))},
		"invalid URL":          parseError,
		"invalid address":      &net.AddrError{Err: "missing port", Addr: "x"},
		"invalid CIDR":         &net.ParseError{Type: "CIDR address", Text: "x"},
		"own stream":           StreamError{},
		"a port in use":        &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", syscall.EADDRINUSE)},
		"nobody who calls":     &net.OpError{Op: "accept", Net: "tcp", Err: os.ErrDeadlineExceeded},
		"a host to listen at":  &net.OpError{Op: "listen", Net: "tcp", Err: &net.DNSError{Err: "server misbehaving"}},
		"an unknown interface": &net.OpError{Op: "route", Net: "ip+net", Err: errBoom},
		"no address at all":    net.InvalidAddrError("x"),
		"another network":      &net.OpError{Op: "dial", Net: "x", Err: net.UnknownNetworkError("x")},
		"a pipe's deadline":    &fs.PathError{Op: "read", Path: "|0", Err: os.ErrDeadlineExceeded},
	} {
		t.Run(name, errorTest{
			err:     err,
			class:   resilience.ClassTransient,
			code:    resilience.CodeToolFailed,
			message: "Tool 'x' failed",
		}.check)
	}
}

// By some codes of HTTP/2 a server complains of what it was sent, such as a header that is too long, which an agent has
// written. Words of net/http's say of others that a server gives up.
func TestWhatServersOfHTTP2Say(t *testing.T) {
	asked := func(op, text string) error { return &url.Error{Op: op, URL: "https://x", Err: errors.New(text)} }
	const goAway = "http2: Transport received GOAWAY from server ErrCode:"
	const retry = "http2: Transport: cannot retry err [%s] after Request.Body was written; define Request.GetBody to avoid this error"
	for want, errs := range map[string][]error{
		"trouble": {
			http2.StreamError{StreamID: 1, Code: 2}, http2.StreamError{StreamID: 1, Code: 99},
			&http2.GoAwayError{ErrCode: 2}, http2.ConnectionError(1),
			asked("Get", goAway+"INTERNAL_ERROR"), asked("Post", goAway+"NO_ERROR"),
			asked("Post", fmt.Sprintf(retry, "stream error: stream ID 1; REFUSED_STREAM")),
			&url.Error{Op: "Get", Err: io.ErrUnexpectedEOF}, &url.Error{Op: "Head", Err: io.ErrUnexpectedEOF},
			&url.Error{Op: "Post", Err: io.EOF},
		},
		"nothing": {
			http2.StreamError{StreamID: 1, Code: 1}, &http2.GoAwayError{ErrCode: 9}, &http2.GoAwayError{ErrCode: 11},
			asked("Get", goAway+"ENHANCE_YOUR_CALM"), asked("Get", goAway+"COMPRESSION_ERROR"),
			asked("Get", "x: "+goAway+"INTERNAL_ERROR"), asked("Get", "http2: Transport: cannot retry err [x]"),
			&url.Error{Op: "Post", Err: io.ErrUnexpectedEOF}, &url.Error{Op: "Put", Err: io.ErrUnexpectedEOF},
		},
	} {
		for _, err := range errs {
			assert.Equal(t, want, judged(t, err), "%#v", err)
			assert.Equal(t, want, judged(t, fmt.Errorf("x: %w", err)), "%#v", err)
		}
	}
}

// A StreamError has the name of one of HTTP/2's.
type StreamError struct{}

func (StreamError) Error() string { return "stream" }

var invalidURL = "http://[::1" // a constant would be a mistake to go vet

// What the standard library really returns, not what we think it does.
func TestRealConnectionsAreLost(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	_, err := http.Get(server.URL)
	require.Error(t, err)
	assert.Equal(t, resilience.CodeConnectionLost, resilience.AsError("x", err).Code, "%v", err)

	server.Close()
	_, err = http.Get("http://127.0.0.1:1") // where nothing listens; the server's port may be another's by now
	require.Error(t, err)
	assert.Equal(t, "Connection lost: connection refused", resilience.AsError("x", err).Message, "%v", err)

	_, err = http.Get("nonsense://x")
	require.Error(t, err)
	assert.Equal(t, resilience.CodeToolFailed, resilience.AsError("x", err).Code, "%v", err)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	_, err = http.DefaultClient.Do(req)
	require.Error(t, err)
	assert.Equal(t, resilience.ClassCanceled, resilience.Classify(err), "%v", err)
}

// An *Error without a Message leaves the words to us, also within a Connector.
func TestLostConnectionWithoutAMessageIsDescribed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := resilience.NewConnector(func(context.Context) (int, error) {
			return 0, &resilience.Error{Code: resilience.CodeConnectionLost, Err: syscall.ECONNRESET}
		}, resilience.ConnectorConfig[int]{})
		synctest.Wait()
		_, err := c.Get(t.Context())
		var e *resilience.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, "Connection lost: connection reset by the other side", e.Message)
		assert.NoError(t, c.Close())
	})
}

// An asOnly shows what it is about by As alone.
type asOnly struct{ inner error }

func (asOnly) Error() string        { return "as" }
func (e asOnly) As(target any) bool { return errors.As(e.inner, target) }

// A refused request is no reason to call again a tool that has done something in an attempt before.
func TestPromise8LastOfSeveralAttemptsIsNotAll(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	inner := newGuard(t, resilience.Config{Effect: resilience.ReadOnly, Retry: resilience.Retry{MaxRetries: 1}})
	several := func(ctx context.Context) error {
		r := resilience.Run(ctx, inner, "inner", func(ctx context.Context) (int, error) {
			if resilience.Attempt(ctx) > 1 {
				resilience.ReportBackend(ctx, refused)
			}
			return 0, errBoom
		})
		return errors.Unwrap(r.Err)
	}
	for name, tc := range map[string]struct {
		err      func(context.Context) error
		attempts int
	}{
		"one attempt":        {func(context.Context) error { return errBoom }, 4},
		"several":            {several, 1},
		"several, behind As": {func(ctx context.Context) error { return asOnly{several(ctx)} }, 1},
		"several, and one":   {func(ctx context.Context) error { return errors.Join(several(ctx), errBoom) }, 1},
		"one, and several":   {func(ctx context.Context) error { return errors.Join(errBoom, several(ctx)) }, 1},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				err := tc.err(ctx)
				resilience.ReportBackend(ctx, refused)
				return 0, err
			})
			assert.Equal(t, tc.attempts, r.Attempts)
		})
	}
}

// What is certain of an error within others is certain of them only where they say nothing more.
func TestPromise8ErrorsAroundOneThatHadNoEffect(t *testing.T) {
	none := resilience.MarkTransient(errBoom)
	c := resilience.NewConnector(func(context.Context) (int, error) { return 0, errBoom },
		resilience.ConnectorConfig[int]{})
	defer func() { assert.NoError(t, c.Close()) }()
	_, down := c.Get(t.Context())
	for name, tc := range map[string]struct {
		err    error
		repeat bool
	}{
		"an Error of a single call":   {&resilience.Error{Code: resilience.CodeToolFailed, Retryable: true, Err: none}, true},
		"an Error of several":         {&resilience.Error{Code: "BUSY", Retryable: true, Err: none}, false},
		"a panic":                     {&resilience.Error{Code: resilience.CodeToolFailed, Retryable: true, Err: &resilience.PanicError{Value: none}}, false},
		"several, then no connection": {&resilience.Error{Code: "BUSY", Retryable: true, Err: errors.Unwrap(down)}, false},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
			r := resilience.Run(t.Context(), g, "x", failing(9, tc.err))
			assert.Equal(t, tc.repeat, r.Attempts > 1)
		})
	}
}

// A mark within a panic doesn't speak for what the tool has done before.
func TestPromise8PanicWithAMarkAfterARequest(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		repeat bool
	}{
		"a mark":  {resilience.MarkTransient(errBoom), true},
		"a panic": {fmt.Errorf("x: %w", &resilience.PanicError{Value: resilience.MarkTransient(errBoom)}), false},
	} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := configWith(resilience.Tool{Effect: resilience.NonIdempotent})
			cfg.Tools["inner"] = resilience.Tool{Effect: resilience.NonIdempotent}
			cfg.Retry.Classify = func(error) resilience.Class { return resilience.ClassTransient }
			g := newGuard(t, cfg)
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				_, err := resilience.Do(ctx, g, "inner", succeed)
				assert.NoError(t, err)
				return 0, tc.err
			})
			assert.Equal(t, tc.repeat, r.Attempts > 1)
		})
	}
}

// What a proxy that isn't there has kept from being sent had no effect.
func TestRefusedProxyIsARefusedConnection(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	for _, scheme := range []string{"http", "socks5"} {
		for _, watched := range []bool{false, true} {
			var transport http.RoundTripper = &http.Transport{
				Proxy: http.ProxyURL(&url.URL{Scheme: scheme, Host: listener.Addr().String()}),
			}
			if watched {
				transport = resilience.Transport(transport)
			}
			g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent, Retry: &resilience.Retry{
				MaxRetries: 2, Backoff: resilience.Backoff{Base: time.Nanosecond, Max: time.Nanosecond},
			}})
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://api.example.com/", strings.NewReader("{}"))
				if err != nil {
					return 0, err
				}
				res, err := (&http.Client{Transport: transport}).Do(req)
				if err != nil {
					return 0, err
				}
				return res.StatusCode, res.Body.Close()
			})
			assert.Equal(t, 3, r.Attempts, "%s, %t", scheme, watched)
			assert.True(t, r.Err.Retryable)
		}
	}
}

// A proxy may answer by HTTP/1 on a connection of HTTP/2, at once or once it has received a request.
func TestAnswerOfAnotherProtocolIsNone(t *testing.T) {
	for name, await := range map[string]func(io.Reader){"at once": func(io.Reader) {}, "to a request": awaitHeaders} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(nil)
			server.EnableHTTP2 = true
			server.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
				"h2": func(_ *http.Server, conn *tls.Conn, _ http.Handler) {
					await(conn)
					_, _ = io.WriteString(conn, "HTTP/1.1 503 Service Unavailable\r\n\r\n")
					_, _ = io.Copy(io.Discard, conn) // or the connection would be reset
				},
			}
			server.StartTLS()
			defer server.Close()
			_, err := server.Client().Post(server.URL, "", strings.NewReader("{}"))
			assert.Equal(t, "trouble", judged(t, err), "%v", err)
			assert.Equal(t, "Connection lost: no valid answer", resilience.AsError("x", err).Message)
		})
	}
}

// awaitHeaders reads the frames of HTTP/2 from a client's preface to the first headers of a request (RFC 9113, sections
// 3.4, 4.1 and 6.2).
func awaitHeaders(from io.Reader) {
	_, _ = io.CopyN(io.Discard, from, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")))
	for {
		var frame [9]byte
		if _, err := io.ReadFull(from, frame[:]); err != nil || frame[3] == 1 {
			return
		}
		_, _ = io.CopyN(io.Discard, from, int64(frame[0])<<16|int64(frame[1])<<8|int64(frame[2]))
	}
}
