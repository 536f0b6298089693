package gosdk

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// codeRejected is the code of the SDK's own error for a request that its transport hasn't sent, or that HTTP has
// refused. A server may use the same code for errors of its own.
const codeRejected = -32005

// isRejected reports whether the SDK says that its transport has rejected this very request.
func isRejected(err error) bool {
	var wire *jsonrpc.Error
	return errors.As(err, &wire) && isRejection(wire)
}

// errNotSent takes the place of that error. It says nothing, but that who speaks beside it of one request doesn't speak of
// all that the call may have done.
var errNotSent = resilience.MarkNeutral(errors.New("gosdk: a request wasn't sent"))

// partsOfRejection returns what the SDK has joined with that error, before what takes its place, and what is around these,
// from the inside. The parts are nil if the SDK doesn't say that, and those that were judged if it has been.
func partsOfRejection(said error) (joined, around []error) {
	if j, ok := said.(*judged); ok {
		return j.causes, nil
	}

	for err := said; err != nil && !isOwn(err); err = errors.Unwrap(err) {
		around = slices.Insert(around, 0, err)
		several, ok := err.(interface{ Unwrap() []error })
		if !ok {
			continue
		}

		joined = slices.Clone(several.Unwrap())
		n := slices.IndexFunc(joined, isRejection)
		if n < 0 {
			break
		}
		around = slices.Insert(around, 0, joined[n])
		return append(slices.Delete(joined, n, n+1), errNotSent), around
	}
	return nil, nil
}

// isRejection reports whether err itself is that error.
func isRejection(err error) bool {
	wire, ok := err.(*jsonrpc.Error)
	return ok && wire.Code == codeRejected && wire.Message == "rejected by transport"
}

// markRefusal marks err if the SDK says in it that HTTP has refused a request, or that the client's own login hasn't let
// it through: an agent, or a user, can bring most of these about.
func markRefusal(err, said error, sent *reach) error {
	if isRejected(said) {
		var request *url.Error
		switch {
		case strings.Contains(said.Error(), ": rejected by transport: sending "):
			return resilience.MarkBackend(err) // 429, 500, or 502 to 504: the call may have reached the server
		case errors.As(said, &request) && (sent.began.Load() || !errors.Is(said, context.Canceled)):
			return err
		}
		return resilience.MarkNeutral(err) // of the login, also one that has used the context of another call in vain
	}

	switch status, refused := refusal(said); {
	case !refused:
		return err
	case status >= 500 && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported:
		return resilience.MarkBackend(err)
	}
	return resilience.MarkNeutral(err) // also for other calls that end with the session
}

// refusal reports whether the SDK has given up the session, and ends all its calls with this error, although the server
// is in no trouble that is known: an HTTP server has answered a request by something else than MCP, such as a login
// page, with a status from 300 or with one that isn't known, which is zero here; or this side has ended it, since an
// answer is longer than its own limit, or its caller has left within an answer or a login. Only the text tells.
func refusal(err error) (status int, refused bool) {
	var wire *jsonrpc.Error
	if errors.As(err, &wire) || !isCallError(err) {
		return 0, false
	}

	return refusalIn(saidBySDK(err))
}

// refusalIn implements refusal for what the SDK says.
func refusalIn(said string) (status int, refused bool) {
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
	hasSaid := func(words string) bool { return strings.HasPrefix(said, words) }
	harmless := slices.ContainsFunc(harmlessEnds, hasSaid) && !strings.HasSuffix(said, endOfHTTPClient)
	return status, found && (said == "" || status != 0 || harmless)
}

// harmlessEnds are the beginnings of what the SDK says of such an end. It knows no text of some statuses.
var harmlessEnds = []string{
	"unsupported content type ", "failed to decode ", loginCanceled, "malformed event: ",
	"exceeded ", "failed to reconnect ", // see cutOff
	"failed to read body: context canceled", "failed to read body: context deadline exceeded",
	"failed to read body: " + string(resilience.CodeCanceled), // by the end of a guarded call
	"failed to read body: " + string(resilience.CodeTimeout),
}

const loginCanceled = "authorization cancelled: "

// cutOff reports whether the SDK has ended the session since an answer has broken off that can't be resumed, and whether
// it has tried: its MaxRetries may be negative.
func cutOff(err error) (cut, tried bool) {
	var wire *jsonrpc.Error
	said := saidBySDK(err)
	if errors.As(err, &wire) || !isCallError(err) || !strings.HasPrefix(said, `sending "`) {
		return false, false // these may be the server's own words
	}

	_, said, _ = strings.Cut(said, ": ")
	exceeded, failed := strings.HasPrefix(said, "exceeded "), strings.HasPrefix(said, "failed to reconnect ")
	never := strings.HasPrefix(said, "exceeded 0 ") || strings.HasSuffix(said, ": connection aborted after 0 attempts")
	return exceeded || failed, !never
}

