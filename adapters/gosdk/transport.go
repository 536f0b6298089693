package gosdk

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/seed8d1e2389/resilience"
)

// maxRefusal bounds how much of a refusal's body is read, in bytes.
const maxRefusal = 1 << 20

// Transport returns a RoundTripper for the HTTPClient of an mcp.StreamableClientTransport. It reports the server's
// answers to the guarded call, as [resilience.Transport] does, and their Retry-After to the dial of a [Session]. The
// refusal of one request by something other than MCP, such as a proxy's limit on its length, ends only that request:
// without a Transport, the SDK ends the session, with all calls in flight. Errors of MCP are left as they are. So is
// status 404 for a request of a session, by which a server ends it.
//
// A nil base is a copy of http.DefaultTransport that finds dead connections of HTTP/2 within 15s. Otherwise, net/http
// uses them for up to a quarter of an hour, as after a laptop's sleep: set the HTTP2.SendPingTimeout of a base of your
// own. The RoundTripper is safe for concurrent use if base is.
func Transport(base http.RoundTripper) http.RoundTripper {
	if standard, ok := http.DefaultTransport.(*http.Transport); ok && base == nil {
		clone := standard.Clone()
		clone.HTTP2 = &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second}
		base = clone
	}
	return &transport{resilience.Transport(base)}
}

type transport struct{ http.RoundTripper }

// RoundTrip returns an error for a refusal, which the SDK takes for that of a single request. The refusal of a login
// must remain an answer, so that an auth.OAuthHandler can log in: it becomes an error of MCP.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.RoundTripper.RoundTrip(req)
	isStream := strings.Contains(req.Header.Get("Accept"), "text/event-stream") // rather than for a login's token
	switch {
	case err != nil:
		return nil, err
	case req.Method != http.MethodPost, !isStream, res.StatusCode < 400,
		res.StatusCode == http.StatusNotFound && req.Header.Get("Mcp-Session-Id") != "":
		return res, nil
	}

	body, err := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
	_ = res.Body.Close()
	if err != nil {
		return nil, err
	}
	isLogin := res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden
	switch {
	case isErrorOfMCP(body) && !isBusy(res.StatusCode):
	case isLogin:
		body = []byte(`{"jsonrpc":"2.0","id":"refused","error":{"code":-32000,"message":"refused"}}`)
	default:
		text := fmt.Errorf("status %d %s", res.StatusCode, http.StatusText(res.StatusCode))
		return nil, &statusError{text, res.StatusCode, retryAfter(res.Header)}
	}
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return res, nil
}

// CloseIdleConnections is the method that http.Client.CloseIdleConnections looks for.
func (t *transport) CloseIdleConnections() {
	t.RoundTripper.(interface{ CloseIdleConnections() }).CloseIdleConnections()
}

// isErrorOfMCP reports whether the SDK takes the body of a refusal for an error of MCP. It doesn't if the ID is null.
func isErrorOfMCP(body []byte) bool {
	message, err := jsonrpc.DecodeMessage(body)
	answer, ok := message.(*jsonrpc.Response)
	return err == nil && ok && answer.Error != nil
}

// isBusy reports whether the SDK looks at nothing but the status.
func isBusy(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// retryAfter returns how long the server asks to wait, zero if it doesn't.
func retryAfter(h http.Header) time.Duration {
	asks := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.Atoi(asks); err == nil {
		return time.Duration(max(seconds, 0)) * time.Second
	}
	if at, err := http.ParseTime(asks); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}
