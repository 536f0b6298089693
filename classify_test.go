package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var noURL = "http://[::1"

var errBoom = errors.New("boom at 10.0.0.7 with password hunter2")

type waitError struct{ d time.Duration }

func (w waitError) Error() string             { return "busy" }
func (w waitError) RetryAfter() time.Duration { return w.d }

func TestClassifyAndAsError(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	_, parseErr := url.Parse(noURL)
	_, openErr := os.Open("/does/not/exist")
	for name, tc := range map[string]struct {
		err     error
		class   resilience.Class
		code    resilience.Code
		message string // "": Tool 'x' failed
	}{
		"plain":                 {errBoom, resilience.Transient, resilience.CodeToolFailed, ""},
		"marked transient":      {resilience.MarkTransient(errBoom), resilience.Transient, resilience.CodeToolFailed, ""},
		"marked permanent":      {fmt.Errorf("x: %w", resilience.MarkPermanent(errBoom)), resilience.Permanent, resilience.CodeToolFailed, ""},
		"marked invalid":        {resilience.MarkInvalid(errBoom), resilience.Invalid, resilience.CodeValidation, "Tool 'x' got invalid arguments"},
		"outermost mark":        {resilience.MarkTransient(resilience.MarkPermanent(errBoom)), resilience.Transient, resilience.CodeToolFailed, ""},
		"mark in a join":        {errors.Join(errBoom, resilience.MarkInvalid(io.EOF)), resilience.Invalid, resilience.CodeValidation, "Tool 'x' got invalid arguments"},
		"backoff permanent":     {backoff.Permanent(errBoom), resilience.Permanent, resilience.CodeToolFailed, ""},
		"wrapped permanent":     {fmt.Errorf("x: %w", backoff.Permanent(errBoom)), resilience.Permanent, resilience.CodeToolFailed, ""},
		"mark around an Error":  {resilience.MarkPermanent(resilience.TimeoutError("x", 0)), resilience.Permanent, resilience.CodeTimeout, "Tool 'x' timed out"},
		"panic":                 {&resilience.PanicError{Value: "p"}, resilience.Permanent, resilience.CodeToolFailed, ""},
		"goexit":                {resilience.ErrGoexit, resilience.Permanent, resilience.CodeToolFailed, ""},
		"canceled":              {fmt.Errorf("x: %w", context.Canceled), resilience.Canceled, resilience.CodeCanceled, "The call was canceled"},
		"deadline":              {fmt.Errorf("x: %w", context.DeadlineExceeded), resilience.Transient, resilience.CodeTimeout, "Tool 'x' timed out"},
		"reset":                 {fmt.Errorf("read: %w", syscall.ECONNRESET), resilience.Transient, resilience.CodeConnectionLost, "Connection lost: connection reset by the other side"},
		"pipe":                  {&fs.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}, resilience.Transient, resilience.CodeConnectionLost, "Connection lost: connection closed by the other side"},
		"refused":               {refused, resilience.Transient, resilience.CodeConnectionLost, "Connection lost: connection refused"},
		"refused in a URL":      {&url.Error{Op: "Get", URL: "http://10.0.0.7", Err: refused}, resilience.Transient, resilience.CodeConnectionLost, "Connection lost: connection refused"},
		"closed":                {fmt.Errorf("x: %w", net.ErrClosed), resilience.Transient, resilience.CodeConnectionLost, "Connection lost: connection closed"},
		"unexpected EOF":        {io.ErrUnexpectedEOF, resilience.Transient, resilience.CodeConnectionLost, "Connection lost: connection closed by the other side"},
		"EOF of a request":      {&url.Error{Op: "Post", URL: "http://x", Err: io.EOF}, resilience.Transient, resilience.CodeConnectionLost, "Connection lost: connection closed by the other side"},
		"bare EOF":              {io.EOF, resilience.Transient, resilience.CodeToolFailed, ""},
		"DNS":                   {&net.DNSError{Name: "db.internal", IsNotFound: true}, resilience.Transient, resilience.CodeConnectionLost, "Connection lost: host not found"},
		"network":               {&net.OpError{Op: "read", Err: errBoom}, resilience.Transient, resilience.CodeConnectionLost, "Connection lost: network error"},
		"network timeout":       {&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, resilience.Transient, resilience.CodeConnectionLost, "Connection lost: network timeout"},
		"a URL that is wrong":   {parseErr, resilience.Transient, resilience.CodeToolFailed, ""},
		"an address":            {&net.AddrError{Err: "missing port", Addr: "x"}, resilience.Transient, resilience.CodeToolFailed, ""},
		"a CIDR":                {&net.ParseError{Type: "CIDR address", Text: "x"}, resilience.Transient, resilience.CodeToolFailed, ""},
		"a file that isn't":     {openErr, resilience.Transient, resilience.CodeToolFailed, ""},
		"permanent and refused": {resilience.MarkPermanent(refused), resilience.Permanent, resilience.CodeConnectionLost, "Connection lost: connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.class, resilience.Classify(tc.err), "class %v", tc.class)
			e := resilience.AsError("x", tc.err)
			assert.Equal(t, tc.code, e.Code)
			if tc.message == "" {
				tc.message = "Tool 'x' failed"
			}
			assert.Equal(t, tc.message, e.Message)
			assert.Equal(t, "x", e.Tool)
			if e.Code != resilience.CodeTimeout || errors.Is(tc.err, context.DeadlineExceeded) && tc.class == resilience.Transient {
				assert.Equal(t, tc.class == resilience.Transient, e.Retryable)
			}
			assert.ErrorIs(t, e, tc.err)
			assert.NotContains(t, jsonOf(t, e), "10.0.0.7")
			assert.NotContains(t, jsonOf(t, e), "hunter2")
		})
	}
}

