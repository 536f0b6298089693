package resilience_test

import (
	"context"
	"database/sql/driver"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// These errors have the methods of well-known libraries.
type (
	sqlError    string // pgx and lib/pq
	awsError    int    // the AWS SDK v2
	statusError int    // many clients of HTTP APIs
	grpcError   uint32 // google.golang.org/grpc
	exitError   int    // os/exec; -1 is a command that was killed
	netError    bool   // a net.Error of another package, such as kafka-go's; whether it is a timeout

	grpcStatus uint32
	grpcCode   uint32
)

func (sqlError) Error() string      { return "SQL" }
func (e sqlError) SQLState() string { return string(e) }

func (awsError) Error() string         { return "AWS" }
func (e awsError) HTTPStatusCode() int { return int(e) }

func (statusError) Error() string     { return "status" }
func (e statusError) StatusCode() int { return int(e) }

func (grpcError) Error() string             { return "gRPC" }
func (e grpcError) GRPCStatus() *grpcStatus { s := grpcStatus(e); return &s }
func (s *grpcStatus) Code() grpcCode        { return grpcCode(*s) }

func (exitError) Error() string   { return "exit status" }
func (e exitError) ExitCode() int { return int(e) }

func (netError) Error() string   { return "foreign" }
func (e netError) Timeout() bool { return bool(e) }
func (netError) Temporary() bool { return false }

// A panickingStatus has the method of a statusError, which panics.
type panickingStatus struct{}

func (panickingStatus) Error() string   { return "panics" }
func (panickingStatus) StatusCode() int { panic("no status") }

// behindAdapter makes a call as an adapter of an MCP SDK does: a failure that nothing explains isn't counted.
var behindAdapter = resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral})

// runTool calls a tool of a guard of its own, and reports whether the breaker has counted the call.
func runTool(
	t *testing.T, x resilience.Tool, fn toolFunc, options ...resilience.Option,
) (resilience.Result[int], bool) {
	t.Helper()
	g := guardWith(t, x)
	r := resilience.Run(t.Context(), g, "x", fn, options...)
	return r, g.Breaker("x").Failures() == 1
}

// These tools have an Effect, or no retries.
var (
	reads  = resilience.Tool{Effect: resilience.ReadOnly}
	writes = resilience.Tool{Effect: resilience.NonIdempotent}
	once   = resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}}
)

// reporting returns a tool that reports on its backend and fails with err. The report is nil if the backend works.
func reporting(report, err error) toolFunc {
	return func(ctx context.Context) (int, error) {
		resilience.ReportBackend(ctx, report)
		return 0, err
	}
}

// noConnection returns the error of a Connector that can't connect.
func noConnection(t *testing.T) error {
	t.Helper()
	dial := func(context.Context) (int, error) { return 0, errBoom }
	c := resilience.NewConnector(dial, resilience.ConnectorConfig[int]{MaxAttempts: 1})
	_, err := c.Wait(t.Context())
	require.Error(t, err)
	require.NoError(t, c.Close())
	return err
}

// judgment returns what a guard has made of the error of its only call.
func judgment(g *resilience.Guard, e *resilience.Error) string {
	switch {
	case g.Health()[0].ConsecutiveFailures == 1:
		return "trouble"
	case e.Code == resilience.CodeValidation:
		return "rejected"
	}
	return "nothing"
}

// judged returns what the guard behind an adapter makes of the error of fn.
func judged(t *testing.T, fn toolFunc) string {
	t.Helper()
	g := guardWith(t, once)
	r := resilience.Run(t.Context(), g, "x", fn, behindAdapter)
	return judgment(g, r.Err)
}

// TestTableOfErrors has the usual values. These are the edges.
func TestTypeOfAnErrorTellsWhoseFaultItIs(t *testing.T) {
	op := func(op, network string, err error) error { return &net.OpError{Op: op, Net: network, Err: err} }
	path := func(op string, err error) error { return &fs.PathError{Op: op, Path: "/x", Err: err} }
	for want, errs := range map[string][]error{
		"trouble": {
			sqlError("08000"), sqlError("57P03"), statusError(506),
			op("dial", "tcp", os.NewSyscallError("connect", syscall.EADDRNOTAVAIL)),
			op("dial", "unix", os.NewSyscallError("connect", syscall.ENOENT)),
			op("write", "tcp", os.NewSyscallError("write", syscall.EPIPE)), op("write", "tcp", errBoom), netError(true),
		},
		"rejected": {statusError(428), statusError(430)},
		"nothing": {
			sqlError("0800"), sqlError("080000"), sqlError(""), grpcError(0), grpcError(17),
			netError(false), fmt.Errorf("decoding: %w", io.ErrUnexpectedEOF),
			op("dial", "tcp6", os.NewSyscallError("connect", syscall.EINVAL)), op("listen", "tcp", errBoom),
			&url.Error{Op: "parse", Err: io.EOF}, &url.Error{Op: "Post", Err: fmt.Errorf("reading: %w", io.EOF)},
			fmt.Errorf("line 1: %w", io.EOF), &http.MaxBytesError{Limit: 1}, path("read", os.ErrDeadlineExceeded),
			&net.ParseError{Type: "IP address", Text: "x"}, &net.AddrError{Err: "x"}, net.UnknownNetworkError("x"),
			&net.DNSError{Err: "unrecognized address"},
		},
	} {
		for _, err := range errs {
			assert.Equal(t, want, judged(t, failing(9, err)), "%T %v", err, err)
		}
	}
}

