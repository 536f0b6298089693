package gosdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// busy is what the SDK says of a status by which it keeps the session.
func busy(status string) error {
	return calling(fmt.Errorf(`%w: sending "tools/call": %s`, errRejected, status))
}

// sending is what the SDK says of another status, by which it ends the session.
func sending(status string) error { return calling(fmt.Errorf(`sending "tools/call": %s`, status)) }

// What an error of the SDK means is found without a server: whose fault it is, and what the agent reads.
func TestErrorsOfTheSDK(t *testing.T) {
	const invalid, neutral, trouble = resilience.ClassInvalid, resilience.ClassNeutral, resilience.ClassTransient
	const closed = "Connection lost: the server has closed the connection"
	const ended = "Connection lost: the server has ended the session"
	const limited = "The backend of 'x' limits requests: call again later"
	const refused, anyError = "The server refused the request: ", "Tool 'x' failed"
	notFound := func(err error) error { return calling(fmt.Errorf("%w: %w: Not Found", err, errRejected)) }
	unanswered := errors.New("request terminated without response")
	badRequest := calling(fmt.Errorf("%w: %w: Bad Request", unknown, errRejected))
	own := &resilience.Error{Code: "MINE", Message: "mine", Err: calling(io.EOF)}
	dial := rejected(&url.Error{Op: "Post", URL: "http://x", Err: &net.OpError{Op: "dial", Err: errors.New("refused")}})

	for name, tc := range map[string]struct {
		err     error
		class   resilience.Class
		code    resilience.Code
		message string // empty: any
	}{
		"closed":                  {fmt.Errorf("%w: x", mcp.ErrConnectionClosed), trouble, "CONNECTION_LOST", closed},
		"missing":                 {calling(mcp.ErrSessionMissing), trouble, "CONNECTION_LOST", ended},
		"the end":                 {calling(io.EOF), trouble, "CONNECTION_LOST", closed},
		"no answer":               {calling(unanswered), trouble, "CONNECTION_LOST", closed},
		"404":                     {sending("Not Found"), trouble, "CONNECTION_LOST", ended},
		"404, wrong arguments":    {notFound(wrong), invalid, "VALIDATION_ERROR", ""},
		"404, of Python":          {notFound(&jsonrpc.Error{Code: -32600}), trouble, "CONNECTION_LOST", ended},
		"400":                     {sending("Bad Request"), neutral, "TOOL_FAILED", refused + "400 Bad Request"},
		"400, an error of MCP":    {badRequest, neutral, "TOOL_FAILED", refused + "400 Bad Request"},
		"501":                     {busy("Not Implemented"), neutral, "TOOL_FAILED", refused + "501 Not Implemented"},
		"429":                     {busy("Too Many Requests"), neutral, "RATE_LIMITED", limited},
		"503":                     {busy("Service Unavailable"), trouble, "TOOL_FAILED", ""},
		"504":                     {busy("Gateway Timeout"), trouble, "TIMEOUT", ""},
		"an unknown status":       {sending(""), neutral, "TOOL_FAILED", anyError},
		"words like a status":     {errors.New("reading the file: Not Found"), neutral, "TOOL_FAILED", anyError},
		"wrong arguments":         {calling(wrong), invalid, "VALIDATION_ERROR", ""},
		"an internal error":       {calling(unknown), neutral, "TOOL_FAILED", anyError},
		"a page to visit first":   {wireError(mcp.CodeURLElicitationRequired, ""), invalid, "VALIDATION_ERROR", ""},
		"an error of the guard's": {fmt.Errorf("x: %w", own), resilience.ClassPermanent, "MINE", "mine"},
		"a refused connection":    {dial, trouble, "CONNECTION_LOST", "Connection lost: the server can't be reached"},
		"not this connection":     {dial, trouble, "CONNECTION_LOST", ""},
		"another error before":    {rejected(errors.New("x509: unknown authority")), neutral, "TOOL_FAILED", anyError},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{Effect: resilience.NonIdempotent, Retry: fast})
			runs := 0
			call := gosdk.ClientMiddleware(g)(func(ctx context.Context, _ string, _ mcp.Request) (mcp.Result, error) {
				if runs++; name == "a refused connection" || name == "another error before" {
					httptrace.ContextClientTrace(ctx).GetConn("x")
				}
				return nil, tc.err
			})
			_, err := call(t.Context(), "tools/call", &mcp.ClientRequest[*mcp.CallToolParams]{
				Params: &mcp.CallToolParams{Name: "x"},
			})
			require.ErrorIs(t, err, tc.err)
			var e *resilience.Error
			require.ErrorAs(t, err, &e)
			counted := tc.class == trouble || tc.class == resilience.ClassPermanent
			assert.Equal(t, counted, g.Breaker("x").Failures() == 1)
			assert.Equal(t, name == "a page to visit first", errors.Is(err, resilience.ErrUnfinished))

			if name == "a refused connection" {
				assert.Equal(t, 4, runs, "it is retried for any tool")
				assert.Equal(t, resilience.CodeRetryExhausted, e.Code)
				assert.Equal(t, tc.code, e.LastCode)
				return
			}
			assert.Equal(t, 1, runs)
			assert.Equal(t, tc.code, e.Code)
			if tc.message != "" {
				assert.Equal(t, tc.message, e.Message)
			}
		})
	}
}

// Without a guard, the error of a use has the same words, and the time that a Transport has read.
func TestErrorOfAUseWithoutAGuard(t *testing.T) {
	h := serveHTTP(t, newPeer().server)
	s := newSession(t, dialHTTP(h, gosdk.Transport(nil), legacy, false), sessionConfig{})
	busy := func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Retry-After", "40")
		refusal{503, "%s"}.write(w, r)
		return true
	}
	h.intercept.Store(&busy)
	_, err := echo(t.Context(), s)
	assert.Equal(t, 40*time.Second, resilience.AsError("", err).RetryAfter)

	s = newSession(t, newPeer().dial, sessionConfig{Backoff: steady(time.Hour)})
	err = failUse(t, s, sending("Bad Request"))
	var e *resilience.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, resilience.CodeToolFailed, e.Code)
	assert.True(t, e.Retryable)
	assert.Equal(t, resilience.ClassNeutral, resilience.Classify(err))
	e = requireLost(t, failUse(t, s, calling(io.EOF)))
	assert.InDelta(t, time.Hour, e.RetryAfter, float64(time.Minute))
}
