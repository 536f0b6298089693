package gosdk

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/seed8d1e2389/resilience"
)

// maxErrorBody is how much of the body of a refusal is looked at. One that is longer is no error of MCP.
const maxErrorBody = 1 << 20

// codeRefused is the code of the errors that Transport makes. It says no more than that there is one.
const codeRefused = -32000

// Transport returns a RoundTripper for the HTTPClient of an mcp.StreamableClientTransport. It reports what the other
// server says to the guarded call, as [resilience.Transport] does, and it keeps the refusal of one request from ending
// the session of all: a proxy, or a limit on the length of requests, answers with a status from 400 and a text, and the
// SDK then gives the session up, with all calls in flight. Transport makes the text an error of MCP, with the name of
// the status as its message, so that it ends its own call alone. It leaves 404, which may say that the session is over,
// and 429, 502, 503 and 504, which the SDK knows, as they are, and so it does errors of MCP.
//
// A nil base is http.DefaultTransport. The returned RoundTripper is safe for concurrent use if base is, and has the
// method CloseIdleConnections, which calls that of base, if it has one.
func Transport(base http.RoundTripper) http.RoundTripper {
	return &transport{resilience.Transport(base)}
}

type transport struct{ http.RoundTripper }

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.RoundTripper.RoundTrip(req)
	if err != nil || req.Method != http.MethodPost || !endsSessionOfAll(res.StatusCode) {
		return res, err
	}

	body, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	message, _ := jsonrpc.DecodeMessage(body)
	if answer, ok := message.(*jsonrpc.Response); ok && answer.Error != nil && err == nil {
		res.Body = &readAgain{io.MultiReader(bytes.NewReader(body), res.Body), res.Body}
		return res, nil
	}
	_ = res.Body.Close()

	text, _ := json.Marshal(map[string]any{ // as it always can be
		"jsonrpc": "2.0", "id": "refused", // which the SDK wants, but doesn't look at
		"error": map[string]any{"code": codeRefused, "message": http.StatusText(res.StatusCode)},
	})
	res.Header = res.Header.Clone()
	res.Header.Del("Content-Encoding")
	res.Header.Set("Content-Type", "application/json")
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return res, nil
}

// endsSessionOfAll reports whether the SDK gives up the session after a status without an error of MCP, although only
// one request was refused.
func endsSessionOfAll(status int) bool {
	switch status {
	case http.StatusNotFound, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return false
	}
	return status >= 400
}

// A readAgain is a body of which a part has been read.
type readAgain struct {
	io.Reader
	io.Closer
}

// CloseIdleConnections is what http.Client.CloseIdleConnections looks for.
func (t *transport) CloseIdleConnections() {
	t.RoundTripper.(interface{ CloseIdleConnections() }).CloseIdleConnections()
}