// Trouble in the tool's own error counts after any report. An error of no known type is judged by the report.
func TestErrorAfterAReportOfItsBackend(t *testing.T) {
	cached := &fs.PathError{Op: "open", Path: "/cache/x", Err: fs.ErrNotExist}
	for _, tc := range []struct {
		reported, err error
		want          string
	}{
		{statusError(404), context.DeadlineExceeded, "trouble"},
		{statusError(404), statusError(503), "trouble"},
		{statusError(404), io.ErrUnexpectedEOF, "rejected"},
		{statusError(404), errBoom, "rejected"},
		{statusError(503), errBoom, "trouble"},
		{statusError(503), cached, "trouble"}, // a fallback that fails, too
		{nil, io.ErrUnexpectedEOF, "nothing"},
		{nil, syscall.ECONNRESET, "trouble"},
		{nil, statusError(404), "rejected"},
		{resilience.MarkInvalid(errBoom), errBoom, "rejected"},
	} {
		assert.Equal(t, tc.want, judged(t, reporting(tc.reported, tc.err)), "%v after %v", tc.err, tc.reported)
	}
}

// If a tool's own error has no known type, the report of its backend decides about a retry, too.
func TestReportDecidesWhetherToRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := runTool(t, reads, reporting(resilience.MarkPermanent(errBoom), errBoom))
		assert.Equal(t, 1, r.Attempts)
		r, _ = runTool(t, reads, reporting(resilience.MarkNoEffect(errBoom), errBoom))
		assert.Equal(t, 4, r.Attempts)
	})
}

func TestLostConnectionHasAReason(t *testing.T) {
	const closedByOther, reset = "connection closed by the other side", "connection reset by the other side"
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	unknownHost := &net.DNSError{Name: "db.internal", IsNotFound: true}
	timedOut := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	for reason, errs := range map[string][]error{
		reset:                 {syscall.ECONNRESET, fmt.Errorf("read: %w", syscall.ECONNRESET)},
		"connection aborted":  {syscall.ECONNABORTED},
		"connection refused":  {syscall.ECONNREFUSED, refused, &url.Error{Op: "Get", Err: refused}},
		"connection closed":   {fmt.Errorf("x: %w", net.ErrClosed), fmt.Errorf("query: %w", driver.ErrBadConn)},
		closedByOther:         {syscall.EPIPE, io.ErrUnexpectedEOF, &url.Error{Op: "Post", Err: io.EOF}},
		"host not found":      {unknownHost, fmt.Errorf("x: %w", unknownHost)},
		"host unreachable":    {syscall.EHOSTUNREACH},
		"network unreachable": {syscall.ENETUNREACH},
		"network error":       {&net.OpError{Op: "read", Err: errBoom}},
		"network timeout":     {syscall.ETIMEDOUT, timedOut},
		"the host can't be looked up": {
			&net.DNSError{Err: "server misbehaving", Name: "db.internal", IsTemporary: true},
			&net.OpError{Op: "dial", Err: &net.DNSError{UnwrapErr: timedOut}},
		},
	} {
		for _, err := range errs {
			t.Run(err.Error(), errorTest{err, resilience.ClassTransient, resilience.CodeConnectionLost,
				"Connection lost: " + reason}.check)
		}
	}

	t.Run("marked", errorTest{resilience.MarkPermanent(refused), resilience.ClassPermanent,
		resilience.CodeConnectionLost, "Connection lost: connection refused"}.check)
	if runtime.GOOS == "windows" { // WSAECONNRESET
		err := &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("wsarecv", syscall.Errno(10054))}
		assert.Equal(t, "Connection lost: "+reset, resilience.AsError("x", err).Message)
	}
}

// post sends a request that gets no answer.
func post(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
	if err == nil {
		_, err = client.Do(req)
	}
	return err
}

// The standard library must really return the errors that the tables expect.
func TestRealConnectionsAreLost(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	canceled, _ := endedContexts(t)

	err := post(t.Context(), server.Client(), server.URL)
	assert.ErrorIs(t, resilience.AsError("x", err), resilience.CodeConnectionLost, "%v", err)
	err = post(t.Context(), server.Client(), "http://127.0.0.1:1") // nothing listens there
	assert.Equal(t, "Connection lost: connection refused", resilience.AsError("x", err).Message, "%v", err)
	err = post(t.Context(), server.Client(), "nonsense://x")
	assert.ErrorIs(t, resilience.AsError("x", err), resilience.CodeToolFailed, "%v", err)
	err = post(canceled, server.Client(), server.URL)
	assert.Equal(t, resilience.ClassCanceled, resilience.Classify(err), "%v", err)
}

// A request that can't reach its proxy was never sent, so even a write may be repeated.
func TestRefusedProxyIsARefusedConnection(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	quick := resilience.Retry{MaxRetries: 2, Backoff: resilience.Backoff{Base: time.Nanosecond, Max: time.Nanosecond}}
	tool := resilience.Tool{Effect: resilience.NonIdempotent, Retry: &quick}

	for _, scheme := range []string{"http", "socks5"} {
		proxy := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: scheme, Host: listener.Addr().String()})}
		for _, transport := range []http.RoundTripper{proxy, resilience.Transport(proxy)} {
			r, _ := runTool(t, tool, func(ctx context.Context) (int, error) {
				return 0, post(ctx, &http.Client{Transport: transport}, "https://api.example.com/")
			})
			assert.Equal(t, 3, r.Attempts, "%s, %T", scheme, transport)
			assert.True(t, r.Err.Retryable)
		}
	}
}