func TestClassifyCodes(t *testing.T) {
	for code, class := range map[resilience.Code]resilience.Class{
		resilience.CodeTimeout:        resilience.Transient,
		resilience.CodeCircuitOpen:    resilience.Transient,
		resilience.CodeConnectionLost: resilience.Transient,
		resilience.CodeOverloaded:     resilience.Transient,
		resilience.CodeRetryExhausted: resilience.Permanent,
		resilience.CodeToolFailed:     resilience.Permanent,
		resilience.CodeToolNotFound:   resilience.Invalid,
		resilience.CodeValidation:     resilience.Invalid,
		resilience.CodeCanceled:       resilience.Canceled,
		"BUSY":                        resilience.Permanent,
	} {
		assert.Equal(t, class, resilience.Classify(&resilience.Error{Code: code}), "%s", code)
	}
	assert.Equal(t, resilience.Transient, resilience.Classify(&resilience.Error{Code: resilience.CodeToolFailed, Retryable: true}))
	assert.Equal(t, resilience.Transient, resilience.Classify(nil))
	assert.Equal(t, []string{"transient", "permanent", "invalid", "canceled"},
		[]string{resilience.Transient.String(), resilience.Permanent.String(), resilience.Invalid.String(), resilience.Canceled.String()})
}

func TestMarks(t *testing.T) {
	for _, mark := range []func(error) error{resilience.MarkTransient, resilience.MarkPermanent, resilience.MarkInvalid} {
		assert.NoError(t, mark(nil))
		assert.EqualError(t, mark(io.EOF), "EOF")
		assert.ErrorIs(t, mark(io.EOF), io.EOF)
	}
}

func TestAsErrorLeavesAnErrorWhole(t *testing.T) {
	assert.Nil(t, resilience.AsError("x", nil))

	whole := &resilience.Error{Code: "BUSY", Tool: "inner", Message: "m", Suggestion: "s"}
	assert.Same(t, whole, resilience.AsError("x", whole))

	bare := &resilience.Error{Message: "The disk is full", Err: io.ErrShortWrite}
	e := resilience.AsError("x", bare)
	assert.Equal(t, resilience.CodeToolFailed, e.Code)
	assert.Equal(t, "x", e.Tool)
	assert.Equal(t, "The disk is full", e.Message)
	assert.NotEmpty(t, e.Suggestion)
	assert.Equal(t, &resilience.Error{Message: "The disk is full", Err: io.ErrShortWrite}, bare, "the tool's own is never changed")
	assert.ErrorIs(t, e, bare)
	assert.ErrorIs(t, e, io.ErrShortWrite)

	wrapped := fmt.Errorf("while saving: %w", &resilience.Error{Code: "BUSY"})
	e = resilience.AsError("x", wrapped)
	assert.Equal(t, resilience.Code("BUSY"), e.Code)
	assert.Equal(t, "Tool 'x' failed", e.Message)
	assert.ErrorIs(t, e, wrapped, "what it is wrapped in is kept")
}

func TestAsErrorRetryAfter(t *testing.T) {
	assert.Equal(t, time.Minute, resilience.AsError("x", fmt.Errorf("x: %w", waitError{time.Minute})).RetryAfter)
	assert.Zero(t, resilience.AsError("x", waitError{-1}).RetryAfter)
	assert.Zero(t, resilience.AsError("x", resilience.MarkPermanent(waitError{time.Minute})).RetryAfter, "nothing to wait for")
}

type typedNil struct{ cause error }

func (e *typedNil) Error() string { return e.cause.Error() }
func (e *typedNil) Unwrap() error { return e.cause }

// A nil pointer returned as an error is an old mistake: it must not end the process.
func TestAsErrorSurvivesATypedNil(t *testing.T) {
	var err *typedNil
	e := resilience.AsError("x", err)
	assert.Equal(t, resilience.CodeToolFailed, e.Code)
	assert.Equal(t, "Tool 'x' failed", e.Message)

	var own *resilience.Error
	e = resilience.AsError("x", own)
	assert.Equal(t, resilience.CodeToolFailed, e.Code)
	assert.NotErrorIs(t, e, io.EOF)
}

// What the standard library really returns, not what we think it does.
func TestAsErrorOfRealConnections(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	_, err := http.Get(server.URL)
	require.Error(t, err)
	assert.Equal(t, resilience.CodeConnectionLost, resilience.AsError("x", err).Code, "%v", err)

	server.Close()
	_, err = http.Get("http://127.0.0.1:1") // where nothing listens; the server's port may be another's by now
	require.Error(t, err)
	e := resilience.AsError("x", err)
	assert.Equal(t, "Connection lost: connection refused", e.Message, "%v", err)

	_, err = http.Get("nonsense://x")
	require.Error(t, err)
	assert.Equal(t, resilience.CodeToolFailed, resilience.AsError("x", err).Code, "%v", err)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	_, err = http.DefaultClient.Do(req)
	require.Error(t, err)
	assert.Equal(t, resilience.Canceled, resilience.Classify(err), "%v", err)
}
