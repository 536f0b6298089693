package gosdk

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// The SDK exports few of the errors that it returns for a lost connection. The others are recognized
// here by their texts, but only where the text can't be the server's: that is in a *jsonrpc.Error, or
// in an mcp.ErrConnectionClosed, which the SDK also returns for two error codes of the server's. For these
// it has words of its own, and a server that uses them is believed.
//
// Only a failed dial proves that a call hasn't reached the server, if none of its requests had a connection
// before. The SDK doesn't send calls over a connection that it knows to be closed, but its error for them is
// the one for these two codes: a Session must know besides that no request has begun.

// protocolStateless is the protocol since which there are neither sessions nor pings.
const protocolStateless = "2026-07-28"

const (
	reasonEnded   = "the server has ended the session"
	reasonClosed  = "the server has closed the connection"
	reasonLogin   = "a login for another call was canceled"
	reasonRefused = "the server refuses all that comes by this session"
)

// clientError returns the error for the guard that err stands for, where err ended a call of the
// given session that has come as far as sent. It is CONNECTION_LOST if what the SDK has said in it means that. A judged
// error stands for what was said alone.
func clientError(err, said error, session string, sent *reach) error {
	if isQuestion(said) {
		return resilience.MarkNeutral(err) // whatever it is, it isn't the server's
	}

	dial := dialOf(said)
	_, refused := refusal(said)
	cut, tried := cutOff(said)
	switch {
	case isWhole(said):
		return err // it has been judged
	case isLoginCanceled(said):
		return ofOtherLogin(said)
	case isAuthored(said):
		if joined, around := partsOfRejection(said); joined != nil {
			return &judged{error: said, causes: joined, around: around, whole: true}
		}
		return err
	case dial != nil:
		e := resilience.AsError("", dial)
		if e.Code != resilience.CodeConnectionLost { // the dial of another call was canceled
			e = resilience.ConnectionLostError("the server can't be reached")
		}
		if e.Err = errors.Join(err, errInFlight); isRejected(said) && sent.isNone() {
			e.Err = resilience.MarkTransient(err) // the call didn't reach the server
		}
		return e
	case errors.Is(said, mcp.ErrSessionMissing), isSessionUnknown(said, session):
		// The reply may be to another request, which ended this call in flight.
		return connectionLost(reasonEnded, err)
	case mayLackResult(said):
		return noResult(err)
	case isConnectionClosed(said), endsConnection(said), errors.Is(said, io.EOF), isUnanswered(said), isOfStream(said):
		return connectionLost(reasonClosed, err)
	case cut && sent.isCutOff(tried), sent.resumed.Load() && (refused || mayRefuseAll(said)):
		return connectionLost(reasonClosed, err) // the answer has broken off
	}
	return markProtocolError(markRefusal(err, said, sent), said)
}

// dialOf returns the failed dial in err, of the server or of a proxy, nil if there is none.
func dialOf(err error) *net.OpError {
	var dial *net.OpError
	if !errors.As(err, &dial) {
		return nil
	}
	switch dial.Op {
	case "dial", "proxyconnect", "socks connect": // as net/http has them
		return dial
	}
	return nil
}

// isAuthored reports whether err says whose fault it is, by a mark or an *Error of who has written the client's
// transport, login or middleware.
func isAuthored(err error) bool {
	var own *resilience.Error
	return errors.As(err, &own) || errors.As(err, reflect.New(markType).Interface())
}

// isExcused reports whether the author of the client's login or transport has said of a request that wasn't sent that this
// says nothing of the server.
func isExcused(err error) bool {
	joined, _ := partsOfRejection(err)
	class := resilience.Classify(errors.Join(joined...))
	return isAuthored(err) && (class == resilience.ClassNeutral || class == resilience.ClassInvalid)
}

// isConnectionClosed reports whether err is what the SDK says of a connection that it knows to be closed, and not what
// a server has chosen to say by the same code.
func isConnectionClosed(err error) bool {
	said := saidBySDK(err)
	return errors.Is(err, mcp.ErrConnectionClosed) &&
		(strings.HasPrefix(said, "client is closing") || strings.HasPrefix(said, "server is closing"))
}

// errInFlight is joined with a dial that isn't all that the call has done: it has reached the server in an
// earlier round, or the dial is of another call, since the SDK ends all calls of a connection with the error
// of a login that has failed during one of them.
var errInFlight = errors.New("gosdk: the call may have been in flight")

// ofOtherLogin returns what the SDK has said without what that login itself has: it was about its own call.
func ofOtherLogin(said error) error {
	lost := resilience.MarkNeutral(resilience.ConnectionLostError(reasonLogin))
	return wholeOf(said, lost, func(err error) bool { return strings.Contains(err.Error(), loginCanceled) })
}

func connectionLost(reason string, err error) *resilience.Error {
	e := resilience.ConnectionLostError(reason)
	e.Err = err
	return e
}

