package resilience

import (
	"cmp"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/textproto"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
)

const (
	refused       = "connection refused" // the only reason that certainly precedes any effect
	closed        = "connection closed by the other side"
	noValidAnswer = "no valid answer"
)

// addLoss adds whether err means that a connection is gone. What it wraps knows the reason better. Its type is from a
// package with this path.
func (f *facts) addLoss(err error, from string) {
	if f.has(isCanceled) { // of a dial or a look-up that was canceled, nothing is known
		return
	}

	switch x := err.(type) {
	case *net.ParseError, *net.AddrError, net.UnknownNetworkError, net.InvalidAddrError:
		return // they implement net.Error, but concern no connection
	case *fs.PathError: // of a pipe or a terminal: a program that an agent's words have ended doesn't read on
		f.surelyLost = false
		if x.Err == os.ErrDeadlineExceeded {
			f.lost = ""
		}
		return
	case *net.OpError:
		if x.Op == "listen" || x.Op == "accept" || x.Op == "route" { // at an address of this machine's, or about its own
			f.lost, f.surelyLost = "", false
			return
		}
		switch inner := x.Err.(type) {
		case *net.ParseError, *net.AddrError, net.UnknownNetworkError, net.InvalidAddrError:
			return // it dialed nobody
		case *net.DNSError:
			if inner != nil {
				f.lost, f.surelyLost = lookUpFailed(inner)
				return
			}
		}
	}

	if f.surelyLost {
		return
	}
	var reason string
	reason, f.surelyLost = lostReason(err, from)
	f.lost = cmp.Or(f.lost, reason)
}

// lostReason returns in our own words why err means that a connection is gone, or "" if it doesn't, and whether
// that is sure: an agent can bring about as well that a host doesn't exist, whose name it chose, and that input
// breaks off, which it sent.
func lostReason(err error, from string) (reason string, sure bool) {
	switch x := err.(type) {
	case errno: // implements net.Error too, even ENOENT
		reason = lostErrno[x]
		return reason, reason != ""
	case *net.DNSError:
		return lookUpFailed(x)
	case *url.Error: // implements net.Error, even for a URL that can't be parsed
		if x.Op == "parse" {
			return "", false
		}
		return noAnswer(x.Op, x.Err) // its cause has said nothing
	}

	switch {
	case err == net.ErrClosed: // implements net.Error, too
		return "connection closed", true
	case isItself(err, driver.ErrBadConn): // of which some drivers don't know what the server has done
		return "connection closed", true
	case err == io.ErrUnexpectedEOF:
		return closed, false
	case strings.Contains(from, "net/http"):
		if reason, sure = brokenHTTP2(err); reason != "" {
			return reason, sure
		}
	}
	if x, ok := err.(net.Error); ok {
		reason = netReason(x, from)
	}
	return reason, reason != "" && !isOfRequest(err)
}

// isOfRequest reports whether err may say no more than that an address isn't valid, that a message can't be sent, such
// as one that is too large, or that the other side rejects what was offered in a handshake of TLS: an agent can bring
// these about. Those errno that mean a lost connection have said so.
func isOfRequest(err error) bool {
	x, ok := err.(*net.OpError)
	if !ok || x.Op == "remote error" {
		return ok
	}
	inner := x.Err
	if call, ok := inner.(*os.SyscallError); ok {
		inner = call.Err
	}
	_, ok = inner.(errno)
	return ok && (x.Op == "write" || inner == error(syscall.EINVAL))
}

// noAnswer returns why err, with which a request of HTTP has failed, means that the connection has brought no answer,
// or "" if it doesn't, and whether that is sure. op is that of a url.Error, the request's method. net/http has no types
// for most such errors. Of their texts, only words of its own count, as what a peer has sent comes after those. What it
// says of a request that can't be sent may have the same beginning.
func noAnswer(op string, err error) (reason string, sure bool) {
	switch err {
	case io.EOF:
		return closed, true
	case io.ErrUnexpectedEOF: // perhaps of the request's own body
		return closed, op == "" || isSafe(strings.ToUpper(op))
	}

	switch fmt.Sprintf("%T", err) {
	case "*errors.errorString":
		return noAnswerIn(textOf(err))
	case "*fmt.wrapError": // of which inner is the reason
		if strings.HasPrefix(textOf(err), "http2: failed reading the frame payload: ") { // an answer of HTTP/1
			return noValidAnswer, true
		}
		inner := errors.Unwrap(err)
		if inner == nil || textOf(err) != "net/http: HTTP/1.x transport connection broken: "+textOf(inner) {
			break
		}
		if inner == io.EOF || inner == io.ErrUnexpectedEOF {
			return closed, true
		}

		// A header that breaks off within a line can't be told from one that is garbled.
		_, garbled := inner.(textproto.ProtocolError)
		text := textOf(inner)
		if garbled || slices.ContainsFunc(garbledHeaders, func(begin string) bool { return strings.HasPrefix(text, begin) }) {
			return noValidAnswer, true
		}
	}
	return "", false
}

// garbledHeaders is how net/http begins what it says of the header of an answer that it can't read.
var garbledHeaders = []string{
	"malformed HTTP ", "bad Content-Length ", "http: message cannot contain multiple Content-Length headers",
	"unsupported transfer encoding", "too many transfer encodings",
}

