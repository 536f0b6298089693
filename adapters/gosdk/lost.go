package gosdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// codeRejected is the code of the SDK's own error for an HTTP request that failed without harm to the session. The SDK
// exports neither the error nor the status of the answer, only its text.
const codeRejected = -32005

// unanswered is the SDK's text for an answer by SSE that broke off.
const unanswered = "request terminated without response"

// isGone reports whether err certainly means that the connection, or the session, no longer exists. The EOF of a single
// HTTP request doesn't.
func isGone(err error) bool {
	return !isQuestion(err) && (errors.Is(err, mcp.ErrConnectionClosed) || errors.Is(err, mcp.ErrSessionMissing) ||
		errors.Is(err, io.EOF) && !isRejected(err))
}

func isRejected(err error) bool { return errors.Is(err, &jsonrpc.Error{Code: codeRejected}) }

// isQuestion reports whether the client's own handler failed to answer a question of the server's.
func isQuestion(err error) bool {
	return strings.HasPrefix(err.Error(), "multi round-trip: fulfilling input request ")
}

// mistakeIn returns the server's answer about the arguments of a request, nil if err holds none. Servers in TypeScript
// use the same code for results that don't match the tool's own schema.
func mistakeIn(err error) *jsonrpc.Error {
	var answer *jsonrpc.Error
	if !errors.As(err, &answer) {
		return nil
	}

	switch answer.Code {
	case jsonrpc.CodeMethodNotFound, mcp.CodeURLElicitationRequired,
		-32002: // a resource wasn't found, in older protocols
		return answer
	case jsonrpc.CodeInvalidParams:
		if !strings.Contains(answer.Message, "structured content") {
			return answer
		}
	}
	return nil
}

// statusOf returns the HTTP status in err, zero if there is none that is known. Without a [Transport], only the text of
// the SDK's error ends with it.
func statusOf(err error) int {
	var known *statusError
	if errors.As(err, &known) {
		return known.status
	}

	text := err.Error()
	if !isRejected(err) && !strings.Contains(text, `sending "`) {
		return 0
	}
	for status := 400; status < 600; status++ {
		if name := http.StatusText(status); name != "" && strings.HasSuffix(text, ": "+name) {
			return status
		}
	}
	return 0
}

// failureOf returns the error for a guard that the error of a request stands for. Any other error than the SDK's is
// returned as it is.
func failureOf(err error, sent *trace) error {
	var own *resilience.Error
	var network *net.OpError
	mistake, status := mistakeIn(err), statusOf(err)

	switch {
	case isQuestion(err):
		return resilience.MarkNeutral(err)
	case errors.As(err, &own): // of a guard within the client, or of another session
		return err
	case errors.As(err, &network) && sent.isUnsent():
		return lostBy(resilience.MarkNoEffect(err), "the server can't be reached")
	case isGone(err), status == http.StatusNotFound && mistake == nil:
		return connectionLost(err)
	case strings.HasSuffix(err.Error(), unanswered):
		return lostBy(err, "the server has closed the connection")
	case mistake != nil && mistake.Code == mcp.CodeURLElicitationRequired:
		return resilience.MarkInvalid(errors.Join(resilience.ErrUnfinished, err))
	case mistake != nil:
		return resilience.MarkInvalid(err)
	case status != 0:
		return statusFailure(err, status)
	}
	return err
}

// connectionLost returns the error of a call whose connection, or session, is gone.
func connectionLost(err error) *resilience.Error {
	if errors.Is(err, mcp.ErrSessionMissing) || statusOf(err) == http.StatusNotFound {
		return lostBy(err, "the server has ended the session")
	}
	return lostBy(err, "the server has closed the connection")
}

func lostBy(err error, reason string) *resilience.Error {
	e := resilience.ConnectionLostError(reason)
	e.Err = err
	return e
}

// statusFailure returns the error of a call that ended with an HTTP status. A server in trouble is counted. A refusal
// isn't, since agents bring most of them about.
func statusFailure(err error, status int) error {
	failed := &statusError{error: err, status: status}
	var known *statusError
	switch {
	case resilience.Classify(failed) == resilience.ClassInvalid:
		return resilience.MarkNeutral(&resilience.Error{
			Code:      resilience.CodeToolFailed,
			Message:   fmt.Sprintf("The server refused the request: %d %s", status, http.StatusText(status)),
			Retryable: true,
			Err:       err,
		})
	case errors.As(err, &known): // it has the time to wait, too
		return err
	}
	return failed
}

// dialFailure returns the error of a dial, which says why the server refused it.
func dialFailure(err error) error {
	var reason string
	switch statusOf(err) {
	case http.StatusUnauthorized, http.StatusForbidden:
		reason = "the login is refused"
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		reason = "the server is too busy"
	default:
		return err
	}

	e := lostBy(err, reason)
	var known *statusError
	if errors.As(err, &known) {
		e.RetryAfter = known.retryAfter
	}
	return e
}

// A statusError is the error of a request that was answered with an HTTP status. The guard reads it by its methods.
type statusError struct {
	error
	status     int
	retryAfter time.Duration // zero if the answer didn't tell
}

func (e *statusError) Unwrap() error             { return e.error }
func (e *statusError) StatusCode() int           { return e.status }
func (e *statusError) RetryAfter() time.Duration { return e.retryAfter }

// A trace tells how far the HTTP requests of an attempt have come. There may be several: a call has rounds in which the
// server asks something, and net/http follows redirects.
type trace struct{ began, connected atomic.Bool }

// watch returns a context with which net/http reports requests to t.
func (t *trace) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { t.began.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { t.connected.Store(true) },
	})
}

// isUnsent reports whether certainly nothing was sent. A transport that isn't net/http's may have sent something.
func (t *trace) isUnsent() bool { return t.began.Load() && !t.connected.Load() }
