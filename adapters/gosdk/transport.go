package gosdk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/seed8d1e2389/resilience"
)

// codeRefused is the code of the errors that Transport makes. It says no more than that there is one.
const codeRefused = -32000

// sessionHeader says which session a request belongs to.
const sessionHeader = "Mcp-Session-Id"

// noAnswer ends the message of such an error if the status doesn't tell.
const noAnswer = " is no answer of MCP"

// Transport returns a RoundTripper for the HTTPClient of an mcp.StreamableClientTransport. It reports what the other
// server says to the guarded call, as [resilience.Transport] does, and it keeps the answer to one request that isn't
// MCP's from ending the session of all: a limit on the length of requests, a firewall or a login page answers with a
// status from 300 or with a page, and the SDK then gives the session up, with all calls in flight. Transport makes that an
// error of MCP, with the status in its message, so that it ends its own call alone; so does an answer in JSON that breaks
// off, or isn't MCP's. An error of MCP that lacks the ID of its request gets that. A [Session] whose server refuses each
// request so is lost all the same.
//
// Transport leaves as they are: errors of MCP, status 404 for a request of a session, which may be over, 429, 502, 503
// and 504, with which the SDK keeps the session, the refusal of what a client answers to a question, since the server
// would go on waiting, and that of a request by which the SDK asks again for an answer that has broken off.
//
// A nil base is http.DefaultTransport. The returned RoundTripper is safe for concurrent use if base is, and has the
// method CloseIdleConnections, which calls that of base, if it has one.
func Transport(base http.RoundTripper) http.RoundTripper {
	return &transport{resilience.Transport(base)}
}

type transport struct{ http.RoundTripper }

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.RoundTripper.RoundTrip(req)
	for req.Response != nil && req.Response.Request != nil { // it follows a redirect, as to a login page
		req = req.Response.Request
	}
	if err != nil || req.Method != http.MethodPost {
		return res, err
	}
	if res.Body == nil {
		res.Body = http.NoBody
	}
	isAnswer, refused, err := isOfMCP(res, req.Header.Get(sessionHeader) != "")
	if ended := req.Context().Err(); ended != nil {
		err = ended
	}
	if err != nil { // the SDK would end the session with an answer that is read in part
		_ = res.Body.Close()
		return nil, err
	}
	if isAnswer {
		return res, nil
	}

	sent := messageOf(req)
	isCall, isGood := len(sent.ID) > 0, res.StatusCode < 300
	if sent.Method == "" || isGood && !isCall {
		return res, nil
	}
	_ = res.Body.Close()
	if !isCall {
		sent.ID = json.RawMessage(`"refused"`) // which the SDK wants, but doesn't look at
	}
	if refused == nil {
		refused = &jsonrpc.Error{Code: codeRefused, Message: http.StatusText(res.StatusCode)}
		if isGood || refused.Message == "" {
			refused.Message = fmt.Sprintf("status %d with %q%s", res.StatusCode, mediaOf(res), noAnswer)
		}
	}
	if isGood {
		res.StatusCode = http.StatusOK
	}
	setBody(res, sent.ID, refused)
	return res, nil
}

// isOfMCP reports whether an answer to a request, of a session or not, is one of MCP, or has a status that the SDK knows.
// It reads one in JSON, as the SDK does; err is that of reading it. If it is an error of MCP without the ID of a request,
// with a status from 300, as the TypeScript SDK's servers answer, the SDK takes it for none: it is refused.
func isOfMCP(res *http.Response, ofSession bool) (isAnswer bool, refused *jsonrpc.Error, err error) {
	isGood := res.StatusCode < 300
	switch res.StatusCode {
	case http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true, nil, nil
	case http.StatusNotFound:
		if ofSession { // which may be over
			return true, nil, nil
		}
	}
	switch media := mediaOf(res); {
	case isGood && media == "text/event-stream":
		return true, nil, nil
	case isGood && media != "application/json":
		return false, nil, nil
	}

	body, err := io.ReadAll(res.Body)
	res.Body = &readAgain{bytes.NewReader(body), res.Body}
	message, _ := jsonrpc.DecodeMessage(body)
	answer, ok := message.(*jsonrpc.Response)
	switch {
	case !isGood && ok && answer.Error != nil:
		return true, nil, nil
	case !isGood:
		return false, wireErrorOf(body), nil
	case ok:
		ok = answer.ID.IsValid() // the SDK ends the session with one that belongs to no call
	default:
		ok = message != nil
	}
	return ok, nil, err
}

// wireErrorOf returns the error of MCP that an answer is, whatever its ID is, nil if it is none.
func wireErrorOf(body []byte) *jsonrpc.Error {
	var answer struct {
		Version string         `json:"jsonrpc"`
		Error   *jsonrpc.Error `json:"error"`
	}
	if json.Unmarshal(body, &answer) != nil || answer.Version != "2.0" {
		return nil
	}
	return answer.Error
}

func mediaOf(res *http.Response) string {
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	return media
}

// An envelope is what tells of a message of MCP: an answer has no Method, and a notification no ID.
type envelope struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
}

// messageOf reads the message that a request carries, if that can be read again.
func messageOf(req *http.Request) (m envelope) {
	if req.GetBody == nil {
		return m
	}
	body, err := req.GetBody()
	if err != nil {
		return m
	}
	defer body.Close()
	_ = json.NewDecoder(body).Decode(&m)
	return m
}

// setBody makes the body an error of MCP.
func setBody(res *http.Response, id json.RawMessage, e *jsonrpc.Error) {
	body, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": e}) // as it always can be
	res.Header = maps.Clone(res.Header)
	if res.Header == nil {
		res.Header = make(http.Header)
	}
	res.Header.Del("Content-Encoding")
	res.Header.Set("Content-Type", "application/json")
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
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