// isSessionUnknown reports whether err is HTTP status 404 with a protocol error in its body. Servers
// in Python reply so if they don't know the session any more, and the SDK then doesn't return
// mcp.ErrSessionMissing. It appends the name of the status to the server's text.
func isSessionUnknown(err error, session string) bool {
	var wire *jsonrpc.Error
	return session != "" && errors.As(err, &wire) &&
		wire.Code != codeRejected && wire.Code != jsonrpc.CodeMethodNotFound && errors.Is(err, &jsonrpc.Error{Code: codeRejected}) &&
		strings.HasSuffix(err.Error(), ": "+http.StatusText(http.StatusNotFound))
}

// mayLackResult reports whether err is what the SDK says of an answer with neither a result nor an error, as tools of the
// TypeScript SDK may give, and also of a connection that has ended. Only the session tells which it is.
func mayLackResult(err error) bool {
	var wire *jsonrpc.Error
	return isCallError(err) && errors.Is(err, io.EOF) && saidBySDK(err) == io.EOF.Error() && !errors.As(err, &wire)
}

// endsConnection reports whether err is what the SDK says of something that it can't read as a message, or what the pipe
// or the network connection of its transport says, by which it ends the connection, perhaps of a process that goes on.
// Of an answer's result that it can't read it has other words, and so it has of all that streamable HTTP says; that for
// SSE ends the connection, too.
func endsConnection(err error) bool {
	if !isCallError(err) {
		return false
	}
	var wire *jsonrpc.Error
	if errors.As(err, &wire) {
		return slices.Contains(unreadable, wire)
	}

	said := saidBySDK(err)
	return says[*json.SyntaxError](err, said) || says[*fs.PathError](err, said) || says[*net.OpError](err, said) ||
		says[*url.Error](err, said) ||
		said == io.ErrUnexpectedEOF.Error() || said == io.ErrClosedPipe.Error() ||
		slices.ContainsFunc(unreadableWords, func(words string) bool { return strings.HasPrefix(said, words) })
}

// says reports whether err has a cause of the type E that says just that.
func says[E error](err error, said string) bool {
	var cause E
	return errors.As(err, &cause) && cause.Error() == said
}

// unreadableWords are the beginnings of what the SDK says of what is no message, but for what isn't JSON.
var unreadableWords = []string{
	"unmarshaling jsonrpc message: ", "invalid message version tag ", "invalid trailing data at the end of stream",
	"inbound JSON-RPC frame exceeded ", "empty batch", "duplicate message ID ",
	"JSON-RPC batching is not supported ",
}

// unreadable holds what it says of a message without an ID, or with one of another kind. These are always the same
// values, whatever words a server's own may have.
var unreadable = func() (all []*jsonrpc.Error) {
	for _, message := range []string{`{"jsonrpc":"2.0"}`, `{"jsonrpc":"2.0","id":{}}`} {
		_, err := jsonrpc.DecodeMessage([]byte(message))
		var wire *jsonrpc.Error
		if errors.As(err, &wire) {
			all = append(all, wire)
		}
	}
	return all
}()

// noResult returns the error of a call with such an answer, which doesn't tell that anything is lost.
func noResult(err error) error {
	const message = "The server has answered without a result"
	return resilience.MarkNeutral(&resilience.Error{Code: resilience.CodeToolFailed, Message: message, Err: err})
}

// isUnanswered reports whether the server closed the connection instead of replying, for an err that isn't
// mcp.ErrConnectionClosed. Neither the SDK nor net/http exports these errors.
func isUnanswered(err error) bool {
	var request *url.Error
	if errors.As(err, &request) && request.Err != nil {
		return strings.HasSuffix(request.Err.Error(), "http: server closed idle connection")
	}

	var wire *jsonrpc.Error
	return !errors.As(err, &wire) && strings.HasSuffix(err.Error(), ": request terminated without response")
}

// endsSession reports whether err says that its session can't be used any more. A request that only
// broke on its way, which the SDK calls rejected, doesn't end the session, unless no server was there. The refusal of
// one request by an HTTP server that doesn't speak MCP does.
func endsSession(err error, session string) bool {
	if !isCallError(err) {
		return false
	}

	_, refused := refusal(err)
	return refused || endsConnection(err) || isOfStream(err) || dialOf(err) != nil && !isExcused(err) ||
		errors.Is(err, mcp.ErrSessionMissing) || isSessionUnknown(err, session)
}

// mayFollowSessionEnd reports whether the error of a call may be a consequence of its session's end,
// although it doesn't say so. For an mcp.ErrConnectionClosed, and for what may be the end, isClosed finds that out.
func mayFollowSessionEnd(err error) bool {
	var wire *jsonrpc.Error
	_, refused := refusal(err)
	return !isQuestion(err) && !errors.As(err, &wire) && !errors.Is(err, mcp.ErrConnectionClosed) && !mayLackResult(err) &&
		!refused && !isUnanswered(err) && !isUnsent(err) && !isAuthored(err)
}

// isUnsent reports whether err is that of a call whose arguments can't be encoded.
func isUnsent(err error) bool {
	var value *json.UnsupportedValueError
	var kind *json.UnsupportedTypeError
	var method *json.MarshalerError
	return errors.As(err, &value) || errors.As(err, &kind) || errors.As(err, &method)
}
