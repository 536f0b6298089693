package resilience_test

import (
	"context"
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

	"github.com/seed8d1e2389/resilience"
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
		"closed":           {err: fmt.Errorf("x: %w", net.ErrClosed), reason: "connection closed"},
		"unexpected EOF":   {err: io.ErrUnexpectedEOF, reason: closedByOther},
		"EOF of a request": {err: &url.Error{Op: "Post", URL: "http://x", Err: io.EOF}, reason: closedByOther},
		"DNS":              {err: &net.DNSError{Name: "db.internal", IsNotFound: true}, reason: "host not found"},
		"network":          {err: &net.OpError{Op: "read", Err: errBoom}, reason: "network error"},
		"network timeout":  {err: &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, reason: "network timeout"},
	} {
		t.Run(name, errorTest{
			err:     tc.err,
			class:   tc.class,
			code:    resilience.CodeConnectionLost,
			message: "Connection lost: " + tc.reason,
		}.check)
	}
}

// They implement net.Error, or come from reading, but no connection is gone.
func TestErrorsThatConcernNoConnectionAreFailuresOfTheTool(t *testing.T) {
	_, parseError := url.Parse(invalidURL)
	for name, err := range map[string]error{
		"bare EOF":        io.EOF,
		"invalid URL":     parseError,
		"invalid address": &net.AddrError{Err: "missing port", Addr: "x"},
		"invalid CIDR":    &net.ParseError{Type: "CIDR address", Text: "x"},
	} {
		t.Run(name, errorTest{
			err:     err,
			class:   resilience.ClassTransient,
			code:    resilience.CodeToolFailed,
			message: "Tool 'x' failed",
		}.check)
	}
}

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
