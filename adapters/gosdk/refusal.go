package gosdk

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/seed8d1e2389/resilience"
)

// codeRejected is the code of the SDK's own error for a request that its transport hasn't sent, or that HTTP has
// refused. A server may use the same code for errors of its own.
const codeRejected = -32005

// isRejected reports whether the SDK says that its transport has rejected this very request.
func isRejected(err error) bool {
	var wire *jsonrpc.Error
	return errors.As(err, &wire) && wire.Code == codeRejected && wire.Message == "rejected by transport"
}

// markRefusal marks an error of the SDK's for a request that HTTP has refused, or that the client's own login hasn't
// let through: an agent, or a user, can bring most of these about.
func markRefusal(err error) error {
	if isRejected(err) {
		var request *url.Error
		switch {
		case strings.Contains(err.Error(), ": rejected by transport: sending "):
			return resilience.MarkBackend(err) // 429, 502, 503 or 504: the call may have reached the server
		case errors.As(err, &request):
			return err
		}
		return resilience.MarkNeutral(err) // of the login
	}

	switch status := statusOf(err); {
	case status == 0:
		return err
	case status < 500, status == http.StatusNotImplemented, status == http.StatusHTTPVersionNotSupported:
		return resilience.MarkNeutral(err) // also for other calls that end with the session
	default:
		return resilience.MarkBackend(err)
	}
}

// statusOf returns the status from 400 with which an HTTP server has refused a request without an error of MCP, zero
// if err isn't about that. Only the text tells. The SDK then gives up the session, and ends all its calls with this
// error.
func statusOf(err error) int {
	var wire *jsonrpc.Error
	if errors.As(err, &wire) || !isCallError(err) {
		return 0
	}

	text := err.Error()
	if _, status, found := strings.Cut(text, `": failed to write: `); found { // by the transport for SSE
		code, _, _ := strings.Cut(status, " ")
		n, _ := strconv.Atoi(code)
		return n
	}
	_, sending, _ := strings.Cut(text, `": sending "`)
	_, status, _ := strings.Cut(sending, `": `)
	for code := 400; status != "" && code < 600; code++ {
		if http.StatusText(code) == status {
			return code
		}
	}
	return 0
}