// noAnswerIn implements noAnswer for the text of an error that has nothing but that.
func noAnswerIn(text string) (reason string, sure bool) {
	switch text {
	case "http2: client connection lost", "http: server closed idle connection",
		"http: unexpected EOF reading trailer", "http: suspiciously long trailer after chunked body": // no end of it comes
		return closed, true
	case "http2: client conn could not be established": // what has come isn't HTTP/2
		return noValidAnswer, true
	}
	if code, ok := strings.CutPrefix(text, "http2: Transport received GOAWAY from server ErrCode:"); ok {
		return closed, !ofRequest[code]
	}
	_, refused := strings.CutPrefix(text, "http2: Transport: cannot retry err [")
	if refused && strings.HasSuffix(text, "] after Request.Body was written; define Request.GetBody to avoid this error") {
		return closed, true // the server has given it up
	}
	return "", false
}

// brokenHTTP2 returns why err says that a connection or a stream of HTTP/2 is gone, or "" if it doesn't, and whether
// that is sure: a server has reset the stream, or is about to close the connection (RFC 9113, sections 6.4 and 6.8), or
// what it says isn't HTTP/2. Its types in net/http aren't exported; they have the fields of those in
// golang.org/x/net/http2.
func brokenHTTP2(err error) (reason string, sure bool) {
	v := reflect.Indirect(reflect.ValueOf(err))
	field := ""
	switch strings.TrimPrefix(v.Type().Name(), "http2") {
	case "StreamError":
		field = "Code"
	case "GoAwayError":
		field = "ErrCode"
	case "ConnectionError":
		return noValidAnswer, true
	default:
		return "", false
	}

	code := v.FieldByName(field)
	return closed, !code.IsValid() || !ofRequest[fmt.Sprint(code.Interface())]
}

// ofRequest are the codes of HTTP/2 by which a server complains of what it was sent, such as a header that is too long,
// rather than of trouble (RFC 9113, section 7).
var ofRequest = map[string]bool{
	"PROTOCOL_ERROR": true, "FRAME_SIZE_ERROR": true, "COMPRESSION_ERROR": true, "ENHANCE_YOUR_CALM": true,
	"INADEQUATE_SECURITY": true, "HTTP_1_1_REQUIRED": true,
}

// lookUpFailed returns why a look-up has failed, and whether a server's trouble is sure to be the reason.
func lookUpFailed(err *net.DNSError) (reason string, sure bool) {
	if err.IsNotFound || err.Err == "unrecognized address" { // which no server is asked for
		return "host not found", false
	}
	return "the host can't be looked up", true
}

// networkTimeout is said where no more is known of a connection than that a deadline has passed.
const networkTimeout = "network timeout"

// netReason asks the Timeout method of err, which may panic. Only types of the standard library concern the network for
// sure: others have the methods for whatever a server has answered. Its type is from a package with this path.
func netReason(err net.Error, from string) (reason string) {
	defer func() {
		if recover() != nil {
			reason = ""
		}
	}()

	switch {
	case err.Timeout():
		return networkTimeout
	case from == "net", from == "net/http", from == "crypto/tls", from == "internal/poll":
		return "network error"
	}
	return ""
}

// A loss is the reason why there is no connection.
type loss struct {
	err     error
	message string // for an agent; it holds no text of err, unless err is an *Error
}

// loss returns the loss that f means. It takes the message of an *Error, which was written for agents, or else
// describes f in words of our own.
func (f *facts) loss() loss {
	if e := f.explicit; e != nil && e.Code == CodeConnectionLost && e.Message != "" {
		return loss{f.err, e.Message}
	}

	reason := f.lost
	if f.has(isEOF) {
		reason = closed
	}
	return loss{f.err, ConnectionLostError(reason).Message}
}

// repeated marks the last error of several attempts of which an earlier one may have had an
// effect: the last one doesn't speak for all of them.
type repeated struct{ error }

func (r *repeated) Unwrap() error { return r.error }

// addEffect adds whether err is certain to have left the backend as it was: it is marked so, or the connection
// was refused or never made, or what it wraps is certain. own is the sign of err itself.
func (f *facts) addEffect(err error, own sign) {
	f.noEffect = f.noEffect || own == signHiccup
	switch x := err.(type) {
	case *marked:
		if x.class != ClassNeutral {
			f.noEffect, f.harmless = x.noEffect, x.noEffect
		}
	case *notMade:
		f.noEffect = true
	case *repeated:
		f.repeated, f.noEffect, f.harmless = true, false, false
	case *PanicError:
		f.noEffect, f.harmless = false, false
	case *Error:
		f.harmless = false // a mark in it speaks for a call that the tool made, not for all that it did
		if x.speaksForSeveral() {
			f.noEffect = x.isOfConnector()
		}
	case *blamed:
		f.addBlamed(x)
	case *net.OpError:
		f.noEffect = x.Op == "dial" || x.Op == "proxyconnect" || x.Op == "socks connect" // by which net/http dials
	case *net.DNSError:
		f.noEffect = true
	case *fs.PathError: // of another operation, what came before isn't known, as with os.RemoveAll
		n, _ := x.Err.(errno)
		first := x.Op == "open" || x.Op == "fork/exec"
		f.noEffect = f.harmless || first && (hiccups[n] || inUse[n])
	case errno:
		f.noEffect = lostErrno[x] == refused
	default:
		_, again := asItself[*repeated](err)
		f.repeated = f.repeated || again
	}
}

// addBlamed adds what is known of the backend. After an attempt that has sent what may have changed something,
// only the program itself knows better, and says so by a mark.
func (f *facts) addBlamed(b *blamed) {
	f.blamed = b
	switch {
	case b.changed:
		f.noEffect = f.harmless
	case b.verdict != nil && b.verdict.refused && f.tellsNothing():
		f.noEffect = true
	}
}

// speaksForSeveral reports whether the cause of e is only the last of several things that happened, and says
// nothing about those before it.
func (e *Error) speaksForSeveral() bool {
	return e.Code != CodeConnectionLost && e.Code != CodeToolFailed
}