// endOfHTTPClient is what net/http adds if the Timeout of an http.Client has ended a call within an answer: the server
// hangs there.
const endOfHTTPClient = " (Client.Timeout or context cancellation while reading body)"

// ofCall matches how the SDK begins to say why a request has failed, by its method. What comes later in a text may be an
// agent's words.
var ofCall = regexp.MustCompile(`^calling ("(?:[^"\\]|\\.)*"): `)

// methods are those of MCP that a client requests.
var methods = []string{
	"completion/complete", "initialize", "logging/setLevel", "ping", "prompts/get", "prompts/list", "resources/list",
	"resources/read", "resources/subscribe", "resources/templates/list", "resources/unsubscribe", "server/discover",
	"subscriptions/listen", "tools/call", "tools/list",
}

// isMethod reports whether a quoted name is one of these. Others may be custom methods, or tools that somebody calls.
func isMethod(method string) bool {
	return slices.ContainsFunc(methods, func(name string) bool { return method == strconv.Quote(name) })
}

// cutCall returns the quoted method of such a text and what follows, and whether the SDK has said first that the
// connection is closed.
func cutCall(err error) (method, said string, closed, found bool) {
	text, closed := strings.CutPrefix(err.Error(), mcp.ErrConnectionClosed.Error()+": ")
	at := ofCall.FindStringSubmatchIndex(text)
	if at == nil {
		return "", "", closed, false
	}
	return text[at[2]:at[3]], text[at[1]:], closed, true
}

// isCallError reports whether err is the SDK's error of a request that failed: by a method of MCP, or a custom one, which
// has a slash in its name as those have, or holds what only the SDK says.
func isCallError(err error) bool {
	method, said, _, found := cutCall(err)
	switch {
	case !found || isQuestion(err):
		return false
	case isMethod(method), strings.Contains(method, "/"):
		return true
	}
	var wire *jsonrpc.Error
	return errors.As(err, &wire) || errors.Is(err, mcp.ErrSessionMissing) || errors.Is(err, mcp.ErrConnectionClosed) ||
		strings.HasPrefix(said, `sending "`)
}

// saidBySDK returns what the SDK says of a call, after its method.
func saidBySDK(err error) string {
	_, said, _, _ := cutCall(err)
	return said
}

// isOfStream reports whether the SDK has ended a call since the stream of the session, which belongs to no call, can't
// be resumed.
func isOfStream(err error) bool {
	said := saidBySDK(err)
	var wire *jsonrpc.Error
	switch {
	case isRejected(err):
		said = strings.TrimPrefix(said, "rejected by transport: ")
	case errors.As(err, &wire) && (strings.HasPrefix(said, wire.Error()) || strings.HasPrefix(err.Error(), wire.Error())):
		return false // these are the server's own words
	}
	return isCallError(err) && strings.HasPrefix(said, "standalone SSE stream: ")
}

// isLoginCanceled reports whether the SDK has given up the session since the caller of one call has left within its login.
func isLoginCanceled(err error) bool {
	_, said, _ := strings.Cut(saidBySDK(err), ": ")
	_, refused := refusal(err)
	return refused && strings.HasPrefix(said, loginCanceled)
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

// isSameRefusal reports whether two errors of MCP have the same code, and came with the same status of HTTP, whose name
// the SDK appends. What else they say may differ, as the number of a request does.
func isSameRefusal(a, b error) bool {
	var one, other *jsonrpc.Error
	return errors.As(a, &one) && errors.As(b, &other) && one.Code == other.Code && lastWords(a) == lastWords(b)
}

// lastWords returns the text of an error after the last colon.
func lastWords(err error) string {
	text := err.Error()
	return strings.TrimSpace(text[strings.LastIndex(text, ": ")+1:])
}

// mayRefuseAll reports whether an error of MCP came with a status of HTTP, or from a Transport, and may therefore be what
// the server answers to all requests of the session: it doesn't know it any more, or the token has expired.
func mayRefuseAll(err error) bool {
	var wire *jsonrpc.Error
	if !errors.As(err, &wire) || wire.Code == codeRejected || wire.Code == jsonrpc.CodeMethodNotFound {
		return false
	}
	return errors.Is(err, &jsonrpc.Error{Code: codeRejected}) ||
		wire.Code == codeRefused && strings.HasSuffix(wire.Message, noAnswer)
}
