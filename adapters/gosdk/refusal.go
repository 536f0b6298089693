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

	switch status, refused := refusal(err); {
	case !refused:
		return err
	case status >= 500 && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported:
		return resilience.MarkBackend(err)
	}
	return resilience.MarkNeutral(err) // also for other calls that end with the session
}

// refusal reports whether an HTTP server has answered a request by something else than MCP, such as a login page, and
// with which status from 300, zero if that isn't known. Only the text tells. The SDK then gives up the session, and ends
// all its calls with this error.
func refusal(err error) (status int, refused bool) {
	var wire *jsonrpc.Error
	if errors.As(err, &wire) || !isCallError(err) {
		return 0, false
	}

	_, said, _ := strings.Cut(err.Error(), `calling "`)
	_, said, _ = strings.Cut(said, `": `)
	if status, found := strings.CutPrefix(said, "failed to write: "); found { // by the transport for SSE
		code, _, _ := strings.Cut(status, " ")
		n, _ := strconv.Atoi(code)
		return n, true
	}
	if !strings.HasPrefix(said, `sending "`) && !strings.HasPrefix(said, "sending jsonrpc response #") {
		return 0, false
	}

	_, said, found := strings.Cut(said, ": ")
	status = statusOf(said)
	return status, found && (said == "" || status != 0 || // the SDK knows no text of some statuses
		strings.HasPrefix(said, "unsupported content type ") || strings.HasPrefix(said, "failed to decode response: "))
}

// statusOf returns the status from 300 with a text, zero if there is none.
func statusOf(text string) int {
	for code := 300; text != "" && code < 600; code++ {
		if http.StatusText(code) == text {
			return code
		}
	}
	return 0
}

// mayRefuseAll reports whether the answer to a call, an error of MCP with a status from 400 to 499, may be what the
// server answers to all requests of the session: it doesn't know it any more, or the token has expired. There is no code
// for that.
func mayRefuseAll(err error) bool {
	var wire *jsonrpc.Error
	if !errors.As(err, &wire) || !errors.Is(err, &jsonrpc.Error{Code: codeRejected}) {
		return false
	}

	switch wire.Code {
	case codeRefused, -32001, jsonrpc.CodeInvalidRequest:
	default:
		return false
	}
	_, text, _ := strings.Cut(err.Error(), ": rejected by transport: ")
	status := statusOf(text)
	return status >= 400 && status < 500
}
